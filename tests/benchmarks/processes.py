"""Runs `tests.benchmarks.child` for a network, in a process and, if wanted, with caches of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.subjects import Subject

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 900
"""Seconds that a child may take; compiling a large network's kernels for the CPU takes a minute."""


class ChildFailed(Exception):
    """The process ended badly; the message is the last line of what it wrote."""


def run_child(
    task: str,
    name: str,
    item: Subject,
    folder: Path,
    *options: str,
    environment: Mapping[str, str] | None = None,
    module: str = "tests.benchmarks.child",
) -> dict[str, float]:
    """The figures that the child prints. `folder` takes its files. Raises `ChildFailed`."""
    inputs = folder / f"{item.name}.npz"
    if not inputs.exists():
        with inputs.open("wb") as file:
            np.savez(file, **item.inputs)  # type: ignore[arg-type]
    command = [
        sys.executable,
        "-m",
        module,
        task,
        name,
        str(item.file(folder)),
        str(inputs),
    ]
    figures: dict[str, float] = last_line([*command, *options], environment)
    return figures


def last_line(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
    """What the last line that a child prints holds, as JSON. Raises `ChildFailed`."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode != 0:
        raise ChildFailed((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
    return json.loads(done.stdout.splitlines()[-1])


def own_caches(folder: Path) -> dict[str, str]:
    """An environment in which our kernels, and what drivers compile from them, are kept in `folder` only."""
    names = (
        "GAMEGLUE_CACHE_DIR",
        "MESA_SHADER_CACHE_DIR",
        "POCL_CACHE_DIR",
        "CUDA_CACHE_PATH",
        "XDG_CACHE_HOME",
    )
    made = {name: folder / name.lower() for name in names}
    for path in made.values():
        path.mkdir(parents=True, exist_ok=True)
    return {name: str(path) for name, path in made.items()}
