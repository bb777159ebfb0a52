"""Cases of onnxruntime's own operators: a layer, what onnxruntime's CPU makes of it, and how to compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Model
from tests.engine.operators.independent import by_onnxruntime
from tests.engine.operators.single import one_layer
from tests.onnx_cases import disagreement

DOMAIN = "com.microsoft"
Arrays = tuple[np.ndarray | None, ...]
Meant = Callable[[int, np.ndarray], np.ndarray]
"""The elements of an output that have a meaning, in one row."""


class Case(NamedTuple):
    """A layer and its inputs."""

    op_type: str
    arrays: Arrays
    attributes: Mapping[str, Any] = {}
    outputs: int = 1
    known: tuple[int, ...] = ()
    bound: float = 1e-5
    meant: Meant | None = None
    domain: str = DOMAIN
    opset: int = 21
    levels: bool = False
    """Whether a level more or less, where a quotient falls on the middle, is right."""

    def model(self) -> Model:
        """The layer alone."""
        return one_layer(
            self.op_type, self.arrays, self.attributes, opset=self.opset, outputs=self.outputs,
            known=self.known, domain=self.domain,
        )  # fmt: skip

    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{i}": a for i, a in enumerate(self.arrays) if a is not None and i not in self.known}

    def expected(self) -> list[np.ndarray]:
        """onnxruntime's answer."""
        return by_onnxruntime(
            self.op_type, self.arrays, self.attributes, opset=self.opset, outputs=self.outputs,
            domain=self.domain, known=self.known,
        )  # fmt: skip

    def check(self, found: Sequence[np.ndarray], bound: float) -> None:
        """All outputs agree with onnxruntime's."""
        for n, (a, b) in enumerate(zip(found, self.expected(), strict=True)):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), f"output {n}"
            if self.meant is not None:
                a, b = self.meant(n, a), self.meant(n, b)
            if b.dtype.kind in "iub" and not self.levels:
                np.testing.assert_array_equal(a, b, f"output {n}")
            elif self.levels and b.dtype.kind in "iu":
                off = np.abs(a.astype(np.int64) - b.astype(np.int64))
                assert off.max() <= 1, f"output {n}"
                assert (off > 0).mean() <= 0.02, f"output {n}"
            else:
                assert disagreement(a, b) < max(bound, self.bound), f"output {n}"


class Draw:
    """Seeded numbers."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def real(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def u8(self, *shape: int) -> np.ndarray:
        return self.rng.integers(0, 256, shape).astype(np.uint8)

    def i8(self, *shape: int) -> np.ndarray:
        return self.rng.integers(-128, 128, shape).astype(np.int8)

    def ids(self, high: int, *shape: int, dtype: Any = np.int64) -> np.ndarray:
        return self.rng.integers(0, high, shape).astype(dtype)

    def steps(self, *shape: int) -> np.ndarray:
        """Scales."""
        return (self.rng.random(shape) * 0.05 + 0.005).astype(np.float32)
