"""What a game feels: frame times of a scene without a window, with and without a network in flight.

    python -m tests.benchmarks.frames --models digits --backends cpu gl_compute --frames 300

One app plays one scene all the time. In turns, nothing, or one network on one backend, runs beside it: a
component schedules it, polls in every frame, and schedules again as soon as the answer is there. A frame's
time is what its phases take on the main thread; "in the engine" is the part spent in calls of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console
from rich.progress import track

from engine import ModelLoader, Worker
from gameglue import App
from gameglue.cli.console import errors
from gameglue.profiling import Spread
from gameglue.profiling.benchmark_cases import infer
from gameglue.profiling.compare import take_turns
from tests.benchmarks.scene import SAMPLE, Asker, build
from tests.benchmarks.setting import (
    BenchmarkParser,
    chosen_backends,
    console,
    open_worker,
    print_end,
    print_setting,
    print_table,
)
from tests.benchmarks.subjects import add_model_option, present, subject
from tests.networks import Inputs

NOTHING = "nothing in flight"
SETTLE_FRAMES = 5


@dataclass
class Companion:
    """What runs beside the scene, and the frames of all its turns, in seconds."""

    worker: Worker | None = None
    inputs: Inputs = field(default_factory=dict)
    frames: list[np.ndarray] = field(default_factory=list)
    engine: list[np.ndarray] = field(default_factory=list)
    seconds: float = 0.0
    answers: int = 0


def play_turn(app: App, asker: Asker, companion: Companion, frames: int) -> None:
    """`frames` frames beside one companion, after a few that do not count."""
    asker.employ(companion.worker, companion.inputs)
    app.run(SETTLE_FRAMES)
    asker.answers = 0
    app.run(frames)
    companion.answers += asker.answers
    companion.frames.append(app.profiler.work.latest(frames))
    companion.seconds += float(app.profiler.interval.latest(frames).sum())
    if companion.worker is not None:
        companion.engine.append(app.profiler.samples[SAMPLE].latest(frames))
    while asker.pending is not None and not asker.pending.is_readback_request_done():
        asker.worker = None  # the next turn must not pay for this one's last question
        app.step()


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a component raised."""
    parser = BenchmarkParser("benchmarks.frames", __doc__)
    squeezenet = present(["squeezenet1.1_fp32"]) or ["light_squeezenet"]
    add_model_option(parser, ["digits", *squeezenet])
    parser.add_backends()
    parser.add_count("--frames", 120, "frames in a turn")
    parser.add_count("--rounds", 4, "turns of each")
    parser.add_count("--sprites", 60, "in the scene")
    parser.add_number("--rate", 60.0, "frames a second; 0 plays without a pause", "F")
    options = parser.parse_args(argv)
    channels = chosen_backends(options.backends)
    out = console()
    # The app comes first: job threads that are made afterwards leave it a core.
    with App(
        "frames", headless=True, seed=0, target_frame_rate=options.rate or 60.0, real_time=options.rate > 0
    ) as app:
        asker = build(app, options.sprites)
        pace = f"{options.rate:.0f} frames a second" if options.rate > 0 else "without a pause between frames"
        print_setting(
            out,
            "frame times of a game with a network beside it",
            {
                "scene": f"{options.sprites} sprites, a board; {app.size[0]}x{app.size[1]}, {pace}",
                "turns": f"{options.rounds} of {options.frames} frames each",
            },
        )
        companions = {NOTHING: Companion()}
        for name in present(options.models):
            item = subject(name)
            for channel in channels:
                worker = open_worker(ModelLoader.load(item.source), channel)
                infer(worker, item.inputs)
                companions[f"{name} on {channel}"] = Companion(worker, item.inputs)
        turns = list(take_turns(list(companions), options.rounds))
        for _, name in track(turns, description="playing", console=errors(), transient=True):
            play_turn(app, asker, companions[name], options.frames)
        for companion in companions.values():
            if companion.worker is not None:
                companion.worker.dispose()
        failed = len(app.errors)
    _print_frames(out, companions)
    print_end(out)
    return 1 if failed else 0


def _print_frames(out: Console, companions: dict[str, Companion]) -> None:
    columns = [
        "frame ms",
        "mean",
        "p50",
        "p95",
        "p99",
        "max",
        "nothing / this",
        "in the engine p50",
        "max",
        "answers/s",
    ]
    base = Spread.of(np.concatenate(companions[NOTHING].frames)).median
    rows = []
    for name, companion in companions.items():
        spread = Spread.of(np.concatenate(companion.frames))
        times = (spread.mean, spread.median, spread.p95, spread.p99, spread.max)
        row = [name, *(f"{ms:.2f}" for ms in times), f"{base / spread.median:.2f}"]
        if companion.engine:
            engine = Spread.of(np.concatenate(companion.engine))
            row += [
                f"{engine.median:.3f}",
                f"{engine.max:.2f}",
                f"{companion.answers / companion.seconds:.1f}",
            ]
        else:
            row += ["", "", ""]
        rows.append(row)
    print_table(out, columns, rows)


if __name__ == "__main__":
    raise SystemExit(main())
