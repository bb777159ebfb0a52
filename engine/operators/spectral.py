"""Fourier transforms, window functions, and the mel weight matrix.

A transform of float32 is one product with a matrix where it is short, and two where its length has two short
factors (along the columns of a matrix of the signal, and along its rows; Bailey, FFTs in External or
Hierarchical Memory, 1990): products are what backends are fastest at. Others are done in passes (Stockham's
self-sorting form of Cooley and Tukey's algorithm): each pass sums over one factor of the length, so that n
log n products are enough. A length with a large prime factor becomes a convolution of a length without
(Bluestein 1970). Roots of unity come from tables that the host fills at an exact whole phase, since sine and
cosine are poor on some GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from engine.base.dtypes import FLOAT32
from engine.kernels.expr import Expr, arg, eq, lit, reduce, select
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.casting import dtype_of
from engine.operators.linear import matmul
from engine.operators.reductions import wide
from engine.operators.registry import operator

RADIX_LIMIT = 16
"""Factors of a length are joined up to this product: fewer passes, each of so many products at most."""
PRIME_LIMIT = 256
"""Lengths with a prime factor above this are done by convolution."""
DIRECT_LIMIT = 192
"""Lengths up to this are transformed by one product."""
FACTOR_LIMIT = 256
"""Lengths of two factors up to this are transformed by two products."""


@dataclass(frozen=True)
class Signal:
    """The first `size` numbers along an axis: (outer, count, inner, 1) real or (..., 2) complex.

    With `mirrored` the tensor has the first half of a spectrum, whose other half is its conjugate. What holds
    for every input shape of the model: `fixed`, the size is the same; `whole`, count is this size; `flat`,
    inner is 1.
    """

    value: Value
    size: int
    mirrored: bool = False
    fixed: bool = False
    whole: bool = False
    flat: bool = False

    def made(self, value: Value, size: int) -> Signal:
        """A signal computed from this one along the same axis."""
        return Signal(value, size, fixed=self.fixed, whole=True, flat=self.flat)

    @property
    def is_plain(self) -> bool:
        """Whether its elements are in the order that products take."""
        return self.flat and self.whole and not self.mirrored and self.value.dtype == FLOAT32

    def parts(self, o: Expr, at: Expr, i: Expr) -> tuple[Expr, Expr | None]:
        """The real and imaginary part of an element; 0 beyond the end."""
        x = self.value
        inside = at < arg(self.size)
        upper = at * lit(2) > arg(self.size)
        if self.mirrored:
            at = select(upper, arg(self.size) - at, at)
        inside = inside & (at < x.dim(1))
        real = x.load_where(inside, (o, at, i, lit(0)))
        if x.shape[3] == 1:
            return real, None
        imaginary = x.load_where(inside, (o, at, i, lit(1)))
        return real, select(upper, -imaginary, imaginary) if self.mirrored else imaginary


def rotations(k: Builder, phases: np.ndarray, turn: int, dtype: np.dtype, sign: int) -> Value:
    """Twiddle factors exp(sign * 2 pi i p / turn) for each phase p, as matrices: (count, 2, 2)."""
    angles = 2.0 * np.pi * (phases % turn) / turn
    return matrices(k, np.exp(sign * 1j * angles), dtype)


def matrices(k: Builder, numbers: np.ndarray, dtype: np.dtype) -> Value:
    """Complex numbers as the matrices that multiply (real, imaginary) by them: (count, 2, 2)."""
    a, b = numbers.real, numbers.imag
    return k.constant(np.stack([np.stack([a, -b], -1), np.stack([b, a], -1)], -2).astype(dtype))


def complex_product(real: Expr, imaginary: Expr | None, by: Value, row: Expr, part: Expr) -> Expr:
    """One part of a complex product with row `row` of a table of matrices."""
    found = real * by[row, part, lit(0)]
    return found if imaginary is None else found + imaginary * by[row, part, lit(1)]


def prime_factors(n: int) -> list[int]:
    """In ascending order; none of 1."""
    found, p = [], 2
    while p * p <= n:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return [*found, n] if n > 1 else found


def radices(n: int) -> list[int]:
    """The factor that each pass sums over: neighbouring prime factors joined up to `RADIX_LIMIT`."""
    found = [1]
    for p in prime_factors(n):
        if found[-1] * p <= RADIX_LIMIT:
            found[-1] *= p
        else:
            found.append(p)
    return found


@dataclass(frozen=True)
class Result:
    """The result of a transform: its first `size` elements, their parts, type and factor."""

    size: int
    parts: int
    dtype: np.dtype
    scale: float = 1.0


def passes(k: Builder, signal: Signal, n: int, sign: int, result: Result) -> Value:
    """The transform with exp(sign * 2 pi i / n), one pass for each of `radices`."""
    dtype = wide(result.dtype)
    roots = rotations(k, np.arange(n), n, dtype, sign)
    outer, _, inner, _ = signal.value.shape
    steps, done = radices(n), 1
    for number, radix in enumerate(steps):
        last = number == len(steps) - 1
        # Transforms of length `left` over elements `done` apart become transforms of length `rest`.
        left = n // done
        rest = left // radix

        def formula(
            o: Expr, at: Expr, i: Expr, part: Expr, signal: Signal = signal, radix: int = radix,
            done: int = done, left: int = left, rest: int = rest, last: bool = last,
        ) -> Expr:  # fmt: skip
            set_, own = at // arg(done), at % arg(done)
            j, p = set_ % arg(radix), set_ // arg(radix)

            def tap(t: Expr) -> Expr:
                place = p + t * rest
                real, imaginary = signal.parts(o, own + place * done, i)
                return complex_product(real, imaginary, roots, j * place % arg(left) * done, part)

            found = reduce("sum", radix, tap)
            return found * arg(result.scale if last else 1.0, found.dtype)

        shape = (outer, result.size, inner, result.parts) if last else (outer, n, inner, 2)
        signal = signal.made(k.compute(shape, result.dtype if last else dtype, formula), n)
        done *= radix
    return signal.value


def two_factors(n: int) -> tuple[int, int] | None:
    """The most balanced factors of a length, the smaller first; None if one is too large, or 1."""
    small = next(a for a in range(int(n**0.5), 0, -1) if n % a == 0)
    return (small, n // small) if small > 1 and n // small <= FACTOR_LIMIT else None


def waves(rows: int, columns: int, sign: int, dtype: np.dtype) -> np.ndarray:
    """exp(sign * 2 pi i r c / rows) as matrices, (rows, 2, columns, 2): parts in by parts out."""
    phases = np.arange(rows)[:, None] * np.arange(columns) % rows
    roots = np.exp(sign * 2j * np.pi * phases / rows)
    parts = [np.stack([roots.real, roots.imag], -1), np.stack([-roots.imag, roots.real], -1)]
    return np.stack(parts, 1).astype(dtype)


def by_product(k: Builder, signal: Signal, n: int, sign: int, result: Result) -> Value:
    """The transform as the product with the matrix of its waves."""
    outer, _, inner, given = signal.value.shape
    x = signal.value
    if not signal.is_plain:
        x = separated(k, signal, (n, 1))
    basis = waves(n, result.size, sign, FLOAT32)[:, :given, :, : result.parts] * result.scale
    depth, width = n * given, result.size * result.parts
    right = k.constant(np.ascontiguousarray(basis.reshape(depth, width), np.float32))
    sizes = (1, outer * inner, width, depth)
    y = matmul(
        k, x, right, (outer, inner, result.size, result.parts), sizes, (0, depth, 1), (0, width, 1), FLOAT32
    )
    return reordered(k, y, result, signal.flat)


def separated(k: Builder, signal: Signal, factors: tuple[int, int]) -> Value:
    """The elements as (outer * inner, first factor, parts, second factor)."""
    a, b = factors
    outer, _, inner, given = signal.value.shape
    if signal.is_plain:
        if given == 1:
            return k.alias(signal.value, (outer, a, 1, b))
        x = k.alias(signal.value, (outer, a, b, given))
        return k.compute((outer, a, given, b), FLOAT32, lambda o, row, part, column: x[o, row, column, part])

    def formula(line: Expr, row: Expr, part: Expr, column: Expr) -> Expr:
        real, imaginary = signal.parts(line // arg(inner), row * b + column, line % arg(inner))
        return real if imaginary is None else select(eq(part, lit(0)), real, imaginary)

    return k.compute((outer * inner, a, given, b), FLOAT32, formula)


def reordered(k: Builder, y: Value, result: Result, flat: bool) -> Value:
    """(outer, inner, size, parts) as (outer, size, inner, parts), in the type of the result."""
    outer, inner, size, parts = y.shape
    if flat and result.dtype == y.dtype:
        return k.alias(y, (outer, size, inner, parts))
    return k.compute((outer, size, inner, parts), result.dtype, lambda o, c, i, p: y[o, i, c, p])


def by_two_products(k: Builder, signal: Signal, n: int, sign: int, result: Result) -> Value:
    """The transform over the matrix (a, b) of a signal: along columns, multiplied by phases, along rows."""
    a, b = two_factors(n) or (1, n)
    outer, _, inner, given = signal.value.shape
    lines = outer * inner
    x = separated(k, signal, (a, b))
    columns = waves(a, a, sign, FLOAT32)[:, :given].transpose(2, 3, 0, 1).reshape(2 * a, a * given)
    first = k.constant(np.ascontiguousarray(columns))
    depth = a * given
    sizes = (lines, 2 * a, b, depth)
    y = matmul(k, first, x, (lines, a, 2, b), sizes, (0, depth, 1), (depth * b, b, 1))
    phases = np.exp(sign * 2j * np.pi * (np.arange(a)[:, None] * np.arange(b) % n) / n)
    turns = k.constant(np.stack([phases.real, phases.imag], 1).astype(np.float32))

    def formula(line: Expr, c: Expr, part: Expr, r: Expr) -> Expr:
        cosine, sine = turns[c, lit(0), r], turns[c, lit(1), r]
        real, imaginary = y[line, c, lit(0), r], y[line, c, lit(1), r]
        first_part = eq(part, lit(0))
        return select(first_part, real * cosine - imaginary * sine, real * sine + imaginary * cosine)

    z = k.compute((lines, a, 2, b), FLOAT32, formula, hint=lambda: Hint("complex_product", (y, turns), {}))
    kept = -(-result.size // a)
    rows = waves(b, kept, sign, FLOAT32).transpose(1, 0, 2, 3)[..., : result.parts] * result.scale
    width = kept * result.parts
    right = k.constant(np.ascontiguousarray(rows.reshape(2 * b, width), np.float32))
    sizes = (1, lines * a, width, 2 * b)
    found = matmul(k, z, right, (lines, a, kept, result.parts), sizes, (0, 2 * b, 1), (0, width, 1))

    shape = (outer, result.size, inner, result.parts)
    if not signal.flat:
        return k.compute(
            shape, result.dtype, lambda o, at, i, p: found[o * inner + i, at % arg(a), at // arg(a), p]
        )
    # Long rows, of which the sizes of the loops and the divisions in them are known.
    parts = lit(result.parts)
    lined_up = k.compute(
        (lines, kept, a * result.parts), FLOAT32, lambda o, d, q: found[o, q // parts, d, q % parts]
    )
    if result.size == kept * a and result.dtype == FLOAT32:
        return k.alias(lined_up, shape)
    whole = k.alias(lined_up, (lines, kept * a * result.parts))
    first_ones = k.compute((lines, result.size * result.parts), result.dtype, lambda o, q: whole[o, q])
    return k.alias(first_ones, shape)


def modulated(k: Builder, signal: Signal, by: Value, result: Result) -> Value:
    """Multiply each element by the complex number at its position; zeros after the signal's end."""
    outer, _, inner, _ = signal.value.shape

    def formula(o: Expr, at: Expr, i: Expr, part: Expr) -> Expr:
        # Beyond the table the signal is 0; any row will do.
        row = select(at < by.dim(0), at, lit(0))
        real, imaginary = signal.parts(o, at, i)
        found = complex_product(real, imaginary, by, row, part)
        return found * arg(result.scale, found.dtype)

    return k.compute((outer, result.size, inner, result.parts), result.dtype, formula)


