"""Convolutions of any element type, or with computed weights.

The weights are the left side, rows of words over (channel, tap). The right side has a column per output
position: a task gathers the words of one tile of columns at a time into its stack, by interleaving runs of
the input, and multiplies them by all its rows. Of short columns, several tiles are gathered, so that results
are written in long runs.
"""

from __future__ import annotations

from functools import partial

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text, read_text
from engine.backends.cpu.codegen.schedule import (
    Blocks,
    TaskGrid,
    TaskSchedule,
    TiledAxis,
    emit,
    halve,
    partition_axes,
)
from engine.backends.cpu.codegen.task_partition import up
from engine.backends.cpu.codegen.tiles import MAX_TAPS, Tile, by_height
from engine.backends.cpu.kernels.convolution.byte_windows import tune_byte_depthwise
from engine.backends.cpu.kernels.convolution.direct_conv import tune_direct_conv
from engine.backends.cpu.kernels.convolution.few_pixels_conv import tune_few_pixels_conv
from engine.backends.cpu.kernels.convolution.nchw_staging import (
    input_shift,
    staged_planes,
    tap_offsets_text,
)
from engine.backends.cpu.kernels.convolution.nchw_windows import tune_plane_conv
from engine.backends.cpu.kernels.matmul.packed_elements import (
    WordFormat,
    byte_shift,
    corrected_text,
    elements_of,
    emit_rows_of_words,
    known_zeros,
    pack_rows_of_words,
    words_of,
    zeros_of,
)
from engine.backends.cpu.library import library_text
from engine.backends.windows import windows_first
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import deferrable, deferred
from engine.kernels.value import Value

WORDS_AT_ONCE = 512
"""Words of a column that are gathered before they are multiplied."""

WORDS_NEAR = 256
"""Words of the columns of several tiles that stay in the nearest cache."""

SCRATCH_WORDS = 16384
"""Sums that a task holds on its stack (64 KiB)."""

_GRID = TaskGrid(m="m_size", pixel="p_size")
_ARGUMENTS = ArgumentBlock(
    "m_size p_size depth",
    _GRID.arguments,
    "groups plane_size kernel_rows kernel_columns row_step tap_row_step phase_step dilation stride out_width "
    "channels pitch ones shift last_size",
)


_HELPERS = """
copy_words = make_interleave({parts}, {bits}, {lanes}, {widened})


@helper
def find_runs(first, count, out_width, row_step, runs):
    # Where the columns first..first+count-1 of a tile lie: place in the tile and in the plane, in elements.
    found = 0
    done = 0
    while done < count:
        i = op_div(first + done, out_width)
        j = first + done - i * out_width
        length = min(out_width - j, count - done)
        store_i64(runs, 3 * found, done)
        store_i64(runs, 3 * found + 1, i * row_step + j)
        store_i64(runs, 3 * found + 2, length)
        done += length
        found += 1
    return found


@helper
def gather(target, source, begin, end, elements, taps, offsets, plane_size, runs, count, zero):
    # What a run writes too far, the next one or the next word overwrites.
    element = begin * {parts}
    channel = op_div(element, taps)
    tap = element - channel * taps
    origin = source + channel * plane_size * {size}
    for word in range(begin, end):
        a = origin + load_i64(offsets, tap)
        b, c, d = a, a, a
{advance}
        for r in range(count):
            place = target + load_i64(runs, 3 * r) * {word}
            start = load_i64(runs, 3 * r + 1) * {size}
            length = load_i64(runs, 3 * r + 2)
            for done in range(0, length, {lanes}):
                at = start + done * {size}
                copy_words(place + done * {word}, a + at, b + at, c + at, d + at, zero)
        target += {width} * {word}


@helper
def add_words(target, source, count):
    for k in range(count):
        store_{sum}(target, k, load_{sum}(target, k) + load_{sum}(source, k))

"""

_ADVANCE = """\
        tap += 1
        element += 1
        if tap == taps:
            tap = 0
            origin += plane_size * {size}
"""

