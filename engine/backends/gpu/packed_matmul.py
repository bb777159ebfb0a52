"""Matrix products with packed low-bit weights.

A few rows read the weights as they are, which is less memory than the same matrix of floats; for more rows
the whole matrix is unpacked first, which costs as much as a few rows. Where the number of rows is open, the
plan has the steps of both, and those that a size does not need have an empty grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.backends.gpu.kernel_dialect import GROUP, KernelDialect, Store, ThreadStep
from engine.backends.operands import emit, promoted_operand
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

NAMES = ("m", "n", "words", "blocks", "zero_bytes")
"""Arguments of a kernel that reads packed weights; so many `words` are a row of them."""

_LANES, _WORD_NS = 32, 10.0
_COLUMNS = GROUP // _LANES
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
    def inputs(self) -> list[tuple[str, str]]:
        """The tensors that a kernel reads, in order, with their element types."""
        operands = [self.a, self.words, self.scales, *([] if self.zeros is None else [self.zeros])]
        return [(v.root.name, v.dtype.name) for v in operands]

    @property
    def values(self) -> tuple[int, ...]:
        """Arguments of a kernel, as `NAMES` has them."""
        return (self.rows, self.n, self.k * self.bits // 32, self.blocks, self.zero_bytes)


def tune_matmul_nbits(
    compute: Compute,
    tuner: Tuner,
    dialect: KernelDialect,
    read_packed: Callable[[PackedRows], bool],
    multiply: Callable[[Compute], bool],
) -> bool:
    """Rule for hints of kind "matmul_nbits".

    Args:
        compute: the step.
        tuner: takes the steps that replace it.
        dialect: of the backend.
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
    is_unpackable = n * k <= MOST_UNPACKED and dialect.fits(n * k, FLOAT32)
    few, many, unpacked = deferred(_divided, m, n, is_readable, is_unpackable)
    has_few, has_many = is_open or few > 0, is_unpackable and (is_open or many > 0)
    if has_few and not is_readable:
        return False
    if a.dtype != FLOAT32:
        a = promoted_operand(a, None, lambda position: lit(0), FLOAT32, tuner, is_weight=False)
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
    """Numbers of rows that read packed weights, of other rows, and of weight rows unpacked for the latter."""
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


def scale_of(rows: PackedRows, dialect: KernelDialect, column: str) -> str:
    """The text of the scale of a column's `block`."""
    return dialect.load(2, f"{column} * blocks + block", rows.scales.dtype.name)


def zero_of(rows: PackedRows, dialect: KernelDialect, column: str) -> str:
    """The text of the zero point of a column's `block`."""
    if rows.zeros is None:
        return f"{1 << (rows.bits - 1)}.0f"
    if rows.bits == 8:
        return dialect.as_float.format(f"({dialect.load(3, f'{column} * zero_bytes + block', 'uint8')})")
    byte = dialect.load(3, f"{column} * zero_bytes + block / 2", "uint8")
    return dialect.as_float.format(f"({byte} >> (block % 2 * 4) & 15)")


def read_by_group(rows: PackedRows, compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Emit the kernel for a few rows: 32 threads share a column, and neighbours read neighbouring words."""
    if rows.k * rows.bits // 32 > dialect.most_rounds:
        return False
    threads = rows.rows * -(-rows.n // _COLUMNS) * GROUP
    step = ThreadStep(
        threads, (), NAMES, rows.values, rows.inputs, compute.output.name,
        widths=(4, 1, 1, 1)[: len(rows.inputs)], shared=[f"{dialect.shared} float sums[{GROUP}];"],
        rounds=("words",), area=32 // rows.bits * _COLUMNS, ns=_COLUMNS * _WORD_NS,
    )  # fmt: skip
    return dialect.emit_with_epilogue(
        compute, tuner, step, lambda store: _group_statements(rows, dialect, store)
    )


def _group_statements(rows: PackedRows, dialect: KernelDialect, store: Store) -> list[str]:
    """Statements of thread `t`."""
    per_word, mask = 32 // rows.bits, (1 << rows.bits) - 1
    vectors = per_word // 4
    products = []
    for v in range(vectors):
        numbers = [dialect.as_float.format(f"(q >> {rows.bits * (4 * v + k)} & {mask}u)") for k in range(4)]
        x = dialect.load_vector(0, f"a + word * {vectors} + {v}")
        products.append(f"part += dot({x}, {dialect.construct_vector(', '.join(numbers))} - zero);")
    return [
        f"int group = t / {GROUP}, place = t - group * {GROUP}, lane = place % {_LANES};",
        f"int across = max((n + {_COLUMNS - 1}) / {_COLUMNS}, 1), row = group / across;",
        f"int column = (group - row * across) * {_COLUMNS} + place / {_LANES}, a = row * words * {vectors};",
        "float sum = 0.0f;",
        "if (column < n && row < m) {",
        f"    for (int word = lane; word < words; word += {_LANES}) {{",
        f"        uint q = {dialect.load_word(1, 'column * words + word')};",
        f"        int block = word / {rows.block // per_word};",
        f"        float zero = {zero_of(rows, dialect, 'column')}, part = 0.0f;",
        *(f"        {line}" for line in products),
        f"        sum += part * {scale_of(rows, dialect, 'column')};",
        "    }",
        "}",
        "sums[place] = sum;",
        f"for (int other = {_LANES // 2}; other > 0; other /= 2) {{",
        f"    {dialect.barrier}",
        "    if (lane < other) sums[place] += sums[place + other];",
        "}",
        "if (lane == 0 && column < n && row < m) {",
        *(f"    {line}" for line in store("row * n + column", "sums[place]")),
        "}",
    ]
