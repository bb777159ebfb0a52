"""Pooling of float32 over one or two axes: a vector of neighbouring results at a time."""

from __future__ import annotations

from engine.backends.cpu.argument_block import ArgumentBlock
from engine.backends.cpu.bands import BAND_ARGUMENTS, band_memory, bands_text, cut_bands, walk_bands
from engine.backends.cpu.epilogue import Epilogue, is_float32_core, print_epilogue
from engine.backends.cpu.native_kernel import NativeKernel
from engine.backends.cpu.printer import indent, kernel_text
from engine.backends.cpu.tiles import Tile, host_tile
from engine.backends.cpu.windows import windows_first
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import deferred

TILE_VECTORS = 4
MAX_COLUMNS = 8192
"""Longest row of results that an average keeps counts for."""

_NS_PER_TAP = 0.1
_NS_PER_OUTPUT = 0.6

_ARGUMENTS = ArgumentBlock("channels", BAND_ARGUMENTS, "count_top count_bottom count_left count_right")

_HELPERS = """

@helper
def taps_inside(first, dilation, count, low, high):
    # How many of the taps first + t * dilation lie in low..high-1.
    begin = 0
    while begin < count and first + begin * dilation < low:
        begin += 1
    end = count
    while end > begin and first + (end - 1) * dilation >= high:
        end -= 1
    return end - begin
"""


def tune_pool(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "pool": "max", "average" or "sum", float32, one or two axes."""
    assert compute.hint is not None
    win = windows_first(compute)
    facts = compute.hint.facts
    kind = str(facts["kind"])
    if win is None or not is_float32_core(compute) or kind not in ("max", "average", "sum"):
        return False
    bands = deferred(cut_bands, win)
    if bands is None:
        return False
    if kind == "average" and win.out[1] > MAX_COLUMNS:
        return False
    (x,) = compute.hint.operands
    top, left = win.pads
    counted = (0, win.height, 0, win.width)
    if facts.get("include_pad", False):
        ends = [int(n) for n in facts["ends"]]
        bottom, right = ends if len(ends) == 2 else (0, ends[0])
        counted = (-top, win.height + bottom, -left, win.width + right)
    count = x.shape[0] * x.shape[1]
    epilogue = print_epilogue(compute, _ARGUMENTS.end)
    outputs = win.out[0] * win.out[1]
    nanoseconds = bands.nanoseconds + outputs * (win.taps * _NS_PER_TAP + _NS_PER_OUTPUT)
    kernel = NativeKernel(f"pool_{kind}", pool_text(host_tile(), kind, epilogue))
    arguments = _ARGUMENTS.values(
        channels=x.shape[1], **BAND_ARGUMENTS.named(bands.sizes),
        count_top=counted[0], count_bottom=counted[1], count_left=counted[2], count_right=counted[3],
    )  # fmt: skip
    values = (nanoseconds, *arguments, *epilogue.values)
    tuner.emit(kernel, (count,), values, (*epilogue.inputs, x.name), compute.output.name)
    return True


def pool_text(tile: Tile, kind: str, epilogue: Epilogue) -> str:
    """The kernel's module."""
    lanes, largest = tile.lanes, kind == "max"
    # Average: how many taps of each column of windows count, and of each row of windows.
    count_columns = [
        "for column in range(last_size):",
        "    reached = column * stride - left",
        "    inside = taps_inside(reached, dilation, kernel_columns, count_left, count_right)",
        "    store_f32(counts, column, to_float32(inside))",
    ]
    divide = [
        "for row in range(rows):",
        "    reached = (row0 + row) * row_stride - top",
        "    inside = taps_inside(reached, row_dilation, kernel_rows, count_top, count_bottom)",
        "    rows_inside = to_float32(inside)",
        "    for k in range(length):",
        "        amount = op_mul(rows_inside, load_f32(counts, first + k))",
        "        position = row * step + k",
        "        store_f32(tile, position, op_div(load_f32(tile, position), amount))",
    ]
    least = "-INF" if largest else "0.0"
    body = [
        *_ARGUMENTS.prologue("x", epilogue=epilogue),
        *band_memory(),
        f"padding = _types.float32({least})",
        *([f"counts = stack_bytes({MAX_COLUMNS * 4})", *count_columns] if kind == "average" else []),
        *epilogue.kernel,
        "for plane in range(begin, end):",
        "    i0 = op_div(plane, channels)",
        "    i1 = plane - i0 * channels",
        "    origin = x + plane * plane_size * 4",
        *indent(
            walk_bands(
                lanes,
                TILE_VECTORS,
                "wide_tile(source + done * 4, offsets, taps, sums + done * 4)",
                "slim_tile(source + done * 4, offsets, taps, sums + done * 4)",
                "padding",
                divide if kind == "average" else [],
                epilogue,
            )
        ),
    ]
    tiles = "".join(
        f"\n{name}_tile = make_pool_tile({vectors}, {lanes}, {largest})"
        for name, vectors in (("wide", TILE_VECTORS), ("slim", 1))
    )
    return kernel_text(bands_text(lanes) + tiles + _HELPERS, body)
