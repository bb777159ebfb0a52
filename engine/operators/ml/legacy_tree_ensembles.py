"""TreeEnsembleRegressor and TreeEnsembleClassifier (domain ai.onnx.ml)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from engine.base.dtypes import FLOAT32, INT32, INT64
from engine.graph.model import ML, Layer
from engine.kernels.expr import Expr, arg, cast, eq, lit, select
from engine.kernels.value import Entry, Value
from engine.operators.builder import Builder
from engine.operators.casting import convert
from engine.operators.ml.features import as_floats
from engine.operators.ml.scores import both_sides, classified, transformed, winner
from engine.operators.ml.trees import MODES, Forest, forest_scores
from engine.operators.registry import operator

Floats = Sequence[float]
Ints = Sequence[int]
Key = tuple[int, int]
"""A tree and the number of a node in it."""


def numbers(given: Mapping[str, Any], name: str) -> np.ndarray:
    """Numbers from an attribute of floats, or from one that holds a tensor."""
    tensor = given.get(f"{name}_as_tensor")
    return np.array(given.get(name, ()), np.float32) if tensor is None else np.asarray(tensor).reshape(-1)


def node_attributes(layer: Layer, prefix: str, *names: str) -> list[Any]:
    """The attributes that describe the nodes (or leaves), which must be equally long."""
    given = layer.attributes
    found = [given[f"{prefix}_{name}"] for name in names]
    if len({*map(len, found)}) > 1:
        lists = ", ".join(f"{len(x)} {prefix}_{name}" for x, name in zip(found, names, strict=True))
        raise ValueError(f"its lists differ in length: {lists}")
    return found


def child_numbers(keys: Sequence[Key], modes: Sequence[str]) -> dict[Key, int]:
    """Each node's number among the branches, or -1 - i for leaf i."""
    branches = leaves = 0
    names: dict[Key, int] = {}
    for key, mode in zip(keys, modes, strict=True):
        if mode == "LEAF":
            leaves += 1
            names[key] = -leaves
        elif mode.removeprefix("BRANCH_") in MODES[:-1]:
            names[key] = branches
            branches += 1
        else:
            raise ValueError(
                f"has a node of the mode {mode!r}; one of LEAF, BRANCH_{', BRANCH_'.join(MODES[:-1])}"
            )
    return names


@lru_cache(maxsize=16)
def forest_of(layer: Layer, prefix: str) -> Forest:
    """The layer's trees as tables; `prefix` leads the names of the attributes that describe the leaves."""
    given = layer.attributes
    trees, ids, modes, features = node_attributes(layer, "nodes", "treeids", "nodeids", "modes", "featureids")
    _, on_true, on_false = node_attributes(layer, "nodes", "treeids", "truenodeids", "falsenodeids")
    keys = [*zip(trees, ids, strict=True)]
    names = child_numbers(keys, modes)
    below: list[list[Key]] = [
        [(tree, yes), (tree, no)] if mode != "LEAF" else []
        for tree, yes, no, mode in zip(trees, on_true, on_false, modes, strict=True)
    ]
    inner = {key for pair in below for key in pair}
    leaf_trees, leaf_nodes = node_attributes(layer, prefix, "treeids", "nodeids")
    owners = [*zip(leaf_trees, leaf_nodes, strict=True)]
    if unknown := [key for key in (*inner, *owners) if key not in names]:
        raise ValueError(f"refers to node {unknown[0][1]} of tree {unknown[0][0]}, which it does not have")
    leaves = np.array([-1 - names[key] for key in owners], np.int64)
    if leaves.size and leaves.min() < 0:
        raise ValueError("gives a weight to a node that is no leaf")
    order = np.argsort(leaves, kind="stable")
    branches = np.flatnonzero([mode != "LEAF" for mode in modes])
    missing = given.get("nodes_missing_value_tracks_true") or [0] * len(keys)
    return Forest(
        roots=np.array([names[key] for key in keys if key not in inner]),
        features=np.array(features)[branches],
        modes=np.array([MODES.index(m.removeprefix("BRANCH_")) for m in modes if m != "LEAF"], np.int64),
        splits=numbers(given, "nodes_values")[branches],
        children=np.array([[names[key] for key in pair] for pair in below if pair], INT32).reshape(-1, 2),
        missing=np.array(missing)[branches],
        sets=np.zeros((branches.size, 2), INT32),
        members=np.zeros(1),
        first=np.searchsorted(leaves[order], np.arange(len(keys) - branches.size + 1)),
        targets=np.array(given[f"{prefix}_ids"], np.int64)[order],
        weights=numbers(given, f"{prefix}_weights")[order],
    )


