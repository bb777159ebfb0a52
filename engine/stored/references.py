"""Pickles that refer to arrays that the reader has, too, instead of holding them."""

from __future__ import annotations

import io
import pickle
import types
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.dtypes import as_dtype
from engine.model import Model

LARGEST_INLINE = 1 << 23
"""Bytes of arrays that a file may hold: small ones, and weights that were computed from the model's."""

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ImportError, pickle.PickleError)
"""What damaged pickles raise, in a way that a digest does not tell."""


class NotStorableError(Exception):
    """There is something that a file cannot hold."""


class Writer(pickle.Pickler):
    """Writes arrays that lie in `owners` as references, and functions with what they captured."""

    def __init__(self, owners: Mapping[str, np.ndarray]) -> None:
        self._file = io.BytesIO()
        super().__init__(self._file, protocol=5)
        self._inline = 0
        spans = [(*_span(array), name) for name, array in owners.items() if array.dtype != object]
        self._spans = sorted(spans)
        self._starts = [start for start, _, _ in self._spans]

    def body(self, thing: object) -> bytes:
        """The bytes that stand for a thing. Raises `NotStorableError`."""
        try:
            self.dump(thing)
        except (RecursionError, *UNREADABLE) as error:
            raise NotStorableError(str(error)) from error
        return self._file.getvalue()

    def persistent_id(self, thing: Any) -> Any:
        """A reference for what the owners hold."""
        if not isinstance(thing, np.ndarray) or not thing.size:
            return None
        start, end = _span(thing)
        position = bisect_right(self._starts, start) - 1
        if position >= 0 and thing.dtype != object:
            first, last, name = self._spans[position]
            if end <= last and min(thing.strides, default=0) >= 0:
                return name, start - first, thing.shape, thing.strides, thing.dtype.name
        self._inline += thing.nbytes
        if self._inline > LARGEST_INLINE:
            raise NotStorableError("it holds weights that the model does not")
        return None

    def reducer_override(self, thing: Any) -> Any:
        """Functions made by functions, which pickle itself does not take."""
        if isinstance(thing, types.FunctionType) and "<locals>" in thing.__qualname__:
            cells = tuple(cell.cell_contents for cell in thing.__closure__ or ())
            if _code(thing.__module__, thing.__qualname__)[0] is not thing.__code__:
                raise NotStorableError(f"{thing.__qualname__} names another function too")
            return _function, (thing.__module__, thing.__qualname__, thing.__defaults__, cells)
        if isinstance(thing, Model) or type(thing).__name__ in ("Compute", "Expr", "Planner", "Tuner"):
            raise NotStorableError(f"a function holds a {type(thing).__name__}")
        return NotImplemented


class Reader(pickle.Unpickler):
    """Reads what `Writer` wrote, with the same owners."""

    def __init__(self, body: bytes, owners: Mapping[str, np.ndarray]) -> None:
        super().__init__(io.BytesIO(body))
        self._owners = owners

    def persistent_load(self, reference: Any) -> Any:
        """The array that a reference means."""
        name, offset, shape, strides, dtype = reference
        owner = self._owners[name]
        if not offset and owner.shape == shape and owner.strides == strides:
            return owner
        flat = np.ndarray((owner.nbytes,), np.uint8, owner.reshape(-1).view(np.uint8))
        view: np.ndarray = np.ndarray(shape, as_dtype(dtype), flat, offset, strides)
        view.flags.writeable = False
        return view


def _span(array: np.ndarray) -> tuple[int, int]:
    """The addresses between which an array's elements lie."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high)


def _function(module: str, name: str, defaults: Any, cells: tuple[Any, ...]) -> types.FunctionType:
    """A function defined in another, by its qualified name; the sources are the same, as the key says."""
    code, scope = _code(module, name)
    return types.FunctionType(code, scope, name.split(".")[-1], defaults, tuple(map(types.CellType, cells)))


def _code(module: str, name: str) -> tuple[types.CodeType, dict[str, Any]]:
    """The first such function's code, and the names of its module."""
    names = name.split(".")
    found: Any = __import__(module, fromlist=[names[0]])
    scope = found.__dict__
    found = getattr(found, names[0])
    code: types.CodeType | None = None
    for inner in names[1:]:
        if inner == "<locals>":
            code = found.__code__ if code is None else code
        elif code is None:
            found = getattr(found, inner)
        else:
            inside = (c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == inner)
            code = next(inside, None)
            if code is None:
                break
    if code is None:
        raise LookupError(f"no function {name} in {module}")
    return code, scope
