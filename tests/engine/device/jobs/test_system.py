"""The job system: order, completeness, independence from the GIL, and what happens to memory and threads."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.base.errors import DisposedError, InputError
from engine.device import native
from engine.device.jobs import program as jobs_program
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.layout import LAYOUT
from engine.device.jobs.stock import stock_functions
from engine.device.jobs.system import JobHandle, JobSystem, job_sources, shared_job_system
from engine.device.native import NativeSource
from engine.device.native.prelude import PRELUDE
from tests.engine.device.jobs.gates import Gate

ROOT = Path(__file__).parents[3]

KERNELS = {
    # args: array of int64, amount, 0 or the grain that every chunk must start on a multiple of
    "add": """
def add(args, begin, end):
    grain = arg_i64(args, 2)
    for i in range(begin, end):
        wrong = grain > 0 and (begin % grain != 0 or end - begin > grain)
        atomic_add_i64(arg_i64(args, 0), i, -1000000 if wrong else arg_i64(args, 1))
""",
    # args: counter, first ticket, last ticket: the order in which things began and ended
    "stamp": """
def stamp(args, begin, end):
    counter = arg_i64(args, 0)
    store_i64(arg_i64(args, 1), 0, atomic_add_i64(counter, 0, 1))
    store_i64(arg_i64(args, 2), 0, atomic_add_i64(counter, 0, 1))
""",
    # args: source, destination, length: each element the sum of its neighbours
    "blur": """
def blur(args, begin, end):
    a, n = arg_i64(args, 0), arg_i64(args, 2)
    for i in range(begin, end):
        store_i64(arg_i64(args, 1), i, load_i64(a, (i + n - 1) % n) + load_i64(a, (i + 1) % n))
""",
    # args: how many pauses
    "pause": """
def pause(args, begin, end):
    for _ in range(arg_i64(args, 0)):
        cpu_pause()
""",
    # args: a counter; two chunks wait for each other, so that two threads must take them
    "meet": """
