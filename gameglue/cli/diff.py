"""`gameglue diff MODEL`: finds the first layer whose output differs between two backends or engines."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine import Layer, Model
from engine.base.errors import InputError
from engine.operators import OPERATORS
from gameglue.cli.backends import add_backend_options, add_precision_option, choice_of
from gameglue.cli.console import (
    add_json_option,
    json_types,
    output,
    paragraph,
    print_json,
    properties,
    table,
    title,
)
from gameglue.cli.diff_runners import EngineSide, OnnxRuntimeSide, OnnxSide, ReferenceSide, Side, chunks
from gameglue.cli.models import add_input_options, add_model_options, load_model, make_inputs
from gameglue.inference.backend_choice import BACKEND_CHOICES, BackendChoice

TOLERANCE, NARROW_TOLERANCE = 1e-4, 4e-3
"""What may differ unless --tolerance says otherwise; the second is for floats of 16 bits."""

REDUCED_TOLERANCES = {"bf16": 5e-2, "int8": 2e-1}
"""What may differ with a --precision below float32: each layer adds its own rounding."""

DIVERGED = 1
"""Exit code where a layer differs."""

_OTHERS: dict[str, type[OnnxSide]] = {"onnxruntime": OnnxRuntimeSide, "onnx-reference": ReferenceSide}
_BACKENDS: dict[str, BackendChoice] = {
    choice.backend.value if choice.device in (None, "gl") else choice.device: choice
    for choice in BACKEND_CHOICES
}
_WORST = 20  # rows of the table


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, line: str) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        name,
        help=line,
        description=paragraph(
            "Run a model on two backends or engines, compare the outputs of every layer, and report the",
            "first layer, in the order of execution, whose output differs. Exits with 1 if there is one.",
            "Errors are max|a - b| / max(1, max|b|), for integers max|a - b|.",
        ),
        epilog="examples:\n  gameglue diff net.onnx --backend gpu_compute --against cpu\n"
        "  gameglue diff net.onnx --precision bf16 --verbose\n"
        "  gameglue diff net.onnx --against onnx-reference --input inputs.npz --verbose",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_options(parser)
    add_input_options(parser)
    add_backend_options(parser, "cpu")
    add_precision_option(parser)
    parser.add_argument(
        "--against",
        choices=(*_OTHERS, *_BACKENDS),
        help="reference to compare with. Default: onnxruntime; with --precision the CPU in float32",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        metavar="X",
        help=f"largest accepted error. Default: {TOLERANCE}, for 16-bit floats {NARROW_TOLERANCE}"
        + "".join(f", with --precision {name} {bound}" for name, bound in REDUCED_TOLERANCES.items()),
    )
    parser.add_argument("--verbose", action="store_true", help="list the layers with the largest errors")
    add_json_option(parser)
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Difference:
    """The difference between two values; `index` is the element with the largest one.

    `error` is infinite where they cannot be compared, or one is not finite where the other is; `what` says
    so in words, else gives both elements.
    """

    name: str
    error: float
    index: tuple[int, ...] = ()
    what: str = ""
    shape: str = ""
    is_narrow: bool = False

    def within(self, tolerance: float | None) -> bool:
        """Whether the error passes."""
        bound = NARROW_TOLERANCE if self.is_narrow else TOLERANCE
        return self.error <= (bound if tolerance is None else tolerance)


def run(arguments: argparse.Namespace) -> int:
    """Compare, and print the result."""
    path, model = load_model(arguments)
    inputs = make_inputs(model, arguments)
    choice = choice_of(arguments) or _BACKENDS["cpu"]
    if choice.precision != "float32":
        arguments.against = arguments.against or "cpu"
        if arguments.tolerance is None:
            arguments.tolerance = REDUCED_TOLERANCES[choice.precision]
    ours = EngineSide(model, choice, inputs)
    other = _other_side(arguments.against or "onnxruntime", model, path, inputs)
    common = set(other.names)
    names = [name for name in ours.names if name in common]
    if not names:
        raise InputError(f"{ours.label} and {other.label} have no value of {path} in common")
    found = list(compare(ours, other, chunks(model, inputs, names)))
    alone = False
    if all(d.within(arguments.tolerance) for d in found) and not _outputs_agree(
        ours, other, model, arguments
    ):
        # Layers that are watched are not fused. One at a time, those before it run as they always do.
        found = list(compare(ours, other, ((name,) for name in names)))
        alone = True
    first = next((d for d in found if not d.within(arguments.tolerance)), None)
    if arguments.json:
        layers = model.producers()
        values = [
            {**json_types(d), "layer": layers[d.name].name, "operator": layers[d.name].op_type} for d in found
        ]
        print_json(
            {
                "model": path,
                "compared": [ours.label, other.label],
                "agree": first is None,
                "differs first": None if first is None else first.name,
                "one at a time": alone,
                "values": values,
            }
        )
        return 0 if first is None else DIVERGED
    console = output()
    properties(
        console, [("model", path), ("compared", f"{ours.label} with {other.label}: {len(found)} values")]
    )
    if first is None:
        worst = max(found, key=lambda d: d.error)
        layer = model.producers()[worst.name]
        properties(console, [("agree", f"the largest error is {worst.error:.2e}, in {layer}")])
        ends = {output.name for output in model.outputs}
        properties(console, [("outputs", f"{d.name}: error {d.error:.2e}") for d in found if d.name in ends])
    else:
        properties(console, _described(first, model, {d.name: d for d in found}, (ours, other)))
        if _is_random(model.producers()[first.name]):
            properties(
                console, [("note", "it draws random numbers: only the engine's backends draw the same")]
            )
        if alone:
            properties(
                console, [("note", "only with layers fused: none differs when all are watched at once")]
            )
    if arguments.verbose:
        title(console, "largest errors")
        console.print(_worst(found, model))
    return 0 if first is None else DIVERGED


def _other_side(name: str, model: Model, path: Path, inputs: Mapping[str, Any]) -> Side:
    if name in _OTHERS:
        return _OTHERS[name](path, inputs)
    return EngineSide(model, _BACKENDS[name], inputs)


def _outputs_agree(ours: Side, other: Side, model: Model, arguments: argparse.Namespace) -> bool:
    """Whether the model as it is gives the same outputs."""
    common = {*ours.names} & {*other.names}
    names = tuple(o.name for o in model.outputs if o.name in common)
    return all(d.within(arguments.tolerance) for d in compare(ours, other, [names]))


def compare(ours: Side, other: Side, groups: Iterable[Sequence[str]]) -> Iterator[Difference]:
    """The differences between two sides, in order; each group of names is one run of both."""
    for names in groups:
        if names:
            mine, theirs = ours.values(names), other.values(names)
            for name in names:
                yield difference(name, mine[name], theirs[name])


def difference(name: str, a: Any, b: Any) -> Difference:
    """Compute the difference between the values of both sides."""
    if isinstance(a, list | tuple) or isinstance(b, list | tuple) or a is None or b is None:
        return _sequence_difference(name, a, b)
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        a, b = [*a.values()], [b[key] for key in a]
    a, b = np.asarray(a), np.asarray(b)
    facts_a, facts_b = f"{a.shape} {a.dtype}", f"{b.shape} {b.dtype}"
    if a.shape != b.shape or (a.dtype != b.dtype and {a.dtype.kind, b.dtype.kind} & {*"OSU"}):
        return Difference(name, math.inf, (), f"{facts_a} and {facts_b}", facts_a)
    is_narrow = a.dtype.kind not in "iubOSU" and a.dtype.itemsize < 4
    if not a.size:
        return Difference(name, 0.0, (), "empty", facts_a, is_narrow)
    distance = _distances(a, b)
    flat = int(np.argmax(distance))
    index = tuple(int(i) for i in np.unravel_index(flat, a.shape))
    what = f"{a.reshape(-1)[flat]} and {b.reshape(-1)[flat]}"
    return Difference(name, float(distance.reshape(-1)[flat]), index, what, facts_a, is_narrow)


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The error of each element, infinite where only one of the two is finite, or texts differ."""
    if a.dtype.kind in "OSU":
        return np.where(a == b, 0.0, np.inf)
    exact = a.dtype.kind in "iub"
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    with np.errstate(invalid="ignore"):
        distance = np.abs(a - b)
    finite = np.isfinite(a) & np.isfinite(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    scale = 1.0 if exact else max(1.0, float(np.abs(b[finite]).max(initial=0.0)))
    return np.where(finite, distance / scale, np.where(same, 0.0, np.inf))


def _sequence_difference(name: str, a: Any, b: Any) -> Difference:
    if not isinstance(a, list | tuple) or not isinstance(b, list | tuple) or len(a) != len(b):
        shown = [
            "no element" if x is None else f"{len(x)} elements" if isinstance(x, list | tuple) else "a tensor"
            for x in (a, b)
        ]
        return Difference(name, 0.0 if a is None and b is None else math.inf, (), " and ".join(shown))
    found = [difference(name, x, y) for x, y in zip(a, b, strict=True)]
    if not found:
        return Difference(name, 0.0, (), "empty")
    number, worst = max(enumerate(found), key=lambda pair: pair[1].error)
    index, shape = (number, *worst.index), f"{len(a)} elements"
    return Difference(name, worst.error, index, worst.what, shape, worst.is_narrow)


def _described(
    first: Difference, model: Model, found: Mapping[str, Difference], sides: tuple[Side, Side]
) -> list[tuple[str, object]]:
    layer = model.producers()[first.name]
    number = next(i for i, candidate in enumerate(model.layers) if candidate is layer)
    ours, other = sides
    inputs = [
        f"{name}: error {found[name].error:.2e}" if name in found else f"{name}: {_origin(name, model)}"
        for name in layer.dependencies
    ]
    return [
        ("differs first", f"{layer}, number {number + 1} of {len(model.layers)}"),
        ("output", f"{first.name} {first.shape}"),
        ("largest error", f"{first.error:.2e} at {list(first.index)}"),
        ("there", f"{first.what} ({ours.label} and {other.label})"),
        ("its inputs", "\n".join(inputs) or "none"),
    ]


def _is_random(layer: Layer) -> bool:
    operator = OPERATORS.find(layer.domain, layer.op_type, layer.version)
    return operator is not None and operator.precision == "random"


def _origin(name: str, model: Model) -> str:
    if name in model.constants:
        array = model.constants[name]
        return f"a constant {array.shape} {array.dtype}"
    return "an input" if any(item.name == name for item in model.inputs) else "seen on one side only"


def _worst(found: Sequence[Difference], model: Model) -> Any:
    layers: dict[str, Layer] = model.producers()
    rows = [
        (layers[d.name].name, layers[d.name].op_type, d.name, d.shape, f"{d.error:.2e}", list(d.index))
        for d in sorted(found, key=lambda d: -d.error)[:_WORST]
    ]
    columns = ("layer", "operator", "output", "shape", "error", "at")
    return table(columns, rows, right=("error",))
