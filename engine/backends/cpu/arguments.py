"""The args block of a kernel: what `kernel(args, begin, end)` finds at `args`."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

_SIGN = 1 << 63
_FULL = 1 << 64


def argument_words(
    space: Sequence[int], values: Sequence[int | float], addresses: Iterable[int]
) -> list[int]:
    """Sizes of the index space, run-time arguments (floats as the bits of a float64), then addresses."""
    words = [*space, *(float_bits(v) if isinstance(v, float) else int(v) for v in values), *addresses]
    # Words are signed; an unsigned 64-bit argument keeps its bits.
    return [w if -_SIGN <= w < _SIGN else (w & (_FULL - 1)) - (_FULL if w & _SIGN else 0) for w in words]


def float_bits(x: float) -> int:
    """The bits of a float64 as a signed integer."""
    return int(struct.unpack("<q", struct.pack("<d", x))[0])
