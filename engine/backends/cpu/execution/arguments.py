"""Argument blocks of kernels: the words at `args` in `kernel(args, begin, end)`.

They are the step's sizes (of a printed kernel over more than one axis also how many blocks a row has, and the
elements of one), its run-time arguments, then the addresses of the output and the inputs.
"""

from __future__ import annotations

import struct

from engine.compiler.plan import Step

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


def has_blocks(step: Step) -> bool:
    """Whether the rows of a step may be cut into blocks."""
    return step.is_generic and len(step.space) > 1


def count_words(step: Step) -> int:
    """How many words the args of a step have, those of a window included."""
    window = 0 if step.window is None else 2
    return window + len(step.space) + 2 * has_blocks(step) + len(step.values) + 1 + len(step.inputs)
