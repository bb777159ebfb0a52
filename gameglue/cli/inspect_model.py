"""`gameglue inspect MODEL`: a model's contents, the effect of the passes, and each backend's plan."""

from __future__ import annotations

import argparse
from collections import Counter

from rich.console import Console

from engine import DynamicTensorShape, Layer, Model, ModelLoader, PlanReport, SystemInfo
from engine.base.errors import EngineError, InputError
from engine.compiler.passes import PassRecord, optimize
from engine.graph.model import qualified_op
from gameglue.cli.backends import add_backend_options, choice_of
from gameglue.cli.console import (
    CompileProgress,
    add_json_option,
    output,
    paragraph,
    print_json,
    properties,
    table,
    title,
)
from gameglue.cli.models import add_model_options, dims_of, find_model
from gameglue.cli.texture_input import add_texture_options, show_texture
from gameglue.inference.backend_choice import (
    BackendChoice,
    matching_choices,
    open_worker,
    resolve_backend_choice,
    why_unavailable,
)

_SHOWN = 6  # removed layers by name, unless all are requested


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, line: str) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        name,
        help=line,
        description=paragraph(
            "Show a model's inputs, outputs and layers, what each compiler pass changed, and each backend's",
            "plan: steps, tuned kernels, and layers that fall back to the CPU, with the reason.",
        ),
        epilog="examples:\n  gameglue inspect digits\n  gameglue inspect net.onnx --layers --backend cpu\n"
        "  gameglue inspect net.onnx --texture cat.png --transform swizzle=bgr --transform resampling=area",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_options(parser)
    add_backend_options(parser, "the plans of all")
    parser.add_argument("--layers", action="store_true", help="list every layer")
    add_texture_options(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print it all."""
    path = find_model(arguments.model)
    chosen = matching_choices(choice_of(arguments))
    before = ModelLoader.read(path, dims=dims_of(arguments))
    records: list[PassRecord] = []
    model = optimize(before, records)
    if arguments.json:
        if arguments.texture is not None:
            raise InputError("--json does not go with --texture")
        print_json(
            {
                **_model_data(before),
                "passes": records,
                "layers": [_layer_data(layer) for layer in model.layers],
                "plans": {choice.label: _plan_data(model, choice) for choice in chosen},
            }
        )
        return 0
    console = output()
    _print_model(console, before)
    if arguments.texture is not None:
        show_texture(console, before, arguments)
        return 0
    title(console, "passes")
    properties(
        console, [(record.name, _changes(record, all_names=arguments.layers)) for record in records], indent=2
    )
    if arguments.layers:
        title(console, f"layers after the passes: {len(model.layers)}")
        rows = [_row(number, layer) for number, layer in enumerate(model.layers)]
        console.print(table(("", "layer", "operator", "inputs", "outputs"), rows))
    title(console, "plans")
    for choice in chosen:
        _print_plan(console, model, choice)
    return 0


def _model_data(model: Model) -> dict[str, object]:
    constants = model.constants
    return {
        "name": model.name,
        "source": model.source,
        "made by": model.producer,
        "opsets": {domain or "ai.onnx": version for domain, version in model.opsets.items()},
        "inputs": [{"name": i.name, "dtype": i.dtype, "shape": _dims(i.shape)} for i in model.inputs],
        "outputs": [{"name": o.name, "dtype": o.dtype, "shape": _dims(o.shape)} for o in model.outputs],
        "constants": {name: {"dtype": a.dtype, "shape": a.shape} for name, a in constants.items()},
    }


def _dims(shape: DynamicTensorShape | None) -> list[object] | None:
    return None if shape is None else list(shape)


def _layer_data(layer: Layer) -> dict[str, object]:
    return {
        "name": layer.name,
        "operator": qualified_op(layer.domain, layer.op_type),
        "inputs": layer.inputs,
        "outputs": layer.outputs,
    }


def _plan_data(model: Model, choice: BackendChoice) -> object:
    report = _report(model, choice)
    return {"error": report} if isinstance(report, str) else report[1]


def _print_model(console: Console, model: Model) -> None:
    counts = Counter(qualified_op(layer.domain, layer.op_type) for layer in model.walk())
    constants = model.constants.values()
    size, weights = sum(a.nbytes for a in constants), sum(a.size for a in constants)
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in sorted(model.opsets.items()))
    rows: list[tuple[str, object]] = [
        ("model", f"{model.name} ({model.source})"),
        ("made by", model.producer or "unknown"),
        ("opsets", opsets),
        ("inputs", "\n".join(f"{i.name}: {i.dtype} {_shape(i.shape)}" for i in model.inputs)),
        ("outputs", "\n".join(f"{o.name}: {o.dtype or '?'} {_shape(o.shape)}" for o in model.outputs)),
        ("constants", f"{len(constants)} with {weights:,} elements, {size / 2**20:.2f} MiB"),
        ("layers", f"{counts.total()}: " + ", ".join(f"{n} {op}" for op, n in counts.most_common())),
    ]
    properties(console, rows)


def _shape(shape: object) -> str:
    return "of unknown rank" if shape is None else str(shape)


def _changes(record: PassRecord, *, all_names: bool) -> str:
    if record.before == record.after and not record.removed:
        return "nothing to do"
    shown = record.removed if all_names else record.removed[:_SHOWN]
    lines = [f"{record.before} -> {record.after} layers", *(f"took away {name}" for name in shown)]
    if len(record.removed) > len(shown):
        lines.append(f"and {len(record.removed) - len(shown)} more (--layers lists all)")
    return "\n".join(lines)


def _row(number: int, layer: Layer) -> tuple[object, ...]:
    op = qualified_op(layer.domain, layer.op_type)
    return number, layer.name, op, ", ".join(layer.inputs), ", ".join(layer.outputs)


def _report(model: Model, choice: BackendChoice) -> tuple[str, PlanReport] | str:
    """What a backend is called here and its plan, or why there is none."""
    reason = why_unavailable(choice, SystemInfo.query())
    if reason is not None:
        return f"not here: {reason}"
    try:
        with (
            CompileProgress(f"{choice.label}: preparing kernels") as progress,
            open_worker(model, choice, progress) as worker,
        ):
            return resolve_backend_choice(choice, worker).label, worker.plan_report()
    except EngineError as error:
        return f"cannot run it: {error}"


def _print_plan(console: Console, model: Model, choice: BackendChoice) -> None:
    found = _report(model, choice)
    label, text = (choice.label, found) if isinstance(found, str) else (found[0], _plan(found[1]))
    properties(console, [(f"{label:20}", text)], indent=2)


def _plan(report: PlanReport) -> str:
    steps = f"{report.layers} layers in {report.steps} steps ({report.tuned_steps} tuned)"
    lines = [report.device, f"{steps}, {report.kernels} kernels"]
    if not report.fallbacks:
        lines.append("everything runs there")
    for fallback in report.fallbacks:
        moved = f"{fallback.bytes_down:,} bytes down, {fallback.bytes_up:,} up"
        lines.append(f"on the CPU: {fallback.layer} ({fallback.op_type}): {fallback.reason}; {moved}")
    for wait in report.waits:
        lines.append(f"waits for data of its own ({wait.bytes_down:,} B) at {wait.layer} ({wait.op_type})")
    for transfer in report.transfers:
        lines.append(
            f"moved: {transfer.tensor}, {transfer.bytes_down:,} bytes down, {transfer.bytes_up:,} up"
        )
    return "\n".join(lines)
