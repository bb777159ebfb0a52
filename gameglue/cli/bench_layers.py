"""`gameglue bench MODEL --layers`: the time of each layer on one backend."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.table import Table

from engine import BackendType, Model, SystemInfo
from engine.base.errors import InputError
from gameglue.cli.backends import choice_of
from gameglue.cli.console import CompileProgress, measuring, output, print_json, properties, table, title
from gameglue.cli.diff_runners import whole_proto
from gameglue.inference.backend_choice import (
    BackendChoice,
    open_worker,
    resolve_backend_choice,
    why_unavailable,
)
from gameglue.profiling.compare import CallTimes
from gameglue.profiling.layers import LayerTime, LayerTimes, OrtTime, measure_layers
from gameglue.profiling.onnxruntime_profile import OrtProfile

_ROOM = 150
_NAMED = 3


def show_layers(
    path: Path, model: Model, inputs: Mapping[str, np.ndarray], arguments: argparse.Namespace
) -> int:
    """Measure and print."""
    choice = choice_of(arguments) or BackendChoice(BackendType.CPU)
    reason = why_unavailable(choice, SystemInfo.query())
    if reason is not None:
        raise InputError(f"{choice.label} cannot run here: {reason}")
    peer = _peer(path, inputs)
    with CompileProgress(f"{choice.label}: preparing kernels") as progress:
        worker = open_worker(model, choice, progress)
    with worker, measuring() as show:
        label = resolve_backend_choice(choice, worker).label
        times = measure_layers(
            worker,
            inputs,
            peer=peer if isinstance(peer, OrtProfile) else None,
            runs=arguments.runs,
            seconds=arguments.seconds,
            progress=show,
        )
    if arguments.json:
        data = {"model": path, "backend": label, "runs": len(times.whole.turns), **_as_data(times)}
        print_json({**data, "left out": {"onnxruntime": peer} if isinstance(peer, str) else {}})
        return 0
    console = output(_ROOM)
    properties(
        console,
        [
            ("model", path),
            ("inputs", ", ".join(f"{n} {a.shape}" for n, a in inputs.items())),
            ("backend", label),
            ("times", f"of {len(times.whole.turns)} runs, in turns, in milliseconds"),
        ],
    )
    shown = sorted(times.layers, key=lambda item: -item.seconds)[: arguments.top]
    console.print()
    console.print(_layers(shown, times))
    if times.peer_only:
        title(console, "nodes of onnxruntime that are no layer here")
        console.print(_peer_only(times))
    console.print()
    properties(console, _totals(times, len(shown)))
    if isinstance(peer, str):
        properties(console, [("onnxruntime", f"left out: {peer}")])
    return 0


def _peer(path: Path, inputs: Mapping[str, np.ndarray]) -> OrtProfile | str:
    """onnxruntime's side, or why there is none."""
    try:
        return OrtProfile(whole_proto(path), inputs)
    except ImportError:
        return "not installed (pip install onnxruntime)"
    except Exception as error:  # noqa: BLE001 - its exceptions have no common class
        return str(error).partition("\n")[0]


def _as_data(times: LayerTimes) -> dict[str, object]:
    """All layers in order, with times in milliseconds."""
    return {
        "layers": [
            {
                "layer": item.layer,
                "operator": item.op_type,
                "shape": item.shape,
                "kernels": item.kernels,
                "ms": item.seconds * 1e3,
                "onnxruntime_ms": None if item.peer_seconds is None else item.peer_seconds * 1e3,
                "speed": item.speed,
            }
            for item in times.layers
        ],
        "only onnxruntime's": [
            {"node": node.name, "operator": node.op_type, "ms": node.seconds * 1e3}
            for node in times.peer_only
        ],
        "whole_ms": times.whole.median * 1e3,
        "onnxruntime_whole_ms": None if times.peer_whole is None else times.peer_whole.median * 1e3,
    }


def _layers(shown: list[LayerTime], times: LayerTimes) -> Table:
    columns = ["layer", "operator", "output", "kernels", "ms", "share"]
    rows = []
    for item in shown:
        shape = "x".join(map(str, item.shape)) if item.shape is not None else ""
        row = [item.layer, item.op_type, shape, "+".join(item.kernels)]
        row += [_ms(item.seconds), f"{item.seconds / max(times.total, 1e-12):.1%}"]
        if times.peer_whole is not None:
            row.append("-" if item.peer_seconds is None else _ms(item.peer_seconds))
            row.append("-" if item.speed is None else f"{item.speed:.2f} x")
        rows.append(row)
    if times.peer_whole is not None:
        columns += ["onnxruntime", "speed"]
    return table(columns, rows, right=columns[4:])


def _peer_only(times: LayerTimes) -> Table:
    """By operator: most are changes of layout, dozens of them."""
    groups: dict[str, list[OrtTime]] = {}
    for node in sorted(times.peer_only, key=lambda node: -node.seconds):
        groups.setdefault(node.op_type, []).append(node)
    rows = []
    for op_type, nodes in groups.items():
        names = [node.name for node in nodes[:_NAMED]]
        more = [f"and {len(nodes) - _NAMED} more"] if len(nodes) > _NAMED else []
        rows.append((op_type, ", ".join([*names, *more]), _ms(sum(node.seconds for node in nodes))))
    return table(("operator", "nodes", "ms"), rows, right=("ms",))


def _totals(times: LayerTimes, shown: int) -> list[tuple[str, object]]:
    """Sums of layer times and times of whole runs; the difference is what starting and ending costs."""
    of = f" ({shown} shown)" if shown < len(times.layers) else ""
    rows: list[tuple[str, object]] = [
        (f"{len(times.layers)} layers{of}", f"{_ms(times.total)} ms"),
        ("whole plan", _whole(times.whole)),
    ]
    if times.peer_whole is not None:
        rows.append(("onnxruntime's nodes", f"{_ms(times.peer_total)} ms"))
        rows.append(("onnxruntime's run", f"{_whole(times.peer_whole)}, writing its profile"))
    return rows


def _whole(timing: CallTimes) -> str:
    return f"{_ms(timing.median)} ms, {_ms(timing.best)} at best"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"