def by_convolution(k: Builder, signal: Signal, n: int, sign: int, result: Result) -> Value:
    """The transform as a convolution with exp(-sign * pi i k^2 / n), since 2jk = j^2 + k^2 - (k - j)^2."""
    dtype = wide(result.dtype)
    length = 1 << (2 * n - 2).bit_length()
    squares = np.arange(n, dtype=np.int64) ** 2 % (2 * n)
    chirp = rotations(k, squares, 2 * n, dtype, sign)
    response = np.zeros(length, np.complex128)
    response[:n] = np.exp(-sign * 1j * np.pi * squares / n)
    response[length - n + 1 :] = response[1:n][::-1]
    whole = Result(length, 2, dtype)
    x = modulated(k, signal, chirp, whole)
    method = method_for(signal, length, result.dtype)
    spectrum = method(k, signal.made(x, length), length, -1, whole)
    shaped = modulated(k, signal.made(spectrum, length), matrices(k, np.fft.fft(response), dtype), whole)
    y = method(k, signal.made(shaped, length), length, 1, Result(n, 2, dtype, 1.0 / length))
    return modulated(k, signal.made(y, n), chirp, result)


Method = Callable[[Builder, Signal, int, int, Result], Value]


def transform(
    k: Builder, x: Value, axis: int, n: int, inverse: bool, onesided: bool, fixed: bool = False
) -> Value:
    """The discrete Fourier transform of length `n` along an axis of (..., 1) real or (..., 2) complex.

    `fixed` says that `n` is the same for every input shape that the model can take.
    """
    if n < 1:
        k.error(f"cannot transform {list(x.shape)} with a length of {n}; it must be 1 or more")
    k.check_table(4, n)
    back = inverse and onesided
    size, parts = (n // 2 + 1 if onesided and not inverse else n), 1 if back else 2
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 : -1], parts)
    if x.size == 0:
        return k.compute(shape, x.dtype, lambda *_: lit(0.0, x.arithmetic))
    sizes = (prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 : -1]), x.shape[-1])
    flat = all(x.always_one(a) for a in range(axis + 1, x.rank - 1))
    whole = fixed and x.is_static(axis) and x.shape[axis] == n
    signal = Signal(k.alias(x, sizes), n, back, fixed, whole, flat)
    result = Result(size, parts, x.dtype, 1.0 / n if inverse else 1.0)
    method = method_for(signal, n, x.dtype)
    return k.alias(method(k, signal, n, 1 if inverse else -1, result), shape)


