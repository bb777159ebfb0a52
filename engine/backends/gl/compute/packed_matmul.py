"""Matrix products of a few rows with packed low-bit weights.

Where tensors are buffer textures (software rendering), a thread computes four columns and reads four bytes a
fetch. Elsewhere 32 threads share a column, so that neighbours read neighbouring words.
"""

from __future__ import annotations

from engine.backends.gl.compute.epilogue import FIRST_GROUP, Epilogue, grid_fits, product_ns
from engine.backends.gl.compute.flat_grid import LOCAL_SIZE, flat_grid
from engine.backends.gl.compute.printer import element, flat_thread
from engine.backends.gl.compute.target import Target
from engine.backends.gl.glsl import COMPONENTS
from engine.backends.gpu.packed_matmul import PackedRows
from engine.compiler.plan import Compute, Tuner

_COLUMNS = 4
_LANES = 32
_GROUP_COLUMNS = 8
_NAMES = ("m", "n", "words", "blocks", "zero_bytes", *FIRST_GROUP)
_ROUNDS = (2,)
# Rounds of loops at most: for a word, for a block, and for storing.
_WORD_ROUNDS = 3
_STORE_ROUNDS = 32


def read_packed(rows: PackedRows, compute: Compute, tuner: Tuner, target: Target) -> bool:
    """Emit the product; returns False if it exceeds the driver's loop or binding limits."""
    words = rows.k * rows.bits // 32
    if words * _WORD_ROUNDS + _STORE_ROUNDS > target.limits.max_loop_rounds:
        return False
    # Several bytes at once: four from a texture, a word from a storage buffer.
    widths = (4, 4 if target.texels else 1, 1, 1)
    operands = [(v.root.name, w) for v, w in zip(rows.operands, widths, strict=False)]
    kinds = [v.dtype.name for v in rows.operands]
    finish = Epilogue(compute, operands, 0, target, kinds)
    grid, local_size = _grid(rows, target)
    if not finish.fits() or not grid_fits(grid, target):
        return False
    main = _texel_main(rows, finish) if target.texels else _storage_main(rows, finish)
    own = [rows.rows, rows.n, words, rows.blocks, rows.zero_bytes, 0, 0, 0]
    round_ns = product_ns(_COLUMNS * 32 // rows.bits, 1 + _COLUMNS)
    kernel = finish.kernel_for(main, len(own), local_size, _ROUNDS, round_ns, is_folded=target.texels)
    finish.emit(tuner, kernel, grid, own)
    return True


def _grid(rows: PackedRows, target: Target) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """Groups, and threads in a group."""
    if not target.texels:
        return (-(-rows.n // _GROUP_COLUMNS), rows.rows, 1), (_LANES, _GROUP_COLUMNS)
    return flat_grid(-(-rows.n // _COLUMNS) * rows.rows, target), (LOCAL_SIZE, 1)


def _scale(rows: PackedRows, column: str, texels: bool) -> str:
    return element("b2", f"{column} * blocks + block", rows.scales.dtype.name, texels)


def _zero(rows: PackedRows, column: str, texels: bool) -> str:
    """The zero point of a column's block."""
    if rows.zeros is None:
        return f"{1 << (rows.bits - 1)}.0"
    if rows.bits == 8:
        return f"float({element('b3', f'({column} * zero_bytes + block)', 'uint8', texels)})"
    byte = element("b3", f"({column} * zero_bytes + block / 2)", "uint8", texels)
    return f"float(({byte} >> ((block & 1) * 4)) & 15)"


def _texel_main(rows: PackedRows, finish: Epilogue) -> str:
    each = range(_COLUMNS)
    if rows.bits == 4:
        load = [
            "vec4 x0 = texelFetch(b0, a), x1 = texelFetch(b0, a + 1);",
            "vec4 even = vec4(x0.xz, x1.xz), odd = vec4(x0.yw, x1.yw);",
            "a += 2;",
        ]
        product = "dot(even, vec4(q{c} & 15u) - z{c}) + dot(odd, vec4(q{c} >> 4u) - z{c})"
    else:
        load = ["vec4 x = texelFetch(b0, a++);"]
        product = "dot(x, vec4(q{c}) - z{c})"
    lines = [
        f"int thread = {flat_thread(LOCAL_SIZE)} + group_x * {LOCAL_SIZE};",
        f"int quads = (n + {_COLUMNS - 1}) / {_COLUMNS};",
        "int y = thread / max(quads, 1);",
        f"int column = (thread - y * quads) * {_COLUMNS};",
        "if (y >= m) return;",
        f"int a = y * words * {8 // rows.bits};",
        *(f"int c{c} = min(column + {c}, n - 1), at{c} = c{c} * words;" for c in each),
        "vec4 sums = vec4(0.0);",
        "for (int block = 0; block < blocks; ++block) {",
        *(f"    float z{c} = {_zero(rows, f'c{c}', True)};" for c in each),
        "    vec4 part = vec4(0.0);",
        f"    for (int t = 0; t < {rows.block * rows.bits // 32}; ++t) {{",
        *(f"        {line}" for line in load),
        *(f"        uvec4 q{c} = texelFetch(b1, at{c}++);" for c in each),
        *(f"        part.{COMPONENTS[c]} += {product.format(c=c)};" for c in each),
        "    }",
        f"    sums += part * vec4({', '.join(_scale(rows, f'c{c}', True) for c in each)});",
        "}",
        *(f"if (column + {c} < n) finish(y * n + column + {c}, sums.{COMPONENTS[c]});" for c in each),
    ]
    return finish.main(_NAMES, lines)


def _storage_main(rows: PackedRows, finish: Epilogue) -> str:
    per_word, mask = 32 // rows.bits, (1 << rows.bits) - 1
    vectors = per_word // 4
    products = []
    for v in range(vectors):
        numbers = ", ".join(f"(q >> {rows.bits * (4 * v + k)}) & {mask}u" for k in range(4))
        products.append(f"part += dot(b0[a + word * {vectors} + {v}], vec4({numbers}) - zero);")
    lines = [
        "int lane = int(gl_LocalInvocationID.x), line = int(gl_LocalInvocationID.y);",
        f"int column = (int(gl_WorkGroupID.x) + group_x) * {_GROUP_COLUMNS} + line;",
        "int y = int(gl_WorkGroupID.y) + group_y;",
        f"int a = y * words * {vectors};",
        "float sum = 0.0;",
        "if (column < n && y < m) {",
        f"    for (int word = lane; word < words; word += {_LANES}) {{",
        "        uint q = b1[column * words + word];",
        f"        int block = int(uint(word) / {rows.block // per_word}u);",
        f"        float zero = {_zero(rows, 'column', False)};",
        "        float part = 0.0;",
        *(f"        {line}" for line in products),
        f"        sum += part * {_scale(rows, 'column', False)};",
        "    }",
        "}",
        f"int place = line * {_LANES} + lane;",
        "sums[place] = sum;",
        f"for (int other = {_LANES // 2}; other > 0; other /= 2) {{",
        "    barrier();",
        "    if (lane < other) sums[place] += sums[place + other];",
        "}",
        "if (lane == 0 && column < n && y < m) finish(y * n + column, sums[place]);",
    ]
    head = f"shared float sums[{_LANES * _GROUP_COLUMNS}];\n\n"
    return head + finish.main(_NAMES, lines)
