"""Command buffers: replayed or not, they do what their commands would one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from engine import (
    BackendType,
    CommandBuffer,
    DisposedError,
    Graphics,
    InputError,
    JobSystem,
    ModelLoader,
    Tensor,
    TextureConverter,
    ThreadError,
    Worker,
    background_planning,
    job,
)
from tests.engine.device.jobs.gates import Gate
from tests.graphs import mlp, model, node, proto

NODES = [node("Mul", ["x", "x"], ["y"])]
SHAPES = {"x": ("float32", ["n"])}, {"y": ("float32", ["n"])}
POLICY = mlp([8, 32, 2], batch=4)


def result(worker: Worker) -> list[float]:
    values: list[float] = worker.peek_output().download_to_array().tolist()
    return values


def settle(workers: list[Worker]) -> None:
    """Let what is in flight on the CPU be done."""
    for worker in workers:
        if worker.backend_type is BackendType.CPU and (fence := worker.fence) is not None:
            fence.complete()


@job
def add_up(begin, end, out, x, y):
    for i in range(begin, end):
        out[i] = x[i] + y[i]


@job
def doubled(begin, end, out):
    for i in range(begin, end):
        out[i] = out[i] * 2.0


@pytest.fixture(params=["cpu", "gpu_compute", "gpu_pixel", "opencl"])
def where(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Backend and device of workers, on each backend."""
    if request.param == "cpu":
        return {"backend_type": BackendType.CPU}
    if request.param == "opencl":
        device = request.getfixturevalue("cl_device")
        return {"backend_type": BackendType.GPU_COMPUTE, "device": device}
    device = request.getfixturevalue("gl_device")
    if request.param == "gpu_compute" and not device.info.supports_compute:
        pytest.skip("needs OpenGL 4.3")
    return {"backend_type": BackendType(request.param), "device": device}


@pytest.fixture
def policies(where: dict[str, Any]) -> Iterator[list[Worker]]:
    loaded = ModelLoader.load(POLICY)
    with ExitStack() as stack:
        yield [stack.enter_context(Worker(loaded, **where)) for _ in range(6)]


def test_it_collects_schedules_and_is_executed_again() -> None:
    first, second = (Worker(ModelLoader.load(proto(NODES, *SHAPES)), BackendType.CPU) for _ in range(2))
    buffer = CommandBuffer()
    inputs = {"x": np.array([2.0], np.float32)}
    buffer.schedule_worker(first, inputs)
    inputs["x"] = np.array([7.0], np.float32)  # the buffer knows which arrays it was given
    second.set_input("x", [4])
    buffer.schedule_worker(second)
    assert first._latest is None
    Graphics.execute_command_buffer(buffer)
    assert (result(first), result(second)) == ([4], [16])
    second.set_input("x", [5, 6])
    buffer.execute()
    assert (result(first), result(second)) == ([4], [25, 36])
    assert len(buffer) == 2
    buffer.clear()
    latest = first._latest
    buffer.execute()
    assert first._latest is latest
    first.dispose()
    second.dispose()


def test_workers_go_out_together_with_the_elements_of_the_moment(policies: list[Worker]) -> None:
    """Arrays and tensors change between executions; some have not run when the next begins."""
    random = np.random.default_rng(3)
    arrays = [np.zeros((4, 8), np.float32) for _ in policies[:4]]
    tensors = [Tensor(np.zeros((4, 8), np.float32)) for _ in policies[4:]]
    given: list[Any] = [*arrays, *tensors]
    buffer = CommandBuffer()
    for worker, value in zip(policies, given, strict=True):
        buffer.schedule_worker(worker, {"x": value})
    with Worker(ModelLoader.load(POLICY), BackendType.CPU) as reference:
        expected, found = [], []
        for execution in range(12):
            values = [random.standard_normal((4, 8), np.float32) for _ in policies]
            for array, value in zip(arrays, values, strict=False):
                array[...] = value
            for tensor, value in zip(tensors, values[4:], strict=True):
                tensor.upload(value)
            buffer.execute()
            assert buffer.replayed_count == (len(policies) if execution else 0)
            if execution % 3 == 2:  # a few at a time are on their way
                settle(policies)
            outputs = [worker.peek_output() for worker in policies]
            for output in outputs:
                output.readback_request()
            found += outputs
            for value in values:
                reference.schedule(value)
                expected.append(reference.peek_output().download_to_array())
    for output, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(output.download_to_array(), y, atol=1e-5)


