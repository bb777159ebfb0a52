"""`ModelLoader` reads model files; `ModelAsset` refers to one and loads it on first use."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from operator import index
from pathlib import Path
from typing import BinaryIO

import numpy as np

from engine.backends.table import start_precompilation
from engine.base import instrumentation
from engine.base.errors import InputError, ModelImportError
from engine.base.memory.out_of_memory import naming_out_of_memory
from engine.base.sliced_thread import SlicedThread
from engine.base.spelling import SpellingType
from engine.compiler.passes import optimize
from engine.graph.importers import READERS
from engine.graph.importers.constants import settled
from engine.graph.importers.files import read_file
from engine.graph.model import Layer, Model
from engine.operators import OPERATORS
from engine.runtime.loading.handle import Loading, Steps
from engine.runtime.plan_store.graphs import GraphFile, is_determined_by_file

ModelSource = str | os.PathLike[str] | bytes | BinaryIO


class ModelAsset:
    """A reference to a model by path or bytes, for use as a component field.

    Nothing is read before `load()`. Two assets are equal where their paths (made absolute) or their bytes
    are, so an asset may be the key of a dict.
    """

    __slots__ = ("_data", "_loaded", "_lock", "_path")

    def __init__(self, source: str | os.PathLike[str] | bytes) -> None:
        if not isinstance(source, str | os.PathLike | bytes):
            raise InputError(f"a ModelAsset takes a path or bytes, got {type(source).__name__}")
        self._data = source if isinstance(source, bytes) else None
        self._path = None if isinstance(source, bytes) else Path(os.path.abspath(source))
        self._loaded: Model | None = None
        self._lock = threading.Lock()

    @property
    def path(self) -> Path | None:
        """Path of the file; None for a model given as bytes."""
        return self._path

    @property
    def name(self) -> str:
        """The file's name without its suffix, or "<bytes>"."""
        return "<bytes>" if self._path is None else self._path.stem

    @property
    def source(self) -> Path | bytes:
        """The path or bytes that the asset was created with."""
        if self._path is not None:
            return self._path
        assert self._data is not None
        return self._data

    def load(self) -> Model:
        """The model, read at the first call and cached; raises what `ModelLoader.load` raises."""
        with self._lock:
            if self._loaded is None:
                self._loaded = ModelLoader.load(self.source)
            return self._loaded

    def unload(self) -> None:
        """Drop the model that `load` cached; the next `load` reads the file again."""
        with self._lock:
            self._loaded = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ModelAsset):
            return NotImplemented
        return self.source == other.source

    def __hash__(self) -> int:
        return hash(self.source)

    def __repr__(self) -> str:
        content = f"{len(self._data)} bytes" if self._data is not None else repr(str(self._path))
        return f"ModelAsset({content})"

    def __reduce__(self) -> tuple[type[ModelAsset], tuple[Path | bytes]]:
        return (ModelAsset, (self.source,))


class ModelLoader(metaclass=SpellingType):
    """Reads model files. The suffix decides the format; bytes are read as ONNX."""

    @staticmethod
    def load(source: ModelSource | ModelAsset, *, dims: Mapping[str, int] | None = None) -> Model:
        """Load, check and optimize the model in `source`.

        `source` is a path, bytes, a binary file object or a `ModelAsset`. `dims` makes named dimensions
        static: `{"batch": 1}`.

        Raises:
            ModelImportError: Something is wrong with the file.
            InputError: `source` is none of these, or the model does not have a name in `dims`.
        """
        if isinstance(source, ModelAsset):
            if dims is None:
                return source.load()
            source = source.source
        with instrumentation.spanning("load") as attributes, naming_out_of_memory("reading a model"):
            attributes["model"] = model = _ready(source, dims)
        return model

    @staticmethod
    def load_async(
        source: ModelSource | ModelAsset, *, dims: Mapping[str, int] | None = None
    ) -> Loading[Model]:
        """Load in the background: await the handle, or poll `is_done()` and take `result()`.

        What `load` raises is raised there.
        """
        loading: Loading[Model] = Loading(
            name=str(source)[:80] if not isinstance(source, bytes) else "<bytes>"
        )

        def steps() -> Steps[Model]:
            loading.report("reading the model", 0.0)
            model: Model = yield SlicedThread(lambda: ModelLoader.load(source, dims=dims))
            return model

        return loading.begin(steps())

    @staticmethod
    def read(source: ModelSource | ModelAsset, *, dims: Mapping[str, int] | None = None) -> Model:
        """Load and check the model in `source` without optimizing it."""
        if isinstance(source, ModelAsset):
            source = source.source
        with naming_out_of_memory("reading a model"):
            return _settled(_read(*_contents(source), dims))


