"""Shaders of the tuned kernels: packing, multiplication and epilogue.

A packed texel holds four neighbours along the axis that is summed over. A fragment of a product shader
computes 32 results, a block of 8 rows by 4 columns or so, and writes them to 8 layers at once; so a fetched
texel takes part in 16 to 32 products. The epilogue shader reads one of them per element and stores a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from engine.backends.gl.glsl import argument
from engine.backends.gl.pixel.printer import FragmentPrinter, StageArguments, shader_text, texel_number
from engine.backends.gl.pixel.shader import Shader
from engine.base.dtypes import ArithmeticType
from engine.kernels.kernel import Kernel

LAYERS = 8
ROWS = 8
"""Rows of a block: one layer each."""
COLUMNS = 4
"""Columns of a block: one component each."""
DEPTHWISE_COLUMNS = 8
"""Pixels of a block of a depthwise convolution, by four channels."""

# Of one processor, for the 128 products of a round.
_BLOCK_NS = 40.0


def _shader(
    names: Sequence[str],
    inputs: Sequence[str],
    text: str,
    layers: int = 0,
    rounds: Sequence[str] = (),
    ns: float = 20.0,
) -> Shader:
    """A shader over float32 inputs; `names` are its ints, by which `text` calls them."""
    params: tuple[ArithmeticType, ...] = tuple("index" for _ in names)
    stage = StageArguments(len(names), len(inputs))
    head = "".join(f"#define {name} {argument(k)}\n" for k, name in enumerate(names))
    text = text.replace("TEXEL;", texel_number(stage, layers))
    main = head + text.replace("SHIFT1", stage.input_shift(len(inputs) - 1))
    source = shader_text([("float32", False) for _ in inputs], "float32", layers, stage, stage.tail, main)
    return Shader(
        source, params, tuple("float32" for _ in inputs), "float32", layers=layers,
        rounds=tuple(names.index(r) for r in rounds), round_ns=ns,
    )  # fmt: skip


def _pixels(first: str, count: int) -> str:
    """Statements that define `p0`...: where the pixels from number `first` on start in a packed image."""
    return "\n".join(
        f"    q = min({first} + {p}, LAST);\n"
        f"    row = k_quotient(q, OW);\n"
        f"    int p{p} = row * ROW_STEP + (q - row * OW) * COLUMN_STEP;"
        for p in range(count)
    )


PACK_IMAGE = ("C4", "CG", "H", "W", "HP", "WP", "TOP", "LEFT")


@cache
def pack_image() -> Shader:
    """(sets, CG, H, W) -> texels (sets, C4, HP, WP) of four channels, with 0 around the image."""
    return _shader(
        PACK_IMAGE,
        ("x",),
        """
void main() {
    TEXEL;
    int plane = k_quotient(t, HP * WP);
    int rest = t - plane * (HP * WP);
    int row = k_quotient(rest, WP);
    int w = rest - row * WP - LEFT;
    int h = row - TOP;
    int set = k_quotient(plane, C4);
    int c = (plane - set * C4) * 4;
    bool inside = h >= 0 && h < H && w >= 0 && w < W;
    int at = inside ? ((set * CG + c) * H + h) * W + w : 0;
    int step = inside ? H * W : 0;
    int last = CG - 1 - c;
    float x0 = k_at0(at);
    float x1 = k_at0(at + min(1, last) * step);
    float x2 = k_at0(at + min(2, last) * step);
    float x3 = k_at0(at + min(3, last) * step);
    o = inside ? vec4(x0, last >= 1 ? x1 : 0.0, last >= 2 ? x2 : 0.0, last >= 3 ? x3 : 0.0) : vec4(0.0);
}
""",
    )


PACK_MATRIX = ("K4", "K", "N", "COUNT", "SIDE", "SET_STEP", "N_STEP", "K_STEP")


@cache
def pack_matrix() -> Shader:
    """Vectors n of a strided matrix -> texels of four of their K elements.

    SIDE is how many vectors lie together: texels are (sets, COUNT / SIDE, K4, SIDE), 0 beyond N and K.
    """
    return _shader(
        PACK_MATRIX,
        ("x",),
        """
