"""Kernel formulas as GLSL: what compute and fragment shaders have in common, for GLSL 3.30 and later.

Every number is a 32-bit word. Tensors of int64 and of narrow integers are kept as `int`, uint64 as
`uint`, bool as `int` 0 or 1, float16 and bfloat16 as `float` whose stores round to the narrow type (so
values are the same as on the CPU, at twice the memory). There is no float64. Integer constants beyond 32
bits saturate (they stand for "no limit"); computed values wrap.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from engine.backends.gl.glsl_functions import functions_for
from engine.dtypes import ArithmeticType, arithmetic_type
from engine.kernels.expr import Expr
from engine.kernels.printer import Printer, Scope

COMPONENTS = "xyzw"

SUM_BLOCK = 256
"""Terms of a float sum that are added up before they join the total: keeps long sums accurate."""

WORDS: dict[str, str] = {
    "float32": "float32",
    "float16": "float32",
    "bfloat16": "float32",
    "int64": "int32",
    "int32": "int32",
    "int16": "int32",
    "int8": "int32",
    "uint8": "int32",
    "uint16": "int32",
    "bool": "int32",
    "uint32": "uint32",
    "uint64": "uint32",
}
"""Storage type -> NumPy type of the 32-bit word that holds it in GLSL."""

_GLSL_WORD = {"float32": "float", "int32": "int", "uint32": "uint"}

# How a computed int is wrapped before it is stored in a word.
_WRAP = {
    "int8": "(({0} << 24) >> 24)",
    "int16": "(({0} << 16) >> 16)",
    "uint8": "({0} & 0xff)",
    "uint16": "({0} & 0xffff)",
    "float16": "k_half({0})",
    "bfloat16": "k_bfloat({0})",
}


def type_refusal(dtypes: Iterable[np.dtype | str]) -> str | None:
    """Why GLSL kernels cannot hold tensors of these types, or None."""
    for dtype in dtypes:
        name = np.dtype(dtype).name
        if name not in WORDS:
            return f"GLSL kernels have no {name}"
    return None


def word_dtype(dtype: np.dtype | str) -> np.dtype:
    """The NumPy type of the words in which a tensor of `dtype` is kept. Raises KeyError for float64."""
    return np.dtype(WORDS[np.dtype(dtype).name])


def word_type(storage: str) -> str:
    """The GLSL type of the words in which a tensor of `storage` is kept."""
    return _GLSL_WORD[WORDS[storage]]


def to_words(data: np.ndarray) -> np.ndarray:
    """A tensor's values as contiguous 32-bit words, 1-D; wider integers wrap (see `exceeds_words`)."""
    return np.ascontiguousarray(data).reshape(-1).astype(word_dtype(data.dtype), copy=False)


