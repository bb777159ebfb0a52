"""The epilogue of a tuned compute shader, with its store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from engine.backends.gl.compute.printer import ComputePrinter, axis_values, function, shader_text
from engine.backends.gl.compute.shader import ShaderKernel
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.storage import lanes, packed, type_refusal
from engine.base.dtypes import ArithmeticType
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import acc
from engine.kernels.kernel import kernel_call
from engine.kernels.value import Value

FIRST_GROUP = ("group_x", "group_y", "group_z")
"""Names of a tuned kernel's last arguments: the group where a dispatch begins. 0 but for parts of a step."""


class GLSLEpilogue:
    """Prints `void finish(int i, int i0, ..., float v)`: stores the product `v` as element `i` of the output.

    Where a word of the output holds several elements, it returns the bits of one instead.

    `v` is a float, or an int where the operands are int32 or int64.
    The tuned kernel knows the indices along the first `known` axes of the space; others are found by
    division. Arguments `A` hold those of the epilogue, then the tuned kernel's own, then the space's sizes.
    operands: the tensors that the tuned kernel itself reads, with how many elements a load of each yields.
    kinds: their storage types, by default that of the product.
    """

    def __init__(
        self,
        compute: Compute,
        operands: Sequence[tuple[str, int]],
        known: int,
        target: ShaderTarget,
        kinds: Sequence[str] | None = None,
    ) -> None:
        self.compute = compute
        self.operands = tuple(operands)
        formula = compute.epilogue if compute.epilogue is not None else acc(compute.body.dtype)
        self.kernel, self.values, self.inputs = kernel_call(formula, len(compute.space), compute.output.dtype)
        self.element = compute.body.dtype
        self.kinds = tuple(kinds or (self.element,) * len(self.operands))
        self._known = known
        self._target = target
        self._printer = ComputePrinter(self.kernel, target.texels)
        self._printer.first_input = len(self.operands)
        self._axes = sorted(a for a in self.kernel.body.free if isinstance(a, int) and a >= known)

    def fits(self) -> bool:
        """Whether the shader can bind all tensors and hold their types."""
        limits = self._target.limits
        most = min(limits.max_compute_storage_blocks, limits.max_storage_buffer_bindings) - 1
        if type_refusal([self.compute.output.dtype, *(v.dtype for v in self.inputs)]) is not None:
            return False
        return len(self.operands) + len(self.inputs) <= most

    def argument(self, position: int) -> str:
        """Source of the tuned kernel's argument `position`."""
        return self._printer.extra(position)

    def main(self, names: Sequence[str], lines: Sequence[str]) -> str:
        """The main function: the tuned kernel's own arguments by their names, then the statements."""
        own = [f"int {name} = {self.argument(k)};" for k, name in enumerate(names)]
        return function("void main()", [*own, *lines])

    def kernel_for(
        self,
        main: str,
        own: int,
        local_size: tuple[int, int],
        rounds: Sequence[int],
        round_ns: float,
        is_folded: bool = False,
    ) -> ShaderKernel:
        """The shader with this finish.

        main: text of its functions. own: how many arguments it takes, `FIRST_GROUP` last. rounds: which of
        them tell how often a thread's loop runs, each round taking round_ns.
        """
        sizes = len(axis_values(self.compute.space)) if self._axes else 0
        inputs = [
            *((kind, width) for kind, (_, width) in zip(self.kinds, self.operands, strict=True)),
            *((kind, 1) for kind in self.kernel.buffers),
        ]
        declaration = self._printer.arguments(own + sizes)
        text = self._text(own) + (main if self.element == "float32" else in_integers(main))
        source = shader_text(local_size, self.kernel.dtype, inputs, declaration, text, self._target.texels)
        own_types: list[ArithmeticType] = ["index"] * (own + sizes)
        params = (*self.kernel.params, *own_types)
        before = len(self.kernel.params)
        return ShaderKernel(
            source,
            params,
            tuple(k for k, _ in inputs),
            tuple(w for _, w in inputs),
            before + own - len(FIRST_GROUP),
            is_folded,
            tuple(before + k for k in rounds),
            prod(local_size) * round_ns,
        )

    def emit(
        self, tuner: Tuner, kernel: ShaderKernel, grid: tuple[int, int, int], own: Sequence[int]
    ) -> None:
        """Add one dispatch with these own arguments."""
        sizes = axis_values(self.compute.space) if self._axes else []
        names = (*(name for name, _ in self.operands), *(v.name for v in self.inputs))
        values = (*self.values, *own, *sizes)
        tuner.emit(kernel, grid, values, names, self.compute.output.name)

    def _text(self, own: int) -> str:
        kernel = self.kernel
        variables: dict[int | str, str] = {"flat": "i", "acc": "v"}
        variables |= {axis: f"i{axis}" for axis in (*range(self._known), *self._axes)}
        lines, value = self._printer.body(kernel.body, variables)
        stored = self._printer.stored(value, kernel.body.dtype, kernel.dtype)
        head, store = "void", f"o[i] = {stored};"
        if lanes(kernel.dtype) > 1:
            head, store = "uint", f"return {packed(stored, kernel.dtype)};"
        body = [*self._printer.unravel(self._axes, own), *lines, store]
        known = "".join(f", int i{axis}" for axis in range(self._known))
        return function(f"{head} finish(int i{known}, {_ITEMS[self.element]} v)", body) + "\n"


_ITEMS = {"float32": "float", "int32": "int", "int64": "int"}


def in_integers(text: str) -> str:
    """Convert a tuned kernel's source from floats to ints."""
    text = re.sub(r"\bvec4\b", "ivec4", text)
    text = re.sub(r"\bfloat\b", "int", text)
    text = re.sub(r"\b0\.0\b", "0", text)
    if not re.search(r"\bdot\(", text):
        return text
    return _DOT + re.sub(r"\bdot\(", "k_dot(", text)


_DOT = "int k_dot(ivec4 a, ivec4 b) { ivec4 p = a * b; return p.x + p.y + p.z + p.w; }\n\n"


def has_kernels(compute: Compute, *values: Value) -> bool:
    """Whether tuned kernels support the types of the operands and the result."""
    element = compute.body.dtype
    return element in _ITEMS and all(v.dtype.name == element for v in values)


def grid_fits(grid: Sequence[int], target: ShaderTarget) -> bool:
    """Whether a grid of groups is within the device's limits."""
    return all(g <= m for g, m in zip(grid, target.limits.max_compute_group_count, strict=True))


def product_ns(multiplications: int, fetches: int) -> float:
    """Estimated nanoseconds of a thread's loop iteration on one core."""
    return 0.05 * multiplications + 1.5 * fetches
