"""Converts ONNX tensors to NumPy arrays, including external data.

Weight files are read here and not by the `onnx` package, whose reader has let models name files outside
their folder. Sizes are checked before anything is allocated, so that a damaged file costs no memory.
"""

from __future__ import annotations

import math
import os
import stat
import sys
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from engine.base.errors import ModelImportError
from engine.base.memory.aligned import allocate
from engine.graph.importers.constants import Array, frozen

Raw = bytes | memoryview | Array
"""A tensor's bytes: its own as bytes or array, a part of the file's as view."""

# Sparse constants become dense ones, whose size the file's own size does not bound. 256 MiB holds any
# embedding table seen; past it the file is taken for damaged.
_MAX_DENSE_BYTES = 2**28

_PACKED_BITS: dict[int, int] = {
    TensorProto.INT4: 4,
    TensorProto.UINT4: 4,
    TensorProto.FLOAT4E2M1: 4,
    TensorProto.INT2: 2,
    TensorProto.UINT2: 2,
    TensorProto.FLOAT6E2M3: 6,
    TensorProto.FLOAT6E3M2: 6,
}
# In the typed fields only these are packed, several to an int32.
_PACKED_PER_ITEM = {kind: 8 // bits for kind, bits in _PACKED_BITS.items() if bits != 6}


def numpy_dtype(elem_type: int, subject: str) -> np.dtype[Any]:
    """The numpy dtype of an ONNX element type; raises `ModelImportError` that names `subject`."""
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(elem_type))
    except KeyError:
        raise ModelImportError(f"{subject} has the unknown element type {elem_type}") from None


