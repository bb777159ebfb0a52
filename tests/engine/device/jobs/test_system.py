"""The job system: order, completeness, independence from the GIL, and what happens to memory and threads."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

from engine.base.errors import DisposedError, InputError
from engine.device.jobs import program as jobs_program
from engine.device.jobs.builtin_commands import builtin_functions
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.layout import LAYOUT
from engine.device.jobs.system import JobHandle, JobSystem
from tests.engine.device.jobs.gates import Gate


def command(function: int, *args: int | np.ndarray, total: int = 1, grain: int = 1) -> CommandList:
    words = np.array([a.ctypes.data if isinstance(a, np.ndarray) else a for a in args] or [0], np.int64)
    return CommandList([(function, words.ctypes.data, total, grain)], (words, args))


def join(*lists: CommandList) -> CommandList:
    return CommandList(np.concatenate([each.array for each in lists]), lists)


def context_switches(jobs: JobSystem) -> int:
    """How often job threads have given up their cores of their own accord."""
    count = 0
    for thread in jobs._threads:
        status = Path(f"/proc/self/task/{thread.native_id}/status")
        if not status.exists():
            pytest.skip("only Linux says when a thread sleeps")
        count += int(status.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return count


def test_more_chunks_than_a_ticket_counts_become_larger_ones(
    system: JobSystem, functions: dict[str, int]
) -> None:
    total = 3 * (1 << 19) + 5
    out = np.zeros(total, np.int64)
    system.submit(command(functions["add"], out, 1, 4, total=total, grain=1)).complete()
    assert (out == 1).all()


@pytest.mark.parametrize("grain", [1, 7, 100, 5000])
def test_each_index_runs_once_in_aligned_chunks(
    system: JobSystem, functions: dict[str, int], grain: int
) -> None:
    out = np.zeros(1003, np.int64)
    handle = system.submit(command(functions["add"], out, 1, grain, total=1003, grain=grain))
    assert handle.complete(20)
    assert (out == 1).all()


def test_commands_of_a_list_run_one_after_another(system: JobSystem, functions: dict[str, int]) -> None:
    """Each command reads what other chunks of the one before wrote."""
    n, rounds = 512, 40
    a, b = np.arange(n), np.zeros(n, np.int64)
    forth = command(functions["blur"], a, b, n, total=n, grain=16)
    back = command(functions["blur"], b, a, n, total=n, grain=n)
    handle = system.submit(join(*[forth, back] * (rounds // 2)))
    expected = np.arange(n)
    for _ in range(rounds):
        expected = np.roll(expected, 1) + np.roll(expected, -1)
    assert handle.complete()
    np.testing.assert_array_equal(a, expected)


def test_empty_commands_are_passed_over(system: JobSystem, functions: dict[str, int]) -> None:
    out = np.zeros(3, np.int64)
    nothing = command(functions["add"], out, 1, 0, total=0)
    something = command(functions["add"], out, 1, 0, total=3)
    assert system.submit(join(nothing, something, nothing, nothing)).complete(20)
    assert system.submit(np.zeros((0, 4), np.int64)).complete(20)
    assert out.tolist() == [1, 1, 1]


@pytest.mark.parametrize("count", [0, 1])
def test_a_list_of_nothing_is_not_in_a_block(count: int) -> None:
    """So that no commands can be written in its place."""
    block = np.zeros(16, np.int64)
    assert CommandList.within(block, block.ctypes.data, 4, count, 12, block).is_empty == (count == 0)


def test_a_thousand_jobs_with_random_dependencies_run_in_order(
    system: JobSystem, functions: dict[str, int]
) -> None:
    random = np.random.default_rng(11)
    count = 1200
    counter = np.zeros(1, np.int64)
    began, ended = np.zeros(count, np.int64), np.zeros(count, np.int64)
    handles: list[JobHandle] = []
    needed: list[list[int]] = []
    for index in range(count):
        # Up to seven: more than the record holds itself.
        earlier = random.integers(0, max(index, 1), random.integers(0, 8) if index else 0)
        needed.append(sorted({max(int(e), index - 60) for e in earlier}))
        stamp = command(functions["stamp"], counter, began[index:], ended[index:])
        handles.append(system.submit(stamp, [handles[e] for e in needed[-1]]))
    assert JobHandle.combine_dependencies(handles).complete()
    assert all(handle.is_completed for handle in handles)
    assert counter[0] == 2 * count
    for index, earlier_jobs in enumerate(needed):
        assert all(ended[e] < began[index] for e in earlier_jobs), index


def test_parallel_jobs_with_dependencies_lose_nothing(system: JobSystem, functions: dict[str, int]) -> None:
    """Many small parallel loops at once, in three interleaved chains, over one shared command list."""
    out = np.zeros(64, np.int64)
    add = join(*[command(functions["add"], out, 1, 0, total=64, grain=5)] * 3)
    last: list[JobHandle | None] = [None, None, None]
    for index in range(900):
        before = last[index % 3]
        last[index % 3] = system.submit(add, () if before is None else (before,))
    for handle in last:
        assert handle is not None
        assert handle.complete(60)
    assert (out == 2700).all()


def test_a_helper_hands_on_what_it_releases(functions: dict[str, int]) -> None:
    """A job that a `complete` finishes releases dependents, and its thread takes none of them.

    It used to count itself among the threads that would; with all job threads asleep, nobody ran them.
    """
    out, result = np.zeros(1, np.int64), np.zeros(1)
    long = command(functions["burn"], result, 500_000)
    add = command(functions["add"], out, 1, 0)
    with JobSystem(1, spin=0) as jobs:
        for _ in range(100):
            # Time for the thread to fall asleep, so that this one gets to the job first.
            time.sleep(0.001)
            first = jobs.submit(long)
            second = jobs.submit(add, (first,))
            assert first.complete()
            assert second.complete(5)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core: threads that spin keep others from working")
def test_threads_stay_awake_while_a_list_is_in_flight(functions: dict[str, int]) -> None:
    """Threads fell asleep in each command that one of them ran alone, and had to be woken for the next."""
    alone = command(functions["pause"], 1000)
    together = command(functions["meet"], np.zeros(1, np.int64), total=2)
    commands = join(*[alone, together] * 20)

    def sleeps(jobs: JobSystem) -> int:
        before = context_switches(jobs)
        assert jobs.submit(commands).complete(60)
        return context_switches(jobs) - before

    with JobSystem(2, spin=0) as drowsy, JobSystem(2) as awake:
        # A thread that loses its core lets the other fall asleep, or keeps it from that: so one of many.
        assert any(sleeps(drowsy) > 10 for _ in range(100))
        assert any(sleeps(awake) < 10 for _ in range(100))


def test_threads_sleep_soon_when_nothing_is_in_flight(pair: JobSystem, functions: dict[str, int]) -> None:
    out = np.zeros(8, np.int64)
    assert pair.submit(command(functions["add"], out, 1, 0, total=8)).complete(20)
    limit = time.perf_counter() + 20
    while pair._blank.words[LAYOUT["SLEEPERS"]] < 2:
        assert time.perf_counter() < limit
        time.sleep(0.0001)
    # One that counts as asleep may still be on its way there.
    before = -1
    while (now := context_switches(pair)) != before:
        assert time.perf_counter() < limit
        before = now
        time.sleep(0.02)


def test_looking_for_work_never_misses_a_moving_inbox(
    functions: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a helper moved jobs from inbox to list, job threads that looked saw both empty, and slept on.

    The move takes nanoseconds, and one run in a hundred thousand hung; here it is made to take a while.
    """
    slow = "    if job != 0:\n        for _ in range(3000):\n            cpu_pause()\n"
    start = "    job = atomic_exchange_i64(system, INBOX, 0)\n"
    assert start in jobs_program._BODY
    monkeypatch.setattr(jobs_program, "_BODY", jobs_program._BODY.replace(start, start + slow))
    out = np.zeros(1, np.int64)
    add = command(functions["add"], out, 1, 0)
    for _ in range(400):
        # Threads that have just started look for work at any moment.
        with JobSystem(3, spin=0) as jobs:
            other = jobs.submit(add)
            assert jobs.submit(add).complete()
            assert other.complete(5)
    assert out[0] == 800


