"""Tree ensembles by QuickScorer: the leaf of each row, without loads at computed addresses.

All nodes of a tree are compared: each that a row does not pass excludes the leaves on its true side, and the
first leaf that is left is the one (QuickScorer; Lucchese et al., 2015). Neighbouring rows read the same
nodes and neighbouring features. Trees with more leaves than a word has bits are left to the generic kernel,
which walks from node to node.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.backends.opencl.codegen.tuned_kernel import OpenCLEpilogue, TunedKernel, axis_names, build, indent
from engine.backends.opencl.kernels.cpu_gemm import LOOSE
from engine.backends.operands import emit
from engine.base.dtypes import FLOAT32, INT32
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.expr import index
from engine.operators.ml.trees import COMPARISONS

_LEAVES = 32
_BIT_HASH = 0x077CB531
"""Times a power of two, its first five bits are another number for each power (a de Bruijn sequence)."""

_GROUP = 64
_ROWS, _TREES = 256, 4
"""What a work-item computes on a processor."""
_WIDTH = 32
_NUMBERS = ("rows", "trees", "nodes")


def tune_tree_ensemble(compute: Compute, tuner: Tuner, form: str) -> bool:
    """Rule for hints of kind "tree_ensemble_leaves" of float32; False if a tree has too many leaves."""
    x, table, splits, roots = compute.operands
    if x.dtype != FLOAT32 or splits.dtype != FLOAT32 or compute.attributes["missing"]:
        return False
    if table.known is None or splits.known is None or roots.known is None:
        return False
    nodes = table.known.reshape(-1, 3)
    trees = [_in_order(nodes, root) for root in roots.known.tolist()]
    if not all(trees):
        return False
    most = max(1, *(len(tree[0]) for tree in trees if tree))
    make = partial(forest_table, nodes, splits.known, roots.known, most)
    compared = tuner.constant(f"{table.root.name}:{splits.root.name}:compared", make)
    ends = tuner.constant(f"{table.root.name}:ends", partial(leaf_table, nodes, roots.known))
    # A vector may reach beyond the last row of the last feature.
    rows, features = x.shape
    by_feature = tuner.temporary(rows * features + _WIDTH, FLOAT32)
    emit(tuner, x[index(1), index(0)], (features, rows), FLOAT32, by_feature)
    epilogue = OpenCLEpilogue(compute, {}, axis_names(compute, 2, {0: "tree", 1: "row"}))
    kernel = _kernel(epilogue, COMPARISONS[compute.attributes["mode"]], form)
    if form == "cpu":
        grid = (-(-rows // _ROWS), -(-len(trees) // _TREES), 1)
    else:
        grid = (-(-rows // _GROUP), len(trees), 1)
    return epilogue.emit(tuner, kernel, grid, (rows, len(trees), most), (by_feature, compared, ends))


def _in_order(nodes: np.ndarray, root: int) -> tuple[list[int], list[int], list[int]] | None:
    """A tree's nodes, for each a mask of the leaves that remain if its test fails, and its leaves.

    None for a tree with more leaves than a word has bits.
    """
    order: list[int] = []
    masks: list[int] = []
    leaves: list[int] = []
    # When the traversal returns from a node's true side, its leaves are known.
    pending: list[tuple[int, int | None]] = [(root, None)]
    while pending:
        at, begin = pending.pop()
        if begin is not None:
            order.append(at)
            masks.append(~((1 << len(leaves)) - (1 << begin)))
        elif at < 0:
            leaves.append(-1 - at)
        else:
            _, on_true, on_false = nodes[at].tolist()
            pending += [(on_false, None), (at, len(leaves)), (on_true, None)]
        if len(leaves) > _LEAVES or len(pending) > 3 * _LEAVES:
            return None
    return order, masks, leaves


@storable
def forest_table(nodes: np.ndarray, splits: np.ndarray, roots: np.ndarray, most: int) -> np.ndarray:
    """(trees, most, 4) int32: feature, bits of the split, leaves that are left, and nothing."""
    table = np.zeros((len(roots), most, 4), INT32)
    # What fills a tree up excludes no leaf.
    table[:, :, 2] = -1
    for number, root in enumerate(roots.tolist()):
        found = _in_order(nodes, root)
        assert found is not None
        order, masks, _ = found
        table[number, : len(order), 0] = nodes[order, 0]
        table[number, : len(order), 1] = splits[order].astype(FLOAT32).view(INT32)
        table[number, : len(order), 2] = np.array(masks, np.int64).astype(np.uint32).view(INT32)
    return table.reshape(-1)


@storable
def leaf_table(nodes: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """(trees, 32) int32: the leaves of each tree, where their bits' hashes are."""
    table = np.zeros((len(roots), _LEAVES), INT32)
    places = [(_BIT_HASH << bit) % (1 << 32) >> 27 for bit in range(_LEAVES)]
    for number, root in enumerate(roots.tolist()):
        found = _in_order(nodes, root)
        assert found is not None
        table[number, places[: len(found[2])]] = found[2]
    return table.reshape(-1)


