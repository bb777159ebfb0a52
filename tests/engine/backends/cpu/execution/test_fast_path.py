"""Zero-copy runs: inputs that end with their page, and job threads that help the calling one."""

from __future__ import annotations

import ctypes
import mmap
import sys
import weakref

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.execution import fast_path
from engine.backends.cpu.execution.fast_path import CPUProgramRunner
from engine.backends.cpu.execution.program import TRIALS
from engine.backends.cpu.execution.stream import JobStream
from engine.backends.cpu.execution.zero_copy import ZeroCopyCommands
from engine.base.memory.aligned import address_in_place, aligned
from engine.compiler.plan import Plan
from engine.device.jobs.system import JobHandle, RepeatedJob
from tests.engine.backends.cpu.test_backend import F32, chain, set_clocks, sums_plan

PAGE = mmap.PAGESIZE


def before_unreadable_memory(elements: int) -> np.ndarray:
    """An array that ends where a page begins that ends the process if it is read."""
    pages = -(-4 * elements // PAGE)
    block = mmap.mmap(-1, (pages + 1) * PAGE)
    whole = np.frombuffer(block, np.uint8, pages * PAGE)
    guard = ctypes.c_void_p(whole.ctypes.data + pages * PAGE)
    assert ctypes.CDLL(None).mprotect(guard, ctypes.c_size_t(PAGE), 0) == 0
    return whole[-4 * elements :].view(F32)


@pytest.mark.skipif(sys.platform == "win32", reason="protects memory as POSIX has it")
@pytest.mark.parametrize(
    ("plan", "n", "results"), [(chain(8205, 2), 8205, 8205), (sums_plan((3, 4099)), 12297, 3)]
)
def test_printed_kernels_read_arrays_in_place_that_end_with_their_page(
    backend: CPUBackend, plan: Plan, n: int, results: int
) -> None:
    """As they read nothing beyond them."""
    given = before_unreadable_memory(n)
    given[:] = np.arange(n) % 100
    assert not address_in_place(given)
    x, y = backend.create(n, F32), backend.create(results, F32)
    program = backend.record(plan, {"x": x, "y": y})
    here = ZeroCopyCommands(program, [x], [True], backend.jobs)
    here.bind_inputs_now([given])
    assert not here.copied
    here.run_here()
    wanted = given + 2 if results == n else given.reshape(3, -1).sum(1)
    np.testing.assert_array_equal(backend.reader(y, (results,))(None), wanted)


def test_job_threads_help_while_that_takes_no_longer(
    backend: CPUBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays may change once a run returns; after runs that take longer, ever more go without help.

    Longer than the latest run alone, if that took longer than the fastest: then the memory is slow.
    """
    n, took, helped = 300_000, [200, 301, 302, 299, 303, 499, 501, 300, 301], list[int]()
    x, y = backend.create(n, F32), backend.create(n, F32)
    program = backend.record(chain(n, 2), {"x": x, "y": y})
    runner = CPUProgramRunner(backend.stream, program, [x], [True])
    set_clocks(monkeypatch, [*[300] * TRIALS, *[161] * TRIALS])
    stamps = iter([stamp for each in took for stamp in (0, 1000 * each)])
    run, share = 0, CPUProgramRunner._share

    def note_share(runner: CPUProgramRunner, here: ZeroCopyCommands, arrays: list[np.ndarray]) -> None:
        helped.append(run)
        with monkeypatch.context() as patch:
            patch.setattr(fast_path, "perf_counter_ns", lambda: next(stamps))
            share(runner, here, arrays)

    monkeypatch.setattr(CPUProgramRunner, "_share", note_share)
    alone = 0

    def pass_alone() -> int:
        nonlocal alone
        alone += 500_000 if len(helped) == 5 else 0
        return alone

    monkeypatch.setattr(fast_path, "perf_counter_ns", pass_alone)
    given = aligned((n,), F32)
    first = 1 + 2 * TRIALS
    for run in range(first + 30):
        given[:] = run
        assert runner.run([given])
        given[:] = -1
        np.testing.assert_array_equal(backend.reader(y, (n,))(None), np.full(n, run + 2, np.float32))
    assert program.fastest_ns == 300_000
    seen = weakref.ref(given)
    del given
    assert seen() is None
    assert [run - first for run in helped] == [0, 1, 6, 15, 16, 21, 22, 27, 28]


def test_a_caller_that_waits_for_results_shares_runs(
    backend: CPUBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After three results that it waited for, until it takes one later or none at all."""
    n, shared, share = 300_000, list[int](), CPUProgramRunner._share
    x, y = backend.create(n, F32), backend.create(n, F32)
    program = backend.record(chain(n, 2), {"x": x, "y": y})
    runner = CPUProgramRunner(backend.stream, program, [x], [True])
    set_clocks(monkeypatch, [4900] * 3 + [161] * TRIALS)  # given up after three trials
    run, given = 0, aligned((n,), F32)

    def note_share(runner: CPUProgramRunner, here: ZeroCopyCommands, arrays: list[np.ndarray]) -> None:
        shared.append(run)
        share(runner, here, arrays)

    def take(is_awaited: bool) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(JobStream, "is_idle", lambda stream: not is_awaited)
            runner.note_taken()

    monkeypatch.setattr(CPUProgramRunner, "_share", note_share)
    # Of each run that keeps this thread when it begins, when it is over and, of the shared ones, when its
    # results are taken.
    stamps = iter([0, 1000] * 3 + [0, 1000, 1499, 0, 1000, 1500, 0, 1000, 1500])
    monkeypatch.setattr(fast_path, "perf_counter_ns", lambda: next(stamps))
    for run in range(1 + 3 + TRIALS + 12):
        given[:] = run
        assert runner.run([given])
        given[:] = -1
        if run >= 4 + TRIALS and run != 4 + TRIALS + 5:
            take(is_awaited=True)
        np.testing.assert_array_equal(backend.reader(y, (n,))(None), np.full(n, run + 2, np.float32))
    assert [run - 4 - TRIALS for run in shared] == [3, 4, 9]


def test_shared_runs_repeat_a_job(backend: CPUBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted one goes on with what it holds, and the next run makes another job."""
    n = 300_000
    x, y = backend.create(n, F32), backend.create(n, F32)
    program = backend.record(chain(n, 2), {"x": x, "y": y})
    runner = CPUProgramRunner(backend.stream, program, [x], [True])
    here, given = ZeroCopyCommands(program, [x], [True], backend.jobs), aligned((n,), F32)
    jobs: list[RepeatedJob] = []
    for run in range(3):
        given[:] = run
        here.bind_inputs_now([given])
        runner._share(here, [given])
        assert here.shared is not None
        job, held = here.shared
        jobs.append(job)
        assert not held
        np.testing.assert_array_equal(backend.reader(y, (n,))(None), np.full(n, run + 2, np.float32))
        while not job.is_idle:
            pass
    assert jobs == [jobs[0]] * 3

    def interrupt(handle: JobHandle) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(JobHandle, "complete", interrupt)
        with pytest.raises(KeyboardInterrupt):
            runner._share(here, [given])
    assert len(held) == 2
    backend.stream.synchronize()
    runner._share(here, [given])
    assert here.shared is not None
    assert here.shared[0] is not jobs[0]
