"""Kernels as OpenCL C 1.2: one work-item computes one element.

Sizes are plain kernel arguments: they are set once when a plan is recorded, and replaying costs nothing.
Only a kernel with more of them than every device takes reads them from a buffer instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from engine.backends.gpu.division import divisor
from engine.backends.opencl.codegen.functions import TEMPLATES, functions_for
from engine.backends.opencl.codegen.storage import WORDS, WRAP
from engine.base.dtypes import ArithmeticType, arithmetic_type, as_dtype
from engine.kernels.c_printer import CPrinter, saturate
from engine.kernels.expr import Expr, nodes
from engine.kernels.kernel import Kernel
from engine.kernels.size import largest

LOCAL_SIZE = 64
"""Work-items in a group of a generic kernel. Fixed, as PoCL compiles a kernel again for every size."""

# OpenCL guarantees 1024 bytes of arguments.
_ARGUMENT_BYTES = 1024


class OpenCLPrinter(CPrinter):
    """Prints formulas as OpenCL C. Buffer `k` of the kernel is named `b{k}`, argument `k` is `p{k}`."""

    TYPES = {**CPrinter.TYPES, "float64": "double"}
    TEMPLATES = TEMPLATES

    def float_literal(self, value: float, word: str) -> str:
        if value != value:
            return f"(({word})NAN)"
        number = float(np.float32(value)) if word == "float" else value
        if number in (float("inf"), float("-inf")):
            return f"(({word}){'-' if number < 0 else ''}INFINITY)"
        text = number.hex() + ("f" if word == "float" else "")
        return f"({text})" if text.startswith("-") else text

    def param(self, slot: int, dtype: ArithmeticType) -> str:
        """A run-time argument."""
        return f"(p{slot} != 0)" if dtype == "bool" else f"p{slot}"

    def load(self, slot: int, position: str, dtype: ArithmeticType) -> str:
        """An element in the type that kernels compute with."""
        return element(self.kernel.buffers[slot], f"b{slot}", position)

    def store(self, buffer: str, position: str, text: str, source: ArithmeticType) -> str:
        """The statement that stores a computed value in the kernel's output type."""
        storage = self.kernel.dtype
        text = self.convert(text, source, arithmetic_type(as_dtype(storage)))
        match storage:
            case "float16":
                return f"k_store_half({text}, {position}, {buffer});"
            case "bfloat16":
                text = f"k_bfloat({text})"
        text = WRAP.get(storage, "{0}").format(text)
        return f"{buffer}[{position}] = ({WORDS[storage]})({text});"

    def convert(self, text: str, source: ArithmeticType, target: ArithmeticType) -> str:
        """`cast`: floats saturate, integers wrap."""
        a, b = self.TYPES[source], self.TYPES[target]
        if a == b:
            return text
        if b == "bool":
            return f"({text} != 0)"
        if a in ("float", "double") and b in ("int", "uint"):
            return f"k_to_{b}{'_double' if a == 'double' else ''}({text})"
        return f"({b})({text})"


