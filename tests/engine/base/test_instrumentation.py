"""What observers are told of the engine's work, and that nobody else is."""

from __future__ import annotations

import threading
from collections import Counter
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from engine import BackendType, CLDevice, DeviceError, GLDevice, ModelLoader, Tensor, Worker
from engine.base import instrumentation
from tests.graphs import node, proto


class Notes(instrumentation.Observer):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, float, float, dict[str, Any]]] = []
        self.counts: Counter[str] = Counter()
        self.values: list[tuple[str, np.ndarray]] = []

    def span(self, track: str, name: str, start: float, end: float, **attributes: Any) -> None:
        self.spans.append((track, name, start, end, attributes))

    def count(self, name: str, amount: float) -> None:
        self.counts[name] += int(amount)

    def value(self, worker: Any, name: str, array: np.ndarray) -> None:
        self.values.append((name, array.copy()))

    def named(self, name: str) -> list[tuple[str, str, float, float, dict[str, Any]]]:
        return [span for span in self.spans if span[1] == name]


def chain(length: int, size: int) -> bytes:
    """A model of several matrix products: `x` (size, size) -> `y`."""
    weights = {f"w{i}": np.eye(size, dtype=np.float32) * 0.5 for i in range(length)}
    names = ["x", *(f"t{i}" for i in range(length - 1)), "y"]
    nodes = [node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(length)]
    declared = [{name: ("float32", [size, size])} for name in ("x", "y")]
    return proto(nodes, declared[0], declared[1], weights)


def run_once(worker: Worker, array: Any) -> np.ndarray:
    worker.schedule(array)
    output = worker.peek_output()
    output.readback_request()
    while not output.is_readback_request_done():
        pass
    return np.asarray(output.download_to_array())


def test_each_step_of_an_inference_is_told_in_order() -> None:
    notes = Notes()
    before = perf_counter()
    with instrumentation.observing(notes):
        worker = Worker(ModelLoader.load(chain(3, 32)), BackendType.CPU)
        result = run_once(worker, np.ones((32, 32), np.float32))
    after = perf_counter()
    for track, _, start, end, _ in notes.spans:
        assert before <= start <= end <= after
        assert track in ("main", "readback", "jobs")
    (load,), (prepare,) = notes.named("load"), notes.named("prepare")
    assert load[4]["model"] is prepare[4]["model"] is worker.model
    compiling = notes.named("compile")
    assert compiling
    assert all(prepare[2] <= start <= end <= prepare[3] for _, _, start, end, _ in compiling)
    (schedule,), (upload,), (enqueue,) = (notes.named(n) for n in ("schedule", "upload", "enqueue"))
    assert schedule[4]["worker"] is upload[4]["worker"] is enqueue[4]["worker"] is worker
    assert schedule[2] <= upload[2] <= upload[3] <= enqueue[2] <= enqueue[3] <= schedule[3]
    (readback,) = notes.named("readback")
    assert readback[2] >= schedule[3]
    assert readback[4]["tensor"] == "y"
    assert notes.counts["bytes up"] == notes.counts["bytes down"] == 32 * 32 * 4
    assert notes.counts["waits for jobs"] == 0
    assert [name for name, _ in notes.values] == ["x", "y"]
    assert np.array_equal(notes.values[1][1], result)
    worker.dispose()


def test_repeated_schedules_are_told_the_same_way() -> None:
    """They take the short way, which has its own place to look for observers."""
    with Worker(ModelLoader.load(chain(2, 16)), BackendType.CPU) as worker:
        for _ in range(3):
            run_once(worker, np.ones((16, 16), np.float32))
        notes = Notes()
        with instrumentation.observing(notes):
            for _ in range(4):
                run_once(worker, np.ones((16, 16), np.float32))
            run_once(worker, Tensor(np.ones((16, 16), np.float32)))
        told = Counter(name for _, name, _, _, _ in notes.spans)
        assert told["schedule"] == told["readback"] == 5
        assert told["upload"] == told["enqueue"] == 4


@pytest.mark.parametrize("as_tensor", [False, True])
def test_jobs_are_told_with_the_time_in_which_threads_had_them(as_tensor: bool) -> None:
    size = 512
    with Worker(ModelLoader.load(chain(6, size)), BackendType.CPU) as worker:
        array = np.ones((size, size), np.float32)
        given = Tensor(array) if as_tensor else array
        for _ in range(2):
            run_once(worker, given)
        notes = Notes()
        with instrumentation.observing(notes):
            for _ in range(3):
                expected = run_once(worker, given)
        jobs = notes.named("job")
        assert len(jobs) == 3
        for job, schedule, readback in zip(
            jobs, notes.named("schedule"), notes.named("readback"), strict=True
        ):
            assert schedule[2] <= job[2] < job[3] <= readback[3]
            assert job[4]["worker"] is worker
        # Unobserved again, the same commands run without clocks between them.
        assert np.array_equal(run_once(worker, given), expected)
        assert len(notes.named("job")) == 3


def test_a_wait_is_told_and_counted() -> None:
    size = 512
    with Worker(ModelLoader.load(chain(6, size)), BackendType.CPU) as worker:
        run_once(worker, np.ones((size, size), np.float32))
        notes = Notes()
        with instrumentation.observing(notes):
            worker.schedule(np.ones((size, size), np.float32))
            output = worker.peek_output()
            output.readback_request()
            output.download_to_array()
        assert notes.counts["waits for jobs"] >= 1
        assert len(notes.named("download")) == 1


