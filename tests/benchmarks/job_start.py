"""How soon a job begins that is scheduled while the main thread is busy, and when it is done.

    python -m tests.benchmarks.job_start

Each job is `--work` milliseconds for two cores: chunks of a native loop without the GIL, with the clock read
when the first begins and when the last has ended. In turns the main thread goes on in Python, as a game does
after `schedule()`, or sleeps. Before each job all threads sleep for as long as between two frames. Rows are
the job threads of a program (one per core) and of an `App` (a core is left to the frame, and the frame's
thread keeps its core). Where another process wants a core, a job may have to wait: on Linux, a job is left
out if one does when the job is submitted or later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from engine.backends.cpu.execution.timing import TimestampedList
from engine.device.jobs.builtin_commands import builtin_functions
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.system import JobSystem
from gameglue.host.render_threads import prioritize_frame_thread
from tests.benchmarks.setting import BenchmarkParser, console, print_end, print_setting, print_table

LOOKS = (0.3, 1.0, 3.0)
"""Milliseconds after `submit` at which a job is looked at."""

FRAME = 0.016
_LOAD = Path("/proc/loadavg")
_MOST_TRIES = 5
_CHUNKS = 8
_STEP = 1 << 12


@dataclass
class Row:
    """Seconds from `submit` to a job's begin and to its end, of all jobs of one kind."""

    begun: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)


def go_on(seconds: float) -> None:
    """Run Python for so long, without letting go of the GIL by choice."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def work_of(milliseconds: float) -> CommandList:
    """A command that takes one core about so long, in chunks that several threads can take."""

    def filled(count: int) -> tuple[CommandList, Callable[[], None]]:
        target = np.zeros(count, np.int64)
        words = np.array([target.ctypes.data, 0, 8], np.int64)
        row = (builtin_functions()["fill"], words.ctypes.data, count, -(-count // _CHUNKS))
        made = CommandList([row], (words, target))
        return made, partial(jobs.run_inline, made)

    with JobSystem(1) as jobs:
        count = _STEP
        while True:
            commands, run = filled(count)
            took = []
            for _ in range(5):
                before = time.perf_counter()
                run()
                took.append(time.perf_counter() - before)
            if min(took) * 1e3 >= milliseconds:
                return commands
            count += max(round(count * min(0.5, milliseconds / 1e3 / min(took) - 1)), _STEP)


def measure(
    jobs: JobSystem, commands: CommandList, wait: Callable[[float], object], count: int, row: Row
) -> None:
    """Submit the work `count` times, each after a frame's sleep, with the main thread waiting in one way.

    Jobs beside other processes do not count; after `_MOST_TRIES` times as many this ends.
    """
    stamped = TimestampedList(commands)
    enough = len(row.begun) + count
    for _ in range(count * _MOST_TRIES):
        time.sleep(FRAME)
        is_alone = not others()
        before = time.perf_counter()
        handle = jobs.submit(stamped.commands)
        wait(max(LOOKS) / 1e3)
        is_alone = is_alone and not others()
        handle.complete()
        begin, end = stamped.times()
        if is_alone:
            row.begun.append(begin - before)
            row.done.append(end - before)
        if len(row.begun) == enough:
            break


def others() -> bool:
    """Whether other processes want a core just now; False where this system does not tell."""
    if not _LOAD.exists():
        return False
    running = int(_LOAD.read_text(encoding="ascii").split()[3].partition("/")[0])
    own = sum(_is_running(thread) for thread in Path("/proc/self/task").iterdir())
    return running > own


def _is_running(thread: Path) -> bool:
    state = (thread / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    return state == "R"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = BenchmarkParser("benchmarks.job_start", __doc__)
    parser.add_count("--runs", 5, "turns of each row")
    parser.add_count("--batches", 40, "jobs in a turn")
    parser.add_number("--work", 0.2, "that two cores take", "MS")
    options = parser.parse_args(argv)
    out = console()
    wanted = options.runs * options.batches
    print_setting(
        out,
        "from submitting a job to its begin and its end",
        {"jobs": f"{wanted} of {options.work} ms for two cores in each row, {FRAME * 1e3:.0f} ms apart"},
    )
    commands = work_of(2 * options.work)
    cores = os.cpu_count() or 1
    rows: list[list[str]] = []
    waits = {"goes on in Python": go_on, "sleeps": time.sleep}
    for title, threads in (("program", cores), ("app", max(1, cores - 1))):
        if title == "app":
            prioritize_frame_thread()
        found = {name: Row() for name in waits}
        with JobSystem(threads, priority="below_normal" if title == "app" else "normal") as system:
            for _ in range(options.runs):
                for name, wait in waits.items():
                    measure(system, commands, wait, options.batches, found[name])
        rows += [
            [f"{title}, main thread {name}", str(threads), str(len(row.begun)), *_figures(row)]
            for name, row in found.items()
        ]
    looks = [f"{ms:g}" for ms in LOOKS]
    columns = ["job threads of a", "threads", "jobs", "begins ms p50", "p90", "done ms p50", "p90"]
    columns += [f"begun {ms}" for ms in looks] + [f"done {ms}" for ms in looks]
    print_table(out, columns, rows)
    out.print("\nbegun, done: % of the jobs within so many ms")
    print_end(out)
    return 0


def _figures(row: Row) -> list[str]:
    if not row.begun:
        return ["-"] * (4 + 2 * len(LOOKS))
    begun, done = np.array(row.begun) * 1e3, np.array(row.done) * 1e3
    spread = [f"{np.percentile(times, q):.3f}" for times in (begun, done) for q in (50, 90)]
    return spread + [f"{100 * np.mean(times <= ms):.0f}" for times in (begun, done) for ms in LOOKS]


if __name__ == "__main__":
    raise SystemExit(main())
