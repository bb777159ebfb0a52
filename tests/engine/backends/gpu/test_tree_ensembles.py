"""The leaves that rows reach in trees, in each form of the tuned kernels, against a walk down the nodes."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import acc, lit
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.steps import result_of, tuned_plan, value

FEATURES = 5
COMPARE = {
    "LEQ": operator.le, "LT": operator.lt, "GTE": operator.ge, "GT": operator.gt, "EQ": operator.eq,
    "NEQ": operator.ne,
}  # fmt: skip


class Trees:
    """Drawn trees; splits and features are small integers, so that equality decides often."""

    def __init__(self, leaves: list[int], seed: int) -> None:
        """`leaves`: how many each tree has."""
        self.rng = np.random.default_rng(seed)
        self.nodes: list[list[int]] = []
        self.leaves = 0
        self.roots = [self.grown(count) for count in leaves]
        self.splits = self.rng.integers(0, 4, len(self.nodes)).astype(np.float32)

    def grown(self, leaves: int) -> int:
        """A node or leaf below which are so many leaves."""
        if leaves == 1:
            self.leaves += 1
            return -self.leaves
        at = len(self.nodes)
        self.nodes.append([])
        on_true = int(self.rng.integers(1, leaves))
        self.nodes[at] = [
            int(self.rng.integers(FEATURES)), self.grown(on_true), self.grown(leaves - on_true),
        ]  # fmt: skip
        return at

    def compute(self, x: np.ndarray, mode: str) -> tuple[Compute, dict[str, np.ndarray]]:
        """The step, and what it reads."""
        nodes = np.array(self.nodes, np.int32).reshape(-1)
        arrays = {"x": x, "nodes": nodes, "splits": self.splits, "roots": np.array(self.roots, np.int32)}
        operands = tuple(value(name, array, known=name != "x") for name, array in arrays.items())
        output = Value("y", (len(self.roots), len(x)), np.dtype(np.int32))
        hint = Hint(
            "tree_ensemble_leaves", operands, {"mode": mode, "depth": max(self.leaves, 1), "missing": False}
        )
        return Compute(output, output.shape, lit(0, "int32"), "layer", "TreeEnsemble", hint), arrays

    def reached(self, row: np.ndarray, root: int, mode: str) -> int:
        at = root
        while at >= 0:
            feature, on_true, on_false = self.nodes[at]
            at = on_true if COMPARE[mode](row[feature], self.splits[at]) else on_false
        return -1 - at


@pytest.mark.spread("form")
@pytest.mark.parametrize("mode", COMPARE)
@pytest.mark.parametrize("rows", [1, 40, 300])
def test_each_row_reaches_its_leaf(form: Backend, mode: str, rows: int) -> None:
    trees = Trees([32, 1, 2, 7, 32, 16], rows)
    x = trees.rng.integers(0, 4, (rows, FEATURES)).astype(np.float32)
    x[::7, 2] = np.nan
    compute, arrays = trees.compute(x, mode)
    compute.epilogue = acc("int32") + lit(1, "int32")
    found = result_of(form, tuned_plan(form, compute), arrays, compute.output)
    for root, leaves in zip(trees.roots, found, strict=True):
        np.testing.assert_array_equal(leaves, [trees.reached(row, root, mode) + 1 for row in x])


@pytest.mark.opencl
@pytest.mark.parametrize("form", ["cpu", "gpu"], indirect=True)
def test_trees_with_more_leaves_than_a_word_has_bits_are_walked_on_opencl(form: Backend) -> None:
    compute, _ = Trees([4, 33], 1).compute(np.zeros((3, FEATURES), np.float32), "LEQ")
    tuner = Tuner(compute, lambda name, make: name, lambda elements, dtype: "scratch")
    assert not form.tune(compute, tuner)
    assert not tuner.steps
