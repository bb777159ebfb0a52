"""Runs many small tasks in processes of their own, each within a time and an amount of memory.

A task is a function of a module, called with one argument; it returns a string. A process that ends, hangs or
runs out of memory takes one task with it, which is reported, and another process goes on.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from engine.base.errors import EngineError

SECONDS = 10.0
BYTES = 4 << 30
"""What one file or layer may take: the time of an answer or an error, and memory beside the process's own."""

PATIENCE = 30
"""How many times as long a task may take in all: what counts is the process's own time, as others compete for
the cores, but one that sleeps for ever is to be found, too."""

Task = Callable[[Any], str]


@dataclass(frozen=True)
class Outcome:
    """What became of a task: `result` is "answer", "refused", or says what went wrong."""

    label: str
    result: str
    seconds: float

    @property
    def is_fault(self) -> bool:
        """Whether it ended in neither an answer nor an error of ours."""
        return self.result not in ("answer", "refused")


def run_bounded(
    task: Task,
    cases: Iterable[tuple[str, Any]],
    processes: int = 1,
    warm_up: Any = None,
    seconds: float = SECONDS,
) -> Iterator[Outcome]:
    """The outcome of each labelled case, in the order in which they end.

    `warm_up` is a case that a process runs first, without bounds: imports and compiled programs come with it.
    """
    supply = iter(cases)
    context = multiprocessing.get_context("spawn")
    workers: list[_Worker] = []
    try:
        for _ in range(processes):
            workers.append(_Worker(context, task, warm_up, seconds))
        busy = [w for w in workers if w.take(supply)]
        while busy:
            wait([w.pipe for w in busy], timeout=0.2)
            for worker in list(busy):
                outcome = worker.outcome()
                if outcome is None:
                    continue
                yield outcome
                if not worker.take(supply):
                    busy.remove(worker)
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """One process, started anew when it has ended."""

    def __init__(self, context: Any, task: Task, warm_up: Any, seconds: float) -> None:
        self.context, self.task, self.warm_up, self.seconds = context, task, warm_up, seconds
        self.process: Any = None
        self.label = ""

    def start(self) -> None:
        self.pipe, inner = self.context.Pipe()
        self.process = self.context.Process(target=_serve, args=(inner, self.task, self.warm_up))
        self.process.start()
        inner.close()
        self.pipe.recv()  # it is ready

    def take(self, supply: Iterator[tuple[str, Any]]) -> bool:
        found = next(supply, None)
        if found is None:
            return False
        if self.process is None:
            self.start()
        self.label, case = found
        self.began, self.spent = time.monotonic(), seconds_of(self.process.pid)
        self.pipe.send(case)
        return True

    def outcome(self) -> Outcome | None:
        taken = time.monotonic() - self.began
        try:
            if self.pipe.poll():
                result, spent = self.pipe.recv()
                return Outcome(self.label, result, spent)
        except (EOFError, ConnectionError):
            self.process.join()
            return self._ended(f"the process ended with {self.process.exitcode}", taken)
        if taken < self.seconds:
            return None
        spent = seconds_of(self.process.pid) - self.spent
        if spent > self.seconds or taken > PATIENCE * self.seconds:
            return self._ended(f"no end after {spent:.0f} s of its own, {taken:.0f} in all", spent)
        return None

    def _ended(self, why: str, taken: float) -> Outcome:
        self.process.kill()
        self.process.join()
        self.process = None
        self.pipe.close()
        return Outcome(self.label, why, taken)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()


def seconds_of(process: int) -> float:
    """The time that a process has spent on the cores."""
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _serve(pipe: Connection, task: Task, warm_up: Any) -> None:
    os.environ["GAMEGLUE_STORED_PLANS"] = "off"
    if warm_up is not None:
        judged(task, warm_up)
    with open("/proc/self/statm", encoding="ascii") as file:
        own = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (own + BYTES, own + BYTES))
    pipe.send("ready")
    while True:
        case = pipe.recv()
        begin = time.process_time()
        result = judged(task, case)
        spent = time.process_time() - begin
        if spent > SECONDS and result in ("answer", "refused"):
            result = f"{result} after {spent:.0f} s"
        pipe.send((result, spent))


def judged(task: Task, case: Any) -> str:
    """What a task returns, "refused" where it raises an error of ours, else what it raised and where."""
    try:
        return task(case)
    except EngineError:
        return "refused"
    except Exception as error:  # noqa: BLE001 - what this looks for
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "/engine/" in f.filename]
        where = " < ".join(f"{f.filename.split('/engine/')[-1]}:{f.lineno} {f.name}" for f in frames[:-4:-1])
        return f"{type(error).__name__}: {str(error)[:120]} ({where})"
