"""Argument blocks of kernels: the words at `args` in `kernel(args, begin, end)`."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from math import prod

from engine.compiler.plan import Step

_SIGN = 1 << 63
_FULL = 1 << 64


def generic_words(
    space: Sequence[int], values: Sequence[int | float], addresses: Iterable[int], blocks: int = 1
) -> list[int]:
    """The argument words of a printed kernel with the given number of blocks per row."""
    cut = (blocks, -(-space[-1] // blocks)) if len(space) > 1 else ()
    return argument_words((*space, *cut), values, addresses)


def generic_units(space: Sequence[int], blocks: int = 1) -> int:
    """The units of a printed kernel's range: elements of a vector, otherwise blocks of rows."""
    if len(space) == 1:
        return space[0]
    return blocks * prod(space[:-1]) if space[-1] else 0


def argument_words(
    leading: Sequence[int], values: Sequence[int | float], addresses: Iterable[int]
) -> list[int]:
    """Sizes and other leading words, run-time arguments (floats as a float64's bits), then addresses."""
    words = [*leading, *(float_bits(v) if isinstance(v, float) else int(v) for v in values), *addresses]
    # Words are signed; an unsigned 64-bit argument keeps its bits.
    return [w if -_SIGN <= w < _SIGN else (w & (_FULL - 1)) - (_FULL if w & _SIGN else 0) for w in words]


def count_words(step: Step) -> int:
    """How many words the args of a step have, those of a window included."""
    cut = 2 if step.is_generic and len(step.space) > 1 else 0
    window = 0 if step.window is None else 2
    return window + len(step.space) + cut + len(step.values) + 1 + len(step.inputs)


def float_bits(x: float) -> int:
    """The bits of a float64 as a signed integer."""
    return int(struct.unpack("<q", struct.pack("<d", x))[0])
