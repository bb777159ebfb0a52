"""How much memory a network takes: growth of a process over loading and running it, here and in onnxruntime.

    python -m tests.benchmarks.memory --models squeezenet1.1_fp32 --backends cpu

Each figure comes from a process of its own. What it occupies after its imports and a small first model, which
brings late imports and the device's context, is the base; growth is what comes on top, in MiB. Software
drivers keep their buffers in the process too; the memory of a graphics card is not seen here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.progress import track

from gameglue.cli.console import errors
from tests.benchmarks.child import PEER
from tests.benchmarks.processes import ChildFailed, run_child
from tests.benchmarks.setting import (
    BenchmarkParser,
    chosen_backends,
    console,
    print_end,
    print_setting,
    print_table,
)
from tests.benchmarks.subjects import add_model_option, present, subject

DEFAULT = (
    "digits",
    "squeezenet1.1_fp32",
    "super_resolution_x3",
    "yunet_n_320",
    "light_squeezenet",
    "light_resnet50",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a process failed."""
    parser = BenchmarkParser("benchmarks.memory", __doc__)
    add_model_option(parser, present(DEFAULT))
    parser.add_backends()
    parser.add_count("--runs", 5, "inferences after the first")
    options = parser.parse_args(argv)
    channels = chosen_backends(options.backends)
    out = console()
    print_setting(
        out,
        "memory: growth of a process over load and run, MiB",
        {"runs": f"one, and {options.runs} more; onnxruntime with 2 threads"},
    )
    columns = [
        "model",
        "runner",
        "file",
        "base",
        "loaded",
        "after the first run",
        "after all",
        "peak",
        "peak x",
    ]
    rows: list[list[str]] = []
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        warm_up = subject("policy").file(folder)
        jobs = [(model, runner) for model in present(options.models) for runner in (PEER, *channels)]
        peer_peak = 0.0
        for model, runner in track(jobs, description="measuring", console=errors(), transient=True):
            item = subject(model)
            size = item.file(folder).stat().st_size / 2**20
            try:
                found = run_child(
                    "memory", runner, item, folder, "--runs", str(options.runs), "--warm-up", str(warm_up)
                )
            except ChildFailed as error:
                problems.append(f"{model} on {runner}: {error}")
                continue
            if runner == PEER:
                peer_peak = found["peak"]
            ratio = f"{found['peak'] / peer_peak:.2f}" if peer_peak > 0.0 else ""
            rows.append([model, runner, *(f"{mib:.1f}" for mib in (size, *found.values())), ratio])
    print_table(out, columns, rows)
    for problem in problems:
        out.print(problem, markup=False)
    print_end(out)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
