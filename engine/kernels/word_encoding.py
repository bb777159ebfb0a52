"""`as_word`: encodes a number as a 64-bit word for native code."""

from __future__ import annotations

import struct

_SIGN = 1 << 63
_FULL = 1 << 64


def as_word(number: int | float) -> int:
    """Encode a number as a signed 64-bit word: a float64 by its bits."""
    if type(number) is int and -_SIGN <= number < _SIGN:
        return number
    if isinstance(number, float):
        return int(struct.unpack("<q", struct.pack("<d", number))[0])
    word = int(number) & (_FULL - 1)
    return word - (_FULL if word & _SIGN else 0)
