"""QDQ fusion: products between DequantizeLinear and QuantizeLinear become integer products."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from engine.compiler.passes.patterns import BYTES, Levels, Patterns, replace_layers
from engine.graph.model import CONTRIB, Layer, Model


def fuse_qdq(model: Model) -> Model:
    """Conv, MatMul and Gemm of dequantised bytes as their relatives over integers.

    A Relu or Clip before QuantizeLinear goes where rounding to levels limits the numbers anyway.
    """
    return _Joining(model).result()


class _Joining:
    """Collects the layers that replace others."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.patterns = Patterns(model)
        self.constants: dict[str, np.ndarray] = {}
        self.made: dict[str, Layer] = {}
        self.gone: set[str] = set()

    def result(self) -> Model:
        for layer in self.model.layers:
            if layer.domain or layer.op_type not in _RULES or len(layer.inputs) < 2:
                continue
            sides = [self.levels_of(name) for name in layer.inputs[:2]]
            if sides[0] is None or sides[1] is None or sides[0].scale.size != 1:
                continue
            joined = _RULES[layer.op_type](self, layer, sides[0], sides[1])
            if joined is not None:
                self.made[layer.name] = joined
        if not self.made:
            return self.model
        return replace_layers(self.model, self.made, self.gone, self.constants)

    def levels_of(self, name: str) -> Levels | None:
        """The quantised value, scale and zero point of a DequantizeLinear's output."""
        layer = self.patterns.maker(name, "DequantizeLinear")
        levels = None if layer is None else self.patterns.levels(layer)
        if layer is None or levels is None or levels.scale.size == 1:
            return levels
        elements = self.patterns.constant(levels.name)
        # Scales of many lines: only of weights, and along the axis of their outputs.
        axis = int(layer.attributes.get("axis", 1))
        if elements is None or levels.scale.ndim != 1 or not -elements.ndim <= axis < elements.ndim:
            return None
        return levels if self.lines_of(name, elements.ndim) == axis % elements.ndim else None

    def lines_of(self, name: str, rank: int) -> int:
        """The output-channel axis of a layer's weights."""
        reader = next(iter(self.patterns.readers(name)), None)
        if reader is None or reader.op_type == "Conv" or reader.attributes.get("transB"):
            return 0
        return rank - 1

    def rounding(self, layer: Layer) -> Layer | None:
        """The QuantizeLinear after a layer, through clamps that it subsumes; records the layers to remove."""
        between: list[Layer] = []
        name = layer.outputs[0]
        while (readers := self.patterns.readers(name)) and len(readers) == 1 and not readers[0].domain:
            found = readers[0]
            if found.op_type == "QuantizeLinear":
                if not self.rounds_to_bytes(found, between):
                    return None
                self.gone |= {other.name for other in (*between, found)}
                return found
            if found.op_type not in ("Relu", "Clip") or found.inputs[0] != name:
                return None
            between.append(found)
            name = found.outputs[0]
        return None

    def rounds_to_bytes(self, layer: Layer, between: list[Layer]) -> bool:
        """Whether a QuantizeLinear has one scale and bytes for results, to which it limits `between` too."""
        levels = self.patterns.levels(layer)
        if levels is None or levels.scale.size != 1:
            return False
        zero, scale = (float(array.reshape(-1)[0]) for array in (levels.zero, levels.scale))
        ends = [(end - zero) * scale for end in levels.ends]
        for other in between:
            bounds = self.bounds_of(other)
            if bounds is None or bounds[0] > ends[0] or bounds[1] < ends[1]:
                return False
        return True

    def bounds_of(self, layer: Layer) -> tuple[float, float] | None:
        """The range in which a Relu or Clip is the identity."""
        if layer.op_type == "Relu":
            return 0.0, np.inf
        found = []
        for position, (name, default) in enumerate((("min", -np.inf), ("max", np.inf)), 1):
            given = layer.inputs[position] if position < len(layer.inputs) else ""
            number = self.patterns.scalar(given) if given else layer.attributes.get(name, default)
            if number is None:
                return None
            found.append(float(number))
        return found[0], found[1]

    def bias(self, layer: Layer, x: Levels, w: Levels) -> str | None:
        """The bias in units of both scales, '' if there is none; None if it exceeds int32."""
        name = layer.inputs[2] if len(layer.inputs) > 2 else ""
        if not name:
            return ""
        bias = self.patterns.constant(name)
        if bias is None or bias.ndim != 1 or bias.dtype != np.float32:
            return None
        unit = x.scale.astype(np.float64).reshape(-1) * w.scale.astype(np.float64).reshape(-1)
        if unit.size not in (1, bias.size) or not np.all(unit):
            return None
        levels = np.rint(bias / unit)
        # Only a bias that is a whole number of units says the same as an integer.
        if np.abs(levels).max(initial=0) > 2**30 or not np.allclose(levels * unit, bias, rtol=1e-6, atol=0):
            return None
        made = f"{layer.name}/bias in units"
        self.constants[made] = levels.astype(np.int32)
        return made

    def conv(self, layer: Layer, x: Levels, w: Levels) -> Layer | None:
        weights = self.patterns.constant(w.name)
        if weights is None or (bias := self.bias(layer, x, w)) is None:
            return None
        if (target := self.rounding(layer)) is None:
            return None
        inputs = (*x.names, *w.names, *target.inputs[1:3], *([bias] if bias else []))
        return self.integers(layer, "QLinearConv", inputs, target.outputs, 10)

    def matmul(self, layer: Layer, a: Levels, b: Levels) -> Layer | None:
        weights = self.patterns.constant(b.name)
        if b.scale.size != 1 and (weights is None or weights.ndim != 2):
            return None
        target = self.rounding(layer)
        if target is not None:
            inputs = (*a.names, *b.names, *target.inputs[1:3])
            return self.integers(layer, "QLinearMatMul", inputs, target.outputs, 10)
        if weights is None or weights.ndim != 2:
            return None
        inputs = (a.name, b.name, a.scale_name, b.scale_name, a.zero_name, b.zero_name)
        return self.integers(layer, "MatMulIntegerToFloat", inputs, layer.outputs, 1, CONTRIB)

    def gemm(self, layer: Layer, a: Levels, b: Levels) -> Layer | None:
        weights = self.patterns.constant(b.name)
        if weights is None or layer.attributes.get("alpha", 1.0) != 1.0:
            return None
        if layer.attributes.get("beta", 1.0) != 1.0 or (bias := self.bias(layer, a, b)) is None:
            return None
        target = self.rounding(layer)
        ends = target.inputs[1:3] if target is not None else ()
        outputs = layer.outputs if target is None else target.outputs
        attributes = {n: v for n, v in layer.attributes.items() if n in ("transA", "transB")}
        inputs = (*a.names, *b.names, *([bias] if bias or ends else []), *ends)
        return self.integers(layer.replace(attributes=attributes), "QGemm", inputs, outputs, 1, CONTRIB)

    def integers(
        self, layer: Layer, op_type: str, inputs: tuple[str, ...], outputs: tuple[str, ...], version: int,
        domain: str = "",
    ) -> Layer:  # fmt: skip
        return layer.replace(op_type=op_type, inputs=inputs, outputs=outputs, version=version, domain=domain)


_RULES: dict[str, Any] = {"Conv": _Joining.conv, "MatMul": _Joining.matmul, "Gemm": _Joining.gemm}


def is_joinable(layer: Layer, patterns: Patterns) -> bool:
    """Whether a DequantizeLinear of constants makes weights that `fuse_qdq` may want as integers."""
    if layer.op_type != "DequantizeLinear" or layer.domain or not layer.outputs:
        return False
    elements = patterns.constant(layer.inputs[0])
    if elements is None or elements.dtype.name not in BYTES or prod(elements.shape) < 2:
        return False
    readers = patterns.readers(layer.outputs[0])
    return bool(readers) and all(
        reader.op_type in _RULES and not reader.domain and reader.inputs[1] == layer.outputs[0]
        and patterns.maker(reader.inputs[0], "DequantizeLinear") is not None
        for reader in readers
    )  # fmt: skip
