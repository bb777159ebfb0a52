"""Schedule after schedule of the same kind: what is read in place, what stays allocated, who waits."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from engine import BackendType, CPUTensorData, JobSystem, Model, Tensor, Worker
from engine.backends.cpu.execution.memory import CPUBuffer
from engine.base.errors import DisposedError, InputError, StaleTensorError
from engine.device.jobs.system import RepeatedJob
from tests.engine.conftest import MakeWorker
from tests.engine.runtime.test_streams import SIDE, long_chain, picture, row
from tests.graphs import model, node

STEPS = 12


def expected(x: np.ndarray, extra: float) -> np.ndarray:
    return np.roll(x, STEPS, axis=0) + np.float32(extra)


def result(worker: Worker) -> np.ndarray:
    array: np.ndarray = worker.peek_output().download_to_array()
    return array


@pytest.fixture
def worker(make_worker: MakeWorker) -> Worker:
    """A worker whose plan is known, and takes a while, with nothing in flight."""
    made = make_worker(long_chain(STEPS), "cpu")
    for _ in range(6):
        made.schedule(picture(0), row(1))
        result(made)
    return made


def spoil(worker: Worker) -> None:
    """Make what an input is copied to useless for whoever reads it without a copy before."""
    assert worker._latest is not None
    ((_, buffer),) = worker._latest.recorded_plans[0].inputs["x"]
    buffer.array[:] = np.nan  # type: ignore[attr-defined]


def test_a_large_tensor_is_read_where_it_lies(worker: Worker) -> None:
    first, second = Tensor(picture(1)), Tensor.wrap(picture(2))
    for _ in range(2):
        for tensor, seed in ((first, 1), (second, 2), (first, 1)):
            spoil(worker)
            worker.schedule(tensor, row(3))
            np.testing.assert_allclose(result(worker), expected(picture(seed), 3), atol=1e-5)
        worker.schedule(picture(4), row(5))
        np.testing.assert_allclose(result(worker), expected(picture(4), 5), atol=1e-5)


def test_tensors_in_flight_together_are_told_apart(worker: Worker) -> None:
    tensors = [Tensor(picture(seed)) for seed in range(4)]
    outputs = []
    for seed, tensor in enumerate(tensors):
        worker.schedule(tensor, row(seed))
        outputs.append(worker.peek_output())
        outputs[-1].readback_request()
    for tensor in tensors:
        tensor.upload(np.zeros((SIDE, SIDE), np.float32))
        tensor.dispose()
    for seed, output in enumerate(outputs):
        np.testing.assert_allclose(output.download_to_array(), expected(picture(seed), seed), atol=1e-5)


def zeros() -> np.ndarray:
    return np.zeros((SIDE, SIDE), np.float32)


def write_elements(tensor: Tensor) -> None:
    tensor[...] = 0.0


def write_storage(tensor: Tensor) -> None:
    CPUTensorData.pin(tensor).array[...] = 0.0


@pytest.mark.parametrize("write", [lambda t: t.upload(zeros()), write_elements, write_storage])
@pytest.mark.parametrize("make", [Tensor, Tensor.wrap])
def test_writing_a_tensor_leaves_alone_what_was_scheduled(
    worker: Worker, make: Callable[[np.ndarray], Tensor], write: Callable[[Tensor], None]
) -> None:
    for seed in range(3):
        tensor = make(picture(seed))
        worker.schedule(tensor, row(1))
        write(tensor)
        np.testing.assert_allclose(result(worker), expected(picture(seed), 1), atol=1e-5)
        worker.schedule(tensor, row(2))
        np.testing.assert_array_equal(result(worker), np.full((SIDE, SIDE), 2, np.float32))


@pytest.mark.parametrize("is_named", [False, True])
def test_the_same_tensors_again_are_seen_as_they_are_now(worker: Worker, is_named: bool) -> None:
    large, small, other = Tensor(picture(1)), Tensor(row(1)), Tensor(row(7))

    def check(picture_now: np.ndarray, extra: float, second: Tensor = small) -> None:
        for _ in range(3):
            spoil(worker)
            if is_named:
                worker.schedule(dict(zip(worker._inputs.names, (large, second), strict=True)))
            else:
                worker.schedule(large, second)
            np.testing.assert_allclose(result(worker), expected(picture_now, extra), atol=1e-5)

    check(picture(1), 1)
    small.upload(row(2))
    check(picture(1), 2)
    check(picture(1), 7, other)
    check(picture(1), 2)
    worker.schedule(large, small)
    large.upload(picture(3))  # while it is read: the elements move
    check(picture(3), 2)
    small[...] = 4.0
    check(picture(3), 4)
    worker.schedule(picture(5), row(5))
    np.testing.assert_allclose(result(worker), expected(picture(5), 5), atol=1e-5)
    check(picture(3), 4)
    for _ in range(4):
        worker.schedule(large, small)  # behind each other
    np.testing.assert_allclose(result(worker), expected(picture(3), 4), atol=1e-5)
    with pytest.raises(InputError):
        worker.schedule({"x": large, "nobody": small})
    small.dispose()
    with pytest.raises(DisposedError):
        worker.schedule(large, small)
    check(picture(3), 7, other)


def turned(*shown: Any) -> Model:
    """What `long_chain` is, without its second input: nothing has to be copied. `shown` nodes give "seen"."""
    names = ["x", *(f"p{i}" for i in range(STEPS))]
    outputs = {names[-1]: ("float32", [SIDE, SIDE])} | ({"seen": ("float32", [SIDE * SIDE])} if shown else {})
    return model(
        [*(node("MatMul", ["turn", a], [b]) for a, b in pairwise(names)), *shown],
        {"x": ("float32", [SIDE, SIDE])},
        outputs,
        {"turn": np.roll(np.eye(SIDE, dtype=np.float32), 1, axis=0), "flat": np.array([-1], np.int64)},
    )


def test_a_tensor_again_is_seen_as_it_is_now(make_worker: MakeWorker) -> None:
    made = make_worker(turned(), "cpu")
    first, second = Tensor(picture(1)), Tensor(picture(2))

    def check(seed: int, tensor: Tensor) -> None:
        if made._latest is not None:
            spoil(made)
        made.schedule(tensor)
        np.testing.assert_allclose(result(made), expected(picture(seed), 0), atol=1e-5)

    for _ in range(20):
        check(1, first)
        check(1, first)
    for _ in range(20):
        # The second comes into line behind the first, by a copy: nothing is aimed at it then.
        made.schedule(first)
        made.schedule(second)
        np.testing.assert_allclose(result(made), expected(picture(2), 0), atol=1e-5)
        check(2, second)
        check(2, second)
        made.schedule(second)
        second.upload(picture(3))  # while it is read: the elements move
        np.testing.assert_allclose(result(made), expected(picture(2), 0), atol=1e-5)
        check(3, second)
        check(3, second)
        second.upload(picture(2))  # when it is not: they stay
        check(2, second)
    made.schedule(second)
    made.schedule(second)  # behind each other
    made.schedule(second)
    np.testing.assert_allclose(result(made), expected(picture(2), 0), atol=1e-5)


@pytest.fixture
def repeating(make_worker: MakeWorker) -> tuple[Worker, Tensor]:
    """A worker that is given the same tensor every time, and runs it by the same job."""
    made, tensor = make_worker(turned(), "cpu"), Tensor(picture(1))
    for _ in range(4):
        made.schedule(tensor)
        result(made)
    return made, tensor


def repeated_job(worker: Worker) -> RepeatedJob:
    fast_path = worker._latest_path
    assert fast_path is not None
    job = fast_path.runner._elsewhere.job  # type: ignore[attr-defined]
    assert isinstance(job, RepeatedJob)
    return job


def test_a_worker_repeats_one_job(repeating: tuple[Worker, Tensor]) -> None:
    worker, tensor = repeating
    jobs = []
    for _ in range(50):
        worker.schedule(tensor)
        np.testing.assert_allclose(result(worker), expected(picture(1), 0), atol=1e-5)
        jobs.append(repeated_job(worker))
    # A thread may have to be waited for once; that every schedule made a job was a fault.
    assert len(set(map(id, jobs))) < 25


def test_outputs_of_a_repeated_schedule_are_stale_after_the_next(repeating: tuple[Worker, Tensor]) -> None:
    worker, tensor = repeating
    worker.schedule(tensor)
    before = worker.peek_output()
    before.download_to_array()
    worker.schedule(tensor)
    for use in (before.download_to_array, before.readback_request, lambda: before.shape):
        with pytest.raises(StaleTensorError):
            use()
    np.testing.assert_allclose(result(worker), expected(picture(1), 0), atol=1e-5)


def test_a_readback_outlives_the_same_schedule_again(repeating: tuple[Worker, Tensor]) -> None:
    """Asked for while the job runs, looked at or not, its value is that of its schedule."""
    worker, tensor = repeating
    held: list[tuple[int, Tensor]] = []
    for seed in range(2, 8):
        result(worker)
        tensor.upload(picture(seed))
        worker.schedule(tensor)
        output = worker.peek_output()
        output.readback_request()
        if seed % 2:
            while not output.is_readback_request_done():
                pass
        held.append((seed, output))
        worker.schedule(tensor)
    for seed, output in held:
        np.testing.assert_allclose(output.download_to_array(), expected(picture(seed), 0), atol=1e-5)


def test_a_fence_is_of_the_schedule_after_which_it_was_asked_for(repeating: tuple[Worker, Tensor]) -> None:
    worker, tensor = repeating
    fence = None
    for _ in range(100):
        worker.schedule(tensor)
        # On a core of its own the work may be done before this is asked.
        if (fence := worker.fence) is not None:
            break
    assert fence is not None
    assert fence.complete(20)
    for _ in range(5):
        worker.schedule(tensor)
        assert fence.is_completed
        assert repeated_job(worker).handle is not fence
    np.testing.assert_allclose(result(worker), expected(picture(1), 0), atol=1e-5)


def test_a_tensor_does_not_hold_what_has_read_it() -> None:
    with JobSystem(2) as jobs:
        worker, tensor = Worker(turned(), BackendType.CPU, jobs=jobs), Tensor(picture(1))
        for _ in range(6):
            worker.schedule(tensor)
            result(worker)
        ((_, buffer),) = worker._session.recorder.constants.values()
        assert isinstance(buffer, CPUBuffer)
        weights = weakref.ref(buffer.array)
        del buffer
        assert weights() is not None
        worker.dispose()
        del worker
        other = Worker(turned(), BackendType.CPU, jobs=jobs)
        for _ in range(3):
            gc.collect()
            other.schedule(picture(1))
            result(other)
        assert weights() is None
        other.dispose()


def test_a_tensor_keeps_what_is_not_written_over(worker: Worker) -> None:
    tensor = Tensor(picture(0))
    for column in range(3):
        worker.schedule(tensor, row(0))
        tensor[:, column] = 0.0
        result(worker)
    changed = picture(0)
    changed[:, :3] = 0.0
    np.testing.assert_array_equal(tensor.download_to_array(), changed)
    worker.schedule(tensor, row(0))
    np.testing.assert_allclose(result(worker), expected(changed, 0), atol=1e-5)


def test_an_output_that_shows_an_input_sees_its_elements(make_worker: MakeWorker) -> None:
    made = make_worker(turned(node("Reshape", ["x", "flat"], ["seen"])), "cpu")
    for seed in range(8):
        made.schedule(Tensor(picture(seed)))
        np.testing.assert_array_equal(
            made.peek_output("seen").download_to_array().reshape(SIDE, SIDE), picture(seed)
        )


def test_wrong_tensors_are_refused_as_ever(worker: Worker) -> None:
    good = Tensor(picture(0))
    gone = Tensor(picture(0))
    gone.dispose()
    for wrong in (Tensor(picture(0).astype(np.float64)), Tensor(row(0)), gone):
        worker.schedule(good, row(0))
        with pytest.raises(Exception, match="needs float32|disposed"):
            worker.schedule(wrong, row(0))
    worker.schedule(good.reshape(SIDE, SIDE), row(0))
    np.testing.assert_allclose(result(worker), expected(picture(0), 0), atol=1e-5)


def test_python_goes_on_while_a_network_runs() -> None:
    """Between `schedule` and the arrival of its result, the calling thread counts."""
    with JobSystem(1) as jobs, Worker(long_chain(60), BackendType.CPU, jobs=jobs) as made:
        made.schedule(picture(0), row(1))
        result(made)
        most = 0
        for _ in range(5):
            made.schedule(picture(0), row(1))
            output = made.peek_output()
            output.readback_request()
            turns = 0
            while not output.is_readback_request_done():
                turns += 1
            most = max(most, turns)
        assert most > 100


def layers() -> Model:
    """A picture through a convolution and a product: 64 KiB in, 40 bytes out."""
    rng = np.random.default_rng(0)
    return model(
        [
            node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
            node("Relu", ["c"], ["r"]),
            node("GlobalAveragePool", ["r"], ["m"]),
            node("Flatten", ["m"], ["f"]),
            node("Gemm", ["f", "g"], ["y"]),
        ],
        {"x": ("float32", [1, 4, 64, 64])},
        {"y": ("float32", [1, 10])},
        {
            "w": rng.normal(size=(16, 4, 3, 3)).astype(np.float32),
            "g": rng.normal(size=(16, 10)).astype(np.float32),
        },
    )


def count_creations(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often memory is asked for of OpenGL or OpenCL from now on."""
    made: Counter[str] = Counter()

    def counted(place: Any, name: str) -> None:
        call = getattr(place, name)

        def counting(*args: Any, **options: Any) -> Any:
            made[name] += 1
            return call(*args, **options)

        monkeypatch.setattr(place, name, counting)

    device = worker.device
    if hasattr(device, "gl"):
        for name in (
            "glGenBuffers",
            "glBufferData",
            "glGenTextures",
            "glGenFramebuffers",
            "glGenVertexArrays",
        ):
            counted(device.gl, name)
        for name in ("buffer", "texture", "framebuffer", "program"):
            counted(type(device.ctx), name)
    elif hasattr(device, "cl"):
        for name in ("Buffer", "Kernel", "Program", "Image"):
            counted(device.cl, name)
    return made


