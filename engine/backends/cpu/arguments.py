"""The args block of a kernel: what `kernel(args, begin, end)` finds at `args`."""

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
    """The args of a printed kernel, each of whose rows is cut into so many blocks."""
    cut = (blocks, -(-space[-1] // blocks)) if len(space) > 1 else ()
    return argument_words((*space, *cut), values, addresses)


def generic_units(space: Sequence[int], blocks: int = 1) -> int:
    """What the range of a printed kernel counts: elements of a vector, else blocks of rows."""
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
    """How many words the args of a step have."""
    cut = 2 if step.is_generic and len(step.space) > 1 else 0
    return len(step.space) + cut + len(step.values) + 1 + len(step.inputs)


def float_bits(x: float) -> int:
    """The bits of a float64 as a signed integer."""
    return int(struct.unpack("<q", struct.pack("<d", x))[0])
