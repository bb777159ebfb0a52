"""Passes: functions Model -> Model, one file each.

`PASSES` run for every backend, in this order; the others are listed in `Backend.passes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.compiler.passes.channels_last import channels_last
from engine.compiler.passes.count_loops import count_loops
from engine.compiler.passes.drop_unit_axes import drop_unit_axes
from engine.compiler.passes.fold_batch_norm import fold_batch_norm
from engine.compiler.passes.fold_constants import fold_constants, fold_weights
from engine.compiler.passes.fold_transposes import fold_transposes
from engine.compiler.passes.fuse_gelu import fuse_gelu
from engine.compiler.passes.fuse_layer_norm import fuse_layer_norm
from engine.compiler.passes.fuse_qdq import fuse_qdq
from engine.compiler.passes.gather_before_unpack import gather_before_unpack
from engine.compiler.passes.promote_float16 import promote_float16
from engine.compiler.passes.remove_dead_layers import remove_dead_layers
from engine.compiler.passes.sink_dequantize import sink_dequantize
from engine.compiler.passes.unpack_weights import unpack_weights
from engine.graph.model import Model

Pass = Callable[[Model], Model]

PASSES: tuple[Pass, ...] = (
    fold_constants,
    count_loops,
    gather_before_unpack,
    promote_float16,
    fold_batch_norm,
    drop_unit_axes,
    fuse_layer_norm,
    fuse_gelu,
    fold_transposes,
    remove_dead_layers,
)
"""In order: what looks for constant parameters follows their folding; all leave what nobody reads."""


@dataclass(frozen=True, slots=True)
class PassRecord:
    """The effect of one pass: the number of layers before and after, and the removed layers."""

    name: str
    before: int
    after: int
    removed: tuple[str, ...]


def applied(step: Pass, model: Model) -> Model:
    """The model after one pass; unchanged if shapes contradict each other, which planning reports."""
    try:
        return step(model)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return model


def optimize(model: Model, records: list[PassRecord] | None = None) -> Model:
    """Run all passes; `records` receives one entry per pass. The graph is verified after each change."""
    for step in PASSES:
        changed = applied(step, model)
        if changed is not model:
            changed.check()
        if records is not None:
            left = {layer.name for layer in changed.layers}
            removed = tuple(str(layer) for layer in model.layers if layer.name not in left)
            records.append(PassRecord(step.__name__, len(model.layers), len(changed.layers), removed))
        model = changed
    return model


__all__ = [
    "PASSES",
    "PassRecord",
    "applied",
    "channels_last",
    "count_loops",
    "drop_unit_axes",
    "fold_batch_norm",
    "fold_constants",
    "fold_weights",
    "gather_before_unpack",
    "fuse_gelu",
    "fuse_layer_norm",
    "fuse_qdq",
    "fold_transposes",
    "optimize",
    "promote_float16",
    "remove_dead_layers",
    "sink_dequantize",
    "unpack_weights",
]
