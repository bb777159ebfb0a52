"""The dynamic dimensions of a model's inputs, and their sizes for given shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.compiler.trace import InputShapes, SequenceShape, leaf_names
from engine.graph.model import Model
from engine.kernels.size import Size
from engine.kernels.size_recorder import SizeRecorder
from engine.runtime.plans.symbolic_values import SymbolicValues


class DynamicDims:
    """The dynamic dimensions of a model's inputs, and their sizes for given shapes.

    Those of a sequence's tensors are open each for itself; how many tensors there are is not open.

    is_possible: Whether a model can be planned with symbolic sizes.
    has_any: Whether any dimension is open.
    has_known_ranks: Whether all inputs are tensors whose ranks are declared.
    """

    def __init__(self, model: Model) -> None:
        self._items = {item.name: item for item in model.inputs}
        self.has_known_ranks = all(i.shape is not None and i.kind == "tensor" for i in model.inputs)
        self._known_keys: dict[tuple[str, int], list[tuple[int, object]]] = {}
        self.is_possible = True
        self.has_any = not self.has_known_ranks or any(
            not isinstance(dim, int) for item in model.inputs for dim in item.shape or ()
        )

    def of(self, shapes: InputShapes) -> SymbolicValues | None:
        """The dynamic sizes in order; None if equal names have different sizes or nothing is dynamic."""
        sizes: dict[object, int] = {}
        if not self.is_possible:
            return None
        for name, shape in shapes.items():
            for leaf, leaf_shape in leaf_names(name, shape):
                for axis, key in self.keys(name, leaf, len(leaf_shape)):
                    size = leaf_shape[axis]
                    if sizes.setdefault(key, size) != size:
                        return None
        return SymbolicValues(tuple(sizes.values()), self._structure(shapes))

    def opened(self, shapes: InputShapes, recorder: SizeRecorder) -> dict[str, Any]:
        """The shapes with symbolic sizes, for shapes that `of` accepts."""
        inputs: dict[object, Size] = {}
        opened: dict[str, Any] = {}
        for name, shape in shapes.items():
            found = []
            for leaf, leaf_shape in leaf_names(name, shape):
                sizes: list[Any] = [*leaf_shape]
                for axis, key in self.keys(name, leaf, len(leaf_shape)):
                    if key not in inputs:
                        inputs[key] = recorder.input(sizes[axis])
                    sizes[axis] = inputs[key]
                found.append(tuple(sizes))
            if isinstance(shape, SequenceShape):
                opened[name] = SequenceShape(found)
            else:
                opened[name] = None if shape is None else found[0]
        return opened

    def keys(self, name: str, leaf: str, rank: int) -> list[tuple[int, object]]:
        """The dynamic dimensions of a tensor and their keys."""
        found = self._known_keys.get((leaf, rank))
        if found is None:
            found = self._known_keys[leaf, rank] = self._new_keys(name, leaf, rank)
        return found

    def _new_keys(self, name: str, leaf: str, rank: int) -> list[tuple[int, object]]:
        item = self._items[name]
        declared: Sequence[object] = () if item.shape is None or item.kind == "map" else [*item.shape]
        if len(declared) != rank:
            declared = [None] * rank
        keys: list[tuple[int, object]] = []
        for axis, dim in enumerate(declared):
            is_shared = isinstance(dim, str) and item.kind == "tensor"
            if not isinstance(dim, int):
                keys.append((axis, dim if is_shared else (leaf, axis)))
        return keys

    def _structure(self, shapes: InputShapes) -> tuple[object, ...]:
        """What of the shapes is no size: ranks, lengths of sequences, and which optionals are empty."""
        if self.has_known_ranks:
            return ()
        return tuple(
            (name, None if shape is None else tuple(len(s) for _, s in leaf_names(name, shape)))
            for name, shape in shapes.items()
        )
