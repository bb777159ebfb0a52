"""What a player feels when a game loads a network while it runs: the longest frames of each stage.

    python -m tests.benchmarks.hitches --models squeezenet1.1_fp32 --backends cpu

A scene without a window plays at its rate. Caches are empty at first: `gameglue warmup` compiles in another
process, and the game plays on. Then a component makes the worker within one frame, asks it in the next, and
polls until the answer is there. The same again in a new process, which finds the caches filled. Then both
again with `app.load_worker`, which does all of that beside the frames: there "load" is the longest of the
frames until the worker is there. Each has its own caches in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.progress import track

from engine import ModelLoader, Worker
from gameglue import App, MonoBehaviour
from gameglue.cli.console import errors
from gameglue.host.garbage_collection import freeze_garbage_collector
from tests.benchmarks.child import read_inputs
from tests.benchmarks.processes import ChildFailed, own_caches, run_child
from tests.benchmarks.scene import build
from tests.benchmarks.setting import (
    CHANNELS,
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

SETTLE_FRAMES = 30

LIMIT = 600.0
"""Seconds that warming up or an answer may take."""

TASKS = ("cold", "warm", "cold-beside", "warm-beside")
"""With empty caches and a warm-up, and with what that has left; and the same loaded beside the frames."""

STAGES = ("nothing", "its p99", "warm-up", "load", "load's p99", "first question", "waiting", "after")
"""Nothing beside the scene, and what 99 % of those frames keep to; the other process at work; the frame that
makes the worker, or those in which it is made, and what 99 % of these keep to; the one that asks it first;
those until the answer; and those with one question after the other."""


def warmup_command(model: Path, channel: str) -> list[str]:
    """`gameglue warmup` for a backend."""
    choice = CHANNELS[channel]
    device = [] if choice.device is None else ["--device", choice.device]
    precision = [] if choice.precision == "float32" else ["--precision", choice.precision]
    named = ["--backend", choice.backend.value, *device, *precision]
    return [sys.executable, "-m", "gameglue", "warmup", str(model), *named, "--low-priority"]


class Loader(MonoBehaviour):
    """Makes a worker in its first frame."""

    path: str = ""
    channel: str = "cpu"

    def awake(self) -> None:
        self.worker: Worker | None = None

    def start(self) -> None:
        self.worker = open_worker(ModelLoader.load(self.path), self.channel)


def play(app: App, frames: int, until: Callable[[], bool] = lambda: False) -> float:
    """The longest of so many frames, or of those before a condition holds: seconds of the main thread."""
    return max(played(app, frames, until), default=0.0)


def played(app: App, frames: int, until: Callable[[], bool] = lambda: False) -> list[float]:
    """What each of so many frames took, or of those before a condition holds."""
    took: list[float] = []
    end = time.monotonic() + LIMIT
    while len(took) < frames and not until():
        if time.monotonic() > end:
            raise TimeoutError(f"no end after {LIMIT:.0f} s")
        app.run(1)
        took.append(float(app.profiler.work.latest(1)[0]))
    return took


class BesideLoader(MonoBehaviour):
    """Has a worker made beside the frames."""

    path: str = ""
    channel: str = "cpu"
    shapes: object = None

    def start(self) -> None:
        choice = CHANNELS[self.channel]
        self.loading = self.app.load_worker(
            self.path,
            choice.backend,
            device=choice.device,
            precision=choice.precision,
            allow_fallback=False,
            shapes=self.shapes,
        )


def play_beside(app: App, model: Path, channel: str, inputs: Inputs, found: dict[str, float]) -> Worker:
    """Have a worker made while the scene plays."""
    shapes = {name: tuple(array.shape) for name, array in inputs.items()}
    loader = app.scene.create("loader").add_component(
        BesideLoader, path=str(model.resolve()), channel=channel, shapes=shapes
    )
    began = time.perf_counter()
    frames: list[float] = []
    while not (hasattr(loader, "loading") and loader.loading.is_done()):
        frames.append(play(app, 1))
        if app.errors or time.perf_counter() - began > LIMIT:
            raise ChildFailed(str(app.errors[:1]))
    found["seconds"] = time.perf_counter() - began
    found["load"], found["load's p99"] = max(frames), float(np.percentile(frames, 99))
    return loader.loading.result()


def play_load(
    model: Path, channel: str, inputs: Inputs, rate: float, task: str, quiet_frames: int
) -> dict[str, float]:
    """The longest frame of each stage, and how long warming up took; seconds."""
    found: dict[str, float] = {}
    with (
        App("hitches", headless=True, seed=0, target_frame_rate=rate, real_time=True) as app,
        freeze_garbage_collector(),
    ):
        asker = build(app, sprites=60)
        play(app, SETTLE_FRAMES)
        quiet = played(app, quiet_frames)
        found["nothing"], found["its p99"] = max(quiet), float(np.percentile(quiet, 99))
        if task == "cold":
            began = time.perf_counter()
            with subprocess.Popen(warmup_command(model, channel), stdout=subprocess.DEVNULL) as other:
                found["warm-up"] = play(app, sys.maxsize, lambda: other.poll() is not None)
            if other.returncode != 0:
                raise ChildFailed(f"gameglue warmup ended with {other.returncode}")
            found["seconds"] = time.perf_counter() - began
        if task.endswith("beside"):
            worker = play_beside(app, model, channel, inputs, found)
        else:
            loader = app.scene.create("loader").add_component(Loader, path=str(model), channel=channel)
            found["load"] = play(app, 1)
            if loader.worker is None:
                raise ChildFailed(str(app.errors[0]))
            worker = loader.worker
        asker.employ(worker, inputs)
        found["first question"] = play(app, 1)
        found["waiting"] = play(app, sys.maxsize, lambda: asker.answers > 0 or bool(app.errors))
        found["after"] = play(app, quiet_frames)
        worker.dispose()
        if app.errors:
            raise ChildFailed(str(app.errors[0]))
    return found


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = BenchmarkParser("benchmarks.hitches", __doc__)
    squeezenet = present(["squeezenet1.1_fp32"]) or ["light_squeezenet"]
    add_model_option(parser, ["digits", *squeezenet])
    parser.add_backends()
    parser.add_count("--rate", 60, "frames a second", "F")
    parser.add_count(
        "--frames", 300, "frames with nothing beside the scene, and frames after the first answer"
    )
    parser.add_argument(
        "--tasks", nargs="+", choices=TASKS, default=TASKS, metavar="T", help="some of the rows"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a process failed."""
    options = parse(argv)
    channels = chosen_backends(options.backends)
    out = console()
    settings = {
        "frames": f"{options.rate} a second; times are those of the main thread's work",
        "stages": f"{options.frames} frames of nothing, and as many after the first answer",
    }
    print_setting(out, "the longest frame while a game loads a network", settings)
    rows: list[list[str]] = []
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tasks = [(model, channel) for model in present(options.models) for channel in channels]
        for model, channel in track(tasks, description="playing", console=errors(), transient=True):
            item = subject(model)
            for task in options.tasks:
                caches = own_caches(folder / f"{model} {channel} {task.partition('-')[2]}")
                try:
                    found = run_child(
                        task, channel, item, folder,
                        "--rate", str(options.rate), "--frames", str(options.frames),
                        environment=caches, module="tests.benchmarks.hitches",
                    )  # fmt: skip
                except ChildFailed as error:
                    problems.append(f"{model} on {channel}, {task}: {error}")
                    break
                stages = [f"{found[stage] * 1e3:.2f}" if stage in found else "" for stage in STAGES]
                seconds = f"{found['seconds']:.1f}" if "seconds" in found else ""
                rows.append([model, channel, task, seconds, *stages])
    print_table(out, ["longest frame, ms", "backend", "caches", "ready s", *STAGES], rows)
    for problem in problems:
        out.print(problem, markup=False)
    print_end(out)
    return 1 if problems else 0


def play_one(arguments: Sequence[str]) -> None:
    """One game of the table, in this process; prints its figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.hitches")
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("channel")
    parser.add_argument("model", type=Path)
    parser.add_argument("inputs")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--frames", type=int, required=True)
    options = parser.parse_args(arguments)
    inputs = read_inputs(options.inputs)
    found = play_load(options.model, options.channel, inputs, options.rate, options.task, options.frames)
    print(json.dumps(found), flush=True)
    # Without the disposal of everything, which is not measured.
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in TASKS:
        play_one(sys.argv[1:])
    raise SystemExit(main())