def test_a_new_shape_is_told_as_a_plan_or_as_filled_in() -> None:
    model = ModelLoader.load(
        proto([node("Tanh", ["x"], ["y"])], {"x": ("float32", ["n", 4])}, {"y": ("float32", ["n", 4])})
    )
    notes = Notes()
    with Worker(model, BackendType.CPU) as worker, instrumentation.observing(notes):
        for rows in (2, 2, 3, 4):
            run_once(worker, np.ones((rows, 4), np.float32))
    # A plan that serves more sizes is filled in.
    assert len(notes.named("plan")) >= 1
    assert len(notes.named("fill")) >= 1
    assert len(notes.named("plan")) + len(notes.named("fill")) == 3


@pytest.mark.gl
@pytest.mark.parametrize("kind", [BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL])
def test_a_warm_up_is_its_workers_work(kind: BackendType, gl_device: object) -> None:
    notes = Notes()
    model = ModelLoader.load(
        proto([node("Tanh", ["x"], ["y"])], {"x": ("float32", ["n", 4])}, {"y": ("float32", ["n", 4])})
    )
    with instrumentation.observing(notes), Worker(model, kind) as worker:
        worker.warm_up({"n": 3}).wait()
        other = Worker.load_async(model, kind, shapes={"n": 2}).wait()
        for one in (worker, other):
            for _ in range(2):
                run_once(one, np.ones((3, 4), np.float32))
        end = perf_counter() + 60
        while len(notes.named("commands")) < 6 and perf_counter() < end:
            instrumentation.poll()
        seen = Counter(id(span[4].get("worker")) for span in notes.named("commands"))
        other.dispose()
    # What warming up enqueued, and two schedules.
    assert seen.keys() == {id(worker), id(other)}
    assert min(seen.values()) >= 3


def test_other_threads_and_other_times_are_not_told() -> None:
    notes = Notes()
    model = ModelLoader.load(chain(1, 4))

    def elsewhere() -> None:
        with Worker(model, BackendType.CPU) as worker:
            run_once(worker, np.ones((4, 4), np.float32))

    with instrumentation.observing(notes):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    elsewhere()
    assert notes.spans == []
    assert instrumentation.installed == 0


def test_an_observer_is_installed_once_and_removed_once() -> None:
    notes = Notes()
    instrumentation.add_observer(notes)
    instrumentation.add_observer(notes)
    assert instrumentation.installed == 1
    instrumentation.remove_observer(notes)
    instrumentation.remove_observer(notes)
    assert instrumentation.installed == 0


def test_a_schedule_that_fails_leaves_the_worker_observed_as_before() -> None:
    notes = Notes()
    with Worker(ModelLoader.load(chain(1, 4)), BackendType.CPU) as worker, instrumentation.observing(notes):
        with pytest.raises(Exception, match="needs float32"):
            worker.schedule(np.ones((5, 4), np.float32))
        run_once(worker, np.ones((4, 4), np.float32))
    assert len(notes.named("schedule")) == 2


@pytest.mark.gl
@pytest.mark.parametrize("backend", [BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL])
def test_gpu_backends_tell_the_same(backend: BackendType, gl_device: GLDevice) -> None:
    with Worker(ModelLoader.load(chain(3, 16)), backend, device=gl_device) as worker:
        run_once(worker, np.ones((16, 16), np.float32))
        notes = Notes()
        with instrumentation.observing(notes):
            for _ in range(2):
                run_once(worker, np.ones((16, 16), np.float32))
        told = Counter(name for track, name, *_ in notes.spans if track in ("main", "readback"))
        assert told == {"schedule": 2, "upload": 2, "enqueue": 2, "request": 2, "readback": 2}
        assert notes.counts["bytes up"] == notes.counts["bytes down"] == 2 * 16 * 16 * 4


@pytest.mark.gl
@pytest.mark.parametrize("backend", [BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL])
def test_gpu_times_come_without_waiting(backend: BackendType, gl_device: GLDevice) -> None:
    with Worker(ModelLoader.load(chain(3, 64)), backend, device=gl_device) as worker:
        run_once(worker, np.ones((64, 64), np.float32))
        gl_device.counters.reset()
        notes = Notes()
        with instrumentation.observing(notes):
            for _ in range(3):
                run_once(worker, np.ones((64, 64), np.float32))
            deadline = perf_counter() + 60
            while len(notes.named("commands")) < 3 and perf_counter() < deadline:
                instrumentation.poll()
        told = notes.named("commands")
        assert [(track, attributes["worker"]) for track, _, _, _, attributes in told] == [("gpu", worker)] * 3
        for (_, _, start, end, _), enqueue in zip(told, notes.named("enqueue"), strict=True):
            # The GPU's clock, set by the stamps themselves: no work before it was issued.
            assert start <= end
            assert start > enqueue[2] - 0.05
        assert not gl_device.timer._waiting
        assert not gl_device.counters.blocking


def test_opencl_tells_the_device_times_of_a_queue_that_keeps_them() -> None:
    try:
        device = CLDevice(profiling=True)
    except DeviceError as error:
        pytest.skip(str(error))
    with (
        device,
        Worker(ModelLoader.load(chain(3, 64)), BackendType.GPU_COMPUTE, device=device) as worker,
    ):
        run_once(worker, np.ones((64, 64), np.float32))
        notes = Notes()
        with instrumentation.observing(notes):
            run_once(worker, np.ones((64, 64), np.float32))
        ((track, _, start, end, attributes),) = notes.named("commands")
        (schedule,), (readback,) = notes.named("schedule"), notes.named("readback")
        assert track == "gpu"
        assert attributes["worker"] is worker
        assert schedule[2] <= start < end <= readback[3]
