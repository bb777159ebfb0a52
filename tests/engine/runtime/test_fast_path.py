"""The fast path: inputs that are kept, given by name or by place, changed or not, agree with NumPy."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest

from engine import (
    CommandBuffer,
    DisposedError,
    Graphics,
    InputError,
    JobSystem,
    Tensor,
    ThreadError,
    Worker,
    job,
)
from engine.backends.cpu.execution.stream import LEAST_SHARED
from engine.backends.tensor_data import CPUTensorData, changes
from engine.runtime.fast_path import FastPath
from tests.engine.conftest import MakeWorker
from tests.graphs import model, node

SIZES = (3, 20_000)
"""Inputs that are copied, and inputs that the CPU backend reads where they are."""


@job
def fill(begin, end, out, value):
    for i in range(begin, end):
        out[i] = value


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> int:
    """Few elements, and many."""
    return int(request.param)


def difference(make_worker: MakeWorker, channel: str, **options: object) -> Worker:
    """y = a - 2 b."""
    nodes = [node("Add", ["b", "b"], ["c"]), node("Sub", ["a", "c"], ["y"])]
    ends = {"a": ("float32", ["n"]), "b": ("float32", ["n"])}, {"y": ("float32", ["n"])}
    return make_worker(model(nodes, *ends), channel, **options)


def result(worker: Worker) -> np.ndarray:
    return np.asarray(worker.peek_output().download_to_array())


def numbers(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-50, 50, size).astype(np.float32)


def is_direct(worker: Worker) -> bool:
    return type(worker._latest) is FastPath


def test_kept_tensors_that_change_between_schedules(channel: str, make_worker: MakeWorker, size: int) -> None:
    worker = difference(make_worker, channel)
    arrays = [numbers(size, seed) for seed in range(6)]
    a, b, other = Tensor(arrays[0]), Tensor(arrays[1]), Tensor(arrays[2])
    for _ in range(4):
        worker.set_input("a", a)
        worker.set_input("b", b)
        worker.schedule()
        np.testing.assert_array_equal(result(worker), arrays[0] - 2 * arrays[1])
    assert is_direct(worker)
    worker.set_input("a", other)
    worker.schedule()
    np.testing.assert_array_equal(result(worker), arrays[2] - 2 * arrays[1])
    other.upload(arrays[3])
    worker.schedule()
    np.testing.assert_array_equal(result(worker), arrays[3] - 2 * arrays[1])
    worker.schedule()
    b.upload(arrays[4])  # while the schedule before may still read it
    worker.schedule()
    np.testing.assert_array_equal(result(worker), arrays[3] - 2 * arrays[4])
    b[0] = 7
    worker.schedule()
    assert result(worker)[0] == arrays[3][0] - 14
    # Another plan in between, and inputs given beside kept ones.
    worker.schedule(np.ones(5, np.float32), np.ones(5, np.float32))
    np.testing.assert_array_equal(result(worker), -np.ones(5))
    worker.schedule(a=arrays[5])
    assert result(worker)[0] == arrays[5][0] - 14
    worker.schedule({"b": arrays[5]})
    np.testing.assert_array_equal(result(worker), arrays[3] - 2 * arrays[5])
    worker.schedule()
    assert result(worker)[0] == arrays[3][0] - 14
    for tensor in (a, b, other):
        tensor.dispose()


def test_kept_tensors_after_schedules_of_another_shape(channel: str, make_worker: MakeWorker) -> None:
    worker = difference(make_worker, channel)
    one, two = np.full(4, 1, np.float32), np.full(4, 2, np.float32)
    few, many = Tensor(one), Tensor(np.full(9, 5, np.float32))
    for _ in range(3):
        worker.set_input("a", few)
        worker.set_input("b", few)
        worker.schedule()
    worker.schedule({"a": many, "b": many})
    worker.set_input("a", Tensor(two))  # while the plan for nine is the latest
    worker.schedule({"a": one, "b": one})
    np.testing.assert_array_equal(result(worker), -one)
    worker.schedule()
    np.testing.assert_array_equal(result(worker), two - 2 * one)
    few.reshape(2, 2)
    with pytest.raises(InputError, match="input 'b' needs"):
        worker.schedule()
    few.reshape(4)
    worker.schedule()
    np.testing.assert_array_equal(result(worker), two - 2 * one)
    few.dispose()
    with pytest.raises(DisposedError):
        worker.schedule()


def test_kept_arrays_are_read_when_scheduled(channel: str, make_worker: MakeWorker, size: int) -> None:
    worker = difference(make_worker, channel)
    a, b = numbers(size, 0), numbers(size, 1)
    worker.set_input("a", a)
    worker.set_input("b", b)
    for step in range(4):
        a += step
        worker.schedule()
        np.testing.assert_array_equal(result(worker), a - 2 * b)
    assert is_direct(worker)


@pytest.mark.parametrize("threads", [1, 2])
def test_large_arrays_may_change_once_they_are_scheduled(make_worker: MakeWorker, threads: int) -> None:
    """Whole arrays and ones with gaps or in another order."""
    n = LEAST_SHARED // 4 + 77
    with JobSystem(threads) as jobs:
        worker = difference(make_worker, "cpu", jobs=jobs)
        gaps = np.zeros(2 * n, np.float32)[::2]
        backwards = np.zeros(n, np.float32)[::-1]
        pairs = [(gaps, np.zeros(n, np.float32)), (np.zeros(n, np.float32), backwards)]
        for step, (a, b) in enumerate(pairs):
            for again in range(3):
                a[:], b[:] = numbers(n, step + again), numbers(n, step - again + 9)
                wanted = a - 2 * b
                worker.schedule(a=a, b=b)
                a[:], b[:] = 0, 1
                np.testing.assert_array_equal(result(worker), wanted)
        assert is_direct(worker)
        worker.dispose()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_short_program_reads_large_inputs_in_place(make_worker: MakeWorker, threads: int) -> None:
    """Arrays and tensors in turns, ones that change, ones with gaps; the input itself is an output, too."""
    source = model(
        [node("Gather", ["x", "rows"], ["y"], axis=0), node("Identity", ["rows"], ["z"])],
        {"x": ("float32", [4000, 20]), "rows": ("int64", ["n"])},
        {"y": ("float32", ["n", 20]), "z": ("int64", ["n"])},
    )
    rng = np.random.default_rng(3)
    with JobSystem(threads) as jobs:
        worker = make_worker(source, "cpu", jobs=jobs)
        for step in range(12):
            whole = rng.normal(size=(4000, 40)).astype(np.float32)
            x = whole[:, :20] if step % 3 == 2 else np.ascontiguousarray(whole[:, 20:])
            rows = rng.integers(0, 4000, 7)
            given = x if step % 2 else Tensor(x)
            for again in range(2):
                x[rows[again]] = step
                if isinstance(given, Tensor):
                    given.upload(x)
                worker.schedule(given, rows)
                wanted = x[rows]
                x[rows] = -1
                np.testing.assert_array_equal(result(worker), wanted)
                np.testing.assert_array_equal(worker.peek_output("z").download_to_array(), rows)
        assert is_direct(worker)
        worker.dispose()


def test_an_input_may_be_empty(channel: str, make_worker: MakeWorker) -> None:
    """As the cache of a decoder before its first token, given as an array or a tensor."""
    source = model(
        [node("Concat", ["past", "x"], ["present"], axis=0), node("Identity", ["past"], ["y"])],
        {"past": ("float32", ["p", 2]), "x": ("float32", ["n", 2])},
        {"present": ("float32", None), "y": ("float32", None)},
    )
    worker = make_worker(source, channel)
    past = np.zeros((0, 2), np.float32)
    for step in range(6):
        x = numbers(6, step).reshape(3, 2)
        worker.schedule(Tensor(past) if step % 3 == 2 else past, x)
        np.testing.assert_array_equal(result(worker), x)
        assert worker.peek_output("y").download_to_array().shape == (0, 2)
        assert is_direct(worker) or step == 0  # the first may wait for kernels


def test_lists_take_the_plan_of_arrays(channel: str, make_worker: MakeWorker) -> None:
    worker = difference(make_worker, channel)
    for step in range(4):
        worker.schedule([1.0, 2.0, step], b=[1.0, 1.0, 1.0])
        assert result(worker).tolist() == [-1, 0, step - 2]
    assert is_direct(worker)
    with pytest.raises(InputError, match="no array of them"):
        worker.schedule([1.0, 2.0, 3.0], ["one", "two", "three"])


def test_tensors_on_the_backend(channel: str, make_worker: MakeWorker, size: int) -> None:
    worker, other = difference(make_worker, channel), difference(make_worker, channel)
    arrays = [numbers(size, seed) for seed in range(3)]
    kept = []
    for turn in range(3):
        for first in (arrays, [array[:-1] for array in arrays]):
            other.schedule(*first[:2])
            expected = first[0] - 2 * first[1]
            # Another worker's output and an array; then this worker's own, in another's shape, and a copy.
            worker.schedule(other.peek_output(), first[2])
            assert is_direct(worker) == (turn > 0)
            kept.append(worker.copy_output())
            np.testing.assert_array_equal(result(worker), expected - 2 * first[2])
            worker.schedule(a=worker.peek_output(), b=kept[-1])
            np.testing.assert_array_equal(result(worker), 2 * first[2] - expected)
            kept[-1].reshape(1, -1)
            with pytest.raises(InputError, match="input 'b' needs"):
                worker.schedule(a=arrays[0], b=kept[-1])
            kept[-1].reshape(-1)
            worker.schedule(a=first[0], b=kept[-1])
            np.testing.assert_array_equal(result(worker), first[0] - 2 * (expected - 2 * first[2]))
    kept[0].dispose()
    with pytest.raises(DisposedError):
        worker.schedule(a=arrays[0], b=kept[0])
    for tensor in kept:
        tensor.dispose()


def test_kept_tensors_that_jobs_write(make_worker: MakeWorker) -> None:
    with JobSystem(2) as jobs:
        worker = difference(make_worker, "cpu", jobs=jobs)
        a, b = Tensor(np.zeros(20_000, np.float32)), Tensor(np.ones(20_000, np.float32))
        worker.set_input("a", a)
        worker.set_input("b", b)
        for step in range(6):
            if step % 3:
                fill.schedule(a, float(step), jobs=jobs)
            worker.schedule()
            wanted = float(step if step % 3 else max(step - 1, 0)) - 2
            np.testing.assert_array_equal(result(worker), np.full(20_000, wanted))
        worker.dispose()


def test_set_input_checks_the_thread_and_whether_it_is_alive(make_worker: MakeWorker) -> None:
    worker = difference(make_worker, "cpu")
    a = Tensor(np.zeros(3, np.float32))
    worker.set_input("a", a)
    errors: list[Exception] = []

    def set_there() -> None:
        worker.set_input("a", a)  # which it is
        try:
            worker.set_input("a", Tensor(np.ones(3, np.float32)))
        except ThreadError as error:
            errors.append(error)

    thread = Thread(target=set_there)
    thread.start()
    thread.join()
    assert len(errors) == 1
    worker.dispose()
    with pytest.raises(DisposedError):
        worker.set_input("a", a)


def test_random_numbers_go_on_by_either_way(channel: str, make_worker: MakeWorker) -> None:
    """The second worker is asked with other shapes in between, and so draws by the other way."""
    noisy = model(
        [node("RandomNormalLike", ["x"], ["r"], seed=3.0), node("Add", ["r", "x"], ["y"])],
        {"x": ("float32", ["n"])},
        {"y": ("float32", ["n"])},
    )
    fast, slow = make_worker(noisy, channel), make_worker(noisy, channel)
    x = np.zeros(8, np.float32)
    kept = Tensor(x)
    fast.set_input("x", kept)
    drawn = []
    for step in range(6):
        fast.schedule(*([x] if step % 2 else []))
        slow.reset_random(step)
        list(slow.schedule_iterable(x))
        drawn.append(result(fast))
        np.testing.assert_array_equal(drawn[-1], result(slow))
    assert is_direct(fast)
    assert len({tuple(draw) for draw in drawn}) == 6
    fast.reset_random(2)
    fast.schedule()
    np.testing.assert_array_equal(result(fast), drawn[2])


def test_elements_that_decide_a_plan_are_compared(channel: str, make_worker: MakeWorker) -> None:
    tiled = model(
        [node("Tile", ["x", "repeats"], ["y"])],
        {"x": ("float32", [2]), "repeats": ("int64", [1])},
        {"y": ("float32", [None])},
    )
    worker = make_worker(tiled, channel)
    repeats, x = np.array([2]), Tensor(np.array([1, 2], np.float32))
    for wanted in (2, 2, 2, 3, 3, 1, 2):
        repeats[0] = wanted
        worker.schedule(x, repeats)
        assert result(worker).tolist() == [1, 2] * wanted
        worker.schedule({"x": x, "repeats": Tensor(repeats)})
        assert result(worker).tolist() == [1, 2] * wanted
    if channel == "cpu":
        assert is_direct(worker)


def test_changes_are_noted() -> None:
    tensor = Tensor(np.zeros(4, np.float32))
    storage = tensor.data_on_backend
    assert type(storage) is CPUTensorData
    before = changes.latest
    tensor.upload(np.ones(4))
    assert changes.latest is before  # in place: whoever reads it there finds the new elements
    tensor.reshape(2, 2)
    assert changes.latest is not before
    other = Tensor(np.zeros(4))
    before = changes.latest
    other.dispose()
    assert changes.latest is not before


def test_command_buffers_schedule_what_elements_or_chance_decide(
    channel: str, make_worker: MakeWorker
) -> None:
    tiled = model(
        [node("Tile", ["x", "repeats"], ["y"])],
        {"x": ("float32", [2]), "repeats": ("int64", [1])},
        {"y": ("float32", [None])},
    )
    noisy = model(
        [node("RandomUniformLike", ["x"], ["y"], seed=1.0)], {"x": ("float32", [4])}, {"y": ("float32", [4])}
    )
    tiles, dice = make_worker(tiled, channel), make_worker(noisy, channel)
    x, repeats, given = Tensor(np.array([1, 2], np.float32)), np.array([2]), np.zeros(4, np.float32)
    buffer = CommandBuffer()
    buffer.schedule_worker(tiles, {"x": x, "repeats": repeats})
    buffer.schedule_worker(dice, {"x": given})
    drawn = []
    for wanted in (2, 2, 2, 3, 1, 1):
        repeats[0] = wanted
        Graphics.execute_command_buffer(buffer)
        assert result(tiles).tolist() == [1, 2] * wanted
        drawn.append(tuple(result(dice)))
    assert len(set(drawn)) == 6