def test_one_worker_s_output_is_the_next_one_s_input(where: dict[str, Any]) -> None:
    with ExitStack() as stack:
        square = ModelLoader.load(proto(NODES, {"x": ("float32", [3])}, {"y": ("float32", [3])}))
        a, b, c = (stack.enter_context(Worker(square, **where)) for _ in range(3))
        x = np.zeros(3, np.float32)
        buffer = CommandBuffer()
        buffer.schedule_worker(a, {"x": x})
        buffer.schedule_worker(b, {"x": buffer.output(a)})
        buffer.schedule_worker(c, {"x": buffer.output(b, "y")})
        buffer.schedule_worker(a, {"x": buffer.output(a)})  # once more, with what it has just made
        for value in (1.0, 2.0, 3.0, 1.5):
            x[...] = value
            buffer.execute()
            assert result(c) == pytest.approx([value**8] * 3)
            assert result(b) == pytest.approx([value**4] * 3)
            assert result(a) == pytest.approx([value**4] * 3)
        if where["backend_type"] is BackendType.CPU:
            assert buffer.replayed_count == 4


def test_an_output_that_is_an_input_is_read_before_the_next_schedule(where: dict[str, Any]) -> None:
    """Reads and schedules of one worker take turns, by workers and on the CPU by a job."""
    shapes = {"x": ("float32", [64])}, {"y": ("float32", [64])}
    with ExitStack() as stack:
        square = ModelLoader.load(proto(NODES, *shapes))
        both = {name: ("float32", [64]) for name in ("passed", "y")}
        passed = ModelLoader.load(proto([node("Identity", ["x"], ["passed"]), *NODES], shapes[0], both))
        a, b, c = (stack.enter_context(Worker(m, **where)) for m in (passed, square, square))
        first, second = (np.zeros(64, np.float32) for _ in range(2))
        total = Tensor(np.zeros(64, np.float32))
        buffer = CommandBuffer()
        buffer.schedule_worker(b, {"x": buffer.output(a)})
        buffer.schedule_worker(a, {"x": first})
        buffer.schedule_worker(c, {"x": buffer.output(a)})
        if where["backend_type"] is BackendType.CPU:
            buffer.schedule_job(add_up, total, buffer.output(a), buffer.output(c))
        buffer.schedule_worker(a, {"x": second})
        for value in (2.0, 3.0, 4.0, 5.0):
            first[...], second[...] = value, -value
            a.schedule(np.full(64, value + 10, np.float32))
            buffer.execute()
            found = [result(worker)[0] for worker in (b, c, a)]
            assert found == pytest.approx([(value + 10) ** 2, value**2, -value])
            if where["backend_type"] is BackendType.CPU:
                assert total.readback_and_clone()[0] == pytest.approx(value + value**2)
        assert buffer.replayed_count >= 3


def test_other_shapes_are_scheduled_as_ever_and_replayed_from_then_on(where: dict[str, Any]) -> None:
    with ExitStack() as stack:
        any_size = ModelLoader.load(proto(NODES, *SHAPES))
        a, b = (stack.enter_context(Worker(any_size, **where)) for _ in range(2))
        buffer = CommandBuffer()
        buffer.schedule_worker(a)
        buffer.schedule_worker(b)
        replayed = []
        for size in (2, 2, 2, 5, 5, 2, 2):
            x = np.arange(size, dtype=np.float32)
            a.set_input("x", x)
            b.set_input("x", x + 1)
            buffer.execute()
            replayed.append(buffer.replayed_count)
            np.testing.assert_allclose(a.peek_output().download_to_array(), x**2)
            np.testing.assert_allclose(b.peek_output().download_to_array(), (x + 1) ** 2)
        assert replayed == [0, 2, 2, 0, 2, 0, 2]


