"""Walks through trees that take turns, against a plain walk."""

from __future__ import annotations

import numpy as np
import pytest

from engine import BackendType, ModelLoader, Worker
from tests.engine.operators.ml.test_features import FLOAT, ml
from tests.engine.operators.ml.test_trees import Node, expected_scores, grown, new_style, old_style, rows


@pytest.mark.spread("mode")
@pytest.mark.parametrize("mode", ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"])
@pytest.mark.parametrize("count", [1, 3, 8, 75])
@pytest.mark.parametrize("missing", [True, False])
def test_walks_take_turns(mode: str, count: int, missing: bool) -> None:
    """Single targets are looked up where the leaf is found; trees may be one leaf, or none deep."""
    rng = np.random.default_rng(count)
    trees = [*(grown(rng, 6, [mode]) for _ in range(9)), Node(target=1, weight=2.5)]
    if not missing:
        for node in (node for tree in trees for node in tree.every()):
            node.missing = 0
    x = rows(rng, count)
    several = ml("TreeEnsemble", [x], [FLOAT], version=5, **new_style(trees))
    scores, facts = expected_scores(trees, x), old_style(trees)
    facts["target_ids"] = [0] * len(facts["target_ids"])
    single = ml("TreeEnsembleRegressor", [x], [FLOAT], **facts)
    for proto, expected in ((several, scores), (single, scores.sum(1, keepdims=True))):
        with Worker(ModelLoader.load(proto.SerializeToString()), BackendType.CPU) as worker:
            worker.schedule(x)
            found = worker.peek_output().download_to_array()
            steps = [step for plan in worker._plans for s in plan.segments for step in s.plan.steps]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert "tree_ensemble_leaves" in [getattr(step.kernel, "name", "") for step in steps]
