"""Convolutions whose results are pooled in registers: max pools of 2 x 2 behind NHWC convolutions of float32.

The kernels of convolutions compute the results of a window one behind the other and store the largest. What a
pool leaves out at odd sizes is not computed.
"""

from __future__ import annotations

from dataclasses import replace

from engine.backends.cpu.codegen.epilogue import print_epilogue, reads_results_places
from engine.backends.cpu.codegen.tiles import host_tile
from engine.backends.cpu.kernels.convolution.first_layer_conv import tune_first_layer_conv
from engine.backends.cpu.kernels.convolution.nhwc_conv import tune_nhwc_conv
from engine.backends.cpu.kernels.convolution.nhwc_tiles import pixel_rows
from engine.backends.cpu.kernels.convolution.winograd import tune_winograd
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import Expr, substitute

_LEAST_OUTPUTS = 16
"""Output channels from which a convolution is that of these kernels."""

_WORTH = 0.8
"""Tiles of whole windows need this share of others' pixels; those of AVX2 lose more than a pool takes."""

_POOL = {
    "kind": "max",
    "kernel": (2, 2),
    "strides": (2, 2),
    "dilations": (1, 1),
    "pads": (0, 0),
    "ends": (0, 0),
}


def tune_pooled_conv(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "pool" with channels last: one that alone reads a convolution's results."""
    conv = tuner.producer
    joined = None if conv is None else _joined(conv, compute)
    if joined is None or not tune_winograd(joined, tuner, threads, _tune_direct):
        return False
    tuner.steps[:] = [replace(step, layer=joined.layer, op_type=joined.op_type) for step in tuner.steps]
    return True


def _tune_direct(compute: Compute, tuner: Tuner, threads: int) -> bool:
    if tune_first_layer_conv(compute, tuner, threads):
        return True
    tile = host_tile()
    whole, windows = pixel_rows(tile)[0], pixel_rows(tile, compute.attributes["pooled"])[0]
    # Where sizes are open, others may need the steps that are there already.
    return (windows >= _WORTH * whole or bool(tuner.steps)) and tune_nhwc_conv(compute, tuner, threads)


def _joined(conv: Compute, pool: Compute) -> Compute | None:
    """The convolution that pools its results; None if it cannot."""
    if conv.kind != "conv" or not conv.attributes.get("channels_last") or len(conv.space) != 4:
        return None
    if any(pool.attributes[name] != value for name, value in _POOL.items()):
        return None
    if any(2 * few > many for few, many in zip(pool.space[1:3], conv.space[1:3], strict=True)):
        return None  # windows that begin at the end of an odd size
    if not (conv.is_float32 and pool.is_float32) or conv.output.dtype != pool.output.dtype:
        return None
    if conv.attributes["group"] != 1 or conv.operands[1].known is None or conv.space[3] < _LEAST_OUTPUTS:
        return None
    epilogue = conv.epilogue
    if pool.epilogue is not None:
        if not _rises(pool.epilogue):
            return None
        # The largest of such values is the value of the largest.
        epilogue = substitute(pool.epilogue, lambda x: conv.epilogue if x.op == "acc" else None)
    assert conv.hint is not None
    hint = replace(conv.hint, attributes={**conv.attributes, "pooled": 2})
    joined = replace(
        conv, output=pool.output, space=pool.space, hint=hint, epilogue=epilogue, extents=pool.extents,
        op_type=f"{conv.op_type}+{pool.op_type}",
    )  # fmt: skip
    recipe = print_epilogue(joined, 0, row_axes=3).recipe
    return None if recipe is None or reads_results_places(recipe) else joined


def _rises(x: Expr) -> bool:
    """Whether a formula of `acc` never falls where that rises, as bounds and sums do."""
    if x.op == "acc":
        return True
    reading = [part for part in x.args if "acc" in part.free]
    return x.op in ("add", "max", "min") and len(reading) == 1 and _rises(reading[0])
