"""What `tests.benchmarks.models` measures in processes of their own: memory, and starts with empty caches."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import track

from gameglue.cli.console import errors
from tests.benchmarks import bars
from tests.benchmarks.child import PEER
from tests.benchmarks.processes import ChildFailed, own_caches, run_child
from tests.benchmarks.report import JUDGED, Report
from tests.benchmarks.setting import print_table
from tests.benchmarks.subjects import Subject, subject

Problems = list[tuple[str, str, str]]
"""Network, contender, what went wrong."""

RUNS = 5
"""Inferences after the first."""


def add_memory(out: Console, report: Report) -> Problems:
    """Print what processes grow by, at most, over loading and running; judge the backend's growth."""
    columns = ["peak of memory over load and run, MiB", PEER]
    for channel in report.channels:
        columns += [channel, "ours / theirs"]
    verdict = report.add_verdict(f"memory on {JUDGED}", f"at most {bars.PEAK_RATIO:.1f} of {PEER}'s")
    rows, problems = [], Problems()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = ("--runs", str(RUNS), "--warm-up", str(subject("policy").file(folder)))
        for item in _subjects(report, "memory"):
            peaks: dict[str, float] = {}
            for runner in (PEER, *report.channels):
                try:
                    peaks[runner] = run_child("memory", runner, item, folder, *options)["peak"]
                except ChildFailed as error:
                    problems.append((item.name, runner, str(error)))
            row = [item.name, f"{peaks[PEER]:.1f}" if PEER in peaks else "-"]
            for channel in report.channels:
                if channel not in peaks or PEER not in peaks:
                    row += ["-", "-"]
                    continue
                ratio = f"{peaks[channel] / peaks[PEER]:.2f}"
                if channel == JUDGED:
                    ratio = verdict.judge(item.name, ratio, peaks[channel] <= bars.PEAK_RATIO * peaks[PEER])
                row += [f"{peaks[channel]:.1f}", ratio]
            rows.append(row)
    print_table(out, columns, rows)
    out.print()
    return problems


def add_cold(out: Console, report: Report) -> Problems:
    """Print how long the first answer takes with empty caches, imports included."""
    named = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in bars.COLD_SECONDS.items())
    verdict = report.add_verdict(f"first answer on {JUDGED}, empty caches", f"at most {named}")
    rows, problems = [], Problems()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for item in _subjects(report, "empty caches"):
            row = [item.name]
            for channel in report.channels:
                try:
                    caches = own_caches(folder / f"{item.name} {channel}")
                    found = run_child("load", channel, item, folder, environment=caches)
                except ChildFailed as error:
                    problems.append((item.name, channel, str(error)))
                    row.append("-")
                    continue
                seconds = sum(taken for step, taken in found.items() if step != "second run")
                figure = f"{seconds:.2f}"
                if channel == JUDGED and item.name in bars.COLD_SECONDS:
                    figure = verdict.judge(item.name, figure, seconds <= bars.COLD_SECONDS[item.name])
                row.append(figure)
            rows.append(row)
    print_table(out, ["first answer with empty caches, s", *report.channels], rows)
    out.print()
    return problems


def _subjects(report: Report, what: str) -> Iterator[Subject]:
    for name in track(list(report.results), description=what, console=errors(), transient=True):
        yield subject(name)
