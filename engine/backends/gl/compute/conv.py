"""Convolution of float32 or int32: register tiles of output channels by pixels.

Where tensors are buffer textures (software rendering), a thread computes four neighbouring pixels of a row
and reads texels of four floats: a fetch costs the same for one float as for four. The window of a row
is shifted into place once per row; taps are then constant components. Elsewhere a thread computes four
pixels that lie a group apart, so that neighbouring threads read neighbouring floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from engine.backends.gl.compute.epilogue import FIRST_GROUP, GLSLEpilogue, grid_fits, has_kernels, product_ns
from engine.backends.gl.compute.matmul import tune_pointwise
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.glsl import COMPONENTS
from engine.backends.operands import emit
from engine.backends.windows import windows_first
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.expr import arg, index, lit, load
from engine.kernels.value import Value

_PIXELS = 4
_LOCAL_SIZE = 64
_WRITTEN_ROWS = 3
_MOST_TAPS = 128
"""Taps in a row, which are written out: drivers take minutes to compile more of them."""
_ROUNDS = (6, 12)
"""Those that tell how often a thread's loop runs: kernel rows and input channels."""


@dataclass(frozen=True)
class _Shape:
    """A 2-D convolution: its sizes and the properties that the shader depends on."""

    n: int
    c: int
    h: int
    w: int
    m: int
    out_h: int
    out_w: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int]
    group: int
    row_is_aligned: bool
    """Whether rows start at multiples of four elements for every input shape of the model."""
    is_pointwise: bool

    @property
    def tile(self) -> int:
        """Output channels of a thread."""
        per_group = self.m // self.group
        return 1 if per_group == 1 else 4 if per_group <= 4 else 8

    @property
    def rounds(self) -> int:
        """Rounds of a thread's loops at most: over input channels and rows of the kernel, and for storing."""
        return self.c // self.group * (self.kernel[0] + 2) + self.tile * (_PIXELS + 2) + 2


