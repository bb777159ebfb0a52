"""Matrix products of any element type, with zero points subtracted in the epilogue."""

from __future__ import annotations

from functools import partial

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text, read_text
from engine.backends.cpu.codegen.schedule import TaskGrid, TaskSchedule, emit
from engine.backends.cpu.codegen.tiles import by_height
from engine.backends.cpu.kernels.matmul.matmul import blocks_of_product
from engine.backends.cpu.kernels.matmul.packed_elements import (
    WordFormat,
    byte_shift,
    column_numbers,
    elements_of,
    emit_panels_of_words,
    emit_rows_of_words,
    known_zeros,
    pack_panels_of_words,
    words_of,
    zeros_of,
)
from engine.backends.cpu.library import library_text
from engine.compiler.plan import Compute, Tuner

_GRID = TaskGrid(m="m_size", column="n_size")
_ARGUMENTS = ArgumentBlock(
    "m_size n_size depth", _GRID.arguments, "a_batch a_row b_batch zero_count shift k_size number_batch"
)


def tune_any_type_matmul(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "matmul" and "matmul_integer" over (batch, m, n)."""
    words, attributes = words_of(compute), compute.attributes
    m, n, k, batch = (attributes[name] for name in ("m", "n", "k", "batch"))
    if words is None or compute.space != (batch, m, n):
        return False
    a, b = compute.operands[:2]
    a_strides, b_strides = tuple(attributes["a_strides"]), tuple(attributes["b_strides"])
    a_zero, b_zero = zeros_of(compute)
    for zero, lines in ((a_zero, m), (b_zero, n)):
        if zero is not None and zero.size not in (1, lines):
            return False
    in_bytes = words.form == "bytes"
    tile = words.tile
    panels, depth = -(-n // tile.width), words.count(k)
    b_count = 1 if b_strides[0] == 0 else batch
    b_zeros = known_zeros(b_zero, byte_shift(b.dtype, signed=True) if in_bytes else 0)
    has_sums = in_bytes and bool(b_zeros.any())
    left = emit_rows_of_words(tuner, a, (batch, m, k), a_strides, words, a_zero, has_sums)
    constants: list[str] = []
    if b.known is not None and (b_zero is None or b_zero.known is not None):
        sizes = (b_count, k, n)
        shifted = "" if b_zero is None else b_zero.name
        name = f"{b.name}|{words.form}{tile.width}|{sizes}|{b_strides}|{shifted}"
        pack = partial(pack_panels_of_words, elements_of(b), sizes, b_strides, words, b_zeros)
        right = tuner.constant(name, pack)
        if in_bytes:
            numbers = partial(column_numbers, elements_of(b), sizes, b_strides, b_zeros)
            constants.append(tuner.constant(f"{name}|numbers", numbers))
    else:
        right = emit_panels_of_words(tuner, b, (batch, k, n), b_strides, words, b_zero)
    a_zeros = [a_zero] if in_bytes and a_zero is not None else []
    total = _total_text(has_sums) if in_bytes else ""
    epilogue = print_epilogue(compute, _ARGUMENTS.end, core=compute.body.dtype, total=total)
    nanoseconds = 2.0 * m * panels * tile.width * k / words.flops_per_ns + 4.0 * k * n / 50.0
    nanoseconds = batch * (nanoseconds + m * n * (epilogue.nanoseconds / 2 + 0.02)) + 50.0
    blocks = blocks_of_product(m, n, depth, tile, batch, nanoseconds, threads)
    arguments = _ARGUMENTS.values(
        m_size=m, n_size=n, depth=depth, **_GRID.values(*blocks), a_batch=left.batch, a_row=left.row,
        b_batch=0 if b_strides[0] == 0 else panels * depth * tile.width * words.size,
        zero_count=a_zeros[0].size if a_zeros else 1,
        shift=byte_shift(a.dtype, signed=False) if in_bytes else 0, k_size=k,
        number_batch=0 if b_strides[0] == 0 else 2 * n,
    )  # fmt: skip
    text = any_type_matmul_text(words, epilogue, a_zeros[0].dtype.name if a_zeros else "", has_sums)
    kernel, schedule = NativeKernel("any_type_matmul", text), TaskSchedule.over(blocks, nanoseconds, batch)
    inputs = (left.name, right, *constants, *(zero.name for zero in a_zeros))
    return emit(tuner, kernel, schedule, arguments, inputs, compute.output.name, epilogue)


def _total_text(has_sums: bool) -> str:
    """A sum of products of shifted bytes, corrected for zero points and shifts."""
    sums = "to_int32(read_int32(tile, column) - row_zero * read_int32(numbers, first_column + column)"
    if not has_sums:
        return f"{sums})"
    return f"{sums} - row_sum * read_int32(numbers, n_size + first_column + column))"


def any_type_matmul_text(words: WordFormat, epilogue: Epilogue, a_zero: str, has_sums: bool) -> str:
    """Source of the kernel. a_zero: the type of the left side's zero points, for bytes."""
    tile, size = words.tile, words.size
    heights = tile.heights
    step, in_bytes = tile.width, words.form == "bytes"
    zeros = "i1 if zero_count > 1 else 0"
    row = [
        *(["row_zero = to_int32(shift)"] if in_bytes and not a_zero else []),
        *([f"row_zero = to_int32({read_text(a_zero, 'zeros', zeros)} + shift)"] if a_zero else []),
        *(
            ["row_sum = to_int32(load_i32(lefts + i1 * a_row, depth) - k_size * row_zero)"]
            if has_sums
            else []
        ),
    ]
    rows = [
        "for i1 in range(m, m + rows):",
        f"tile = sums + (i1 - m) * {step * size}",
        "start = (i0 * m_size + i1) * n_size + first_column",
        *row,
    ]

    def product(height: int) -> list[str]:
        return [f"tile_of_{height}(left, a_row, right, {step * size}, depth, sums, right, 0, 0)"]

    panel = [
        f"columns = min({step}, n_size - first_column)",
        f"right = rights + op_div(first_column, _types.int64({step})) * depth * {step * size}",
        "m = m0",
        "while m < m1:",
        "    left = lefts + m * a_row",
        "    remaining = m1 - m",
        *indent(by_height(heights, "remaining", product)),
        *indent(epilogue.store_tile(step, rows)),
        "    m += rows",
    ]
    names = ["a", "b", *(["numbers_of"] if in_bytes else []), *(["zeros"] if a_zero else [])]
    lead = [
        *_ARGUMENTS.prologue(*names, epilogue=epilogue),
        f"sums = stack_bytes({heights[0] * step * size})",
        *epilogue.kernel,
    ]
    task = [
        *_GRID.locate("i0"),
        "lefts = a + i0 * a_batch",
        "rights = b + i0 * b_batch",
        *(["numbers = numbers_of + i0 * number_batch * 4"] if in_bytes else []),
        f"for first_column in range(column0, column1, {step}):",
        *indent(panel),
    ]
    return kernel_text(library_text("vectors", "matmul_tiles") + words.tiles_text(heights), lead, task)