def test_three_schedules_of_one_list_are_in_flight(pair: JobSystem, functions: dict[str, int]) -> None:
    out = np.zeros(8, np.int64)
    gate = Gate()
    first = pair.submit(gate.commands)
    add = command(functions["add"], out, 1, 0, total=8, grain=2)
    schedules = [pair.submit(add, (first,))]
    for _ in range(2):
        schedules.append(pair.submit(add, (schedules[-1],)))
    assert not any(handle.is_completed for handle in schedules)
    gate.open()
    assert schedules[-1].complete(20)
    assert all(handle.is_completed for handle in schedules)
    assert (out == 3).all()


def test_a_chain_finishes_while_the_main_thread_never_lets_go_of_the_gil(functions: dict[str, int]) -> None:
    """With a switch interval of minutes, a job that needed the GIL anywhere would not finish in this loop."""
    out = np.zeros(64, np.int64)
    layer = command(functions["add"], out, 1, 0, total=64, grain=16)
    interval = sys.getswitchinterval()
    with JobSystem(2) as jobs:
        try:
            sys.setswitchinterval(600)
            handle = jobs.submit(layer)
            for _ in range(19):
                handle = jobs.submit(layer, (handle,))
            limit = time.perf_counter() + 20
            turns = 0
            while not handle.is_completed and time.perf_counter() < limit:
                turns += 1
            assert handle.is_completed
        finally:
            sys.setswitchinterval(interval)
    assert (out == 20).all()


