"""Pageable weights: a read-only mapping of an unnamed file, which the system can evict.

A worker packs a model's weights in an order of its own, and then seldom reads those of the model. Mapped from
a file they are still there, for plans yet to come and for other workers, but take no memory until they are
read. The model's own file would not do: a write to it while it is mapped ends the process.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from engine.base.cache import cache_dir
from engine.base.memory.aligned import ALIGNMENT, SLACK

Array = np.ndarray[Any, Any]

LEAST = 1 << 19
"""Bytes of weights below which a file is not worth its making, which takes milliseconds."""

LEAST_SHARE = 0.5
"""Of all weights, below which the same holds: the others are those of convolutions."""

LEAST_EACH = 1 << 14
"""Bytes of an array below which it stays where it is."""

_MOST_PIECES = 1000
"""Of one call; systems allow 1024."""

_SMALL = 1 << 24
"""Bytes of a file that is let go of as a whole."""

_CAN_LET_GO = hasattr(mmap, "MADV_DONTNEED") and sys.platform != "win32"


def paged(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Move large arrays into a mapped file, as read-only arrays; none if that gains little.

    On a full or read-only disk, and where the system offers no way to let memory go, there are none either.
    """
    large = {name: array for name, array in arrays.items() if _is_worth_it(array)}
    gained, whole = (sum(array.nbytes for array in some.values()) for some in (large, arrays))
    if not _CAN_LET_GO or gained < max(LEAST, whole * LEAST_SHARE):
        return {}
    starts, size = {}, 0
    for name, array in large.items():
        starts[name] = size
        size += _whole(array)
    try:
        with tempfile.TemporaryFile(dir=cache_dir(), buffering=0) as file:
            _write(file.fileno(), large.values())
            block = np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)
    except OSError:
        return {}
    return {
        name: block[starts[name] : starts[name] + array.nbytes].view(array.dtype).reshape(array.shape)
        for name, array in large.items()
    }


def let_go_of_sources(function: Callable[..., Any], result: Array) -> None:
    """Release the pages of mapped arrays that a function captured; they are read again on use.

    Not if its result is in such a file itself.
    """
    if _is_mapped(result):
        return
    seen: set[int] = set()
    pending: list[object] = [function]
    while pending:
        thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            let_go(thing)
        elif isinstance(thing, tuple | list):
            pending.extend(thing)
        elif isinstance(thing, partial):
            pending.extend(thing.args)
        else:
            for cell in getattr(thing, "__closure__", None) or ():
                pending.append(cell.cell_contents)


def let_go(array: Array) -> None:
    """Release the pages of an array that is part of a mapped file."""
    block, mapped = _mapping(array)
    if mapped is None or not array.size:
        return
    if block.nbytes <= _SMALL:
        # The system reads neighbours along, which belong to arrays that were let go of before.
        mapped.madvise(mmap.MADV_DONTNEED)
        return
    low, high = np.lib.array_utils.byte_bounds(array)
    origin = int(block.__array_interface__["data"][0])
    first = -(-(int(low) - origin) // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (int(high) - origin) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        mapped.madvise(mmap.MADV_DONTNEED, first, last - first)


def _mapping(array: Array) -> tuple[Array, mmap.mmap | None]:
    """The array that owns an array's memory, and the mapped file that holds it, if any."""
    block = array
    while isinstance(block.base, np.ndarray):
        block = block.base
    owner = block.base.obj if isinstance(block.base, memoryview) else None
    return block, owner if isinstance(owner, mmap.mmap) else None


def _is_worth_it(array: Array) -> bool:
    """Matrices: where kernels of convolutions are large, the images between layers are far larger."""
    return (
        array.ndim < 4 and array.nbytes >= LEAST_EACH and not array.dtype.hasobject and not _is_mapped(array)
    )


def _is_mapped(array: Array) -> bool:
    return _mapping(array)[1] is not None


def _write(file: int, arrays: Iterable[Array]) -> None:
    """Write arrays one after another, each followed by readable bytes up to the next cache line.

    By calls, many arrays at once: on a full disk a write to mapped memory ends the process, and one call a
    piece, or several threads, take many times as long.
    """
    zeros = memoryview(bytes(ALIGNMENT + SLACK))
    pieces: list[memoryview] = []
    for array in arrays:
        pieces.append(memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))  # type: ignore[arg-type]
        pieces.append(zeros[: _whole(array) - array.nbytes])
    while pieces:
        written = os.writev(file, pieces[:_MOST_PIECES])
        while pieces and written >= len(pieces[0]):
            written -= len(pieces.pop(0))
        if written:
            pieces[0] = pieces[0][written:]


def _whole(array: Array) -> int:
    """Bytes that an array takes in the file."""
    return -(-(array.nbytes + SLACK) // ALIGNMENT) * ALIGNMENT
