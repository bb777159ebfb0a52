"""The CPU backend on plans made by hand: order, snapshots, deferred and inline runs, memory."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from engine.backends.cpu import backend as module
from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.codegen.cost import TRIAL_NS
from engine.backends.cpu.execution.fast_path import CPUProgramRunner
from engine.backends.cpu.execution.program import TRIALS, CPUProgram, MeasuredRate
from engine.backends.cpu.execution.stream import LEAST_SHARED_ASLEEP, JobStream
from engine.base.dtypes import as_dtype
from engine.base.errors import DisposedError, InputError
from engine.base.memory.aligned import aligned
from engine.compiler.plan import BufferSpec, Compute, Plan
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.system import JobSystem
from engine.kernels.expr import FLAT, Expr, arg, index, reduce
from engine.kernels.value import Value

F32 = np.dtype(np.float32)


def chain(n: int, steps: int) -> Plan:
    """y = x + 1, `steps` times, through temporaries that share memory."""
    plan = Plan()
    before = Value("x", (n,), F32)
    plan.buffers["x"] = BufferSpec("x", n, F32, "input")
    for k in range(steps):
        last = k == steps - 1
        after = Value("y" if last else f"t{k}", (n,), F32)
        body = before.at(FLAT) + arg(1.0, "float32")
        plan.steps.append(Compute(after, (n,), body, f"add{k}", "Add").as_step())
        plan.buffers[after.name] = BufferSpec(after.name, n, F32, "output" if last else "temporary")
        before = after
    return plan


def rows_plan(shape: tuple[int, int]) -> Plan:
    """y[i, j] = x[i, j] - the largest of row i: a plan that takes a while."""
    x, y = Value("x", shape, F32), Value("y", shape, F32)
    body = x.at(FLAT) - reduce("max", shape[1], lambda r: x[index(0), r])
    plan = Plan([Compute(y, shape, body, "rows", "Rows").as_step()])
    plan.buffers["x"] = BufferSpec("x", x.size, F32, "input")
    plan.buffers["y"] = BufferSpec("y", y.size, F32, "output")
    return plan


def sums_plan(shape: tuple[int, int]) -> Plan:
    """y[i] = the sum of row i."""
    x, y = Value("x", shape, F32), Value("y", shape[:1], F32)
    plan = Plan(
        [Compute(y, shape[:1], reduce("sum", shape[1], lambda r: x[index(0), r]), "s", "S").as_step()]
    )
    plan.buffers["x"] = BufferSpec("x", x.size, F32, "input")
    plan.buffers["y"] = BufferSpec("y", y.size, F32, "output")
    return plan


@pytest.mark.parametrize("n", [5, 4_000_000])
def test_a_chain_of_steps(backend: CPUBackend, n: int) -> None:
    x, y = backend.create(n, F32), backend.create(n, F32)
    program = backend.record(chain(n, 5), {"x": x, "y": y})
    assert (program.nanoseconds < TRIAL_NS) == program.is_short == (n == 5)
    given = np.arange(n, dtype=np.float32)
    backend.upload(x, given)
    backend.run(program)
    readback = backend.readback(y)
    readback.wait()
    assert readback.done()
    np.testing.assert_array_equal(readback.array(), given + 5)


def test_three_schedules_in_flight_do_not_mix(backend: CPUBackend) -> None:
    shape = (2000, 300)
    x, y = backend.create(shape[0] * shape[1], F32), backend.create(shape[0] * shape[1], F32)
    program = backend.record(rows_plan(shape), {"x": x, "y": y})
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype(np.float32) for _ in range(3)]
    readbacks = []
    for array in given:
        scratch = array.copy()
        backend.upload(x, scratch)
        scratch[:] = -1.0
        backend.run(program)
        readbacks.append(backend.readback(y))
    for array, readback in zip(given, readbacks, strict=True):
        readback.wait()
        np.testing.assert_array_equal(
            readback.array().reshape(shape), array - array.max(axis=1, keepdims=True)
        )


def test_a_run_returns_before_it_is_done(backend: CPUBackend) -> None:
    shape = (4000, 2000)
    x, y = backend.create(shape[0] * shape[1], F32), backend.create(shape[0] * shape[1], F32)
    program = backend.record(rows_plan(shape), {"x": x, "y": y})
    backend.run(program)
    readback = backend.readback(y)
    assert not readback.done()
    backend.synchronize()
    assert readback.done()


def test_a_readback_keeps_its_value_when_the_stream_goes_on(backend: CPUBackend) -> None:
    """Small values are copied when somebody looks, or before they change; one that nobody holds, never."""
    wide, steps = 3000, 4
    x, y = backend.create(wide * 20, F32), backend.create(20, F32)
    program = backend.record(sums_plan((20, wide)), {"x": x, "y": y})
    program.is_short = program.is_new = False
    kept = []
    for value in range(steps):
        backend.upload(x, np.full(wide * 20, value, np.float32))
        backend.run(program)
        kept.append(backend.readback(y))
        backend.readback(y)
    for value, readback in enumerate(kept):
        readback.wait()
        np.testing.assert_array_equal(readback.array(), np.full(20, value * wide, np.float32))
        assert readback.array() is readback.array()


def test_a_reader_writes_into_the_array_that_it_is_given(backend: CPUBackend) -> None:
    x, y = backend.create(60_000, F32), backend.create(20, F32)
    program = backend.record(sums_plan((20, 3000)), {"x": x, "y": y})
    program.is_short = program.is_new = False
    read = backend.reader(y, (4, 4))
    out = np.zeros((4, 4), np.float32)
    for value in (1, 2):
        backend.upload(x, np.full(60_000, value, np.float32))
        backend.run(program)
        assert read(out) is out
        np.testing.assert_array_equal(out, np.full((4, 4), value * 3000, np.float32))
        own = read(None)
        assert not np.shares_memory(own, y.array)
        np.testing.assert_array_equal(own, out)
    with pytest.raises(InputError, match=r"out has shape \(20,\)"):
        read(np.zeros(20, np.float32))


def set_clocks(
    monkeypatch: pytest.MonkeyPatch, microseconds: Sequence[int], of_thread: Sequence[int] | None = None
) -> None:
    """Let runs take so long; `of_thread` is without other threads, None on a system with long ticks."""
    for clock, taken in (
        ("perf_counter_ns", microseconds),
        ("thread_time_ns", of_thread or [0] * len(microseconds)),
    ):
        stamps = iter([stamp for took in taken for stamp in (0, 1000 * took)])
        monkeypatch.setattr(f"engine.backends.cpu.execution.program.{clock}", partial(next, stamps))


@pytest.mark.parametrize(
    ("microseconds", "is_short"), [((900, 30, *[70] * 6), True), ((900, 61, *[70] * 6), False)]
)
def test_what_a_plan_takes_decides_where_it_runs(
    backend: CPUBackend, monkeypatch: pytest.MonkeyPatch, microseconds: tuple[int, ...], is_short: bool
) -> None:
    """The shortest of a few runs on the calling thread counts, not the estimate."""
    x, y = backend.create(5, F32), backend.create(5, F32)
    backend.upload(x, np.zeros(5, np.float32))
    program = backend.record(chain(5, 2), {"x": x, "y": y})
    set_clocks(monkeypatch, microseconds)
    for _ in microseconds:
        assert program.is_short
        backend.run(program)
    assert program.is_short == is_short
    backend.run(program)
    np.testing.assert_array_equal(backend.reader(y, (5,))(None), np.full(5, 2, np.float32))


@pytest.mark.parametrize(
    ("microseconds", "is_quick"),
    [((959, 159, *[300] * 6), True), ((900, *[161] * 7), False), ((900, 481, 481), False)],
)
def test_a_program_may_take_as_long_as_it_saves(
    backend: CPUBackend, monkeypatch: pytest.MonkeyPatch, microseconds: tuple[int, ...], is_quick: bool
) -> None:
    """On the calling thread, where that need not copy inputs then; one that takes far longer is given up."""
    n, saved_ns, runs = 300_000, 100_000.0, []
    program = backend.record(chain(n, 3), {"x": backend.create(n, F32), "y": backend.create(n, F32)})
    assert TRIAL_NS < program.nanoseconds < 1e6
    assert not program.is_short
    assert not program.is_quick(saved_ns)  # at the first run of sizes that may not come again
    program.mark_enqueued()
    set_clocks(monkeypatch, microseconds)
    for _ in microseconds:
        assert program.is_quick(saved_ns)
        assert not program.is_quick(0.0)
        program.run_copy_here(lambda: runs.append(1), saved_ns)
    assert program.is_quick(saved_ns) == is_quick
    program.run_copy_here(lambda: runs.append(1), saved_ns)
    assert len(runs) == len(microseconds) + 1
    assert not program.is_short


@pytest.mark.parametrize(
    ("copies", "step", "is_quick"),
    [((990, *[161] * 7), 1, True), ((990, *[159] * 7), 1, False), ([990] * 8, 2, False)],
)
def test_a_program_may_take_longer_where_copies_do(
    backend: CPUBackend, monkeypatch: pytest.MonkeyPatch, copies: Sequence[int], step: int, is_quick: bool
) -> None:
    """The shortest of a few copies counts, of arrays that could be read in place."""
    n, trials = 300_000, [300] * TRIALS
    x, y = backend.create(n, F32), backend.create(n, F32)
    program = backend.record(chain(n, 2), {"x": x, "y": y})
    runner = CPUProgramRunner(backend.stream, program, [x], [True])
    assert program.nanoseconds > TRIAL_NS
    given = aligned((step * n,), F32)[::step]
    # The first run is not timed, nor are those after the last copy.
    set_clocks(monkeypatch, [*trials, *copies])
    for value in range(len(trials) + len(copies) + 4):
        is_in_place = program.is_quick(runner._saved_ns)
        given[:] = value
        assert runner.run([given])
        given[:] = -1
        np.testing.assert_array_equal(backend.reader(y, (n,))(None), np.full(n, value + 2, np.float32))
    assert is_in_place == is_quick


def test_interrupted_runs_give_no_program_up(backend: CPUBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's own time counts, not that of a thread that had the core meanwhile."""
    n, saved_ns = 300_000, 100_000.0
    program = backend.record(chain(n, 3), {"x": backend.create(n, F32), "y": backend.create(n, F32)})
    program.mark_enqueued()
    set_clocks(monkeypatch, [4900, 4200, *[4100] * 6], [900, 159, *[300] * 6])
    for _ in range(8):
        assert program.is_quick(saved_ns)
        program.run_copy_here(lambda: None, saved_ns)
    assert program.is_quick(saved_ns)
    assert program.fastest_ns == 159_000


