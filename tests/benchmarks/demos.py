"""How fast the demos run: frames and network answers per second, and the slowest frames.

    python -m tests.benchmarks.demos --demos smoke rival --seconds 5

Each demo plays itself without a window, in a process of its own, in real time at 60 frames a second at most,
on the backend that suits this machine. The first seconds do not count.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.progress import track

from gameglue import App, PlayOptions
from gameglue.cli.console import errors
from gameglue.cli.demos import find_demo
from gameglue.cli.play import DEFAULT_SIZE
from gameglue.host.garbage_collection import freeze_garbage_collector
from tests.benchmarks.processes import ChildFailed, last_line
from tests.benchmarks.setting import BenchmarkParser, console, print_end, print_setting, print_table

ANSWERS = {
    "chatter": "the next word of each speaker",
    "digits": "a classified drawing",
    "gesture": "a classified stroke, while one is drawn",
    "othello": "8 evaluated positions",
    "painter": "a painting",
    "rival": "a move of the paddle",
    "smoke": "a pressure",
    "swarm": "the moves of all fish",
    "upscale": "an upscaled image",
}
"""What one answer of a demo's network is."""

IMAGES = {"painter": "paintings", "upscale": "images"}
"""Demos whose `ImageNetwork` counts, and the name of that count in their report."""

SETTLE = 3.0
"""Seconds before the first that counts: loading, first plans, first pictures."""

FRAMES, PER_SECOND = 30.0, 15.0
"""What every demo is to reach on two cores without a graphics card: frames and answers a second."""


@dataclass(frozen=True)
class Pace:
    """What a demo reached: frames and answers a second; milliseconds a frame of all threads' processor time,
    inference included, and of the frames' work.
    """

    frames: float
    answers: float
    cpu: float
    median: float
    p99: float
    backend: str


def play(name: str, seconds: float) -> Pace:
    """Play a demo in this process."""
    build = find_demo(name).load()
    with App(name, size=DEFAULT_SIZE, headless=True, real_time=True, seed=3) as app:
        tell = build(app, PlayOptions(autoplay=True, seed=3))

        def facts() -> dict[str, object]:
            return dict(tell() or {}) if tell is not None else {}

        def answers() -> int:
            if name in IMAGES:
                return int(str(facts()[IMAGES[name]]))
            return app.inference.stats.done

        with freeze_garbage_collector():
            run_for(app, SETTLE)
            before = answers()
            began, cpu = time.perf_counter(), time.process_time()
            work = run_for(app, seconds)
            took, cpu = time.perf_counter() - began, time.process_time() - cpu
        if app.errors:
            raise ChildFailed(str(app.errors[0]))
        answered = answers() - before
        median, p99 = np.percentile(work, (50, 99)) * 1e3
        backend = str(facts().get("backend", ""))
        return Pace(len(work) / took, answered / took, 1e3 * cpu / len(work), median, p99, backend)


def run_for(app: App, seconds: float) -> list[float]:
    """Run frames for so long; returns the seconds of work of each."""
    work: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        app.run(1)
        work.append(float(app.profiler.work.latest(1)[0]))
    return work


def play_in_child(name: str, seconds: float) -> Pace:
    """The same in a process of its own. Raises `ChildFailed`."""
    command = [sys.executable, "-m", "tests.benchmarks.demos", "play", name, str(seconds)]
    return Pace(**last_line(command))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a demo failed."""
    parser = BenchmarkParser("benchmarks.demos", __doc__)
    parser.add_argument(
        "--demos",
        nargs="+",
        choices=tuple(ANSWERS),
        default=tuple(ANSWERS),
        metavar="NAME",
        help="Default: all",
    )
    parser.add_count("--seconds", 10, "seconds that count", "S")
    options = parser.parse_args(argv)
    out = console()
    settings = {
        "times": f"over {options.seconds} s in real time at 60 frames/s at most, after {SETTLE:.0f} s; "
        "ms of the main thread's work; CPU: of all threads, a frame",
        "size": "x".join(map(str, DEFAULT_SIZE)),
    }
    print_setting(out, "demos", settings)
    rows, missed, problems = [], [], []
    for name in track(options.demos, description="playing", console=errors(), transient=True):
        try:
            pace = play_in_child(name, options.seconds)
        except ChildFailed as error:
            problems.append(f"{name}: {error}")
            continue
        if pace.frames < FRAMES or pace.answers < PER_SECOND:
            missed.append(name)
        figures = [f"{figure:.1f}" for figure in (pace.frames, pace.answers, pace.cpu, pace.median, pace.p99)]
        rows.append([name, *figures, pace.backend.partition(" ")[0], ANSWERS[name]])
    print_table(
        out,
        ["demo", "frames/s", "answers/s", "CPU ms", "median ms", "p99 ms", "backend", "an answer is"],
        rows,
    )
    reached = len(rows) - len(missed)
    out.print(f"\nat least {FRAMES:.0f} frames/s and {PER_SECOND:.0f} answers/s: {reached} of {len(rows)}")
    if missed:
        out.print(f"missed by {', '.join(missed)}")
    for problem in problems:
        out.print(problem, markup=False)
    print_end(out)
    return 1 if problems else 0


def play_one(arguments: Sequence[str]) -> None:
    """One demo of the table, in this process; prints its figures as JSON."""
    name, seconds = arguments
    print(json.dumps(asdict(play(name, float(seconds)))), flush=True)
    # Without the disposal of everything, which is not measured.
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        play_one(sys.argv[2:])
    raise SystemExit(main())
