"""Weights taken out of a file before it is parsed: nothing is lost, and damage is found as before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Model, ModelLoader
from engine.base.errors import ModelImportError
from engine.base.memory.aligned import is_readable_in_place
from engine.graph.importers.onnx_importer import read_onnx
from engine.graph.importers.onnx_weights import SMALLEST, without_weights
from tests.graphs import node, proto

LARGE = np.arange(SMALLEST // 4, dtype=np.float32)


def file(**constants: np.ndarray) -> bytes:
    nodes = [node("Add", [name, name], [f"{name} twice"]) for name in constants]
    return proto(nodes, {"x": ("float32", [1])}, {"x": ("float32", [1])}, constants)


def field(number: int, body: bytes) -> bytes:
    """A field of bytes whose length takes two bytes."""
    assert 128 <= len(body) < 1 << 14
    return bytes([number << 3 | 2, len(body) & 127 | 128, len(body) >> 7]) + body


def test_only_large_weights_are_taken_out() -> None:
    data = file(a=LARGE[:3], b=LARGE, c=LARGE[1:], d=LARGE[::-1])
    rest, weights = without_weights(data)
    assert sorted(weights) == [1, 3]
    assert len(rest) < len(data) - 2 * LARGE.nbytes + 20
    left = onnx.load_from_string(rest).graph.initializer
    assert [len(t.raw_data) for t in left] == [12, 0, LARGE.nbytes - 4, 0]
    assert left[1].HasField("raw_data")
    for name, value in {"a": LARGE[:3], "b": LARGE, "c": LARGE[1:], "d": LARGE[::-1]}.items():
        np.testing.assert_array_equal(read_onnx(data).constants[name], value)


def typed(kind: int, values: np.ndarray) -> tuple[bytes, onnx.TensorProto]:
    """A file whose constant `b` has its elements in the typed field."""
    model = onnx.load_from_string(file(b=LARGE))
    tensor = onnx.helper.make_tensor("b", kind, [len(values)], values.tolist())
    model.graph.initializer[0].CopyFrom(tensor)
    return model.SerializeToString(), tensor


def test_floats_of_the_typed_field_are_taken_out_too() -> None:
    data, _ = typed(onnx.TensorProto.FLOAT, LARGE)
    rest, weights = without_weights(data)
    assert sorted(weights) == [0]
    assert len(rest) < len(data) - LARGE.nbytes + 20
    np.testing.assert_array_equal(read_onnx(data).constants["b"], LARGE)


def test_other_numbers_of_the_typed_fields_are_not() -> None:
    for kind in (onnx.TensorProto.DOUBLE, onnx.TensorProto.INT32, onnx.TensorProto.COMPLEX64):
        assert without_weights(typed(kind, LARGE)[0])[1] == {}
    _, tensor = typed(onnx.TensorProto.FLOAT, LARGE)
    tensor.raw_data = LARGE.tobytes()  # both: the parser says what is wrong
    model = onnx.load_from_string(file(b=LARGE))
    model.graph.initializer[0].CopyFrom(tensor)
    assert without_weights(model.SerializeToString())[1] == {}


@pytest.mark.parametrize("load", [ModelLoader.read, ModelLoader.load])
def test_a_model_does_not_hold_its_file(load: Callable[[bytes], Model]) -> None:
    source = proto(
        [node("Mul", ["x", "b"], ["m"]), node("Gather", ["m", "i"], ["y"])],
        {"x": ("float32", [1])},
        {"y": ("float32", None)},
        {"b": LARGE, "i": np.arange(SMALLEST // 8)},
    )
    constants = load(source).constants
    for name, expected in {"b": LARGE, "i": np.arange(SMALLEST // 8)}.items():
        array = constants[name]
        np.testing.assert_array_equal(array, expected)
        assert is_readable_in_place(array)
        while isinstance(array.base, np.ndarray):
            array = array.base
        assert array.base is None


@pytest.mark.parametrize("others", [0, 1 << 14], ids=["nearly all", "half"])
def test_weights_to_be_packed_stay_in_a_file_that_is_little_else(others: int) -> None:
    kernels, table = np.ones((64, 64, 2, 2), np.float32), np.zeros(others, np.float32)
    source = proto(
        [node("Conv", ["x", "k"], ["c"]), node("Gather", ["t", "i"], ["g"])],
        {"x": ("float32", [1, 64, 2, 2]), "i": ("int64", [1])},
        {"c": ("float32", None), "g": ("float32", None)},
        {"k": kernels, "t": table},
    )
    constants = ModelLoader.load(source).constants
    np.testing.assert_array_equal(constants["k"], kernels)
    assert np.shares_memory(constants["k"], np.frombuffer(source, np.uint8)) is (others == 0)
    assert not np.shares_memory(constants["t"], np.frombuffer(source, np.uint8))


def test_a_file_without_large_weights_is_parsed_as_it_is() -> None:
    data = file(a=LARGE[:3])
    assert without_weights(data)[0] is data


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float64", "bool", "float16", "int64"])
def test_every_type_comes_out_as_it_went_in(dtype: str) -> None:
    value = (np.arange(SMALLEST) % 2).astype(dtype).reshape(2, -1)
    found = read_onnx(file(b=value)).constants["b"]
    assert found.dtype == value.dtype
    np.testing.assert_array_equal(found, value)


def test_weights_of_a_wrong_size_are_refused() -> None:
    made = onnx.load_from_string(file(b=LARGE))
    made.graph.initializer[0].dims[:] = [SMALLEST]
    with pytest.raises(ModelImportError, match=f"'b'.* needs {4 * SMALLEST} bytes, the file has {SMALLEST}"):
        read_onnx(made.SerializeToString())


def test_a_graph_in_two_pieces_is_one() -> None:
    """Protobuf merges what is given twice: lists are joined, and of two raw data the last holds."""
    data = file(b=LARGE)
    later = onnx.TensorProto(name="later", data_type=1, dims=[LARGE.size], raw_data=LARGE[::-1].tobytes())
    data += field(7, field(5, later.SerializeToString()))
    assert sorted(without_weights(data)[1]) == [0, 1]
    np.testing.assert_array_equal(read_onnx(data).constants["later"], LARGE[::-1])
    twice = later.SerializeToString() + field(9, LARGE.tobytes())
    data = file(b=LARGE) + field(7, field(5, twice))
    assert sorted(without_weights(data)[1]) == [0]
    np.testing.assert_array_equal(read_onnx(data).constants["later"], LARGE)


@settings(max_examples=60)
@given(st.data())
def test_damage_is_found_as_before(data: st.DataObject) -> None:
    """Whatever happens to a file, taking weights out changes nothing of what the parser makes of it."""
    whole = bytearray(file(a=LARGE[:3], b=LARGE))
    outside = [p for p in range(len(whole)) if not 200 < p < len(whole) - 200] or [0]
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.sampled_from(outside))] = data.draw(st.integers(0, 255))
    broken = bytes(whole[: data.draw(st.sampled_from([len(whole), len(whole) - 1, len(whole) // 2]))])
    rest, weights = without_weights(broken)
    try:
        parsed = onnx.load_from_string(broken)
    except DecodeError:
        with pytest.raises(ModelImportError):
            read_onnx(broken)
        return
    again = onnx.load_from_string(rest)
    for position, raw in weights.items():
        again.graph.initializer[position].raw_data = bytes(raw)
    assert again.SerializeToString(deterministic=True) == parsed.SerializeToString(deterministic=True)
