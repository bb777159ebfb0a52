"""Kernels of a one-dimensional grid of threads that write to computed positions."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.gl.compute.epilogue import FIRST_GROUP
from engine.backends.gl.compute.printer import divisor, flat_thread, function, shader_text
from engine.backends.gl.compute.shader import ShaderKernel
from engine.backends.gl.compute.target import Target
from engine.backends.gl.glsl import argument, argument_vectors
from engine.base.dtypes import ArithmeticType
from engine.kernels.size import largest, smallest

LOCAL_SIZE = 64
"""Threads in a group."""

THREAD = f"int t = {flat_thread(LOCAL_SIZE)} + group_x * {LOCAL_SIZE};"
"""The statement that defines a thread's number."""


def flat_grid(threads: int, target: Target) -> tuple[int, int, int]:
    """Groups for a row of threads, folded within the device's limits."""
    groups = -(-threads // LOCAL_SIZE)
    across = largest(1, smallest(groups, target.limits.max_compute_group_count[0]))
    return across, -(-groups // across), 1


def divide(number: str, by: str) -> str:
    """Source of `number` / `by`, an argument listed in `divisor_names`."""
    return f"k_divide({number}, {by}_multiplier, {by}_shift)"


def divisor_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names of the arguments that divide by others, see `divisor`."""
    return tuple(f"{name}_{part}" for name in names for part in ("multiplier", "shift"))


def divisor_values(values: Sequence[int]) -> tuple[int, ...]:
    """Values of the arguments named by `divisor_names`."""
    return tuple(part for value in values for part in divisor(value))


def flat_kernel(
    lines: Sequence[str],
    names: Sequence[str],
    kinds: Sequence[str],
    output: str,
    target: Target,
    head: Sequence[str] = (),
    group_ns: float = 500.0,
    *,
    widths: Sequence[int] = (),
    rounds: Sequence[int] = (),
    access: str = "",
) -> ShaderKernel:
    """Create a kernel from statements that follow the definitions of its arguments and of `t`.

    Args:
        lines: its statements. They write elements of `o`.
        names: its arguments, before `FIRST_GROUP`.
        kinds: storage types of its inputs.
        output: storage type of the output.
        target: the device.
        head: declarations before its function.
        group_ns: estimated nanoseconds of one processor for a round of a group.
        widths: how many elements a load of each input yields, by default one.
        rounds: positions of the arguments whose product is the number of rounds.
        access: qualifiers of the output.
    """
    everything = (*names, *FIRST_GROUP)
    body = [*(f"int {name} = {argument(k)};" for k, name in enumerate(everything)), THREAD, *lines]
    main = "".join(f"{line}\n" for line in head)
    main += function("void main()", body)
    declaration = f"uniform ivec4 A[{argument_vectors(len(everything))}];"
    widths = tuple(widths) or (1,) * len(kinds)
    inputs = list(zip(kinds, widths, strict=True))
    source = shader_text((LOCAL_SIZE, 1), output, inputs, declaration, main, target.texels, access=access)
    params: tuple[ArithmeticType, ...] = tuple("index" for _ in everything)
    return ShaderKernel(source, params, tuple(kinds), widths, len(names), True, tuple(rounds), group_ns)
