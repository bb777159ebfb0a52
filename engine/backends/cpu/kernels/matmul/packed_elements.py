"""Packed operands of matrix products of any element type: narrow elements share a machine word.

A word is one number, or a group of narrow ones, which a processor multiplies with another group and adds up
at once: two 16-bit integers, or four bytes, unsigned on one side and signed on the other. Signed bytes
that have to be unsigned are stored 128 higher, unsigned ones that have to be signed 128 lower; these offsets
and zero points are subtracted from the sums. In 16-bit integers every byte less its zero point is exact.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from functools import cache

import llvmlite.binding as llvm
import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text, read_text
from engine.backends.cpu.codegen.schedule import TaskSchedule, emit
from engine.backends.cpu.codegen.tiles import Tile, host_tile
from engine.backends.cpu.library import library_text
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.value import Value

_BYTES_PER_NS = 4.0

_PLAIN = ("float32", "float64", "int32", "int64")
_UNSIGNED = {"uint32": "int32", "uint64": "int64"}
_BYTES = ("int8", "uint8")
_FLOPS_PER_NS = {
    "float32": 100.0, "float64": 50.0, "int32": 30.0, "int64": 15.0, "pairs": 120.0, "bytes": 350.0
}  # fmt: skip


@dataclass(frozen=True)
class WordFormat:
    """A format of packed elements: name, elements per word, and whether products use x86 instructions."""

    form: str
    elements: int
    x86: bool = False

    @property
    def size(self) -> int:
        """Bytes of a word."""
        return 8 if self.form in ("float64", "int64") else 4

    @property
    def element_size(self) -> int:
        """Bytes of an element of a word."""
        return self.size // self.elements

    @property
    def element(self) -> str:
        """The storage type of elements before they are packed into words."""
        return {"pairs": "int16", "bytes": "uint8"}.get(self.form, self.form)

    @property
    def sum(self) -> str:
        """The short name of the type of sums of products."""
        return _SHORT["int32" if self.elements > 1 else self.form]

    @property
    def tile(self) -> Tile:
        """The tile of sums that fits into registers."""
        tile = host_tile()
        return replace(tile, lanes=tile.lanes * 4 // self.size)

    @property
    def flops_per_ns(self) -> float:
        """Estimated speed of a core."""
        return _FLOPS_PER_NS[self.form]

    def count(self, elements: int) -> int:
        """Number of words for so many elements."""
        return -(-elements // self.elements)

    def multiplied_as(self, signed_left: bool) -> str:
        """The form by the name under which `make_product_tile` multiplies it."""
        if self.form == "pairs" and self.x86:
            return "pairs_x86"
        return "bytes_signed" if self.form == "bytes" and signed_left else self.form

    def tiles_text(self, heights: list[int], signed_left: bool = False, has_steps: bool = False) -> str:
        """The tiles of products, one for each height; see `make_product_tile`."""
        tile = self.tile
        arguments = f"{tile.vectors}, {tile.lanes}, {self.multiplied_as(signed_left)!r}, {has_steps}"
        return "".join(f"tile_of_{rows} = make_product_tile({rows}, {arguments})\n" for rows in heights)


def words_of(compute: Compute) -> WordFormat | None:
    """The words in which a hinted product or convolution is computed; None for types that have none."""
    a, b = compute.operands[:2]
    names = [_UNSIGNED.get(v.dtype.name, v.dtype.name) for v in (a, b)]
    computed = _UNSIGNED.get(compute.body.dtype, compute.body.dtype)
    a_zero, b_zero = zeros_of(compute)
    is_x86 = _has_pairs()
    if names[0] == names[1] and names[0] in _PLAIN:
        has_zeros = a_zero is not None or b_zero is not None
        return WordFormat(names[0], 1) if computed == names[0] and not has_zeros else None
    if computed != "int32" or any(name not in (*_BYTES, "int16") for name in names):
        return None
    if "int16" in names:
        return WordFormat("pairs", 2, is_x86) if a_zero is None and b_zero is None else None
    is_fixed = b.known is not None and (b_zero is None or b_zero.known is not None)
    return WordFormat("bytes", 4, is_x86) if is_fixed and _has_byte_dots() else WordFormat("pairs", 2, is_x86)


def words_of_bytes() -> WordFormat:
    """Words in which products of any two types of bytes, less their zero points, are exact."""
    return WordFormat("pairs", 2, True) if _has_pairs() else WordFormat("int32", 1)


def zeros_of(compute: Compute) -> tuple[Value | None, Value | None]:
    """The zero points of both sides."""
    given = iter(compute.operands[2:])
    left, right = (next(given) if has else None for has in compute.attributes.get("zeros", (False, False)))
    return left, right


@cache
def _has_byte_dots() -> bool:
    """Whether the processor adds up four products of bytes without saturating: VNNI."""
    features, lanes = llvm.get_host_cpu_features(), host_tile().lanes
    return bool(features.get("avx512vnni") if lanes == 16 else lanes == 8 and features.get("avxvnni"))


@cache
def _has_pairs() -> bool:
    """Whether x86's products of pairs of 16-bit integers exist for whole vectors."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    return host_tile().lanes < 16 or bool(llvm.get_host_cpu_features().get("avx512bw"))


