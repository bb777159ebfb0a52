"""Matrix products of float32 or integers of 32 bits: (batch, m, k) by (batch, k, n).

Where tensors are buffer textures (software rendering), a thread computes four rows by four columns and
reads four floats a fetch wherever strides allow: along k, m or n. Elsewhere groups of 256 threads compute 64
by 64 through shared memory, and single rows 32 columns with k split over eight threads each.
A known second matrix is packed as (k, n), in slices of columns where it exceeds what a shader can address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Literal

import numpy as np

from engine.backends.gl.compute.epilogue import FIRST_GROUP, GLSLEpilogue, grid_fits, has_kernels, product_ns
from engine.backends.gl.compute.printer import flat_thread
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.glsl import COMPONENTS
from engine.backends.gl.storage import lanes
from engine.backends.operands import rows_of
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.size import largest, smallest
from engine.kernels.value import Value

Access = Literal["k4", "m4", "n4", "n4 shifted", "scalar"]
"""How a matrix is read: four floats along k, m or n in a fetch (or in two, where rows do not start at
multiples of four elements), or one by one."""

_LOCAL_SIZE = 64
_ROWS = 4
_COLUMNS = 4
_TILE = 64
_DEPTH = 16
_ROUNDS = (2,)
# Rounds of loops at most: in a tile for each element of k, and for storing.
_TILE_ROUNDS = 2
_STORE_ROUNDS = 32
_OWN = (*"m n depth batch_a row_a step_a batch_b step_b column_b first width batches".split(), *FIRST_GROUP)


@dataclass(frozen=True)
class _Product:
    """Sizes and strides in elements: (batch, row, step along k) of a, (batch, step along k, column) of b."""

    batch: int
    m: int
    n: int
    k: int
    a: tuple[int, int, int]
    b: tuple[int, int, int]


@dataclass(frozen=True)
class _Term:
    """What is summed: GLSL for a term of two numbers, for the sum of those of two vectors, and functions."""

    of_numbers: str
    of_vectors: str
    head: str = ""

    def of(self, x: str, w: str) -> str:
        """The text of a term; `w` may be a vector."""
        return self.of_numbers.format(x, w)

    def sum_of(self, x: str, w: str) -> str:
        """The text of the sum of four terms."""
        return self.of_vectors.format(x, w)


_TERMS = {
    "matmul": _Term("{} * {}", "dot({}, {})"),
    "squared_distances": _Term(
        "squared({} - {})",
        "squares({} - {})",
        """float squared(float x) { return x * x; }
vec4 squared(vec4 x) { return x * x; }
float squares(vec4 x) { return dot(x, x); }

""",
    ),
}
"""By the kind of a step's hint."""


@dataclass(frozen=True)
class _Structure:
    """The properties that the shader's text depends on."""

    a: Access
    b: Access
    rows: int
    step: int = 1
    """How much of k a round of a thread's loop takes."""
    term: _Term = _TERMS["matmul"]