void main() {
    TEXEL;
    int lead = k_quotient(t, SIDE);
    int within = t - lead * SIDE;
    int block = k_quotient(lead, K4);
    int k = (lead - block * K4) * 4;
    int set = k_quotient(block, k_quotient(COUNT, SIDE));
    int n = (block - set * k_quotient(COUNT, SIDE)) * SIDE + within;
    int at = set * SET_STEP + min(n, N - 1) * N_STEP + k * K_STEP;
    int last = n < N ? K - 1 - k : -1;
    float x0 = k_at0(at);
    float x1 = k_at0(at + max(min(1, last), 0) * K_STEP);
    float x2 = k_at0(at + max(min(2, last), 0) * K_STEP);
    float x3 = k_at0(at + max(min(3, last), 0) * K_STEP);
    o = vec4(last >= 0 ? x0 : 0.0, last >= 1 ? x1 : 0.0, last >= 2 ? x2 : 0.0, last >= 3 ? x3 : 0.0);
}
""",
    )


PRODUCT = (
    "QUADS", "BLOCKS", "X_SETS", "W_SETS", "C4", "KH", "KW", "X_SET", "W_BLOCK", "NEXT_PLANE", "NEXT_ROW",
    "RIGHT", "ROW_STEP", "COLUMN_STEP", "OW", "LAST",
)  # fmt: skip


@cache
def product() -> Shader:
    """Blocks of 8 rows (output channels) by 4 columns (output pixels, LAST + 1 of them, OW to a row).

    b0: packed image, X_SETS of X_SET texels; pixel (h, w) starts at h * ROW_STEP + w * COLUMN_STEP in it, its
    taps lie RIGHT apart; NEXT_ROW leads from the last tap of a row to the next row's first, NEXT_PLANE from
    the last tap of all to the first in the next four channels. b1: weights, W_BLOCK texels to a block of
    rows. Fragments are (sets, BLOCKS, QUADS).
    """
    fetches = "\n".join(f"        vec4 x{p} = k_texel0(at + p{p});" for p in range(COLUMNS))
    turned = "\n".join(
        f"        vec4 y{i} = vec4(x0.{c}, x1.{c}, x2.{c}, x3.{c});" for i, c in enumerate("xyzw")
    )
    products = "\n".join(
        f"        v = texelFetch(b1, from + ivec2({j}, 0), 0);\n"
        f"        a{j} += (v.x * y0 + v.y * y1) + (v.z * y2 + v.w * y3);"
        for j in range(ROWS)
    )
    text = f"""
void main() {{
    TEXEL;
    int lead = k_quotient(t, QUADS);
    int quad = t - lead * QUADS;
    int set = k_quotient(lead, BLOCKS);
    int block = lead - set * BLOCKS;
    int at = k_remainder(set, X_SETS) * X_SET;
    int weight = (k_remainder(set, W_SETS) * BLOCKS + block) * W_BLOCK;
    int q, row;
{_pixels("quad * 4", COLUMNS)}
    {" ".join(f"vec4 a{j} = vec4(0.0);" for j in range(ROWS))}
    vec4 v;
    int w = 0, h = 0;
    // One loop over channels and taps: inner loops of one round would cost as much as their body.
    for (int n = C4 * KH * KW; n > 0; --n) {{
{fetches}
{turned}
        ivec2 from = ivec2(weight & ((1 << SHIFT1) - 1), weight >> SHIFT1);
{products}
        weight += {ROWS};
        bool new_row = ++w == KW;
        w = new_row ? 0 : w;
        h += int(new_row);
        bool new_plane = h == KH;
        h = new_plane ? 0 : h;
        at += new_plane ? NEXT_PLANE : (new_row ? NEXT_ROW : RIGHT);
    }}
    {" ".join(f"o{j} = a{j};" for j in range(ROWS))}
}}
"""
    return _shader(PRODUCT, ("x", "w"), text, LAYERS, ("C4", "KH", "KW"), _BLOCK_NS)


DEPTHWISE = (
    "GROUPS", "C4", "KH", "KW", "PLANE", "DOWN", "RIGHT", "ROW_STEP", "COLUMN_STEP", "OW", "LAST",
)  # fmt: skip


@cache
def depthwise() -> Shader:
    """Depthwise convolution: blocks of 8 pixels by 4 channels; arguments as in `product`.

    Fragments are (images, C4, GROUPS); layer k + 4 * h holds channel k of pixels 4 * h to 4 * h + 3.
    """
    pixels = range(DEPTHWISE_COLUMNS)
    stores = "\n".join(
        f"    o{k + 4 * half} = vec4({', '.join(f'a{4 * half + p}.{c}' for p in range(4))});"
        for half in range(2)
        for k, c in enumerate("xyzw")
    )
    text = f"""