def element(storage: str, buffer: str, position: str) -> str:
    """Source of a buffer element, in the type that kernels compute with."""
    match storage:
        case "float16":
            return f"k_load_half({buffer}, {position})"
        case "bfloat16":
            return f"as_float((uint){buffer}[{position}] << 16)"
        case "bool":
            return f"({buffer}[{position}] != 0)"
    return f"{buffer}[{position}]"


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a compiled kernel, in order.

    inputs: how many buffers it reads; they come first, the output buffer after them. arguments: types of
    the numbers that follow. in_buffer: whether the numbers come as one int32 buffer instead.
    """

    inputs: int
    arguments: tuple[ArithmeticType, ...]
    in_buffer: bool

    @staticmethod
    def of(inputs: int, arguments: Sequence[ArithmeticType]) -> Signature:
        """The signature of a call; numbers are arguments if there are few enough."""
        # Pointers take 8 bytes, doubles too.
        total = 8 * (inputs + 1) + sum(8 if t == "float64" else 4 for t in arguments)
        return Signature(inputs, tuple(arguments), total > _ARGUMENT_BYTES)

    def declarations(self, inputs: Sequence[str], output: str, names: Sequence[str]) -> tuple[str, list[str]]:
        """The parameter list of the function, and the statements it begins with."""
        buffers = [f"__global const {WORDS[t]}* restrict b{k}" for k, t in enumerate(inputs)]
        buffers.append(f"__global {WORDS[output]}* restrict y")
        return self.parameters(buffers, names)

    def parameters(self, buffers: Sequence[str], names: Sequence[str]) -> tuple[str, list[str]]:
        """`declarations` with these of the buffers."""
        if not self.in_buffer:
            numbers = [f"const {argument_word(t)} {n}" for t, n in zip(self.arguments, names, strict=True)]
            return ", ".join([*buffers, *numbers]), []
        heads, position = [], 0
        for kind, name in zip(self.arguments, names, strict=True):
            heads.append(f"const {argument_word(kind)} {name} = {_word_at(position, kind)};")
            position += 2 if kind == "float64" else 1
        return ", ".join([*buffers, "__global const int* restrict params"]), heads

    def numbers(self, values: Sequence[int | float]) -> list[np.generic | np.ndarray]:
        """The values to set after the buffers; one int32 array if they go into a buffer."""
        typed = [typed_argument(v, t) for v, t in zip(values, self.arguments, strict=True)]
        if not self.in_buffer:
            return list(typed)
        return [np.frombuffer(b"".join(x.tobytes() for x in typed), np.int32)]


def argument_word(dtype: ArithmeticType) -> str:
    """The OpenCL C type of a run-time argument; bool cannot be one."""
    word = OpenCLPrinter.TYPES[dtype]
    return "int" if word == "bool" else word


def typed_argument(value: int | float, dtype: ArithmeticType) -> np.generic:
    """A run-time argument in the type that the kernel takes; integers saturate at 32 bits."""
    match argument_word(dtype):
        case "float":
            return np.float32(value)
        case "double":
            return np.float64(value)
        case "uint":
            return np.uint32(saturate(int(value), dtype))
    return np.int32(saturate(int(value), dtype))


class GenericSource:
    """A kernel of the language as OpenCL C, and what its arguments are for an index space.

    Beside the kernel's own arguments it takes `total` (elements), `first` (the element where this dispatch
    begins) and, where the formula uses single axes, the numbers that split a position into them.
    """

    local = (LOCAL_SIZE,)

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.axes = AxisSplit.of(kernel.body, kernel.rank)
        names = [f"p{k}" for k in range(len(kernel.params))] + ["total", "first", *self.axes.names]
        types: list[ArithmeticType] = [*kernel.params, "index", "index", *self.axes.types]
        self.signature = Signature.of(len(kernel.buffers), types)
        head, loads = self.signature.declarations(kernel.buffers, kernel.dtype, names)
        printer = OpenCLPrinter(kernel)
        variables = {"flat": "i"} | {axis: f"i{axis}" for axis in self.axes.used}
        lines, value = printer.body(kernel.body, variables)
        statements = [
            *loads,
            "const int i = first + (int)get_global_id(0);",
            "if (i >= total) return;",
            *self.axes.statements("i"),
            *lines,
            printer.store("y", "i", value, kernel.body.dtype),
        ]
        body = "".join(f"    {line}\n" for line in statements)
        # Contraction would let a coordinate fall on the other side of a rounding edge than elsewhere.
        function = f"__kernel void k({head})\n{{\n    #pragma OPENCL FP_CONTRACT OFF\n{body}}}\n"
        self.text = extensions(function) + functions_for(function) + function

    def values(
        self, own: Sequence[int | float], space: Sequence[int], first: int, count: int
    ) -> list[int | float]:
        """All numbers for one dispatch of `count` elements from `first` on."""
        return [*own, first + count, first, *self.axes.values(space)]


def extensions(text: str) -> str:
    """The extension directives that a kernel's source needs."""
    found = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" if "double" in text else ""
    if re.search(r"\bhalf\b", text):
        found += "#ifdef cl_khr_fp16\n#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n#endif\n"
    return found


@dataclass(frozen=True, slots=True)
class AxisSplit:
    """How a row-major position is split into the index axes that a formula uses.

    used: the axes, outermost first. rank: of the index space. Divisors are run-time arguments, as
    multiplier and shift: an integer division per element would cost more than most formulas.
    """

    used: tuple[int, ...]
    rank: int

    @staticmethod
    def of(formula: Expr, rank: int) -> AxisSplit:
        """The split that a formula needs."""
        used = {node.attr for node in nodes(formula) if node.op == "index"}
        return AxisSplit(tuple(sorted(used)), rank)

    @property
    def divisions(self) -> list[tuple[int, int, int | None]]:
        """Divisions, innermost first: by the size of axes `start:stop`; the remainder may be an axis."""
        result: list[tuple[int, int, int | None]] = []
        stop = self.rank
        for axis in reversed(self.used):
            if axis + 1 < stop:
                result.append((axis + 1, stop, None))
            if axis > 0:
                result.append((axis, axis + 1, axis))
            stop = axis
        return result

    @property
    def names(self) -> list[str]:
        """Names of the numbers, in order."""
        return [f"split_{letter}{k}" for k in range(len(self.divisions)) for letter in "dms"]

    @property
    def types(self) -> list[ArithmeticType]:
        """Types of the numbers, in order."""
        return ["index" for _ in self.names]

    def statements(self, position: str) -> list[str]:
        """Statements that define `i{axis}` for each axis used."""
        lines, rest = [], position
        for k, (_, _, axis) in enumerate(self.divisions):
            lines.append(f"const int split_q{k} = k_divide({rest}, split_m{k}, split_s{k});")
            if axis is not None:
                lines.append(f"const int i{axis} = {rest} - split_q{k} * split_d{k};")
            rest = f"split_q{k}"
        if 0 in self.used:
            lines.append(f"const int i0 = {rest};")
        return lines

    def values(self, space: Sequence[int]) -> list[int]:
        """The numbers for an index space."""
        numbers: list[int] = []
        for given in self.divisors(space):
            size = largest(1, given)
            numbers += [size, *divisor(size)]
        return numbers

    def divisors(self, space: Sequence[int]) -> list[int]:
        """The divisors for an index space, with 1 instead of 0."""
        return [prod(space[start:stop]) for start, stop, _ in self.divisions]


def _word_at(position: int, kind: ArithmeticType) -> str:
    match argument_word(kind):
        case "float":
            return f"as_float(params[{position}])"
        case "double":
            return f"as_double((int2)(params[{position}], params[{position + 1}]))"
        case "uint":
            return f"(uint)params[{position}]"
    return f"params[{position}]"