class WeightFolder:
    """The folder of a model's external data: `path` is None for a model without one.

    `is_used` says whether any was read.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.is_used = False


def read_tensor(tensor: TensorProto, folder: WeightFolder, subject: str, raw: Raw | None = None) -> Array:
    """The value of `tensor` as a read-only array; strings as an object array of str.

    `raw` is its raw data where that was taken out of it; the array shares its memory (see `settled`). Raises
    `ModelImportError` that names `subject`: bad sizes or types, or external data that is absent or unsafe.
    """
    dtype = numpy_dtype(tensor.data_type, subject)
    dims = tuple(tensor.dims)
    if any(dim < 0 for dim in dims):
        raise ModelImportError(f"{subject} has the impossible shape {dims}")
    if tensor.HasField("segment"):
        raise ModelImportError(f"{subject} is stored in segments, which no known exporter writes")
    count = math.prod(dims)
    if tensor.data_location == TensorProto.EXTERNAL:
        raw = _external_bytes(tensor, _byte_count(tensor.data_type, dtype, count), folder, subject)
    elif tensor.HasField("raw_data"):
        raw = tensor.raw_data if raw is None else raw
        expected = _byte_count(tensor.data_type, dtype, count)
        if len(raw) != expected or tensor.data_type == TensorProto.STRING:
            raise ModelImportError(
                f"{subject} of shape {dims} and type {dtype} needs {expected} bytes, the file has {len(raw)}"
            )
    else:
        raw = None
        _check_item_count(tensor, count, dims, subject)
    try:
        array = (
            numpy_helper.to_array(tensor) if raw is None else _from_raw(raw, tensor.data_type, dtype, dims)
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelImportError(f"{subject} cannot be read: {error}") from error
    if array.dtype == np.bool_:
        array = np.asarray(array.view(np.uint8) != 0)  # bytes other than 0 and 1 would break comparisons
    if array.shape != dims:
        raise ModelImportError(f"{subject} should have the shape {dims}, its data have {array.shape}")
    return frozen(array)


def _from_raw(raw: Raw, data_type: int, dtype: np.dtype[Any], dims: tuple[int, ...]) -> Array:
    """Elements from raw little-endian bytes."""
    if data_type in _PACKED_BITS or sys.byteorder == "big":
        plain = TensorProto(data_type=data_type, dims=dims, raw_data=bytes(raw))
        return np.asarray(numpy_helper.to_array(plain))
    return np.frombuffer(raw, dtype).reshape(dims)


def read_sparse_tensor(sparse: SparseTensorProto, folder: WeightFolder, subject: str) -> Array:
    """The value of a sparse tensor as a dense read-only array; raises as `read_tensor` does."""
    dims = tuple(sparse.dims)
    values = read_tensor(sparse.values, folder, f"{subject} (values)")
    indices = read_tensor(sparse.indices, folder, f"{subject} (indices)")
    count = math.prod(dims)
    if any(dim < 0 for dim in dims) or not 0 < count * values.dtype.itemsize <= _MAX_DENSE_BYTES:
        raise ModelImportError(f"{subject} has the shape {dims}, which is empty, negative or too large")
    if values.ndim != 1 or indices.dtype != np.int64 or values.dtype == object:
        raise ModelImportError(f"{subject} is malformed: needs a list of numbers and int64 indices")
    if indices.shape not in ((len(values),), (len(values), len(dims))):
        raise ModelImportError(
            f"{subject} is malformed: {len(values)} values, and indices of shape {indices.shape}"
        )
    limits = np.array(dims if indices.ndim == 2 else count, np.int64)
    if ((indices < 0) | (indices >= limits)).any():
        raise ModelImportError(f"{subject} has an index outside its shape {dims}")
    dense = np.zeros(dims, values.dtype)
    if indices.ndim == 2:
        dense[tuple(indices.T)] = values
    else:
        dense.reshape(-1)[indices] = values
    return frozen(dense)


def _byte_count(data_type: int, dtype: np.dtype[Any], count: int) -> int:
    if data_type in _PACKED_BITS:
        return (count * _PACKED_BITS[data_type] + 7) // 8
    return count * dtype.itemsize


def _check_item_count(tensor: TensorProto, count: int, dims: tuple[int, ...], subject: str) -> None:
    """Refuse a tensor whose typed field does not hold what its shape needs."""
    field = helper.tensor_dtype_to_field(tensor.data_type)
    got = len(getattr(tensor, field))
    expected = count
    if tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        expected = 2 * count
    elif tensor.data_type in _PACKED_PER_ITEM:
        per_item = _PACKED_PER_ITEM[tensor.data_type]
        expected = (count + per_item - 1) // per_item
    if got != expected:
        raise ModelImportError(
            f"{subject} of shape {dims} needs {expected} items in {field}, the file has {got}"
        )


def _external_bytes(tensor: TensorProto, size: int, folder: WeightFolder, subject: str) -> Array:
    """Read the `size` bytes of a tensor's external data."""
    if tensor.data_type == TensorProto.STRING:
        raise ModelImportError(f"{subject} holds strings, which cannot be stored in a weight file")
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location")
    if not isinstance(location, str) or not location:
        raise ModelImportError(f"{subject} is stored in a weight file, but the model does not say which")
    if folder.path is None:
        raise ModelImportError(
            f"{subject} is in the weight file '{location}', and a model given as bytes has no folder to "
            f"find it in; load the model by its path"
        )
    offset = _number(entries.get("offset", "0"), "offset", subject)
    length = _number(entries["length"], "length", subject) if "length" in entries else size
    if length != size:
        raise ModelImportError(f"{subject} needs {size} bytes, the model says {length} bytes of '{location}'")
    folder.is_used = True
    path = _contained(folder.path, location, subject)
    # O_NONBLOCK: opening a pipe must not hang; O_NOFOLLOW: the name was resolved above, and a link put there
    # since is not followed.
    flags = os.O_RDONLY
    for extra in ("O_BINARY", "O_NONBLOCK", "O_NOFOLLOW"):
        flags |= getattr(os, extra, 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ModelImportError(f"{subject}: the weight file '{location}' is not an ordinary file")
            if offset + size > status.st_size:
                raise ModelImportError(
                    f"{subject} needs the bytes {offset} to {offset + size} of the weight file '{location}', "
                    f"which has {status.st_size}; it is cut short or belongs to another model"
                )
            file.seek(offset)
            data = allocate(size)
            found = file.readinto(data.data)
    except OSError as error:
        raise ModelImportError(f"{subject}: cannot read the weight file '{location}': {error}") from error
    if found != size:
        raise ModelImportError(f"{subject}: the weight file '{location}' changed while it was read")
    return data


def _number(value: Any, key: str, subject: str) -> int:
    """A count of bytes written as decimal text; nothing that Python's `int` takes beyond that."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
        return int(value)
    raise ModelImportError(f"{subject} says {key} {value!r} in its weight file, expected a number of bytes")


def _contained(folder: Path, location: str, subject: str) -> Path:
    """The real path of a weight file; it must be inside `folder`, links resolved."""
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    if posix.is_absolute() or windows.drive or windows.root or ".." in posix.parts or ".." in windows.parts:
        raise ModelImportError(
            f"{subject} is in '{location}'; a weight file must be named relative to the model's folder and "
            f"be inside it"
        )
    try:
        base = folder.resolve(strict=True)
        path = (base / location).resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelImportError(
            f"{subject} is in the weight file '{location}', which is not in the model's folder '{folder}'; "
            f"put the file in the model's folder ({error})"
        ) from error
    if not path.is_relative_to(base):
        raise ModelImportError(
            f"{subject} is in '{location}', a link that leads out of the model's folder to '{path}'; put a "
            f"copy of the file there instead"
        )
    return path
