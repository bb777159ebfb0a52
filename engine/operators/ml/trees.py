"""Ensembles of decision trees (domain ai.onnx.ml).

A first kernel walks every tree for every row and notes the leaf; a second one adds up, for each output, what
the leaves give. Nodes of all trees are in one table, where a child is a node or, below 0, a leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from engine.base.dtypes import INT32
from engine.graph.model import ML
from engine.kernels.expr import Expr, arg, cast, clamp, compare, eq, fold, lit, minimum, reduce, select, unary
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.ml.scores import TRANSFORMS, transformed
from engine.operators.registry import operator

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""How a node compares a feature with its split, in the order of their numbers."""
COMPARISONS = {"LEQ": "<=", "LT": "<", "GTE": ">=", "GT": ">", "EQ": "==", "NEQ": "!="}
"""The modes that compare a feature with the split, as C and GLSL write them."""
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(frozen=True)
class Forest:
    """Trees as tables: `roots` and `children` (on true, on false) name a node, or leaf i as -1 - i.

    `sets` has for each node where its set of members begins and how many it has. What leaf i gives are the
    entries first[i] up to first[i + 1] of `targets` and `weights`.
    """

    roots: np.ndarray
    features: np.ndarray
    modes: np.ndarray
    splits: np.ndarray
    children: np.ndarray
    missing: np.ndarray
    sets: np.ndarray
    members: np.ndarray
    first: np.ndarray
    targets: np.ndarray
    weights: np.ndarray

    def problem(self, features: int, outputs: int) -> str | None:
        """Why the tables are invalid, or None."""
        nodes, leaves = len(self.features), len(self.first) - 1
        ends = np.concatenate([self.roots, self.children.reshape(-1)])
        if not self.roots.size or not self.weights.size:
            return "has no trees, or no leaf that gives anything"
        if ends.max(initial=-1) >= nodes or ends.min(initial=0) < -leaves:
            return f"refers to a node or leaf that is none of its {nodes} nodes and {leaves} leaves"
        if nodes and (self.features.min() < 0 or self.features.max() >= features):
            return f"asks for feature {self.features.max()} of {features}"
        if self.targets.size and (self.targets.min() < 0 or self.targets.max() >= outputs):
            return f"has a leaf for output {self.targets.max()} of {outputs}"
        return None

    def with_single_weights(self) -> Forest:
        """The same trees, their leaves without all entries but the first."""
        counts = np.minimum(np.diff(self.first), 1)
        kept = self.first[:-1][counts > 0]
        first = np.append(0, np.cumsum(counts))
        return replace(self, first=first, targets=self.targets[kept], weights=self.weights[kept])

    def is_table(self, outputs: int) -> bool:
        """Whether every leaf gives something to each output, in order."""
        is_even = bool(np.all(np.diff(self.first) == outputs))
        return is_even and np.array_equal(self.targets, np.arange(self.targets.size) % outputs)

    @cached_property
    def depth(self) -> int | None:
        """How many nodes are on the longest path to a leaf; None where there is a cycle."""
        level, depth = np.unique(self.roots[self.roots >= 0]), 0
        while level.size:
            below = self.children[level].reshape(-1)
            level, depth = np.unique(below[below >= 0]), depth + 1
            if depth > len(self.features):
                return None
        return depth


def takes_true_side(e: Expr, split: Expr, mode: str) -> Expr:
    """Whether a feature goes to the true side; NaN never does, but for NEQ."""
    if mode == "EQ":
        return eq(e, split)
    if mode == "NEQ":
        return ~eq(e, split)
    return compare({"LEQ": "le", "LT": "lt", "GTE": "ge", "GT": "gt"}[mode], e, split)


