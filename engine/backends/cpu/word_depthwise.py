"""Convolutions of one channel each, of any element type: a tap's word meets neighbours in place.

Nothing is gathered: a vector of words that starts one element later holds the next windows, so there are as
many vectors of sums as a word has elements, and their elements are interleaved at the end.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.backends.cpu.argument_block import ArgumentBlock
from engine.backends.cpu.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.library import library_text
from engine.backends.cpu.native_kernel import NativeKernel
from engine.backends.cpu.partition import SCRATCH_FLOATS
from engine.backends.cpu.planes import Layout
from engine.backends.cpu.printer import indent, kernel_text, read_text
from engine.backends.cpu.windows import MAX_TAPS, Windows
from engine.backends.cpu.words import (
    Words,
    byte_shift,
    elements_of,
    emit_planes,
    emit_rows_of_words,
    known_zeros,
    signed_bytes,
    zeros_of,
)
from engine.compiler.plan import Compute, Tuner, storable

_ARGUMENTS = ArgumentBlock(
    "out_rows out_columns channels plane_size row_step row_length kernel_rows groups row_blocks block_rows "
    "pitch shift last_size"
)


def tune_word_depthwise(compute: Compute, tuner: Tuner, win: Windows, words: Words, threads: int) -> bool:
    """Whether a convolution of one channel each is one over neighbours, and its steps are emitted."""
    assert compute.hint is not None
    x, w = compute.hint.operands[:2]
    x_zero, w_zero = zeros_of(compute)
    (kh, kw), (sh, sw), (oh, ow) = win.kernel, win.strides, win.out
    if words.elements % sw or win.dilations != (1, 1) or win.taps > MAX_TAPS:
        return False
    run = words.elements // sw * words.tile.lanes
    if ow + run > SCRATCH_FLOATS:
        return False
    in_bytes, groups = words.form == "bytes", words.count(kw)
    channels = w.shape[0]
    zeros = known_zeros(w_zero, byte_shift(w.dtype, signed=True) if in_bytes else 0)
    if words.elements > 1 and w.known is not None and (w_zero is None or w_zero.known is not None):
        if in_bytes and zeros.any():
            return False
        name = f"{w.name}|taps of {words.form}|{'' if w_zero is None else w_zero.name}"
        weights = tuner.constant(name, partial(pack_taps_of_words, elements_of(w), words, zeros))
    elif in_bytes or (w_zero is not None and w_zero.size > 1):
        return False
    else:
        sizes, strides = (1, channels * kh, kw), (0, kw, 1)
        weights = emit_rows_of_words(tuner, w, sizes, strides, words, w_zero).name
    layout = Layout((oh - 1) * sh + kh, (ow - 1) * sw + kw, 1, 1, sh)
    planes = emit_planes(tuner, x, x_zero, win, words, layout, stride=1)
    total = "to_int32(read_int32(tile, column) - row_total)" if in_bytes else ""
    epilogue = print_epilogue(compute, _ARGUMENTS.end, core=compute.body.dtype, total=total)
    count = x.shape[0] * channels
    tiles = oh * -(-ow // run)
    nanoseconds = tiles * kh * groups * (words.elements // sw) * 1.0 + tiles * 8.0
    nanoseconds += oh * ow * (epilogue.nanoseconds / 2 + 0.05) + 30.0
    block = max(1, min(oh, (SCRATCH_FLOATS - run) // ow))
    while block > 8 and count * -(-oh // block) < 2 * threads:
        block = -(-block // 2)
    blocks = -(-oh // block)
    shift = byte_shift(x.dtype, signed=False) if in_bytes else 0
    arguments = _ARGUMENTS.values(
        out_rows=oh, out_columns=ow, channels=channels, plane_size=planes.plane_size,
        row_step=planes.row_step, row_length=planes.row_length, kernel_rows=kh, groups=groups,
        row_blocks=blocks, block_rows=block, pitch=(kh * groups + in_bytes) * words.size, shift=shift,
        last_size=ow,
    )  # fmt: skip
    values = (nanoseconds / blocks, *arguments, *epilogue.values)
    zero = [x_zero] if in_bytes and x_zero is not None else []
    text = word_depthwise_text(words, sw, epilogue, zero[0].dtype.name if zero else "")
    inputs = (*epilogue.inputs, planes.name, weights, *(z.name for z in zero))
    tuner.emit(NativeKernel("word_depthwise", text), (count * blocks,), values, inputs, compute.output.name)
    return True


@storable
def pack_taps_of_words(elements: np.ndarray, words: Words, zeros: np.ndarray) -> np.ndarray:
    """(C, 1, kh, kw) weights as words along the rows of a window, of bytes followed by their sum."""
    channels, kw = elements.shape[0], elements.shape[-1]
    rows = elements.reshape(channels, -1, kw)
    if words.form == "bytes":
        numbers = signed_bytes(np.ascontiguousarray(rows)).astype(np.int32)
    else:
        numbers = rows.astype(np.int32) - zeros.astype(np.int32).reshape(-1, 1, 1)
    padded = np.zeros((*rows.shape[:2], words.count(kw) * words.elements), np.dtype(f"i{words.element_size}"))
    padded[..., :kw] = numbers
    taps = padded.reshape(channels, -1).view(np.int32)
    if words.form != "bytes":
        return taps.reshape(-1)
    return np.concatenate([taps, numbers.sum(axis=(1, 2), dtype=np.int32)[:, None]], axis=1).reshape(-1)


def word_depthwise_text(words: Words, stride: int, epilogue: Epilogue, x_zero: str) -> str:
    """The kernel's module. x_zero: the type of the input's zero point, if bytes have one."""
    lanes, size, in_bytes = words.tile.lanes, words.size, words.form == "bytes"
    run = words.elements // stride * lanes
    element = words.element_size
    body = [
        *_ARGUMENTS.prologue("x", "w", *(["x_zeros"] if x_zero else []), epilogue=epilogue),
        *([f"x_zero = to_int32({read_text(x_zero, 'x_zeros', '0')} + shift)"] if x_zero else []),
        *(["x_zero = to_int32(shift)"] if in_bytes and not x_zero else []),
        f"tile = stack_bytes({(SCRATCH_FLOATS + run) * size})",
        f"offsets = stack_bytes({MAX_TAPS * 8})",
        "taps = kernel_rows * groups",
        "for a in range(kernel_rows):",
        "    for g in range(groups):",
        f"        at = (a * row_length + g * {words.elements}) * {element}",
        "        store_i64(offsets, a * groups + g, at)",
        *epilogue.kernel,
        "for task in range(begin, end):",
        *indent(
            [
                "plane = op_div(task, row_blocks)",
                "first_row = (task - plane * row_blocks) * block_rows",
                "rows = min(block_rows, out_rows - first_row)",
                "i0 = op_div(plane, channels)",
                "i1 = plane - i0 * channels",
                "weights = w + i1 * pitch",
                *(["row_total = to_int32(x_zero * load_i32(weights, taps))"] if in_bytes else []),
                "for i in range(rows):",
                f"    source = x + (plane * plane_size + (first_row + i) * row_step) * {element}",
                f"    target = tile + i * out_columns * {size}",
                # What a run writes too far, the next row overwrites.
                f"    for j in range(0, out_columns, {run}):",
                f"        at = source + j * {stride * element}",
                f"        plane_tile(at, offsets, weights, taps, target + j * {size})",
                "columns = rows * out_columns",
                "first_column = first_row * out_columns",
                "start = plane * out_rows * out_columns + first_column",
                *epilogue.store,
            ]
        ),
    ]
    made = f"{words.multiplied_as(True)!r}, {words.elements}, {element}, {stride}, {lanes}"
    head = library_text("vectors", "products", "words") + f"plane_tile = make_plane_tile({made})\n"
    return kernel_text(head, body)
