"""Console output: tables, key-value lines, and a progress bar."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text


def output(room: int | None = None) -> Console:
    """Standard output; without colours and `room` columns wide if it is no terminal."""
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else room)


def errors() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def command_line(*words: object) -> str:
    """The words of a command as the system's shell takes them."""
    texts = [str(word) for word in words]
    return subprocess.list2cmdline(texts) if os.name == "nt" else shlex.join(texts)


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def print_json(data: object) -> None:
    """Print data on standard output as JSON; numbers that JSON lacks (infinite, NaN) become null."""
    print(json.dumps(json_types(data), indent=2, allow_nan=False))


def json_types(data: object) -> Any:
    """Convert data to JSON types: records to objects, arrays to lists, other values to strings."""
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return {field.name: json_types(getattr(data, field.name)) for field in dataclasses.fields(data)}
    if isinstance(data, Mapping):
        return {str(name): json_types(value) for name, value in data.items()}
    if isinstance(data, np.ndarray | np.generic):
        return json_types(data.tolist())
    if isinstance(data, list | tuple | set | frozenset):
        return [json_types(value) for value in (sorted(data) if isinstance(data, set | frozenset) else data)]
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    return data if data is None or isinstance(data, bool | int | str) else str(data)


def paragraph(*sentences: str) -> str:
    """Wrap sentences for a help text whose examples keep their lines."""
    return textwrap.fill(" ".join(sentences), 80)


def properties(console: Console, rows: Iterable[tuple[str, object]], indent: int = 0) -> None:
    """Print names and values in two columns; a value of several lines stays in its column."""
    listed = [(name, str(value)) for name, value in rows]
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        first, *rest = value.split("\n")
        console.print(Text(" " * indent).append(f"{name:{width}}  ", style="cyan").append(first))
        for line in rest:
            console.print(Text(" " * (indent + width + 2) + line))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> Table:
    """A plain table; the columns named in `right` are aligned to the right."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return made


def title(console: Console, text: str) -> None:
    """A heading with an empty line above it."""
    console.print()
    console.print(Text(text, style="bold"))


@contextmanager
def measuring() -> Iterator[Callable[[int, int], None]]:
    """Context manager: shows a progress bar on a terminal; yields a function of (done, total)."""
    console = errors()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("measuring", total=None)

        def show(done: int, wanted: int) -> None:
            bar.update(task, completed=done, total=wanted)

        yield show


class CompileProgress:
    """A bar that appears where preparing kernels takes its time; `Worker(progress=bar)` calls it.

    Where standard error is no terminal, it is one line.
    """

    def __init__(self, label: str = "preparing kernels", *, patience: float = 0.5) -> None:
        """`patience`: after how many seconds to appear; kernels that come from the cache take less."""
        self._label = label
        self._patience = patience
        self._console = errors()
        self._began: float | None = None
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._has_reported = False

    def __call__(self, done: int, wanted: int) -> None:
        """`done` of `wanted` kernels are ready."""
        now = time.perf_counter()
        if self._began is None:
            self._began = now
        if now - self._began < self._patience or (done >= wanted and self._bar is None):
            return
        if not self._console.is_terminal:
            if not self._has_reported:
                self._console.print(f"{self._label}: {wanted} in all, cached for later runs", markup=False)
            self._has_reported = True
            return
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task(self._label, total=wanted)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=wanted)

    def close(self) -> None:
        """Remove the progress bar."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