def byte_shift(dtype: np.dtype, *, signed: bool) -> int:
    """The offset that makes bytes of a type signed or unsigned."""
    return (-128 if dtype.name == "uint8" else 0) if signed else (128 if dtype.name == "int8" else 0)


# Known sides


def _matrices(elements: np.ndarray, sizes: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """(count, rows, columns) matrices with steps of `strides` elements."""
    flat = np.ascontiguousarray(elements).reshape(-1)
    return np.ndarray(sizes, flat.dtype, flat, strides=[flat.itemsize * step for step in strides])


def signed_bytes(elements: np.ndarray) -> np.ndarray:
    """Convert bytes to int8; unsigned ones are shifted by 128."""
    return elements if elements.dtype == np.int8 else (elements ^ np.uint8(128)).view(np.int8)


@storable
def pack_panels_of_words(
    elements: np.ndarray,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    words: WordFormat,
    zeros: np.ndarray,
) -> np.ndarray:
    """(count, k, n) matrices as panels of words: (count, panel, word, column, element), 1-D.

    Zero points, one or one for each column, are taken off where words are pairs.
    """
    matrices = _matrices(elements, sizes, strides)
    if words.form == "bytes":
        matrices = signed_bytes(np.ascontiguousarray(matrices))
    elif words.form == "pairs":
        matrices = (matrices.astype(np.int32) - zeros.astype(np.int32).reshape(-1)).astype(np.int16)
    count, k, n = sizes
    width, depth, panels = words.tile.width, words.count(k), -(-n // words.tile.width)
    padded = np.zeros((count, depth * words.elements, panels * width), matrices.dtype)
    padded[:, :k, :n] = matrices
    split = padded.reshape(count, depth, words.elements, panels, width).transpose(0, 3, 1, 4, 2)
    return np.ascontiguousarray(split).reshape(-1).view(word_type(words))


def word_type(words: WordFormat) -> np.dtype:
    """The type of a buffer of words."""
    return np.dtype(np.int32 if words.elements > 1 else words.form)


@storable
def column_numbers(
    elements: np.ndarray, sizes: tuple[int, ...], strides: tuple[int, ...], zeros: np.ndarray
) -> np.ndarray:
    """For each matrix of bytes, the sums of its columns as signed bytes, then their zero points."""
    matrices = signed_bytes(np.ascontiguousarray(_matrices(elements, sizes, strides)))
    count, _, n = sizes
    found = np.empty((count, 2, n), np.int32)
    found[:, 0] = matrices.sum(axis=1, dtype=np.int32)
    found[:, 1] = zeros.astype(np.int32).reshape(-1)
    return found.reshape(-1)


@storable
def pack_rows_of_words(
    elements: np.ndarray, rows: int, words: WordFormat, zeros: np.ndarray, with_ones: int
) -> np.ndarray:
    """(rows, k) as rows of words, each of bytes followed by the sum of its elements and its zero point.

    with_ones: a last row of ones, with which sums of columns are computed.
    """
    matrix = np.ascontiguousarray(elements).reshape(rows, -1)
    k = matrix.shape[1]
    if words.form != "bytes":
        numbers = matrix.astype(np.int32) - zeros.astype(np.int32).reshape(-1, 1)
        padded = np.zeros((rows, words.count(k) * words.elements), np.int16)
        padded[:, :k] = numbers
        return padded.reshape(-1).view(np.int32)
    depth = words.count(k)
    found = np.zeros((rows + with_ones, depth + 2), np.int32)
    padded_bytes = np.zeros((rows + with_ones, depth * 4), np.int8)
    padded_bytes[:rows, :k] = signed_bytes(matrix)
    padded_bytes[rows:, :k] = 1
    found[:, :depth] = padded_bytes.view(np.int32)
    found[:, depth] = padded_bytes.sum(axis=1, dtype=np.int32)
    found[:rows, depth + 1] = zeros.astype(np.int32).reshape(-1)
    return found.reshape(-1)


# Sides that are computed


@dataclass(frozen=True)
class Rows:
    """An operand as rows of words: its buffer and the strides of matrices and rows in bytes."""

    name: str
    batch: int
    row: int


_ROW_ARGUMENTS = ArgumentBlock("rows k_size depth zero_count source_batch source_row source_column pitch")
_PANEL_ARGUMENTS = ArgumentBlock(
    "columns k_size depth panels width zero_count source_batch source_row source_column"
)


def emit_rows_of_words(
    tuner: Tuner, x: Value, sizes: tuple[int, int, int], strides: tuple[int, int, int], words: WordFormat,
    zero: Value | None, with_sums: bool = False,
) -> Rows:  # fmt: skip
    """(count, rows, k) of any strides as rows of words: the tensor itself or a packed copy.

    Bytes are made unsigned; with_sums: the sum of a row's bytes follows it.
    """
    count, rows, k = sizes
    count = 1 if strides[0] == 0 else count
    whole = strides[2] == 1 or k == 1
    if whole and x.dtype.itemsize == words.element_size and k % words.elements == 0 and not with_sums:
        if words.elements == 1 or (zero is None and words.form == "pairs") or x.dtype.name == "uint8":
            return Rows(x.name, strides[0] * x.dtype.itemsize, strides[1] * x.dtype.itemsize)
    depth = words.count(k)
    pitch = (depth + with_sums) * words.size
    packed = tuner.temporary(count * rows * pitch // words.size, word_type(words))
    zeros = () if zero is None or words.form == "bytes" else (zero,)
    arguments = _ROW_ARGUMENTS.values(
        rows=rows, k_size=k, depth=depth, zero_count=zeros[0].size if zeros else 1,
        source_batch=strides[0], source_row=strides[1], source_column=strides[2], pitch=pitch,
    )  # fmt: skip
    schedule = TaskSchedule(count * rows, k * words.element_size / _BYTES_PER_NS + 5.0)
    text = _rows_text(words, x.dtype.name, zeros[0].dtype.name if zeros else "", with_sums)
    inputs = (x.name, *(z.name for z in zeros))
    emit(tuner, NativeKernel("word_rows", text), schedule, arguments, inputs, packed)
    return Rows(packed, 0 if strides[0] == 0 else rows * pitch, pitch)


def element_text(words: WordFormat, dtype: str, position: str, zero: str = "zero") -> str:
    """An element of `source` as packed into a word."""
    found = read_text(dtype, "source", position)
    if words.form == "bytes":
        return found if dtype == "uint8" else f"{found} + 128"
    return f"{found} - {zero}" if words.form == "pairs" else found


_SHORT = {
    "uint8": "u8", "int16": "i16", "float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"
}  # fmt: skip


def store_text(words: WordFormat) -> str:
    """The function that stores an element of a word."""
    return f"store_{_SHORT[words.element]}"


def _rows_text(words: WordFormat, dtype: str, zero: str, with_sums: bool) -> str:
    store = store_text(words)

    def elements(place: str) -> list[str]:
        lines = [f"value = {element_text(words, dtype, place)}", f"{store}(target, k, value)"]
        return [*lines, "total += value"] if with_sums else lines

    size = np.dtype(dtype).itemsize
    line = "task - batch * rows if zero_count > 1 else 0"
    lead = [*_ROW_ARGUMENTS.prologue("out", "x", *(["zeros"] if zero else [])), "zero = _types.int32(0)"]
    task = [
        "batch = op_div(task, rows)",
        f"source = x + (batch * source_batch + (task - batch * rows) * source_row) * {size}",
        "target = out + task * pitch",
        "total = _types.int64(0)",
        *([f"zero = {read_text(zero, 'zeros', line)}"] if zero else []),
        "if source_column == 1:",
        "    for k in range(k_size):",
        *indent(indent(elements("k"))),
        "else:",
        "    for k in range(k_size):",
        *indent(indent(elements("k * source_column"))),
        f"for k in range(k_size, depth * {words.elements}):",
        f"    {store}(target, k, 0)",
        *(["store_i32(target, depth, total)"] if with_sums else []),
    ]
    return kernel_text(library_text(), lead, task)


def emit_panels_of_words(
    tuner: Tuner, x: Value, sizes: tuple[int, int, int], strides: tuple[int, int, int], words: WordFormat,
    zero: Value | None,
) -> str:  # fmt: skip
    """Emit a step that packs (count, k, n) as `pack_panels_of_words`; returns the result's name."""
    count, k, n = sizes
    count = 1 if strides[0] == 0 else count
    width, depth, panels = words.tile.width, words.count(k), -(-n // words.tile.width)
    packed = tuner.temporary(count * panels * depth * width, word_type(words))
    arguments = _PANEL_ARGUMENTS.values(
        columns=n, k_size=k, depth=depth, panels=panels, width=width,
        zero_count=1 if zero is None else zero.size, source_batch=strides[0], source_row=strides[1],
        source_column=strides[2],
    )  # fmt: skip
    schedule = TaskSchedule(count * panels, depth * width * words.size / _BYTES_PER_NS + 10.0)
    text = _panels_text(words, x.dtype.name, "" if zero is None else zero.dtype.name)
    inputs = (x.name, *(() if zero is None else (zero.name,)))
    emit(tuner, NativeKernel("word_panels", text), schedule, arguments, inputs, packed)
    return packed


def _panels_text(words: WordFormat, dtype: str, zero: str) -> str:
    store, size = store_text(words), np.dtype(dtype).itemsize

    def element(j: str, k: str, e: int) -> list[str]:
        found = read_text(zero, "zeros", f"first + {j} if zero_count > 1 else 0") if zero else "zero"
        value = element_text(words, dtype, f"({k}) * source_row + {j} * source_column", found)
        return [f"{store}(target, (w * width + {j}) * {words.elements} + {e}, {value})"]

    def word() -> list[str]:
        # A last word that is not full ends with zeros.
        inside = [
            line for e in range(words.elements) for line in element("j", f"w * {words.elements} + {e}", e)
        ]
        if words.elements == 1:
            return inside
        partly = [
            "for e in range(_ELEMENTS):",
            f"    {store}(target, (w * width + j) * _ELEMENTS + e, 0)",
            "for e in range(k_size - w * _ELEMENTS):",
            *indent([line.replace("+ 0", "+ e") for line in element("j", "w * _ELEMENTS + e", 0)]),
        ]
        text = ["if w < whole:", *indent(inside), "else:", *indent(partly)]
        return [line.replace("_ELEMENTS", str(words.elements)) for line in text]

    def fill() -> list[str]:
        return [
            f"for place in range(wanted * {words.elements}, width * {words.elements}):",
            f"    {store}(target, w * width * {words.elements} + place, 0)",
        ]

    lead = [
        *_PANEL_ARGUMENTS.prologue("out", "x", *(["zeros"] if zero else [])),
        "zero = _types.int32(0)",
        f"whole = op_div(k_size, _types.int64({words.elements}))",
    ]
    task = [
        "batch = op_div(task, panels)",
        "first = (task - batch * panels) * width",
        "wanted = min(width, columns - first)",
        f"source = x + (batch * source_batch + first * source_column) * {size}",
        f"target = out + task * depth * width * {words.size}",
        "if source_column == 1:",
        "    for w in range(depth):",
        "        for j in range(wanted):",
        *indent(indent(indent(word()))),
        "else:",
        "    for j in range(wanted):",
        "        for w in range(depth):",
        *indent(indent(indent(word()))),
        "if wanted < width:",
        "    for w in range(depth):",
        *indent(indent(fill())),
    ]
    return kernel_text(library_text(), lead, task)


def corrected_text(has_sums: bool) -> str:
    """A sum of a convolution's shifted bytes at `column`, corrected for zero points and shifts."""
    if not has_sums:
        return "to_int32(read_int32(tile, column) - row_total)"
    moved = "row_zero * (read_int32(column_sums, column) - all_zeros)"
    return f"to_int32(read_int32(tile, column) - row_total - {moved})"


def known_zeros(zero: Value | None, shift: int) -> np.ndarray:
    """Constant zero points, shifted by `shift`; a zero if there are none."""
    found = np.zeros(1, np.int32) if zero is None or zero.known is None else zero.known
    return np.asarray(found).astype(np.int32).reshape(-1) + np.int32(shift)


def elements_of(x: Value) -> np.ndarray:
    """The elements of a known side."""
    assert x.known is not None
    return x.known
