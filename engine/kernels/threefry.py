"""Random bits as a function of a key and a counter: Threefry-2x32 with 20 rounds (Salmon et al. 2011).

It needs no state, so any element of any draw can be computed anywhere, and only sums, rotations and
exclusive ors of 32-bit words, which are the same on every backend.
"""

from __future__ import annotations

from engine.kernels.expr import Expr, cast, lit

Words = tuple[Expr, Expr]
"""Two uint32."""

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
ROUNDS = 20
PARITY = 0x1BD11BDA


def _rotated(x: Expr, bits: int) -> Expr:
    return (x << lit(bits, "uint32")) | (x >> lit(32 - bits, "uint32"))


def threefry(key: Words, counter: Words) -> Words:
    """64 random bits for a key and a counter."""
    keys = (*key, key[0] ^ key[1] ^ lit(PARITY, "uint32"))
    a, b = counter[0] + keys[0], counter[1] + keys[1]
    for number in range(ROUNDS):
        a = a + b
        b = _rotated(b, ROTATIONS[number % len(ROTATIONS)]) ^ a
        if number % 4 == 3:
            block = number // 4 + 1
            a, b = a + keys[block % 3], b + keys[(block + 1) % 3] + lit(block, "uint32")
    return a, b


def uniform(word: Expr, bits: int = 24) -> Expr:
    """A float32 in [0, 1): the word's top bits, up to 24, as a binary fraction, which is exact."""
    return cast(word >> lit(32 - bits, "uint32"), "float32") * lit(2.0**-bits, "float32")


def fine_uniform(words: Words) -> Expr:
    """A float64 in [0, 1) of 53 bits, exact too."""
    high, low = (cast(w >> lit(n, "uint32"), "float64") for w, n in zip(words, (5, 6), strict=True))
    return (high * lit(2.0**26, "float64") + low) * lit(2.0**-53, "float64")
