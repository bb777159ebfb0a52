"""A kernel's formula as a compute shader: one thread per output element, or per 32-bit word of the output.

A word holds two or four elements of a narrow type. Only one thread may store it, so that one computes them
all.

Tensors are read from storage buffers, or as buffer textures where that is faster: llvmpipe walks the lanes
of a storage buffer load one by one (8 ns each), and gathers a texel fetch in one go (12 ns for 8 lanes).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from engine.backends.gl.glsl import GLSLPrinter, pack_arguments, unravel
from engine.backends.gl.storage import decoded, lanes, memory_word, packed, unpacked, word_type
from engine.backends.gpu.division import divisor
from engine.kernels.expr import LOOPS, nodes
from engine.kernels.kernel import Kernel

LOCAL_SIZE = 64
"""Threads in a group of a generic kernel."""

ARGUMENTS_LOCATION = 0
"""Location of the argument array `A` in every program of this backend."""

# What the stage adds to the kernel's arguments: first and last-plus-one flat index, then per axis after
# the first its size and what divides by it.
_BEGIN, _END, _AXES = 0, 1, 2
_PER_AXIS = 3

DIVIDE = """
int k_divide(int n, int multiplier, int shift) {
    uint high, low;
    umulExtended(uint(n) << 1u, uint(multiplier), high, low);
    return int(high >> uint(shift));
}"""
"""The quotient of a non-negative n with the numbers of `divisor`."""

_TEXEL_BUFFER = {"float": "samplerBuffer", "int": "isamplerBuffer", "uint": "usamplerBuffer"}


_VECTORS = {"float32": "vec", "int32": "ivec", "int64": "ivec"}


class ComputePrinter(GLSLPrinter):
    """Prints a generic kernel.

    Storage buffer 0 is the output; input k is storage buffer 1 + k, or with `texels` a buffer texture on
    unit k.
    """

    readers: ClassVar[str] = ""
    """What a subclass that reads inputs from elsewhere declares for it, instead of them."""

    def __init__(self, kernel: Kernel, texels: bool) -> None:
        super().__init__(kernel)
        self.texels = texels
        self.first_input = 0
        """Number of the shader's input that the kernel's slot 0 is."""

    def fetch(self, slot: int, position: str) -> str:
        """An element of an input."""
        return element(f"b{self.first_input + slot}", position, self.kernel.buffers[slot], self.texels)

    def shader(self) -> str:
        """The whole compute shader."""
        kernel = self.kernel
        lines, value = self.element(_AXES)
        text = self._elementwise(lines, value) if lanes(kernel.dtype) == 1 else self._wordwise(lines, value)
        extra = _AXES + axis_arguments(kernel.rank)
        inputs = [] if self.readers else [(kind, 1) for kind in kernel.buffers]
        arguments = self.arguments(extra)
        return shader_text(LOCAL_SIZE, kernel.dtype, inputs, arguments, self.readers + text, self.texels)

    def element(self, first_axis: int) -> tuple[list[str], str]:
        """Statements for the element at the flat index `i`, and its value as it is stored; see `unravel`."""
        kernel = self.kernel
        axes = sorted(a for a in kernel.body.free if isinstance(a, int))
        lines, value = self.body(kernel.body, {"flat": "i"} | {axis: f"i{axis}" for axis in axes})
        value = self.stored(value, kernel.body.dtype, kernel.dtype)
        return [*self.unravel(axes, first_axis), *lines], value

    def _elementwise(self, lines: Sequence[str], value: str) -> str:
        return function(
            "void main()",
            [
                f"int i = {self.extra(_BEGIN)} + {flat_thread(LOCAL_SIZE)};",
                f"if (i >= {self.extra(_END)}) return;",
                *lines,
                f"o[i] = {value};",
            ],
        )

    def _wordwise(self, lines: Sequence[str], value: str) -> str:
        """`begin` is the first element of a word; the rest of the last word repeats the last element."""
        storage = self.kernel.dtype
        count, bits = lanes(storage), 32 // lanes(storage)
        main = [
            f"int i = {self.extra(_BEGIN)} + {flat_thread(LOCAL_SIZE)} * {count};",
            f"int last = {self.extra(_END)} - 1;",
            "if (i > last) return;",
            "uint word = k_element(i);",
        ]
        if any(node.op in LOOPS for node in nodes(self.kernel.body)):
            # Not unrolled: copies of a long body take that much longer to compile.
            loop = f"for (int k = 1; k < {count}; ++k)"
            main.append(f"{loop} word |= k_element(min(i + k, last)) << (k * {bits});")
        else:
            main += [f"word |= k_element(min(i + {k}, last)) << {k * bits};" for k in range(1, count)]
        main.append(f"o[i / {count}] = word;")
        element = function("uint k_element(int i)", [*lines, f"return {packed(value, storage)};"])
        return element + function("void main()", main)

    def unravel(self, axes: Sequence[int], first: int) -> list[str]:
        """Statements that compute indices `i0`... from the flat index `i`.

        first: number of the extra argument where the space's sizes start (`axis_values`).
        """

        def divisor(axis: int) -> tuple[str, str]:
            size, multiplier, shift = (self.extra(first + _PER_AXIS * (axis - 1) + k) for k in range(3))
            return size, f"{multiplier}, {shift}"

        return unravel(axes, self.kernel.rank, divisor)


def element(block: str, position: str, storage: str, texels: bool) -> str:
    """Source of an input element, in the shader's word type."""
    if texels:
        return decoded(f"texelFetch({block}, {position}).x", storage)
    return f"{block}[{position}]" if lanes(storage) == 1 else unpacked(block, position, storage)


