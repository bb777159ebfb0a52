"""OpenCL C source of the kernel language's operations: templates and helper functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from engine.kernels.c_printer import COMMON

_SAME_NAME = "sqrt exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh floor ceil trunc erf"
TEMPLATES: Mapping[Any, str] = {
    **COMMON,
    ("bits", "float32"): "as_int({0})",
    ("bits", "int32"): "as_float({0})",
    "isnan": "(isnan({0}) != 0)",
    "isinf": "(isinf({0}) != 0)",
    **{(op, "float"): f"{op}({{0}})" for op in _SAME_NAME.split()},
    ("abs", "float"): "fabs({0})",
    ("round", "float"): "k_round_{T}({0})",
    ("sign", "float"): "k_sign_{T}({0})",
    ("rem", "float"): "fmod({0}, {1})",
    ("pow", "float"): "pow({0}, {1})",
    ("min", "float"): "k_min_{T}({0}, {1})",
    ("max", "float"): "k_max_{T}({0}, {1})",
    # Signed overflow is undefined in C, so what has to wrap is computed unsigned. Indices never overflow.
    ("add", "int"): "(int)((uint){0} + (uint){1})",
    ("sub", "int"): "(int)((uint){0} - (uint){1})",
    ("mul", "int"): "(int)((uint){0} * (uint){1})",
    ("neg", "int"): "(int)(0u - (uint){0})",
    ("abs", "int"): "(int)abs({0})",
    ("sign", "int"): "(({0} > 0) - ({0} < 0))",
    ("shl", "int"): "(int)k_shl((uint){0}, (uint){1})",
    ("shr", "int"): "({0} >> min((uint){1}, 31u))",
    **{(op, "index"): COMMON[op] for op in ("add", "sub", "mul", "neg")},
    ("sign", "uint"): "({0} != 0u ? 1u : 0u)",
    ("shl", "uint"): "k_shl({0}, {1})",
    ("shr", "uint"): "k_shr({0}, {1})",
}

_SATURATED_INT = "a != a ? 0 : a >= 0x1p31f ? INT_MAX : a <= -0x1p31f ? INT_MIN : (int)a"
_SATURATED_UINT = "a >= 0x1p32f ? UINT_MAX : a > 0 ? (uint)a : 0u"
_POWER = "uint r = 1u; for (; n > 0u; n >>= 1) { r = n & 1u ? r * a : r; a *= a; }"
_FUNCTIONS = {
    f"{name}_{kind}": text.replace("T", kind)
    for kind in ("float", "double")
    for name, text in {
        "k_sign": "T k_sign_T(T a) { return a != a ? a : (T)((a > 0) - (a < 0)); }",
        # The comparison is false when b is NaN, so b is what comes back.
        "k_min": "T k_min_T(T a, T b) { return a < b || a != a ? a : b; }",
        "k_max": "T k_max_T(T a, T b) { return a > b || a != a ? a : b; }",
    }.items()
} | {
    # Processors trap on both: a quotient by 0 and the smallest int by -1.
    "k_idiv": "int k_idiv(int a, int b) { return b == 0 ? 0 : b == -1 ? (int)(0u - (uint)a) : a / b; }",
    "k_irem": "int k_irem(int a, int b) { return b == 0 || b == -1 ? 0 : a % b; }",
    "k_udiv": "uint k_udiv(uint a, uint b) { return b == 0u ? 0u : a / b; }",
    "k_urem": "uint k_urem(uint a, uint b) { return b == 0u ? 0u : a % b; }",
    "k_shl": "uint k_shl(uint a, uint b) { return b > 31u ? 0u : a << (b & 31u); }",
    "k_shr": "uint k_shr(uint a, uint b) { return b > 31u ? 0u : a >> (b & 31u); }",
    "k_upow": f"uint k_upow(uint a, uint n) {{ {_POWER} return r; }}",
    # A negative exponent leaves 0, but for the bases 1 and -1.
    "k_ipow": "int k_ipow(int b, int m) {\n"
    "    if (m < 0) return b == 1 || (b == -1 && !(m & 1)) ? 1 : b == -1 ? -1 : 0;\n"
    f"    uint a = (uint)b, n = (uint)m; {_POWER} return (int)r;\n}}",
    # Intel's compiler calls a function for each element to convert with saturation.
    "k_to_int": f"int k_to_int(float a) {{ return {_SATURATED_INT}; }}",
    "k_to_uint": f"uint k_to_uint(float a) {{ return {_SATURATED_UINT}; }}",
    "k_to_int_double": f"int k_to_int_double(double a) {{ return {_SATURATED_INT}; }}",
    "k_to_uint_double": f"uint k_to_uint_double(double a) {{ return {_SATURATED_UINT}; }}",
    # Round to nearest even on the upper half; NaN stays NaN.
    "k_bfloat": "ushort k_bfloat(float a) {\n"
    "    uint u = as_uint(a);\n"
    "    return (ushort)(a != a ? (u >> 16) | 64u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);\n}",
    # In a loop over elements, processors' compilers call `rint` for each, and `copysign` too.
    "k_round_float": """float k_round_float(float a) {
#ifdef K_PROCESSOR
    const uint s = as_uint(a) & 0x80000000u;
    const float n = as_float(as_uint(a) ^ s), r = n + 0x1p23f - 0x1p23f;
    return as_float(as_uint(n < 0x1p23f ? r : n) | s);
#else
    return rint(a);
#endif
}""",
    "k_round_double": "double k_round_double(double a) { return rint(a); }",
    "k_load_half": """float k_load_half(__global const half* from, int i) {
#if defined(K_PROCESSOR) && defined(cl_khr_fp16)
    return (float)from[i];
#elif defined(K_PROCESSOR)
    const uint h = ((__global const ushort*)from)[i], n = h & 0x7fffu;
    const uint u = (n << 13) + (n < 0x7c00u ? 0x38000000u : 0x70000000u);
    const float a = n < 0x400u ? as_float(u + 0x800000u) - 0x1p-14f : as_float(u);
    return as_float(as_uint(a) | (h & 0x8000u) << 16);
#else
    return vload_half(i, from);
#endif
}""",
    "k_store_half": """void k_store_half(float a, int i, __global half* to) {
#if defined(K_PROCESSOR) && defined(cl_khr_fp16)
    to[i] = (half)a;
#elif defined(K_PROCESSOR)
    const uint u = as_uint(a) & 0x7fffffffu;
    // Added to 0.5, a small number is rounded to a multiple of the smallest half.
    uint h = u < 0x38800000u ? as_uint(as_float(u) + 0.5f) - 0x3f000000u
                             : (u - 0x38000000u + 0xfffu + (u >> 13 & 1u)) >> 13;
    h = u >= 0x477ff000u ? 0x7c00u : h;
    h = u > 0x7f800000u ? 0x7e00u : h;
    ((__global ushort*)to)[i] = (ushort)(h | (as_uint(a) >> 16 & 0x8000u));
#else
    vstore_half_rte(a, i, to);
#endif
}""",
    # The quotient of a non-negative a with the numbers of `divisor`.
    "k_divide": "int k_divide(int a, int multiplier, int shift) {"
    " return (int)(((ulong)(uint)multiplier * (uint)a) >> (31 + shift)); }",
}
"""`vload_half` and its counterpart are a call for each element in processors' compilers, not vectors."""
_CALL = re.compile(r"\bk_\w+")


def functions_for(text: str) -> str:
    """Definitions of the functions that `text` calls."""
    wanted = sorted(set(_CALL.findall(text)))
    return "".join(f"static inline {_FUNCTIONS[name]}\n" for name in wanted)
