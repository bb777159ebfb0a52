"""Layout of tensor elements in OpenGL memory, and conversion of arrays to it and back.

Shaders compute in 32-bit words: `float`, `int` or `uint`. Memory holds float16, bfloat16, narrow integers and
bool (as 0 or 1) in their own size, and what has less than a byte in one; int64 and uint64 are kept in 32
bits, where computed values wrap. There is no float64. A value is brought to its type before it is stored
(`StorageFormat.wrap`): what memory converts it to is exact, and values are the same as on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from engine.base.dtypes import CODE_TYPES, as_dtype, from_numbers, to_numbers

Word = Literal["float", "int", "uint"]
"""The GLSL types that elements have in a shader, or in a texture."""


@dataclass(frozen=True, slots=True)
class StorageFormat:
    """One storage type in OpenGL.

    memory: NumPy type of an element in memory. word: GLSL type in which shaders hold it. wrap: what brings a
    computed word to a value that the type has.
    """

    memory: str
    word: Word
    wrap: str = "{0}"


STORAGE_FORMATS: dict[str, StorageFormat] = {
    "float32": StorageFormat("float32", "float"),
    "float16": StorageFormat("float16", "float", "k_half({0})"),
    # OpenGL has no such format: its bits are kept.
    "bfloat16": StorageFormat("uint16", "float", "k_bfloat({0})"),
    "int64": StorageFormat("int32", "int"),
    "int32": StorageFormat("int32", "int"),
    "int16": StorageFormat("int16", "int", "(({0} << 16) >> 16)"),
    "int8": StorageFormat("int8", "int", "(({0} << 24) >> 24)"),
    "uint16": StorageFormat("uint16", "int", "({0} & 0xffff)"),
    "uint8": StorageFormat("uint8", "int", "({0} & 0xff)"),
    "int4": StorageFormat("int8", "int", "(({0} << 28) >> 28)"),
    "int2": StorageFormat("int8", "int", "(({0} << 30) >> 30)"),
    "uint4": StorageFormat("uint8", "int", "({0} & 0xf)"),
    "uint2": StorageFormat("uint8", "int", "({0} & 3)"),
    "bool": StorageFormat("uint8", "int"),
    **dict.fromkeys(sorted(CODE_TYPES), StorageFormat("uint8", "int", "({0} & 0xff)")),
    "uint32": StorageFormat("uint32", "uint"),
    "uint64": StorageFormat("uint32", "uint"),
}
"""By storage type."""

_KINDS: dict[str, Word] = {"f": "float", "i": "int", "u": "uint"}
_VECTORS: dict[Word, str] = {"float": "vec4", "int": "ivec4", "uint": "uvec4"}


def type_refusal(dtypes: Iterable[np.dtype | str]) -> str | None:
    """Why GLSL kernels cannot hold tensors of these types, or None."""
    for dtype in dtypes:
        name = np.dtype(dtype).name
        if name not in STORAGE_FORMATS:
            return f"GLSL kernels have no {name}"
    return None


@cache
def memory_dtype(dtype: np.dtype | str) -> np.dtype:
    """The NumPy type of an element in memory. Raises KeyError for float64."""
    return np.dtype(STORAGE_FORMATS[dtype if isinstance(dtype, str) else dtype.name].memory)


def to_memory(data: np.ndarray) -> np.ndarray:
    """A tensor's values as in GL memory, contiguous and 1-D; wider integers wrap (`check_integers`)."""
    flat, memory = np.ascontiguousarray(data).reshape(-1), memory_dtype(data.dtype)
    if flat.dtype == memory:
        return flat
    is_bits = data.dtype == as_dtype("bfloat16")
    return flat.view(memory) if is_bits else to_numbers(flat).astype(memory, copy=False)


def from_memory(elements: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Elements read back, in the tensor's own type."""
    return elements.view(dtype) if dtype.name == "bfloat16" else from_numbers(elements, dtype, copy=False)


# In shaders


def word_type(storage: str) -> Word:
    """The GLSL type in which shaders hold elements of `storage`."""
    return STORAGE_FORMATS[storage].word


def memory_word(storage: str) -> Word:
    """The GLSL type in which a texture gives and takes elements of `storage`."""
    return _KINDS[np.dtype(STORAGE_FORMATS[storage].memory).kind]


def vector(word: Word) -> str:
    """The GLSL type of four words."""
    return _VECTORS[word]


def decoded(text: str, storage: str, four: bool = False) -> str:
    """Convert texture reads to the shader's word type; `four` elements or one."""
    word, memory = word_type(storage), memory_word(storage)
    if word == memory:
        return text
    if word == "float":
        return f"uintBitsToFloat({text} << 16)"
    return f"{vector(word) if four else word}({text})"


def encoded(text: str, storage: str, four: bool = False) -> str:
    """Convert a wrapped word for texture writes; `four` elements or one."""
    word, memory = word_type(storage), memory_word(storage)
    if word == memory:
        return text
    if word == "float":
        return f"(floatBitsToUint({text}) >> 16)"
    return f"{vector(memory) if four else memory}({text})"


def lanes(storage: str) -> int:
    """How many elements of `storage` a 32-bit word of a storage buffer holds."""
    return 4 // memory_dtype(storage).itemsize


def unpacked(block: str, position: str, storage: str) -> str:
    """An element of a storage buffer whose 32-bit words hold several."""
    count = lanes(storage)
    bits = 32 // count
    found = f"{block}[{position} >> {count // 2}]"
    if memory_word(storage) == "int":
        found = f"int({found})"
    found = f"bitfieldExtract({found}, ({position} & {count - 1}) * {bits}, {bits})"
    return f"k_from_half({found})" if storage == "float16" else decoded(found, storage)


def packed(text: str, storage: str) -> str:
    """A wrapped word as the bits of one element, a uint whose upper bits are 0."""
    if storage == "float16":
        return f"k_to_half({text})"
    bits = 32 // lanes(storage)
    text = encoded(text, storage)
    # Only a sign leaves bits above the element's own.
    return f"(uint({text}) & 0x{(1 << bits) - 1:x}u)" if memory_word(storage) == "int" else text