def with_base(k: Builder, scores: Value, base: np.ndarray) -> Value:
    """Add the base values to scores, one or one per column."""
    if not base.size:
        return scores
    if base.size not in (1, scores.shape[1]):
        k.error(f"has {base.size} base values for {scores.shape[1]} columns of scores")
    return k.elementwise(lambda e, b: e + b, scores, k.constant(base.astype(scores.dtype)))


@operator("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(
    k: Builder, x: Value, *, nodes_treeids: Ints, nodes_nodeids: Ints, nodes_modes: Sequence[str],
    nodes_featureids: Ints, nodes_truenodeids: Ints, nodes_falsenodeids: Ints, target_treeids: Ints,
    target_nodeids: Ints, target_ids: Ints, nodes_values: Floats = (), target_weights: Floats = (),
    nodes_values_as_tensor: np.ndarray | None = None, target_weights_as_tensor: np.ndarray | None = None,
    base_values: Floats = (), base_values_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Ints = (), n_targets: int = 1, aggregate_function: str = "SUM",
    post_transform: str = "NONE", nodes_hitrates: Floats = (),
    nodes_hitrates_as_tensor: np.ndarray | None = None,
) -> Value:  # fmt: skip
    """(rows, features) -> (rows, targets) float32: aggregated weights of the leaves of each row."""
    forest = forest_of(k.layer, "target")
    if n_targets == 1:
        # Files give a leaf several weights for the one target, and onnxruntime takes the first.
        forest = forest.with_single_weights()
    scores = forest_scores(k, as_floats(k, x), forest, n_targets, aggregate_function)
    scores = with_base(k, scores, numbers(k.layer.attributes, "base_values"))
    return convert(k, transformed(k, scores, post_transform), FLOAT32)


@operator("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(
    k: Builder, x: Value, *, nodes_treeids: Ints, nodes_nodeids: Ints, nodes_modes: Sequence[str],
    nodes_featureids: Ints, nodes_truenodeids: Ints, nodes_falsenodeids: Ints, class_treeids: Ints,
    class_nodeids: Ints, class_ids: Ints, nodes_values: Floats = (), class_weights: Floats = (),
    nodes_values_as_tensor: np.ndarray | None = None, class_weights_as_tensor: np.ndarray | None = None,
    base_values: Floats = (), base_values_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Ints = (), classlabels_int64s: Ints = (),
    classlabels_strings: Sequence[str] = (), post_transform: str = "NONE", nodes_hitrates: Floats = (),
    nodes_hitrates_as_tensor: np.ndarray | None = None,
) -> tuple[Entry, Value]:  # fmt: skip
    """Labels (rows) and scores (rows, classes) float32."""
    forest = forest_of(k.layer, "class")
    count = len(classlabels_strings or classlabels_int64s)
    base = numbers(k.layer.attributes, "base_values")
    features = as_floats(k, x)
    if count == 2 and set(class_ids) == {0} and base.size < 2:
        scores = with_base(k, forest_scores(k, features, forest, 1, "SUM"), base)
        chosen, scores = of_two(k, scores, bool(forest.weights.min() >= 0), post_transform)
    else:
        scores = with_base(k, forest_scores(k, features, forest, count, "SUM"), base)
        chosen, scores = winner(k, scores, two=False), transformed(k, scores, post_transform)
    return classified(k, chosen, convert(k, scores, FLOAT32), classlabels_int64s, classlabels_strings)


def of_two(k: Builder, scores: Value, is_probability: bool, name: str) -> tuple[Value, Value]:
    """Labels and scores of two classes from one column, which weights of 0 and more make a probability."""
    column = k.alias(scores, (scores.shape[0],))
    limit = 0.5 if is_probability else 0.0
    chosen = k.elementwise(lambda e: cast(e > arg(limit, e.dtype), "int64"), column, dtype=INT64)
    if name == "LOGISTIC" or not is_probability:
        pair = both_sides(k, scores)
        return chosen, transformed(k, pair, name) if name in ("LOGISTIC", "PROBIT") else pair

    def formula(r: Expr, c: Expr) -> Expr:
        e = scores[r, lit(0)]
        return select(eq(c, lit(0)), 1.0 - e, e)

    return chosen, k.compute((scores.shape[0], 2), scores.dtype, formula)