def leaves_of(k: Builder, x: Value, forest: Forest) -> Value:
    """The leaf that each row of `x` (rows, features) reaches in each tree: (trees, rows) int32.

    Tree by tree, as the nodes of one fit in a cache.
    """
    depth = forest.depth
    if depth is None:
        k.error("has a tree that goes in circles")
    columns = [forest.features, *forest.children.T]
    used = [mode for number, mode in enumerate(MODES) if number in forest.modes]
    is_plain, has_missing = len(used) == 1 and used != ["MEMBER"], bool(forest.missing.any())
    if has_missing or not is_plain:
        columns.append(forest.missing)
    if not is_plain:
        columns += [forest.modes, *forest.sets.T]
    width = len(columns)
    nodes = k.constant(np.stack(columns, 1).astype(INT32).reshape(-1))
    splits = k.constant(forest.splits.astype(x.dtype))
    roots, members = k.constant(forest.roots.astype(INT32)), k.constant(forest.members.astype(x.dtype))

    def goes_true(node: Expr, row: Expr) -> Expr:
        feature, *fact = [cast(nodes.at(node * width + c), "index") for c in (0, *range(3, width))]
        e = x[row, feature]
        found: Expr = lit(False, "bool")
        for mode in used:
            if mode == "MEMBER":
                holds = reduce(
                    "max",
                    minimum(fact[3], members.size),
                    lambda r: cast(
                        eq(members.at(clamp(fact[2] + r, lit(0), arg(members.size - 1))), e), "index"
                    ),
                )
                here = holds > lit(0)
            else:
                here = takes_true_side(e, splits.at(node), mode)
            found = here if len(used) == 1 else found | (here & eq(fact[1], lit(MODES.index(mode))))
        return found | (unary("isnan", e) & (fact[0] > lit(0))) if has_missing else found

    def walk(tree: Expr, row: Expr) -> Expr:
        def step(_: Expr, at: Expr) -> tuple[Expr]:
            node = clamp(at, lit(0), arg(len(forest.features) - 1))
            side = select(goes_true(node, row), lit(1), lit(2))
            return (select(at < lit(0), at, cast(nodes.at(node * width + side), "index")),)

        start = cast(roots[tree], "index")
        end = fold(depth, (start,), step)[0] if depth else start
        return cast(lit(-1) - end, "int32")

    def hint() -> Hint | None:
        if not is_plain:
            return None
        attributes = {"mode": used[0], "depth": depth, "missing": has_missing}
        return Hint("tree_ensemble_leaves", (x, nodes, splits, roots), attributes)

    return k.compute((forest.roots.size, x.shape[0]), INT32, walk, hint=hint)


def aggregated(k: Builder, leaves: Value, forest: Forest, outputs: int, how: str) -> Value:
    """Aggregate the leaves' weights of each row per output: sum, average, minimum or maximum."""
    trees, rows = leaves.shape
    dtype = forest.weights.dtype
    targets, weights = k.constant(forest.targets.astype(INT32)), k.constant(forest.weights)
    first = k.constant(forest.first.astype(INT32))
    most = int(np.diff(forest.first).max(initial=0))
    single = bool(np.all(np.diff(forest.first) == 1))
    is_table = forest.is_table(outputs)
    if single and outputs == 1:
        # What a leaf gives is looked up where the leaf is found.
        last = arg(weights.size - 1)
        leaves = k.elementwise(
            lambda leaf: weights[clamp(cast(leaf, "index"), lit(0), last)], leaves, dtype=dtype
        )
    kind = {"MIN": "min", "MAX": "max"}.get(how, "sum")
    neutral = {"min": float("inf"), "max": float("-inf")}.get(kind, 0.0)

    def formula(row: Expr, output: Expr) -> Expr:
        def given(entry: Expr) -> Expr:
            entry = clamp(entry, lit(0), arg(weights.size - 1))
            weight = weights[entry]
            if outputs == 1:
                return weight
            return select(eq(cast(targets[entry], "index"), output), weight, lit(neutral, weight.dtype))

        def of_tree(tree: Expr) -> Expr:
            if leaves.dtype == dtype:
                return leaves[tree, row]
            leaf = cast(leaves[tree, row], "index")
            if is_table:
                return weights[clamp(leaf * outputs + output, lit(0), arg(weights.size - 1))]
            if single:
                return given(leaf)
            start = cast(first[leaf], "index")
            count = cast(first[leaf + lit(1)], "index") - start
            return reduce(kind, minimum(count, most), lambda r: given(start + r))

        total = reduce(kind, trees, of_tree)
        if how == "AVERAGE":
            return total / arg(trees, total.dtype)
        # An output for which no leaf has anything.
        return total if kind == "sum" else select(unary("isinf", total), lit(0.0, total.dtype), total)

    return k.compute((rows, outputs), dtype, formula)