def tune_matmul(compute: Compute, tuner: Tuner, target: ShaderTarget) -> bool:
    """Replace a matrix product; False for other types, or too many tensors in the epilogue."""
    a, b = compute.operands
    if not has_kernels(compute, a, b) or lanes(compute.output.dtype.name) > 1:
        return False
    assert compute.hint is not None
    term, product = _TERMS[compute.hint.kind], _product(compute)
    if _is_endless(product, target):
        return False
    if target.texels and _is_fixed(b) and product.n == 1 and not (_is_fixed(a) and product.m == 1):
        # The results of a column lie as those of a row: of the transposed product, whose tiles are full.
        swapped = _Product(
            product.batch, 1, product.m, product.k, (product.b[0], 0, product.b[1]),
            (product.a[0], product.a[2], product.a[1]),
        )  # fmt: skip
        structure = replace(_structure(b, a, swapped, False, target), term=term)
        operands = (rows_of(b, tuner), a.root.name)
        return _emit(compute, tuner, target, swapped, structure, operands, (0, swapped.n))
    packed = _is_packable(compute)
    structure = replace(_structure(a, b, product, packed, target), term=term)
    slices = _slices(product, target) if packed else [(0, product.n)]
    if not slices:
        return False
    for first, width in slices:
        name = b.root.name
        if packed:
            assert b.known is not None
            pack = partial(pack_columns, b.known, product.k, product.b[1:], first, width)
            # One tensor may serve several products, read as it is or transposed.
            layout = f"{product.k},{product.b[1]},{product.b[2]}:{first}+{width}"
            name = tuner.constant(f"{b.name}:gl_columns:{layout}", pack)
        steps = (0, -(-width // 4) * 4, 1) if packed else product.b
        part = replace(product, b=steps)
        if not _emit(compute, tuner, target, part, structure, (a.root.name, name), (first, width)):
            return False
    return True


def tune_pointwise(compute: Compute, tuner: Tuner, target: ShaderTarget) -> bool:
    """Replace a convolution of one group by single taps without padding: weights (m, c) by pixels (c, n)."""
    x, w = compute.operands
    m, c = w.shape[:2]
    pixels = prod(x.shape[2:])
    product = _Product(x.shape[0], m, pixels, c, (0, c, 1), (c * pixels, pixels, 1))
    if _is_endless(product, target):
        return False
    fixed = all(x.is_static(axis) for axis in range(2, x.rank))
    b: Access = "n4" if fixed and pixels % 4 == 0 else "n4 shifted"
    rows = 1 if m == 1 else _ROWS
    structure = _Structure("k4", b, rows, 4) if c % 4 == 0 else _Structure("scalar", b, rows)
    if not target.texels:
        structure = _Structure("scalar", "scalar", rows)
    return _emit(compute, tuner, target, product, structure, (rows_of(w, tuner), x.root.name), (0, pixels))


def _emit(
    compute: Compute,
    tuner: Tuner,
    target: ShaderTarget,
    product: _Product,
    structure: _Structure,
    operands: tuple[str, str],
    columns: tuple[int, int],
) -> bool:
    """Add the dispatch for a range of columns (first, count); False if it does not fit."""
    first, width = columns
    widths = [1 if access == "scalar" else 4 for access in (structure.a, structure.b)]
    finish = GLSLEpilogue(compute, list(zip(operands, widths, strict=True)), 0, target)
    grid, local_size = _grid(product, structure, width, target)
    if not finish.fits() or not grid_fits(grid, target):
        return False
    text = _texel_main(structure, finish) if target.texels else _storage_main(structure, finish)
    own = [product.m, product.n, product.k, *product.a, *product.b, first, width, product.batch, 0, 0, 0]
    round_ns = product_ns(structure.rows * _COLUMNS, 1 + structure.rows // 4)
    kernel = finish.kernel_for(text, len(_OWN), local_size, _ROUNDS, round_ns, is_folded=target.texels)
    finish.emit(tuner, kernel, grid, own)
    return True


def slices_constant(compute: Compute, value: Value, target: ShaderTarget) -> bool:
    """Whether this operand is a known second matrix that fits in slices."""
    hint = compute.hint
    if hint is None or hint.kind != "matmul" or not has_kernels(compute, *hint.operands):
        return False
    b = hint.operands[1]
    return value is b.root and _is_packable(compute) and bool(_slices(_product(compute), target))


def _product(compute: Compute) -> _Product:
    attributes = compute.attributes
    batch, m, n, k = attributes["batch"], attributes["m"], attributes["n"], attributes["k"]
    a, b = tuple(attributes["a_strides"]), tuple(attributes["b_strides"])
    if b[0] == 0 and a[0] == m * a[1]:
        # One matrix for the whole batch: its rows are just more rows.
        batch, m = 1, batch * m
    return _Product(batch, m, n, k, (a[0], a[1], a[2]), (b[0], b[1], b[2]))


def _is_packable(compute: Compute) -> bool:
    b, attributes = compute.operands[1], compute.attributes
    return b.known is not None and b.size == attributes["k"] * attributes["n"]


def _structure(a: Value, b: Value, p: _Product, packed: bool, target: ShaderTarget) -> _Structure:
    rows = 1 if _is_fixed(a) and p.m == 1 else _ROWS
    if not target.texels:
        return _Structure("scalar", "scalar", rows)
    # One side that has it tells that it is the same for all input shapes.
    fixed_k = (
        b.known is not None
        or a.known is not None
        or _is_last_fixed(a, p.a[2], p.k)
        or _is_last_fixed(b, p.b[1], p.k)
    )
    whole_k = fixed_k and p.k % 4 == 0
    a_access: Access = "scalar"
    if whole_k and p.a[2] == 1 and (p.a[1] in (p.k, 0) or _are_aligned(a, p.a[:2])):
        a_access = "k4"
    elif rows == _ROWS and p.a[1] == 1 and _are_aligned(a, p.a[::2]) and p.m % 4 == 0:
        a_access = "m4"
    b_access: Access = "scalar"
    whole_n = _is_last_fixed(b, p.b[2], p.n) and p.n % 4 == 0
    if packed or (whole_n and (p.b[1] == p.n or _are_aligned(b, p.b[:2]))):
        b_access = "n4"
    elif whole_k and p.b[1] == 1 and (p.b[2] in (p.k, 0) or _are_aligned(b, p.b[::2])):
        b_access = "k4"
    return _Structure(a_access, b_access, rows, 4 if whole_k else 1)


def _is_fixed(value: Value) -> bool:
    """Whether all dimensions have one size for all input shapes."""
    return value.known is not None or all(value.is_static(axis) for axis in range(value.rank))


def _are_aligned(value: Value, steps: Sequence[int]) -> bool:
    """Whether steps through a tensor lead from texel to texel, for all input shapes."""
    return _is_fixed(value) and all(step % 4 == 0 for step in steps)


def _is_last_fixed(value: Value, step: int, size: int) -> bool:
    """Whether `size`, along which elements are neighbours, is one size for all input shapes."""
    return step == 1 and value.rank > 0 and value.shape[-1] == size and value.is_static(value.rank - 1)


def _slices(p: _Product, target: ShaderTarget) -> list[tuple[int, int]]:
    """(first column, columns) of each part of the second matrix; empty if not even four columns fit."""
    if _is_endless(p, target):
        return []
    columns = target.limits.max_storage_block_size // (4 * max(p.k, 1)) // 4 * 4
    if not columns:
        return []
    return [(first, min(columns, p.n - first)) for first in range(0, p.n, columns)]


def _is_endless(p: _Product, target: ShaderTarget) -> bool:
    """Whether the driver would end a thread's loops before the sum is complete."""
    each = 1 if target.texels else _TILE_ROUNDS
    return p.k * each + _STORE_ROUNDS > target.limits.max_loop_rounds


@storable
def pack_columns(b: np.ndarray, k: int, strides: tuple[int, ...], first: int, width: int) -> np.ndarray:
    """Columns of a matrix of k rows as (k, width), the width padded to a multiple of four.

    strides: elements from row to row and from column to column.
    """
    flat = np.ascontiguousarray(b).reshape(-1)
    in_bytes = [step * flat.itemsize for step in strides]
    part = np.lib.stride_tricks.as_strided(flat[first * strides[1] :], (k, width), in_bytes)
    packed = np.zeros((k, -(-width // 4) * 4), flat.dtype)
    packed[:, :width] = part
    return packed.reshape(-1)


def _grid(
    p: _Product, structure: _Structure, width: int, target: ShaderTarget
) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """Groups, and threads in a group."""
    if target.texels:
        threads = -(-width // _COLUMNS) * -(-p.m // structure.rows) * p.batch
        groups = -(-threads // _LOCAL_SIZE)
        across = largest(1, smallest(groups, target.limits.max_compute_group_count[0]))
        return (across, -(-groups // across), 1), (_LOCAL_SIZE, 1)
    if structure.rows == 1:
        return (-(-width // 32), p.m, p.batch), (32, 8)
    return (-(-width // _TILE), -(-p.m // _TILE), p.batch), (16, 16)


_BATCH = "int batch = int(gl_WorkGroupID.z) + group_z;"


def _texel_main(structure: _Structure, finish: GLSLEpilogue) -> str:
    """Some rows by four columns in a thread; threads are counted through a matrix, then through the batch."""
    rows, step, term = structure.rows, structure.step, structure.term
    lines = [
        f"int thread = {flat_thread(_LOCAL_SIZE)} + group_x * {_LOCAL_SIZE};",
        f"int quads = (width + {_COLUMNS - 1}) / {_COLUMNS}, blocks = (m + {rows - 1}) / {rows};",
        "int block = thread / max(quads, 1);",
        f"int column = (thread - block * quads) * {_COLUMNS};",
        "int batch = block / max(blocks, 1);",
        f"int y = (block - batch * blocks) * {rows};",
        "if (batch >= batches) return;",
    ]
    if structure.a == "m4":
        lines.append("int a0 = (batch * batch_a + y) / 4; step_a /= 4;")
    else:
        # Rows and columns beyond the end repeat the last one, and are not stored.
        lines += [f"int a{r} = batch * batch_a + min(y + {r}, m - 1) * row_a;" for r in range(rows)]
    if structure.a == "k4":
        lines += [f"a{r} /= 4;" for r in range(rows)]
    if structure.b == "n4":
        lines.append("int at = (batch * batch_b + column) / 4; step_b /= 4;")
    elif structure.b == "n4 shifted":
        lines.append("int at = batch * batch_b + column;")
    else:
        lines += [
            f"int at{j} = batch * batch_b + min(column + {j}, width - 1) * column_b;" for j in range(_COLUMNS)
        ]
        if structure.b == "k4":
            lines += [f"at{j} /= 4;" for j in range(_COLUMNS)]
    lines += [f"vec4 s{r} = vec4(0.0);" for r in range(rows)]
    lines.append(f"for (int k = 0; k < depth; k += {step}) {{")
    lines += _fetch_b(structure.b, step) + _fetch_a(structure.a, step, rows)
    for r in range(rows):
        if structure.b == "k4":
            sums = ", ".join(term.sum_of(f"x{r}", f"w{j}") for j in range(_COLUMNS))
            lines.append(f"    s{r} += vec4({sums});")
        elif step == 1:
            lines.append(f"    s{r} += {term.of(f'x{r}', 'w0')};")
        else:
            lines += [f"    s{r} += {term.of(f'x{r}.{COMPONENTS[u]}', f'w{u}')};" for u in range(step)]
    lines.append("}")
    inits = ", ".join(f"s{r}.{c}" for r in range(rows) for c in COMPONENTS)
    lines += [
        f"float results[{rows * _COLUMNS}] = float[{rows * _COLUMNS}]({inits});",
        f"for (int r = 0; r < {rows} && y + r < m; ++r) {{",
        "    int i = (batch * m + y + r) * n + first + column;",
        f"    for (int j = 0; j < {_COLUMNS} && column + j < width; ++j)"
        f" finish(i + j, results[r * {_COLUMNS} + j]);",
        "}",
    ]
    return (_SHIFTED if structure.b == "n4 shifted" else "") + term.head + finish.main(_OWN, lines)


_SHIFTED = """vec4 shifted(vec4 low, vec4 high, int by) {
    bool by2 = (by & 2) != 0;
    vec4 u = by2 ? vec4(low.zw, high.xy) : low;
    return (by & 1) != 0 ? vec4(u.yzw, by2 ? high.z : high.x) : u;
}

"""
"""Four of eight neighbours, from position `by` modulo four."""


def _fetch_b(access: Access, step: int) -> list[str]:
    """w0...: along n one vector for each step of k; along k one vector for each column."""
    if access == "n4":
        return [f"    vec4 w{u} = texelFetch(b1, at + (k + {u}) * step_b);" for u in range(step)]
    if access == "n4 shifted":
        return [
            line
            for u in range(step)
            for line in (
                f"    int p{u} = at + (k + {u}) * step_b;",
                f"    vec4 w{u} = shifted(texelFetch(b1, p{u} >> 2), texelFetch(b1, (p{u} >> 2) + 1), p{u});",
            )
        ]
    if access == "k4":
        return [f"    vec4 w{j} = texelFetch(b1, at{j} + (k >> 2));" for j in range(_COLUMNS)]
    lines = []
    for u in range(step):
        loads = ", ".join(f"texelFetch(b1, at{j} + (k + {u}) * step_b).x" for j in range(_COLUMNS))
        lines.append(f"    vec4 w{u} = vec4({loads});")
    return lines


def _fetch_a(access: Access, step: int, rows: int) -> list[str]:
    """x0...: one float or vector along k for each row."""
    if access == "k4":
        return [f"    vec4 x{r} = texelFetch(b0, a{r} + (k >> 2));" for r in range(rows)]
    if access == "m4":
        lines = [f"    vec4 t{u} = texelFetch(b0, a0 + (k + {u}) * step_a);" for u in range(step)]
        for r in range(rows):
            of_row = ", ".join(f"t{u}.{COMPONENTS[r]}" for u in range(step))
            lines.append(f"    float x{r} = {of_row};" if step == 1 else f"    vec4 x{r} = vec4({of_row});")
        return lines
    if step == 1:
        return [f"    float x{r} = texelFetch(b0, a{r} + k * step_a).x;" for r in range(rows)]
    lines = []
    for r in range(rows):
        loads = ", ".join(f"texelFetch(b0, a{r} + (k + {u}) * step_a).x" for u in range(4))
        lines.append(f"    vec4 x{r} = vec4({loads});")
    return lines


def _storage_main(structure: _Structure, finish: GLSLEpilogue) -> str:
    text = _row_main(finish, structure.term) if structure.rows == 1 else _tile_main(finish, structure.term)
    return structure.term.head + text


def _row_main(finish: GLSLEpilogue, term: _Term) -> str:
    """32 columns of one row in a group; eight threads share a column's sum."""
    return "shared float sums[256];\n\n" + finish.main(
        _OWN,
        [
            _BATCH,
            "int x = int(gl_LocalInvocationID.x), part = int(gl_LocalInvocationID.y);",
            "int column = (int(gl_WorkGroupID.x) + group_x) * 32 + x;",
            "int y = int(gl_WorkGroupID.y) + group_y;",
            "int a = batch * batch_a + y * row_a;",
            "int b = batch * batch_b + column * column_b;",
            "float sum = 0.0;",
            "if (column < width && y < m)",
            "    for (int k = part; k < depth; k += 8)",
            f"        sum += {term.of('b0[a + k * step_a]', 'b1[b + k * step_b]')};",
            "sums[part * 32 + x] = sum;",
            "barrier();",
            "if (part != 0 || column >= width || y >= m) return;",
            "for (int p = 1; p < 8; ++p) sum += sums[p * 32 + x];",
            "finish((batch * m + y) * n + first + column, sum);",
        ],
    )


def _tile_main(finish: GLSLEpilogue, term: _Term) -> str:
    """64 by 64 of the output in a group; both matrices pass through shared memory, 16 of k at a time."""
    rows = [f"vec4 s{r} = vec4(0.0);" for r in range(4)]
    products = [f"        s{r} += {term.of(f'left[j][y * 4 + {r}]', 'w')};" for r in range(4)]
    inits = ", ".join(f"s{r}.{c}" for r in range(4) for c in COMPONENTS)
    shared_memory = f"shared float left[{_DEPTH}][{_TILE + 1}];\nshared float right[{_DEPTH}][{_TILE}];\n\n"
    return shared_memory + finish.main(
        _OWN,
        [
            _BATCH,
            "int x = int(gl_LocalInvocationID.x), y = int(gl_LocalInvocationID.y);",
            "int thread = y * 16 + x;",
            f"int row = (int(gl_WorkGroupID.y) + group_y) * {_TILE};",
            f"int column = (int(gl_WorkGroupID.x) + group_x) * {_TILE};",
            *rows,
            f"for (int k = 0; k < depth; k += {_DEPTH}) {{",
            f"    for (int e = thread; e < {_TILE * _DEPTH}; e += 256) {{",
            # Neighbouring threads read neighbouring elements: along k of a, along n of b.
            f"        int ka = k + e % {_DEPTH}, ra = row + e / {_DEPTH};",
            "        bool has_a = ka < depth && ra < m;",
            "        int at_a = has_a ? batch * batch_a + ra * row_a + ka * step_a : 0;",
            f"        left[e % {_DEPTH}][e / {_DEPTH}] = has_a ? b0[at_a] : 0.0;",
            f"        int kb = k + e / {_TILE}, cb = column + e % {_TILE};",
            "        bool has_b = kb < depth && cb < width;",
            "        int at_b = has_b ? batch * batch_b + kb * step_b + cb * column_b : 0;",
            f"        right[e / {_TILE}][e % {_TILE}] = has_b ? b1[at_b] : 0.0;",
            "    }",
            "    barrier();",
            f"    for (int j = 0; j < {_DEPTH}; ++j) {{",
            "        vec4 w = vec4(right[j][x], right[j][x + 16], right[j][x + 32], right[j][x + 48]);",
            *products,
            "    }",
            "    barrier();",
            "}",
            f"float results[16] = float[16]({inits});",
            "for (int r = 0; r < 4; ++r) {",
            "    int at = row + y * 4 + r;",
            "    for (int j = 0; j < 4; ++j) {",
            "        int c = column + x + j * 16;",
            "        if (at < m && c < width) finish((batch * m + at) * n + first + c, results[r * 4 + j]);",
            "    }",
            "}",
        ],
    )
