"""Copies of outputs keep their values, whoever has the memory that a run wrote."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine import CommandBuffer, Graphics, JobSystem, Model, Tensor, Worker, job
from engine.backends.cpu.execution.fast_path import CPUProgramRunner
from engine.backends.cpu.execution.stream import JobStream
from engine.backends.tensor_data import CPUTensorData
from engine.runtime.fast_path import FastPath
from tests.engine.conftest import MakeWorker
from tests.graphs import model, node

WIDTH = 2048
"""Elements of a row: inputs of two rows are read in place."""

SIDE = 256


@job
def fill(begin, end, out, value):
    for i in range(begin, end):
        out[i] = value


@job
def double(begin, end, out, x):
    for i in range(begin, end):
        out[i] = 2 * x[i]


def growing() -> Model:
    """kept = the rows of `past`, then `row`; total = the sum of them."""
    return model(
        [
            node("Concat", ["past", "row"], ["kept"], axis=0),
            node("ReduceSum", ["kept", "rows"], ["total"], keepdims=0),
        ],
        {"past": ("float32", ["n", WIDTH]), "row": ("float32", [1, WIDTH])},
        {"kept": ("float32", ["m", WIDTH]), "total": ("float32", [WIDTH])},
        {"rows": np.array([0], np.int64)},
    )


def stepping() -> Model:
    """y = x + 1 and z = 2 x, of any length."""
    return model(
        [node("Add", ["x", "one"], ["y"]), node("Add", ["x", "x"], ["z"])],
        {"x": ("float32", ["n"])},
        {"y": ("float32", ["n"]), "z": ("float32", ["n"])},
        {"one": np.ones(1, np.float32)},
    )


def slow() -> Model:
    """y = x with its rows rotated by as many products: milliseconds."""
    turn = np.roll(np.eye(SIDE, dtype=np.float32), 1, axis=0)
    nodes = [node("MatMul", ["turn", f"p{k}" if k else "x"], [f"p{k + 1}"]) for k in range(8)]
    ends = {"x": ("float32", [SIDE, SIDE])}, {"y": ("float32", [SIDE, SIDE])}
    return model([*nodes, node("Relu", ["p8"], ["y"])], *ends, {"turn": turn})


def line(value: float) -> np.ndarray:
    return np.full((1, WIDTH), value, np.float32)


def same(tensor: Tensor, values: object) -> None:
    np.testing.assert_array_equal(tensor.download_to_array(), values)


def stepped(worker: Worker, turns: int = 3) -> np.ndarray:
    """Schedule with new numbers, so that copies take over what the last schedule wrote; these numbers."""
    x = np.zeros(0, np.float32)
    for turn in range(turns):
        x = np.arange(20_000, dtype=np.float32) + turn
        worker.schedule(x)
        if turn < turns - 1:
            same(worker.copy_output("y"), x + 1)
            same(worker.copy_output("z"), x + x)
    return x


@pytest.mark.parametrize("is_read", [True, False])
def test_copies_that_are_the_next_inputs_never_change(
    channel: str, make_worker: MakeWorker, is_read: bool
) -> None:
    """Also where schedules follow each other without a look at their results."""
    worker = make_worker(growing(), channel)
    for _ in range(2):
        kept: list[Tensor] = []
        past: Tensor | np.ndarray = line(0)
        for step in range(1, 12):
            worker.schedule(past=past, row=line(step))
            if is_read:
                same(worker.peek_output("total"), np.full(WIDTH, sum(range(step + 1))))
            past = worker.copy_output("kept")
            kept.append(past)
        for step, tensor in enumerate(kept, 1):
            same(tensor, np.repeat(np.arange(step + 1, dtype=np.float32)[:, None], WIDTH, 1))
            tensor.dispose()


def test_a_copy_costs_no_copying(make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second time on, copies take over what the run has written, and runs read copies in place."""
    worker = make_worker(growing(), "cpu")
    past: Tensor | np.ndarray = np.zeros((20, WIDTH), np.float32)
    copied = []
    transfer = JobStream.transfer

    def noted(self: JobStream, source: np.ndarray, target: np.ndarray) -> object:
        copied.append(source.nbytes)
        return transfer(self, source, target)

    monkeypatch.setattr(JobStream, "transfer", noted)
    for step in range(6):
        worker.schedule(past=past, row=line(step))
        worker.peek_output("total").download_to_array()
        past = worker.copy_output("kept")
    assert copied == [4 * 21 * WIDTH]
    assert isinstance(past, Tensor)
    same(past, np.concatenate([np.zeros((20, WIDTH)), *map(line, range(6))]))


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "uploaded": lambda tensor: tensor.upload(np.full(20_000, 7, np.float32)),
    "indexed": lambda tensor: tensor.__setitem__(slice(None), 7),
    "seen as an array": lambda tensor: np.asarray(tensor).fill(7),
    "seen in part": lambda tensor: tensor[:].fill(7),
    "pinned": lambda tensor: CPUTensorData.pin(tensor).array.fill(7),
    "written by a job": lambda tensor: fill.schedule(tensor, 7.0).complete(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_that_changes_leaves_the_output_as_it_was(make_worker: MakeWorker, change: str) -> None:
    worker = make_worker(stepping(), "cpu")
    x = stepped(worker)
    worker.peek_output("z").download_to_array()
    copy = worker.copy_output("y")
    CHANGES[change](copy)
    same(worker.peek_output("y"), x + 1)
    same(worker.copy_output("y"), x + 1)
    same(copy, np.full(20_000, 7))


def test_an_output_that_changes_leaves_its_copies_as_they_were(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(stepping(), channel)
    for first in (True, False):  # the copy or the look
        x = stepped(worker)
        copy = worker.copy_output("y") if first else None
        output = worker.peek_output("y")
        copy = worker.copy_output("y") if copy is None else copy
        output.upload(np.full(20_000, 7, np.float32))
        same(copy, x + 1)
        same(worker.peek_output("y"), np.full(20_000, 7))


def test_copies_of_one_output_are_independent(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(stepping(), channel)
    x = stepped(worker)
    first, second = worker.copy_output("y"), worker.copy_output(0)
    first.upload(np.zeros(20_000, np.float32))
    second.upload(np.ones(20_000, np.float32))
    same(worker.peek_output("y"), x + 1)
    same(first, np.zeros(20_000))
    same(second, np.ones(20_000))


def test_a_requested_readback_is_of_its_time(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(stepping(), channel)
    x = stepped(worker)
    output = worker.peek_output("y")
    output.readback_request()
    copy = worker.copy_output("y")
    copy.upload(np.zeros(20_000, np.float32))
    worker.schedule(x + 5)
    same(output, x + 1)
    same(copy, np.zeros(20_000))


def test_copies_of_pending_results(channel: str, make_worker: MakeWorker) -> None:
    """They are written, read, replaced and disposed of while the run that computes them is in flight."""
    worker, other = make_worker(slow(), channel), make_worker(slow(), channel)
    x = np.random.default_rng(3).random((SIDE, SIDE), np.float32)
    for turn in range(6):
        worker.schedule(x + turn)
        copy, written = worker.copy_output(), worker.copy_output()
        written.upload(x)
        other.schedule(copy)
        worker.schedule(copy)
        again = worker.copy_output()
        copy.upload(np.zeros_like(x))
        worker.schedule(x)
        copy.dispose()
        np.testing.assert_allclose(again.download_to_array(), np.roll(x + turn, 16, 0), atol=1e-5)
        np.testing.assert_allclose(
            other.peek_output().download_to_array(), np.roll(x + turn, 16, 0), atol=1e-5
        )
        same(written, x)
        np.testing.assert_allclose(worker.peek_output().download_to_array(), np.roll(x, 8, 0), atol=1e-5)


def test_an_input_changes_while_a_run_reads_it(make_worker: MakeWorker) -> None:
    with JobSystem(2) as jobs:
        worker = make_worker(slow(), "cpu", jobs=jobs)
        x = np.random.default_rng(4).random((SIDE, SIDE), np.float32)
        for turn in range(6):
            worker.schedule(x + turn)
            worker.peek_output().download_to_array()
            given = worker.copy_output()
            worker.schedule(given)  # reads it in place
            given.upload(x)
            same(given, x)
            np.testing.assert_allclose(
                worker.peek_output().download_to_array(), np.roll(x + turn, 16, 0), atol=1e-5
            )
            worker.schedule(given)
            given.dispose()
            del given
            np.testing.assert_allclose(worker.peek_output().download_to_array(), np.roll(x, 8, 0), atol=1e-5)
        worker.dispose()


def test_a_run_holds_what_it_reads_and_writes(make_worker: MakeWorker) -> None:
    """So that nobody else's memory is read or written if tensors and worker are dropped while it runs."""
    with JobSystem(2) as jobs:
        worker = make_worker(slow(), "cpu", jobs=jobs)
        for _ in range(3):
            given = Tensor(np.ones((SIDE, SIDE), np.float32))
            worker.schedule(given)
            worker.copy_output().download_to_array()
        path = worker._latest
        assert isinstance(path, FastPath)
        assert isinstance(path.runner, CPUProgramRunner)
        assert path.runner._elsewhere is not None
        held: Any = path.runner._elsewhere.held
        read, written = held
        assert given.elements_on_cpu is not None
        assert [array is given.elements_on_cpu.elements for _, array in read] == [True]
        assert [array.nbytes for array in written] == [4 * SIDE * SIDE]
        worker.dispose()


def test_copies_outlive_their_worker(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(stepping(), channel)
    x = stepped(worker)
    copy, changed = worker.copy_output("y"), worker.copy_output("z")
    worker.dispose()
    changed.upload(x)
    same(copy, x + 1)
    same(changed, x)


def test_command_buffers_use_the_buffers_that_they_recorded(channel: str, make_worker: MakeWorker) -> None:
    """Between executions, schedules put outputs elsewhere; then they stay, as recorded commands read them."""
    first, second = make_worker(stepping(), channel), make_worker(stepping(), channel)
    x = Tensor(stepped(first))
    first.copy_output("z").dispose()
    buffer = CommandBuffer()
    buffer.schedule_worker(first, {"x": x})
    buffer.schedule_worker(second, {"x": buffer.output(first, "z")})
    for turn in range(6):
        values = np.full(20_000, turn, np.float32)
        x.upload(values)
        Graphics.execute_command_buffer(buffer)
        same(second.peek_output("y"), 2 * values + 1)
        copies = [first.copy_output(name) for name in ("y", "z")]
        if turn % 2:
            first.schedule(values + 9)
            same(first.copy_output("z"), 2 * (values + 9))
        same(copies[0], values + 1)
        same(copies[1], 2 * values)
    assert channel != "cpu" or buffer.replayed_count == 2


def test_recorded_jobs_read_what_the_program_writes(make_worker: MakeWorker) -> None:
    with JobSystem(2) as jobs:
        worker = make_worker(stepping(), "cpu", jobs=jobs)
        x = Tensor(stepped(worker))
        worker.copy_output("z")
        out = Tensor(np.zeros(20_000, np.float32))
        buffer = CommandBuffer()
        buffer.schedule_worker(worker, {"x": x})
        buffer.schedule_job(double, out, buffer.output(worker, "z"))
        for turn in range(5):
            x.upload(np.full(20_000, turn, np.float32))
            Graphics.execute_command_buffer(buffer)
            same(worker.copy_output("z"), np.full(20_000, 2 * turn))
            same(out, np.full(20_000, 4 * turn))
        assert buffer.replayed_count == 2
        worker.dispose()


def test_copies_that_are_held_never_change(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(stepping(), channel)
    rng = np.random.default_rng(5)
    held: list[tuple[Tensor, float]] = []
    for turn in range(40):
        worker.schedule(np.full(20_000, turn, np.float32))
        worker.peek_output("z").download_to_array()
        held.append((worker.copy_output("y"), turn + 1))
        for _ in range(int(rng.integers(0, 3))):
            if held:
                held.pop(int(rng.integers(len(held))))[0].dispose()
        for tensor, value in held:
            same(tensor, np.full(20_000, value))
    for tensor, _ in held:
        tensor.dispose()


def test_sizes_that_were_used_hold_no_inputs_and_outputs(make_worker: MakeWorker) -> None:
    """What schedules of other sizes read and wrote goes when the tensors go."""
    worker = make_worker(growing(), "cpu")
    made: list[weakref.ref[np.ndarray]] = []
    past: Tensor | np.ndarray = np.zeros((20, WIDTH), np.float32)
    for step in range(30):
        worker.schedule(past=past, row=line(step))
        worker.peek_output("total").download_to_array()
        past = worker.copy_output("kept")
        data = past.data_on_backend
        assert isinstance(data, CPUTensorData)
        made.append(weakref.ref(data.elements))
        del data
    del past
    gc.collect()
    assert sum(array() is not None for array in made) <= 2
