"""Schedules without end: whatever a game asks for, the process ends with what it began with.

    python -m tests.benchmarks.soak --backend cpu --schedules 100000

Rounds that make workers, ask them at random, and dispose them: shapes that vary, plans that stop for data,
readbacks that nobody takes, answers that are replaced before they come, inferences in slices that are
dropped, workers that go while work is pending. After each round everything is let go of, and what the process
still holds is counted. The first round fills caches of the process; the others must leave nothing behind, the
last must hold no more while its workers live than the first did, and if rounds are long enough to fill what
workers may keep, no more at its end than in its middle. Exits with 1 where something has grown.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from engine import CLDevice, GLDevice, Model, Tensor, Worker, reserve_game_core
from gameglue import InferenceQueue
from tests.benchmarks.holdings import Holdings, ObjectLoader, growth, held, thread_names
from tests.benchmarks.setting import CHANNELS, DEFAULT, BenchmarkParser, console, print_setting, print_table
from tests.contract.networks import falling_back, filters, network, policy, positives, repeating

ROUNDS = 4

LEFT_BEHIND = Holdings(gl_objects=4, cl_objects=4, rss_mb=12.0, python_blocks=3000, threads=0, files=0)
"""What later rounds may add in all. A pool of staging buffers is as large as it ever had to be; NumPy, the C
library and drivers keep some memory as they please."""

IN_A_ROUND = Holdings(gl_objects=400, cl_objects=400, rss_mb=40.0, python_blocks=60_000, threads=2, files=1)
"""What the second half of a round may add while workers live: they keep plans, up to a limit."""

FILLING = 10_000
"""Schedules of a round after half of which workers have kept all the plans that they may keep."""

Question = Callable[[Random], dict[str, np.ndarray]]


def _floats(*shape: int) -> np.ndarray:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def subjects() -> list[tuple[Model, Question]]:
    """Models, and what they are asked: of many shapes where they take many."""
    digits = network("digits")
    name = digits.inputs[0].name
    return [
        (digits, lambda _: {name: _floats(1, 1, 28, 28)}),
        (policy(), lambda r: {"x": _floats(r.randint(1, 40), 8)}),
        (filters(), lambda r: {"x": _floats(1, 3, 2 * r.randint(2, 10), 2 * r.randint(2, 10))}),
        (repeating(), lambda r: {"x": np.array([1, r.randint(1, 9), 0, -1], np.float32)}),
        (positives(), lambda r: {"x": _floats(r.randint(2, 30))}),
        (falling_back(), lambda r: {"x": _floats(r.randint(1, 20))}),
        # A size of its own for nearly every schedule.
        (policy(), lambda r: {"x": _floats(r.randint(1, 4000), 8)}),
    ]


class Soak:
    """One backend's workers, and the random acts of a game that uses them."""

    def __init__(self, channel: str, seed: int) -> None:
        self.random = Random(seed)
        self.choice = CHANNELS[channel]
        self.loader: ObjectLoader | None = None
        self.cl: CLDevice | None = None
        self.device: GLDevice | CLDevice | None = None
        if channel == "opencl":
            self.device = self.cl = CLDevice()
        elif channel != "cpu":
            self.device = GLDevice(loader_wrapper=self._counted)
        self.subjects = subjects()
        self.scheduled = 0

    def _counted(self, loader: Any) -> Any:
        self.loader = ObjectLoader(loader)
        return self.loader

    def open(self, model: Model) -> Worker:
        """A worker on the backend."""
        return Worker(model, self.choice.backend, device=self.device)

    def play(self, schedules: int) -> list[Holdings]:
        """A round; what is held in its middle and at its end, while its workers live."""
        workers = [self.open(model) for model, _ in self.subjects]
        # A request of the queue would be stale once the same worker was scheduled directly.
        queued = [self.open(model) for model, _ in self.subjects]
        queue = InferenceQueue()
        asked: list[Tensor] = []
        seen: list[Holdings] = []
        first = self.scheduled
        while self.scheduled - first < schedules:
            for _ in range(self.random.randint(1, 4)):
                number = self.random.randrange(len(workers))
                question = self.subjects[number][1]
                if self.random.random() < 0.15:
                    self.scheduled += 1
                    is_latest = self.random.random() < 0.5
                    queue.submit(queued[number], question(self.random), latest_only=is_latest)
                else:
                    self.act(workers[number], question, asked)
            if self.random.random() < 0.004:
                self.short_life()
            self.end_frame((*workers, *queued), queue, asked)
            if len(seen) < (self.scheduled - first) * 2 // schedules:
                seen.append(held(self.loader, self.cl, settled=True))
        for worker in (*workers, *queued):
            worker.dispose()
        return seen

    def act(self, worker: Worker, question: Question, asked: list[Tensor]) -> None:
        """Ask once, in one of the ways there are."""
        way, inputs = self.random.random(), question(self.random)
        self.scheduled += 1
        if way < 0.12:
            schedule = worker.schedule_iterable(inputs)
            for _ in range(self.random.randint(0, 20)):
                if not schedule.is_done:
                    schedule.advance(0.3, force=True)
            if self.random.random() < 0.5:
                schedule.cancel()
            return
        worker.schedule(inputs)
        if way < 0.5:
            return
        tensor = worker.peek_output()
        tensor.readback_request()
        if way < 0.8:
            asked.append(tensor)
        elif way < 0.85:
            with worker.copy_output() as copy:
                copy.readback_request()

    def short_life(self) -> None:
        """A worker that is made, asked, and goes before its answer comes."""
        model, question = self.random.choice(self.subjects)
        worker = self.open(model)
        for _ in range(self.random.randint(0, 3)):
            worker.schedule(question(self.random))
            self.scheduled += 1
            if self.random.random() < 0.5:
                worker.peek_output().readback_request()
        worker.dispose()

    def end_frame(self, workers: Sequence[Worker], queue: InferenceQueue, asked: list[Tensor]) -> None:
        """What a host does once a frame; some answers are taken, and some forgotten."""
        for worker in workers:
            worker.pump(1.0)
        queue.pump(2.0)
        queue.poll()
        for tensor in [*asked]:
            if tensor.is_readback_request_done():
                tensor.download_to_array()
                asked.remove(tensor)
        del asked[:-6]

    def count(self) -> Holdings:
        """What is left once a round is over."""
        for _ in range(2):
            # What Python finds to be garbage leaves OpenGL objects to the device, and copies to OpenCL's.
            found = held(self.loader, self.cl, settled=True)
            if isinstance(self.device, GLDevice):
                with self.device.current():
                    self.device.collect()
            elif self.cl is not None:
                self.cl.collect()
        return replace(found, gl_objects=0 if self.loader is None else self.loader.alive.total())


