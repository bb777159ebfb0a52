"""Pooling of float32 over one or two axes: a row of results at a time, taps in the outer loops."""

from __future__ import annotations

from engine.backends.cpu.epilogue import Epilogue, is_float32_core, print_epilogue
from engine.backends.cpu.library import library_text
from engine.backends.cpu.native_kernel import NativeKernel
from engine.backends.cpu.planes import windows_of
from engine.backends.cpu.printer import indent, kernel_text
from engine.compiler.plan import Compute, Tuner

ROW_SUMS = 2048
"""Results of a row held at a time."""

_NS_PER_TAP = 0.2
_NS_PER_OUTPUT = 1.0

_WORDS = (
    "channels height width out_rows last_size kernel_rows kernel_columns row_stride stride"
    " row_dilation dilation top left count_top count_bottom count_left count_right"
).split()
_FIRST_WORD = 2

_HELPERS = """

@helper
def join_run(target, source, count, stride):
    # Equal strides that the compiler knows are what it can vectorise.
    if stride == 1:
        for k in range(count):
            store_f32(target, k, join(load_f32(target, k), load_f32(source, k)))
    elif stride == 2:
        for k in range(count):
            store_f32(target, k, join(load_f32(target, k), load_f32(source, 2 * k)))
    else:
        for k in range(count):
            store_f32(target, k, join(load_f32(target, k), load_f32(source, stride * k)))


@helper
def taps_inside(first, dilation, count, low, high):
    # The taps first + t * dilation that lie in low..high-1, as (begin, end).
    begin = 0
    while begin < count and first + begin * dilation < low:
        begin += 1
    end = count
    while end > begin and first + (end - 1) * dilation >= high:
        end -= 1
    return begin, end
"""

_JOIN = {"max": "op_max", "average": "op_add"}
_JOIN_IN_ORDER = {"max": "reduce_max", "average": "reduce_add"}


def tune_pool(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "pool": "max" or "average", float32, one or two axes."""
    assert compute.hint is not None
    win = windows_of(compute)
    facts = compute.hint.facts
    kind = str(facts["kind"])
    if win is None or not is_float32_core(compute) or kind not in _JOIN:
        return False
    (x,) = compute.hint.operands
    ends = [int(n) for n in facts["ends"]]
    bottom, right = ends if len(ends) == 2 else (0, ends[0])
    top, left = win.pads
    counted = (-top, win.height + bottom, -left, win.width + right)
    if not facts.get("include_pad", False):
        counted = (0, win.height, 0, win.width)
    epilogue = print_epilogue(compute, _FIRST_WORD + len(_WORDS), row_axes=len(compute.space) - 1)
    (sh, sw), (dh, dw) = win.strides, win.dilations
    sizes = (x.shape[1], win.height, win.width, *win.out, *win.kernel, sh, sw, dh, dw, top, left, *counted)
    nanoseconds = win.out[0] * win.out[1] * (win.taps * _NS_PER_TAP + _NS_PER_OUTPUT)
    kernel = NativeKernel(f"pool_{kind}", pool_text(kind, epilogue))
    values = (nanoseconds, *sizes, *epilogue.values)
    planes = x.shape[0] * x.shape[1]
    tuner.emit(kernel, (planes,), values, (*epilogue.inputs, x.name), compute.output.name)
    return True


def pool_text(kind: str, epilogue: Epilogue) -> str:
    """The kernel's module."""
    body = [
        *(f"{name} = arg_i64(args, {_FIRST_WORD + k})" for k, name in enumerate(_WORDS)),
        *epilogue.arguments,
        f"x = arg_i64(args, {_FIRST_WORD + len(_WORDS) + epilogue.words})",
        f"tile = stack_bytes({ROW_SUMS * 4})",
        *epilogue.kernel,
        "for plane in range(begin, end):",
        *indent(_plane(kind, epilogue)),
    ]
    joins = f"\njoin = {_JOIN[kind]}\njoin_in_order = {_JOIN_IN_ORDER[kind]}\n"
    return kernel_text(library_text() + joins + _HELPERS, body)


def _plane(kind: str, epilogue: Epilogue) -> list[str]:
    """One plane: for each row of results, every tap joins the whole row.

    Where windows are much wider than rows of results, each result runs over its window instead.
    """
    average = kind == "average"
    start = "0.0" if average else "-INF"
    wide = "_types.float64" if average else "_types.float32"
    rows_counted = [
        "    c0, c1 = taps_inside(y, row_dilation, kernel_rows, count_top, count_bottom)",
        "    rows_counted = c1 - c0",
    ]
    divide = [
        "        for k in range(columns):",
        "            shift = (first_column + k) * stride - left",
        "            b0, b1 = taps_inside(shift, dilation, kernel_columns, count_left, count_right)",
        "            amount = to_float32(rows_counted * (b1 - b0))",
        "            store_f32(tile, k, op_div(load_f32(tile, k), amount))",
    ]
    return [
        "i0 = op_div(plane, channels)",
        "i1 = plane - i0 * channels",
        "for i2 in range(out_rows):",
        "    y = i2 * row_stride - top",
        "    a0, a1 = taps_inside(y, row_dilation, kernel_rows, 0, height)",
        *(rows_counted if average else []),
        f"    for first_column in range(0, last_size, {ROW_SUMS}):",
        f"        columns = min({ROW_SUMS}, last_size - first_column)",
        "        start = (plane * out_rows + i2) * last_size + first_column",
        "        if dilation == 1 and columns * 4 <= kernel_columns:",
        "            for k in range(columns):",
        "                shift = (first_column + k) * stride - left",
        "                b0, b1 = taps_inside(shift, 1, kernel_columns, 0, width)",
        f"                total = {wide}({start})",
        "                for a in range(a0, a1):",
        "                    source = x + ((plane * height + y + a * row_dilation) * width + shift) * 4",
        "                    for b in range(b0, b1):",
        f"                        total = join_in_order(total, {wide}(load_f32(source, b)))",
        "                store_f32(tile, k, to_float32(total))",
        "        else:",
        "            for k in range(columns):",
        f"                store_f32(tile, k, {start})",
        "            for a in range(a0, a1):",
        "                source = x + (plane * height + y + a * row_dilation) * width * 4",
        "                for b in range(kernel_columns):",
        "                    shift = left - b * dilation",
        "                    low = max(op_div(shift + stride - 1, stride), first_column)",
        "                    if shift <= 0:",
        "                        low = first_column",
        "                    high = min(op_div(width - 1 + shift, stride) + 1, first_column + columns)",
        "                    if width + shift > 0 and high > low:",
        "                        origin = source + (low * stride - shift) * 4",
        "                        join_run(tile + (low - first_column) * 4, origin, high - low, stride)",
        *(divide if average else []),
        *indent(indent(epilogue.store)),
    ]
