"""The names of the 1.x interface do what the new ones do."""

from __future__ import annotations

import numpy as np
import pytest

from engine import (
    BackendType,
    CommandBuffer,
    Graphics,
    InputError,
    IWorker,
    ModelLoader,
    Worker,
    WorkerFactory,
)
from tests.graphs import model, node, proto

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


def test_a_command_buffer_collects_schedules_and_is_executed_again() -> None:
    first, second = (Worker(ModelLoader.load(proto(NODES, *SHAPES)), BackendType.CPU) for _ in range(2))
    buffer = CommandBuffer()
    inputs = {"x": np.array([2.0], np.float32)}
    buffer.schedule_worker(first, inputs)
    inputs["x"] = np.array([7.0], np.float32)  # the buffer knows which arrays it was given
    second.set_input("x", [4])
    buffer.schedule_worker(second)
    assert first.latest is None
    Graphics.execute_command_buffer(buffer)
    assert (result(first), result(second)) == ([4], [16])
    second.set_input("x", [5, 6])
    buffer.execute()
    assert (result(first), result(second)) == ([4], [25, 36])
    buffer.clear()
    latest = first.latest
    buffer.execute()
    assert first.latest is latest
    first.dispose()
    second.dispose()


def test_the_command_buffer_s_backend_is_gpu_compute() -> None:
    assert BackendType["GPU_COMMAND_BUFFER"] is BackendType.GPU_COMPUTE
