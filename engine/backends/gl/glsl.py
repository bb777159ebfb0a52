"""The GLSL printer: the common part of compute and fragment shaders, for GLSL 3.30 and later.

Every number is a 32-bit word; `storage` tells how they lie in memory. Integer constants beyond 32 bits
saturate (they stand for "no limit"); computed values wrap.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from engine.backends.gl.glsl_functions import functions_for
from engine.backends.gl.storage import STORAGE_FORMATS
from engine.base.dtypes import ArithmeticType, arithmetic_type, as_dtype
from engine.kernels.c_printer import COMMON, CPrinter, saturate

COMPONENTS = "xyzw"


def pack_arguments(
    types: Sequence[ArithmeticType], values: Sequence[int | float], extra: Sequence[int] = ()
) -> np.ndarray:
    """The contents of the uniform array `A`: int32, a multiple of 4 long.

    First the kernel's run-time arguments in slot order (floats as their bits), then `extra`.
    """
    words = np.zeros(argument_vectors(len(types) + len(extra)) * 4, np.int32)
    for k, (kind, value) in enumerate(zip(types, values, strict=True)):
        if kind in ("float32", "float64"):
            words[k : k + 1].view(np.float32)[0] = value
        else:
            words[k : k + 1].view(np.uint32)[0] = saturate(int(value), kind) & 0xFFFFFFFF
    words[len(types) : len(types) + len(extra)] = extra
    return words


def argument_vectors(count: int) -> int:
    """How many `ivec4` hold `count` arguments; at least one."""
    return max(1, -(-count // 4))


_TEMPLATES = {
    **COMMON,
    ("bits", "float"): "floatBitsToInt({0})",
    ("bits", "int"): "intBitsToFloat({0})",
    "isnan": "k_nan({0})",
    "isinf": "k_inf({0})",
    "sqrt": "sqrt({0})",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "trunc": "trunc({0})",
    "round": "roundEven({0})",
    ("rem", "float"): "k_fmod({0}, {1})",
    ("pow", "float"): "k_pow({0}, {1})",
    ("min", "float"): "k_min({0}, {1})",
    ("max", "float"): "k_max({0}, {1})",
    ("abs", "float"): "abs({0})",
    ("sign", "float"): "k_sign({0})",
    **{
        name: f"k_{name}({{0}})"
        for name in "exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf".split()
    },
    ("shl", "int"): "k_ishl({0}, {1})",
    ("shr", "int"): "k_ishr({0}, {1})",
    ("abs", "int"): "abs({0})",
    ("sign", "int"): "sign({0})",
    ("shl", "uint"): "k_ushl({0}, {1})",
    ("shr", "uint"): "k_ushr({0}, {1})",
    ("sign", "uint"): "min({0}, 1u)",
    ("or", "bool"): "({0} || {1})",
    ("and", "bool"): "({0} && {1})",
    ("xor", "bool"): "({0} != {1})",
    ("lt", "bool"): "(!{0} && {1})",
    ("le", "bool"): "(!{0} || {1})",
    ("gt", "bool"): "({0} && !{1})",
    ("ge", "bool"): "({0} || !{1})",
}


class GLSLPrinter(CPrinter):
    """Prints formulas for any GLSL stage; subclasses implement `fetch` for tensor elements.

    Run-time arguments are in `uniform ivec4 A[...]`: the kernel's own by slot, then those that the stage
    adds (`extra(k)`); `pack_arguments` makes its contents.
    """

    TEMPLATES = _TEMPLATES

    first_argument: int = 0
    """Where its arguments begin in `A`."""

    # For subclasses

    @abstractmethod
    def fetch(self, slot: int, position: str) -> str:
        """The word (`word_type` of the buffer's storage type) for `position` of buffer `slot`."""

    def extra(self, k: int) -> str:
        """The k-th int argument that the stage adds after the kernel's own."""
        return argument(self.first_argument + len(self.kernel.params) + k)

    def arguments(self, extra: int) -> str:
        """The declaration of the argument array, with room for `extra` arguments of the stage."""
        return f"uniform ivec4 A[{argument_vectors(len(self.kernel.params) + extra)}];"

    def stored(self, text: str, dtype: ArithmeticType, storage: str) -> str:
        """A computed value of type `dtype` as a word that `storage` can hold."""
        text = self.convert(text, dtype, arithmetic_type(as_dtype(storage)))
        if storage == "bool":
            return f"int({text})"
        return STORAGE_FORMATS[storage].wrap.format(text)

    @staticmethod
    def functions(text: str) -> str:
        """Definitions of the functions that `text` calls."""
        return functions_for(text)

    # What the base asks for

    def param(self, slot: int, dtype: ArithmeticType) -> str:
        """A run-time argument, from `A`."""
        word = argument(self.first_argument + slot)
        match dtype:
            case "float32":
                return f"intBitsToFloat({word})"
            case "uint32" | "uint64":
                return f"uint({word})"
            case "bool":
                return f"({word} != 0)"
        return word

    def load(self, slot: int, position: str, dtype: ArithmeticType) -> str:
        """An element of a tensor; bools are stored as 0 or 1."""
        word = self.fetch(slot, position)
        return f"({word} != 0)" if dtype == "bool" else word

    def convert(self, text: str, source: ArithmeticType, target: ArithmeticType) -> str:
        """`cast`: floats saturate, integers wrap."""
        a, b = self.TYPES[source], self.TYPES[target]
        if a == b:
            return text
        if a == "float":
            return {"int": f"k_f2i({text})", "uint": f"k_f2u({text})", "bool": f"k_true({text})"}[b]
        if b == "bool":
            return f"({text} != 0{'u' if a == 'uint' else ''})"
        return f"{b}({text})"

    def float_literal(self, value: float, word: str) -> str:
        return float_literal(value)


def argument(position: int) -> str:
    """The text of an int argument by its position in `A`."""
    return f"A[{position // 4}].{COMPONENTS[position % 4]}"


def unravel(axes: Sequence[int], rank: int, divisor: Callable[[int], tuple[str, str]]) -> list[str]:
    """Statements that compute indices `i0`... from the flat index `i`.

    divisor(axis): the size of an axis after the first, and what `k_divide` takes after the dividend.
    """
    if not axes:
        return []
    lines, rest = [], "i"
    for axis in range(rank - 1, max(axes[0], 1) - 1, -1):
        size, divided_by = divisor(axis)
        lines.append(f"int q{axis} = k_divide({rest}, {divided_by});")
        if axis in axes:
            lines.append(f"int i{axis} = {rest} - q{axis} * {size};")
        rest = f"q{axis}"
    if axes[0] == 0:
        lines.append(f"int i0 = {rest};")
    return lines


def float_literal(value: float) -> str:
    """A float32 constant; infinities, NaN and subnormals by their bits."""
    number = np.float32(value)
    if not np.isfinite(number) or 0 < abs(number) < 1.2e-38:
        return f"uintBitsToFloat(0x{struct.unpack('<I', number.tobytes())[0]:08x}u)"
    text = f"{number:.9g}"
    text = text if "." in text or "e" in text else text + ".0"
    return f"({text})" if number < 0 else text
