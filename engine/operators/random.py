"""Random numbers: uniform, normal, Bernoulli and multinomial draws, and Dropout.

Each number is a function of the layer's key (its seed and its name), of the element it is for and of how
often the worker was scheduled before. So a draw can be repeated, every backend draws the same uniform
numbers to the last bit, and normal ones up to the rounding of logarithm and cosine.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from math import frexp, pi, prod

import ml_dtypes
import numpy as np

from engine.base.dtypes import FLOAT_TYPES, arithmetic_type
from engine.kernels.expr import Expr, arg, cast, fold, lit, reduce, select, unary
from engine.kernels.threefry import Words, fine_uniform, threefry, uniform
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.casting import dtype_of
from engine.operators.reductions import wide
from engine.operators.registry import operator

BOOL, FLOAT32 = np.dtype(bool), np.dtype(np.float32)


def random_words(k: Builder, seed: float | int | None) -> Callable[[Expr], Words]:
    """A function that returns 64 random bits for an element's position."""
    bits = seed & 0xFFFFFFFF if isinstance(seed, int) else int(np.float32(seed or 0.0).view(np.uint32))
    name = zlib.crc32(f"{k.layer.name}{k.path}".encode())
    count = k.schedule_count()

    def words(position: Expr) -> Words:
        key = arg(bits, "uint32"), arg(name, "uint32")
        return threefry(key, (cast(position, "uint32"), count[lit(0)]))

    return words


def fraction(words: Words, dtype: np.dtype) -> Expr:
    """A number in [0, 1) that `dtype` holds exactly."""
    if dtype == np.float64:
        return fine_uniform(words)
    return uniform(words[0], min(24, ml_dtypes.finfo(dtype).nmant + 1))


def float_type(k: Builder, dtype: np.dtype) -> np.dtype:
    """Check that a type is a float type."""
    if dtype.name not in FLOAT_TYPES:
        k.error(f"draws floats, not {dtype.name}; set dtype to one of {', '.join(sorted(FLOAT_TYPES))}")
    return dtype


# Uniform and normal numbers


def draw_uniform(
    k: Builder, shape: Sequence[int], dtype: np.dtype, low: float, high: float, seed: float | None
) -> Value:
    """Uniform numbers in [low, high)."""
    dtype, words, span = float_type(k, dtype), random_words(k, seed), high - low
    size, kind = (prod(shape),), arithmetic_type(dtype)
    # What is multiplied and added in one kernel may be rounded once or twice. Powers of two never round.
    is_exact = low == 0.0 or abs(frexp(span)[0]) in (0.0, 0.5)
    between = dtype if low == 0.0 else wide(dtype)

    def scaled(i: Expr) -> Expr:
        return fraction(words(i), dtype) * arg(span, kind)

    if low == 0.0:
        drawn = k.compute(size, dtype, scaled)
    elif is_exact:
        drawn = k.compute(size, dtype, lambda i: scaled(i) + arg(low, kind))
    else:
        spread = k.compute(size, between, scaled)
        # Not marked as elementwise, which would join the two again.
        drawn = k.compute(size, dtype, lambda i: spread[i] + arg(low, kind))
    return k.alias(drawn, shape)


def minus_log(u: Expr) -> Expr:
    """-log(1 - u) for u in [0, 1), accurate near 0, where some GPUs' logarithm is not."""
    if u.dtype == "float64":
        return -unary("log", 1.0 - u)
    series: Expr = lit(1.0 / 8.0, u.dtype)
    for n in range(7, 0, -1):
        series = series * u + 1.0 / n
    return select(u < 1.0 / 16.0, series * u, -unary("log", 1.0 - u))


def draw_normal(
    k: Builder, shape: Sequence[int], dtype: np.dtype, mean: float, scale: float, seed: float | None
) -> Value:
    """Normal numbers by the transform of Box and Muller (1958)."""
    dtype, words, kind = float_type(k, dtype), random_words(k, seed), arithmetic_type(dtype)

    def formula(i: Expr) -> Expr:
        one, other = words(i)
        u, v = fraction((one, other), wide(dtype)), fraction((other, one), wide(dtype))
        # Angles from -pi to pi, where the cosine of GPUs is best.
        wave = unary("cos", (v - 0.5) * lit(2.0 * pi, kind))
        return unary("sqrt", minus_log(u) * 2.0) * wave * arg(scale, kind) + arg(mean, kind)

    return k.alias(k.compute((prod(shape),), dtype, formula), shape)


@operator("RandomUniform", since=1, precision="random")
def random_uniform(
    k: Builder, *, shape: Sequence[int], dtype: int = 1, high: float = 1.0, low: float = 0.0,
    seed: float | None = None,
) -> Value:  # fmt: skip
    """Uniform numbers in [low, high)."""
    return draw_uniform(k, shape, dtype_of(k, dtype), low, high, seed)


@operator("RandomUniformLike", since=1, precision="random")
def random_uniform_like(
    k: Builder, x: Value, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0,
    seed: float | None = None,
) -> Value:  # fmt: skip
    """Uniform numbers in [low, high) in the shape of `x`."""
    kind = x.dtype if dtype is None else dtype_of(k, dtype)
    return draw_uniform(k, x.shape, kind, low, high, seed)


