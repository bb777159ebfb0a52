"""Inference in slices: the same bits, whatever the parts, and nothing that waits."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest

from engine import (
    CancelledError,
    DisposedError,
    InputError,
    Model,
    ModelLoader,
    Schedule,
    ShapeError,
    StaleTensorError,
    Tensor,
    Worker,
)
from tests.contract.networks import repeating
from tests.engine.conftest import MakeWorker
from tests.engine.runtime.plans.test_continuations import folding, held, numbers
from tests.graphs import model, node
from tests.maker import Maker
from tests.networks import made_inputs
from tests.vision_networks import cnn_policy

FEW_MS = 1e-6
"""A slice so short that steps are cut into what is just worth starting."""


def convolutions() -> Model:
    """Layers that have kernels of their own: windows, depthwise and pointwise ones, products, pools."""
    m = Maker(3)
    y = m.add("Relu", m.conv("x", (3, 12), 3, stride=2, pad=1))
    y = m.add("Relu", m.conv(y, (12, 12), 3, pad=1, group=12))
    y = m.add("Sigmoid", m.conv(y, (12, 20), 1))
    y = m.add("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    side = m.add("Transpose", y, perm=[0, 2, 3, 1])
    flat = m.add("Flatten", side)
    rows = m.linear(flat, 20 * 9 * 9, 70)
    m.rename(m.add("Softmax", rows), "y")
    m.rename(m.add("Cast", m.add("Mul", side, m.constant(3.0)), to=3), "bytes")
    return ModelLoader.load(
        m.file(
            {"x": ("float32", ["n", 3, 36, 36])}, {"y": ("float32", ["n", 70]), "bytes": ("int8", None)}, 18
        )
    )


def picture(seed: int, n: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3, 36, 36)).astype(np.float32)


def whole(worker: Worker, x: np.ndarray, *names: str) -> list[np.ndarray]:
    worker.schedule(x)
    return [worker.peek_output(name).download_to_array() for name in names]


def run(schedule: Schedule) -> int:
    """How many slices it took."""
    return sum(1 for _ in schedule)


def chain() -> Model:
    """Two layers that are two steps, as the product is of data."""
    return model(
        [node("MatMul", ["x", "x"], ["square"]), node("MatMul", ["square", "x"], ["y"])],
        {"x": ("float32", [48, 48])},
        {"y": ("float32", [48, 48])},
    )


def matrix(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.2, (48, 48)).astype(np.float32)


@pytest.mark.parametrize("slice_ms", [FEW_MS, 0.05, 1000.0])
def test_slices_yield_the_same_bits(channel: str, make_worker: MakeWorker, slice_ms: float) -> None:
    worker = make_worker(convolutions(), channel, slice_ms=slice_ms)
    expected = [whole(worker, picture(seed), "y", "bytes") for seed in range(3)]
    for seed, (y, octets) in enumerate(expected):
        schedule = worker.schedule_iterable(picture(seed))
        count = run(schedule)
        assert count > 3 or slice_ms != FEW_MS
        np.testing.assert_array_equal(schedule.output("y").download_to_array(), y)
        np.testing.assert_array_equal(schedule.output("bytes").download_to_array(), octets)


def test_every_step_of_a_network_may_be_cut_anywhere(channel: str, make_worker: MakeWorker) -> None:
    """Cuts at random places, of a network that a game might use."""
    worker = make_worker(ModelLoader.load(cnn_policy()), channel)
    x = made_inputs("cnn_policy")
    worker.schedule(x)
    name = worker.model.outputs[0].name
    expected = worker.peek_output(name).download_to_array()
    rng = np.random.default_rng(1)
    for _ in range(3):
        schedule = worker.schedule_iterable(x)
        while not schedule.is_done:
            schedule.advance(float(rng.exponential(0.05)), force=True)
        np.testing.assert_array_equal(schedule.output(name).download_to_array(), expected)


def test_nothing_goes_on_by_itself(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(chain(), channel)
    schedule = worker.schedule_iterable(matrix())
    output = schedule.output()
    output.readback_request()
    for _ in range(50):
        assert not worker.pump()
        assert not output.is_readback_request_done()
    assert schedule.progress == 0.0
    assert schedule.remaining_ms >= schedule.next_cost_ms > 0.0
    assert schedule.advance(0.0) == 0.0
    assert schedule.progress == 0.0
    run(schedule)
    assert schedule.is_done
    assert schedule.progress == 1.0
    assert schedule.remaining_ms == schedule.next_cost_ms == 0.0
    assert schedule.advance(10.0) == 0.0
    with pytest.raises(StopIteration):
        next(schedule)
    deadline = time.monotonic() + 20
    while not output.is_readback_request_done():
        assert time.monotonic() < deadline
    np.testing.assert_allclose(output.download_to_array(), matrix() @ matrix() @ matrix(), atol=1e-4)


def test_progress_grows_and_the_rest_shrinks(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(convolutions(), channel, slice_ms=0.02)
    schedule = worker.schedule_iterable(picture(0))
    seen = [schedule.progress]
    for _ in schedule:
        seen.append(schedule.progress)
    assert seen == sorted(seen)
    assert seen[0] == 0.0
    assert seen[-1] == 1.0
    assert all(0.0 <= share <= 1.0 for share in seen)


def test_a_blocking_read_takes_the_rest(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(convolutions(), channel, slice_ms=0.02)
    (expected,) = whole(worker, picture(1), "y")
    schedule = worker.schedule_iterable(picture(1))
    next(schedule)
    np.testing.assert_array_equal(worker.peek_output("y").download_to_array(), expected)
    assert schedule.is_done


def test_inputs_are_copied(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(chain(), channel)
    x = matrix()
    (expected,) = whole(worker, x, "y")
    schedule = worker.schedule_iterable(x)
    x[:] = 0.0
    behind = worker.schedule_iterable(y := matrix(1))
    y[:] = 0.0
    run(schedule)
    del behind
    tensor = Tensor(matrix())
    again = worker.schedule_iterable(x=tensor)
    tensor.dispose()
    run(again)
    np.testing.assert_array_equal(again.output().download_to_array(), expected)


def test_a_schedule_waits_behind_it(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(chain(), channel)
    expected = [whole(worker, matrix(seed), "y")[0] for seed in range(3)]
    first = worker.schedule_iterable(matrix(0))
    next(first)
    kept = first.output()
    kept.readback_request()
    worker.schedule(matrix(1))
    output = worker.peek_output()
    output.readback_request()
    with pytest.raises(StaleTensorError):
        first.output().download_to_array()
    assert not output.is_readback_request_done() or first.is_done
    run(first)
    np.testing.assert_array_equal(kept.download_to_array(), expected[0])
    np.testing.assert_array_equal(output.download_to_array(), expected[1])
    # The short way of `schedule` is open again.
    np.testing.assert_array_equal(whole(worker, matrix(2), "y")[0], expected[2])
    np.testing.assert_array_equal(whole(worker, matrix(0), "y")[0], expected[0])


def test_one_behind_another_waits_for_its_turn(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(chain(), channel)
    (expected,) = whole(worker, matrix(5), "y")
    first, second = worker.schedule_iterable(matrix(4)), worker.schedule_iterable(matrix(5))
    assert second.advance(1000.0, force=True) == 0.0
    assert second.progress == 0.0
    run(first)
    run(second)
    np.testing.assert_array_equal(second.output().download_to_array(), expected)


def test_two_workers_take_turns(channel: str, make_worker: MakeWorker) -> None:
    """What one issues between the slices of another leaves that one's state alone."""
    workers = [make_worker(convolutions(), channel, slice_ms=0.02) for _ in range(2)]
    expected = [whole(w, picture(k), "y")[0] for k, w in enumerate(workers)]
    schedules = [w.schedule_iterable(picture(k)) for k, w in enumerate(workers)]
    while not all(s.is_done for s in schedules):
        for s in schedules:
            next(s, None)
    for schedule, y in zip(schedules, expected, strict=True):
        np.testing.assert_array_equal(schedule.output("y").download_to_array(), y)


