"""Models that people bring, on every backend, against onnxruntime.

    python -m tests.field --sources published --backends cpu
    python -m tests.field --models 'published/silero*' --json field.json

Packages, environments and models are cached in the per-user cache folder; the first run installs and makes
them. Prints one table, then what is wrong. The exit code is 1 if any model disagrees, fails or falls back
for a reason that `tests/field/accepted.py` does not list.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from gameglue.cli.console import table
from tests.benchmarks.setting import BenchmarkParser, chosen_backends, console
from tests.field.accepted import reason
from tests.field.preparing import SOURCES, Source, SourceFailed, prepare
from tests.field.running import SECONDS, Row, run_model

FAILED_SUFFIX = ".failed"
"""A source writes NAME.failed, with the reason, for a model that it could not make."""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = BenchmarkParser("field", __doc__)
    names = [source.name for source in SOURCES]
    parser.add_argument(
        "--sources",
        nargs="+",
        choices=names,
        default=names,
        metavar="NAME",
        help=f"some of {', '.join(names)}. Default: all",
    )
    parser.add_backends()
    parser.add_argument(
        "--models",
        nargs="+",
        default=["*"],
        metavar="PATTERN",
        help="only those whose SOURCE/NAME fits, with wildcards",
    )
    parser.add_argument(
        "--folder", type=Path, help="take the models that are in a folder instead of sources'"
    )
    parser.add_argument("--sample", action="store_true", help="only a few small published models")
    parser.add_number("--seconds", SECONDS, "that a model may take on a backend", "S")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to a file")
    return parser.parse_args(argv)


def models_in(folder: Path, source: str, patterns: Sequence[str]) -> list[Path]:
    """Models and failures of a folder whose names fit."""
    files = sorted((*folder.glob("*.onnx"), *folder.glob(f"*{FAILED_SUFFIX}")))
    return [f for f in files if any(fnmatch.fnmatch(f"{source}/{f.stem}", p) for p in patterns)]


def run_folder(
    folder: Path, source: str, patterns: Sequence[str], backends: Sequence[str], seconds: float = SECONDS
) -> Iterable[Row]:
    """Every model of a folder on every backend, each reported as it comes."""
    for path in models_in(folder, source, patterns):
        if path.suffix == FAILED_SUFFIX:
            yield Row(source, path.stem, "source", failure=path.read_text(encoding="utf-8").strip())
        else:
            yield from run_model(source, path, backends, seconds)


def show(rows: Sequence[Row]) -> None:
    """The table, and what is wrong."""
    right = ("error", "onnxruntime's", "load ms", "run ms", "ratio")
    out = console()
    out.print(
        table(
            ("model", "source", "backend", *right[:2], "fallbacks", *right[2:], ""),
            (
                (
                    r.model,
                    r.source,
                    r.backend,
                    f"{r.error:.1e}",
                    f"{r.own:.1e}",
                    _counted(r),
                    f"{r.load_ms:.0f}",
                    f"{r.run_ms:.2f}",
                    f"{r.ratio:.2f}",
                    _verdict(r),
                )
                for r in rows
            ),
            right=right,
        )
    )
    for row in rows:
        for problem in row.problems:
            out.print(f"{row.source}/{row.model} on {row.backend}: {problem}", markup=False)
    wrong = sum(bool(row.problems) for row in rows)
    models = {(row.source, row.model) for row in rows}
    out.print(f"{len(models)} models, {len(rows)} runs, {wrong} not as they should be")
    out.print("ratio: onnxruntime's time / this engine's; above 1, this engine is faster")


def _counted(row: Row) -> str:
    return ", ".join(sorted({op_type for op_type, _ in row.fallbacks})) or "-"


def _verdict(row: Row) -> str:
    if row.problems:
        return "FAILS"
    name = f"{row.source}/{row.model}"
    if not row.failure and row.by_float64:
        return f"within {row.by_float64:.1e}, by float64"
    return (reason(name, row.backend, row.failure) or "accepted") if row.failure else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was asked for."""
    options = parse(argv)
    backends = chosen_backends(options.backends)
    rows: list[Row] = []

    def run(folder: Path, source: str) -> None:
        for row in run_folder(folder, source, options.models, backends, options.seconds):
            rows.append(row)
            state = "; ".join(row.problems)[:160] or "agrees"
            print(f"{source}/{row.model} on {row.backend}: {state}", file=sys.stderr, flush=True)

    chosen = [Source("published")] if options.sample else [s for s in SOURCES if s.name in options.sources]
    if options.folder is not None:
        run(options.folder, options.folder.name)
        chosen = []
    for source in chosen:
        try:
            folder = prepare(source, ["--sample"] if options.sample else [])
        except SourceFailed as error:
            rows.append(Row(source.name, "(all)", "source", failure=str(error)))
            continue
        run(folder, source.name)
    show(rows)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
    return int(any(row.problems for row in rows))


if __name__ == "__main__":
    sys.exit(main())
