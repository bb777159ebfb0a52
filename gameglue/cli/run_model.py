"""`gameglue run MODEL`: runs a model once and prints its outputs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from engine import BackendType
from gameglue.cli.backends import add_backend_options, add_precision_option, choice_of
from gameglue.cli.console import CompileProgress, output, properties, table, title
from gameglue.cli.models import add_input_options, add_model_options, load_model, make_inputs
from gameglue.inference.backend_choice import BackendChoice, open_worker


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, line: str) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        name,
        help=line,
        description="Run a model once, on random or given inputs, and print its outputs.",
        epilog="examples:\n  gameglue run digits\n"
        "  gameglue run net.onnx --dim batch=4 --input image=cat.npy --output out.npz",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_options(parser)
    add_input_options(parser)
    add_backend_options(parser, "cpu")
    add_precision_option(parser)
    parser.add_argument("--output", type=Path, metavar="FILE", help="save the outputs, by name, as .npz")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run, print, save."""
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
    path, model = load_model(arguments)
    inputs = make_inputs(model, arguments)
    choice = choice_of(arguments) or BackendChoice(BackendType.CPU)
    with CompileProgress() as progress, open_worker(model, choice, progress) as worker:
        progress.close()
        started = time.perf_counter()
        worker.schedule(inputs)
        found = worker.take_outputs()
        seconds = time.perf_counter() - started
        report = worker.plan_report()
    console = output()
    properties(
        console, [("model", path), ("ran on", report), ("took", f"{seconds * 1e3:.2f} ms, the first time")]
    )
    title(console, "inputs")
    console.print(_described(inputs))
    title(console, "outputs")
    console.print(_described(found))
    if arguments.output is not None:
        with arguments.output.open("wb") as file:
            # With a file, not a name: NumPy would add ".npz" to another ending.
            np.savez(file, allow_pickle=False, **{n: _storable(a) for n, a in _flat(found).items()})
        console.print(f"\nsaved {arguments.output.resolve()}", markup=False)
    return 0


def _flat(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays by name, those of sequences with their position; empty optionals left out."""
    found: dict[str, np.ndarray] = {}
    for name, value in values.items():
        if isinstance(value, list):
            found |= {f"{name}[{i}]": np.asarray(x) for i, x in enumerate(value)}
        elif value is not None:
            found[name] = np.asarray(value)
    return found


def _storable(array: np.ndarray) -> np.ndarray:
    """An array as .npz files hold it: texts at a fixed length."""
    return array.astype(str) if array.dtype == object else array


def _described(values: Mapping[str, Any]) -> Table:
    columns = ("name", "type", "shape", "lowest", "mean", "highest", "")
    rows: list[tuple[object, ...]] = [
        (name, _type_name(array), array.shape, *_range(array)) for name, array in _flat(values).items()
    ]
    empty = {"no element": [n for n, v in values.items() if v is None]}
    empty["an empty sequence"] = [n for n, v in values.items() if isinstance(v, list) and not v]
    rows += [(name, "", "", "", "", "", what) for what, names in empty.items() for name in names]
    return table(columns, rows, right=("lowest", "mean", "highest"))


def _type_name(array: np.ndarray) -> str:
    if array.dtype != object:
        return str(array.dtype)
    return "map" if array.size and isinstance(array.flat[0], dict) else "text"


def _range(array: np.ndarray) -> tuple[str, str, str, str]:
    if array.size == 0:
        return "", "", "", "empty"
    if array.dtype == object:
        return "", "", "", ", ".join(map(repr, array.reshape(-1)[:3])) + (" ..." if array.size > 3 else "")
    if array.dtype.kind == "b":
        return "", "", "", f"{int(array.sum())} of {array.size} true"
    values = array.astype(np.float64)
    finite = values[np.isfinite(values)]
    odd = values.size - finite.size
    note = f"{odd} not finite" if odd else ""
    if finite.size == 0:
        return "", "", "", note
    return f"{finite.min():.6g}", f"{finite.mean():.6g}", f"{finite.max():.6g}", note
