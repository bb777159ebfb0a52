"""Memoised planning results of a model, for plans at other shapes.

Where a cache grows by one entry, a few layers see another shape, and all others the tensors that they saw
before. So tensors of a plan are the very objects of an earlier one wherever their properties are the same; a
layer that is given the same objects is not built again, formulas that meet again are not joined again, and
the result is not tuned again. Everything is worked out from objects that do not change, so what is memoised
is what would have been made.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from engine.compiler.plan import BufferSpec, Compute, Step
from engine.kernels.value import Entry, Signature, Value

SHAPES_AT_ONCE = 4
"""About so many plans are memoised whole; of parts that they have in common there is one."""

LARGEST_KNOWN = 64
"""Known elements that are compared to tell whether a tensor is the same: shapes, axes, scalars."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
F = TypeVar("F", bound=Hashable)


class LRUCache(Generic[K, V]):
    """A least-recently-used cache of results by their inputs."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The cached result of this key, or None."""
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
        return found

    def keep(self, key: K, made: V) -> None:
        """Cache it, and drop the least recently used."""
        self._held[key] = made
        if len(self._held) > self.most:
            self._held.popitem(last=False)


@dataclass(frozen=True, slots=True)
class TracedLayer:
    """A traced layer: formulas, outputs by name, and the samples' shapes of these."""

    computes: tuple[Compute, ...]
    outputs: dict[str, Entry]
    signatures: tuple[tuple[Value, Signature | None], ...]


@dataclass(frozen=True, slots=True)
class LoweredFormula:
    """The steps that a formula was lowered to, and their additional buffers."""

    steps: list[Step]
    buffers: dict[str, BufferSpec]
    packed: list[str]
    constants: dict[str, np.ndarray]


class PlanMemo:
    """The memoised planning results of one model."""

    def __init__(self, layers: int) -> None:
        most = SHAPES_AT_ONCE * layers
        self.layers: LRUCache[tuple[str, tuple[Entry, ...]], TracedLayer] = LRUCache(most)
        self.tuned: LRUCache[tuple[str, Compute, Compute | None], LoweredFormula] = LRUCache(most)
        self._joined: LRUCache[tuple[Compute, Compute, bool], tuple[Compute | None]] = LRUCache(most)
        self._tabulated: LRUCache[tuple[Compute, Hashable], Compute] = LRUCache(most)
        self._tensors: WeakValueDictionary[Hashable, Value] = WeakValueDictionary()

    def tensor(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> Value:
        """Return the memoised tensor with these properties."""
        return self._same((name, shape, dtype), lambda: Value(name, shape, dtype))

    def known(self, value: Value) -> Value:
        """Return the memoised tensor with the same known elements."""
        array = value.known
        if array is None or array.dtype == object or array.size > LARGEST_KNOWN or value.root is not value:
            return value
        return self._same((value.name, value.shape, value.dtype, array.tobytes()), lambda: value)

    def joined(
        self,
        producer: Compute,
        consumer: Compute,
        join: Callable[[], Compute | None],
        is_operand: bool = False,
    ) -> Compute | None:
        """Two formulas fused into one, by `join` if that is not cached; as an operand or at its end."""
        key = producer, consumer, is_operand
        found = self._joined.get(key)
        if found is None:
            found = (join(),)
            self._joined.keep(key, found)
        return found[0]

    def tabulated(self, compute: Compute, function: F, tabulate: Callable[[Compute, F], Compute]) -> Compute:
        """A function of bytes as a table, by `tabulate` if that is not cached."""
        found = self._tabulated.get((compute, function))
        if found is None:
            found = tabulate(compute, function)
            self._tabulated.keep((compute, function), found)
        return found

    def _same(self, properties: Hashable, make: Callable[[], Value]) -> Value:
        value = self._tensors.get(properties)
        if value is None:
            value = self._tensors[properties] = make()
        return value
