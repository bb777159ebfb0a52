"""`gameglue bench MODEL`: one model on every backend of this machine and on onnxruntime, in one run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
from rich.table import Table

from engine import Model, SystemInfo
from engine.base.errors import EngineError, InputError
from gameglue.cli.backends import add_backend_options, add_precision_option, choice_of
from gameglue.cli.bench_layers import show_layers
from gameglue.cli.console import (
    CompileProgress,
    add_json_option,
    measuring,
    output,
    paragraph,
    print_json,
    properties,
    table,
)
from gameglue.cli.models import add_input_options, add_model_options, load_model, make_inputs
from gameglue.cli.play import positive
from gameglue.inference.backend_choice import BackendChoice, matching_choices, open_worker, why_unavailable
from gameglue.profiling.benchmark_cases import Arrays, infer, onnxruntime_call
from gameglue.profiling.compare import CallTimes, alternate

Call = Callable[[], Arrays]
"""One way to run the model: all its outputs, by name."""

PEER = "onnxruntime"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, line: str) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        name,
        help=line,
        description=paragraph(
            "Time a model on every backend of this machine, and on onnxruntime where that is installed.",
            "Backends alternate within one run, for equal conditions; each turn is one warm-up inference",
            "and one timed inference. A time covers one inference from arrays to arrays: schedule,",
            "compute, read back. Speeds are medians of ratios to the named backend: above 1 is faster.",
        ),
        epilog="examples:\n  gameglue bench digits\n  gameglue bench net.onnx --dim batch=8 --runs 50\n"
        "  gameglue bench net.onnx --precision bf16\n"
        "  gameglue bench net.onnx --layers --backend cpu --top 20",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_options(parser)
    add_input_options(parser)
    add_backend_options(parser, "all of them")
    add_precision_option(parser)
    parser.add_argument(
        "--runs", type=positive, default=20, metavar="N", help="number of timed runs per backend. Default: 20"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        metavar="S",
        help="time limit, divided evenly among the backends. Default: 60",
    )
    parser.add_argument(
        "--layers",
        action="store_true",
        help="time each layer on one backend instead (default: cpu), compared with the kernels of "
        "onnxruntime. Blocks while it measures; on OpenGL every layer is waited for, which takes some "
        "microseconds each",
    )
    parser.add_argument("--top", type=positive, metavar="N", help="with --layers: show only the N slowest")
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare the outputs, then the times."""
    path, model = load_model(arguments)
    inputs = make_inputs(model, arguments)
    if arguments.layers:
        return show_layers(path, model, inputs, arguments)
    if arguments.top is not None:
        raise InputError("--top goes with --layers")
    wanted = choice_of(arguments)
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        contenders: dict[str, Call] = {}
        peer = _onnxruntime(path, inputs)
        if isinstance(peer, str):
            absent[PEER] = peer
        else:
            contenders[PEER] = peer
        for choice in _choices(wanted):
            opened = _worker(stack, model, choice, inputs)
            if isinstance(opened, str):
                absent[choice.label] = opened
            else:
                contenders[choice.label] = opened
        first = {name: call() for name, call in contenders.items()}
        times = _measure(contenders, arguments.runs, arguments.seconds)
    if arguments.json:
        shapes = {name: array.shape for name, array in inputs.items()}
        print_json({"model": path, "inputs": shapes, **_as_data(times, first), "left out": absent})
        return 0
    console = output()
    properties(console, [("model", path), ("inputs", ", ".join(f"{n} {a.shape}" for n, a in inputs.items()))])
    if times:
        counts = [len(timing.turns) for timing in times.values()]
        runs = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
        properties(console, [("times", f"medians of {runs}, in turns, in milliseconds")])
        console.print()
        console.print(_result(times, first))
    if absent:
        console.print()
        properties(console, [(name, f"left out: {reason}") for name, reason in absent.items()])
    return 0


def _choices(wanted: BackendChoice | None) -> list[BackendChoice]:
    """Every requested way to run a model; other precisions are compared with float32."""
    fitting = matching_choices(wanted)
    return fitting if wanted is None or wanted.precision == "float32" else [*fitting, wanted]


def agreement(values: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
    """Largest difference over all outputs, as max|a - b| / max(1, max|b|); infinite for different shapes."""
    worst = 0.0
    for name, wanted in expected.items():
        value = values[name]
        if value.shape != wanted.shape:
            return float("inf")
        a, b = value.astype(np.float64), wanted.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return float("inf")
        difference = np.abs(a[finite] - b[finite]).max(initial=0.0)
        worst = max(worst, float(difference) / max(1.0, float(np.abs(b[finite]).max(initial=0.0))))
    return worst


def _measure(contenders: Mapping[str, Call], runs: int, seconds: float) -> dict[str, CallTimes]:
    """`runs` timed calls each, or fewer where a contender's share of `seconds` is spent before."""
    share = seconds / max(1, len(contenders))
    with measuring() as show:
        return alternate(contenders, runs, turn=0.0, budget=share, progress=show)


def _as_data(times: Mapping[str, CallTimes], first: Mapping[str, Arrays]) -> dict[str, object]:
    """What `_result` shows, with times in milliseconds."""
    base = next(iter(times), "")
    return {
        "compared with": base,
        "times": [
            {
                "name": name,
                "runs": len(timing.turns),
                "median_ms": timing.median * 1e3,
                "fastest_ms": timing.best * 1e3,
                "speed": times[base].ratio(timing),
                "difference": agreement(first[name], first[base]),
            }
            for name, timing in times.items()
        ],
    }


def _result(times: Mapping[str, CallTimes], first: Mapping[str, Arrays]) -> Table:
    """All against the one that is named first."""
    base = next(iter(times))
    columns = ("", "median", "fastest", f"speed, {base} = 1", "difference")
    rows = [
        (
            name,
            f"{timing.median * 1e3:.3f}",
            f"{timing.best * 1e3:.3f}",
            f"{times[base].ratio(timing):.2f} x",
            "" if name == base else f"{agreement(first[name], first[base]):.1e}",
        )
        for name, timing in times.items()
    ]
    return table(columns, rows, right=columns[1:])


def _worker(
    stack: ExitStack, model: Model, choice: BackendChoice, inputs: Mapping[str, np.ndarray]
) -> Call | str:
    """The call that runs the model on `choice`, or the reason why it cannot run there."""
    reason = why_unavailable(choice, SystemInfo.query())
    if reason is not None:
        return reason
    try:
        with CompileProgress(f"{choice.label}: preparing kernels") as progress:
            worker = stack.enter_context(open_worker(model, choice, progress))
    except EngineError as error:
        return str(error)
    return partial(infer, worker, inputs)


def _onnxruntime(path: Path, inputs: Mapping[str, np.ndarray]) -> Call | str:
    """The call that runs the model on onnxruntime, or the reason why it cannot run there."""
    try:
        # By path, as weights may be in files next to the model.
        call = partial(onnxruntime_call(path), inputs)
        call()
    except ImportError:
        return "not installed (pip install onnxruntime)"
    except Exception as error:  # noqa: BLE001 - its exceptions have no common class
        return str(error).partition("\n")[0]
    return call
