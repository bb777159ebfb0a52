"""Graphs on disk: a model's file, read and put through the passes once, need not be parsed the next time.

What is stored has no weights: it refers to the model's own file, whose bytes are the key, and says how
weights that a pass has made come of those. Models with operators of a game's own are not stored, nor those
whose weights lie in other files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.base import source_files
from engine.base.shapes import DynamicTensorShape
from engine.base.versions import version_text
from engine.graph.model import Input, Layer, Model, Output
from engine.operators import OPERATORS
from engine.runtime.plan_store import files, is_storing
from engine.runtime.plan_store.cache_keys import digest_of_bytes, digest_of_engine
from engine.runtime.plan_store.codec import (
    ARRAY,
    BYTES,
    CALL,
    DIM,
    DTYPE,
    NAME,
    SIZE,
    Many,
    Maybe,
    Rows,
    Trees,
    Tuples,
)
from engine.runtime.plan_store.streams import UNREADABLE, Column, NotStorableError, Reader, Writer

LARGEST_FILE = 1 << 26
"""Bytes of a model's file beyond which telling it takes longer than reading its graph."""

LEAST_LAYERS = 16
"""Layers below which a graph is parsed about as fast, by a process that has imported the parser."""

_FORM = b"GGGRAPH2"
_FILE = "file"


class GraphFile:
    """The stored graph of one model's file."""

    def __init__(self, data: bytes, name: str, dims: Mapping[str, int] | None) -> None:
        """`data` are the file's bytes, `name` is what messages call it, `dims` what was made static."""
        engine = digest_of_engine() if data and is_storing() and len(data) <= LARGEST_FILE else ""
        # As a reader takes them: arrays that share a view's memory are copied in the end.
        self._data = np.frombuffer(memoryview(data), np.uint8)
        self._name = name
        # A graph without a name is called like its file.
        self.key = ""
        if engine:
            sizes = sorted(map(repr, (dims or {}).items()))
            setting = f"{engine} {version_text('onnx')} {Path(name).name!r} {sizes}"
            self.key = digest_of_bytes(self._data, setting)

    def read(self) -> Model | None:
        """The stored graph, its constants views of the file's bytes; None if there is none."""
        body = files.read(files.path_of(self.key, "graph"), _FORM) if self.key else None
        if body is None:
            return None
        try:
            model = Reader(body, {_FILE: self._data}).value(_Models(self._name))
            made = {name: make() for name, make in model.makers.items()}
            model = model.replace(constants=_in_order(model.constants, made))
            model.check()
        except UNREADABLE:
            # Damaged in a way that its digest does not tell: as good as none.
            return None
        return model

    def write(self, model: Model, is_file: bool) -> None:
        """Store the imported graph; does nothing if that fails or saves nothing.

        Only if `is_told_by_file` of the model as it was before any pass. `is_file`: a file has the bytes, so
        that another process is likely to read them.
        """
        is_worth_it = is_file or len(model.layers) >= LEAST_LAYERS
        if not self.key or not is_worth_it or not source_files.are_unchanged():
            return
        # What can be made again is only named.
        makers = {name: make for name, make in model.makers.items() if name in model.constants}
        constants = {name: None if name in makers else array for name, array in model.constants.items()}
        try:
            flat = model.replace(constants=constants, makers=makers)
            body = Writer({_FILE: self._data}).body(_Models(self._name), flat)
        except NotStorableError:
            return
        files.write(files.path_of(self.key, "graph"), _FORM, body)


def is_told_by_file(model: Model) -> bool:
    """Whether the file's bytes determine the result of the passes.

    Neither what a game's operators do, which may be folded away, nor what other files hold is among them.
    """
    return not model.has_weight_files and is_plain(model)


def is_plain(model: Model) -> bool:
    """Whether all operators are the engine's own, and inputs are tensors."""
    for layer in model.walk():
        operator = OPERATORS.find(layer.domain, layer.op_type, layer.version)
        if operator is None or not operator.define.__module__.startswith("engine.operators"):
            return False
    return all(item.kind == "tensor" and item.dtype != object for item in model.inputs)


