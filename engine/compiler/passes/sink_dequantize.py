"""Moves DequantizeLinear behind layers that only select or move elements, so that they work on bytes.

What QuantizeLinear would make of the same levels again is left out.
"""

from __future__ import annotations

from engine.compiler.passes.patterns import Levels, Patterns
from engine.graph.model import Layer, Model

_MOVING = frozenset(
    "Concat DepthToSpace Expand Flatten Gather Identity MaxPool Reshape Resize Slice SpaceToDepth Split"
    " Squeeze Tile Transpose Unsqueeze".split()
)
"""Every element of their output is one of an input; all inputs of Concat, of others the first one."""

_PRODUCTS = frozenset(("Conv", "Gemm", "MatMul"))
"""Layers that may take levels as they are."""

_SUFFIX = "/levels"


def sink_dequantize(model: Model) -> Model:
    """f(DequantizeLinear(x)) -> DequantizeLinear(f(x)), where something behind takes the levels.

    What nobody reads any more is left to `remove_dead_layers`.
    """
    return _Sinking(model).result()


class _Sinking:
    """The new graph as it grows. `levels` are those of the floats that a DequantizeLinear makes."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.patterns = Patterns(model)
        self.layers: list[Layer] = []
        self.levels: dict[str, Levels] = {}
        self.renamed: dict[str, str] = {}
        self.fixed = {name for layer in model.layers for name in layer.captures} | self.patterns.outputs
        self._wanted: dict[str, bool] = {}
        self._is_changed = False

    def result(self) -> Model:
        for layer in self.model.layers:
            self._process(layer.replace(inputs=tuple(self.renamed.get(name, name) for name in layer.inputs)))
        return self.model.replace(layers=tuple(self.layers)) if self._is_changed else self.model

    def _process(self, layer: Layer) -> None:
        levels = self.patterns.levels(layer)
        if levels is not None and layer.op_type == "DequantizeLinear":
            if levels.is_exact and levels.name not in self.model.constants:
                self.levels[layer.outputs[0]] = levels
        elif levels is not None and self._same(self.levels.get(levels.name), levels):
            source, output = self.levels[levels.name].name, layer.outputs[0]
            self._is_changed = True
            if output not in self.fixed:
                self.renamed[output] = source
                return
            layer = Layer("Identity", layer.name, (source,), (output,), {}, "", 13)
        elif _moves(layer) and all(map(self.is_wanted, layer.outputs)):
            if (found := self._target(layer)) is not None:
                self._sink(layer, found)
                return
        self.layers.append(layer)

    def _same(self, one: Levels | None, other: Levels) -> bool:
        return one is not None and one.has_levels_of(other)

    def is_wanted(self, name: str) -> bool:
        """Whether all that reads a value takes levels."""
        if name not in self._wanted:
            readers = self.patterns.readers(name)
            self._wanted[name] = bool(readers) and all(self._takes_levels(reader, name) for reader in readers)
        return self._wanted[name]

    def _takes_levels(self, layer: Layer, name: str) -> bool:
        if layer.domain or layer.inputs[0] != name and layer.op_type != "Concat":
            return False
        if layer.op_type in _PRODUCTS:
            return True
        if layer.op_type == "QuantizeLinear":
            return self.patterns.levels(layer) is not None
        return _moves(layer) and all(map(self.is_wanted, layer.outputs))

    def _target(self, layer: Layer) -> Levels | None:
        """The levels that a layer's outputs have; None if its inputs have none."""
        if layer.op_type != "Concat":
            return self.levels.get(layer.inputs[0])
        sources = [self.levels.get(name) for name in layer.inputs]
        first = sources[0]
        if first is None or None in sources:
            return None
        if all(self._same(source, first) for source in sources):
            return first
        # Others are rounded to what comes of them one by one.
        reader = self.patterns.reader(layer.outputs[0], "QuantizeLinear")
        found = None if reader is None else self.patterns.levels(reader)
        return found if found is not None and found.is_exact else None

    def _sink(self, layer: Layer, target: Levels) -> None:
        """Append a layer over levels, and what makes floats of its outputs."""
        self._is_changed = True
        count = len(layer.inputs) if layer.op_type == "Concat" else 1
        inputs = [self._in_levels(layer, k, target) for k in range(count)]
        outputs = tuple(f"{name}{_SUFFIX}" for name in layer.outputs)
        self.layers.append(layer.replace(inputs=(*inputs, *layer.inputs[count:]), outputs=outputs))
        for name, made in zip(layer.outputs, outputs, strict=True):
            floats = Layer(
                "DequantizeLinear", made, (made, *target.names[1:]), (name,), {}, "", 13
            )  # fmt: skip
            self.layers.append(floats)
            self.levels[name] = target.of(made)

    def _in_levels(self, layer: Layer, position: int, target: Levels) -> str:
        """An input of a layer, as levels like `target`."""
        name = layer.inputs[position]
        if self._same(self.levels[name], target):
            return self.levels[name].name
        made = f"{layer.outputs[0]}{_SUFFIX}/{position}"
        self.layers.append(
            Layer("QuantizeLinear", made, (name, *target.names[1:]), (made,), {}, "", 13)
        )  # fmt: skip
        return made


def _moves(layer: Layer) -> bool:
    """Whether a layer moves elements, none of which comes from elsewhere."""
    if layer.domain or layer.op_type not in _MOVING or not all(layer.outputs):
        return False
    if layer.op_type == "Resize":
        # Elements beyond a region are a number.
        is_cropped = layer.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
        return layer.attributes.get("mode", "nearest") == "nearest" and not is_cropped
    if layer.op_type != "MaxPool":
        return True
    # Windows with gaps may lie in the padding as a whole.
    is_dense = set(layer.attributes.get("dilations", (1,))) == {1}
    return len(layer.outputs) == 1 and is_dense
