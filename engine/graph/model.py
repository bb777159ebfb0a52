"""The graph as plain data: a `Model` is made of `Layer`s, constants, `Input`s and `Output`s.

Nothing here is changed in place: passes build new objects with `replace`. Objects compare by identity,
because attributes and constants hold arrays.
"""

from __future__ import annotations

import dataclasses
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import Any, Literal, Self

import numpy as np

from engine.base.errors import ModelImportError
from engine.base.shapes import DynamicTensorShape

Kind = Literal["tensor", "sequence", "optional", "map", "maps", "sparse_tensor"]
"""What a model declares a value to be; "maps" is a sequence of maps."""

CONTRIB = "com.microsoft"
"""The domain of onnxruntime's own operators."""

ML = "ai.onnx.ml"
"""ONNX's domain of operators for classical machine learning."""

UNTYPED = np.dtype("V")
"""The element type of a subgraph's input that does not declare one."""


class _Record:
    """Base of dataclasses that are replaced by changed copies."""

    __slots__ = ()

    def replace(self, **changes: Any) -> Self:
        """A copy with the given fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True, eq=False)
class Input(_Record):
    """A value that the caller supplies.

    Attributes:
        name: Name of the input.
        dtype: Element type: object for strings, `UNTYPED` for a subgraph's input that leaves it to the
            caller. Of a sequence or optional, the type of its elements.
        shape: Dimensions, open ones among them; None if the file declares no rank. Of a sequence or optional,
            those of its elements.
        kind: What the file declares: "tensor", "sequence", "optional", "map", "maps" or "sparse_tensor".
    """

    name: str
    dtype: np.dtype[Any]
    shape: DynamicTensorShape | None
    kind: Kind = "tensor"


@dataclass(frozen=True, slots=True, eq=False)
class Output(_Record):
    """A value that the model returns.

    Attributes:
        name: Name of the output.
        dtype: Element type; None if the file does not declare it.
        shape: Dimensions, open ones among them; None if the file does not declare them.
        kind: What the file declares, as for `Input`.
    """

    name: str
    dtype: np.dtype[Any] | None
    shape: DynamicTensorShape | None
    kind: Kind = "tensor"


@dataclass(frozen=True, slots=True, eq=False)
class Layer(_Record):
    """One application of an operator.

    Attributes:
        op_type: Name of the operator, such as "Conv".
        name: Name of the layer; '' if the file gives none.
        inputs: Names of the values it takes; '' for an optional one left out. Those left out at the end are
            cut off.
        outputs: Names of the values it computes, likewise.
        attributes: Attributes that the file spells out: int, float, str, bytes, tuples of these, NumPy arrays
            (tensors) and `Model` (subgraphs).
        domain: Operator set of `op_type`; '' for ONNX's own.
        version: Version of that operator set by which the layer is read.
    """

    op_type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    version: int = 1

    subgraphs: tuple[Model, ...] = field(init=False, repr=False)
    """The bodies that this layer carries as attributes (`If`, `Loop`, `Scan`)."""

    def __post_init__(self) -> None:
        """Look for subgraphs once, as every walk needs them."""
        found: list[Model] = []
        for value in self.attributes.values():
            if isinstance(value, Model):
                found.append(value)
            elif isinstance(value, tuple) and value and isinstance(value[0], Model):
                found.extend(value)
        object.__setattr__(self, "subgraphs", tuple(found))

    @property
    def captures(self) -> tuple[str, ...]:
        """Names that this layer's subgraphs take from the graph around them, each once."""
        return tuple(dict.fromkeys(name for body in self.subgraphs for name in body.captures))

    @property
    def dependencies(self) -> tuple[str, ...]:
        """Every name that must exist before this layer runs: its inputs, then its captures."""
        names = dict.fromkeys(self.inputs)
        names.pop("", None)
        if self.subgraphs:
            names |= dict.fromkeys(self.captures)
        return tuple(names)

    def with_subgraphs(self, change: Callable[[Model], Model]) -> Layer:
        """A copy with changed subgraphs; the layer itself if none changes."""

        def changed(value: Any) -> Any:
            if isinstance(value, Model):
                return change(value)
            return tuple(map(changed, value)) if isinstance(value, tuple) else value

        made = self.replace(attributes={name: changed(value) for name, value in self.attributes.items()})
        is_same = all(map(operator.is_, made.subgraphs, self.subgraphs))
        return self if is_same else made

    def __str__(self) -> str:
        return f"layer '{self.name}' ({qualified_op(self.domain, self.op_type)})"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Model(_Record):
    """A network as a graph: inputs, outputs, layers and constants.

    A model is also what a layer holds as its subgraph; then it may use names of the graph around it.

    Attributes:
        name: Name of the graph.
        inputs: Values that the caller supplies, in order.
        outputs: Values that are returned, in order.
        layers: Layers in an order in which each one's inputs exist before it runs.
        constants: Read-only arrays by value name.
        opsets: Version of each operator set, by domain.
        producer: The program that wrote the file, as the file says.
        source: Path of the file, or "<bytes>".
        metadata: What its author noted in the file.
        has_weight_files: Whether constants are stored in separate files.
        makers: How constants that a pass has computed are computed again, for storing the model; empty once
            it is loaded.
    """

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    layers: tuple[Layer, ...]
    constants: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    opsets: Mapping[str, int] = field(default_factory=dict)
    producer: str = ""
    source: str = "<bytes>"
    metadata: Mapping[str, str] = field(default_factory=dict)
    has_weight_files: bool = False
    constant_factories: Mapping[str, Callable[[], np.ndarray[Any, Any]]] = field(
        default_factory=dict, repr=False
    )

    identity: str = field(default="", init=False, repr=False)
    """Identifies the file and the options that the model was read from; '' for any other, and for copies with
    changes."""

    @property
    def captures(self) -> tuple[str, ...]:
        """Names that are used here and defined outside; empty for a model."""
        known = {item.name for item in self.inputs} | set(self.constants)
        for layer in self.layers:
            known.update(layer.outputs)
        used = [name for layer in self.layers for name in layer.dependencies]
        used.extend(output.name for output in self.outputs)
        return tuple(name for name in dict.fromkeys(used) if name not in known)

    @property
    def dim_names(self) -> tuple[str, ...]:
        """The named dimensions of the inputs, each once, in order of appearance."""
        return tuple(dict.fromkeys(name for item in self.inputs if item.shape for name in item.shape.names))

    def _identified(self, identity: str) -> Model:
        """A copy that is identified by its source instead of its contents."""
        copy = self.replace()
        object.__setattr__(copy, "identity", identity)
        return copy

    def producers(self) -> dict[str, Layer]:
        """The layer that yields each value; inputs and constants have none."""
        return {name: layer for layer in self.layers for name in layer.outputs if name}

    def consumers(self) -> dict[str, tuple[Layer, ...]]:
        """The layers that use each value, in order; a layer that uses a value twice is listed once.

        Use inside a subgraph counts as use by the layer that holds it. Use as a model output is not listed.
        """
        found: dict[str, list[Layer]] = {}
        for layer in self.layers:
            for name in layer.dependencies:
                found.setdefault(name, []).append(layer)
        return {name: tuple(layers) for name, layers in found.items()}

    def walk(self) -> Iterator[Layer]:
        """Every layer, those of subgraphs right after the layer that holds them."""
        for layer in self.layers:
            yield layer
            for body in layer.subgraphs:
                yield from body.walk()

    def with_dims(self, dims: Mapping[str, int]) -> Model:
        """This model with named dimensions made static, in its inputs and outputs."""

        def fixed(shape: DynamicTensorShape | None) -> DynamicTensorShape | None:
            return None if shape is None else shape.with_dims(dims)

        return self.replace(
            inputs=tuple(item.replace(shape=fixed(item.shape)) for item in self.inputs),
            outputs=tuple(item.replace(shape=fixed(item.shape)) for item in self.outputs),
        )

    def check(self, outer: Iterable[str] = ()) -> None:
        """Verify the graph; raises `ModelImportError` that names the layer or value at fault.

        Checked: names are unique, every value is defined before it is used, every output exists; the same
        in each subgraph, which may also use `outer`, the names of the graphs around it.
        """
        where = f"model '{self.name}' ({self.source})"
        known = set(outer)
        if not all((*(item.name for item in self.inputs), *self.constants)):
            raise ModelImportError(f"{where}: an input or constant has no name")
        own: dict[str, object] = {}
        for name in self.constants:
            own[name] = "a constant"
        for item in self.inputs:
            if item.name in own:
                raise ModelImportError(f"{where}: the input '{item.name}' is already {own[item.name]}")
            own[item.name] = "an input"
        layer_names: set[str] = set()
        for layer in self.layers:
            if not layer.name or layer.name in layer_names:
                raise ModelImportError(f"{where}: {layer} needs a name that no other layer has")
            layer_names.add(layer.name)
            for name in layer.dependencies:
                if name not in own and name not in known:
                    raise ModelImportError(
                        f"{where}: {layer} uses '{name}', which no input, constant or earlier layer defines"
                    )
            for body in layer.subgraphs:
                body.check(known | set(own))
            for name in layer.outputs:
                if name in own:
                    raise ModelImportError(
                        f"{where}: {layer} yields '{name}', which is already {_role(own[name])}"
                    )
                if name:
                    own[name] = layer
        seen: set[str] = set()
        for output in self.outputs:
            if output.name not in own and output.name not in known:
                raise ModelImportError(f"{where}: nothing defines the output '{output.name}'")
            if output.name in seen:
                raise ModelImportError(f"{where}: the output '{output.name}' is listed twice")
            seen.add(output.name)

    def summary(self) -> str:
        """Inputs, outputs, how many layers of each operator, and the size of the constants, as text."""
        lines = [f"model '{self.name}' from {self.source}"]
        if self.producer:
            lines.append(f"  made by {self.producer}")
        opsets = (f"{domain or 'ai.onnx'} {version}" for domain, version in sorted(self.opsets.items()))
        lines.append("  opsets: " + ", ".join(opsets))
        lines += ["  inputs:", *(f"    {_describe(item)}" for item in self.inputs)]
        lines += ["  outputs:", *(f"    {_describe(item)}" for item in self.outputs)]
        counts = Counter(qualified_op(layer.domain, layer.op_type) for layer in self.walk())
        lines.append(f"  layers: {counts.total()}")
        by_count = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        lines += [f"    {count:4d} {op}" for op, count in by_count]
        elements = sum(array.size for array in self.constants.values())
        size = sum(array.nbytes for array in self.constants.values())
        lines.append(f"  constants: {len(self.constants)}, {elements:,} elements, {size / 2**20:.2f} MiB")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Model '{self.name}': {len(self.layers)} layers, {len(self.constants)} constants>"


