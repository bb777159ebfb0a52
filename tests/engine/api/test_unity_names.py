"""The names of the 1.x interface do what the new ones do."""

from __future__ import annotations

import pytest

from engine import (
    BackendType,
    InputError,
    IWorker,
    Worker,
    WorkerFactory,
)
from tests.graphs import model, node

NODES = [node("Mul", ["x", "x"], ["y"])]
SHAPES = {"x": ("float32", ["n"])}, {"y": ("float32", ["n"])}


def result(worker: Worker) -> list[float]:
    values: list[float] = worker.peek_output().download_to_array().tolist()
    return values


def test_the_factory_makes_a_worker() -> None:
    with WorkerFactory.create_worker(BackendType.CPU, model(NODES, *SHAPES)) as worker:
        assert isinstance(worker, IWorker)
        assert worker.backend_type is BackendType.CPU
        worker.schedule([3])
        assert result(worker) == [9]
    with pytest.raises(InputError, match="takes no device"):
        WorkerFactory.create_worker(BackendType.CPU, model(NODES, *SHAPES), device="gl")


def test_the_command_buffer_s_backend_is_gpu_compute() -> None:
    assert BackendType["GPU_COMMAND_BUFFER"] is BackendType.GPU_COMPUTE
