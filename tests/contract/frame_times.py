"""Frame times of a scene with a network in flight and without one, in turns, as a line of JSON.

python -m tests.contract.frame_times cpu squeezenet
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

import numpy as np

from engine import Worker
from gameglue import App
from gameglue.profiling.benchmark_cases import infer
from tests.benchmarks.scene import build
from tests.contract.networks import network, picture
from tests.contract.place import Place

TURNS = 4
FRAMES = 40
PATIENCE = 60.0
"""Seconds that the first answer may take."""


def play(app: App, frames: int) -> np.ndarray:
    """Times of so many frames on the main thread, in ms, with a pause after each as in a game."""
    for _ in range(frames):
        app.step()
        time.sleep(0.004)
    return 1e3 * app.profiler.work.latest(frames)


def main(arguments: Sequence[str]) -> None:
    """Print the median and the 99th percentile of both sides."""
    channel, name = arguments
    with App("frames", headless=True, seed=0, real_time=False) as app:
        place = Place(channel, is_counted=False)
        asker = build(app, 30)
        app.run(10)
        of = network(name)
        worker, inputs = place.worker(of), picture(of)
        infer(worker, inputs)
        sides: dict[str, list[np.ndarray]] = {"without": [], "with": []}
        for turn in range(2 * TURNS):
            side = "with" if turn % 2 else "without"
            employed: Worker | None = worker if turn % 2 else None
            asker.employ(employed, inputs)
            play(app, 4)
            sides[side].append(play(app, FRAMES))
        # On a busy machine a large network may be asked for longer than the turns last.
        end = time.monotonic() + PATIENCE
        while not asker.answers and time.monotonic() < end:
            play(app, 4)
        worker.dispose()
    found = {side: np.percentile(np.concatenate(times), (50, 99)).tolist() for side, times in sides.items()}
    print(json.dumps({**found, "answers": asker.answers}))


if __name__ == "__main__":
    main(sys.argv[1:])
