"""Mixture-of-experts products on a CPU: a work-item computes six rows of one expert by 16 columns."""

from __future__ import annotations

from functools import partial

from engine.backends.gpu.expert_matmul import NAMES, ExpertProduct, emit_expert_matmul
from engine.backends.gpu.kernel_dialect import KernelDialect, Store, ThreadStep
from engine.backends.opencl.kernels.cpu_gemm import COLUMNS, STRIP_ROWS, pack_strips, strips
from engine.compiler.plan import Compute, Tuner
from engine.kernels.value import Value

_ROWS = 6


def tune_expert_matmul(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Rule for hints of kinds "expert_matmul" and "expert_matmul_nbits" of float32."""
    return emit_expert_matmul(compute, tuner, dialect, (_ROWS, COLUMNS), _multiply)


def _packed(w: Value, tuner: Tuner) -> str:
    """Pack weights (experts, n, k) in strips of 16 columns; returns their tensor."""
    (experts, n, k), known = w.shape, w.known
    count = -(-n // COLUMNS)
    if known is not None:
        label = f"{w.name}:experts:{experts}x{n}x{k}"
        return tuner.constant(label, partial(pack_strips, known, experts, (n * k, 1, k), k, n))
    name = tuner.temporary(experts * count * k * COLUMNS, w.dtype)
    grid, numbers = (-(-k // STRIP_ROWS), count, experts), (n, k, n * k, 1, k, count)
    tuner.emit(strips("float32"), grid, numbers, (w.root.name,), name)
    return name


def _multiply(product: ExpertProduct, compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Emit the product."""
    step = ThreadStep(
        product.values[0], (), NAMES, product.values, product.inputs(_packed(product.w, tuner)),
        compute.output.name, rounds=("k",), is_alone=True, area=_ROWS * COLUMNS,
    )  # fmt: skip
    return dialect.emit_with_epilogue(compute, tuner, step, lambda store: _statements(dialect, store))


def _statements(dialect: KernelDialect, store: Store) -> list[str]:
    """Statements of work-item `t`, as `cpu_gemm.matmul` computes a tile."""
    rows = range(_ROWS)
    return [
        "if (t >= threads) return;",
        f"const int place = t / strips, strip = t - place * strips, first = strip * {COLUMNS};",
        f"__global const int* pairs = P + place * {_ROWS};",
        "if (pairs[0] < 0) return;",
        "const long expert = E[pairs[0]];",
        # Rows that are not there repeat another one, and are not stored.
        *(f"__global const float* x{r} = X + (long)(max(pairs[{r}], 0) / per_row) * k;" for r in rows),
        f"__global const float* w = L + (expert * strips + strip) * k * {COLUMNS};",
        *(f"float16 a{r} = 0.0f;" for r in rows),
        f"for (int c = 0; c < k; ++c, w += {COLUMNS}) {{",
        "    const float16 v = *(__global const loose16*)w;",
        *(f"    ADD16(a{r}, x{r}[c], v);" for r in rows),
        "}",
        f"float tile[{_ROWS * COLUMNS}];",
        *(f"*(loose16*)(tile + {COLUMNS * r}) = a{r};" for r in rows),
        f"for (int r = 0; r < {_ROWS}; ++r) {{",
        "    const int pair = pairs[r];",
        f"    for (int l = 0; l < min({COLUMNS}, n - first) && pair >= 0; ++l) {{",
        *(f"        {line}" for line in store("pair * n + first + l", f"tile[r * {COLUMNS} + l]")),
        "    }",
        "}",
    ]
