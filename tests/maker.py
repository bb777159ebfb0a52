"""Writes networks layer by layer, with seeded random weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from tests.graphs import Declared, node, proto


class Maker:
    """Adds layers one by one; each method returns the name of the value that its last layer yields."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, np.ndarray] = {}

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Any layer with one output."""
        return self.add_many(op_type, inputs, 1, **attributes)[0]

    def add_many(self, op_type: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        """Any layer, with so many outputs."""
        stem = f"{op_type.lower()}_{len(self._nodes)}"
        names = [stem] if outputs == 1 else [f"{stem}_{i}" for i in range(outputs)]
        self._nodes.append(node(op_type, inputs, names, **attributes))
        return names

    def rename(self, value: str, name: str) -> None:
        """Let a value that nothing reads yet have another name."""
        (found,) = [n for n in self._nodes if value in n.output]
        found.output[list(found.output).index(value)] = name

    def constant(self, value: np.ndarray | Sequence[float] | float, dtype: str = "float32") -> str:
        """A constant."""
        name = f"constant_{len(self._constants)}"
        self._constants[name] = np.asarray(value, dtype)
        return name

    def integers(self, *values: int) -> str:
        """A constant list of int64."""
        return self.constant(values, "int64")

    def normal(self, *shape: int, scale: float) -> str:
        """A constant of normally distributed numbers."""
        return self.constant(self._rng.normal(0, scale, shape))

    def uniform(self, *shape: int, low: float = 0.5, high: float = 1.5) -> str:
        """A constant of evenly distributed numbers."""
        return self.constant(self._rng.uniform(low, high, shape))

    def conv(
        self,
        x: str,
        channels: tuple[int, int],
        kernel: int,
        *,
        stride: int = 1,
        pad: int = 0,
        group: int = 1,
        gain: float = 2.0,
    ) -> str:
        """A square convolution with a bias, (in, out) channels; He's scale at gain 2."""
        entering, leaving = channels
        fan_in = entering // group * kernel * kernel
        w = self.normal(leaving, entering // group, kernel, kernel, scale=float(np.sqrt(gain / fan_in)))
        b = self.normal(leaving, scale=0.1)
        return self.add(
            "Conv", x, w, b, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, group=group
        )

    def gemm(self, x: str, entering: int, leaving: int, *, gain: float = 2.0) -> str:
        """A fully connected layer on (N, entering), as exporters write it with the weights transposed."""
        w = self.normal(leaving, entering, scale=float(np.sqrt(gain / entering)))
        return self.add("Gemm", x, w, self.normal(leaving, scale=0.1), transB=1)

    def linear(self, x: str, entering: int, leaving: int, *, gain: float = 1.0) -> str:
        """A fully connected layer on any rank: MatMul and Add."""
        w = self.normal(entering, leaving, scale=float(np.sqrt(gain / entering)))
        return self.add("Add", self.normal(leaving, scale=0.1), self.add("MatMul", x, w))

    def file(self, inputs: Declared, outputs: Declared, opset: int) -> bytes:
        """The model."""
        return proto(self._nodes, inputs, outputs, self._constants, opset)