def test_what_programs_took_is_remembered_for_other_sizes(backend: CPUBackend) -> None:
    """So that sizes that come once are run on the calling thread only where that is expected to be short."""
    pace = MeasuredRate()
    for ratio in (40.0, 9.0):
        pace.learn(ratio)
    assert pace.ratio == 1.0, "both may have been interrupted"
    pace.learn(12.0)
    assert pace.ratio == 9.0
    pace.learn(0.5)
    assert pace.ratio == 0.5

    jobs, commands = backend.jobs, CommandList([(1, 0, 0, 1)])

    def program(microseconds: float) -> CPUProgram:
        return CPUProgram(commands, 1000 * microseconds, jobs, {}, {}, pace)

    def is_short(microseconds: float) -> tuple[bool, bool]:
        """At its first run and at the second one."""
        made = program(microseconds)
        first = made.is_short
        made.mark_enqueued()
        return first, made.is_short

    assert is_short(100) == (True, True)
    assert is_short(150) == (False, True), "tried from the second time on"
    pace.ratio = 4.0
    assert is_short(10) == (True, True)
    assert is_short(20) == (False, True)
    assert is_short(50) == (False, False)


@pytest.mark.parametrize("later", [5, 70])
def test_tiny_programs_need_one_trial_or_none(
    backend: CPUBackend, monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    """As clocks take a good part of their time. One that takes long after all is tried as any other."""
    x, y = backend.create(5, F32), backend.create(5, F32)
    first, *others = [backend.record(chain(5, 2), {"x": x, "y": y}) for _ in range(8)]
    set_clocks(monkeypatch, [5] * 9 + [later] * 9)
    for program in (first, *others):
        backend.run(program)
    with monkeypatch.context() as patch:
        set_clocks(patch, [])
        backend.run(first)
    program = backend.record(chain(5, 2), {"x": x, "y": y})
    for _ in range(10):
        assert program.is_short
        backend.run(program)
    assert program.is_short == (later == 5)


def test_a_long_program_is_not_tried(backend: CPUBackend) -> None:
    n = 4_000_000
    program = backend.record(chain(n, 3), {"x": backend.create(n, F32), "y": backend.create(n, F32)})
    assert not program.is_quick(1e7)


def test_results_keep_their_values(backend: CPUBackend) -> None:
    """However they are read, although their memory is used again once nobody holds them."""
    n = 100_000
    y = backend.create(n, F32)
    read, request = backend.reader(y, (n,)), backend.requester(y, (n,))
    places = set()
    for held in (1, 3, 9):
        found: list[np.ndarray] = []
        for step in range(20):
            backend.upload(y, np.full(n, step, np.float32))
            if step % 2:
                array = read(None)
            else:
                pending = request()
                pending.wait()
                array = pending.array()
            found.append(array)
            del array
            for back, kept in enumerate(reversed(found[-held:])):
                assert (kept == step - back).all()
            del kept
            found[:-held] = []
            places.add(found[-1].ctypes.data)
    assert len(places) < 40


def test_large_tensors_of_several_sizes_are_read_in_turn() -> None:
    """One job copies all, and holds none of them."""
    sizes = [LEAST_SHARED_ASLEEP // 4 + more for more in (0, 1000, 77)]
    with JobSystem(2) as jobs:
        backend = CPUBackend(jobs)
        buffers = [backend.create(n, F32, np.arange(n) + n) for n in sizes]
        readers = [backend.reader(buffer, (n,)) for buffer, n in zip(buffers, sizes, strict=True)]
        held: list[np.ndarray] = []
        for turn in range(12):
            held = [*held[-2:], readers[turn % 3](None)]
            for array in held:
                np.testing.assert_array_equal(array, np.arange(len(array), dtype=np.float32) + len(array))
        known = [weakref.ref(array) for array in held]
        del array
        held.clear()
        assert not any(reference() is not None for reference in known)
        backend.dispose()


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_large_tensors_are_read_by_all_threads(more: int) -> None:
    """Into a new array, a given one, one with gaps; and still when the job system is closed."""
    n = LEAST_SHARED_ASLEEP // 4 + more
    x = np.random.default_rng(7).normal(size=(1, n)).astype(np.float32)
    with JobSystem(2) as jobs:
        backend = CPUBackend(jobs)
        buffer = backend.create(n, F32)
        backend.upload(buffer, x)
        read = backend.reader(buffer, (1, n))
        first, given, gaps = read(None), np.zeros((1, n), np.float32), np.zeros((1, 2 * n), np.float32)
        assert read(given) is given
        read(gaps[:, ::2])
        with pytest.raises(InputError, match="out has shape"):
            read(np.zeros((n, 1), np.float32))
        backend.upload(buffer, np.zeros_like(x))
        last = read(None)
        backend.dispose()
    for found in (first, given, gaps[:, ::2]):
        np.testing.assert_array_equal(found, x)
    for found in (last, read(None)):
        assert not found.any()


def test_copies_happen_in_stream_order(backend: CPUBackend) -> None:
    n = 300_000
    x, y, z = (backend.create(n, F32) for _ in range(3))
    program = backend.record(chain(n, 20), {"x": x, "y": y})
    backend.upload(x, np.zeros(n, np.float32))
    backend.run(program)
    backend.copy(y, z)
    backend.upload(x, np.full(n, 100, np.float32))
    backend.run(program)
    first, second = backend.readback(z), backend.readback(y)
    second.wait()
    assert first.done()
    np.testing.assert_array_equal(first.array(), np.full(n, 20, np.float32))
    np.testing.assert_array_equal(second.array(), np.full(n, 120, np.float32))


def test_another_stream_waits_for_a_fence(jobs: JobSystem) -> None:
    shape = (3000, 1000)
    first, second = CPUBackend(jobs), CPUBackend(jobs)
    x, y = first.create(shape[0] * shape[1], F32), first.create(shape[0] * shape[1], F32)
    z = second.create(shape[0] * shape[1], F32)
    given = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    program = first.record(rows_plan(shape), {"x": x, "y": y})
    first.upload(x, given)
    first.run(program)
    second.after(first.fence())
    second.copy(y, z)
    readback = second.readback(z)
    readback.wait()
    np.testing.assert_array_equal(readback.array().reshape(shape), given - given.max(axis=1, keepdims=True))
    first.dispose()
    second.dispose()


def test_buffers_may_be_released_while_work_is_in_flight(backend: CPUBackend) -> None:
    n = 1_000_000
    x, y = backend.create(n, F32, np.ones(n)), backend.create(n, F32)
    program = backend.record(chain(n, 8), {"x": x, "y": y})
    backend.run(program)
    readback = backend.readback(y)
    x.release()
    y.release()
    program.release()
    readback.wait()
    np.testing.assert_array_equal(readback.array(), np.full(n, 9, np.float32))
    with pytest.raises(DisposedError):
        backend.run(program)
    with pytest.raises(DisposedError):
        backend.readback(y)


def test_temporaries_share_one_arena(backend: CPUBackend) -> None:
    """A long chain alternates between two places, whatever its length."""
    n = 1000
    x, y = backend.create(n, F32), backend.create(n, F32)
    program = backend.record(chain(n, 40), {"x": x, "y": y})
    assert program.commands is not None
    block = program.commands.keep_alive[0]  # type: ignore[index]
    targets = {int(output) for output in block[: 40 * 4].reshape(40, 4)[:, 2]}
    assert len(targets) == 3
    backend.upload(x, np.zeros(n, np.float32))
    backend.run(program)
    readback = backend.readback(y)
    readback.wait()
    np.testing.assert_array_equal(readback.array(), np.full(n, 40, np.float32))


def test_an_empty_tensor_costs_no_command(backend: CPUBackend) -> None:
    x, y = backend.create(0, F32), backend.create(0, F32)
    program = backend.record(chain(0, 1), {"x": x, "y": y})
    backend.run(program)
    assert backend.readback(y).array().size == 0


def test_every_storage_type_has_a_buffer(backend: CPUBackend) -> None:
    for name in ("float16", "bfloat16", "int8", "bool", "uint64"):
        dtype = as_dtype(name)
        buffer = backend.create(3, dtype, np.array([0, 1, 1]).astype(dtype))
        assert buffer.address % 64 == 0
        np.testing.assert_array_equal(backend.readback(buffer).array().astype(np.float64), [0, 1, 1])


def test_kernels_are_prepared_once(backend: CPUBackend) -> None:
    plan = chain(16, 3)
    assert backend.prepare(step.kernel for step in plan.steps) == 1
    assert backend.prepare(step.kernel for step in chain(4096, 7).steps) == 0


def test_strings_are_refused(backend: CPUBackend) -> None:
    value = Value("s", (2,), np.dtype(object))
    formula: Expr = arg(1.0, "float32")
    assert backend.refusal(Compute(value, (2,), formula, "s", "StringOp")) is not None
    assert backend.refusal(Compute(Value("f", (2,), F32), (2,), formula, "f", "Op")) is None


def test_threads_that_ask_at_once_get_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Background loading records on another thread while the first schedule asks for the stream."""
    backend = CPUBackend()
    inside, go_on = threading.Event(), threading.Event()
    made: list[JobStream] = []

    def slowly(jobs: JobSystem) -> JobStream:
        inside.set()
        go_on.wait(10)
        made.append(JobStream(jobs))
        return made[-1]

    monkeypatch.setattr(module, "JobStream", slowly)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: backend.stream)
        assert inside.wait(10)
        second = pool.submit(lambda: backend.stream)
        go_on.set()
        assert first.result() is second.result() is backend.stream
    assert len(made) == 1
    backend.dispose()


def test_a_runner_holds_its_commands(jobs: JobSystem) -> None:
    """It knows their address: freed commands would be run from memory of somebody else."""
    commands = CommandList(np.zeros((0, 4), np.int64), held := Held())
    run, last = jobs.inline_runner(commands), weakref.ref(held)
    del commands, held
    gc.collect()
    assert last() is not None
    run()
    del run
    gc.collect()
    assert last() is None


class Held:
    """Something that a weak reference can point to."""
