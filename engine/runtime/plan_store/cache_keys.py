"""Cache keys of stored plans: content hashes of models and files."""

from __future__ import annotations

import functools
import hashlib
import marshal
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.base import source_files
from engine.device import native
from engine.device.native import NativeSource
from engine.device.native.parallel_range import call_in_parts
from engine.device.native.prelude import PRELUDE
from engine.graph.model import Input, Layer, Model, Output

_LARGE = 1 << 21
"""Bytes of constants that SHA-256, at one or two a nanosecond, would take too long for."""

_PIECE = 1 << 18
_LANES = 64

# Each lane takes in every 64th word. A step is a bijection of what it takes in as well as of the lane (an odd
# factor, and a shift back that spreads high bits), so one changed word always changes the result, and two
# changes cancel each other by a chance of 2 ** -64. That tells edits apart; it is no defence against forgery.
_TEXT = f"""
@typed_helper("uint64(uint64, uint64)")
def mixed(lane, word):
    product = (lane ^ word) * _types.uint64(0x9E3779B97F4A7C15)
    return product ^ (product >> _types.uint64(32))


def mix(args, begin, end):
    table, target = arg_i64(args, 0), arg_i64(args, 1)
    lanes = stack_bytes({_LANES * 8})
    for piece in range(begin, end):
        source, size = load_i64(table, 2 * piece), load_i64(table, 2 * piece + 1)
        for lane in range({_LANES}):
            store_u64(lanes, lane, size + lane)
        for row in range(size // {_LANES * 8}):
            for lane in range({_LANES}):
                word = load_any(source, row * {_LANES} + lane)
                store_u64(lanes, lane, mixed(load_u64(lanes, lane), word))
        for byte in range(size // {_LANES * 8} * {_LANES * 8}, size):
            lane = byte % {_LANES}
            store_u64(lanes, lane, mixed(load_u64(lanes, lane), _types.uint64(load_u8(source, byte))))
        for lane in range({_LANES}):
            store_u64(target, piece * {_LANES} + lane, load_u64(lanes, lane))
"""

MIX = NativeSource("mix", PRELUDE + "load_any = _make_load(_types.uint64, _I64, 1)\n\n" + _TEXT, "mix")
"""Digests pieces of memory: rows of (address, bytes) to 64 words each."""


def model_hash(model: Model, setting: str) -> str:
    """Content hash of a model's layers, names, shapes and constants, and of `setting`.

    A model that was read from a file is identified by that file.
    """
    if model.identity:
        return hashlib.sha256(f"{model.identity} {setting}".encode()).hexdigest()
    arrays: list[np.ndarray] = []
    parts = (setting, _model_key(model, arrays))
    # This version of the format knows no references: equal values give equal bytes.
    whole = hashlib.sha256(marshal.dumps(parts, 2))
    whole.update(_hash_elements(arrays))
    return whole.hexdigest()


def bytes_hash(data: np.ndarray, setting: str) -> str:
    """Content hash of bytes and of `setting`."""
    whole = hashlib.sha256(setting.encode())
    whole.update(_hash_elements([data]))
    return whole.hexdigest()


@functools.cache
def engine_hash() -> str:
    """A content hash of the engine's sources and of the compilers; '' without sources.

    The sources are those that this process began to import.
    """
    if not source_files.AT_IMPORT:
        return ""
    parts = [native.machine_identity() + np.__version__, *source_files.AT_IMPORT]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _hash_elements(arrays: Sequence[np.ndarray]) -> bytes:
    """A hash of the elements of all arrays, in order."""
    plain = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    if sum(array.size for array in plain) < _LARGE:
        whole = hashlib.sha256()
        for array in plain:
            whole.update(array.data)
        return whole.digest()
    pieces = [
        (a.ctypes.data + at, min(_PIECE, a.size - at)) for a in plain for at in range(0, a.size, _PIECE)
    ]
    table = np.array(pieces, np.int64)
    mixed = np.zeros((len(pieces), _LANES), np.uint64)
    words = np.array([table.ctypes.data, mixed.ctypes.data], np.int64)
    call_in_parts(MIX, words, len(pieces), int(table[:, 1].sum()))
    return hashlib.sha256(mixed.data).digest()


def _model_key(model: Model, arrays: list[np.ndarray]) -> tuple[Any, ...]:
    """Everything but names and notes of the model as a whole; elements of constants go to `arrays`."""
    return (
        [_value_key(item) for item in model.inputs],
        [_value_key(item) for item in model.outputs],
        [_layer_key(layer, arrays) for layer in model.layers],
        [(name, *_array_key(array, arrays)) for name, array in model.constants.items()],
    )


def _layer_key(layer: Layer, arrays: list[np.ndarray]) -> tuple[Any, ...]:
    attributes = [(name, _plain(value, arrays)) for name, value in layer.attributes.items()]
    return layer.op_type, layer.name, layer.inputs, layer.outputs, layer.domain, layer.version, attributes


def _value_key(item: Input | Output) -> tuple[Any, ...]:
    dims = None if item.shape is None else list(map(repr, item.shape))
    return item.name, None if item.dtype is None else item.dtype.str, dims, item.kind


def _array_key(array: np.ndarray, arrays: list[np.ndarray]) -> tuple[Any, ...]:
    if array.dtype == object:
        return "text", array.shape, [str(x) for x in array.reshape(-1)]
    arrays.append(array)
    return array.dtype.name, array.shape, len(arrays)


def _plain(value: Any, arrays: list[np.ndarray]) -> Any:
    """An attribute as a value for `marshal`, with its type."""
    if isinstance(value, tuple):
        return [_plain(item, arrays) for item in value]
    if isinstance(value, np.ndarray):
        return _array_key(value, arrays)
    if isinstance(value, Model):
        return _model_key(value, arrays)
    if isinstance(value, Output):
        return _value_key(value)
    return type(value).__name__, value
