"""What a worker says it holds, against sizes that follow from the model."""

from __future__ import annotations

import numpy as np
import pytest

from engine import BackendType, CLDevice, DisposedError, GLDevice, ModelLoader, Worker
from engine.runtime.memory_report import megabytes
from tests.graphs import node, proto

SIZE = 64
SQUARE = SIZE * SIZE * 4


def model() -> bytes:
    """Two products with weights of SIZE x SIZE, with a softmax between them, which no kernel joins."""
    nodes = [
        node("MatMul", ["x", "w0"], ["a"]),
        node("Softmax", ["a"], ["b"]),
        node("MatMul", ["b", "w1"], ["y"]),
    ]
    square = ("float32", [SIZE, SIZE])
    weights = {name: np.eye(SIZE, dtype=np.float32) for name in ("w0", "w1")}
    return proto(nodes, {"x": square}, {"y": square}, weights)


def test_a_cpu_worker_holds_host_memory() -> None:
    worker = Worker(ModelLoader.load(model()), BackendType.CPU)
    memory = worker.memory()
    assert memory.device == 0
    assert 2 * SQUARE <= memory.host_weights <= 4 * SQUARE  # packed ones have room to spare
    assert SQUARE <= memory.host_temporaries <= 4 * SQUARE
    assert memory.host_tensors == 2 * SQUARE
    assert memory.plans == 1
    assert str(memory).startswith("host ")
    worker.dispose()
    with pytest.raises(DisposedError):
        worker.memory()


@pytest.mark.gl
@pytest.mark.parametrize("backend", [BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL])
def test_a_gpu_worker_holds_device_memory(backend: BackendType, gl_device: GLDevice) -> None:
    with Worker(ModelLoader.load(model()), backend, device=gl_device) as worker:
        memory = worker.memory()
        assert memory.host == 0
        assert memory.device_weights >= 2 * SQUARE
        assert memory.device_temporaries >= SQUARE
        assert memory.device_tensors >= 2 * SQUARE


def test_an_opencl_worker_holds_device_memory(cl_device: CLDevice) -> None:
    with Worker(ModelLoader.load(model()), BackendType.GPU_COMPUTE, device=cl_device) as worker:
        memory = worker.memory()
        assert memory.host == 0
        assert memory.device_weights >= 2 * SQUARE
        assert memory.device_temporaries >= SQUARE
        assert memory.device_tensors == 2 * SQUARE


def test_sizes_are_told_as_a_person_reads_them() -> None:
    assert [megabytes(n) for n in (0, 1536, 123_456, 4_900_000)] == ["0.0 KB", "1.5 KB", "0.1 MB", "4.9 MB"]
