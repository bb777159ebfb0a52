"""`gameglue bench MODEL`: one model on every backend of this machine and on onnxruntime, in one run."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.progress import track
from rich.table import Table

from engine import Model, ModelLoader, SystemInfo, Worker
from engine.errors import EngineError
from gameglue.cli.backends import (
    ALL_CHOICES,
    BackendChoice,
    add_backend_options,
    choice_of,
    open_worker,
    why_unavailable,
)
from gameglue.cli.console import CompileProgress, errors, facts, output, paragraph, table
from gameglue.cli.models import add_input_options, add_model_options, dims_of, find_model, make_inputs
from gameglue.cli.play import positive

Outputs = dict[str, np.ndarray]


@dataclass
class Contender:
    """One way to run the model: `call` gives all outputs as arrays; `seconds` are its times."""

    name: str
    call: Callable[[], Outputs]
    first: Outputs = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Milliseconds."""
        return float(np.median(self.seconds)) * 1e3


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "bench",
        help="time a model on every backend",
        description=paragraph(
            "Time a model on every backend of this machine, and on onnxruntime where that is installed.",
            "All take turns in one run, so that they see the same machine. A time is that of one inference",
            "from arrays to arrays: schedule, compute, read back.",
        ),
        epilog="examples:\n  gameglue bench digits\n  gameglue bench net.onnx --dim batch=8 --runs 50",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_options(parser)
    add_input_options(parser)
    add_backend_options(parser, "all of them")
    parser.add_argument("--runs", type=positive, default=20, metavar="N", help="times each. Default: 20")
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        metavar="S",
        help="begin no new round after S seconds. Default: 60",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare the outputs, then the times."""
    path = find_model(arguments.model)
    named = ModelLoader.load(path, dims=dims_of(arguments))
    model = named.with_dims(dims_of(arguments, named))
    inputs = make_inputs(model, arguments)
    wanted = choice_of(arguments)
    absent: list[tuple[str, object]] = []
    with ExitStack() as stack:
        contenders = []
        peer = _onnxruntime(path, inputs)
        if isinstance(peer, str):
            absent.append(("onnxruntime", peer))
        else:
            contenders.append(peer)
        for choice in ALL_CHOICES:
            if wanted is None or choice.backend is wanted.backend and wanted.device in (None, choice.device):
                opened = _worker(stack, model, choice, inputs)
                if isinstance(opened, str):
                    absent.append((choice.label, opened))
                else:
                    contenders.append(opened)
        for contender in contenders:
            contender.first = contender.call()
        rounds = _take_turns(contenders, arguments.runs, arguments.seconds)
    console = output()
    facts(console, [("model", path), ("inputs", ", ".join(f"{n} {a.shape}" for n, a in inputs.items()))])
    facts(console, [("times", f"medians of {rounds}, in turns, in milliseconds")])
    console.print()
    if contenders:
        console.print(_result(contenders))
    if absent:
        console.print()
        facts(console, [(name, f"left out: {reason}") for name, reason in absent])
    return 0


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


def _take_turns(contenders: list[Contender], runs: int, limit: float) -> int:
    started = time.perf_counter()
    done = 0
    console = errors()
    quiet = not console.is_terminal
    for _ in track(range(runs), "measuring", console=console, transient=True, disable=quiet):
        for contender in contenders:
            before = time.perf_counter()
            contender.call()
            contender.seconds.append(time.perf_counter() - before)
        done += 1
        if time.perf_counter() - started > limit:
            break
    return done


def _result(contenders: list[Contender]) -> Table:
    base = contenders[0]
    columns = ("", "median", "fastest", f"to {base.name}", "difference")
    rows = [
        (
            c.name,
            f"{c.median:.3f}",
            f"{min(c.seconds) * 1e3:.3f}",
            f"{c.median / base.median:.2f} x",
            "" if c is base else f"{agreement(c.first, base.first):.1e}",
        )
        for c in contenders
    ]
    return table(columns, rows, right=columns[1:])


def _worker(
    stack: ExitStack, model: Model, choice: BackendChoice, inputs: Mapping[str, np.ndarray]
) -> Contender | str:
    reason = why_unavailable(choice, SystemInfo.query())
    if reason is not None:
        return reason
    try:
        with CompileProgress(f"{choice.label}: preparing kernels") as progress:
            worker = stack.enter_context(open_worker(model, choice, progress))
    except EngineError as error:
        return str(error)
    return Contender(choice.label, lambda: _infer(worker, model, inputs))


def _infer(worker: Worker, model: Model, inputs: Mapping[str, np.ndarray]) -> Outputs:
    worker.schedule(dict(inputs))
    tensors = {item.name: worker.peek_output(item.name) for item in model.outputs}
    for tensor in tensors.values():
        tensor.readback_request()
    return {name: tensor.download_to_array() for name, tensor in tensors.items()}


def _onnxruntime(path: Path, inputs: Mapping[str, np.ndarray]) -> Contender | str:
    try:
        import onnxruntime  # optional
    except ImportError:
        return "not installed (pip install onnxruntime)"
    try:
        # By path, as weights may lie in files beside the model.
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names = [item.name for item in session.get_outputs()]
        session.run(None, dict(inputs))
    except Exception as error:  # noqa: BLE001 - its exceptions have no common class
        return str(error).splitlines()[0]
    return Contender("onnxruntime", lambda: dict(zip(names, session.run(None, dict(inputs)), strict=True)))