def main(argv: Sequence[str] | None = None) -> int:
    """Soak and print; 1 if something has grown."""
    parser = BenchmarkParser("benchmarks.soak", __doc__)
    parser.add_argument("--backend", choices=DEFAULT, default="cpu", help="Default: cpu")
    parser.add_count("--schedules", 100_000, "")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the random acts. Default: 0")
    parser.add_argument("--trace", action="store_true", help="print the lines whose memory grew most. Slow")
    options = parser.parse_args(argv)
    out = console()
    print_setting(
        out, "what schedules leave behind", {"backend": options.backend, "schedules": options.schedules}
    )
    reserve_game_core()
    soak = Soak(options.backend, options.seed)
    per_round = max(1, options.schedules // ROUNDS)
    rows, ends, rounds, began = [], [], [], time.perf_counter()
    snapshot = None
    for number in range(ROUNDS):
        if options.trace and number == 1:
            tracemalloc.start(8)
        rounds.append(soak.play(per_round))
        ends.append(soak.count())
        for when, living in zip(("middle", "end"), rounds[-1], strict=True):
            rows.append([f"round {number + 1}, {when}", *living.row])
        rows.append([f"after round {number + 1}", *ends[-1].row])
        if options.trace and number == 1:
            snapshot = tracemalloc.take_snapshot()
    print_table(out, ["", "GL objects", "CL objects", "RSS MiB", "Python blocks", "threads", "files"], rows)
    out.print(f"\n{soak.scheduled} schedules in {time.perf_counter() - began:.0f} s")
    if snapshot is not None:
        for line in tracemalloc.take_snapshot().compare_to(snapshot, "traceback")[:12]:
            grown = f"{line.size_diff / 1024:+.0f} KiB in {line.count_diff:+d} blocks"
            out.print(grown, *line.traceback.format(), sep="\n")
    problems = growth(ends[0], ends[-1], LEFT_BEHIND) + growth(rounds[0][1], rounds[-1][1], IN_A_ROUND)
    if per_round >= FILLING:
        problems += growth(rounds[-1][0], rounds[-1][1], IN_A_ROUND)
    for problem in problems:
        out.print(f"GROWN {problem}")
    if problems:
        out.print(f"threads: {', '.join(thread_names())}")
        if soak.loader is not None:
            out.print(f"OpenGL objects: {dict(soak.loader.alive)}")
    else:
        out.print("nothing has grown")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
