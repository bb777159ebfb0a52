"""Matrix transposition: vector-sized squares in registers, narrow matrices by a table."""

from __future__ import annotations

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import TaskSchedule, emit
from engine.backends.cpu.codegen.task_partition import cut_slim
from engine.backends.cpu.codegen.tiles import host_tile
from engine.backends.cpu.library import library_text
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import deferred, largest
from engine.kernels.value import Value

BLOCK_ROWS = 256
"""Rows that are turned before the columns made of them are stored, where there is an epilogue."""

BLOCK_COLUMNS = 64

PLAIN_ROWS, PLAIN_COLUMNS = 512, 32
"""The same of elements that stay as they are: the longer what is written at a time, the faster."""

TABLE = 1024
"""Results of a slim matrix that are taken at a time."""

_NS_PER_ELEMENT = 0.15
_SLIM_NS_PER_ELEMENT = 0.4
_NS_PER_TASK = 50.0

_TILE_ARGUMENTS = ArgumentBlock("last_size columns_in row_blocks column_blocks block_rows block_columns")
_SLIM_ARGUMENTS = ArgumentBlock(
    "last_size matrix lines line_step line_size blocks block_size block_step group near far"
)


def tune_transpose(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "transpose": a space of (batch, columns, rows) or (columns, rows).

    Of other types than float32, elements that stay as they are, and no slim matrices.
    """
    (x,), attributes = compute.operands, compute.attributes
    batch, rows, columns = (attributes[name] for name in ("batch", "rows", "columns"))
    wanted = ((batch, columns, rows), (columns, rows)) if batch == 1 else ((batch, columns, rows),)
    is_float32, is_plain = compute.is_float32, _is_plain(compute, x)
    if not (is_float32 or is_plain) or compute.space not in wanted:
        return False
    size = x.dtype.itemsize
    lanes = _lanes(size)
    # Only what holds for every input shape may choose between kernels.
    slim = x.rank == 3 and any(x.is_static(axis) and x.shape[axis] < lanes for axis in (1, 2))
    if slim and not is_float32:
        return False
    sizes, per_batch = _slim_sizes(rows, columns, lanes) if slim else _tile_sizes(rows, columns, is_plain)
    block = _SLIM_ARGUMENTS if slim else _TILE_ARGUMENTS
    epilogue = print_epilogue(compute, block.end, row_axes=len(compute.space) - (2 if slim else 1))
    each = rows * columns * (_SLIM_NS_PER_ELEMENT if slim else _NS_PER_ELEMENT) / per_batch + _NS_PER_TASK
    rank = len(compute.space)
    if slim:
        kernel = NativeKernel("transpose_slim", slim_text(rank, epilogue, is_plain))
    else:
        kernel = NativeKernel("transpose", tiles_text(lanes, size, rank, epilogue, is_plain))
    schedule = TaskSchedule(batch * per_batch, each)
    return emit(tuner, kernel, schedule, sizes, (x.name,), compute.output.name, epilogue)


def _is_plain(compute: Compute, x: Value) -> bool:
    """Whether elements are stored as they are."""
    return compute.epilogue is None and compute.output.dtype == x.dtype


def _lanes(size: int) -> int:
    """Rows and columns of a square of elements with so many bytes."""
    lanes = host_tile().lanes
    return {1: 16, 2: max(8, lanes), 4: lanes, 8: lanes // 2}[size]


def _tile_sizes(rows: int, columns: int, plain: bool) -> tuple[tuple[float, ...], int]:
    """The arguments of the square kernel, and its tasks per matrix. The last block takes the remainder."""
    block_rows, block_columns = (PLAIN_ROWS, PLAIN_COLUMNS) if plain else (BLOCK_ROWS, BLOCK_COLUMNS)
    row_blocks, column_blocks = largest(1, rows // block_rows), largest(1, columns // block_columns)
    sizes = _TILE_ARGUMENTS.values(
        last_size=rows, columns_in=columns, row_blocks=row_blocks, column_blocks=column_blocks,
        block_rows=block_rows, block_columns=block_columns,
    )  # fmt: skip
    return sizes, row_blocks * column_blocks


def _slim_sizes(rows: int, columns: int, lanes: int) -> tuple[tuple[float, ...], int]:
    """The arguments of the narrow kernel, and its tasks per matrix."""
    cut = deferred(cut_slim, rows, columns, lanes, TABLE)
    return (rows, *cut), cut[1] * cut[4]


def tiles_text(lanes: int, size: int, rank: int, epilogue: Epilogue, plain: bool) -> str:
    """Source of the kernel that transposes squares, or single elements."""
    assert plain or size == 4
    column_axis = rank - 2
    store = [
        "for column_out in range(wanted):",
        f"    i{column_axis} = c + column_out",
        "    tile = block + column_out * pitch * 4",
        f"    start = matrix_start + i{column_axis} * last_size + r0",
        "    columns, first_column = r1 - r0, r0",
        *indent(epilogue.store),
    ]
    lead = [
        *_TILE_ARGUMENTS.prologue("x", epilogue=epilogue),
        *([] if plain else [f"block = stack_bytes({lanes * 2 * BLOCK_ROWS * 4})"]),
        *epilogue.kernel,
    ]
    task = [
        "rest = op_div(task, column_blocks)",
        "column_block = task - rest * column_blocks",
        "batch = op_div(rest, row_blocks)",
        "row_block = rest - batch * row_blocks",
        *(["i0 = batch"] if rank == 3 else []),
        "matrix_start = batch * last_size * columns_in",
        f"source = x + matrix_start * {size}",
        "r0, c0 = row_block * block_rows, column_block * block_columns",
        "r1 = last_size if row_block == row_blocks - 1 else r0 + block_rows",
        "c1 = columns_in if column_block == column_blocks - 1 else c0 + block_columns",
        "pitch = last_size" if plain else f"pitch = {2 * BLOCK_ROWS}",
        "c = c0",
        "while c < c1:",
        # At the end, a square covers some columns again.
        f"    c = max(min(c, c1 - {lanes}), c0)",
        f"    wanted = min({lanes}, c1 - c)",
        *([f"    block = out + (matrix_start + c * last_size + r0) * {size}"] if plain else []),
        f"    first = source + (r0 * columns_in + c) * {size}",
        f"    transpose_band(first, columns_in * {size}, block, pitch * {size}, r1 - r0, wanted)",
        *indent([] if plain else store),
        f"    c += {lanes}",
    ]
    return kernel_text(library_text("vectors") + band_text(lanes, size), lead, task)


def band_text(lanes: int, size: int, name: str = "transpose_band") -> str:
    """The function `name`, which transposes rows of up to `lanes` elements of so many bytes."""
    short = "f32" if size == 4 else f"u{8 * size}"
    made = f"{name}_tile = make_transpose_tile({lanes}, {size})\n"
    return made + _TURN_BAND.format(name=name, lanes=lanes, size=size, short=short)


_TURN_BAND = """

@helper
def {name}(source, step, target, target_step, rows, columns):
    if rows < {lanes} or columns < {lanes}:
        for column in range(columns):
            for row in range(rows):
                store_{short}(target + column * target_step, row, load_{short}(source + row * step, column))
    else:
        r = 0
        while r < rows:
            r = min(r, rows - {lanes})
            {name}_tile(source + r * step, step, target + r * {size}, target_step)
            r += {lanes}
"""


def slim_text(rank: int, epilogue: Epilogue, plain: bool) -> str:
    """Source of the kernel for narrow matrices, which reads through a table of positions."""
    lead = [
        *_SLIM_ARGUMENTS.prologue("x", epilogue=epilogue),
        f"places = stack_bytes({TABLE * 4})",
        "for place in range(op_div(block_size, group)):",
        "    for k in range(group):",
        "        store_i32(places, place * group + k, k * near + place * far)",
        *([] if plain else [f"tile = stack_bytes({TABLE * 4})"]),
        *epilogue.kernel,
    ]
    task = [
        "rest = op_div(task, blocks)",
        "block = task - rest * blocks",
        "batch = op_div(rest, lines)",
        "line = rest - batch * lines",
        *(["i0 = batch"] if rank == 3 else []),
        "source = x + (batch * matrix + line * line_step + block * block_step) * 4",
        "first_column = line * line_size + block * block_size",
        "start = batch * matrix + first_column",
        "columns = min(block_size, line_size - block * block_size)",
        *(
            [
                "for k in range(columns):",
                "    place = to_int64(read_int32(places, k))",
                "    write_float32(out, start + k, read_float32(source, place))",
            ]
            if plain
            else [
                "for k in range(columns):",
                "    store_f32(tile, k, load_f32(source, to_int64(load_i32(places, k))))",
                *epilogue.store,
            ]
        ),
    ]
    return kernel_text(library_text(), lead, task)
