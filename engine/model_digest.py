"""Digests of a model and of files: what stored plans are known by."""

from __future__ import annotations

import hashlib
import marshal
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.model import Input, Layer, Model, Output

_PARALLEL_BYTES = 1 << 22
"""Constants of more bytes than this are digested on two threads; hashing needs no lock of Python's."""


def digest_of_model(model: Model, setting: str) -> str:
    """Equal for models of the same layers, names, shapes and elements, in the same `setting`."""
    arrays: list[np.ndarray] = []
    facts = (setting, _model_facts(model, arrays))
    # This version of the format knows no references: equal values give equal bytes.
    whole = hashlib.sha256(marshal.dumps(facts, 2))
    for part in _digests(arrays):
        whole.update(part)
    return whole.hexdigest()


def digest_of_files(files: Iterable[Path], setting: str) -> str:
    """Equal for files of the same names and bytes."""
    whole = hashlib.sha256(setting.encode())
    for path in files:
        data = path.read_bytes()
        whole.update(f"\0{path.name}\0{len(data)}\0".encode())
        whole.update(data)
    return whole.hexdigest()


def _digests(arrays: Sequence[np.ndarray]) -> list[bytes]:
    """One digest for each half of the arrays."""
    halves: list[list[np.ndarray]] = [[], []]
    sizes = [0, 0]
    for array in sorted(arrays, key=lambda a: -a.nbytes):
        lighter = int(sizes[1] < sizes[0])
        halves[lighter].append(array)
        sizes[lighter] += array.nbytes
    found = [b"", b""]

    def work(half: int) -> None:
        digest = hashlib.sha256()
        for array in halves[half]:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        found[half] = digest.digest()

    if sum(sizes) < _PARALLEL_BYTES:
        work(0)
        work(1)
        return found
    other = threading.Thread(target=work, args=(1,))
    other.start()
    work(0)
    other.join()
    return found


def _model_facts(model: Model, arrays: list[np.ndarray]) -> tuple[Any, ...]:
    """Everything but names and notes of the model as a whole; elements of constants go to `arrays`."""
    return (
        [_put_facts(item) for item in model.inputs],
        [_put_facts(item) for item in model.outputs],
        [_layer_facts(layer, arrays) for layer in model.layers],
        [(name, *_array_facts(array, arrays)) for name, array in model.constants.items()],
    )


def _layer_facts(layer: Layer, arrays: list[np.ndarray]) -> tuple[Any, ...]:
    attributes = [(name, _plain(value, arrays)) for name, value in layer.attributes.items()]
    return layer.op_type, layer.name, layer.inputs, layer.outputs, layer.domain, layer.version, attributes


def _put_facts(item: Input | Output) -> tuple[Any, ...]:
    dims = None if item.shape is None else list(map(repr, item.shape))
    return item.name, None if item.dtype is None else item.dtype.str, dims, item.kind


def _array_facts(array: np.ndarray, arrays: list[np.ndarray]) -> tuple[Any, ...]:
    if array.dtype == object:
        return "text", array.shape, [str(x) for x in array.reshape(-1)]
    arrays.append(array)
    return array.dtype.name, array.shape, len(arrays)


def _plain(value: Any, arrays: list[np.ndarray]) -> Any:
    """An attribute as what `marshal` takes, kinds kept apart."""
    if isinstance(value, tuple):
        return [_plain(item, arrays) for item in value]
    if isinstance(value, np.ndarray):
        return _array_facts(value, arrays)
    if isinstance(value, Model):
        return _model_facts(value, arrays)
    if isinstance(value, Output):
        return _put_facts(value)
    return type(value).__name__, value
