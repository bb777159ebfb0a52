"""A kernel's formula as a fragment shader: one fragment computes the four elements of a texel."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

from engine.backends.gl.glsl import (
    COMPONENTS,
    GLSLPrinter,
    argument,
    argument_vectors,
    pack_arguments,
    unravel,
)
from engine.backends.gl.pixel.shader import Shader
from engine.backends.gl.storage import decoded, encoded, memory_word, vector, word_type
from engine.base.dtypes import ArithmeticType
from engine.kernels.expr import FLAT, LOOPS, Expr, nodes
from engine.kernels.kernel import Kernel

_SAMPLER = {"float": "sampler", "int": "isampler", "uint": "usampler"}
_FLAT_NAME = "i"

DIVISION = """
int k_divide(int n, int d, float inverse) {
    int q = int(float(n) * inverse);
    q += int(floor(float(n - q * d) * inverse));
    int r = n - q * d;
    return r < 0 ? q - 1 : (r >= d ? q + 1 : q);
}
int k_quotient(int n, int d) { return k_divide(n, d, 1.0 / float(d)); }
int k_remainder(int n, int d) { return n - d * k_quotient(n, d); }"""
"""Exact quotients of positions by sizes: integer division is slow on GPUs and slower on CPUs that draw."""

_PER_AXIS = 2


class FragmentPrinter(GLSLPrinter):
    """Prints a kernel, or the epilogue of a tuned one.

    A formula's slots are the inputs `first_input`...; `own` are run-time ints that come after its own.
    """

    TEMPLATES = {
        **GLSLPrinter.TEMPLATES,
        ("div", "index"): "k_quotient({0}, {1})",
        ("rem", "index"): "k_remainder({0}, {1})",
    }

    def fetch(self, slot: int, position: str) -> str:
        """An element of an input; those in the output's own order were fetched four at once."""
        return f"f{slot}" if position == _FLAT_NAME else f"k_at{slot}({position})"

    def shader(
        self,
        *,
        acc: Sequence[str] = (),
        own: int = 0,
        buffers: Sequence[str] = (),
        layered: Sequence[bool] = (),
        helpers: str = "",
        reads_itself: bool = False,
        is_windowed: bool = False,
    ) -> Shader:
        """The whole shader.

        acc: statements that define `acc` for position `i`, which the formula then uses. own: how many ints
        they take after the kernel's arguments (`own_argument`). buffers, layered: inputs they read, after
        the kernel's. helpers: functions that they call. reads_itself: `helpers` say where the kernel's
        inputs lie, with functions `k_at0(e)`... of their own. is_windowed: the last two ints of `own` are the
        first texel that is drawn, and the one behind the last.
        """
        kernel = self.kernel
        own_inputs = () if reads_itself else kernel.buffers
        inputs = (*own_inputs, *buffers)
        flags = (*(False for _ in own_inputs), *(layered or (False,) * len(buffers)))
        ints: list[ArithmeticType] = ["index"] * own
        params = (*kernel.params, *ints)
        stage = StageArguments(len(params), len(inputs))
        axes = sorted(a for a in kernel.body.free if isinstance(a, int))
        names: dict[int | str, str] = {"flat": _FLAT_NAME, "acc": "acc"} | {a: f"i{a}" for a in axes}
        lines, value = self.body(kernel.body, names)
        body = [*acc, *unravel(axes, kernel.rank, stage.divisor), *lines]
        body.append(f"return {self.stored(value, kernel.body.dtype, kernel.dtype)};")
        word = word_type(kernel.dtype)
        window = (self.own_argument(own - 2), self.own_argument(own - 1)) if is_windowed else None
        at_flat = [] if reads_itself else flat_slots(kernel.body)
        main = element_function(word, [(f"f{k}", word_type(inputs[k])) for k in at_flat], body)
        main += _main(kernel.dtype, [(k, inputs[k]) for k in at_flat], stage, _has_loops(kernel.body), window)
        source = shader_text(
            list(zip(inputs, flags, strict=True)), kernel.dtype, 0, stage,
            stage.tail + _PER_AXIS * max(kernel.rank - 1, 0), helpers + main,
        )  # fmt: skip
        return Shader(source, params, inputs, kernel.dtype, flags, rank=kernel.rank)

    def own_argument(self, k: int) -> str:
        """Source of the k-th int of `own`."""
        return argument(len(self.kernel.params) + k)


