"""Constants of imported models: arrays that do not reference the file's bytes."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from engine.base.memory.aligned import reserve_together
from engine.base.memory.paged import paged
from engine.base.memory.parallel import in_parts

Array = np.ndarray[Any, Any]

MOSTLY = 0.9
"""Of a file's bytes: where weights to be packed are so many of them, the others are what is copied."""


def frozen(array: Array) -> Array:
    """`array`, made read-only: constants are shared."""
    array.flags.writeable = False
    return array


def settled(arrays: Mapping[str, Array], packed: AbstractSet[str] = frozenset()) -> Mapping[str, Array]:
    """Copy arrays that are views of a file's bytes, which would keep the whole file in memory.

    Copies lie where native kernels can read them, those of large arrays in memory that can be taken back
    (`engine.base.memory.paged`). What passes have replaced by then is never copied. Nor are those whose names
    are `packed`, which kernels never read as they are, where they are nearly all of the file.
    """
    mapped = paged(arrays)
    arrays = {**arrays, **mapped}
    for array in arrays.values():
        frozen(array)  # those that passes have computed, too
    views = {n: a for n, a in arrays.items() if n not in mapped and isinstance(_owner(a), memoryview)}
    files = {id(file): file for a in views.values() for file in [_owner(a).obj]}  # type: ignore[attr-defined]
    kept = views.keys() & packed
    if sum(views[name].nbytes for name in kept) >= MOSTLY * sum(map(len, files.values())):
        views = {name: a for name, a in views.items() if name not in kept}
    if not views:
        return arrays
    pieces = reserve_together([a.nbytes for a in views.values()])
    copies = {
        name: piece.view(a.dtype).reshape(a.shape)
        for (name, a), piece in zip(views.items(), pieces, strict=True)
    }
    pairs = list(zip(copies.values(), views.values(), strict=True))

    def copy(begin: int, end: int) -> None:
        for target, source in pairs[begin:end]:
            target[...] = source

    in_parts(copy, len(pairs), sum(a.nbytes for a in views.values()))
    return {**arrays, **{name: frozen(array) for name, array in copies.items()}}


def _owner(array: Array) -> object:
    """The object that owns an array's memory, if that is not the array."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base
