"""Sizes never seen, filled in without the checks of a schedule: the same answers, errors and plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import BackendType, CommandBuffer, ModelLoader, Tensor, Worker, background_planning
from engine.backends.cpu.execution.native_sizes import NativeSizes
from engine.backends.cpu.execution.program import CPUProgram
from engine.backends.plan_template import FilledSizes
from engine.base import instrumentation
from engine.base.errors import DisposedError, InputError, StaleTensorError
from engine.base.memory import array_objects
from engine.device.jobs.system import JobSystem
from engine.runtime.fast_path import FastPath
from engine.runtime.inputs import InputValue
from engine.runtime.plan_store import files
from engine.runtime.plans.shared_memory import SharedBuffer
from engine.runtime.symbolic_fast_path import SymbolicFastPath
from tests.engine.runtime.plans.test_symbolic_plans import Inputs
from tests.graphs import node, proto
from tests.sequence_networks import CACHED, decoder, decoder_inputs

WIDTH = 64


def pair_network(width: int = WIDTH) -> bytes:
    """y = (x + z) w, where x and z have as many rows."""
    nodes = [node("Add", ["x", "z"], ["sum"]), node("MatMul", ["sum", "w"], ["y"])]
    inputs: Inputs = {"x": ("float32", ["rows", width]), "z": ("float32", ["rows", width])}
    weights = np.random.default_rng(1).normal(size=(width, 8)).astype(np.float32)
    return proto(nodes, inputs, {"y": ("float32", None)}, {"w": weights})


def feeds(rows: int, width: int = WIDTH) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    return {name: rng.normal(size=(rows, width)).astype(np.float32) for name in "xz"}


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Of each schedule at other sizes, whether it gave a fast path."""
    calls: list[bool] = []
    original, taken = SymbolicFastPath.schedule, SymbolicFastPath.schedule_arrays

    def schedule(self: SymbolicFastPath, *inputs: object) -> object:
        found = original(self, *inputs)  # type: ignore[arg-type]
        calls.append(found is not None)
        return found

    def take(self: SymbolicFastPath, *inputs: object) -> object:
        found = taken(self, *inputs)  # type: ignore[arg-type]
        if found is not None:
            calls.append(True)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(SymbolicFastPath, "schedule", schedule)
        patch.setattr(SymbolicFastPath, "schedule_arrays", take)
        yield calls


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored plans are on, in a folder of the test's own: workers have their plans when they are loaded."""
    monkeypatch.setenv("GAMEGLUE_STORED_PLANS", "on")
    monkeypatch.setattr(files, "folder", lambda: tmp_path)


@pytest.fixture
def worker() -> Iterator[Worker]:
    model = ModelLoader.load(pair_network())
    Worker(model, BackendType.CPU).dispose()  # stores the plan
    with Worker(model, BackendType.CPU) as made:
        made.schedule(feeds(8))
        yield made


def answers(worker: Worker, rows: int) -> None:
    """Schedule a size, and check the answer."""
    given = feeds(rows)
    worker.schedule(given)
    found = worker.peek_output("y").download_to_array()
    assert worker.peek_output().shape == (rows, 8)
    sums = given["x"] + given["z"]
    np.testing.assert_allclose(found, sums @ worker.model.constants["w"], rtol=1e-4, atol=1e-4)


