"""Record the demos' animated pictures.

    python -m assets.screenshots.record            # all, in about four minutes on two cores
    python -m assets.screenshots.record smoke rival

Each demo plays itself without a window. `--animation` keeps the last six seconds at the game's own speed: a
frame stands for 1/60 s however long it takes to draw, and waits for the networks' answers. So every machine
makes the same pictures, but for the figures in milliseconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

RUNS = {
    "chatter": (3, 600),
    "digits": (3, 420),
    "gesture": (9, 480),
    "othello": (6, 420),
    "painter": (1, 400),
    "rival": (5, 1500),
    "smoke": (3, 500),
    "swarm": (3, 420),
    "upscale": (4, 500),
}
"""The seed and the number of frames for each demo. The last 360 frames are seen."""


def command(name: str, target: Path) -> list[str]:
    """The arguments of `gameglue` that record a demo."""
    seed, frames = RUNS[name]
    play = ["play", name, "--headless", "--backend", "cpu", "--seed", str(seed), "--frames", str(frames)]
    return [*play, "--animation", str(target)]


def main(argv: Sequence[str] | None = None) -> int:
    """Record the demos that are named, or all; print the size of each picture."""
    parser = argparse.ArgumentParser(prog="python -m assets.screenshots.record", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="DEMO", help=f"some of {', '.join(RUNS)}. Default: all")
    names = parser.parse_args(argv).names or list(RUNS)
    if unknown := sorted(set(names) - set(RUNS)):
        parser.error(f"no such demo: {', '.join(unknown)}")
    for name in names:
        target = FOLDER / f"{name}.gif"
        with tempfile.TemporaryDirectory() as folder:  # for the screenshot and the report
            subprocess.run(
                [sys.executable, "-m", "gameglue", *command(name, target)],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                check=True,
            )
        print(f"{target.name}: {target.stat().st_size:,} bytes", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