@operator("RandomNormal", since=1, precision="random")
def random_normal(
    k: Builder, *, shape: Sequence[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0,
    seed: float | None = None,
) -> Value:  # fmt: skip
    """Normal numbers of a mean and a standard deviation."""
    return draw_normal(k, shape, dtype_of(k, dtype), mean, scale, seed)


@operator("RandomNormalLike", since=1, precision="random")
def random_normal_like(
    k: Builder, x: Value, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0,
    seed: float | None = None,
) -> Value:  # fmt: skip
    """Normal numbers of a mean and a standard deviation in the shape of `x`."""
    kind = x.dtype if dtype is None else dtype_of(k, dtype)
    return draw_normal(k, x.shape, kind, mean, scale, seed)


# Choices


@operator("Bernoulli", since=15, precision="random")
def bernoulli(k: Builder, x: Value, *, dtype: int | None = None, seed: float | None = None) -> Value:
    """1 with the probability that each element of `x` gives, else 0."""
    kind, words = x.dtype if dtype is None else dtype_of(k, dtype), random_words(k, seed)
    chances, target = k.alias(x, (x.size,)), arithmetic_type(kind)

    def formula(i: Expr) -> Expr:
        drawn = fine_uniform(words(i)) if x.arithmetic == "float64" else uniform(words(i)[0])
        return cast(drawn < chances[i], target)

    return k.alias(k.compute((x.size,), kind, formula), x.shape)


@operator("Multinomial", since=7, precision="random")
def multinomial(
    k: Builder, x: Value, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Value:
    """Classes drawn by the logarithms of their odds: x (batch, classes) -> (batch, sample_size)."""
    kind, words = dtype_of(k, dtype), random_words(k, seed)
    if x.rank != 2 or not x.shape[1] or kind.name not in ("int32", "int64"):
        k.error(f"takes (batch, classes), a class or more, to int32 or int64, not {x} and {kind.name}")
    batch, classes = x.shape
    if batch * sample_size == 0:
        return k.compute((batch, sample_size), kind, lambda *_: lit(0, arithmetic_type(kind)))
    peaks = k.compute((batch,), wide(x.dtype), lambda b: reduce("max", classes, lambda c: x[b, c]))
    odds = k.compute((batch, classes), wide(x.dtype), lambda b, c: unary("exp", x[b, c] - peaks[b]))
    totals = k.compute((batch,), odds.dtype, lambda b: reduce("sum", classes, lambda c: odds[b, c]))

    def formula(b: Expr, s: Expr) -> Expr:
        """The last class of nonzero probability whose preceding sum is at most the drawn one."""
        drawn = cast(uniform(words(b * sample_size + s)[0]), odds.arithmetic) * totals[b]

        def step(c: Expr, before: Expr, chosen: Expr) -> tuple[Expr, Expr]:
            own = odds[b, c]
            hit = (before <= drawn) & (own > lit(0.0, own.dtype))
            return before + own, select(hit, c, chosen)

        found = fold(classes, (lit(0.0, odds.arithmetic), lit(0)), step)[1]
        return cast(found, arithmetic_type(kind))

    return k.compute((batch, sample_size), kind, formula)


# Dropout


def _kept(k: Builder, x: Value) -> tuple[Value, ...]:
    """The same tensor, and a mask that keeps everything."""
    return k.alias(x, x.shape), k.elementwise(lambda e: lit(True, "bool"), x, dtype=BOOL)


@operator("Dropout", since=7, until=11)
def dropout_7(k: Builder, x: Value, *, ratio: float = 0.5) -> tuple[Value, ...]:
    """Inference: the same tensor, and a mask that keeps everything."""
    return _kept(k, x)


@operator("Dropout", since=12, host=("training_mode",), precision="random")
def dropout(
    k: Builder, x: Value, ratio: Value | None = None, training_mode: Value | None = None, *,
    seed: int | None = None,
) -> tuple[Value, ...]:  # fmt: skip
    """Inference: the same tensor. Training: each element is 0 with the chance `ratio`, else / (1 - ratio)."""
    if training_mode is None or not any(k.ints(training_mode)):
        return _kept(k, x)
    if ratio is not None and ratio.size != 1:
        k.error(f"its ratio must be one number, not {list(ratio.shape)}")
    chance = k.constant(np.array(0.5, np.float32)) if ratio is None else k.alias(ratio, ())
    words = random_words(k, seed)
    drawn = k.alias(k.compute((x.size,), FLOAT32, lambda i: uniform(words(i)[0])), x.shape)
    mask = k.elementwise(lambda u, r: u >= cast(r, "float32"), drawn, chance, dtype=BOOL)

    def scaled(e: Expr, kept: Expr, r: Expr) -> Expr:
        return select(kept, e / (1.0 - cast(r, e.dtype)), 0.0)

    return k.elementwise(scaled, x, mask, chance), mask
