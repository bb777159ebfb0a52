"""Wrong input and wrong use: each gives one exception of ours that says what and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine import (
    BackendType,
    DisposedError,
    EngineError,
    InputError,
    ModelAsset,
    ModelImportError,
    ModelLoader,
    ShapeError,
    Tensor,
    Worker,
)
from tests.graphs import mlp, model, node, proto


def worker() -> Worker:
    return Worker(ModelLoader.load(mlp((4, 8, 2))), BackendType.CPU)


def unknown_operators() -> bytes:
    nodes = [node("Frobnicate", ["x"], ["a"]), node("Relu", ["a"], ["b"]), node("Twiddle", ["b"], ["y"])]
    return proto(nodes, {"x": ("float32", [1])}, {"y": ("float32", [1])})


def disposed() -> None:
    w = worker()
    w.dispose()
    w.schedule(np.zeros((1, 4), np.float32))


def conv_mismatch() -> None:
    broken = model(
        [node("Conv", ["x", "w"], ["y"])],
        {"x": ("float32", ["n", 5, 4, 4])}, {"y": ("float32", None)},
        {"w": np.zeros((2, 3, 1, 1), np.float32)},
    )  # fmt: skip
    Worker(broken).schedule(np.zeros((1, 5, 4, 4), np.float32))


def text(value: np.ndarray) -> None:
    layer, n = node("StringConcat", ["x", "x"], ["y"]), ["n"]
    Worker(model([layer], {"x": ("object", n)}, {"y": ("object", n)}, opset=20)).schedule(value)


X = np.zeros((1, 4), np.float32)
Use = Callable[[Path], object]

TABLE: dict[str, tuple[Use, type[EngineError], str]] = {
    "missing file": (lambda p: ModelLoader.load(p / "gone.onnx"), ModelImportError, r"gone\.onnx"),
    "near name": (lambda p: ModelLoader.load(p / "modle.onnx"), ModelImportError, r"model\.onnx"),
    "folder": (lambda p: ModelLoader.load(p), ModelImportError, "folder|directory"),
    "text file": (lambda p: ModelLoader.load(p / "text.onnx"), ModelImportError, r"text\.onnx"),
    "empty file": (lambda p: ModelLoader.load(p / "empty.onnx"), ModelImportError, "empty"),
    "truncated": (lambda p: ModelLoader.load(p / "cut.onnx"), ModelImportError, r"cut\.onnx"),
    "asset of a missing file": (
        lambda p: Worker(ModelAsset(p / "gone.onnx")),
        ModelImportError,
        r"gone\.onnx",
    ),
    "unknown operators": (
        lambda p: ModelLoader.load(unknown_operators()),
        ModelImportError,
        r"Frobnicate(.|\n)*Twiddle",
    ),
    "unknown dimension": (
        lambda p: ModelLoader.load(mlp((4, 2)), dims={"bach": 1}),
        InputError,
        "'?bach'?(.|\n)*batch",
    ),
    "not a model": (lambda p: Worker("model.onnx"), InputError, "use ModelLoader.load"),  # type: ignore[arg-type]
    "not a backend": (lambda p: Worker(ModelLoader.load(mlp((4, 2))), "gpu"), InputError, "one of"),  # type: ignore[arg-type]
    "unknown device": (
        lambda p: Worker(ModelLoader.load(mlp((4, 2))), BackendType.GPU_COMPUTE, device="cuda"),  # type: ignore[arg-type]
        InputError,
        "one of 'gl', 'opencl'",
    ),
    "device for the CPU": (
        lambda p: Worker(ModelLoader.load(mlp((4, 2))), BackendType.CPU, device="gl"),
        InputError,
        "takes no device",
    ),
    "OpenCL for pixel": (
        lambda p: Worker(ModelLoader.load(mlp((4, 2))), BackendType.GPU_PIXEL, device="opencl"),
        InputError,
        "GPU_COMPUTE",
    ),
    "wrong input name": (lambda p: worker().schedule(z=X), InputError, "no input 'z'; its inputs: 'x'"),
    "wrong set_input name": (lambda p: worker().set_input("z", X), InputError, "no input 'z'"),
    "missing input": (lambda p: worker().schedule(), InputError, "needs the input 'x'"),
    "too many inputs": (lambda p: worker().schedule(X, X), InputError, r"takes 1 input\(s\), got 2"),
    "wrong rank": (
        lambda p: worker().schedule(X[0]),
        InputError,
        r"input 'x' needs float32 \(batch, 4\), got shape \(4,\)",
    ),
    "wrong size": (lambda p: worker().schedule(X[:, :3]), InputError, r"got shape \(1, 3\)"),
    "wrong dtype": (
        lambda p: worker().schedule(X.astype(np.float64)),
        InputError,
        r"float64.*astype\(numpy.float32\)",
    ),
    "None for a tensor": (lambda p: worker().schedule(None), InputError, "input 'x' needs .*got None"),
    "a ragged list": (lambda p: worker().schedule([[1, 2], [3]]), InputError, "'x' .*a list that is no"),
    "text for numbers": (lambda p: worker().schedule("far"), InputError, "'x' needs float32 .*got a str"),
    "a dict for a tensor": (lambda p: worker().schedule({"x": {"a": 1}}), InputError, "'x' .*got a dict"),
    "numbers for text": (lambda p: text(np.ones(2)), InputError, r"'x' needs text \(n,\).*astype\(str\)"),
    "bytes for text": (lambda p: text(np.array([b"a"])), InputError, r"'x' needs text .*astype\(str\)"),
    "None among texts": (lambda p: text(np.array(["a", None], object)), InputError, "of type NoneType"),
    "wrong tensor dtype": (lambda p: worker().schedule(Tensor(X.astype(np.int32))), InputError, "int32"),
    "peek before schedule": (lambda p: worker().peek_output(), InputError, "call schedule first"),
    "after dispose": (lambda p: disposed(), DisposedError, "Worker was disposed"),
    "shapes that contradict": (lambda p: conv_mismatch(), ShapeError, "y_layer.*5 input channels"),
    "wrap of a slice": (lambda p: Tensor.wrap(np.zeros((4, 4))[:, 1]), InputError, "C-contiguous"),
    "reshape to another size": (
        lambda p: Tensor(X).reshape(3),
        InputError,
        r"cannot reshape .*\(1, 4\) to \(3,\)",
    ),
    "upload of another size": (lambda p: Tensor(X).upload(np.zeros(3)), InputError, "3 elements"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = mlp((4, 8, 2))
    (tmp_path / "model.onnx").write_bytes(data)
    (tmp_path / "cut.onnx").write_bytes(data[: len(data) // 2])
    (tmp_path / "text.onnx").write_text("this is a note about a network, not one\n" * 20)
    (tmp_path / "empty.onnx").touch()
    return tmp_path


@pytest.mark.parametrize("name", TABLE)
def test_wrong_use_says_what_is_wrong(name: str, folder: Path) -> None:
    use, kind, message = TABLE[name]
    with pytest.raises(kind, match=message):
        use(folder)


def test_wrong_output_names_are_listed() -> None:
    w = worker()
    w.schedule(X)
    with pytest.raises(InputError, match="no output 'z'; its outputs: 'y'"):
        w.peek_output("z")
    with pytest.raises(InputError, match="no number 3"):
        w.peek_output(3)


def test_integers_beyond_32_bits_are_refused_by_name(cl_device: object) -> None:
    big = model([node("Add", ["x", "x"], ["y"])], {"x": ("int64", [2])}, {"y": ("int64", [2])})
    w = Worker(big, BackendType.GPU_COMPUTE, device=cl_device)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="input 'x' holds 4294967296"):
        w.schedule(np.array([1, 2**32]))
    w.schedule(np.array([1, -5]))
    assert w.peek_output().download_to_array().tolist() == [2, -10]
    w.dispose()


def test_a_context_too_old_for_compute_is_named(
    run_child: Callable[..., str], held_to_3_3: dict[str, str]
) -> None:
    code = """
import moderngl
from engine import BackendType, DeviceError, ModelLoader, Worker
from tests.graphs import mlp
ctx = moderngl.create_standalone_context(backend="egl")
try:
    Worker(ModelLoader.load(mlp((4, 2))), BackendType.GPU_COMPUTE, device="gl")
except DeviceError as error:
    print(error)
"""
    said = run_child(code, **held_to_3_3)
    assert "compute" in said
    assert "GPU_PIXEL" in said