def method_for(signal: Signal, n: int, dtype: np.dtype) -> Method:
    """Choose the algorithm for a signal, by length and result type."""
    if signal.fixed and wide(dtype) == FLOAT32:
        if n <= DIRECT_LIMIT:
            return by_product
        if two_factors(n) is not None:
            return by_two_products
    return passes if max(prime_factors(n), default=1) <= PRIME_LIMIT else by_convolution


def _dft(k: Builder, x: Value, length: Value | None, axis: int, inverse: int, onesided: int) -> Value:
    if x.rank < 1:
        k.error("takes a real signal (..., n, 1) or a complex one (..., n, 2), not a number")
    if x.shape[-1] not in (1, 2) or axis == x.rank - 1:
        # Exporters leave out the last axis of a real signal, which then ends with the numbers themselves.
        x = k.alias(x, (*x.shape, 1))
    along = k.axis(axis, x.rank)
    if along == x.rank - 1:
        k.error(f"axis {axis} of {list(x.shape)} holds the parts of complex numbers; choose another")
    count = x.shape[along]
    n = 2 * (count - 1) if inverse and onesided else count
    fixed = x.is_static(along)
    if length is not None:
        # Computed lengths are so rare that a kernel may be compiled for them.
        n, fixed = one_integer(k, length, "dft_length"), True
    return transform(k, x, along, n, bool(inverse), bool(onesided), fixed)