def test_submitting_never_waits_for_work(system: JobSystem, functions: dict[str, int]) -> None:
    gate = Gate()
    blocked = [system.submit(gate.commands) for _ in range(8)]
    out = np.zeros(1, np.int64)
    add = command(functions["add"], out, 1, 0)
    waiting = [system.submit(add, blocked) for _ in range(500)]
    inline = system.submit(add, blocked, inline=True)
    assert not any(handle.is_completed for handle in (*blocked, *waiting, inline))
    assert out[0] == 0
    assert waiting[-1].complete(timeout=0.01) is False
    gate.open()
    assert all(handle.complete(20) for handle in (*waiting, inline))
    assert out[0] == 501


def test_inline_lists_run_at_once_behind_the_same_handle(pair: JobSystem, functions: dict[str, int]) -> None:
    out = np.zeros(10, np.int64)
    add = command(functions["add"], out, 1, 4, total=10, grain=4)
    handle = pair.submit(add, inline=True)
    assert handle.is_completed
    assert handle.complete(0)
    pair.run_inline(add)
    assert (out == 2).all()
    assert pair.submit(add, (handle,)).complete(20)
    assert (out == 3).all()


def test_combined_handles(pair: JobSystem, functions: dict[str, int]) -> None:
    gate = Gate()
    held = pair.submit(gate.commands)
    free = pair.submit(np.zeros((0, 4), np.int64))
    assert free.complete(20)
    both = JobHandle.combine_dependencies([held, free])
    assert JobHandle.combine_dependencies([free, free]).is_completed
    assert not both.is_completed
    gate.open()
    assert both.complete(20)
    assert held.is_completed
    with pytest.raises(InputError, match="at least one"):
        JobHandle.combine_dependencies([])


def test_several_threads_may_wait_and_submit(system: JobSystem, functions: dict[str, int]) -> None:
    out = np.zeros(4, np.int64)
    add = command(functions["add"], out, 1, 0, total=4)
    gate = Gate()
    shared = system.submit(gate.commands)
    failures: list[str] = []

    def work() -> None:
        mine = [system.submit(add, (shared,)) for _ in range(100)]
        if not shared.complete() or not all(handle.complete() for handle in mine):
            failures.append("timed out")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.02)
    gate.open()
    for thread in threads:
        thread.join(30)
    assert not failures
    assert (out == 400).all()


def test_memory_lives_until_its_job_is_done_and_no_longer(pair: JobSystem, functions: dict[str, int]) -> None:
    class Owner:
        pass

    gate = Gate()
    out = np.zeros(1, np.int64)
    first = pair.submit(gate.commands)
    owner = Owner()
    alive = weakref.ref(owner)
    # The handle, the command list and its arguments are dropped at once.
    pair.submit(command(functions["add"], out, 7, 0), (first,), keep_alive=owner)
    del owner
    gc.collect()
    assert alive() is not None
    gate.open()
    limit = time.monotonic() + 20
    while alive() is not None and time.monotonic() < limit:
        pair.submit(np.zeros((0, 4), np.int64)).complete(20)
    assert alive() is None
    assert out[0] == 7


def test_closing_lets_everything_finish(functions: dict[str, int]) -> None:
    out = np.zeros(16, np.int64)
    jobs = JobSystem(2)
    handle = jobs.submit(command(functions["add"], out, 1, 0, total=16, grain=4))
    for _ in range(50):
        handle = jobs.submit(command(functions["add"], out, 1, 0, total=16, grain=4), (handle,))
    threads = jobs._threads
    jobs.close()
    jobs.close()
    assert (out == 51).all()
    assert handle.is_completed
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(DisposedError, match="closed"):
        jobs.submit(np.zeros((0, 4), np.int64))
    with pytest.raises(DisposedError, match="closed"):
        jobs.run_inline(np.zeros((0, 4), np.int64))


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_built_in_fill_and_copy(pair: JobSystem, width: int) -> None:
    stock = builtin_functions()
    array = np.zeros(1000, f"i{width}")
    other = np.zeros_like(array)
    fill = command(stock["fill"], array[1:], -3, width, total=998, grain=100)
    copy = command(stock["copy"], other, array, total=array.nbytes, grain=512)
    assert pair.submit(join(fill, copy)).complete(20)
    assert array[0] == array[-1] == 0
    assert (array[1:-1] == -3).all()
    np.testing.assert_array_equal(other, array)


def test_threads_are_awake_until_they_sleep() -> None:
    with JobSystem(2, spin=1) as jobs:
        limit = time.monotonic() + 60
        while jobs.is_awake and time.monotonic() < limit:
            time.sleep(0.001)
        assert not jobs.is_awake
    with JobSystem(2, spin=1 << 40) as jobs:
        jobs.copy(np.ones(9), np.zeros(9)).complete()
        assert jobs.is_awake
