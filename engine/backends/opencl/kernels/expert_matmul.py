"""Mixture-of-experts products.

On a CPU a work-item computes a tile of six rows of one expert by 16 columns, as `cpu_products.matmul` does.
On a GPU it computes four by four, and reads four numbers along k at a time.
"""

from __future__ import annotations

from functools import partial

from engine.backends.gpu.expert_matmul import NAMES, ExpertProduct
from engine.backends.opencl.codegen.tuned_kernel import Epilogue, build, indent
from engine.backends.opencl.kernels import cpu_products
from engine.backends.operands import flattened
from engine.compiler.plan import Compute, Tuner
from engine.kernels.value import Value

TILES = {"cpu": (6, cpu_products.COLUMNS), "gpu": (4, 4)}
_LOCAL = {"cpu": 1, "gpu": 64}


def pack_experts(w: Value, tuner: Tuner, form: str) -> str:
    """Pack weights (experts, n, k) in strips of 16 columns on a CPU; unchanged on a GPU."""
    (experts, n, k), known = w.shape, w.known
    if form == "gpu":
        if known is None:
            return w.root.name
        return tuner.constant(f"{w.name}:rows", partial(flattened, known))
    strips = -(-n // cpu_products.COLUMNS)
    if known is not None:
        label = f"{w.name}:experts:{experts}x{n}x{k}"
        return tuner.constant(label, partial(cpu_products.pack_strips, known, experts, (n * k, 1, k), k, n))
    name = tuner.temporary(experts * strips * k * cpu_products.COLUMNS, w.dtype)
    numbers = (n, k, n * k, 1, k, strips)
    tuner.emit(
        cpu_products.strips("float32"),
        (-(-k // cpu_products.STRIP_ROWS), strips, experts),
        numbers,
        (w.root.name,),
        name,
    )
    return name


def emit_product(product: ExpertProduct, compute: Compute, tuner: Tuner, form: str) -> bool:
    """Emit the product."""
    epilogue, local, (rows, columns) = Epilogue(compute, {}, {}), _LOCAL[form], TILES[form]
    k = product.values[NAMES.index("k")]
    by_four = form == "gpu" and type(k) is int and k % 4 == 0
    load = [
        f"__global const float* x{r} = X + (long)(max(pairs[{r}], 0) / per_row) * k;" for r in range(rows)
    ]
    if form == "cpu":
        sums = _strip_sums(rows, columns)
    else:
        sums = _line_sums(rows, columns, by_four)
    body = f"""\
    const int t = (f0 + (int)get_group_id(0)) * {local} + (int)get_local_id(0);
    if (t >= threads) return;
    const int place = t / strips, strip = t - place * strips, first = strip * {columns};
    __global const int* pairs = S + place * {rows};
    if (pairs[0] < 0) return;
    const long expert = E[pairs[0]];
    // Rows that are not there repeat another one, and are not stored.
{indent([*load, *sums], 1)}\
    for (int r = 0; r < {rows}; ++r) {{
        const int pair = pairs[r];
{indent(epilogue.row_lines, 2)}\
        for (int l = 0; l < min({columns}, n - first) && pair >= 0; ++l) {{
            const int flat = pair * n + first + l;
            const float acc = tile[r * {columns} + l];
{indent(epilogue.lines, 3)}\
        }}
    }}
"""
    operands = [f"{name}:{kind}" for name, kind in zip("XWSE", product.kinds, strict=True)]
    kernel = build(
        body, epilogue, operands, NAMES, (local, 1, 1), rounds=("k",), area=local * rows * columns,
        head=cpu_products.LOOSE,
    )  # fmt: skip
    grid = (-(-product.values[0] // local), 1, 1)
    inputs = (*epilogue.inputs, *product.inputs)
    tuner.emit(kernel, grid, (*product.values, *epilogue.values), inputs, compute.output.name)
    return True


def _strip_sums(rows: int, columns: int) -> list[str]:
    """Statements that fill `tile` from a strip of weights."""
    return [
        f"__global const float* w = W + (expert * strips + strip) * k * {columns};",
        *(f"float16 a{r} = 0.0f;" for r in range(rows)),
        f"for (int c = 0; c < k; ++c, w += {columns}) {{",
        "    const float16 v = *(__global const loose16*)w;",
        *(f"    ADD16(a{r}, x{r}[c], v);" for r in range(rows)),
        "}",
        f"float tile[{rows * columns}];",
        *(f"*(loose16*)(tile + {columns * r}) = a{r};" for r in range(rows)),
    ]


def _line_sums(rows: int, columns: int, by_four: bool) -> list[str]:
    """Statements that fill `tile` from rows of weights, by four numbers at a time where that divides k."""
    kind, read = ("float4", "vload4(c, {})") if by_four else ("float", "{}[c]")
    term = "dot(u{r}, v{c})" if by_four else "u{r} * v{c}"
    at = [(r, c) for r in range(rows) for c in range(columns)]
    return [
        *(
            f"__global const float* w{c} = W + (expert * n + min(first + {c}, n - 1)) * k;"
            for c in range(columns)
        ),
        *(f"float a{r}_{c} = 0.0f;" for r, c in at),
        f"for (int c = 0; c < k / {4 if by_four else 1}; ++c) {{",
        *(f"    const {kind} u{r} = {read.format(f'x{r}')};" for r in range(rows)),
        *(f"    const {kind} v{c} = {read.format(f'w{c}')};" for c in range(columns)),
        *(f"    a{r}_{c} += {term.format(r=r, c=c)};" for r, c in at),
        "}",
        f"const float tile[{rows * columns}] = {{{', '.join(f'a{r}_{c}' for r, c in at)}}};",
    ]
