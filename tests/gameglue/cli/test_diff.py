"""`gameglue diff` names the layer that is broken, and none where all is well."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from engine.kernels.expr import unary
from engine.kernels.value import Value
from engine.operators import OPERATORS
from engine.operators.builder import Builder
from engine.operators.registry import declare
from gameglue.cli import diff_runners, main
from gameglue.cli.diff import difference
from gameglue.cli.diff_runners import EngineSide, Values, chunks, whole_proto
from tests.graphs import model, node, proto

Capture = pytest.CaptureFixture[str]

NODES = [
    node("Mul", ["x", "w"], ["a"]),
    node("Tanh", ["a"], ["b"]),
    node("Relu", ["b"], ["c"]),
    node("Add", ["c", "a"], ["y"]),
]
NET = proto(
    NODES, {"x": ("float32", ["n", 4])}, {"y": ("float32", ["n", 4])}, {"w": np.full(4, 2.0, np.float32)}
)


@pytest.fixture
def net(tmp_path: Path) -> str:
    """The network above as a file."""
    path = tmp_path / "net.onnx"
    path.write_bytes(NET)
    return str(path)


@pytest.fixture
def _broken_relu() -> Iterator[None]:
    """Relu wrong where it matters: 0.5 too much."""

    def relu(k: Builder, x: Value) -> Value:
        return k.elementwise(lambda e: unary("abs", e) + 0.5, x)

    found = OPERATORS.find("", "Relu", 18)
    assert found is not None
    OPERATORS.remove(found)
    broken = declare(relu, "Relu", found.since, found.until)
    OPERATORS.add(broken)
    yield
    OPERATORS.remove(broken)
    OPERATORS.add(found)


@pytest.mark.parametrize("other", ["onnxruntime", "onnx-reference", "cpu"])
def test_equal_ways_agree(net: str, other: str, capsys: Capture) -> None:
    if other == "onnxruntime":
        pytest.importorskip("onnxruntime")
    assert main(["diff", net, "--dim", "n=3", "--against", other, "--verbose"]) == 0
    printed = capsys.readouterr().out
    assert f"cpu with {other}: 4 values" in printed
    assert "agree" in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith(("a_", "b_", "c_", "y_"))]
    assert {row[0] for row in rows} == {"a_layer", "b_layer", "c_layer", "y_layer"}
    assert all("(3, 4) float32" in " ".join(row) for row in rows)


@pytest.mark.usefixtures("_broken_relu")
@pytest.mark.parametrize("other", ["onnxruntime", "onnx-reference"])
def test_the_broken_layer_is_named(net: str, other: str, capsys: Capture, tmp_path: Path) -> None:
    if other == "onnxruntime":
        pytest.importorskip("onnxruntime")
    x = np.array([[0.1, 0.2, -1.5, 0.3]], np.float32)
    np.savez(tmp_path / "inputs.npz", x=x)
    assert main(["diff", net, "--against", other, "--input", str(tmp_path / "inputs.npz")]) == 1
    printed = capsys.readouterr().out
    assert "layer 'c_layer' (Relu), number 3 of 4" in printed
    assert "c (1, 4) float32" in printed
    # |tanh(-3)| + 0.5 in place of 0.
    assert "1.50e+00 at [0, 2]" in printed
    assert "1.495" in printed
    assert f"and 0.0 (cpu and {other})" in printed
    assert "b: error" in printed


def test_the_tolerance_decides(net: str, capsys: Capture) -> None:
    command = ["diff", net, "--against", "onnx-reference", "--dim", "n=64"]
    assert main([*command, "--tolerance", "-1"]) == 1
    assert "layer 'a_layer' (Mul), number 1 of 4" in capsys.readouterr().out


def test_a_fault_of_fused_layers_is_found_one_at_a_time(
    net: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = EngineSide.values

    def wrong_when_alone(side: EngineSide, names: Sequence[str]) -> Values:
        found = right(side, names)
        if len(names) == 1 and names[0] in ("c", "y"):
            found[names[0]] = found[names[0]] + 1.0
        return found

    monkeypatch.setattr(EngineSide, "values", wrong_when_alone)
    assert main(["diff", net, "--against", "onnx-reference"]) == 1
    printed = capsys.readouterr().out
    assert "layer 'c_layer' (Relu)" in printed
    assert "only with layers fused" in printed


def test_folded_layers_are_left_out(capsys: Capture) -> None:
    """The passes take batch normalisations of this network into its convolutions."""
    assert main(["diff", "digits", "--against", "onnx-reference", "--verbose"]) == 0
    printed = capsys.readouterr().out
    assert "BatchNormalization" not in printed
    assert "conv_0" in printed


def test_large_models_are_watched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = model(
        NODES, {"x": ("float32", ["n", 4])}, {"y": ("float32", None)}, {"w": np.ones(4, np.float32)}
    )
    names, inputs = ("a", "b", "c", "y"), {"x": np.zeros((8, 4), np.float32)}
    assert list(chunks(loaded, inputs, names)) == [names]
    monkeypatch.setattr(diff_runners, "CHUNK_BYTES", 300)
    assert list(chunks(loaded, inputs, names)) == [("a", "b"), ("c", "y")]
    monkeypatch.setattr(diff_runners, "CHUNK_BYTES", 1)
    assert list(chunks(loaded, inputs, names)) == [("a",), ("b",), ("c",), ("y",)]


def test_without_onnxruntime_it_says_what_to_install(
    net: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["diff", net]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gameglue: comparing with onnxruntime needs it: pip install onnxruntime")


def test_what_the_other_side_cannot_run_is_told(
    net: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no kernel for it")

    monkeypatch.setattr(diff_runners.ReferenceSide, "run", fail)
    assert main(["diff", net, "--against", "onnx-reference"]) == 2
    assert "onnx-reference cannot run this model: no kernel for it" in capsys.readouterr().err


def test_weights_beside_the_model_are_read(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(
        onnx.load_from_string(NET), path, save_as_external_data=True, location="w.bin", size_threshold=0
    )
    assert (tmp_path / "w.bin").exists()
    assert whole_proto(path).graph.initializer[0].data_location == onnx.TensorProto.DEFAULT
    assert main(["diff", str(path), "--against", "onnx-reference"]) == 0


def test_maps_are_compared_by_their_numbers() -> None:
    one = {"a": 1.0, "b": 0.0}
    assert difference("x", [one, one], [{"b": 1e-7, "a": 1.0}, one]).error == pytest.approx(1e-7)
    assert difference("x", [one], [{"a": 1.0, "c": 0.0}]).error == float("inf")


def test_texts_come_from_a_file(tmp_path: Path, capsys: Capture) -> None:
    bytes_ = proto([node("Identity", ["x"], ["y"])], {"x": ("object", [2])}, {"y": ("object", [2])})
    (tmp_path / "net.onnx").write_bytes(bytes_)
    np.savez(tmp_path / "inputs.npz", x=np.array(["a", "bc"]))
    command = ["diff", str(tmp_path / "net.onnx"), "--input", str(tmp_path / "inputs.npz")]
    assert main([*command, "--against", "onnx-reference", "--verbose"]) == 0
    assert "(2,) object" in capsys.readouterr().out


def test_a_layer_that_draws_numbers_is_said_to(tmp_path: Path, capsys: Capture) -> None:
    source = proto([node("RandomNormalLike", ["x"], ["y"])], {"x": ("float32", [3])}, {"y": ("float32", [3])})
    (tmp_path / "net.onnx").write_bytes(source)
    assert main(["diff", str(tmp_path / "net.onnx"), "--against", "onnx-reference"]) == 1
    assert "note  it draws random numbers" in capsys.readouterr().out


def test_a_newer_file_format_does_not_keep_onnxruntime_out(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    new = onnx.load_from_string(NET)
    new.ir_version = 14
    onnx.save(new, tmp_path / "net.onnx")
    assert main(["diff", str(tmp_path / "net.onnx")]) == 0


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: np.savez(path, z=np.zeros(1)), "the model has no input 'z'; its inputs: x"),
        (lambda path: path.write_bytes(b"nothing"), "as a .npz file"),
        (lambda path: np.save(path.open("wb"), np.zeros(1)), "as a .npz file"),
        (lambda path: None, "No such file"),
    ],
)
def test_input_files_are_checked(
    net: str, tmp_path: Path, capsys: Capture, write: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "inputs.npz"
    write(path)
    assert main(["diff", net, "--input", str(path)]) == 2
    assert message in capsys.readouterr().err


def f(*values: object) -> np.ndarray:
    """An array of floats."""
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("a", "b", "error", "index"),
    [
        (f(1, 2, 30), f(1, 2, 20), 0.5, (2,)),
        (f([0.25, 0]), f([0, 0]), 0.25, (0, 0)),
        (f(1, np.nan), f(1, 2), math.inf, (1,)),
        (f(np.inf, np.nan), f(np.inf, np.nan), 0.0, (0,)),
        (f(np.inf), f(-np.inf), math.inf, (0,)),
        (np.array([5, 9]), np.array([5, 7]), 2.0, (1,)),
        (np.array([True]), np.array([False]), 1.0, (0,)),
        (np.array(["a", "b"], object), np.array(["a", "c"], object), math.inf, (1,)),
        (f(1), f([1]), math.inf, ()),
        (f(), f(), 0.0, ()),
        ([f(1), f(2)], [f(1), f(4)], 0.5, (1, 0)),
        ([f(1)], [], math.inf, ()),
        ([], [], 0.0, ()),
        (None, f(1), math.inf, ()),
        (None, None, 0.0, ()),
    ],
)
def test_differences(a: object, b: object, error: float, index: tuple[int, ...]) -> None:
    found = difference("it", a, b)
    assert found.error == pytest.approx(error)
    assert found.index == index


def test_floats_of_16_bits_may_differ_more() -> None:
    one, other = f(1.0).astype(np.float16), f(1.002).astype(np.float16)
    assert difference("it", one, other).within(None)
    assert not difference("it", one.astype(np.float32), other.astype(np.float32)).within(None)
    assert not difference("it", one, other).within(1e-4)