def from_words(words: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Words read back, in the tensor's own type; any view of 4-byte elements will do."""
    return words.view(word_dtype(dtype)).astype(dtype, copy=False)


def exceeds_words(data: np.ndarray) -> bool:
    """Whether a 64-bit integer tensor holds values that 32 bits cannot."""
    if data.dtype.kind not in "iu" or data.dtype.itemsize < 8 or data.size == 0:
        return False
    info = np.iinfo(word_dtype(data.dtype))
    return bool(data.max() > info.max or data.min() < info.min)


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
            words[k : k + 1].view(np.uint32)[0] = _limited(int(value), kind) & 0xFFFFFFFF
    words[len(types) : len(types) + len(extra)] = extra
    return words


def argument_vectors(count: int) -> int:
    """How many `ivec4` hold `count` arguments; at least one."""
    return max(1, -(-count // 4))


def _limited(value: int, dtype: str) -> int:
    low, high = (0, 2**32 - 1) if dtype.startswith("uint") else (-(2**31), 2**31 - 1)
    return min(max(value, low), high)


_FLOAT = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "neg": "(-{0})",
    "and": "({0} & {1})",
    "or": "({0} | {1})",
    "xor": "({0} ^ {1})",
    "bitnot": "(~{0})",
    "not": "(!{0})",
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "gt": "({0} > {1})",
    "ge": "({0} >= {1})",
    "select": "({0} ? {1} : {2})",
    "isnan": "k_nan({0})",
    "isinf": "k_inf({0})",
    "sqrt": "sqrt({0})",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "trunc": "trunc({0})",
    "round": "roundEven({0})",
    ("div", "float"): "({0} / {1})",
    ("rem", "float"): "k_fmod({0}, {1})",
    ("pow", "float"): "k_pow({0}, {1})",
    ("min", "float"): "k_min({0}, {1})",
    ("max", "float"): "k_max({0}, {1})",
    ("abs", "float"): "abs({0})",
    ("sign", "float"): "k_sign({0})",
} | {
    name: f"k_{name}({{0}})"
    for name in "exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf".split()
}
_INT = {
    ("div", "int"): "k_idiv({0}, {1})",
    ("rem", "int"): "k_irem({0}, {1})",
    ("pow", "int"): "k_ipow({0}, {1})",
    ("shl", "int"): "k_ishl({0}, {1})",
    ("shr", "int"): "k_ishr({0}, {1})",
    ("min", "int"): "min({0}, {1})",
    ("max", "int"): "max({0}, {1})",
    ("abs", "int"): "abs({0})",
    ("sign", "int"): "sign({0})",
    ("div", "uint"): "k_udiv({0}, {1})",
    ("rem", "uint"): "k_urem({0}, {1})",
    ("pow", "uint"): "k_upow({0}, {1})",
    ("shl", "uint"): "k_ushl({0}, {1})",
    ("shr", "uint"): "k_ushr({0}, {1})",
    ("min", "uint"): "min({0}, {1})",
    ("max", "uint"): "max({0}, {1})",
    ("abs", "uint"): "{0}",
    ("sign", "uint"): "min({0}, 1u)",
}
# Rounding an integer leaves it as it is.
_INT |= {(op, kind): "{0}" for op in ("floor", "ceil", "trunc", "round") for kind in ("int", "uint")}
_BOOL = {
    ("add", "bool"): "({0} || {1})",
    ("mul", "bool"): "({0} && {1})",
    ("max", "bool"): "({0} || {1})",
    ("min", "bool"): "({0} && {1})",
    ("or", "bool"): "({0} || {1})",
    ("and", "bool"): "({0} && {1})",
    ("xor", "bool"): "({0} != {1})",
    ("bitnot", "bool"): "(!{0})",
    ("lt", "bool"): "(!{0} && {1})",
    ("le", "bool"): "(!{0} || {1})",
    ("gt", "bool"): "({0} && !{1})",
    ("ge", "bool"): "({0} || !{1})",
}


class GLSLPrinter(Printer):
    """Prints formulas for any GLSL stage; a subclass says how an element of a tensor is fetched (`fetch`).

    Run-time arguments lie in `uniform ivec4 A[...]`: the kernel's own by slot, then whatever the stage
    adds (`extra(k)`); `pack_arguments` makes its contents.
    """

    TYPES = {
        "float32": "float",
        "index": "int",
        "int32": "int",
        "int64": "int",
        "uint32": "uint",
        "uint64": "uint",
        "bool": "bool",
    }
    TEMPLATES = _FLOAT | _INT | _BOOL

    # For subclasses

    def fetch(self, slot: int, position: str) -> str:
        """The word (`word_type` of the buffer's storage type) at `position` of buffer `slot`."""
        raise NotImplementedError

    def extra(self, k: int) -> str:
        """The k-th int argument that the stage adds after the kernel's own."""
        return argument(len(self.kernel.params) + k)

    def arguments(self, extra: int) -> str:
        """The declaration of the argument array, with room for `extra` arguments of the stage."""
        return f"uniform ivec4 A[{argument_vectors(len(self.kernel.params) + extra)}];"

    def body(self, formula: Expr, variables: Mapping[Any, str]) -> tuple[list[str], str]:
        """Statements that compute `formula`, and the text of its value.

        variables: GLSL names of what the formula depends on: axis numbers, "flat", "acc".
        """
        self.variables |= variables
        scope: Scope = self.open(frozenset(variables))
        value = self.text(formula)
        self.close()
        return scope.lines, value

    def stored(self, text: str, dtype: ArithmeticType, storage: str) -> str:
        """A computed value of type `dtype` as the word in which `storage` is kept."""
        target = arithmetic_type(np.dtype(storage) if storage != "bfloat16" else storage)
        text = self.convert(text, dtype, target)
        if storage == "bool":
            return f"int({text})"
        return _WRAP.get(storage, "{0}").format(text)

    @staticmethod
    def functions(text: str) -> str:
        """Definitions of the functions that `text` calls."""
        return functions_for(text)

    # What the base asks for

    def literal(self, value: int | float | bool, dtype: ArithmeticType) -> str:
        """A constant; integers beyond 32 bits saturate."""
        if dtype == "bool":
            return "true" if value else "false"
        if dtype in ("float32", "float64"):
            return float_literal(value)
        value = _limited(int(value), dtype)
        if dtype in ("uint32", "uint64"):
            return f"{value}u"
        return "(-2147483647 - 1)" if value == -(2**31) else f"({value})" if value < 0 else str(value)

    def param(self, slot: int, dtype: ArithmeticType) -> str:
        """A run-time argument, from `A`."""
        word = argument(slot)
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

    def neutral(self, kind: str, dtype: ArithmeticType) -> str:
        """What a reduction starts from."""
        if self.TYPES[dtype] == "bool":
            return self.literal(kind in ("prod", "min"), dtype)
        return super().neutral(kind, dtype)

    def reduce(self, node: Expr, name: str, home: Scope) -> None:
        """A loop that accumulates; sums of floats go block by block."""
        kind, var = node.attr
        if kind != "sum" or node.dtype != "float32":
            super().reduce(node, name, home)
            return
        extent, term = node.args
        count = self.text(extent)
        part, loop_name = self.fresh("a"), self.fresh("r")
        self.variables[var] = loop_name

        def accumulate() -> list[str]:
            last = f"({loop_name} & {SUM_BLOCK - 1}) == {SUM_BLOCK - 1}"
            return [f"{part} += {self.text(term)};", f"if ({last}) {{ {name} += {part}; {part} = 0.0; }}"]

        inner = self._inside(self.scopes.index(home), frozenset({var}), accumulate)
        home.lines += [f"float {name} = 0.0;", f"float {part} = 0.0;"]
        self._loop(home, loop_name, count, inner)
        home.lines.append(f"{name} += {part};")


def argument(position: int) -> str:
    """The text of an int argument by its position in `A`."""
    return f"A[{position // 4}].{COMPONENTS[position % 4]}"


def float_literal(value: float) -> str:
    """A float32 constant; infinities, NaN and subnormals by their bits."""
    number = np.float32(value)
    if not np.isfinite(number) or 0 < abs(number) < 1.2e-38:
        return f"uintBitsToFloat(0x{struct.unpack('<I', number.tobytes())[0]:08x}u)"
    text = f"{number:.9g}"
    text = text if "." in text or "e" in text else text + ".0"
    return f"({text})" if number < 0 else text
