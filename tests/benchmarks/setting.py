"""What every benchmark has: backends by name, a head that says where the figures come from, tables."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from engine import BackendType, JobSystem, Model, SystemInfo, Worker
from gameglue.cli.console import CompileProgress, properties, table
from gameglue.inference.backend_choice import BACKEND_CHOICES, BackendChoice, why_unavailable

ROOT = Path(__file__).resolve().parents[2]

DEFAULT = ("cpu", "gl_compute", "opencl", "gl_pixel")
"""The four backends by the names that plan reports use."""

CHANNELS: dict[str, BackendChoice] = {
    **dict(zip(DEFAULT, BACKEND_CHOICES, strict=True)),
    "cpu-bf16": BackendChoice(BackendType.CPU, precision="bf16"),
}
"""What may be measured: the backends, and the CPU's with products in bfloat16."""


def console() -> Console:
    """Standard output, wide enough for any table here."""
    return Console(highlight=False, width=180)


def positive(text: str) -> int:
    """A whole number above 0, from the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"needs a whole number above 0, got {text!r}")
    return int(text)


class BenchmarkParser(argparse.ArgumentParser):
    """The command line of a benchmark, with the options that many of them take."""

    def __init__(self, module: str, description: str | None) -> None:
        super().__init__(
            prog=f"python -m tests.{module}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def add_count(self, option: str, default: int, meaning: str, unit: str = "N") -> None:
        """Add an option that takes a whole number above 0."""
        self.add_argument(
            option, type=positive, default=default, metavar=unit, help=f"{meaning}. Default: {default}"
        )

    def add_counts(self, option: str, default: list[int], meaning: str) -> None:
        """Add an option that takes several whole numbers above 0."""
        shown = " ".join(map(str, default))
        self.add_argument(
            option,
            type=positive,
            nargs="+",
            default=default,
            metavar="N",
            help=f"{meaning}. Default: {shown}",
        )

    def add_number(self, option: str, default: float, meaning: str, unit: str) -> None:
        """Add an option that takes a number."""
        self.add_argument(
            option, type=float, default=default, metavar=unit, help=f"{meaning}. Default: {default:g}"
        )

    def add_backends(self, default: str = "what this machine has") -> None:
        """Add `--backends`; `default` says what is taken without it."""
        self.add_argument(
            "--backends",
            nargs="+",
            choices=tuple(CHANNELS),
            metavar="NAME",
            help=f"some of {', '.join(CHANNELS)}. Default: {default}",
        )


def chosen_backends(wanted: Sequence[str] | None) -> list[str]:
    """The backends asked for, or all, that this machine has; standard error tells why others are not here."""
    found = []
    for name in wanted or DEFAULT:
        reason = why_unavailable(CHANNELS[name], SystemInfo.query())
        if reason is None:
            found.append(name)
        else:
            print(f"{name} is left out: {reason}", file=sys.stderr)
    return found


def open_worker(model: Model, channel: str, jobs: JobSystem | None = None) -> Worker:
    """A worker whose layers all run on the backend; a bar shows how far compiling is.

    Raises `UnsupportedLayerError` where the backend cannot do it alone.
    """
    choice = CHANNELS[channel]
    with CompileProgress(f"{channel}: preparing kernels") as progress:
        return Worker(
            model,
            choice.backend,
            device=choice.device,
            precision=choice.precision,
            allow_fallback=False,
            jobs=jobs,
            progress=progress,
        )


def print_setting(out: Console, title: str, settings: Mapping[str, object]) -> None:
    """Say what is measured, on what machine, and how busy it is."""
    info = SystemInfo.query()
    versions = [f"Python {platform.python_version()}"]
    names = ["gameglue", "numpy", "onnxruntime", *(["openvino"] if find_spec("openvino") else [])]
    versions += [f"{name} {_version(name)}" for name in names]
    out.print(f"[bold]{title}[/bold]")
    properties(
        out,
        [
            ("date", f"{date.today():%Y-%m-%d}"),
            ("command", " ".join(["python", *sys.orig_argv[1:]])),
            ("commit", _commit()),
            ("machine", f"{info.cpu_name}, {info.cpu_cores} core(s), {info.operating_system}"),
            ("features", " ".join(info.cpu_features)),
            ("OpenGL", info.gl.renderer if info.gl is not None else info.gl_reason),
            ("OpenCL", info.cl_devices[0].name if info.cl_devices else info.cl_reason),
            ("versions", ", ".join(versions)),
            ("load average", load_average()),
            *settings.items(),
        ],
    )
    out.print()


def print_table(out: Console, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table whose first column is names and whose others are numbers."""
    out.print(table(columns, rows, right=columns[1:]))


def print_end(out: Console) -> None:
    """Say how busy the machine is after measuring."""
    out.print(f"\nload average at the end: {load_average()}")


def load_average() -> str:
    """How many processes wanted a core lately."""
    if not hasattr(os, "getloadavg"):
        return "not told by this system"
    return "{:.2f} (1 min), {:.2f} (5 min)".format(*os.getloadavg()[:2])


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


def _commit() -> str:
    commit = _git("describe", "--always")
    if commit is None:
        return "unknown"
    return f"{commit}, and changes that are not committed" if uncommitted() else commit


def uncommitted() -> list[str]:
    """Files of the source tree with changes that are not committed; documentation does not count."""
    told = _git("status", "--porcelain", "--", ":/", ":(top,exclude)docs", ":(top,exclude)*.md")
    return [line[3:] for line in (told or "").splitlines()]


def _git(*arguments: str) -> str | None:
    """What git prints; `None` without git, or outside a clone."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.rstrip()