def _ready(source: ModelSource, dims: Mapping[str, int] | None) -> Model:
    """The model after the passes for all backends, which the same file went through only once."""
    start_precompilation()
    data, folder, name = _contents(source)
    stored = GraphFile(data, name, dims)
    model = stored.read()
    if model is None:
        read = _read(data, folder, name, dims)
        model = optimize(read)
        if not is_determined_by_file(read):
            return _settled(model)
        stored.write(model, is_file=folder is not None)
    return _settled(model)._identified(stored.key)


def _read(data: bytes, folder: Path | None, name: str, dims: Mapping[str, int] | None) -> Model:
    """The model as the file has it; large weights may be views of the file's bytes."""
    reader = READERS.get(Path(name).suffix.lower(), READERS[".onnx"])
    model = reader(data, folder, name, _gap)
    return model if dims is None else _with_dims(model, dims)


def _settled(model: Model) -> Model:
    """The model with constants copied from the file's bytes, except for weights that plans pack anyway."""
    return model.replace(constants=settled(model.constants, _packed(model)), constant_factories={})


_PACKERS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
"""Layers whose second input every backend lays in an order of its own."""


def _packed(model: Model) -> AbstractSet[str]:
    """Names of constants that only serve as weights of layers in `_PACKERS`."""
    weights: set[str] = set()
    others = {output.name for output in model.outputs}
    for layer in model.layers:
        if layer.subgraphs:
            return frozenset()  # which may read any
        is_packer = layer.op_type in _PACKERS
        for position, name in enumerate(layer.inputs):
            (weights if is_packer and position == 1 else others).add(name)
    return weights - others


def _gap(layer: Layer, constants: Mapping[str, np.ndarray]) -> str | None:
    """Why the engine cannot run `layer`, some inputs of which may be constants, or None."""
    operator = OPERATORS.find(layer.domain, layer.op_type, layer.version)
    if operator is None:
        return OPERATORS.unsupported(layer.domain, layer.op_type, layer.version)
    return operator.problem(layer, constants)


def _contents(source: ModelSource) -> tuple[bytes, Path | None, str]:
    """The bytes of a model, the folder that its weight files lie in, and what messages call it."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), None, "<bytes>"
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return read_file(path), path.parent, str(path)
    if not hasattr(source, "read"):
        raise InputError(
            f"a model comes from a path, bytes, a binary file or a ModelAsset, got {type(source).__name__}"
        )
    name = getattr(source, "name", None)
    try:
        data = source.read()
    except (OSError, ValueError) as error:
        raise ModelImportError(f"cannot read the model from {name or source!r}: {error}") from error
    if not isinstance(data, bytes):
        raise InputError(f"the file {name or source!r} is open as text; open it with mode 'rb'")
    if isinstance(name, str) and os.path.isfile(name):
        return data, Path(name).parent, name
    return data, None, "<file>"


def _with_dims(model: Model, dims: Mapping[str, int]) -> Model:
    """`model` with the named dimensions in `dims` made static; refuses names and sizes that cannot be."""
    known = model.dim_names
    unknown = [name for name in dims if name not in known]
    if unknown:
        names = ", ".join(f"'{name}'" for name in known)
        raise InputError(
            f"{model.source} has no dimension named {', '.join(map(repr, unknown))}; "
            + (f"its named dimensions are {names}" if known else "none of its dimensions has a name")
        )
    sizes: dict[str, int] = {}
    for name, size in dims.items():
        try:
            sizes[name] = index(size)
        except TypeError:
            raise InputError(f"the dimension '{name}' needs an integer size, got {size!r}") from None
        if sizes[name] < 1:
            raise InputError(f"the dimension '{name}' needs a size of at least 1, got {size}")
    return model.with_dims(sizes)
