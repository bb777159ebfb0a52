"""Cached graphs: imported and optimized models on disk, which need no parsing.

What is stored has no weights: it refers to the model's own file, whose bytes are the key, and says how
weights that a pass has made come of those. Models with operators of a game's own are not stored, nor those
whose weights lie in other files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engine.base import source_files
from engine.base.versions import version_text
from engine.graph.model import Layer, Model, Output
from engine.operators import OPERATORS
from engine.runtime.plan_store import files, is_storing
from engine.runtime.plan_store.cache_keys import bytes_hash, engine_hash
from engine.runtime.plan_store.codec import (
    ARRAY,
    BYTES,
    NAME,
    Constant,
    Many,
    Maybe,
    Pairs,
    Records,
    Trees,
    column_of,
)
from engine.runtime.plan_store.streams import UNREADABLE, NotStorableError, StreamReader, StreamWriter

LARGEST_FILE = 1 << 26
"""Bytes of a model's file beyond which telling it takes longer than reading its graph."""

LEAST_LAYERS = 16
"""Layers below which a graph is parsed about as fast, by a process that has imported the parser."""

_FORM = b"GGGRAPH3"
_FILE = "file"


class GraphFile:
    """The stored graph of one model's file."""

    def __init__(self, data: bytes, name: str, dims: Mapping[str, int] | None) -> None:
        """`data` are the file's bytes, `name` is what messages call it, `dims` what was made static."""
        engine = engine_hash() if data and is_storing() and len(data) <= LARGEST_FILE else ""
        # As a reader takes them: arrays that share a view's memory are copied in the end.
        self._data = np.frombuffer(memoryview(data), np.uint8)
        self._name = name
        # A graph without a name is called like its file.
        self.key = ""
        if engine:
            sizes = sorted(map(repr, (dims or {}).items()))
            setting = f"{engine} {version_text('onnx')} {Path(name).name!r} {sizes}"
            self.key = bytes_hash(self._data, setting)

    def read(self) -> Model | None:
        """The stored graph, its constants views of the file's bytes; None if there is none."""
        body = files.read(files.path_of(self.key, "graph"), _FORM) if self.key else None
        if body is None:
            return None
        try:
            model = StreamReader(body, {_FILE: self._data}).value(_Models(self._name))
            made = {name: make() for name, make in model.constant_factories.items()}
            model = model.replace(constants=_in_order(model.constants, made))
            model.check()
        except UNREADABLE:
            # Damaged in a way that its digest does not tell: as good as none.
            return None
        return model

    def write(self, model: Model, is_file: bool) -> None:
        """Store the imported graph; does nothing if that fails or saves nothing.

        Only if `is_determined_by_file` of the model as it was before any pass. `is_file`: a file has the
        bytes, so that another process is likely to read them.
        """
        is_worth_it = is_file or len(model.layers) >= LEAST_LAYERS
        if not self.key or not is_worth_it or not source_files.are_unchanged():
            return
        # What can be made again is only named.
        makers = {name: make for name, make in model.constant_factories.items() if name in model.constants}
        constants = {name: None if name in makers else array for name, array in model.constants.items()}
        try:
            flat = model.replace(constants=constants, constant_factories=makers)
            body = StreamWriter({_FILE: self._data}).body(_Models(self._name), flat)
        except NotStorableError:
            return
        files.write(files.path_of(self.key, "graph"), _FORM, body)


def is_determined_by_file(model: Model) -> bool:
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


class _Models(Records[Model]):
    """Models from one file, including subgraphs. Constants that makers make are None."""

    def __init__(self, source: str) -> None:
        values = Trees((np.ndarray, ARRAY), (bytes, BYTES), (Model, self), (Output, column_of(Output)))
        super().__init__(
            Model,
            layers=Many(Records(Layer, attributes=Pairs(NAME, values))),
            constants=Pairs(NAME, Maybe(ARRAY)),
            source=Constant(source),
            has_weight_files=Constant(False),
        )
