"""Tree ensembles: several trees are traversed in turn, which hides the latency of loads."""

from __future__ import annotations

from functools import partial

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import SHORTEST_BLOCK, tasks_wanted
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import TaskGrid, TaskSchedule, emit, even_blocks
from engine.backends.cpu.library import library_text
from engine.backends.tree_ensembles import node_records
from engine.base.dtypes import FLOAT32
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import smallest
from engine.operators.ml.trees import COMPARISONS

_WALKS = 8
"""Walks that take turns: as many as the registers hold."""

_CHUNK = 64
"""Leaves that are found before the epilogue is applied to them; a multiple of `_WALKS`."""

_NS_PER_NODE = 1.5

_GRID = TaskGrid(place="total")
_ARGUMENTS = ArgumentBlock("total rows features", _GRID.arguments)


def tune_tree_ensemble(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "tree_ensemble_leaves" of float32."""
    (x, table, splits, roots), attributes = compute.operands, compute.attributes
    if x.dtype != FLOAT32 or splits.dtype != FLOAT32 or table.known is None or splits.known is None:
        return False
    if not splits.size:
        return False
    make = partial(node_records, table.known, splits.known)
    nodes = tuner.constant(f"{table.root.name}:{splits.root.name}:records", make)
    (rows, features), (trees, _) = x.shape, compute.space
    total = trees * rows
    epilogue = print_epilogue(compute, _ARGUMENTS.end, row_axes=0, core="int32")
    each = max(attributes["depth"], 1) * _NS_PER_NODE + epilogue.nanoseconds
    blocks = even_blocks(total, smallest(tasks_wanted(total * each, threads), total // SHORTEST_BLOCK))
    arguments = _ARGUMENTS.values(total=total, rows=rows, features=features, **_GRID.values(blocks))
    kernel = NativeKernel(
        "tree_ensemble_leaves", leaves_text(COMPARISONS[attributes["mode"]], attributes["missing"], epilogue)
    )
    schedule, names = TaskSchedule.over((blocks,), total * each), (x.name, nodes, roots.name)
    return emit(tuner, kernel, schedule, arguments, names, compute.output.name, epilogue)


def leaves_text(comparison: str, has_missing: bool, epilogue: Epilogue) -> str:
    """The kernel's module. `has_missing`: there are nodes where NaN is on the true side."""
    walks = range(_WALKS)
    passes = [f"is_true = load_f32(row{{0}}, feature) {comparison} load_f32(node, 1)"]
    if has_missing:
        passes = [
            "value = load_f32(row{0}, max(feature, -1 - feature))",
            f"is_true = (value {comparison} load_f32(node, 1)) | ((feature < 0) & op_isnan(value))",
        ]
    lead = [
        *_ARGUMENTS.prologue("x", "nodes", "roots", epilogue=epilogue),
        *epilogue.kernel,
        "last_size = rows",
        f"tile = stack_bytes({4 * _CHUNK})",
    ]
    begins, step = [], []
    for walk in walks:
        begins += [
            f"at{walk}, row{walk} = _types.int64(-1), x",
            f"if first + {walk} < columns:",
            f"    at{walk}, row{walk} = to_int64(load_i32(roots, tree)), x + row * features * 4",
            "    row += 1",
            "    if row == rows:",
            "        row, tree = 0, tree + 1",
        ]
        step += [
            f"node = nodes + max(at{walk}, 0) * 16",
            "feature = to_int64(load_i32(node, 0))",
            *(line.format(walk) for line in passes),
            "after = to_int64(op_select(is_true, load_i32(node, 2), load_i32(node, 3)))",
            f"at{walk} = op_select(at{walk} < 0, at{walk}, after)",
        ]
    rounds = [
        *begins,
        f"while ({' & '.join(f'at{walk}' for walk in walks)}) >= 0:",
        *indent(step),
        *(f"store_i32(tile, first + {walk}, -1 - at{walk})" for walk in walks),
        f"first += {_WALKS}",
    ]
    chunk = [
        f"columns = min({_CHUNK}, place1 - start)",
        "first = 0",
        "while first < columns:",
        *indent(rounds),
        "first_column = start",
        *epilogue.store,
        "start += columns",
    ]
    task = [
        *_GRID.locate(),
        "start = place0",
        "tree = op_div(start, rows)",
        "row = start - tree * rows",
        "while start < place1:",
        *indent(chunk),
    ]
    return kernel_text(library_text(), lead, task)
