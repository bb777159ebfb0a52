"""Data that models of scikit-learn are fitted to, and what a model for export is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType

Inputs = Mapping[str, np.ndarray]


RANDOM = np.random.default_rng(0)


ROWS, TEST_ROWS, FEATURES = 120, 9, 6


X = RANDOM.normal(size=(ROWS, FEATURES)).astype(np.float32)


SCORES = X @ RANDOM.normal(size=(FEATURES, 3)) + 0.3 * RANDOM.normal(size=(ROWS, 3))


CLASSES = SCORES.argmax(1)


TWO = (SCORES[:, 0] > 0).astype(np.int64)


NAMES = np.array(["ape", "bear", "cat"])[CLASSES]


TARGETS = SCORES.astype(np.float32)


LABELS = (SCORES > 0.2).astype(np.int64)


COUNTS = RANDOM.integers(0, 5, (ROWS, FEATURES))


HOLED = np.where(RANDOM.random(X.shape) < 0.2, np.float32(np.nan), X)


COLORS = RANDOM.choice(["red", "green", "blue"], (ROWS, 2))


WORDS = [
    "the",
    "Cat",
    "dog",
    "sat",
    "on",
    "a",
    "mat",
    "ran",
    "Fast",
    "not",
    "re-do",
    "x1",
    "42",
    "naïve",
    "it's",
]


DOCUMENTS = np.array([" ".join(RANDOM.choice(WORDS, RANDOM.integers(1, 9))) for _ in range(ROWS)])


SENTIMENT = np.array(["cat" in text.lower() for text in DOCUMENTS]).astype(np.int64)


MIXED = {
    "height": FloatTensorType([None, 1]),
    "age": Int64TensorType([None, 1]),
    "color": StringTensorType([None, 1]),
}


def mixed_table() -> Any:
    """Columns of different types, as a data frame."""
    import pandas

    return pandas.DataFrame({"height": X[:, 0], "age": COUNTS[:, 0], "color": COLORS[:, 0]})


@dataclass(frozen=True)
class Case:
    """A model: `convert` fits it and returns its ONNX form, `inputs` are what it is run on."""

    name: str
    convert: Callable[[], Any]
    inputs: Inputs


@dataclass(frozen=True)
class Fit:
    """An estimator, what it learns from, and how it is converted."""

    name: str
    model: Any
    x: np.ndarray = field(default_factory=lambda: X)
    y: np.ndarray | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    opset: Mapping[str, int] | None = None

    def case(self) -> Case:
        """What scikit-learn's converter makes of it."""

        def convert() -> Any:
            self.model.fit(self.x, *(() if self.y is None else (self.y,)))
            options = {id(self.model): dict(self.options)} if self.options else None
            return to_onnx(self.model, self.x[:1], options=options, target_opset=self.opset)

        return Case(self.name, convert, {"X": self.x[:TEST_ROWS]})
