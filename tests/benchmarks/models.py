"""Whole networks, side by side: our backends, onnxruntime and OpenVINO take turns on the same inputs.

    python -m tests.benchmarks.models --models squeezenet1.1_fp32 mnist-12 --backends cpu
    python -m tests.benchmarks.models --backends cpu --short

A time is that of one inference from arrays to arrays (schedule, compute, read back). Outputs are compared
before anything is timed. Tables: times, with ratios theirs / ours (above 1, this engine is faster); the cpu
backend given tensors as a dict and by `set_input`, in a loop and once a frame of 16 ms; what
`schedule` costs the calling thread, in time and in Python's memory; loading with all kernels compiled;
errors; on demand the growth of memory, and the first answer with empty caches. Figures of the CPU backend
that miss the bars in `tests/benchmarks/bars.py` are marked.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.progress import track

from gameglue.cli.console import errors
from tests.benchmarks.children import add_cold, add_memory
from tests.benchmarks.measuring import SCHEDULES, Pace, Result, measure
from tests.benchmarks.peers import PEERS, add_peer_option, installed
from tests.benchmarks.report import Report
from tests.benchmarks.setting import (
    BenchmarkParser,
    chosen_backends,
    console,
    positive,
    print_end,
    print_setting,
)
from tests.benchmarks.subjects import (
    LARGE,
    NAMES,
    OPTIONAL,
    Subject,
    add_model_option,
    in_folder,
    present,
    subject,
)

SHORT = Pace(rounds=3, turn=0.02, budget=0.3, loads=1, schedule=0.1)
"""With which the default set, without the largest networks, takes less than a minute."""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = BenchmarkParser("benchmarks.models", __doc__)
    standard = present([name for name in NAMES if name not in OPTIONAL])
    add_model_option(parser, standard)
    parser.add_backends()
    add_peer_option(parser)
    parser.add_argument(
        "--folder",
        type=Path,
        help="instead of these the models of a folder, as python -m tests.field leaves published ones",
    )
    pace = Pace()
    parser.add_argument(
        "--short",
        action="store_true",
        help=f"less than a minute: few turns, and by default without {', '.join(LARGE)}",
    )
    parser.add_argument(
        "--runs", type=positive, metavar="N", help=f"turns of each contender. Default: {pace.rounds}"
    )
    parser.add_count("--threads", 2, "of the cpu backend and of the peers")
    parser.add_argument(
        "--turn", type=float, metavar="S", help=f"seconds of calls in one turn. Default: {pace.turn}"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help=f"a contender's time in all; then it sits out. Default: {pace.budget}",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="also the growth of memory, of onnxruntime and the backends, in processes of their own",
    )
    parser.add_argument(
        "--cold", action="store_true", help="also the first answer with empty caches, in a process of its own"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    options = parser.parse_args(argv)
    if options.short and options.models == standard:
        options.models = [name for name in standard if name not in LARGE]
    return options


def chosen_pace(options: argparse.Namespace) -> Pace:
    """The default or the short pace, with what the command line says instead."""
    pace = SHORT if options.short else Pace()
    return Pace(
        options.runs or pace.rounds,
        pace.turn if options.turn is None else options.turn,
        pace.budget if options.seconds is None else options.seconds,
        pace.loads,
        pace.schedule,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if some output is wrong or some network does not run."""
    options = parse(argv)
    channels, peers, pace = chosen_backends(options.backends), installed(options.peers), chosen_pace(options)
    out = console()
    print_setting(
        out,
        "networks: one inference from arrays to arrays",
        {
            "threads": f"{options.threads} for the cpu backend and the peers, for others what drivers like",
            "times": f"medians over {pace.rounds} turns of {pace.turn} s, or {pace.budget} s in all",
            "loads": f"the shortest of {pace.loads}, in turns",
            "schedule()": f"medians over {SCHEDULES} calls before the turns and after them, the lesser one",
        },
    )
    # The first session takes longer than any other.
    first = subject("policy")
    for peer in peers:
        PEERS[peer](first.source, options.threads)(first.inputs)
    results: dict[str, Result] = {}
    wanted: list[Callable[[], Subject]] = [partial(subject, name) for name in present(options.models)]
    if options.folder is not None:
        wanted = [partial(lambda one: one, found) for found in in_folder(options.folder)]
    for make in track(wanted, description="networks", console=errors(), transient=True):
        item = make()
        results[item.name] = measure(item, peers, channels, options.threads, pace)
    report = Report(results, peers, channels)
    report.print(out)
    problems = [
        (name, contender, known.problem)
        for name, result in results.items()
        for contender, known in result.loaded.items()
        if known.problem
    ]
    if options.memory:
        problems += add_memory(out, report)
    if options.cold:
        problems += add_cold(out, report)
    report.print_verdicts(out)
    for name, contender, problem in problems:
        out.print(f"{name} on {contender}: {problem}", markup=False)
    print_end(out)
    if options.json is not None:
        options.json.write_text(json.dumps(report.figures(), indent=1), encoding="utf-8")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
