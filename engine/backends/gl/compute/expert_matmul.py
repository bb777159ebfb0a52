"""Mixture-of-experts products: a thread computes four rows of one expert by four columns."""

from __future__ import annotations

from functools import partial

from engine.backends.gl.compute.epilogue import FIRST_GROUP, Epilogue, grid_fits, product_ns
from engine.backends.gl.compute.flat_grid import LOCAL_SIZE, THREAD, flat_grid
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import Target
from engine.backends.gl.glsl import COMPONENTS
from engine.backends.gpu.expert_matmul import NAMES, ExpertProduct
from engine.backends.operands import flattened
from engine.compiler.plan import Compute, Tuner
from engine.kernels.value import Value

_ROWS = _COLUMNS = 4
TILE = (_ROWS, _COLUMNS)

_STORE_ROUNDS = 32


def emit_product(product: ExpertProduct, compute: Compute, tuner: Tuner, target: Target) -> bool:
    """Emit the product; returns False if it exceeds the driver's loop or binding limits."""
    threads, _, _, k, _ = product.values
    if k + _STORE_ROUNDS > target.limits.max_loop_rounds:
        return False
    is_wide = type(k) is int and k % 4 == 0
    widths = (4, 4, 1, 1) if is_wide else (1, 1, 1, 1)
    operands = list(zip(product.inputs, widths, strict=True))
    finish = Epilogue(compute, operands, 0, target, product.kinds)
    grid = flat_grid(threads, target)
    if not finish.fits() or not grid_fits(grid, target):
        return False
    own = (*product.values, 0, 0, 0)
    round_ns = product_ns(_ROWS * _COLUMNS, 1 + _ROWS // 4)
    main = _main(finish, is_wide, target.texels)
    kernel = finish.kernel_for(main, len(own), (LOCAL_SIZE, 1), (NAMES.index("k"),), round_ns, is_folded=True)
    finish.emit(tuner, kernel, grid, own)
    return True


def pack_experts(w: Value, tuner: Tuner) -> str:
    """Return the weights in their own layout; constant ones become a constant of the plan."""
    known = w.known
    if known is None:
        return w.root.name
    return tuner.constant(f"{w.name}:gl_rows", partial(flattened, known))


def _main(finish: Epilogue, is_wide: bool, texels: bool) -> str:
    def fetch(name: str, position: str) -> str:
        if not is_wide:
            return element(name, position, "float32", texels)
        return f"texelFetch({name}, {position})" if texels else f"{name}[{position}]"

    rows, columns = range(_ROWS), range(_COLUMNS)
    kind, product = ("vec4", "dot(x{}, w{})") if is_wide else ("float", "x{} * w{}")
    slots = [f"pair{r}" for r in rows]
    loads = [f"{kind} w{c} = {fetch('b1', f'line{c} + at')};" for c in columns]
    for r in rows:
        loads.append(f"{kind} x{r} = {fetch('b0', f'row{r} + at')};")
        loads.append(f"s{r} += vec4({', '.join(product.format(r, c) for c in columns)});")
    lines = [
        THREAD,
        "if (t >= threads) return;",
        f"int tile = t / max(strips, 1), column = (t - tile * strips) * {_COLUMNS}, first = tile * {_ROWS};",
        *(f"int {name} = {element('b2', f'first + {r}', 'int32', texels)};" for r, name in enumerate(slots)),
        "if (pair0 < 0) return;",
        f"int expert = {element('b3', 'pair0', 'int32', texels)}, rounds = k / {4 if is_wide else 1};",
        # Rows and columns that are not there repeat another one, and are not stored.
        *(f"int line{c} = (expert * n + min(column + {c}, n - 1)) * rounds;" for c in columns),
        *(f"int row{r} = max({name}, 0) / max(per_row, 1) * rounds;" for r, name in enumerate(slots)),
        *(f"vec4 s{r} = vec4(0.0);" for r in rows),
        "for (int at = 0; at < rounds; ++at) {",
        *(f"    {line}" for line in loads),
        "}",
    ]
    sums = ", ".join(f"s{r}.{c}" for r in rows for c in COMPONENTS)
    lines += [
        f"int pairs[{_ROWS}] = int[{_ROWS}]({', '.join(slots)});",
        f"float sums[{4 * _ROWS}] = float[{4 * _ROWS}]({sums});",
        f"for (int r = 0; r < {_ROWS}; ++r) {{",
        f"    for (int j = 0; j < {_COLUMNS} && pairs[r] >= 0 && column + j < n; ++j)"
        f" finish(pairs[r] * n + column + j, sums[r * {_COLUMNS} + j]);",
        "}",
    ]
    return finish.main((*NAMES, *FIRST_GROUP), lines)