def test_cancelled_outputs_say_so_and_the_next_goes_on(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(chain(), channel, slice_ms=FEW_MS)
    (expected,) = whole(worker, matrix(1), "y")
    first, second = worker.schedule_iterable(matrix(0)), worker.schedule_iterable(matrix(1))
    next(first)
    first.cancel()
    assert first.is_done
    assert first.is_cancelled
    assert list(first) == []
    assert first.advance(1.0) == 0.0
    first.cancel()
    run(second)
    np.testing.assert_array_equal(second.output().download_to_array(), expected)
    second.cancel()
    assert not second.is_cancelled, "all of it was enqueued"
    third = worker.schedule_iterable(matrix(2))
    output = third.output()
    output.readback_request()
    third.cancel()
    with pytest.raises(CancelledError, match="cancelled"):
        output.is_readback_request_done()
    with pytest.raises(CancelledError):
        worker.peek_output().download_to_array()
    assert worker.pump()
    np.testing.assert_array_equal(whole(worker, matrix(1), "y")[0], expected)


def test_one_that_is_dropped_is_cancelled(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(chain(), channel)
    schedule = worker.schedule_iterable(matrix(0))
    next(schedule)
    del schedule
    gc.collect()
    worker.schedule(matrix(1))
    np.testing.assert_allclose(
        worker.peek_output().download_to_array(), np.linalg.matrix_power(matrix(1), 3), atol=1e-4
    )
    worker.schedule_iterable(matrix(2))
    gc.collect()
    assert worker.pump()
    with pytest.raises(CancelledError, match="keep the object"):
        worker.peek_output().download_to_array()


def test_disposal_ends_it(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(chain(), channel)
    schedule = worker.schedule_iterable(matrix())
    worker.dispose()
    assert schedule.is_done
    with pytest.raises(DisposedError):
        next(schedule)
    with pytest.raises(DisposedError):
        schedule.advance(1.0)
    with pytest.raises(DisposedError):
        schedule.output()
    with pytest.raises(DisposedError):
        worker.schedule_iterable(matrix())


def test_bad_inputs_are_refused_at_once(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(chain(), channel)
    with pytest.raises(InputError, match="'x'"):
        worker.schedule_iterable(matrix().astype(np.float64))
    with pytest.raises(InputError, match="no input"):
        worker.schedule_iterable(z=matrix())
    schedule = worker.schedule_iterable(matrix())
    with pytest.raises(InputError, match="no output"):
        schedule.output("z")


def test_data_is_waited_for_between_slices(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(repeating(), channel)
    with held(worker) as gate:
        schedule = worker.schedule_iterable(numbers(1, 3, 5, 2))
        for _ in range(20):
            next(schedule)
            assert not schedule.is_done
        before = schedule.progress
        assert schedule.output().shape_or_none is None
        gate.is_open = True
        run(schedule)
        assert gate.waits == 0
    assert 0.0 < before < 1.0
    np.testing.assert_array_equal(schedule.output().download_to_array(), np.full(5, 11, np.float32))


def test_what_goes_wrong_midway_reaches_who_iterates(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(folding(), channel)
    schedule = worker.schedule_iterable(numbers(4, 1, 2, 3, 5))
    with pytest.raises(ShapeError):
        run(schedule)
    assert schedule.is_done
    with pytest.raises(ShapeError):
        next(schedule)
    with pytest.raises(ShapeError):
        schedule.output("y").download_to_array()
    assert worker.pump()
    good = worker.schedule_iterable(numbers(2, 1, 2, 3))
    run(good)
    np.testing.assert_array_equal(good.output("y").download_to_array(), [[-2, -1], [-2, -3]])


def test_layers_that_fall_back_take_their_turn(channel: str, make_worker: MakeWorker) -> None:
    """A step over float64 runs on the CPU where the device has none; values go there and back."""
    m = model(
        [
            node("Mul", ["x", "x"], ["a"]),
            node("Cast", ["a"], ["wide"], to=11),
            node("Exp", ["wide"], ["e"]),
            node("Cast", ["e"], ["narrow"], to=1),
            node("MatMul", ["narrow", "x"], ["y"]),
        ],
        {"x": ("float32", [48, 48])},
        {"y": ("float32", [48, 48])},
    )
    worker = make_worker(m, channel, allow_fallback=True, slice_ms=FEW_MS)
    (expected,) = whole(worker, matrix(), "y")
    schedule = worker.schedule_iterable(matrix())
    run(schedule)
    np.testing.assert_array_equal(schedule.output().download_to_array(), expected)
    if channel.startswith("gl"):
        assert {step.place for step in worker.costs} == {"native", "cpu"}