class StageArguments:
    """The arguments that every shader gets after its own, by position.

    The output's shift and last texel, each input's shift; then, for index spaces, the last element and per
    axis after the first its size and the inverse of it. `shifts`, `texels` and `elements` are positions, the
    other attributes texts.
    """

    def __init__(self, params: int, inputs: int) -> None:
        self.texels = params + 1
        self.elements = params + 2 + inputs
        self.shifts = (params, *range(params + 2, self.elements))
        """Of tensors, the output's first."""
        self.shift, self.last_texel = argument(params), argument(self.texels)
        self.last_element = argument(self.elements)

    def input_shift(self, k: int) -> str:
        """The text of an input's shift."""
        return argument(self.shifts[1 + k])

    def divisor(self, axis: int) -> tuple[str, str]:
        """Size of an axis after the first, and what `k_divide` takes for it: the size and its inverse."""
        first = self.tail + _PER_AXIS * (axis - 1)
        size = argument(first)
        return size, f"{size}, intBitsToFloat({argument(first + 1)})"

    @property
    def tail(self) -> int:
        """Number of arguments up to the number of elements."""
        return self.elements + 1


def arguments(
    shader: Shader, values: Sequence[int | float], space: Sequence[int], shifts: Sequence[int], texels: int
) -> np.ndarray:
    """The contents of `A` for a step. shifts: the output's, then the inputs'. texels: how many are drawn."""
    extra = [shifts[0], texels - 1, *shifts[1:]]
    if shader.rank is not None:
        extra.append(max(prod(space) - 1, 0))
        extra += [word for size in space[1:] for word in (size, inverse_bits(size))]
    return pack_arguments(shader.params, values, extra)


def inverse_bits(size: int) -> int:
    """1 / size as the bits of a float32."""
    return int(struct.unpack("<i", struct.pack("<f", 1.0 / max(size, 1)))[0])


def shader_text(
    inputs: Sequence[tuple[str, bool]],
    output: str,
    layers: int,
    stage: StageArguments,
    arguments_: int,
    text: str,
) -> str:
    """A fragment shader: declarations, input readers, and the functions that `text` calls.

    inputs: storage type and whether it is layered; `k_texel3(t)` reads texel t of input 3, `k_at3(e)` element
    e of it, `k_texel3(t, layer)` one of a layered input. The output is `o`, or `o0`... of so many layers.
    """
    kind_out = vector(memory_word(output))
    lines = ["#version 330 core", "precision highp float;", "precision highp int;"]
    lines.append(f"uniform ivec4 A[{argument_vectors(arguments_)}];")
    lines += [f"layout(location = {k}) out {kind_out} o{k if layers else ''};" for k in range(max(layers, 1))]
    readers = []
    for k, (kind, layered) in enumerate(inputs):
        own = word_type(kind)
        four = vector(own)
        lines.append(f"uniform {_SAMPLER[memory_word(kind)]}2D{'Array' if layered else ''} b{k};")
        shift = stage.input_shift(k)
        column = f"t & ((1 << {shift}) - 1), t >> {shift}"
        if layered:
            column = f"(t >> 2) & ((1 << {shift}) - 1), (t >> 2 >> {shift} << 2) + (t & 3)"
            head = f"{four} k_texel{k}(int t, int layer)"
            readers.append(f"{head} {{ return texelFetch(b{k}, ivec3({column}, layer), 0); }}")
        else:
            texel = decoded(f"texelFetch(b{k}, ivec2({column}), 0)", kind, four=True)
            readers.append(f"{four} k_texel{k}(int t) {{ return {texel}; }}")
            readers.append(f"{own} k_at{k}(int e) {{ return k_pick(k_texel{k}(e >> 2), e & 3); }}")
    picks = [
        f"{own} k_pick({vector(own)} v, int k)"
        " { return k < 2 ? (k == 0 ? v.x : v.y) : (k == 2 ? v.z : v.w); }"
        for own in sorted({word_type(kind) for kind, _ in inputs})
    ]
    division = DIVISION if "k_divide(" in text or "k_quotient(" in text or "k_remainder(" in text else ""
    return "\n".join([*lines, *picks, *readers, division, GLSLPrinter.functions(text), text])


