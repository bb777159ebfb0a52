"""Weights lie in memory once where they run, and nothing is lost by it: for new shapes, workers, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from engine import Model, ModelLoader
from engine.backends.cpu.execution.memory import CPUBuffer
from tests.engine.conftest import MakeWorker
from tests.graphs import node, proto

RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


CONSTANTS = {"k": normal(4, 3, 1, 1), "b": normal(4), "w": normal(4, 5), "axes": np.array([2, 3])}


def file() -> bytes:
    """A convolution and a product, both of which pack weights, and a bias that kernels read as it is."""
    return proto(
        [
            node("Conv", ["x", "k", "b"], ["c"]),
            node("ReduceMean", ["c", "axes"], ["m"], keepdims=0),
            node("MatMul", ["m", "w"], ["y"]),
        ],
        {"x": ("float32", ["n", 3, "h", "v"])},
        {"y": ("float32", ["n", 5])},
        CONSTANTS,
    )


def expected(x: np.ndarray) -> np.ndarray:
    wide = np.einsum("nchw,mc->nmhw", x.astype(np.float64), CONSTANTS["k"][:, :, 0, 0])
    return (wide.mean((2, 3)) + CONSTANTS["b"]) @ CONSTANTS["w"]


def check(worker: object, *shapes: tuple[int, ...]) -> None:
    for shape in shapes:
        x = normal(*shape)
        worker.schedule(x)  # type: ignore[attr-defined]
        result = worker.peek_output().readback_and_clone().download_to_array()  # type: ignore[attr-defined]
        np.testing.assert_allclose(result, expected(x), rtol=1e-4, atol=1e-4)


SHAPES = ((1, 3, 4, 5), (2, 3, 6, 4), (3, 3, 1, 7), (1, 3, 4, 5))


def test_new_shapes_and_further_workers_find_every_weight(make_worker: MakeWorker, channel: str) -> None:
    made = ModelLoader.load(file())
    first = make_worker(made, channel)
    check(first, *SHAPES)
    assert all(packed._array is None for packed in first._session.packed.values())
    second = make_worker(made, channel)
    check(second, *SHAPES[:2])
    first.dispose()
    check(second, *SHAPES[2:])
    check(make_worker(made, channel), SHAPES[1])


@pytest.mark.parametrize("fate", ["deleted", "overwritten", "cut short"])
def test_a_loaded_model_does_not_need_its_file(tmp_path: Path, make_worker: MakeWorker, fate: str) -> None:
    path = tmp_path / "made.onnx"
    path.write_bytes(file())
    made = ModelLoader.load(path)
    worker = make_worker(made, "cpu")
    check(worker, SHAPES[0])
    if fate == "deleted":
        path.unlink()
    else:
        with path.open("r+b") as stream:
            if fate == "overwritten":
                stream.write(b"\xff" * path.stat().st_size)
            else:
                stream.truncate(10)
    check(worker, *SHAPES[1:])
    check(make_worker(made, "cpu"), SHAPES[1])


def test_constants_cannot_be_changed_under_a_worker() -> None:
    made: Model = ModelLoader.load(file())
    for array in made.constants.values():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


@pytest.mark.parametrize("beside", [False, True], ids=["in the file", "beside it"])
def test_a_table_is_read_where_it_lies(
    tmp_path: Path, make_worker: MakeWorker, channel: str, beside: bool
) -> None:
    """What kernels read as it is has no second copy on the processor, and outlives model and file there."""
    table = normal(300, 16)
    source = proto(
        [node("Gather", ["table", "i"], ["y"])],
        {"i": ("int64", ["n"])},
        {"y": ("float32", ["n", 16])},
        {"table": table},
    )
    onnx.save(
        onnx.load_from_string(source), tmp_path / "made.onnx", save_as_external_data=beside, size_threshold=0
    )
    made = ModelLoader.load(tmp_path / "made.onnx")
    worker = make_worker(made, channel)
    for path in tmp_path.iterdir():
        path.unlink()
    for positions in ([0, 299, 7], [1]):
        worker.schedule(np.array(positions))
        result = worker.peek_output().readback_and_clone().download_to_array()
        np.testing.assert_array_equal(result, table[positions])
    held, buffer = worker._session.recorder.constants["native", "table"]
    assert held is made.constants["table"]
    assert not isinstance(buffer, CPUBuffer) or np.shares_memory(buffer.array, held)