def function(head: str, lines: Sequence[str]) -> str:
    """Source of a function from its statements."""
    return f"{head} {{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"


def flat_thread(local_size: int) -> str:
    """The number of a thread in a grid that may be folded into rows."""
    return f"int(gl_GlobalInvocationID.x + gl_GlobalInvocationID.y * (gl_NumWorkGroups.x * {local_size}u))"


def shader_text(
    local_size: int | tuple[int, int],
    output: str,
    inputs: Sequence[tuple[str, int]],
    arguments: str,
    main: str,
    texels: bool,
    access: str = "restrict writeonly ",
) -> str:
    """A compute shader over one output `o` and inputs `b0`..., with the functions that `main` uses.

    Without texels, what has several elements in a 32-bit word is given and taken as words of `uint`. output:
    storage type. inputs: storage type and how many of its elements a load yields (1 or 4).
    """
    item = block_item(output)
    lines = [f"layout(std430, binding = 0) {access}buffer Output {{ {item} o[]; }};"]
    for k, (kind, width) in enumerate(inputs):
        if texels:
            lines.append(f"layout(binding = {k}) uniform {_TEXEL_BUFFER[memory_word(kind)]} b{k};")
        else:
            item = block_item(kind) if width == 1 else f"{_VECTORS[kind]}{width}"
            block = f"restrict readonly buffer Input{k} {{ {item} b{k}[]; }};"
            lines.append(f"layout(std430, binding = {k + 1}) {block}")
    sizes = local_size if isinstance(local_size, tuple) else (local_size, 1)
    return program_text(sizes, lines, arguments, main)


def program_text(local_size: tuple[int, int], blocks: Sequence[str], arguments: str, main: str) -> str:
    """A compute shader from the declarations of its tensors and of its arguments, and its functions."""
    return "\n".join(
        [
            "#version 430",
            f"layout(local_size_x = {local_size[0]}, local_size_y = {local_size[1]}) in;",
            *blocks,
            f"layout(location = {ARGUMENTS_LOCATION}) {arguments}",
            GLSLPrinter.functions(main) + (DIVIDE if "k_divide(" in main else ""),
            main,
        ]
    )


def block_item(storage: str) -> str:
    """The type of a storage buffer's items."""
    return word_type(storage) if lanes(storage) == 1 else "uint"


def axis_arguments(rank: int) -> int:
    """How many extra arguments take a flat index apart."""
    return _PER_AXIS * max(rank - 1, 0)


def axis_values(space: Sequence[int]) -> list[int]:
    """Extra arguments for computing indices over `space` from a flat index."""
    return [word for size in space[1:] for word in (size, *divisor(size))]


def arguments(
    kernel: Kernel, values: Sequence[int | float], space: Sequence[int], begin: int, end: int
) -> np.ndarray:
    """The contents of `A` for one dispatch of a generic kernel over flat indices begin..end-1."""
    return pack_arguments(kernel.params, values, [begin, end, *axis_values(space)])
