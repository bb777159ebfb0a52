"""The atomic step of a scatter."""

from __future__ import annotations

from engine.backends.gl.compute.epilogue import FIRST_GROUP, grid_fits
from engine.backends.gl.compute.printer import flat_thread, shader_text
from engine.backends.gl.compute.shader import ShaderKernel
from engine.backends.gl.compute.target import Target
from engine.backends.gl.glsl import argument, argument_vectors
from engine.backends.scatters import Raises
from engine.base.dtypes import ArithmeticType
from engine.compiler.plan import Tuner
from engine.kernels.size import largest, smallest

_LOCAL_SIZE = 64
_NAMES = ("total", "count", "columns", "places", *FIRST_GROUP)


def raise_all(target: Target, tuner: Tuner, raises: Raises, targets: str, table: str) -> bool:
    """Emit the step: a thread for each target."""
    groups = -(-raises.total // _LOCAL_SIZE)
    across = largest(1, smallest(groups, target.limits.max_compute_group_count[0]))
    grid = (across, -(-groups // across), 1)
    if not grid_fits(grid, target):
        return False
    values = (raises.total, raises.count, raises.columns, raises.places, 0, 0, 0)
    tuner.emit(_kernel(target.texels), grid, values, (targets,), table)
    return True


def _kernel(texels: bool) -> ShaderKernel:
    lines = [
        *(f"int {name} = {argument(k)};" for k, name in enumerate(_NAMES)),
        f"int t = {flat_thread(_LOCAL_SIZE)} + group_x * {_LOCAL_SIZE};",
        "if (t >= total) return;",
        f"int place = {'texelFetch(b0, t).x' if texels else 'b0[t]'};",
        "int line = t / max(columns, 1);",
        "int row = line / max(count, 1);",
        "if (place >= 0 && place < places)",
        "    atomicMax(o[(row * places + place) * columns + t - line * columns], line - row * count);",
    ]
    main = "void main() {\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
    declaration = f"uniform ivec4 A[{argument_vectors(len(_NAMES))}];"
    source = shader_text((_LOCAL_SIZE, 1), "int32", [("int32", 1)], declaration, main, texels, access="")
    params: tuple[ArithmeticType, ...] = tuple("index" for _ in _NAMES)
    first = len(_NAMES) - len(FIRST_GROUP)
    return ShaderKernel(source, params, ("int32",), (1,), first, is_folded=True, group_ns=500.0)
