"""Weights that the system can take back: the same numbers in less memory; as ever where that fails."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine import BackendType, ModelLoader, Worker
from engine.base.memory import aligned, paged

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is let go of by Linux's madvise")


def resident(array: np.ndarray) -> int:
    """KiB of the mapping of an array that are in memory, as the kernel tells."""
    address = array.__array_interface__["data"][0]
    inside = False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= address < int(found[2], 16)
        elif inside and line.startswith("Rss:"):
            return int(line.split()[1])
    raise AssertionError("no mapping holds the array")


def weights(*shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {f"w{i}": rng.random(shape, np.float32) for i, shape in enumerate(shapes)}


def test_mapped_arrays_hold_the_same_and_native_kernels_can_read_them() -> None:
    arrays: dict[str, np.ndarray] = weights((1030, 1031), (100, 100), (64, 1001))
    arrays["turned"] = arrays["w0"].T
    arrays["shifted"] = np.frombuffer(b"x" + arrays["w2"].tobytes(), np.uint8)[1:].view(np.float32)
    arrays["small"] = np.ones(7, np.float32)
    arrays["words"] = np.array(["a"] * 20_000, object)
    mapped = paged.paged(arrays)
    assert mapped.keys() == arrays.keys() - {"small", "words"}
    for name, array in mapped.items():
        np.testing.assert_array_equal(array, arrays[name])
        assert array.dtype == arrays[name].dtype
        assert not array.flags.writeable
        assert aligned.is_readable_in_place(array)
    assert paged.paged(mapped) == {}


def test_what_was_let_go_of_is_there_again_when_it_is_read() -> None:
    arrays = weights((1024, 2048), (1024, 4096))
    mapped = paged.paged(arrays)
    total = float(mapped["w0"].sum() + mapped["w1"].sum())
    before = resident(mapped["w0"])
    paged.let_go(mapped["w1"])
    after = resident(mapped["w0"])
    assert before - after > 15 * 1024
    paged.let_go(mapped["w0"][10:500])
    assert after - resident(mapped["w0"]) > 3 * 1024
    assert float(mapped["w0"].sum() + mapped["w1"].sum()) == total


def test_sources_are_found_where_functions_have_captured_them() -> None:
    mapped = paged.paged(weights((1024, 5000)))
    array = mapped["w0"]

    def reads(source: np.ndarray) -> Any:
        return lambda: source.sum()

    inner = reads(array)
    parts = (inner, 3)

    def outer() -> Any:
        return parts[0]()

    result = outer()
    assert resident(array) > 15 * 1024
    paged.let_go_of_sources(outer, array[1:])
    assert resident(array) > 15 * 1024  # the result lies in it
    paged.let_go_of_sources(outer, np.asarray(result))
    assert resident(array) < 1024


def test_a_disk_that_refuses_leaves_arrays_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = weights((1024, 4096))

    def full(*_: Any, **options: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.writev", full)
    assert paged.paged(arrays) == {}
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert paged.paged(arrays) == {}


def test_a_file_is_written_on_after_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = weights((1024, 2048), *[(64, 64)] * 1500)
    write = os.writev

    def some(file: int, pieces: list[memoryview]) -> int:
        assert len(pieces) <= 1024
        return write(file, [pieces[0][:1_000_001]] if len(pieces[0]) > 1_000_001 else pieces[:7])

    monkeypatch.setattr("os.writev", some)
    mapped = paged.paged(arrays)
    assert mapped.keys() == arrays.keys()
    for name, array in mapped.items():
        np.testing.assert_array_equal(array, arrays[name])


def test_kernels_of_convolutions_stay_where_they_are() -> None:
    assert paged.paged(weights((1024, 256, 3, 3))) == {}


def test_a_few_matrices_beside_convolutions_are_not_worth_a_file() -> None:
    arrays = weights((1024, 512), (1024, 256, 3, 3))
    assert paged.paged(arrays) == {}
    del arrays["w1"]
    assert paged.paged(arrays).keys() == {"w0"}


def test_small_models_need_no_file() -> None:
    assert paged.paged(weights((300, 300))) == {}


@pytest.mark.parametrize("mode", ["file", "bytes"])
def test_a_packed_network_keeps_its_weights_once(tmp_path: Path, mode: str) -> None:
    """Weights are packed for the first shape; another shape still finds them, and answers rightly."""
    arrays = weights((512, 2048), (2048, 512))
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w0"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "w1"], ["y"]),
        ],
        "two products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 512])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = tmp_path / "net.onnx"
    onnx.save(model, str(path))
    loaded = ModelLoader.load(path if mode == "file" else path.read_bytes())
    path.write_bytes(b"")  # what becomes of the file is of no concern any more
    constants = [array for array in loaded.constants.values() if array.nbytes > 1 << 20]
    assert len(constants) == 2
    with Worker(loaded, BackendType.CPU) as worker:
        for rows in (1, 40, 7):
            x = np.random.default_rng(rows).random((rows, 512), np.float32)
            worker.schedule(x)
            found = worker.peek_output().download_to_array()
            expected = np.maximum(x @ arrays["w0"], 0) @ arrays["w1"]
            np.testing.assert_allclose(found, expected, rtol=1e-5)
            assert resident(constants[0]) < 2048
