"""Conversions between element types, against `ml_dtypes`, which rounds on its own."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.dtypes import CODE_TYPES, STORAGE_TYPES, as_dtype, bits_of
from engine.base.errors import ShapeError
from engine.base.shapes import DynamicTensorShape
from engine.compiler.interpreter import interpret
from engine.graph.model import Input, Layer, Model, Output
from engine.operators.casting import ONNX_TYPES
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.single import one_layer, run
from tests.peer import open_session

NUMBER = {name: code for code, name in ONNX_TYPES.items()}
SIGNED_CODES = sorted(CODE_TYPES - {"float8_e8m0fnu"})
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 3e38, -3e38], np.float32)


def cast_to(x: np.ndarray, name: str, opset: int = 25, **attributes: Any) -> np.ndarray:
    return run("Cast", [x], {"to": NUMBER[name], **attributes}, opset=opset)[0]


def around(name: str) -> np.ndarray:
    """Every value of a format, the middle between neighbours, what lies beside it, and beyond the largest."""
    values = np.arange(256, dtype=np.uint8).view(as_dtype(name)).astype(np.float32)
    values = np.unique(values[np.isfinite(values)])
    edges = np.append((values[1:] + values[:-1]) / 2, values[-1] + (values[-1] - values[-2]) / 2)
    near = np.concatenate([np.nextafter(edges, np.float32(s * np.inf)) for s in (-1, 1)])
    return np.concatenate([values, edges, near, -edges, values[-1:] * 1.5]).astype(np.float32)


@pytest.mark.parametrize("source", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", SIGNED_CODES)
def test_small_floats_round_to_even_codes(name: str, source: str) -> None:
    with np.errstate(over="ignore"):
        x = np.concatenate([around(name), SPECIAL]).astype(source)
    if bits_of(as_dtype(name)) < 8:
        np.testing.assert_array_equal(
            cast_to(x, name).view(np.uint8), x.astype(name).view(np.uint8), err_msg="never overflows"
        )
        return
    open_end = cast_to(x, name, saturate=0)
    np.testing.assert_array_equal(open_end.view(np.uint8), x.astype(name).view(np.uint8))
    info = ml_dtypes.finfo(as_dtype(name))
    limited = np.clip(x.astype(np.float64), float(info.min), float(info.max)).astype(source)
    np.testing.assert_array_equal(cast_to(x, name).view(np.uint8), limited.astype(name).view(np.uint8))


@pytest.mark.parametrize("name", sorted(CODE_TYPES))
def test_small_floats_become_numbers(name: str) -> None:
    codes = np.arange(1 << bits_of(as_dtype(name)), dtype=np.uint8).view(name)
    np.testing.assert_array_equal(cast_to(codes, "float32"), codes.astype(np.float32))
    finite = codes[np.isfinite(codes.astype(np.float32)) & (np.abs(codes.astype(np.float64)) < 2**31)]
    np.testing.assert_array_equal(cast_to(finite, "int32"), finite.astype(np.float64).astype(np.int32))


@pytest.mark.parametrize(
    ("mode", "saturate", "expected"),
    [
        ("up", 1, [127, 128, 128, 129, 127, 0, 254, 255, 254]),
        ("down", 1, [127, 127, 127, 128, 126, 0, 254, 255, 254]),
        ("nearest", 1, [127, 127, 128, 129, 127, 0, 254, 255, 254]),
        ("nearest", 0, [127, 127, 128, 129, 127, 255, 255, 255, 255]),
    ],
)
def test_exponents_round_as_asked(mode: str, saturate: int, expected: list[int]) -> None:
    """The specification's table of special values, and the ways to round; halfway goes up."""
    x = np.array([1.0, 1.1, 1.5, 3.9, 0.8, 0.0, np.inf, np.nan, 3.3e38], np.float32)
    codes = cast_to(x, "float8_e8m0fnu", round_mode=mode, saturate=saturate)
    assert codes.view(np.uint8).tolist() == expected