def _kernel(epilogue: OpenCLEpilogue, operator: str, form: str) -> TunedKernel:
    operands = ("X", "T:int32", "E:int32")
    if form == "cpu":
        body = f"""\
    const int first = (f0 + (int)get_global_id(0)) * {_ROWS}, begin = (f1 + (int)get_global_id(1)) * {_TREES};
    for (int tree = begin; tree < min(begin + {_TREES}, trees); ++tree) {{
        __global const int* N = T + 4 * tree * nodes;
        for (int next = first; next < min(first + {_ROWS}, rows); next += {_WIDTH}) {{
            uint16 low = 0xffffffffu, high = low;
            for (int n = 0; n < nodes; ++n) {{
                const float split = as_float(N[4 * n + 1]);
                const uint kept = (uint)N[4 * n + 2];
                __global const float* from = X + N[4 * n] * rows + next;
                low &= as_uint16(*(__global const loose16*)from {operator} split) | kept;
                high &= as_uint16(*(__global const loose16*)(from + 16) {operator} split) | kept;
            }}
            uint left[{_WIDTH}];
            *(loose_uint16*)left = (low & -low) * {_BIT_HASH}u >> 27;
            *(loose_uint16*)(left + 16) = (high & -high) * {_BIT_HASH}u >> 27;
            for (int l = 0; l < min({_WIDTH}, rows - next); ++l) {{
                const int row = next + l, flat = tree * rows + row, acc = E[{_LEAVES} * tree + left[l]];
{indent(epilogue.row_lines, 4)}{indent(epilogue.lines, 4)}\
            }}
        }}
    }}
"""
        head = LOOSE + "typedef uint16 loose_uint16 __attribute__((aligned(4)));\n"
        area = _ROWS * _TREES
        return build(body, epilogue, operands, _NUMBERS, (1, 1, 1), rounds=("nodes",), area=area, head=head)
    body = f"""\
    const int row = (f0 + (int)get_group_id(0)) * {_GROUP} + (int)get_local_id(0);
    const int tree = f1 + (int)get_group_id(1);
    if (row >= rows || tree >= trees) return;
    uint left = 0xffffffffu;
    for (int n = tree * nodes; n < (tree + 1) * nodes; ++n) {{
        const int4 node = vload4(n, T);
        left &= X[node.x * rows + row] {operator} as_float(node.y) ? 0xffffffffu : (uint)node.z;
    }}
    const int flat = tree * rows + row, acc = E[{_LEAVES} * tree + ((left & -left) * {_BIT_HASH}u >> 27)];
{indent(epilogue.row_lines, 1)}{indent(epilogue.lines, 1)}\
"""
    return build(body, epilogue, operands, _NUMBERS, (_GROUP, 1, 1), rounds=("nodes",), area=_GROUP)
