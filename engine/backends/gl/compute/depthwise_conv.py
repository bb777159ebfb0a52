"""Depthwise convolutions of narrow integers: a thread computes four adjacent results and stores whole words.

Elements of any type are read where they are, less the zero point.
"""

from __future__ import annotations

from functools import partial
from math import prod

from engine.backends.gl.compute.conv import packed_weights
from engine.backends.gl.compute.flat_grid import emit_with_epilogue
from engine.backends.gl.compute.memory import buffer_size
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.compute.windows import (
    EACH,
    MOST_REACHED,
    WINDOW_DIVISORS,
    WINDOW_NAMES,
    WindowStatements,
    WindowWeights,
    reach,
    rows_are_whole,
)
from engine.backends.gl.glsl import COMPONENTS
from engine.backends.gl.storage import lanes
from engine.backends.gpu.division import divide
from engine.backends.gpu.kernel_dialect import GROUP, ThreadStep
from engine.backends.operands import promote_operands
from engine.backends.windows import windows_first
from engine.compiler.plan import Compute, Tuner

_DIVISORS = ("channels", "per_group")
_NAMES = (*WINDOW_NAMES, *_DIVISORS)
_COLUMN_NS = 3.0


def tune_depthwise_conv(compute: Compute, tuner: Tuner, target: ShaderTarget) -> bool:
    """Rule for hints of kind "conv" and "conv_integer" with one input channel per group.

    False for other types than narrow integers, and for windows of a size that varies. Of halves, converting
    the input first and fetching four floats at a time takes less time.
    """
    (x, w), zeros = compute.operands[:2], compute.attributes.get("zeros", (False, False))
    win, word, kind = windows_first(compute), compute.body.dtype, compute.output.dtype.name
    if win is None or w.shape[1] != 1 or x.arithmetic != word or word != "int32":
        return False
    if max(lanes(x.dtype.name), lanes(kind)) == 1:
        return False
    zero = compute.operands[2] if zeros[0] else None
    if not all(type(n) is int for n in (*win.kernel, *win.strides, *win.dilations)):
        return False
    if (zero is not None and zero.size != 1) or reach(win, 1) > MOST_REACHED:
        return False
    if EACH * win.kernel[0] > target.limits.max_loop_rounds:
        return False
    most = target.limits.max_storage_block_size
    promoted = promote_operands(
        compute, tuner, lambda elements, dtype: buffer_size(elements, dtype) <= most, sides=(1,)
    )
    if promoted is None:
        return False
    group = compute.attributes["group"]
    inputs = [(x.root.name, x.dtype.name), (packed_weights(tuner, promoted.operands[1], group, 1), word)]
    load, before = partial(_load, storage=x.dtype.name, texels=target.texels), []
    if zero is not None:
        inputs.append((zero.root.name, zero.dtype.name))
        before = [f"int zero = {element('b2', '0', zero.dtype.name, target.texels)};"]
        load = partial(load, zero=" - zero")
    known = 2 if compute.space[:2] == (x.shape[0], w.shape[0]) else 0
    weights = _weights(win.kernel, target.texels, known)
    windows = WindowStatements("product", word, (win.kernel, win.strides, win.dilations), 1, load, weights)
    results, is_narrow = x.shape[0] * w.shape[0] * prod(win.out), lanes(kind) > 1
    rows = x.shape[0] * w.shape[0] * win.out[0]
    threads = -(-results // EACH) if is_narrow else rows * -(-win.out[1] // EACH)
    lines = windows.words(lanes(kind), rows_are_whole(x, win.out)) if is_narrow else windows.elements()
    own = (
        win.height, win.width, *win.out, results if is_narrow else threads, *win.pads, w.shape[0],
        w.shape[0] // group,
    )  # fmt: skip
    step = ThreadStep(
        threads, [*before, *lines], _NAMES, own, inputs, compute.output.name,
        divisors=(*WINDOW_DIVISORS, *_DIVISORS), widths=(1, 4 if target.texels else 1, 1)[: len(inputs)],
        ns=GROUP * _COLUMN_NS * reach(win, 1) * win.kernel[0],
    )  # fmt: skip
    return emit_with_epilogue(compute, tuner, step, target, known)


def _load(position: str, storage: str, texels: bool, zero: str = "") -> str:
    return f"({element('b0', position, storage, texels)}{zero})"


def _weights(kernel: tuple[int, int], texels: bool, known: int) -> WindowWeights:
    """Weights as `engine.backends.gl.compute.conv.pack_weights` lays them out, for one channel a thread."""
    rows, taps = kernel
    texels_each = -(-taps // 4)
    before = [
        f"int n = {divide('plane', 'channels')}, m = plane - n * channels;",
        f"int from_plane = {divide('plane', 'per_group')};",
    ]
    if texels:
        row = [
            f"vec4 w{q} = texelFetch(b1, (m * {rows} + k) * {texels_each} + {q});" for q in range(texels_each)
        ]
        found = [f"w{t // 4}.{COMPONENTS[t % 4]}" for t in range(taps)]
    else:
        row = [f"float w{t} = b1[(m * {rows} + k) * {4 * texels_each} + {t}];" for t in range(taps)]
        found = [f"w{t}" for t in range(taps)]
    return WindowWeights(before, "from_plane", row, found, ("n", "m")[:known])