@pytest.mark.parametrize("make", [np.array, Tensor])
def test_steady_schedules_allocate_nothing(
    channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch, make: Callable[[np.ndarray], Any]
) -> None:
    """Small Python objects apart: neither arrays nor memory of a device, kept or in passing."""
    worker = make_worker(layers(), channel)
    given = make(np.random.default_rng(1).normal(size=(1, 4, 64, 64)).astype(np.float32))
    out = np.empty((1, 10), np.float32)
    for _ in range(10):
        worker.schedule(given)
        worker.peek_output().download_to_array(out=out)
    made = count_creations(worker, monkeypatch)
    most = 0
    tracemalloc.start()
    try:
        for _ in range(50):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            worker.schedule(given)
            most = max(most, tracemalloc.get_traced_memory()[1] - before)
            made_by_schedule = dict(made)
            worker.peek_output().download_to_array(out=out)
            made.clear()
            assert made_by_schedule == {}
    finally:
        tracemalloc.stop()
    assert most < 16_384


def test_a_download_goes_straight_into_the_given_array(channel: str, make_worker: MakeWorker) -> None:
    """128 KiB arrive without a second array as large."""
    worker = make_worker(
        model(
            [node("Add", ["x", "x"], ["y"])], {"x": ("float32", [128, 256])}, {"y": ("float32", [128, 256])}
        ),
        channel,
    )
    x = np.random.default_rng(2).normal(size=(128, 256)).astype(np.float32)
    out = np.empty((256, 256), np.float32)[::2]
    for _ in range(5):
        # Several in flight: a backend's pool of host memory is then as large as it will ever have to be.
        for _ in range(8):
            worker.schedule(x)
        worker.peek_output().download_to_array(out=out)
    most = 0
    tracemalloc.start()
    try:
        for k in range(10):
            worker.schedule(x + k)
            tensor = worker.peek_output()
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            assert tensor.download_to_array(out=out) is out
            most = max(most, tracemalloc.get_traced_memory()[1] - before)
            np.testing.assert_allclose(out, 2 * (x + k), rtol=1e-6)
    finally:
        tracemalloc.stop()
    assert most < 16_384


def test_shapes_that_take_turns_keep_their_short_ways(make_worker: MakeWorker) -> None:
    """Each shape's second schedule on looks nothing up, and plans that were dropped are made again."""
    source = model(
        [node("Mul", ["x", "x"], ["s"]), node("ReduceSum", ["s"], ["y"], keepdims=0)],
        {"x": ("float32", ["n"])},
        {"y": ("float32", None)},
    )
    worker = make_worker(source, "cpu")
    for turn in range(4):
        for n in (3, 8, 5):
            worker.schedule(np.full(n, turn + 1, np.float32))
            assert worker.peek_output().download_to_array() == n * (turn + 1) ** 2
    plans = worker._session.cache.plans
    shorts = {key: recorded.fast_path for key, recorded in plans.items()}
    assert len(shorts) == 4  # theirs, and that of sizes that come for the first time
    assert None not in shorts.values()
    for key in [*plans]:
        if not plans[key].users:
            worker._session.cache.drop(plans, key)
    for n in (3, 8, 5):
        worker.schedule(np.full(n, 2, np.float32))
        assert worker.peek_output().download_to_array() == n * 4
    (made,) = [r.fast_path for r in plans.values() if r.fast_path.shapes == ((8,),)]
    assert made not in shorts.values()