def meet(args, begin, end):
    met = (atomic_add_i64(arg_i64(args, 0), 0, 1) // 2 + 1) * 2
    while atomic_load_i64(arg_i64(args, 0), 0) < met:
        cpu_pause()
""",
    # args: a result, and how long to work for it
    "burn": """
def burn(args, begin, end):
    value = 0.0
    for i in range(arg_i64(args, 1) * (end - begin)):
        value = value * 0.999 + i
    store_f64(arg_i64(args, 0), 0, value)
""",
}


@pytest.fixture(scope="module")
def functions() -> dict[str, int]:
    sources = {name: NativeSource(name, PRELUDE + text, name) for name, text in KERNELS.items()}
    addresses = native.load(list(sources.values()))
    return {name: addresses[source.key] for name, source in sources.items()}


@pytest.fixture(params=["1 thread", "4 threads", "4 threads, no spin", "2 threads, polling"])
def system(request: pytest.FixtureRequest) -> Iterator[JobSystem]:
    """Every way to run jobs; more threads than cores bring out races."""
    threads = int(request.param[0])
    spin = 0 if "no spin" in request.param else None
    with JobSystem(threads, spin=spin, waiting="poll" if "polling" in request.param else None) as jobs:
        yield jobs


@pytest.fixture
def pair() -> Iterator[JobSystem]:
    with JobSystem(2) as jobs:
        yield jobs


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


def test_records_are_used_again(pair: JobSystem, functions: dict[str, int]) -> None:
    out = np.zeros(1, np.int64)
    add = command(functions["add"], out, 1, 0)
    for _ in range(3000):
        assert pair.submit(add).complete(20)
    assert out[0] == 3000
    # The system block and one block of records: 3000 jobs in sequence never need a second.
    assert len(pair._memory) == 2


def test_a_job_is_queued_again_and_again(system: JobSystem, functions: dict[str, int]) -> None:
    """By its own handle, with other jobs in between; nothing piles up."""
    out, other = np.zeros(1, np.int64), np.zeros(1, np.int64)
    add, add_other = command(functions["add"], out, 1, 0), command(functions["add"], other, 1, 0)
    job, others = system.submit_repeated(None, add), 0
    for turn in range(2000):
        assert job.handle.complete(20)
        assert out[0] == turn + 1
        if turn % 3 == 0:
            assert system.submit(add_other).complete(20)
        following = system.submit_repeated(job, add)
        others += following is not job  # where a thread has just looked at it
        job = following
    assert job.handle.complete(20)
    assert out[0] == 2001
    assert others < 2000
    assert len(system._live) < 50


def test_a_job_on_its_way_is_not_queued_again(system: JobSystem, functions: dict[str, int]) -> None:
    gate, out = Gate(), np.zeros(1, np.int64)
    job = system.submit_repeated(None, gate.commands)
    assert not job.handle.is_completed
    assert job.again() == 0
    following = system.submit_repeated(job, command(functions["add"], out, 1, 0))
    assert following is not job
    gate.open()
    assert job.handle.complete(20)
    assert following.handle.complete(20)
    assert out[0] == 1


def test_a_handle_that_somebody_keeps_is_of_one_run(system: JobSystem, functions: dict[str, int]) -> None:
    gate = Gate()
    gate.open()
    job = system.submit_repeated(None, gate.commands)
    kept = job.handle.of_this_run()
    assert job.handle.complete(20)
    shut = Gate()
    following = system.submit_repeated(job, shut.commands)
    assert kept.is_completed
    assert not following.handle.is_completed
    shut.open()
    assert following.handle.complete(20)


def test_a_job_that_is_waited_for_is_not_queued_again(system: JobSystem, functions: dict[str, int]) -> None:
    out, gate = np.zeros(1, np.int64), Gate()
    job = system.submit_repeated(None, gate.commands)
    handle = job.handle
    waiting = threading.Thread(target=handle.complete)
    waiting.start()
    while handle._words[handle._base + LAYOUT["PINS"]] == 0:
        time.sleep(0.001)
    assert job.again() == 0
    gate.open()
    waiting.join(20)
    assert handle._words[handle._base + LAYOUT["PINS"]] == 0
    assert system.submit(command(functions["add"], out, 1, 0)).complete(20)


def test_a_repeated_job_runs_on_when_nobody_has_its_handle(
    system: JobSystem, functions: dict[str, int]
) -> None:
    out, gate = np.zeros(1, np.int64), Gate()
    add = command(functions["add"], out, 1, 0)
    held, flag = weakref.ref(gate), gate.flag
    system.submit_repeated(None, gate.commands, keep_alive=gate)
    del gate
    assert held() is not None
    flag[0] = 1
    for _ in range(300):
        system.submit_repeated(None, add).handle.complete(20)
    limit = time.monotonic() + 20
    while held() is not None and time.monotonic() < limit:
        system.submit(add).complete(20)
    assert held() is None
    assert len(system._memory) == 2


def test_a_closed_system_repeats_nothing(functions: dict[str, int]) -> None:
    out = np.zeros(1, np.int64)
    add = command(functions["add"], out, 1, 0)
    with JobSystem(1) as system:
        job = system.submit_repeated(None, add)
    assert out[0] == 1
    assert job.again() == 0
    with pytest.raises(DisposedError):
        system.submit_repeated(job, add)
    assert out[0] == 1


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


def test_a_forgotten_system_ends_its_threads() -> None:
    jobs = JobSystem(2)
    threads = jobs._threads
    del jobs
    gc.collect()
    assert not any(thread.is_alive() for thread in threads)


def test_wrong_arguments_are_refused(pair: JobSystem, functions: dict[str, int]) -> None:
    with pytest.raises(InputError, match="function address"):
        CommandList([(0, 0, 1, 1)])
    with pytest.raises(InputError, match="grain"):
        pair.submit(np.array([[functions["add"], 0, 1, 0]], np.int64))
    with pytest.raises(InputError, match="at least 1 thread"):
        JobSystem(0)
    with pytest.raises(InputError, match="'smoke signals'"):
        JobSystem(1, waiting="smoke signals")
    gate = Gate()
    with JobSystem(1) as other:
        held = other.submit(gate.commands)
        with pytest.raises(InputError, match="own job system"):
            pair.submit(gate.commands, (held,))
        gate.open()


@pytest.mark.skipif(sys.platform != "linux", reason="reads a thread's priority as Linux gives it")
def test_threads_can_let_the_game_go_first() -> None:
    with JobSystem(2, priority="below_normal") as jobs:
        usual = os.getpriority(os.PRIO_PROCESS, 0)
        limit = time.monotonic() + 60
        priorities: set[int] = set()
        while priorities != {min(usual + 5, 19)} and time.monotonic() < limit:
            priorities = {os.getpriority(os.PRIO_PROCESS, t.native_id or 0) for t in jobs._threads}
        assert priorities == {min(usual + 5, 19)}
    assert os.getpriority(os.PRIO_PROCESS, 0) == usual


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_stock_fill_and_copy(pair: JobSystem, width: int) -> None:
    stock = stock_functions()
    array = np.zeros(1000, f"i{width}")
    other = np.zeros_like(array)
    fill = command(stock["fill"], array[1:], -3, width, total=998, grain=100)
    copy = command(stock["copy"], other, array, total=array.nbytes, grain=512)
    assert pair.submit(join(fill, copy)).complete(20)
    assert array[0] == array[-1] == 0
    assert (array[1:-1] == -3).all()
    np.testing.assert_array_equal(other, array)


def test_the_shared_system_is_one_and_comes_back_after_close() -> None:
    first = shared_job_system()
    assert shared_job_system() is first
    first.close()
    second = shared_job_system()
    assert second is not first
    assert second.submit(np.zeros((0, 4), np.int64)).complete(20)
    second.close()


def run_script(text: str, timeout: float = 240) -> str:
    head = (
        "import os, sys, time, numpy as np\n"
        "from engine.device.jobs.system import *\n"
        "from engine.device.jobs.stock import stock_functions\n"
        "nothing = np.zeros((0, 4), np.int64)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", head + text],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_warm_start_needs_no_numba() -> None:
    native.load(job_sources())
    run_script("assert JobSystem(1).submit(nothing).complete(20)\nassert 'numba' not in sys.modules")


def test_the_program_ends_while_jobs_are_queued() -> None:
    """Nothing waits for 100 TB of memory to be filled, and no thread runs on without the interpreter."""
    native.load(job_sources())
    run_script(
        "jobs = JobSystem(2)\n"
        "block = np.zeros(1 << 20, np.int8)\n"
        "args = np.array([block.ctypes.data, 1, 1])\n"
        "work = np.array([[stock_functions()['fill'], args.ctypes.data, block.size, block.size]] * 100_000)\n"
        "handles = [jobs.submit(work) for _ in range(1000)]\n"
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_told_and_can_start_its_own() -> None:
    native.load(job_sources())
    said = run_script(
        "jobs = shared_job_system()\n"
        "assert jobs.submit(nothing).complete(20)\n"
        "repeated = jobs.submit_repeated(None, CommandList(nothing))\n"
        "assert repeated.handle.complete(20)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    assert repeated.again() == 0\n"
        "    try:\n"
        "        jobs.submit(nothing)\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, error, flush=True)\n"
        "    print(shared_job_system().submit(nothing).complete(20), flush=True)\n"
        "else:\n"
        "    assert os.waitpid(pid, 0)[1] == 0\n"
        "    assert jobs.submit(nothing).complete(20)\n"
    )
    assert "DeviceError" in said
    assert "fork" in said
    assert said.strip().endswith("True")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux lets threads be kept off a core")
def test_the_first_thread_is_kept_off_the_core_of_whoever_submits() -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("there is one core")
    with JobSystem(2) as jobs:
        thread = jobs._threads[0].native_id
        assert thread is not None
        try:
            for core in sorted(allowed)[:2]:
                os.sched_setaffinity(0, {core})
                end = time.monotonic() + 20
                while os.sched_getaffinity(thread) != allowed - {core} and time.monotonic() < end:
                    time.sleep(0.02)  # threads that spin need not be woken
                    assert jobs.submit(np.zeros((0, 4), np.int64)).complete(20)
                assert os.sched_getaffinity(thread) == allowed - {core}
        finally:
            os.sched_setaffinity(0, allowed)