def element_function(word: str, flat: Sequence[tuple[str, str]], body: Iterable[str]) -> str:
    """The function that computes one element from its position and the elements there of other tensors."""
    parameters = "".join(f", {kind} {name}" for name, kind in flat)
    text = "".join(f"    {line}\n" for line in body)
    return f"{word} k_element(int {_FLAT_NAME}{parameters}) {{\n{text}}}\n"


def texel_number(stage: StageArguments, layers: int = 0) -> str:
    """Statements that define `t`, the fragment's texel; texels beyond the tensor repeat the last.

    `Layout` has its location.
    """
    x, y = "int(gl_FragCoord.x)", "int(gl_FragCoord.y)"
    position = f"({y} << {stage.shift}) + {x}"
    if layers:
        position = f"((({y} >> 2 << {stage.shift}) + {x}) << 2) + ({y} & 3)"
    return f"int t = min({position}, {stage.last_texel});"


def _main(
    output: str,
    flat: Sequence[tuple[int, str]],
    stage: StageArguments,
    loops: bool,
    window: tuple[str, str] | None = None,
) -> str:
    """The function that draws a texel.

    `flat` are slots and storage types of inputs in the output's own order; `window` is the first texel that
    is drawn, and the one behind the last.
    """
    word = word_type(output)
    four = vector(word)
    lines = [texel_number(stage)]
    if window is not None:
        lines.append(f"if (t < {window[0]} || t >= {window[1]}) discard;")
    lines += [f"{vector(word_type(kind))} v{k} = k_texel{k}(t);" for k, kind in flat]
    if loops:
        # Not unrolled: four copies of a long body take four times as long to compile.
        given = "".join(f", k_pick(v{k}, k)" for k, _ in flat)
        chosen = [f"k == {j} ? e : r.{c}" for j, c in enumerate(COMPONENTS)]
        lines += [
            f"{four} r = {four}(0);",
            f"int n = min(4, {stage.last_element} - 4 * t + 1);",
            "for (int k = 0; k < n; ++k) {",
            f"    {word} e = k_element(4 * t + k{given});",
            f"    r = {four}({', '.join(chosen)});",
            "}",
            f"o = {encoded('r', output, four=True)};",
        ]
    else:
        calls = [
            f"k_element(min(4 * t + {j}, {stage.last_element}){''.join(f', v{k}.{c}' for k, _ in flat)})"
            for j, c in enumerate(COMPONENTS)
        ]
        texel = f"{four}({', '.join(calls)})"
        lines.append(f"o = {encoded(texel, output, four=True)};")
    return "void main() {\n" + "".join(f"    {line}\n" for line in lines) + "}\n"


def flat_slots(formula: Expr) -> list[int]:
    """Slots of the inputs that are read in the output's own order."""
    return sorted({node.attr for node in nodes(formula) if node.op == "load" and node.args[0] == FLAT})


def _has_loops(formula: Expr) -> bool:
    return any(node.op in LOOPS for node in nodes(formula))


def print_kernel(kernel: Kernel) -> Shader:
    """The shader of a generic kernel."""
    return FragmentPrinter(kernel).shader()


def print_windowed(kernel: Kernel) -> Shader:
    """The shader of a generic kernel that draws some texels, whose numbers follow its own arguments."""
    return FragmentPrinter(kernel).shader(own=2, is_windowed=True)
