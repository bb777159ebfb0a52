"""Softmax and normalisations over rows of float32, with each row in first-level cache."""

from __future__ import annotations

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import TaskSchedule, emit
from engine.backends.cpu.codegen.tiles import host_tile
from engine.backends.cpu.library import library_text
from engine.compiler.plan import Compute, Tuner

BLOCK = 2048
"""Elements of a row that are worked on at a time."""

_NS_PER_ELEMENT = {"softmax": 0.35, "logarithm": 0.35, "mean": 0.2, "square": 0.15}
_NS_PER_ROW = 25.0
_ARGUMENTS = ArgumentBlock("extent masked epsilon", reals="epsilon")

_OPERATIONS = ("top", "sum", "squares", "exp", "scale", "shift")


def tune_softmax(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "softmax": contiguous rows of float32."""
    attributes = compute.attributes
    kind = "logarithm" if attributes["logarithm"] else "softmax"
    return _emit(compute, tuner, kind, int(attributes["masked"]), 0.0)


def tune_normalize(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "normalize": contiguous rows of float32."""
    attributes = compute.attributes
    return _emit(
        compute, tuner, "mean" if attributes["centered"] else "square", 0, float(attributes["epsilon"])
    )


def _emit(compute: Compute, tuner: Tuner, kind: str, masked: int, epsilon: float) -> bool:
    (x,) = compute.operands
    if not compute.is_float32 or len(compute.space) != 2 or x.shape != compute.space:
        return False
    rows, extent = compute.space
    epilogue = print_epilogue(compute, _ARGUMENTS.end, row_axes=1)
    row_ns = extent * (_NS_PER_ELEMENT[kind] + 0.1) + _NS_PER_ROW
    arguments = _ARGUMENTS.values(extent=extent, masked=masked, epsilon=epsilon)
    kernel = NativeKernel(kind, normalization_text(kind, host_tile().lanes, epilogue))
    return emit(
        tuner, kernel, TaskSchedule(rows, row_ns), arguments, (x.name,), compute.output.name, epilogue
    )


def normalization_text(kind: str, lanes: int, epilogue: Epilogue) -> str:
    """Source of the kernel: a task is a row."""
    total = "_types.float32(total)"
    blocks = f"for first_column in range(0, extent, {BLOCK}):"
    columns = f"columns = min({BLOCK}, extent - first_column)"
    source = "source = row + first_column * 4"

    def over(line: str) -> list[str]:
        return [blocks, f"    {columns}", f"    {source}", f"    {line}"]

    if kind in ("softmax", "logarithm"):
        measure = [
            "top = _types.float32(-INF)",
            *over("top = max(top, row_top(0, source, columns))"),
            "if masked and top == -INF:",
            "    top = _types.float32(0.0)",
            "total = 0.0",
            *over("total += row_exp(work, source, columns, top)"),
            "if masked and total == 0.0:",
            "    total = 1.0",
        ]
        if kind == "softmax":
            measure.append(f"share = _types.float32(1.0) / {total}")
            work = [
                # A row of one block has computed its exponentials.
                f"if extent > {BLOCK}:",
                "    row_exp(work, source, columns, top)",
                "row_scale(work, work, columns, _types.float32(0.0), share)",
            ]
        else:
            measure.append(f"share = op_log({total})")
            work = ["row_shift(work, source, columns, top, share)"]
    else:
        measure = ["center = _types.float32(0.0)", "total = 0.0"]
        if kind == "mean":
            measure += [
                *over("total += row_sum(0, source, columns)"),
                "center = _types.float32(total / extent)",
            ]
        measure += [
            "total = 0.0",
            *over("total += row_squares(0, source, columns, center)"),
            "factor = _types.float32(1.0 / op_sqrt(total / extent + epsilon))",
        ]
        work = ["row_scale(work, source, columns, center, factor)"]
    body = [
        *_ARGUMENTS.prologue("x", epilogue=epilogue),
        f"work = stack_bytes({(BLOCK + lanes) * 4})",
        *epilogue.kernel,
        "for i0 in range(begin, end):",
        *indent(
            [
                "row = x + i0 * extent * 4",
                *measure,
                blocks,
                *indent([columns, source, *work, "tile = work", "start = i0 * extent + first_column"]),
                *indent(epilogue.store),
            ]
        ),
    ]
    made = "".join(f"row_{name} = make_row({name!r}, {lanes})\n" for name in _OPERATIONS)
    return kernel_text(library_text("vectors", "normalization") + made, body)