@pytest.mark.parametrize("source", STORAGE_TYPES)
def test_every_type_converts_to_every_other(source: str) -> None:
    """Numbers that all types but bool hold."""
    x = np.array([1, 0, 1, 1] if source != "float8_e8m0fnu" else [1, 2, 4, 1]).astype(as_dtype(source))
    for name in STORAGE_TYPES:
        found = cast_to(x, name)
        assert found.dtype == as_dtype(name)
        with np.errstate(all="ignore"):
            expected = x.astype(np.float64).astype(np.int64).astype(np.float64)
        if name in ("bool", "int2", "uint2"):
            expected = (expected != 0 if name == "bool" else expected.astype(name)).astype(np.float64)
        if name == "float8_e8m0fnu":
            expected = np.maximum(expected, 2.0**-127)
        np.testing.assert_array_equal(found.astype(np.float64), expected, err_msg=f"{source} to {name}")


def test_integers_wrap_when_they_narrow() -> None:
    x = np.array([-300, -9, -1, 7, 8, 15, 16, 200, 1 << 33], np.int64)
    for name in ("int4", "uint4", "int2", "uint2", "int8", "uint16"):
        bits = bits_of(as_dtype(name))
        expected = x & ((1 << bits) - 1)
        expected = (
            np.where(expected >> (bits - 1), expected - (1 << bits), expected) if name[0] == "i" else expected
        )
        np.testing.assert_array_equal(cast_to(x, name).astype(np.int64), expected, err_msg=name)


def test_cast_like_takes_the_type_of_its_second_input() -> None:
    x = np.array([1.25, -300.0, np.inf], np.float32)
    like = np.zeros(0, "float8_e4m3fn")
    (limited,) = run("CastLike", [x, like])
    (opened,) = run("CastLike", [x, like], {"saturate": 0})
    assert (
        limited.view(np.uint8).tolist()
        == np.array([1.25, -300, 448], "float8_e4m3fn").view(np.uint8).tolist()
    )
    assert np.isnan(opened.astype(np.float32)).tolist() == [False, False, True]


def known(op_type: str, x: np.ndarray, **attributes: Any) -> np.ndarray:
    """The result for elements that the model itself holds."""
    return interpret(one_layer(op_type, [x], attributes, known=(0,)), {})["y0"]


def test_text_is_made_of_inputs_and_read_from_them(channel: str, make_worker: MakeWorker) -> None:
    x = np.array([[1.5, -2.0]], np.float32)
    words = np.array([["1.5", "-2"]], object)
    for start, expected, to in ((x, words, "object"), (words, x, "float32")):
        assert run("Cast", [start], {"to": NUMBER[to]})[0].tolist() == expected.tolist()
        worker = make_worker(one_layer("Cast", [start], {"to": NUMBER[to]}), channel, allow_fallback=True)
        assert answers(worker, start)[0].tolist() == expected.tolist()


def test_strings_become_numbers_and_numbers_strings() -> None:
    words = np.array(["3.14", "-1e-5", "1E8", "+INF", "-inf", "nan"], object)
    found = known("Cast", words, to=NUMBER["float32"])
    np.testing.assert_array_equal(found, np.array([3.14, -1e-5, 1e8, np.inf, -np.inf, np.nan], np.float32))
    whole = np.array([["100", "-7"], ["100.5", "9007199254740993"]], object)
    assert known("Cast", whole, to=NUMBER["int64"]).tolist() == [[100, -7], [100, 9007199254740993]]
    assert known("Cast", whole[0], to=NUMBER["int4"]).astype(int).tolist() == [4, -7]
    half = known("Cast", words[:2], to=NUMBER["bfloat16"])
    np.testing.assert_array_equal(half, np.array([3.14, -1e-5], "bfloat16"))
    text = known("Cast", np.array([314.15926, 2.5], np.float64), to=NUMBER["object"])
    assert text.dtype == object
    assert text.tolist() == ["314.15926", "2.5"]
    assert known("Cast", np.array([3, -4]), to=NUMBER["object"]).tolist() == ["3", "-4"]


