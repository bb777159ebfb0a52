"""Graphs on disk: a model's file, read and put through the passes once, need not be parsed the next time.

What is stored has no weights: it refers to the model's own file, whose bytes are the key, and says how
weights that a pass has made come of those. Models with operators of a game's own are not stored, nor those
whose weights lie in other files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import __version__ as onnx_version

from engine.dtypes import as_dtype
from engine.model import Input, Layer, Model, Output
from engine.operators import OPERATORS
from engine.shapes import DynamicTensorShape
from engine.stored import files, is_storing
from engine.stored.digests import digest_of_bytes, digest_of_engine
from engine.stored.references import UNREADABLE, NotStorableError, Reader, Writer

LARGEST_FILE = 1 << 26
"""Bytes of a model's file beyond which telling it takes longer than reading its graph."""

LEAST_LAYERS = 16
"""Layers below which a graph is read about as fast from the model's file."""

_FORM = b"GGGRAPH1"
_FILE = "file"


class GraphFile:
    """The stored graph of one model's file."""

    def __init__(self, data: bytes, name: str, dims: Mapping[str, int] | None) -> None:
        """`data` are the file's bytes, `name` is what messages call it, `dims` what was made static."""
        engine = digest_of_engine() if is_storing() and len(data) <= LARGEST_FILE else ""
        # As a reader takes them: arrays that share a view's memory are copied in the end.
        self._data = np.frombuffer(memoryview(data), np.uint8)
        self._name = name
        # A graph without a name is called like its file.
        setting = f"{engine} {onnx_version} {Path(name).name!r} {sorted(map(repr, (dims or {}).items()))}"
        self.key = digest_of_bytes(self._data, setting) if engine and data else ""

    def read(self) -> Model | None:
        """What `write` was given, its constants views of the file's bytes; None if nothing was."""
        body = files.read(files.path_of(self.key, "graph"), _FORM) if self.key else None
        if body is None:
            return None
        try:
            model = _GraphReader(body, self._data, self._name).load()
            made = {name: make() for name, make in model.makers.items()}
        except UNREADABLE:
            # Damaged in a way that its digest does not tell: as good as none.
            return None
        return model.replace(constants=_in_order(model.constants, made))

    def write(self, model: Model) -> None:
        """Store what the file came to; without effect where that cannot be, or gains nothing.

        Only if `is_told_by_file` of the model as it was before any pass.
        """
        if not self.key or len(model.layers) < LEAST_LAYERS:
            return
        # What can be made again is only named.
        makers = {name: make for name, make in model.makers.items() if name in model.constants}
        constants = {name: None if name in makers else array for name, array in model.constants.items()}
        try:
            flat = model.replace(constants=constants, makers=makers)
            body = _GraphWriter(self._data, self._name).body(flat)
        except NotStorableError:
            return
        files.write(files.path_of(self.key, "graph"), _FORM, body)


def is_told_by_file(model: Model) -> bool:
    """Whether the file's bytes decide what passes make of a model that was just read.

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


# What is written: tuples of plain values, which pickle reads many times faster than objects


class _GraphWriter(Writer):
    """Writes models, those that layers hold included, without what they are called."""

    def __init__(self, data: np.ndarray, source: str) -> None:
        super().__init__({_FILE: data})
        self._source = source

    def persistent_id(self, thing: Any) -> Any:
        """What stands for a model, a declared output or an array of the file."""
        if isinstance(thing, Model):
            if thing.source != self._source:
                raise NotStorableError("a part of it comes from elsewhere")
            return Model.__name__, _flat(thing)
        if isinstance(thing, Output):
            return Output.__name__, _put(thing)
        return super().persistent_id(thing)


class _GraphReader(Reader):
    """Reads what `_GraphWriter` wrote, for a file of the same bytes."""

    def __init__(self, body: bytes, data: np.ndarray, source: str) -> None:
        super().__init__(body, {_FILE: data})
        self._source = source

    def persistent_load(self, reference: Any) -> Any:
        """What a reference means."""
        if reference[0] == Model.__name__:
            return _restored(reference[1], self._source)
        if reference[0] == Output.__name__:
            return Output(*_put_back(reference[1]))
        return super().persistent_load(reference)


def _flat(model: Model) -> tuple[Any, ...]:
    layers = [
        (x.op_type, x.name, x.inputs, x.outputs, dict(x.attributes), x.domain, x.version)
        for x in model.layers
    ]
    facts = (model.name, dict(model.opsets), model.producer, dict(model.metadata))
    inputs, outputs = [_put(item) for item in model.inputs], [_put(item) for item in model.outputs]
    return facts, inputs, outputs, layers, dict(model.constants), dict(model.makers)


def _restored(flat: tuple[Any, ...], source: str) -> Model:
    (name, opsets, producer, metadata), inputs, outputs, layers, constants, makers = flat
    return Model(
        name=name,
        inputs=tuple(Input(*_put_back(item)) for item in inputs),
        outputs=tuple(Output(*_put_back(item)) for item in outputs),
        layers=tuple(Layer(*facts) for facts in layers),
        constants=constants,
        opsets=opsets,
        producer=producer,
        source=source,
        metadata=metadata,
        makers=makers,
    )


def _put(item: Input | Output) -> tuple[Any, ...]:
    dtype = None if item.dtype is None else item.dtype.name
    if dtype is not None and as_dtype(dtype) != item.dtype:
        raise NotStorableError(f"'{item.name}' has a type without a name")
    return item.name, dtype, None if item.shape is None else tuple(item.shape), item.kind


def _put_back(facts: tuple[Any, ...]) -> tuple[Any, ...]:
    name, dtype, shape, kind = facts
    found = None if dtype is None else as_dtype(dtype)
    return name, found, None if shape is None else DynamicTensorShape(shape), kind