_NEXT = """\
        if element < elements:
            {name} = origin + load_i64(offsets, tap)
"""


def tune_any_type_conv(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "conv" and "conv_integer" over one or two axes, channels first."""
    words, attributes = words_of(compute), compute.attributes
    if words is None or attributes.get("channels_last"):
        return False
    win = windows_first(compute)
    if win is None or win.taps > MAX_TAPS:
        return False
    x, w = compute.operands[:2]
    x_zero, w_zero = zeros_of(compute)
    group = int(attributes["group"])
    batch, channels, m = x.shape[0], w.shape[1], w.shape[0] // group
    if group > 1 and tune_byte_depthwise(compute, tuner, win):
        return True
    if group > 1 and tune_plane_conv(compute, tuner, win, words, threads):
        return True
    if tune_few_pixels_conv(compute, tuner, win, words, threads):
        return True
    if tune_direct_conv(compute, tuner, win, words, threads):
        return True
    if w_zero is not None and w_zero.size not in (1, w.shape[0]):
        return False
    in_bytes = words.form == "bytes"
    tile, k = words.tile, channels * win.taps
    depth = words.count(k)
    w_zeros = known_zeros(w_zero, byte_shift(w.dtype, signed=True) if in_bytes else 0)
    has_sums = in_bytes and bool(w_zeros.any())
    if words.elements > 1 and w.known is not None and (w_zero is None or w_zero.known is not None):
        name = f"{w.name}|rows of {words.form}|{'' if w_zero is None else w_zero.name}"
        pack = partial(pack_rows_of_words, elements_of(w), w.shape[0], words, w_zeros, int(has_sums))
        left, pitch = tuner.constant(name, pack), (depth + 2 * in_bytes) * words.size
    else:
        rows = emit_rows_of_words(tuner, w, (1, w.shape[0], k), (0, k, 1), words, w_zero)
        left, pitch = rows.name, rows.row
    laid = _words_of_input(x, words)
    planes = staged_planes(tuner, x, x_zero, win, laid)
    total = corrected_text(has_sums) if in_bytes else ""
    epilogue = print_epilogue(compute, _ARGUMENTS.end, core=compute.body.dtype, total=total)
    pixels = win.out[0] * win.out[1]
    gathered = batch * group * depth * pixels * words.size / 16.0
    nanoseconds = 2.0 * batch * group * max(m, 2) * k * pixels / words.flops_per_ns + gathered
    nanoseconds += batch * group * m * pixels * (epilogue.nanoseconds / 2 + 0.02) + 500.0
    heights = [height for height in tile.heights if height <= max(m, 1)]
    one_ns = nanoseconds / (batch * group)
    near = depth if words.elements == 1 else WORDS_NEAR
    blocks = deferred(cut_gathered, m, pixels, near, heights[0], tile, one_ns, threads)
    zeros = [x_zero] if laid.form == "bytes" and x_zero is not None else []
    sizes = _ARGUMENTS.values(
        m_size=m, p_size=pixels, depth=depth, **_GRID.values(*blocks), groups=group,
        plane_size=planes.plane_size,
        kernel_rows=win.kernel[0], kernel_columns=win.kernel[1], row_step=planes.row_step,
        tap_row_step=planes.tap_row_step, phase_step=planes.phase_step, dilation=planes.dilation,
        stride=planes.stride, out_width=pixels if win.is_pointwise else win.out[1], channels=channels,
        pitch=pitch, ones=w.shape[0], shift=input_shift(laid, x),
        last_size=win.out[1],
    )  # fmt: skip
    zero_type = zeros[0].dtype.name if zeros else ""
    is_plain = compute.epilogue is None and compute.output.dtype.name == words.form
    text = any_type_conv_text(words, laid, heights, epilogue, zero_type, has_sums, is_plain)
    kernel, schedule = (
        NativeKernel("any_type_conv", text),
        TaskSchedule.over(blocks, nanoseconds, batch * group),
    )
    inputs = (planes.name, left, *(zero.name for zero in zeros))
    return emit(tuner, kernel, schedule, sizes, inputs, compute.output.name, epilogue)


@deferrable
def cut_gathered(
    m: int, n: int, depth: int, tile_rows: int, tile: Tile, nanoseconds: float, threads: int
) -> tuple[Blocks, ...]:
    """Partition m x n results, of this cost, into blocks of whole tiles for all threads.

    Columns are cut as long as possible, because each block of rows gathers the columns again.
    """
    wanted = tasks_wanted(nanoseconds, threads)
    if 8 * depth <= WORDS_NEAR:
        rows = TiledAxis(m, up(m, tile_rows), tile_rows, 4 * tile_rows)
        columns = TiledAxis.of_tiles(n, min(n, WORDS_NEAR // depth * tile.width), tile.width)
        return partition_axes([rows, columns], 1, wanted)

    def fitting(columns: int) -> int:
        return min(up(m, tile_rows), SCRATCH_WORDS // columns // tile_rows * tile_rows)

    # A narrower block leaves room for more rows, down to the least that fits.
    widest = TiledAxis(n, min(up(n, tile.width), up(128, tile.width)), tile.width, 2 * tile.width)
    (narrow,) = halve([widest], lambda columns: fitting(columns.block) < m)
    rows = TiledAxis.of_tiles(m, fitting(narrow.block), tile_rows)
    columns = TiledAxis.of_tiles(n, narrow.block, tile.width)
    return partition_axes([columns, rows], 1, wanted)[::-1]


def _words_of_input(x: Value, words: WordFormat) -> WordFormat:
    """The words whose elements the input is laid out as: pairs are made of bytes where they are gathered."""
    return WordFormat("bytes", 4) if words.form == "pairs" and x.dtype.itemsize == 1 else words


def any_type_conv_text(
    words: WordFormat, laid: WordFormat, heights: list[int], epilogue: Epilogue, x_zero: str, has_sums: bool,
    is_plain: bool,
) -> str:  # fmt: skip
    """Source of the kernel.

    laid: the words whose elements the input has. x_zero: the type of its zero point, for bytes. is_plain:
    whether sums are results as they are.
    """
    tile, size = words.tile, words.size
    step, in_bytes = tile.width, words.form == "bytes"
    width = step * size
    advance = "".join(
        _ADVANCE + (_NEXT.replace("{name}", name) if name else "")
        for name in [*"bcd"[: words.elements - 1], ""]
    )
    helpers = _HELPERS.replace("{advance}", advance)
    numbers = {
        "parts": words.elements, "bits": laid.element_size * 8, "lanes": tile.lanes, "word": size,
        "size": laid.element_size, "width": step, "sum": words.sum,
        "widened": 0 if laid.element_size == words.element_size else words.element_size * 8,
    }  # fmt: skip
    for name, number in numbers.items():
        helpers = helpers.replace(f"{{{name}}}", str(number))
    row = [
        *(["row_total = to_int32(x_zero * load_i32(w + i1 * pitch, depth))"] if in_bytes else []),
        *(["row_zero = to_int32(load_i32(w + i1 * pitch, depth + 1))"] if has_sums else []),
    ]
    store = [
        "for i in range(m, m + rows):",
        "i1 = group * m_size + i",
        f"tile = total + (i - m) * {width}",
        "start = (image * m_size + i) * p_size + first_column",
        *row,
    ]

    at_once = [
        f"is_whole = columns == {step} and depth <= {WORDS_AT_ONCE}",
        "if is_whole:",
        f"    target = out + ((image * m_size + m) * p_size + first_column) * {size}",
        f"    target_row = p_size * {size}",
    ]

    def product(height: int) -> list[str]:
        return [f"tile_of_{height}(left, pitch, near, {width}, count, target, near, 0, 0, target_row)"]

    # Results of words of several elements are mostly bytes, and sums of columns those of one tile.
    is_single = words.elements > 1
    near = "right" if is_single else f"right + (first_column - first) * count * {size}"
    columns = f"columns = min({step}, p_size - first_column)"

    def of_each_tile(lines: list[str]) -> list[str]:
        if is_single:
            return lines
        return [f"for first_column in range(first, last, {step}):", *indent([columns, *lines])]

    products = [
        # Sums of one pass are stored while they are in the nearest cache, or at once.
        f"total = sums + (m - m0) * {width} if depth > {WORDS_AT_ONCE} else sums",
        f"target, target_row = total if w0 == 0 else more, {width}",
        *(at_once if is_plain else []),
        f"near = {near}",
        *by_height(heights, "remaining", product),
        "if w0 != 0:",
        f"    add_words(total, more, rows * {step})",
        f"if w0 + count == depth{' and not is_whole' if is_plain else ''}:",
        *indent(epilogue.store_tile(step, store)),
    ]
    column_sums = [
        f"tile_of_1(w + ones * pitch + w0 * {size}, 0, right, {width}, count, more, right, 0, 0, {width})",
        "if w0 == 0:",
        f"    copy_bytes(column_sums, more, {width})",
        "else:",
        f"    add_words(column_sums, more, {step})",
    ]
    gathering = [
        "run_count = find_runs(first_column, columns, out_width, row_step, runs)",
        f"gather({near}, source, w0, w0 + count, channels * taps, taps, offsets, plane_size, runs, run_count,"
        f" {'x_zero' if laid.form == 'bytes' else 0})",
    ]
    block = [
        *([columns] if is_single else ["last = min(first + at_once, pixel1)"]),
        f"source = x + image * channels * plane_size * {laid.element_size}",
        "w0 = 0",
        "while w0 < depth:",
        f"    count = min({WORDS_AT_ONCE}, depth - w0)",
        *indent(of_each_tile(gathering)),
        f"    lefts = w + group * m_size * pitch + w0 * {size}",
        *indent(column_sums if has_sums else []),
        "    m = m0",
        "    while m < m1:",
        "        left = lefts + m * pitch",
        "        remaining = m1 - m",
        *indent(indent(of_each_tile(products))),
        "        m += rows",
        f"    w0 += {WORDS_AT_ONCE}",
    ]
    lead = [
        *_ARGUMENTS.prologue("x", "w", *(["x_zeros"] if x_zero else []), epilogue=epilogue),
        *([f"x_zero = to_int32({read_text(x_zero, 'x_zeros', '0')} + shift)"] if x_zero else []),
        *(["x_zero = to_int32(shift)"] if laid.form == "bytes" and not x_zero else []),
        "taps = kernel_rows * kernel_columns",
        f"at_once = {step if is_single else f'max(op_div({WORDS_NEAR}, depth), 1) * {step}'}",
        *(["all_zeros = to_int32(x_zero * channels * taps)"] if has_sums else []),
        f"sums = stack_bytes({(SCRATCH_WORDS + heights[0] * step) * size})",
        f"more = stack_bytes({heights[0] * width})",
        *([f"column_sums = stack_bytes({width})"] if has_sums else []),
        f"right = stack_bytes({(WORDS_AT_ONCE + 1) * width})",
        f"offsets = stack_bytes({MAX_TAPS * 8})",
        f"runs = stack_bytes({step * 24})",
        "tap_offsets(offsets, 0, kernel_rows, kernel_columns, tap_row_step, phase_step, dilation, stride)",
        *epilogue.kernel,
    ]
    task = [
        *_GRID.locate("image"),
        "i0 = op_div(image, groups)",
        "group = image - i0 * groups",
        f"for {'first_column' if is_single else 'first'} in range(pixel0, pixel1, at_once):",
        *indent(block),
    ]
    head = library_text("vectors", "matmul_tiles", "packed_elements") + words.tiles_text(
        heights, signed_left=True, has_steps=True
    )
    return kernel_text(head + helpers + tap_offsets_text(laid.element_size), lead, task)
