"""Matrix products with packed low-bit weights.

A few rows read the weights as they are, which is less memory than the same matrix of floats; for more rows
the whole matrix is unpacked first, which costs as much as a few rows. Where the number of rows is open, the
plan has the steps of both, and those that a size does not need have an empty grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.backends.operands import Fits, emit, widened
from engine.base.dtypes import FLOAT32, UINT8
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import index, lit
from engine.kernels.hint import Hint
from engine.kernels.size import deferrable, deferred
from engine.kernels.value import Value

FEW_ROWS = 4
"""Rows of a product up to which its weights are unpacked as they are read."""

MOST_UNPACKED = 1 << 25
"""Elements of a matrix that is unpacked whole."""

_BITS = (4, 8)
_BLOCKS = (32, 64, 128, 256)
_SCALES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class PackedRows:
    """(rows, k) by the transpose of n rows of `bits`-bit numbers, lowest bits first.

    a: float32. words: bytes, (n, k * bits / 8). scales: one for each `block` numbers, (n, blocks). zeros:
    their zero points, packed like the numbers, each row from a new byte; None for the middle.
    """

    rows: int
    n: int
    k: int
    bits: int
    block: int
    a: Value
    words: Value
    scales: Value
    zeros: Value | None

    @property
    def blocks(self) -> int:
        """Blocks in a row."""
        return self.k // self.block

    @property
    def zero_bytes(self) -> int:
        """Bytes of a row's zero points."""
        return -(-self.blocks * self.bits // 8)

    @property
    def operands(self) -> list[Value]:
        """The tensors that a kernel reads, in order."""
        return [self.a, self.words, self.scales, *([] if self.zeros is None else [self.zeros])]


def tune_packed(
    compute: Compute,
    tuner: Tuner,
    fits: Fits,
    read_packed: Callable[[PackedRows], bool],
    multiply: Callable[[Compute], bool],
) -> bool:
    """Rule for hints of kind "unpacked_matmul".

    Args:
        compute: the step.
        tuner: takes the steps that replace it.
        fits: whether a tensor fits in a buffer.
        read_packed: emits the kernel for a few rows.
        multiply: the rule for a product of float32 matrices.
    """
    hint = compute.hint
    assert hint is not None
    if compute.body.dtype != "float32":
        return False
    a, (m, n, k) = hint.operands[0], (hint.attributes[name] for name in ("m", "n", "k"))
    is_open = not a.is_static(0)
    is_readable = _layout_of(hint) is not None
    is_unpackable = n * k <= MOST_UNPACKED and fits(n * k, FLOAT32)
    few, many, unpacked = deferred(_divided, m, n, is_readable, is_unpackable)
    has_few, has_many = is_open or few > 0, is_unpackable and (is_open or many > 0)
    if has_few and not is_readable:
        return False
    if a.dtype != FLOAT32:
        a = widened(a, None, lambda position: lit(0), FLOAT32, tuner, is_weight=False)
    if has_few:
        rows = replace(_rows_of(hint, a), rows=few)
        if not read_packed(rows):
            return False
    if not has_many:
        return True
    name = tuner.temporary(unpacked * k, FLOAT32)
    emit(tuner, hint.attributes["weight"](index(0), index(1)), (unpacked, k), FLOAT32, name)
    attributes = {
        "m": many, "n": unpacked, "k": k, "batch": 1, "a_strides": (many * k, k, 1), "b_strides": (0, 1, k)
    }  # fmt: skip
    b = Value(name, (unpacked, k), FLOAT32, ((n, n), (k, k)))
    return multiply(replace(compute, hint=Hint("matmul", (a, b), attributes)))


@deferrable
def _divided(m: int, n: int, is_readable: bool, is_unpackable: bool) -> tuple[int, int, int]:
    """Rows that read packed weights, rows that do not, and rows of weights that are unpacked for those."""
    few = m if not is_unpackable or (is_readable and m <= FEW_ROWS) else 0
    return few, m - few, n if m > few else 0


def _layout_of(hint: Hint) -> tuple[int, int] | None:
    """Bits and block of weights that `PackedRows` describes; None for others."""
    bits, block, k = hint.attributes["bits"], hint.attributes["block"], hint.attributes["k"]
    is_plain = not hint.attributes["is_assigned"] and hint.operands[2].dtype.name in _SCALES
    zeros = hint.operands[3:]
    if (
        not is_plain
        or bits not in _BITS
        or block not in _BLOCKS
        or k % block
        or any(z.dtype != UINT8 for z in zeros)
    ):
        return None
    return bits, block


def _rows_of(hint: Hint, a: Value) -> PackedRows:
    _, words, scales, *zeros = hint.operands
    m, n, k, bits, block = (hint.attributes[name] for name in ("m", "n", "k", "bits", "block"))
    return PackedRows(m, n, k, bits, block, a, words, scales, zeros[0] if zeros else None)