def test_schedules_whose_plans_are_made_in_the_background_are_replayed_once_these_are_there(
    where: dict[str, Any],
) -> None:
    with ExitStack() as stack:
        any_size = ModelLoader.load(proto(NODES, *SHAPES))
        a, b = (stack.enter_context(Worker(any_size, **where)) for _ in range(2))
        buffer = CommandBuffer()
        x = np.arange(5, dtype=np.float32)
        for worker in (a, b):
            buffer.schedule_worker(worker, {"x": x})
        with background_planning():
            buffer.execute()
            assert a.plan_report().planning
            buffer.execute()
        for worker in (a, b):
            np.testing.assert_allclose(worker.peek_output().download_to_array(), x**2)
        buffer.execute()
        buffer.execute()
        assert buffer.replayed_count == 2
        x += 1
        buffer.execute()
        for worker in (a, b):
            np.testing.assert_allclose(worker.peek_output().download_to_array(), x**2)


def test_an_output_of_a_worker_outside_is_the_latest_at_every_size(where: dict[str, Any]) -> None:
    """Its output has one shape at all sizes, but a plan's buffer of its own; the buffer's last command
    schedules it once more.
    """
    total = [node("ReduceSum", ["x"], ["y"], keepdims=1)]
    product = [node("Mul", ["x", "factor"], ["y"])]
    one = ("float32", [1])
    with ExitStack() as stack:
        summing = ModelLoader.load(proto(total, {"x": ("float32", ["n"])}, {"y": one}))
        times = ModelLoader.load(proto(product, {"x": one, "factor": one}, {"y": one}))
        a = stack.enter_context(Worker(summing, **where))
        b, c = (stack.enter_context(Worker(times, **where)) for _ in range(2))
        outside, ending = CommandBuffer(), CommandBuffer()
        for buffer in (outside, ending):
            for worker, factor in ((b, 2), (c, 3)):
                given: dict[str, Any] = {"x": buffer.output(a), "factor": np.array([factor], np.float32)}
                buffer.schedule_worker(worker, given)
        ending.schedule_worker(a, {"x": np.zeros(4, np.float32)})
        for buffer in (outside, ending):
            replayed = []
            for size in (4, 4, 4, 7, 7, 7, 4):
                a.schedule(np.ones(size, np.float32))
                buffer.execute()
                assert (result(b), result(c)) == ([2 * size], [3 * size])
                replayed.append(buffer.replayed_count)
            assert max(replayed) >= 2
            assert result(a) == [4 if buffer is outside else 0]


def test_schedules_beside_the_buffer_change_nothing(policies: list[Worker]) -> None:
    x = np.ones((4, 8), np.float32)
    buffer = CommandBuffer()
    for worker in policies[:2]:
        buffer.schedule_worker(worker, {"x": x})
    for value in (1.0, 2.0, 3.0):
        x[...] = value
        buffer.execute()
        before = [result(worker) for worker in policies[:2]]
        policies[0].schedule(x * 0)
        policies[2].schedule(x)
        assert before[0] == before[1]
        np.testing.assert_allclose(before[0], result(policies[2]), rtol=1e-5)
        assert result(policies[0]) != before[0]


def test_a_disposed_worker_is_told(policies: list[Worker]) -> None:
    buffer = CommandBuffer()
    for worker in policies[:2]:
        buffer.schedule_worker(worker, {"x": np.ones((4, 8), np.float32)})
    buffer.execute()
    buffer.execute()
    policies[1].dispose()
    with pytest.raises(DisposedError):
        buffer.execute()


def test_another_thread_is_refused_as_by_schedule(policies: list[Worker]) -> None:
    buffer = CommandBuffer()
    for worker in policies[:2]:
        buffer.schedule_worker(worker, {"x": np.ones((4, 8), np.float32)})
    buffer.execute()
    buffer.execute()
    assert buffer.replayed_count == 2
    errors: list[BaseException] = []

    def execute() -> None:
        try:
            buffer.execute()
        except ThreadError as error:
            errors.append(error)

    thread = threading.Thread(target=execute)
    thread.start()
    thread.join()
    assert len(errors) == 1