def forest_scores(k: Builder, x: Value, forest: Forest, outputs: int, how: str) -> Value:
    """(rows, features) -> (rows, outputs), in the type of the leaves' weights."""
    if x.rank != 2:
        k.error(f"takes features of shape [N, C], not {list(x.shape)}")
    if problem := forest.problem(x.shape[1], outputs):
        k.error(problem)
    k.one_of("aggregate_function", how, AGGREGATES)
    if not x.size:
        return k.constant(np.zeros((x.shape[0], outputs), forest.weights.dtype))
    return aggregated(k, leaves_of(k, x, forest), forest, outputs, how)


# Opset 5: nodes and leaves have tables of their own


def member_sets(modes: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The start and size of each node's set, and all members; sets end with NaN."""
    sets = np.zeros((modes.size, 2), INT32)
    ends = np.append(np.flatnonzero(np.isnan(values)), values.size)
    start = 0
    for node, end in zip(np.flatnonzero(modes == MODES.index("MEMBER")), ends, strict=False):
        sets[node] = start, end - start
        start = int(end) + 1
    return sets, values if values.size else np.zeros(1)


@operator("TreeEnsemble", domain=ML, since=5)
def tree_ensemble(
    k: Builder, x: Value, *, tree_roots: Sequence[int], nodes_featureids: Sequence[int],
    nodes_splits: np.ndarray, nodes_modes: np.ndarray, nodes_truenodeids: Sequence[int],
    nodes_falsenodeids: Sequence[int], nodes_trueleafs: Sequence[int], nodes_falseleafs: Sequence[int],
    leaf_targetids: Sequence[int], leaf_weights: np.ndarray, n_targets: int = 1, aggregate_function: int = 1,
    post_transform: int = 0, membership_values: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Sequence[int] = (), nodes_hitrates: np.ndarray | None = None,
) -> Value:  # fmt: skip
    """(rows, features) -> (rows, targets): aggregated weights of the leaves of each row."""
    names = np.array([nodes_truenodeids, nodes_falsenodeids]).T.reshape(-1, 2)
    is_leaf = np.array([nodes_trueleafs, nodes_falseleafs], bool).T.reshape(-1, 2)
    modes = np.asarray(nodes_modes).astype(np.int64)
    if not 0 <= aggregate_function < len(AGGREGATES) or not 0 <= post_transform < len(TRANSFORMS):
        k.error(f"aggregate_function {aggregate_function} or post_transform {post_transform} is none")
    if modes.max(initial=0) >= len(MODES):
        k.error(f"nodes_modes holds {modes.max()}; known are 0 to {len(MODES) - 1}")
    values = np.zeros(0) if membership_values is None else membership_values.reshape(-1).astype(np.float64)
    sets, members = member_sets(modes, values)
    forest = Forest(
        np.array(tree_roots), np.array(nodes_featureids), modes, np.asarray(nodes_splits),
        np.where(is_leaf, -1 - names, names),
        np.array(nodes_missing_value_tracks_true or [0] * modes.size), sets, members,
        np.arange(len(leaf_targetids) + 1), np.array(leaf_targetids), np.asarray(leaf_weights),
    )  # fmt: skip
    scores = forest_scores(k, x, forest, n_targets, AGGREGATES[aggregate_function])
    return transformed(k, scores, [*TRANSFORMS][post_transform])