def _in_order(
    constants: Mapping[str, np.ndarray | None], made: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    return {name: made[name] if array is None else array for name, array in constants.items()}


# What is written


class _Named(NamedTuple):
    name: str
    value: Any


class _Graph(NamedTuple):
    """A `Model` without its source. Constants that makers make are None."""

    name: str
    inputs: Sequence[Input]
    outputs: Sequence[Output]
    layers: Sequence[_Layer]
    constants: Sequence[_Named]
    opsets: Sequence[_Named]
    producer: str
    metadata: Sequence[_Named]
    makers: Sequence[_Named]


class _Layer(NamedTuple):
    op_type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Sequence[_Named]
    domain: str
    version: int


def _named(column: Column[Any]) -> Column[Any]:
    return Many(Tuples(_Named, name=NAME, value=column))


def _puts(make: type[Input] | type[Output]) -> Rows[Any]:
    return Rows(make, name=NAME, dtype=Maybe(DTYPE), shape=Maybe(_Shapes()), kind=NAME)


class _Shapes:
    """Shapes that a model declares."""

    def write(self, values: Sequence[DynamicTensorShape], file: Writer) -> None:
        """See `Column`."""
        _DIMS.write(values, file)

    def read(self, count: int, file: Reader) -> list[DynamicTensorShape]:
        """See `Column`."""
        return [*map(DynamicTensorShape, _DIMS.read(count, file))]


class _Models:
    """Models from one file, including subgraphs."""

    def __init__(self, source: str) -> None:
        self._source = source
        values = Trees((np.ndarray, ARRAY), (bytes, BYTES), (Model, self), (Output, _puts(Output)))
        layers = Tuples(
            _Layer, op_type=NAME, name=NAME, inputs=Many(NAME), outputs=Many(NAME), attributes=_named(values),
            domain=NAME, version=SIZE,
        )  # fmt: skip
        self._graphs = Rows(
            _Graph, name=NAME, inputs=Many(_puts(Input)), outputs=Many(_puts(Output)), layers=Many(layers),
            constants=_named(Maybe(ARRAY)), opsets=_named(SIZE), producer=NAME, metadata=_named(NAME),
            makers=_named(CALL),
        )  # fmt: skip

    def write(self, values: Sequence[Model], file: Writer) -> None:
        """See `Column`."""
        self._graphs.write([*map(self._flat, values)], file)

    def _flat(self, model: Model) -> _Graph:
        if model.source != self._source or model.has_weight_files:
            raise NotStorableError("a part of it comes from elsewhere")
        layers = [
            _Layer(x.op_type, x.name, x.inputs, x.outputs, _items(x.attributes), x.domain, x.version)
            for x in model.layers
        ]
        return _Graph(
            model.name, model.inputs, model.outputs, layers, _items(model.constants), _items(model.opsets),
            model.producer, _items(model.metadata), _items(model.makers),
        )  # fmt: skip

    def read(self, count: int, file: Reader) -> list[Model]:
        """See `Column`."""
        return [*map(self._model, self._graphs.read(count, file))]

    def _model(self, flat: _Graph) -> Model:
        return Model(
            name=flat.name,
            inputs=tuple(flat.inputs),
            outputs=tuple(flat.outputs),
            layers=tuple(
                Layer(op_type, name, inputs, outputs, dict(attributes), domain, version)
                for op_type, name, inputs, outputs, attributes, domain, version in flat.layers
            ),
            constants=dict(flat.constants),
            opsets=dict(flat.opsets),
            producer=flat.producer,
            source=self._source,
            metadata=dict(flat.metadata),
            makers=dict(flat.makers),
        )


_DIMS: Column[Any] = Many(DIM)


def _items(attributes: Mapping[str, Any]) -> list[_Named]:
    return [_Named(name, value) for name, value in attributes.items()]