def test_jobs_run_between_schedules() -> None:
    """A job adds two networks' outputs, a third takes the sum; nobody waits in between."""
    with JobSystem(2) as jobs, ExitStack() as stack:
        square = ModelLoader.load(proto(NODES, {"x": ("float32", [64])}, {"y": ("float32", [64])}))
        a, b, c = (stack.enter_context(Worker(square, jobs=jobs)) for _ in range(3))
        x, total = Tensor(np.zeros(64, np.float32)), Tensor(np.zeros(64, np.float32))
        calls = []
        buffer = CommandBuffer()
        buffer.schedule_worker(a, {"x": x})
        buffer.schedule_worker(b, {"x": buffer.output(a)})
        buffer.schedule_job(add_up, total, buffer.output(a), buffer.output(b), grain=16)
        buffer.schedule_worker(c, {"x": total})
        buffer.add(lambda: calls.append(c._latest))
        found = []
        for value in (1.0, 2.0, 1.0, 0.5, 3.0):
            x.upload(np.full(64, value))
            buffer.execute()
            output = c.peek_output()
            output.readback_request()
            found.append((value, output))
        assert len(calls) == 5
        assert buffer.replayed_count == 4
        for value, output in found:
            assert output.download_to_array().tolist() == pytest.approx([(value**2 + value**4) ** 2] * 64)


def test_what_runs_long_does_not_hold_up_the_buffer() -> None:
    with JobSystem(2) as jobs, ExitStack() as stack:
        square = ModelLoader.load(proto(NODES, {"x": ("float32", [4])}, {"y": ("float32", [4])}))
        a, b = (stack.enter_context(Worker(square, jobs=jobs)) for _ in range(2))
        x = Tensor(np.ones(4, np.float32))
        buffer = CommandBuffer()
        buffer.schedule_worker(a, {"x": x})
        buffer.schedule_worker(b, {"x": buffer.output(a)})
        buffer.execute()
        with Gate() as gate:
            handle = doubled.schedule(x, depends_on=gate.hold(jobs), jobs=jobs)
            buffer.execute()
            assert not handle.is_completed
            gate.open()
        assert buffer.replayed_count == 2
        assert result(b) == [16] * 4


def test_pictures_become_tensors_and_tensors_pictures() -> None:
    """A picture goes through a network (which squares it) and back, each time as it is then."""
    whole = {"x": ("float32", [1, 1, 4, 4])}, {"y": ("float32", [1, 1, 4, 4])}
    picture, shown = np.zeros((4, 4), np.uint8), np.zeros((4, 4), np.uint8)
    with Worker(model(NODES, *whole)) as worker, Tensor(np.zeros((1, 1, 4, 4), np.float32)) as tensor:
        buffer = CommandBuffer()
        buffer.to_tensor(picture, tensor)
        buffer.schedule_worker(worker, {"x": tensor})
        buffer.to_texture(buffer.output(worker), shown)
        for value in (255, 51, 0, 102):
            picture[...] = value
            buffer.execute()
            limit = time.monotonic() + 20
            wanted = round(value * value / 255)
            while TextureConverter.poll() or (abs(shown.astype(int) - wanted) > 1).any():
                assert time.monotonic() < limit, shown


def test_set_input_takes_its_turn() -> None:
    with Worker(model(NODES, *SHAPES)) as worker, Worker(model(NODES, *SHAPES)) as other:
        buffer = CommandBuffer()
        buffer.set_input(worker, "x", np.array([3.0], np.float32))
        buffer.schedule_worker(worker)
        buffer.set_input(worker, "x", np.array([4.0], np.float32))
        buffer.schedule_worker(other, {"x": buffer.output(worker)})
        for _ in range(3):
            buffer.execute()
            assert (result(worker), result(other)) == ([9], [81])
            worker.schedule()
            assert result(worker) == [16]


def test_wrong_commands_are_refused() -> None:
    buffer = CommandBuffer()
    for use, message in (
        (lambda: buffer.schedule_worker("w"), "takes a Worker, not a str"),  # type: ignore[arg-type]
        (lambda: buffer.schedule_job(print), "takes what @job made"),  # type: ignore[arg-type]
        (lambda: buffer.add(3), "something to call"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError, match=message):
            use()
    assert len(buffer) == 0