void main() {{
    TEXEL;
    int lead = k_quotient(t, GROUPS);
    int group = t - lead * GROUPS;
    int image = lead * PLANE;
    int weight = k_remainder(lead, C4) * KH * KW;
    int q, row;
{_pixels(f"group * {DEPTHWISE_COLUMNS}", DEPTHWISE_COLUMNS)}
    {" ".join(f"vec4 a{p} = vec4(0.0);" for p in pixels)}
    for (int h = 0; h < KH; ++h) {{
        int at = image + h * DOWN;
        for (int w = 0; w < KW; ++w) {{
            vec4 v = k_texel1(weight);
            {" ".join(f"a{p} += k_texel0(at + p{p}) * v;" for p in pixels)}
            at += RIGHT;
            weight += 1;
        }}
    }}
{stores}
}}
"""
    return _shader(DEPTHWISE, ("x", "w"), text, LAYERS, ("KH", "KW"), _BLOCK_NS)


# How an element finds itself among the blocks. E0... are the epilogue's ints, `S` reads the layers.
_LOCATE = {
    "rows": """
int u = k_quotient(i, E0);
int q = i - u * E0;
int b = k_quotient(u, E2);
int m = u - b * E2;
float acc = k_pick(S((b * E3 + (m >> 3)) * E4 + (q >> 2), m & 7), q & 3);
""",
    "columns": """
int u = k_quotient(i, E0);
int m = i - u * E0;
int b = k_quotient(u, E1);
int q = u - b * E1;
float acc = k_pick(S((b * E3 + (m >> 3)) * E4 + (q >> 2), m & 7), q & 3);
""",
    "depthwise": """
int u = k_quotient(i, E0);
int q = i - u * E0;
int b = k_quotient(u, E1);
int c = u - b * E1;
float acc = k_pick(S((b * E3 + (c >> 2)) * E4 + (q >> 3), (c & 3) + (q & 4)), q & 3);
""",
}
END_ARGUMENTS = 5


def epilogue(kernel: Kernel, order: str) -> Shader:
    """The epilogue kernel over the layers that a product wrote.

    Its ints, after the epilogue's: the output's inner and outer size (elements are (sets, outer, inner)),
    rows to a group, blocks and quads. order: whether rows of blocks are the outer axis ("rows") or the inner
    one ("columns"), or the layers are those of `depthwise`.
    """
    printer = FragmentPrinter(kernel)
    slot = len(kernel.buffers)
    text = _LOCATE[order].replace("S(", f"k_texel{slot}(")
    for k in range(END_ARGUMENTS):
        text = text.replace(f"E{k}", printer.own_argument(k))
    lines = text.strip().splitlines()
    return printer.shader(acc=lines, own=END_ARGUMENTS, buffers=("float32",), layered=(True,))
