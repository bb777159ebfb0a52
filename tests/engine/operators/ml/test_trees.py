"""Tree ensembles against a plain walk, onnxruntime and scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor

from engine import ModelLoader
from engine.base.errors import ShapeError
from tests.engine.conftest import MakeWorker
from tests.engine.operators.ml.test_features import FLOAT, INT64, STRING, agree, found, ml
from tests.peer import open_session

MODES = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER"]
COMPARE: dict[str, Any] = {
    "LEQ": np.less_equal, "LT": np.less, "GTE": np.greater_equal, "GT": np.greater, "EQ": np.equal,
    "NEQ": np.not_equal,
}  # fmt: skip
COMBINE: dict[str, Any] = {"SUM": sum, "MIN": min, "MAX": max}
POINTS = [-1.0, 0.0, 0.5, 1.0, 2.0]
"""Features and splits are drawn from these, so that equality decides often."""
TARGETS = 3


@dataclass
class Node:
    """A node of a drawn tree; a leaf has no children but a target and a weight."""

    mode: str = "LEAF"
    feature: int = 0
    split: float = 0.0
    members: tuple[float, ...] = ()
    missing: int = 0
    children: list[Node] = field(default_factory=list)
    target: int = 0
    weight: float = 0.0

    def leaf(self, row: np.ndarray) -> Node:
        """Where a row arrives."""
        if self.mode == "LEAF":
            return self
        value = row[self.feature]
        holds = (
            value in self.members if self.mode == "MEMBER" else bool(COMPARE[self.mode](value, self.split))
        )
        if np.isnan(value):
            holds = bool(self.missing) or self.mode == "NEQ"
        return self.children[not holds].leaf(row)

    def every(self) -> list[Node]:
        """This node and all below."""
        return [self, *(node for child in self.children for node in child.every())]


def grown(rng: np.random.Generator, depth: int, modes: list[str], features: int = 3) -> Node:
    """A tree of random shape."""
    if depth == 0 or rng.random() < 0.2:
        return Node(target=int(rng.integers(TARGETS)), weight=float(rng.integers(-8, 9)) / 4)
    children = [grown(rng, depth - 1, modes, features) for _ in range(2)]
    members = tuple(rng.choice(POINTS, rng.integers(1, 4), replace=False).tolist())
    return Node(
        str(rng.choice(modes)), int(rng.integers(features)), float(rng.choice(POINTS)), members,
        int(rng.integers(2)), children,
    )  # fmt: skip


def expected_scores(trees: list[Node], x: np.ndarray, how: str = "SUM") -> np.ndarray:
    """What the leaves give, put together."""
    out = np.zeros((len(x), TARGETS), np.float32)
    for row, features in enumerate(x):
        for target in range(TARGETS):
            leaves = [tree.leaf(features) for tree in trees]
            given_ = [leaf.weight for leaf in leaves if leaf.target == target]
            if how == "AVERAGE":
                out[row, target] = sum(given_) / len(trees)
            elif given_:
                out[row, target] = COMBINE[how](given_)
    return out


def new_style(trees: list[Node], how: str = "SUM") -> dict[str, Any]:
    """The attributes of TreeEnsemble 5; a tree that is a leaf has a node whose sides are both that leaf."""
    branches: list[Node] = []
    leaves: list[Node] = []
    roots = []
    every = [node for tree in trees for node in tree.every() if node.children and node.mode != "MEMBER"]
    for tree in trees:
        tree = tree if tree.children else Node(every[0].mode if every else "LEQ", children=[tree, tree])
        roots.append(len(branches))
        for node in tree.every():
            (branches if node.children else leaves).append(node)
    where = {id(node): i for group in (branches, leaves) for i, node in enumerate(group)}
    sides = [[node.children[side] for node in branches] for side in (0, 1)]
    members = [v for node in branches if node.mode == "MEMBER" for v in (*node.members, np.nan)]
    facts: dict[str, Any] = {
        "tree_roots": roots, "n_targets": TARGETS,
        "aggregate_function": ["AVERAGE", "SUM", "MIN", "MAX"].index(how),
        "nodes_featureids": [n.feature for n in branches],
        "nodes_modes": numpy_helper.from_array(np.array([MODES.index(n.mode) for n in branches], np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.array([n.split for n in branches], np.float32)),
        "nodes_missing_value_tracks_true": [n.missing for n in branches],
        "nodes_truenodeids": [where[id(n)] for n in sides[0]],
        "nodes_falsenodeids": [where[id(n)] for n in sides[1]],
        "nodes_trueleafs": [int(not n.children) for n in sides[0]],
        "nodes_falseleafs": [int(not n.children) for n in sides[1]],
        "leaf_targetids": [n.target for n in leaves],
        "leaf_weights": numpy_helper.from_array(np.array([n.weight for n in leaves], np.float32)),
    }  # fmt: skip
    if members:
        facts["membership_values"] = numpy_helper.from_array(np.array(members, np.float32))
    return facts


def old_style(trees: list[Node], prefix: str = "target") -> dict[str, Any]:
    """The nodes of TreeEnsembleRegressor and TreeEnsembleClassifier, numbered from the back."""
    facts: dict[str, Any] = {f"nodes_{name}": [] for name in (
        "treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
        "missing_value_tracks_true",
    )}  # fmt: skip
    facts |= {f"{prefix}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    for number, tree in enumerate(trees):
        nodes = tree.every()
        name = {id(node): len(nodes) - i for i, node in enumerate(nodes)}
        for node in nodes:
            mode = f"BRANCH_{node.mode}" if node.children else "LEAF"
            sides = [name[id(child)] for child in node.children] or [0, 0]
            row = (number, name[id(node)], node.feature, node.split, mode, *sides, node.missing)
            for key, value in zip([k for k in facts if k.startswith("nodes_")], row, strict=True):
                facts[key].append(value)
            if not node.children:
                entry = (number, name[id(node)], node.target, node.weight)
                for key, value in zip([k for k in facts if k.startswith(prefix)], entry, strict=True):
                    facts[key].append(value)
    return facts


def rows(rng: np.random.Generator, count: int, missing: bool = True) -> np.ndarray:
    """Features, some of them missing."""
    x = rng.choice(POINTS, (count, 3)).astype(np.float32)
    return np.where(rng.random(x.shape) < 0.1, np.nan, x).astype(np.float32) if missing else x


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("modes", [["LEQ"], MODES[:-1], MODES])
def test_random_trees(how: str, modes: list[str]) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        trees = [grown(rng, 4, modes) for _ in range(int(rng.integers(1, 6)))]
        x = rows(rng, 20)
        (y,) = found(ml("TreeEnsemble", [x], [FLOAT], version=5, **new_style(trees, how)), [x])
        np.testing.assert_allclose(y, expected_scores(trees, x, how), atol=1e-6)
        if "MEMBER" in modes:
            continue
        facts = old_style(trees) | {"n_targets": TARGETS, "aggregate_function": how}
        (y,) = found(ml("TreeEnsembleRegressor", [x], [FLOAT], **facts), [x])
        np.testing.assert_allclose(y, expected_scores(trees, x, how), atol=1e-6)


@pytest.mark.spread("modes")
@pytest.mark.parametrize("modes", [["LT"], MODES], ids=["one", "all"])
def test_every_backend_walks_alike(modes: list[str], channel: str, make_worker: MakeWorker) -> None:
    rng = np.random.default_rng(5)
    trees = [grown(rng, 5, modes) for _ in range(7)]
    proto = ml("TreeEnsemble", [rows(rng, 1)], [FLOAT], version=5, dims=("n", 3), **new_style(trees))
    worker = make_worker(ModelLoader.load(proto.SerializeToString()), channel)

    @given(st.integers(0, 30), st.integers(0, 99))
    @settings(max_examples=8)
    def holds(count: int, seed: int) -> None:
        x = rows(np.random.default_rng(seed), count)
        worker.schedule(x)
        found_ = worker.peek_output().download_to_array()
        np.testing.assert_allclose(found_, expected_scores(trees, x), atol=1e-5)

    holds()


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_regressors_agree_with_onnxruntime(transform: str) -> None:
    rng = np.random.default_rng(2)
    trees = [grown(rng, 4, ["LEQ"]) for _ in range(5)]
    for i, tree in enumerate(trees):
        # onnxruntime leaves the base value out where no leaf gives anything to a target.
        for node in tree.every():
            node.target = i % TARGETS
    x = rows(rng, 30, missing=False)
    facts = old_style(trees) | {
        "n_targets": TARGETS,
        "post_transform": transform,
        "base_values": [0.5, 0.25, 1.0],
    }
    proto = ml("TreeEnsembleRegressor", [x], [FLOAT], **facts)
    (expected,) = open_session(proto.SerializeToString()).run(None, {"x0": x})
    np.testing.assert_allclose(found(proto, [x])[0], expected, atol=1e-5)


def test_one_target_takes_the_first_weight_of_a_leaf() -> None:
    """As onnxruntime does: skl2onnx lists the number of a leaf once for each class."""
    attributes: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_featureids": [0, 0, 0], "nodes_values": [0.5, 0.0, 0.0], "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0] * 5, "target_nodeids": [1, 1, 2, 2, 2],
        "target_ids": [0] * 5, "target_weights": [1.0, 9.0, 2.0, 2.0, 9.0], "n_targets": 1,
    }  # fmt: skip
    (scores,) = agree("TreeEnsembleRegressor", [np.array([[0.0], [1.0]], np.float32)], [FLOAT], **attributes)
    assert scores.tolist() == [[1.0], [2.0]]


def classes(trees: list[Node], targets: int) -> list[Node]:
    """The trees with targets among the first classes only."""
    for node in (node for tree in trees for node in tree.every()):
        node.target %= targets
    return trees


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize(
    ("targets", "labels", "base"), [(3, [5, 6, 7], [0.5, 0.25, 1.0]), (1, [5, 9], [0.5]), (1, [5, 9], [])]
)
@pytest.mark.parametrize("positive", [True, False])
def test_classifiers_agree_with_onnxruntime(
    transform: str, targets: int, labels: list[int], base: list[float], positive: bool
) -> None:
    """With one score for two classes, weights of 0 and more count as a probability."""
    rng = np.random.default_rng(4)
    trees = classes([grown(rng, 3, ["LEQ", "GT"]) for _ in range(4)], targets)
    for node in (node for tree in trees for node in tree.every()):
        node.weight = abs(node.weight) if positive else node.weight
    x = rows(rng, 30, missing=False)
    facts = old_style(trees, "class") | {"classlabels_int64s": labels, "post_transform": transform}
    facts |= {"base_values": base} if base else {}
    proto = ml("TreeEnsembleClassifier", [x], [INT64, FLOAT], **facts)
    expected = open_session(proto.SerializeToString()).run(None, {"x0": x})
    actual = found(proto, [x])
    np.testing.assert_array_equal(actual[0], expected[0])
    np.testing.assert_allclose(actual[1], expected[1], atol=1e-5)


def of_scikit(estimators: list[Any], scale: float, per_tree: bool) -> list[Node]:
    """scikit-learn's trees, once for every target, or (`per_tree`) each for the target whose turn it is."""

    def convert(tree: Any, at: int, target: int) -> Node:
        if tree.children_left[at] < 0:
            return Node(
                target=target, weight=float(tree.value[at].reshape(-1)[0 if per_tree else target]) * scale
            )
        sides = [convert(tree, side[at], target) for side in (tree.children_left, tree.children_right)]
        # Thresholds lie between float32 features, and are rounded down as they are compared with <=.
        split = np.float32(tree.threshold[at])
        split = np.nextafter(split, np.float32(-np.inf)) if split > tree.threshold[at] else split
        return Node("LEQ", int(tree.feature[at]), float(split), children=sides)

    return [
        convert(e.tree_, 0, target)
        for i, e in enumerate(estimators)
        for target in ([i % TARGETS] if per_tree else range(TARGETS))
    ]


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    """Points and the class of each."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 4)).astype(np.float32)
    return x, np.array(["duck", "jump", "kick"])[np.argmax(x[:, :3], 1)]


@pytest.mark.spread
def test_a_forest_of_scikit_learn(
    data: tuple[np.ndarray, np.ndarray], channel: str, make_worker: MakeWorker
) -> None:
    x, y = data
    forest = RandomForestClassifier(8, max_depth=5, random_state=0).fit(x, y)
    facts = old_style(of_scikit(forest.estimators_, 1 / 8, per_tree=False), "class")
    facts["classlabels_strings"] = forest.classes_.tolist()
    proto = ml("TreeEnsembleClassifier", [x], [STRING, FLOAT], dims=("n", 4), **facts)
    worker = make_worker(ModelLoader.load(proto.SerializeToString()), channel, allow_fallback=True)
    worker.schedule(x)
    assert worker.peek_output("y0").download_to_array().tolist() == forest.predict(x).tolist()
    found_ = worker.peek_output("y1").download_to_array()
    np.testing.assert_allclose(found_, forest.predict_proba(x), atol=1e-5)


def test_boosting_of_scikit_learn(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = data
    boosted = GradientBoostingClassifier(n_estimators=6, max_depth=3, init="zero", random_state=0).fit(x, y)
    trees = of_scikit(
        [e for stage in boosted.estimators_ for e in stage], boosted.learning_rate, per_tree=True
    )
    facts = old_style(trees, "class") | {"classlabels_int64s": [0, 1, 2], "post_transform": "SOFTMAX"}
    labels, scores = found(ml("TreeEnsembleClassifier", [x], [INT64, FLOAT], **facts), [x])
    assert boosted.classes_[labels].tolist() == boosted.predict(x).tolist()
    np.testing.assert_allclose(scores, boosted.predict_proba(x), atol=1e-5)


def test_regression_of_scikit_learn(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, _ = data
    target = x[:, 0] * x[:, 1]
    forest = RandomForestRegressor(5, max_depth=6, random_state=0).fit(x, target)
    trees = classes(of_scikit(forest.estimators_, 1.0, per_tree=True), 1)
    facts = old_style(trees) | {"n_targets": 1, "aggregate_function": "AVERAGE"}
    (found_,) = found(ml("TreeEnsembleRegressor", [x], [FLOAT], **facts), [x])
    np.testing.assert_allclose(found_[:, 0], forest.predict(x), atol=1e-5)


TREE = [Node("LEQ", 1, 0.5, children=[Node(weight=1.0), Node(target=1, weight=2.0)])]


@pytest.mark.parametrize(
    ("op_type", "changes", "message"),
    [
        ("TreeEnsemble", {"n_targets": 1}, "a leaf for output 1 of 1"),
        ("TreeEnsemble", {"nodes_featureids": [3]}, "feature 3 of 3"),
        ("TreeEnsemble", {"nodes_truenodeids": [7]}, "none of its 1 nodes and 2 leaves"),
        ("TreeEnsemble", {"nodes_trueleafs": [0]}, "goes in circles"),
        ("TreeEnsemble", {"aggregate_function": 9}, "aggregate_function 9"),
        ("TreeEnsembleRegressor", {"nodes_truenodeids": [9, 0, 0]}, "refers to node 9 of tree 0"),
        ("TreeEnsembleRegressor", {"nodes_modes": ["BRANCH_LE", "LEAF", "LEAF"]}, "'BRANCH_LE'; one of LEAF"),
        ("TreeEnsembleRegressor", {"target_nodeids": [3, 1]}, "a node that is no leaf"),
        ("TreeEnsembleRegressor", {"nodes_nodeids": [3, 2]}, "differ in length: 3 nodes_treeids, 2 "),
        ("TreeEnsembleRegressor", {"aggregate_function": "MEAN"}, "one of AVERAGE, SUM, MIN, MAX"),
        ("TreeEnsembleRegressor", {"base_values": [1.0, 2.0]}, "2 base values for 3 columns"),
    ],
)  # fmt: skip
def test_wrong_use_is_refused(op_type: str, changes: dict[str, Any], message: str) -> None:
    x = np.zeros((2, 3), np.float32)
    facts = new_style(TREE) if op_type == "TreeEnsemble" else old_style(TREE) | {"n_targets": TARGETS}
    with pytest.raises(ShapeError, match=message):
        found(
            ml(op_type, [x], [FLOAT], version=5 if op_type == "TreeEnsemble" else 3, **facts | changes), [x]
        )