def qualified_op(domain: str, op_type: str) -> str:
    """An operator's name, prefixed by its domain unless that is ONNX's."""
    return f"{domain}.{op_type}" if domain else op_type


def sort_layers(layers: Sequence[Layer], available: Iterable[str]) -> tuple[Layer, ...]:
    """Sort layers topologically; keeps the given order where possible.

    `available` are names that exist from the start. Names that nothing defines are left to `Model.check`.
    Raises `ModelImportError` that names the layers of a cycle.
    """
    producers = {name: index for index, layer in enumerate(layers) for name in layer.outputs if name}
    ready = set(available)
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for index, layer in enumerate(layers):
        needed = [n for n in layer.dependencies if n in producers and n not in ready]
        sorter.add(index, *(producers[name] for name in needed))
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = error.args[1][1:]
        raise ModelImportError(
            f"the graph has a cycle among {len(cycle)} layers, first {layers[min(cycle)]}: no order runs them"
        ) from error
    done: list[Layer] = []
    free: list[int] = []
    while sorter.is_active():
        for index in sorter.get_ready():
            heappush(free, index)
        # The first in the list of those that are free.
        index = heappop(free)
        done.append(layers[index])
        sorter.done(index)
    return tuple(done)


def _role(found: object) -> object:
    return f"the output of {found}" if isinstance(found, Layer) else found


def _describe(item: Input | Output) -> str:
    dtype = "unknown type" if item.dtype is None else ("string" if item.dtype == object else str(item.dtype))
    shape = "of unknown rank" if item.shape is None else str(item.shape)
    kind = "" if item.kind == "tensor" else f" ({item.kind})"
    return f"{item.name}: {dtype} {shape}{kind}"
