"""How long the first answer takes: with empty caches, and again with what that run has left in them.

    python -m tests.benchmarks.cold --models digits --backends cpu gl_compute

Each figure comes from a process of its own, in seconds, with caches in a temporary folder, those of the
drivers included. onnxruntime keeps no cache; its second process shows what the system's file cache gives.
On a busy machine the first rows are the long ones: kernels are compiled by a process of low priority.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.progress import track

from gameglue.cli.console import errors
from tests.benchmarks.child import PEER
from tests.benchmarks.processes import ChildFailed, own_caches, run_child
from tests.benchmarks.setting import (
    BenchmarkParser,
    chosen_backends,
    console,
    print_end,
    print_setting,
    print_table,
)
from tests.benchmarks.subjects import add_model_option, present, subject

STEPS = ("import", "import model", "worker", "first run", "second run")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a process failed."""
    parser = BenchmarkParser("benchmarks.cold", __doc__)
    squeezenet = present(["squeezenet1.1_fp32"]) or ["light_squeezenet"]
    add_model_option(parser, ["digits", *squeezenet])
    parser.add_backends()
    options = parser.parse_args(argv)
    channels = chosen_backends(options.backends)
    out = console()
    print_setting(out, "from nothing to the first answer, s", {})
    columns = ["model", "runner", "caches", *STEPS, "to the first answer", "files", "MiB"]
    rows: list[list[str]] = []
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jobs = [(model, runner) for model in present(options.models) for runner in (PEER, *channels)]
        for model, runner in track(jobs, description="measuring", console=errors(), transient=True):
            item = subject(model)
            caches = folder / f"{model} {runner}"
            for state in ("empty", "filled"):
                try:
                    found = run_child("load", runner, item, folder, environment=own_caches(caches))
                except ChildFailed as error:
                    problems.append(f"{model} on {runner}, caches {state}: {error}")
                    break
                steps = [f"{found[step]:.3f}" if step in found else "" for step in STEPS]
                until_first = sum(found.get(step, 0.0) for step in STEPS[:-1])
                # onnxruntime leaves notes of its own there, but no kernels.
                size = _size(caches) if runner != PEER else ("", "")
                rows.append([model, runner, state, *steps, f"{until_first:.3f}", *size])
    print_table(out, columns, rows)
    for problem in problems:
        out.print(problem, markup=False)
    print_end(out)
    return 1 if problems else 0


def _size(folder: Path) -> tuple[str, str]:
    """How many files a folder holds, and how much that is."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return str(len(sizes)), f"{sum(sizes) / 2**20:.1f}"


if __name__ == "__main__":
    raise SystemExit(main())