@pytest.fixture
def tiny(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> list[bool | None]:
    """What native code did at each schedule of other sizes, whose program it takes for tiny.

    Whether it ran the program, or None where it left all as it was.
    """
    if not array_objects.are_readable():
        pytest.skip("native code does not read arrays here")
    for rows in [*range(64, 84)] * 2:
        answers(worker, rows)
    assert isinstance(worker._latest, FastPath)
    assert isinstance(worker._latest.program, CPUProgram)
    pace = worker._latest.program.pace
    # Whatever else this machine does.
    monkeypatch.setattr(pace, "tiny_ns", 100_000)
    monkeypatch.setattr(pace, "short_ns", 100_000)
    taken: list[bool | None] = []
    original = NativeSizes.refill_from_arrays

    def take(self: NativeSizes, filled: FilledSizes, arrays: Sequence[np.ndarray]) -> bool | None:
        taken.append(original(self, filled, arrays))
        return taken[-1]

    monkeypatch.setattr(NativeSizes, "refill_from_arrays", take)
    return taken


def test_a_tiny_network_is_run_by_the_call_that_fills_in_its_sizes(
    worker: Worker, tiny: list[bool | None]
) -> None:
    answers(worker, 3)
    tiny.clear()
    for rows in range(9, 40):
        for _ in range(3):
            answers(worker, rows)
    # Sizes that came at once again are not other ones.
    assert tiny == [True] * 31


@pytest.mark.parametrize("way", ["again", "observed", "recorded"])
def test_what_else_runs_such_a_program_knows_its_sizes(
    worker: Worker, tiny: list[bool | None], way: str
) -> None:
    answers(worker, 60)
    answers(worker, 9)
    assert tiny[-1]
    assert isinstance(worker._latest, FastPath)
    program = worker._latest.program
    assert isinstance(program, CPUProgram)
    before, is_behind = program.nanoseconds, program.is_stale
    assert is_behind
    if way == "recorded":
        buffer = CommandBuffer()
        buffer.schedule_worker(worker, feeds(9))
        buffer.execute()
    else:
        with instrumentation.observing(instrumentation.Observer()) if way == "observed" else nullcontext():
            for _ in range(2):
                answers(worker, 9)
    assert not program.is_stale
    assert program.nanoseconds < before
    answers(worker, 9)


@pytest.mark.parametrize(
    ("form", "is_read"),
    [
        (np.asfortranarray, False),
        (lambda array: np.repeat(array, 2, axis=0)[::2], False),
        (lambda array: array.view(np.matrix), False),
        (lambda array: np.frombuffer(b" " + array.tobytes(), np.uint8)[1:].view(np.float32), False),
        (lambda array: array.astype(">f4"), False),
        (lambda array: array.astype(np.float64), False),
        (lambda array: array[None], False),
        (lambda array: array[:, :5], False),
        (lambda array: array[:-1], False),
        (lambda array: array[:0], False),
        (lambda array: array.tolist(), False),
        (lambda array: None, False),
        (Tensor, False),
        (lambda array: np.frombuffer(array.tobytes(), np.float32).reshape(array.shape), True),
        (lambda array: np.repeat(array, 2, axis=0)[: len(array)] * 0 + array, True),
    ],
)
def test_native_code_reads_no_arrays_but_those_that_it_can_copy(
    worker: Worker, tiny: list[bool | None], form: Callable[[np.ndarray], InputValue], is_read: bool
) -> None:
    """Others are refused, or taken, as they always were."""
    given = feeds(7)
    unusual = {**given, "z": form(given["z"])}
    with pytest.MonkeyPatch.context() as patch, Worker(worker.model, BackendType.CPU) as other:
        patch.setattr(SymbolicFastPath, "schedule_arrays", lambda *given: None)
        found = []
        for each in (other, worker):
            patch.undo() if each is worker else None
            each.schedule(feeds(6))
            tiny.clear()
            try:
                each.schedule(unusual)
                found.append(each.peek_output().download_to_array().tolist())
            except InputError as error:
                found.append(str(error))
    assert found[0] == found[1]
    assert (True in tiny) == is_read
    for rows in (9, 10):  # an error is followed by a check in full
        answers(worker, rows)
    assert True in tiny


def convolutions() -> bytes:
    """Two convolutions of any number of images, with algorithms of their own for few and for many."""
    nodes = [
        node("Conv", ["x", "first"], ["h"], pads=[1, 1, 1, 1]),
        node("Relu", ["h"], ["r"]),
        node("Conv", ["r", "second"], ["y"], pads=[1, 1, 1, 1]),
    ]
    weights = np.random.default_rng(3).normal(size=(2, 32, 32, 3, 3)).astype(np.float32)
    constants = dict(zip(("first", "second"), weights, strict=True))
    return proto(nodes, {"x": ("float32", ["batch", 32, 7, 7])}, {"y": ("float32", None)}, constants)


def test_constants_that_sizes_need_are_bound_before_a_program_reads_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ModelLoader.load(convolutions())
    Worker(model, BackendType.CPU).dispose()
    rng = np.random.default_rng(2)
    images = [rng.random((n, 32, 7, 7), np.float32) for n in (33, 7, 6, 3, 2, 12, 9, 4, 64, 5, 1)]
    found: list[list[np.ndarray]] = []
    original, natively = SymbolicFastPath.schedule_arrays, dict[int, bool]()

    def schedule_arrays(self: SymbolicFastPath, given: tuple[Any, ...], shapes: Any) -> FastPath | None:
        path = original(self, given, shapes)
        natively[len(given[0])] = path is not None
        return path

    for method in (schedule_arrays, lambda *given: None):
        monkeypatch.setattr(SymbolicFastPath, "schedule_arrays", method)
        with Worker(model, BackendType.CPU) as worker:
            assert worker._symbolic_path is not None
            unbound = worker._symbolic_path._segment.unbound
            left = [len(unbound)]
            found.append([])
            for image in images:
                worker.schedule(image)
                found[-1].append(worker.peek_output().download_to_array())
                left.append(len(unbound))
            binding = [after < before for before, after in pairwise(left)].index(True)
            if method is schedule_arrays and array_objects.are_readable():
                # That size needs such constants, which are there for those that follow.
                assert not natively.get(len(images[binding]), False)
                assert any(natively[len(image)] for image in images[binding + 1 :])
    for here, there in zip(*found, strict=True):
        np.testing.assert_array_equal(here, there)


def test_a_job_system_that_was_closed_runs_no_sizes(tiny: list[bool | None]) -> None:
    del tiny
    model = ModelLoader.load(pair_network())
    with JobSystem(1) as jobs, Worker(model, BackendType.CPU, jobs=jobs) as worker:
        for rows in [*range(4, 24)] * 2:
            answers(worker, rows)
        jobs.close()
        for rows in (3, 23):
            with pytest.raises(DisposedError):
                worker.schedule(feeds(rows))


def test_sizes_that_come_back_get_a_plan_of_their_own(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted(monkeypatch) as calls:
        for rows in (5, 9, 33, 5, 5, 200, 9, 5, 9):
            answers(worker, rows)
    assert calls == [True] * 6
    # One for sizes that came once, and those of 5 and of 9.
    assert len(worker._session.cache.plans) == 3


def test_sizes_that_come_once_share_a_program(worker: Worker) -> None:
    programs = set()
    answers(worker, 60)  # memory for all of them
    for rows in range(20, 60):
        answers(worker, rows)
        assert worker._latest is not None
        (submission,) = worker._latest.recorded.submissions
        programs.add(id(submission.program))
        assert worker.peek_output().shape == (rows, 8)
        assert submission.plan.buffers["x"].elements == rows * WIDTH
    assert len(programs) <= 3
    assert len(worker._session.cache.plans) == 1


def test_an_output_of_other_sizes_is_stale(worker: Worker) -> None:
    """Though the same objects hold its successor: they were filled in again."""
    worker.schedule(feeds(5))
    output = worker.peek_output()
    later = worker.peek_output()
    later.readback_request()
    for rows in (6, 7, 8):
        worker.schedule(feeds(rows))
        with pytest.raises(StaleTensorError):
            output.download_to_array()
    assert later.download_to_array().shape == (5, 8)


def test_copies_of_outputs_are_read_in_place_at_each_length() -> None:
    """As arrays of the same elements, which are copied."""
    model = ModelLoader.load(decoder())
    Worker(model, BackendType.CPU).dispose()
    given = decoder_inputs(0, CACHED[0])
    token, *cached = given
    outputs = [name.removeprefix("past_") for name in cached]
    feeds: dict[str, InputValue] = dict(given)
    arrays: dict[str, InputValue] = dict(given)
    with Worker(model, BackendType.CPU) as worker, Worker(model, BackendType.CPU) as other:
        for _ in range(24):
            worker.schedule(feeds)
            other.schedule(arrays)
            for name in ("logits", *outputs):
                np.testing.assert_array_equal(
                    worker.peek_output(name).download_to_array(), other.peek_output(name).download_to_array()
                )
            feeds = {token: given[token], **dict(zip(cached, map(worker.copy_output, outputs), strict=True))}
            read = [other.peek_output(name).download_to_array() for name in outputs]
            arrays = {token: given[token], **dict(zip(cached, read, strict=True))}
        assert len(worker._session.cache.plans) == len(other._session.cache.plans) == 1


def test_refused_sizes_leave_the_outputs_of_those_before(worker: Worker) -> None:
    answers(worker, 5)
    answers(worker, 6)
    expected = worker.peek_output().download_to_array()
    right = feeds(7)
    with pytest.raises(InputError):
        worker.schedule({**right, "z": right["z"][:6]})
    np.testing.assert_array_equal(worker.peek_output().download_to_array(), expected)
    answers(worker, 7)


def test_sizes_that_conditions_refuse_leave_the_latest_program_and_outputs(worker: Worker) -> None:
    """Native code has filled in the refused ones by the time that it knows."""
    answers(worker, 60)
    for rows in (5, 6):
        answers(worker, rows)
    expected = worker.peek_output().download_to_array()
    symbolic = worker._symbolic_path
    assert symbolic is not None
    path = symbolic._passing
    assert path is worker._latest
    assert path is not None
    assert path.filled is not None
    for refused in (0, 1 << 40):  # the second has no memory
        assert not symbolic._native.refill(path.filled, (refused,))
        np.testing.assert_array_equal(worker.peek_output().download_to_array(), expected)
        assert worker.peek_output().shape == (6, 8)
    worker.schedule(feeds(6))
    np.testing.assert_array_equal(worker.peek_output().download_to_array(), expected)


def test_outputs_are_read_at_each_size_in_every_way(worker: Worker) -> None:
    answers(worker, 60)
    weights = worker.model.constants["w"]
    for rows in (7, 30, 12, 41):
        given = feeds(rows)
        expected = (given["x"] + given["z"]) @ weights
        worker.schedule(given)
        requested, out = worker.peek_output(0), np.empty((rows, 8), np.float32)
        requested.readback_request()
        copy = worker.copy_output("y")
        worker.peek_output("y").download_to_array(out)
        answers(worker, rows + 1)
        for found in (requested.download_to_array(), copy.download_to_array(), out):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_command_buffer_keeps_the_sizes_that_it_was_recorded_with(worker: Worker) -> None:
    answers(worker, 4)
    given, buffer = feeds(5), CommandBuffer()
    expected = (given["x"] + given["z"]) @ worker.model.constants["w"]
    buffer.schedule_worker(worker, given)
    for _ in range(3):
        for others in ((), (6, 7, 8)):
            for rows in others:
                answers(worker, rows)
            buffer.execute()
            np.testing.assert_allclose(
                worker.peek_output().download_to_array(), expected, rtol=1e-4, atol=1e-4
            )


def test_tensors_of_known_sizes_take_the_plan_that_there_is(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {rows: {name: Tensor(array) for name, array in feeds(rows).items()} for rows in (5, 9)}
    for rows in (5, 9, 5, 9, 5):
        worker.schedule(given[rows])
        expected = feeds(rows)["x"] + feeds(rows)["z"]
        weights = worker.model.constants["w"]
        np.testing.assert_allclose(
            worker.peek_output().download_to_array(), expected @ weights, rtol=1e-4, atol=1e-4
        )
    assert len(worker._session.cache.plans) == 3


def test_wrong_inputs_raise_what_they_always_do(worker: Worker) -> None:
    right = feeds(7)
    with pytest.raises(InputError, match="dimension 'rows' is 7 in input 'x' and 6 in input 'z'"):
        worker.schedule({**right, "z": right["z"][:6]})
    worker.schedule(feeds(3))
    with pytest.raises(InputError, match="input 'z' needs float32"):
        worker.schedule({**right, "z": right["z"].astype(np.float64)})
    worker.schedule(feeds(4))
    with pytest.raises(InputError, match="got shape"):
        worker.schedule({**right, "x": right["x"][:, :5]})
    worker.schedule(feeds(2))
    with pytest.raises(InputError, match="got shape"):
        worker.schedule({**right, "x": right["x"][None]})
    worker.schedule(right)
    np.testing.assert_allclose(
        worker.peek_output().download_to_array(),
        (right["x"] + right["z"]) @ worker.model.constants["w"],
        rtol=1e-4,
        atol=1e-4,
    )


def test_the_first_schedule_and_empty_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelLoader.load(pair_network())
    Worker(model, BackendType.CPU).dispose()
    with counted(monkeypatch) as calls, Worker(model, BackendType.CPU) as worker:
        worker.schedule(feeds(6))
        assert calls == [True]
        worker.schedule(feeds(0))
        assert worker.peek_output().download_to_array().shape == (0, 8)
        worker.schedule(feeds(7))
        assert worker.peek_output().download_to_array().shape == (7, 8)


def test_memory_of_large_inputs_is_touched_before_frames_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a worker is loaded, and beside frames when sizes come near to what there is."""
    touched: list[int] = []
    made: list[int] = []
    allocate, allocate_touched = SharedBuffer.allocate, SharedBuffer.allocate_touched

    def counted_make(self: SharedBuffer, size: int) -> object:
        if self.is_noted:
            made.append(size)
        return allocate(self, size)

    def counted_touch(self: SharedBuffer, size: int) -> object:
        touched.append(size)
        return allocate_touched(self, size)

    monkeypatch.setattr(SharedBuffer, "allocate", counted_make)
    monkeypatch.setattr(SharedBuffer, "allocate_touched", counted_touch)
    model = ModelLoader.load(pair_network(4096))
    Worker(model, BackendType.CPU).dispose()
    touched.clear()
    made.clear()
    with Worker(model, BackendType.CPU) as worker:
        assert touched == made == [1 << 19] * 2  # elements: as many as are reserved at most
        for rows in (20, 110, 160, 200, 240, 340):
            with background_planning():
                worker.schedule(feeds(rows, 4096))
                worker.peek_output().download_to_array()
                loading = worker._session.background_plans._loading
                if loading is not None:
                    loading.advance_until(lambda: False)
        assert touched == made
        assert len(made) > 4