def one_integer(k: Builder, x: Value, name: str) -> int:
    """The single integer of a host input."""
    if x.size != 1:
        k.error(f"its {name} must be one number, not {list(x.shape)}")
    return k.ints(x)[0]


@operator("DFT", since=17, until=19, host=("dft_length",))
def dft_17(
    k: Builder, x: Value, dft_length: Value | None = None, *, axis: int = 1, inverse: int = 0,
    onesided: int = 0,
) -> Value:  # fmt: skip
    """The sum over t of x[t] exp(-2 pi i f t / n); inverse: exp(+...), divided by n."""
    return _dft(k, x, dft_length, axis, inverse, onesided)


@operator("DFT", since=20, host=("dft_length", "axis"))
def dft(
    k: Builder, x: Value, dft_length: Value | None = None, axis: Value | None = None, *, inverse: int = 0,
    onesided: int = 0,
) -> Value:  # fmt: skip
    """The sum over t of x[t] exp(-2 pi i f t / n); inverse: exp(+...), divided by n.

    `onesided` yields the first half of a real signal's spectrum, and inverse, a real signal from one.
    """
    along = -2 if axis is None else one_integer(k, axis, "axis")
    return _dft(k, x, dft_length, along, inverse, onesided)


@operator("STFT", since=17, host=("frame_step", "frame_length"))
def stft(
    k: Builder, signal: Value, frame_step: Value, window: Value | None = None,
    frame_length: Value | None = None, *, onesided: int = 1,
) -> Value:  # fmt: skip
    """The transform of each frame of a signal (batch, n), (batch, n, 1) or (batch, n, 2), times a window."""
    if signal.rank == 2:
        signal = k.alias(signal, (*signal.shape, 1))
    if signal.rank != 3 or signal.shape[2] not in (1, 2):
        k.error(f"takes a signal (batch, n) or a complex one (batch, n, 2), not {list(signal.shape)}")
    batch, count, parts = signal.shape
    step, length = one_integer(k, frame_step, "frame_step"), count if window is None else window.size
    if frame_length is not None:
        length = one_integer(k, frame_length, "frame_length")
    if window is not None and window.shape != (length,):
        k.error(f"frames of {length} need a window of that length, not {list(window.shape)}")
    if step < 1 or not 1 <= length <= count:
        k.error(f"cannot take frames of {length}, every {step}, from a signal of {count}")
    frames = 1 + (count - length) // step

    # A row is as long as can be: the parts of numbers are neighbours in it.
    rows = k.alias(signal, (batch, count * parts))

    def formula(b: Expr, f: Expr, q: Expr) -> Expr:
        found = rows[b, f * (step * parts) + q]
        return found if window is None else found * window[q if parts == 1 else q // lit(parts)]

    cut = k.compute((batch, frames, length * parts), wide(signal.dtype), formula)
    cut = k.alias(cut, (batch, frames, length, parts))
    fixed = frame_length is not None or (window is not None and window.is_static(0))
    spectrum = transform(k, cut, 2, length, inverse=False, onesided=bool(onesided), fixed=fixed)
    if spectrum.dtype != signal.dtype:
        spectrum = k.elementwise(lambda e: e, spectrum, dtype=signal.dtype)
    return spectrum


# Windows: they depend on nothing but numbers that the host has, so it computes them


def _window(name: str, *weights: float) -> None:
    @operator(name, since=17, host=("size",))
    def define(k: Builder, size: Value, *, output_datatype: int = 1, periodic: int = 1) -> Value:
        """The sum of weights[j] * cos(2 pi j i / n), where n counts the last element in unless periodic."""
        count = one_integer(k, size, "size")
        if count < 0:
            k.error(f"cannot make a window of {count} elements")
        k.check_table(count)
        turn = count if periodic else count - 1
        # A window of one element has its peak there, which is in the middle of any other.
        phases = np.arange(count) / turn if turn else np.full(count, 0.5)
        waves = sum(w * np.cos(2.0 * np.pi * j * phases) for j, w in enumerate(weights) if j)
        # The constant comes last: in this order the peak is exactly 1, which integers must not miss.
        return k.constant(np.asarray(waves + weights[0]).astype(dtype_of(k, output_datatype)))


_window("HannWindow", 0.5, -0.5)
_window("HammingWindow", 25 / 46, -21 / 46)
_window("BlackmanWindow", 0.42, -0.5, 0.08)


@operator(
    "MelWeightMatrix", since=17,
    host=("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"),
)  # fmt: skip
def mel_weight_matrix(
    k: Builder, num_mel_bins: Value, dft_length: Value, sample_rate: Value, lower_edge_hertz: Value,
    upper_edge_hertz: Value, *, output_datatype: int = 1,
) -> Value:  # fmt: skip
    """(bins of a onesided transform, bands): triangles evenly spaced in mel(f) = 2595 log10(1 + f / 700)."""
    bands, length = one_integer(k, num_mel_bins, "num_mel_bins"), one_integer(k, dft_length, "dft_length")
    rate = one_integer(k, sample_rate, "sample_rate")
    edges = np.array(
        [np.asarray(e.known, np.float64).reshape(()) for e in (lower_edge_hertz, upper_edge_hertz)]
    )
    if bands < 0 or length < 0 or rate < 1 or not 0 <= edges[0] <= edges[1]:
        k.error(f"cannot make {bands} bands from {edges[0]} to {edges[1]} Hz of {length} bins at {rate} Hz")
    k.check_table(length // 2 + 1, bands + 2)
    low, high = 2595.0 * np.log10(1.0 + edges / 700.0)
    mel = low + np.arange(bands + 2) * ((high - low) / (bands + 2))
    points = (length + 1) * 700.0 * np.expm1(mel / 2595.0 * np.log(10.0)) // rate
    left, centre, right = points[:-2], points[1:-1], points[2:]
    bins = np.arange(length // 2 + 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        rising, falling = (bins - left) / (centre - left), (right - bins) / (right - centre)
    weights = np.where((bins >= left) & (bins < centre), rising, 0.0)
    weights = np.where((bins > centre) & (bins < right), falling, weights)
    weights = np.where(bins == centre, 1.0, weights)
    return k.constant(weights.astype(dtype_of(k, output_datatype)))
