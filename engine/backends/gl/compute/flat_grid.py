"""Kernels of a one-dimensional grid of threads that write to computed positions."""

from __future__ import annotations

from engine.backends.gl.compute.epilogue import FIRST_GROUP, GLSLEpilogue, grid_fits
from engine.backends.gl.compute.printer import flat_thread, function, shader_text
from engine.backends.gl.compute.shader import ShaderKernel
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.glsl import argument, argument_vectors
from engine.backends.gpu.kernel_dialect import GROUP, ThreadStep
from engine.base.dtypes import ArithmeticType
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import largest, smallest

LOCAL_SIZE = GROUP
"""Threads in a group."""

THREAD = f"int t = {flat_thread(LOCAL_SIZE)} + group_x * {LOCAL_SIZE};"
"""The statement that defines a thread's number."""


def flat_grid(threads: int, target: ShaderTarget) -> tuple[int, int, int]:
    """Groups for a row of threads, folded within the device's limits."""
    groups = -(-threads // LOCAL_SIZE)
    across = largest(1, smallest(groups, target.limits.max_compute_group_count[0]))
    return across, -(-groups // across), 1


def _head(step: ThreadStep) -> str:
    return "".join(f"{line}\n" for line in (*step.shared, *step.functions))


def emit_threads(tuner: Tuner, step: ThreadStep, target: ShaderTarget) -> bool:
    """Emit a step; False beyond the device's limits."""
    grid = flat_grid(step.threads, target)
    if not grid_fits(grid, target):
        return False
    names, values = [*step.argument_names, *FIRST_GROUP], (*step.argument_values, 0, 0, 0)
    body = [*(f"int {name} = {argument(k)};" for k, name in enumerate(names)), THREAD, *step.lines]
    tensors, kinds = zip(*step.inputs, strict=True)
    widths = tuple(step.widths) or (1,) * len(kinds)
    access = "coherent " if step.is_coherent else ""
    source = shader_text(
        (LOCAL_SIZE, 1), step.kind, list(zip(kinds, widths, strict=True)),
        f"uniform ivec4 A[{argument_vectors(len(names))}];", _head(step) + function("void main()", body),
        target.texels, access,
    )  # fmt: skip
    params: tuple[ArithmeticType, ...] = tuple("index" for _ in names)
    rounds = tuple(names.index(name) for name in step.rounds)
    first_group = len(names) - len(FIRST_GROUP)
    kernel = ShaderKernel(source, params, kinds, widths, first_group, True, rounds, step.ns)
    tuner.emit(kernel, grid, values, tensors, step.output)
    return True


def emit_with_epilogue(
    compute: Compute, tuner: Tuner, step: ThreadStep, target: ShaderTarget, known: int = 0
) -> bool:
    """Emit a step whose statements call `finish`, see `GLSLEpilogue`; False beyond the device's limits."""
    tensors, kinds = zip(*step.inputs, strict=True)
    operands = list(zip(tensors, step.widths or (1,) * len(kinds), strict=True))
    finish, grid = GLSLEpilogue(compute, operands, known, target, kinds), flat_grid(step.threads, target)
    if not finish.fits() or not grid_fits(grid, target):
        return False
    names, values = [*step.argument_names, *FIRST_GROUP], (*step.argument_values, 0, 0, 0)
    main = _head(step) + finish.main(names, [THREAD, *step.lines])
    rounds = [names.index(name) for name in step.rounds]
    kernel = finish.kernel_for(
        main, len(names), (LOCAL_SIZE, 1), rounds, step.ns / LOCAL_SIZE, is_folded=True
    )
    finish.emit(tuner, kernel, grid, values)
    return True