@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bool", "int32", "uint64", "int8"])
def test_numbers_are_written_as_onnxruntime_writes_them(source: str) -> None:
    numbers = [0.4, -6, 1e-7, 1e4, 3.14159265358979, 0.1 + 0.2, -0.0, 100, 1.5e-5, 0, 1]
    numbers += [123456789.125, 1e20, np.nan, np.inf, -np.inf] if source in ("float32", "float64") else []
    x = np.array(numbers).astype(source)
    name = {"float32": "float", "float64": "double"}.get(source, source)
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 19]>
            cast ({name}[n] x) => (string[n] y) {{ y = Cast <to = 8> (x) }}"""
    )
    session = open_session(model.SerializeToString())
    (expected,) = session.run(None, {"x": x})
    assert known("Cast", x, to=NUMBER["object"]).tolist() == list(expected)


SAME_WIDTH = [
    ("float32", "int32"), ("float32", "uint32"), ("uint32", "float32"), ("float64", "uint64"),
    ("uint64", "float64"), ("float16", "int16"), ("uint16", "float16"), ("bfloat16", "uint16"),
    ("int16", "bfloat16"), ("float16", "bfloat16"), ("int8", "uint8"), ("uint8", "float8_e5m2"),
    ("float8_e4m3fn", "int8"), ("bool", "uint8"), ("int4", "uint4"), ("float4_e2m1fn", "int4"),
    ("uint2", "int2"), ("int64", "uint64"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), SAME_WIDTH)
def test_bits_are_kept(source: str, target: str, rng: np.random.Generator) -> None:
    size = as_dtype(source).itemsize
    raw = rng.integers(0, 2, 64) if source == "bool" else rng.integers(0, 256, 64 * size)
    x = (raw.astype(np.uint8) & ((1 << min(8, bits_of(as_dtype(source)))) - 1)).view(source)
    found = run("BitCast", [x], {"to": NUMBER[target]}, opset=26)[0]
    assert found.dtype == as_dtype(target)
    np.testing.assert_array_equal(found.view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("source", ["float16", "bfloat16"])
def test_every_16_bit_float_keeps_its_bits(source: str) -> None:
    """Only which NaN it is may change on the way into a bfloat16, whose stores make NaN quiet."""
    words = np.arange(1 << 16, dtype=np.uint16)
    there = run("BitCast", [words.view(as_dtype(source))], {"to": NUMBER["uint16"]}, opset=26)[0]
    np.testing.assert_array_equal(there, words)
    back = run("BitCast", [words], {"to": NUMBER[source]}, opset=26)[0]
    keeps = ~np.isnan(back.astype(np.float32)) | (source == "float16")
    np.testing.assert_array_equal(back.view(np.uint16)[keeps], words[keeps])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.isnan(back), np.isnan(words.view(as_dtype(source))))


def test_numbers_are_cast_like_text() -> None:
    (found,) = run("CastLike", [np.array([1, -2]), np.array(["a"], object)])
    assert found.tolist() == ["1", "-2"]


def test_wrong_use_is_refused() -> None:
    x = np.ones(2, np.float32)
    with pytest.raises(ShapeError, match="element type 15"):
        run("Cast", [x], {"to": 15})
    with pytest.raises(ShapeError, match="widths differ"):
        run("BitCast", [x], {"to": NUMBER["int16"]}, opset=26)
    with pytest.raises(ShapeError, match="round_mode is 'sideways'"):
        run("Cast", [x], {"to": NUMBER["float8_e8m0fnu"], "round_mode": "sideways"})
    with pytest.raises(ShapeError, match="a string is not a number"):
        known("Cast", np.array(["Hello"], object), to=1)


# On every backend

ROUND_TRIPS = [
    ("float8_e4m3fn", 0), ("float8_e5m2fnuz", 1), ("float8_e8m0fnu", 1), ("float4_e2m1fn", 1), ("int4", 1),
]  # fmt: skip


def there_and_back(name: str, saturate: int) -> Model:
    """float32 -> `name`, moved -> float32; both are outputs, so that the first is stored."""
    layers = (
        Layer("Cast", "to", ("x",), ("c",), {"to": NUMBER[name], "saturate": saturate}, version=25),
        Layer("Transpose", "move", ("c",), ("t",), {"perm": [1, 0]}, version=25),
        Layer("Cast", "from", ("t",), ("y",), {"to": NUMBER["float32"]}, version=25),
    )
    shape = DynamicTensorShape(("n", "m"))
    outputs = (Output("t", None, None), Output("y", None, None))
    return Model("trip", (Input("x", np.dtype(np.float32), shape),), outputs, layers, {}, {"": 25})


@pytest.mark.spread
@pytest.mark.parametrize(("name", "saturate"), ROUND_TRIPS)
def test_backends_agree_bit_by_bit(name: str, saturate: int, channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(there_and_back(name, saturate), channel)
    dtype = as_dtype(name)

    @given(st.integers(0, 5), st.integers(1, 9), st.integers(0, 2**32 - 1))
    @settings(max_examples=8)
    def holds(rows: int, columns: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        pool = np.concatenate([around(name), SPECIAL]) if name in CODE_TYPES else np.arange(-9.5, 20)
        pool = pool[(np.abs(pool) > 1e-37) | (pool == 0) | np.isnan(pool)].astype(np.float32)
        x = draw.choice(pool, (rows, columns))
        expected = cast_to(x, name, saturate=saturate).T
        worker.schedule(x)
        code = worker.peek_output("t").download_to_array()
        assert code.dtype == dtype
        np.testing.assert_array_equal(code.view(np.uint8), np.ascontiguousarray(expected).view(np.uint8))
        number = worker.peek_output("y").download_to_array()
        expected = expected.astype(np.float32)
        if channel.startswith("gl"):
            expected = np.where(np.abs(expected) < 1e-38, number, expected)
        np.testing.assert_array_equal(number, expected)

    holds()


@pytest.mark.spread("source", "target")
@pytest.mark.parametrize(
    ("source", "target"), [("float32", "int32"), ("float16", "uint16"), ("int16", "float16")]
)
def test_backends_keep_bits(source: str, target: str, channel: str, make_worker: MakeWorker) -> None:
    numbers = np.array([1.0, -2.5, 6e-6, -0.0, 65504.0, np.inf, 0.1]).astype(
        source if source.startswith("float") else target
    )
    x = numbers.view(source)
    worker = make_worker(one_layer("BitCast", [x], {"to": NUMBER[target]}, opset=26), channel)
    np.testing.assert_array_equal(answers(worker, x)[0].view(np.uint8), x.view(np.uint8))


@pytest.mark.spread("name")
@pytest.mark.parametrize("name", ["uint4", "int2", "float8_e4m3fn"])
def test_a_small_type_between_two_layers_still_narrows(
    name: str, channel: str, make_worker: MakeWorker
) -> None:
    """The two casts become one kernel, in which nothing is stored as `name`."""
    layers = (
        Layer("Cast", "to", ("x",), ("c",), {"to": NUMBER[name]}, version=25),
        Layer("Cast", "from", ("c",), ("y",), {"to": NUMBER["float32"]}, version=25),
    )
    item = Input("x", np.dtype(np.float32), DynamicTensorShape(("n",)))
    worker = make_worker(Model("two", (item,), (Output("y", None, None),), layers, {}, {"": 25}), channel)
    x = np.array([-300.7, -9.5, -1.0, 0.3, 1.9, 7.0, 16.0, 201.0, 1e6], np.float32)
    worker.schedule(x)
    expected = cast_to(cast_to(x, name), "float32")
    assert len(np.unique(expected)) > 2
    np.testing.assert_array_equal(worker.peek_output().download_to_array(), expected)