def tune_conv(compute: Compute, tuner: Tuner, target: ShaderTarget) -> bool:
    """Replace a convolution; False if the tile does not support it."""
    x, w = compute.operands
    if not has_kernels(compute, x, w) or x.rank not in (3, 4):
        return False
    shape = _shape(compute, x, w)
    if shape.is_pointwise and shape.group == 1:
        return tune_pointwise(compute, tuner, target)
    if shape.kernel[1] > _MOST_TAPS or shape.rounds > target.limits.max_loop_rounds:
        return False
    tile = shape.tile
    weights = packed_weights(tuner, w, shape.group, tile)
    width = 4 if target.texels else 1
    weight_width = 4 if target.texels or tile > 1 else 1
    known = 2 if compute.space[:2] == (shape.n, shape.m) else 0
    finish = GLSLEpilogue(compute, [(x.root.name, width), (weights, weight_width)], known, target)
    if not finish.fits():
        return False
    pixels = (
        shape.out_h * -(-shape.out_w // _PIXELS)
        if target.texels
        else -(-shape.out_h * shape.out_w // _PIXELS)
    )
    blocks = shape.group * -(-(shape.m // shape.group) // tile)
    grid = (-(-pixels // _LOCAL_SIZE), blocks, shape.n)
    if not grid_fits(grid, target):
        return False
    text = _texel_main(shape, finish, known) if target.texels else _storage_main(shape, finish, known)
    round_ns = product_ns(_PIXELS * tile * shape.kernel[1], tile * shape.kernel[1] // 4 + shape.kernel[1])
    kernel = finish.kernel_for(text, len(_OWN), (_LOCAL_SIZE, 1), _ROUNDS, round_ns)
    finish.emit(tuner, kernel, grid, _arguments(shape))
    return True


def _shape(compute: Compute, x: Value, w: Value) -> _Shape:
    win = windows_first(compute)
    assert win is not None, "a convolution's space is (N, M, *out)"
    (h, width), (out_h, out_w) = (win.height, win.width), win.out
    static = all(x.is_static(axis) for axis in range(2, x.rank))
    if win.is_pointwise:
        # Rows do not matter to it: all pixels are one long row.
        h, width, out_h, out_w = 1, h * width, 1, out_h * out_w
    elif x.rank == 4:
        static = x.is_static(3)
    return _Shape(
        x.shape[0], x.shape[1], h, width, w.shape[0], out_h, out_w, win.kernel, win.strides, win.dilations,
        win.pads, compute.attributes["group"], static and width % _PIXELS == 0, win.is_pointwise,
    )  # fmt: skip


@storable
def pack_weights(w: np.ndarray, group: int, tile: int) -> np.ndarray:
    """Weights (M, C, *kernel) as (group, block, channel, row, tap, lane), the order in which a thread reads.

    With one channel a thread, the taps of a row are padded to texels of four instead.
    """
    m, per_group_in = w.shape[:2]
    rows, taps = (1, w.shape[2]) if w.ndim == 3 else w.shape[2:]
    data = w.reshape(group, m // group, per_group_in, rows, taps)
    if tile == 1:
        return np.pad(data, [(0, 0)] * 4 + [(0, -taps % 4)]).reshape(-1)
    blocks = -(-(m // group) // tile)
    padded = np.pad(data, [(0, 0), (0, blocks * tile - m // group), (0, 0), (0, 0), (0, 0)])
    padded = padded.reshape(group, blocks, tile, per_group_in, rows, taps)
    return np.ascontiguousarray(padded.transpose(0, 1, 3, 4, 5, 2)).reshape(-1)


def packed_weights(tuner: Tuner, w: Value, group: int, tile: int) -> str:
    """The name of the tensor of weights as `pack_weights` lays them out."""
    if w.known is None:
        return _emit_weights(tuner, w, group, tile)
    layout = f"{tile}:{group}:{'x'.join(map(str, w.shape))}"
    pack = partial(pack_weights, w.known.reshape(w.shape), group, tile)
    return tuner.constant(f"{w.name}:gl_conv:{layout}", pack)


def _emit_weights(tuner: Tuner, w: Value, group: int, tile: int) -> str:
    """Computed weights as `pack_weights` lays them out; the name of the tensor."""
    m, channels = w.shape[:2]
    rows, taps = (1, w.shape[2]) if w.rank == 3 else w.shape[2:]
    per_group = m // group
    g, block, c, r, t, lane = map(index, range(6))
    of_group = block * lit(tile) + lane
    if tile == 1:
        padded = taps + -taps % 4
        space = group, per_group, channels, rows, padded, 1
    else:
        padded = taps
        space = group, -(-per_group // tile), channels, rows, taps, tile
    position = (((g * per_group + of_group) * channels + c) * rows + r) * taps + t
    formula = load(w, position, (of_group < arg(per_group)) & (t < arg(taps)))
    name = tuner.temporary(prod(space), w.dtype)
    emit(tuner, formula, space, w.dtype, name)
    return name


_NAMES = (
    "channels height width out_channels out_height out_width rows stride_y dilation_y pad_y pad_x quads"
    " group_in group_out group_blocks batches"
).split()
_OWN = (*_NAMES, *FIRST_GROUP)
"""Arguments of the shaders."""


def _arguments(shape: _Shape) -> list[int]:
    group_out = shape.m // shape.group
    return [
        shape.c, shape.h, shape.w, shape.m, shape.out_h, shape.out_w, shape.kernel[0], shape.strides[0],
        shape.dilations[0], shape.pads[0], shape.pads[1], -(-shape.out_w // _PIXELS),
        shape.c // shape.group, group_out, -(-group_out // shape.tile), shape.n, 0, 0, 0,
    ]  # fmt: skip


def _prologue(tile: int) -> list[str]:
    return [
        f"int thread = int(gl_GlobalInvocationID.x) + group_x * {_LOCAL_SIZE};",
        "int n = int(gl_WorkGroupID.z) + group_z;",
        "int block = int(gl_WorkGroupID.y) + group_y;",
        "int group = block / max(group_blocks, 1);",
        f"int first = (block - group * group_blocks) * {tile};",
    ]


def _texel_main(shape: _Shape, finish: GLSLEpilogue, known: int) -> str:
    """One row, four neighbouring pixels; input and weights as texels of four."""
    tile, taps = shape.tile, shape.kernel[1]
    step, dilation = shape.strides[1], shape.dilations[1]
    span = (_PIXELS - 1) * step + (taps - 1) * dilation + 1
    shift = (-shape.pads[1]) % 4 if shape.row_is_aligned else None
    texels = -(-(span + (3 if shift is None else shift)) // 4)
    # Which of the window's columns any tap reads: wide strides and dilations skip some.
    columns = sorted({p * step + t * dilation for p in range(_PIXELS) for t in range(taps)})
    masked = not shape.is_pointwise
    lines = [
        *_prologue(tile),
        "int y = thread / max(quads, 1);",
        f"int x = (thread - y * quads) * {_PIXELS};",
        "if (y >= out_height || n >= batches) return;",
        f"int left = x * {step} - pad_x;",
        "int top = y * stride_y - pad_y;",
        *(f"vec4 a{k} = vec4(0.0);" for k in range(tile)),
    ]
    if masked:
        lines += [f"bool m{j} = uint(left + {j}) < uint(width);" for j in columns]
    per_row = -(-taps // 4) if tile == 1 else taps * tile // 4
    rows = range(shape.kernel[0])
    lines += [
        "int plane = (n * channels + group * group_in) * height;",
        f"int w = (group * group_blocks * {tile} + first) / {tile} * group_in * rows * {per_row};",
        "for (int c = 0; c < group_in; ++c) {",
    ]
    body = _texel_row(shape, shift, columns, texels, per_row)
    # Written out, rows cost less than a loop's bookkeeping of which lanes still run; many only grow the text.
    if len(rows) <= _WRITTEN_ROWS:
        for r in rows:
            lines += ["{", f"int r = {r};", *body, "}"]
    else:
        lines += ["for (int r = 0; r < rows; ++r) {", *body, "}"]
    lines += ["plane += height;", "}"]
    lines += _store(tile, "(y * out_width + x)", known, ["x + {p} < out_width"], 1)
    return finish.main(_OWN, lines)


def _texel_row(
    shape: _Shape, shift: int | None, columns: Sequence[int], texels: int, per_row: int
) -> list[str]:
    """One row of the kernel over one channel: fetch the window, put it in place, add its taps."""
    tile, taps = shape.tile, shape.kernel[1]
    step, dilation = shape.strides[1], shape.dilations[1]
    lines = [
        "    int row = top + r * dilation_y;",
        "    int at = (plane + row) * width + left;",
        "    int q = at >> 2;",
        *(f"    vec4 v{t} = texelFetch(b0, max(q + {t}, 0));" for t in range(texels)),
    ]
    parts = [f"v{k // 4}.{COMPONENTS[k % 4]}" for k in range(4 * texels)]
    if shift is None:
        lines.append("    bool by2 = (at & 2) != 0, by1 = (at & 1) != 0;")
        wanted = sorted({j + d for j in columns for d in (0, 1)})
        lines += [f"    float u{j} = by2 ? {parts[j + 2]} : {parts[j]};" for j in wanted]
        texts = {j: f"(by1 ? u{j + 1} : u{j})" for j in columns}
    else:
        texts = {j: parts[j + shift] for j in columns}
    if not shape.is_pointwise:
        lines.append("    bool inside = uint(row) < uint(height);")
        texts = {j: f"(inside && m{j} ? {text} : 0.0)" for j, text in texts.items()}
    lines += [f"    float s{j} = {text};" for j, text in texts.items()]
    if tile == 1:
        lines += [f"    vec4 w{k} = texelFetch(b1, w + {k});" for k in range(per_row)]
    for t in range(taps):
        values = ", ".join(f"s{p * step + t * dilation}" for p in range(_PIXELS))
        lines.append(f"    {{ vec4 p = vec4({values});")
        if tile == 1:
            lines.append(f"    a0 += w{t // 4}.{COMPONENTS[t % 4]} * p; }}")
            continue
        for k in range(0, tile, 4):
            lines.append(f"    vec4 w{k} = texelFetch(b1, w + {(t * tile + k) // 4});")
            lines += [f"    a{k + j} += w{k}.{COMPONENTS[j]} * p;" for j in range(4)]
        lines.append("    }")
    lines.append(f"    w += {per_row};")
    return lines


def _storage_main(shape: _Shape, finish: GLSLEpilogue, known: int) -> str:
    """The shader for storage buffers: four pixels, a work group's width apart."""
    tile, taps = shape.tile, shape.kernel[1]
    step, dilation = shape.strides[1], shape.dilations[1]
    lines = [
        *_prologue(tile),
        f"int x = (int(gl_WorkGroupID.x) + group_x) * {_LOCAL_SIZE * _PIXELS} + int(gl_LocalInvocationID.x);",
        "int pixels = out_height * out_width;",
        "if (x >= pixels || n >= batches) return;",
        *(f"vec4 a{k} = vec4(0.0);" for k in range(tile)),
    ]
    for p in range(_PIXELS):
        lines += [
            f"int y{p} = (x + {p * _LOCAL_SIZE}) / max(out_width, 1);",
            f"int left{p} = (x + {p * _LOCAL_SIZE} - y{p} * out_width) * {step} - pad_x;",
            f"int top{p} = y{p} * stride_y - pad_y;",
        ]
    per_row = taps * tile // 4 if tile > 1 else -(-taps // 4) * 4
    lines += [
        "int plane = (n * channels + group * group_in) * height;",
        f"int w = (group * group_blocks * {tile} + first) / {tile} * group_in * rows * {per_row};",
        "for (int c = 0; c < group_in; ++c) {",
        "for (int r = 0; r < rows; ++r) {",
    ]
    for p in range(_PIXELS):
        lines += [
            f"    int row{p} = top{p} + r * dilation_y;",
            f"    bool in{p} = uint(row{p}) < uint(height) && x + {p * _LOCAL_SIZE} < pixels;",
            f"    int at{p} = (plane + row{p}) * width + left{p};",
        ]
    for t in range(taps):
        lines.append("    { vec4 p = vec4(0.0);")
        for p in range(_PIXELS):
            inside = f"in{p} && uint(left{p} + {t * dilation}) < uint(width)"
            lines.append(f"    if ({inside}) p.{COMPONENTS[p]} = b0[at{p} + {t * dilation}];")
        if tile == 1:
            lines.append(f"    a0 += b1[w + {t}] * p; }}")
            continue
        for k in range(0, tile, 4):
            lines.append(f"    vec4 w{k} = b1[w + {(t * tile + k) // 4}];")
            lines += [f"    a{k + j} += w{k}.{COMPONENTS[j]} * p;" for j in range(4)]
        lines.append("    }")
    lines += [f"    w += {per_row};", "}", "    plane += height;", "}"]
    lines += _store(tile, "x", known, [f"x + {{p}} * {_LOCAL_SIZE} < pixels"], _LOCAL_SIZE)
    return finish.main(_OWN, lines)


def _store(tile: int, pixel: str, known: int, conditions: Sequence[str], step: int) -> list[str]:
    """A loop over the tile that finishes the elements which exist."""
    inits = ", ".join(f"a{k}.{COMPONENTS[p]}" for k in range(tile) for p in range(_PIXELS))
    inside = " && ".join(condition.format(p="p") for condition in conditions)
    axes = "n, m, " if known else ""
    return [
        f"float results[{tile * _PIXELS}] = float[{tile * _PIXELS}]({inits});",
        f"for (int k = 0; k < {tile}; ++k) {{",
        "    if (first + k >= group_out) break;",
        "    int m = group * group_out + first + k;",
        f"    int o = (n * out_channels + m) * out_height * out_width + {pixel};",
        f"    for (int p = 0; p < {_PIXELS}; ++p) {{",
        f"        if ({inside}) finish(o + p * {step}, {axes}results[k * {_PIXELS} + p]);",
        "    }",
        "}",
    ]
