"""Out-of-memory errors: name the tensor that was too large and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod

import numpy as np

from engine.base.errors import OutOfMemoryError

MOST_BYTES = 1 << 47
"""More than any process can address: no allocation of this size is tried."""

LARGE = 16 << 20
"""Bytes of new buffers from which a driver is asked whether it had the memory: asking may wait for it."""


def out_of_memory(
    name: str, size: Iterable[int], dtype: np.dtype, where: str, reason: object
) -> OutOfMemoryError:
    """The error to raise for a tensor of `size` (its shape, or its number of elements) on a backend."""
    extent = tuple(size)
    shown = f"{extent[0]:,} elements" if len(extent) == 1 else f"a shape of {extent}"
    return OutOfMemoryError(
        f"there is no memory for the tensor '{name}' on {where}: {shown} of {dtype.name} would take"
        f" {amount(prod(extent) * dtype.itemsize)} ({reason}); give smaller inputs, or a smaller batch"
    )


@contextmanager
def naming_out_of_memory(subject: str) -> Iterator[None]:
    """Context manager: converts a `MemoryError` to an `OutOfMemoryError` that names the tensor."""
    try:
        yield
    except MemoryError as error:
        reason = f" ({error})" if str(error) else ""
        raise OutOfMemoryError(f"there is no memory for {subject}{reason}") from error


def amount(nbytes: int) -> str:
    """Format a number of bytes: "1.5 GiB"."""
    value, unit = float(nbytes), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.4g} {unit}"
