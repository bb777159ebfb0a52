"""Runs models in child processes and collects what came of each on each backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.field.accepted import reason
from tests.field.preparing import ROOT

GIB = 8.0
SECONDS = 300.0
"""What a child may use, and how long a model may take on one backend."""
NAN = float("nan")


@dataclass
class Row:
    """A model on a backend. `failure` is empty where all outputs agree.

    by_float64: the largest bound that onnxruntime's distance from float64 gave, 0 where none was needed.
    """

    source: str
    model: str
    backend: str
    failure: str = ""
    error: float = NAN
    bound: float = NAN
    own: float = NAN
    by_float64: float = 0.0
    fallbacks: list[tuple[str, str]] = field(default_factory=list)
    load_ms: float = NAN
    run_ms: float = NAN
    ratio: float = NAN
    sizes: int = 0

    @property
    def problems(self) -> list[str]:
        """What is wrong and accepted by nobody."""
        messages = [self.failure] if self.failure else []
        messages += [f"{op_type}: {why}" for op_type, why in self.fallbacks]
        return [m for m in messages if reason(f"{self.source}/{self.model}", self.backend, m) is None]


def run_model(source: str, model: Path, backends: Sequence[str], seconds: float = SECONDS) -> Iterator[Row]:
    """A row for each backend; where the process dies, the others run in another one."""
    left = list(backends)
    while left:
        lines, ended = _run_child(model, left, seconds)
        figures = next((line["reference"] for line in lines if "reference" in line), None)
        if figures is None or "failure" in figures:
            message = ended if figures is None else figures["failure"]
            yield from (Row(source, model.stem, name, failure=f"no reference: {message}") for name in left)
            return
        found = {line.pop("backend"): line for line in lines if "backend" in line}
        begun = [line["begins"] for line in lines if "begins" in line]
        for name in begun:
            row = Row(source, model.stem, name, own=figures["own"], sizes=figures["sizes"])
            for key, value in found.get(name, {"failure": ended}).items():
                setattr(row, key, [tuple(pair) for pair in value] if key == "fallbacks" else value)
            row.ratio = figures["run_ms"] / row.run_ms
            yield row
        if not begun:
            yield from (Row(source, model.stem, name, failure=ended) for name in left)
            return
        left = [name for name in left if name not in begun]


def _run_child(model: Path, backends: Sequence[str], seconds: float) -> tuple[list[dict], str]:
    """What the child reported, and how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.jsonl"
        results.touch()
        command = [
            sys.executable,
            "-m",
            "tests.field.child",
            str(model),
            str(results),
            str(seconds),
            str(GIB),
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "GAMEGLUE_STORED_PLANS": "off"}
        with (Path(folder) / "errors").open("w+", encoding="utf-8", errors="replace") as errors:
            try:
                # The child ends itself; this is for one that no longer can.
                limit = seconds * (len(backends) + 1) + 60
                done = subprocess.run(
                    [*command, *backends],
                    cwd=ROOT,
                    env=environment,
                    stdout=errors,
                    stderr=errors,
                    timeout=limit,
                    check=False,
                )
                ended = f"exit code {done.returncode}"
            except subprocess.TimeoutExpired:
                ended = "timed out"
            errors.seek(0)
            written = errors.read().strip()
        lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
        if "Timeout (" in written:
            stack = written.rpartition("(most recent call first):")[2]
            return lines, f"took more than {seconds:.0f} s, at{stack[:600]}"
        return lines, f"the process ended ({ended}): {written[-600:]}"
