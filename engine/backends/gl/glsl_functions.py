"""GLSL functions that give the kernel language's semantics on every driver, for GLSL 3.30 and later.

Drivers differ in what they make of NaN, of negative integer division and of large arguments, and their
transcendental functions may be off by 1e-3. So everything that is not exact by the specification is written
out here in integers, sums and products. Each function names what it needs by calling it; `functions_for`
collects those that a text uses.

`EXACT` keeps a compiler from regrouping a sum (GLSL 4.00 and later; in 3.30 no driver known does it).
"""

from __future__ import annotations

import re
from functools import cache

EXACT = """\
#if __VERSION__ >= 400
#define EXACT precise
#else
#define EXACT
#endif"""

FUNCTIONS: dict[str, str] = {
    "k_nan": """
bool k_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }""",
    "k_inf": """
bool k_inf(float x) { return (floatBitsToUint(x) & 0x7fffffffu) == 0x7f800000u; }""",
    "k_true": """
bool k_true(float x) { return (floatBitsToUint(x) & 0x7fffffffu) != 0u; }""",
    "k_min": """
float k_min(float a, float b) { return a < b || k_nan(a) ? a : b; }""",
    "k_max": """
float k_max(float a, float b) { return a > b || k_nan(a) ? a : b; }""",
    "k_sign": """
float k_sign(float x) { return x > 0.0 ? 1.0 : (x < 0.0 ? -1.0 : x); }""",
    # Integers. Quotients come from absolute values: some drivers give -7 % 3 = 0.
    "k_udiv": """
uint k_udiv(uint a, uint b) { return b == 0u ? 0u : a / max(b, 1u); }""",
    "k_urem": """
uint k_urem(uint a, uint b) { return b == 0u ? 0u : a % max(b, 1u); }""",
    "k_idiv": """
int k_idiv(int a, int b) {
    int q = int(k_udiv(uint(abs(a)), uint(abs(b))));
    return (a ^ b) < 0 ? -q : q;
}""",
    "k_irem": """
int k_irem(int a, int b) {
    int r = int(k_urem(uint(abs(a)), uint(abs(b))));
    return a < 0 ? -r : r;
}""",
    "k_upow": """
uint k_upow(uint a, uint b) {
    uint r = 1u;
    for (int k = 0; k < 32 && b != 0u; ++k) {
        if ((b & 1u) != 0u) r *= a;
        a *= a;
        b >>= 1u;
    }
    return r;
}""",
    "k_ipow": """
int k_ipow(int a, int b) {
    if (b < 0) return a == 1 ? 1 : (a == -1 ? ((b & 1) != 0 ? -1 : 1) : 0);
    return int(k_upow(uint(a), uint(b)));
}""",
    "k_ishl": """
int k_ishl(int a, int b) { return uint(b) < 32u ? a << (b & 31) : 0; }""",
    "k_ishr": """
int k_ishr(int a, int b) { return a >> (uint(b) < 32u ? b & 31 : 31); }""",
    "k_ushl": """
uint k_ushl(uint a, uint b) { return b < 32u ? a << (b & 31u) : 0u; }""",
    "k_ushr": """
uint k_ushr(uint a, uint b) { return b < 32u ? a >> (b & 31u) : 0u; }""",
    # Casts.
    "k_f2i": """
int k_f2i(float x) {
    if (k_nan(x)) return 0;
    if (x >= 2147483648.0) return 2147483647;
    return x <= -2147483648.0 ? (-2147483647 - 1) : int(x);
}""",
    "k_f2u": """
uint k_f2u(float x) {
    if (k_nan(x) || x < 1.0) return 0u;
    if (x >= 4294967296.0) return 0xffffffffu;
    return x >= 2147483648.0 ? uint(int(x - 2147483648.0)) + 0x80000000u : uint(int(x));
}""",
    "k_half": """
float k_half(float x) {
    uint u = floatBitsToUint(x);
    uint a = u & 0x7fffffffu;
    if (a >= 0x7f800000u) return x;
    if (a < 0x38800000u) return roundEven(x * 16777216.0) * 5.9604644775390625e-08;
    a = (a + 0xfffu + ((a >> 13) & 1u)) & 0xffffe000u;
    return uintBitsToFloat((u & 0x80000000u) | (a >= 0x47800000u ? 0x7f800000u : a));
}""",
    "k_bfloat": """
float k_bfloat(float x) {
    // The bit keeps NaN from becoming infinite where only its upper half is stored.
    uint u = floatBitsToUint(x);
    return uintBitsToFloat(k_nan(x) ? u | 0x400000u : (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);
}""",
    "k_to_half": """
uint k_to_half(float x) {
    // The bits of a number that `k_half` gave.
    uint u = floatBitsToUint(x);
    uint a = u & 0x7fffffffu;
    uint h = a < 0x38800000u ? uint(abs(x) * 16777216.0) : (a - 0x38000000u) >> 13;
    h = a < 0x7f800000u ? h : (a == 0x7f800000u ? 0x7c00u : 0x7e00u);
    return h | ((u >> 16) & 0x8000u);
}""",
    "k_from_half": """
float k_from_half(uint h) {
    uint a = h & 0x7fffu;
    uint u = (a << 13) + (a < 0x7c00u ? 0x38000000u : 0x70000000u);
    u = a < 0x400u ? floatBitsToUint(float(a) * 5.9604644775390625e-08) : u;
    return uintBitsToFloat(u | ((h & 0x8000u) << 16));
}""",
    # Exponentials and logarithms.
    "k_scale": """
float k_scale(float x, int n) {
    int h = n >> 1;
    return x * intBitsToFloat((h + 127) << 23) * intBitsToFloat((n - h + 127) << 23);
}""",
    "k_exp": """
float k_exp(float x) {
    float c = clamp(x, -104.0, 89.0);
    float k = roundEven(c * 1.44269504);
    EXACT float h = c - k * 0.693359375;
    EXACT float r = h - k * -2.12194440e-4;
    float p = 0.00138357976 * r + 0.00837564501;
    p = ((p * r + 0.0416682888) * r + 0.166664102) * r + 0.499999916;
    p = (p * r + 1.0) * r + 1.0;
    return k_nan(x) ? x : k_scale(p, int(k));
}""",
    "k_exp2": """
float k_exp2(float n, float f) {
    // 2 to the power n + f, kept apart for accuracy.
    float k = clamp(roundEven(clamp(n + f, -300.0, 300.0)), -252.0, 252.0);
    EXACT float d = n - k;
    float r = clamp(d + f, -1.0, 1.0) * 0.693147181;
    float p = 0.00138357976 * r + 0.00837564501;
    p = ((p * r + 0.0416682888) * r + 0.166664102) * r + 0.499999916;
    return k_scale((p * r + 1.0) * r + 1.0, int(k));
}""",
    "k_mantissa": """
float k_mantissa(float x, out int e) {
    // x / 2^e - 1, for a positive finite x; between sqrt(1/2) - 1 and sqrt(2) - 1.
    float a = x;
    e = 0;
    if (a < 1.17549435e-38) { a *= 8388608.0; e = -23; }
    int b = floatBitsToInt(a) - 0x3f3504f3;
    e += b >> 23;
    return intBitsToFloat((b & 0x007fffff) + 0x3f3504f3) - 1.0;
}""",
    "k_series": """
float k_series(float s) {
    // log((1 + s) / (1 - s)) - 2s
    float z = s * s;
    float q = ((0.233385589 * z + 0.2855051) * z + 0.400001247) * z + 0.666666666;
    return s * (z * q);
}""",
    "k_log": """
float k_log(float x) {
    uint u = floatBitsToUint(x);
    if ((u << 1) == 0u) return uintBitsToFloat(0xff800000u);
    if (u > 0x80000000u) return uintBitsToFloat(0x7fc00000u);
    if (u >= 0x7f800000u) return x;
    int e;
    float m = k_mantissa(x, e);
    float s = m / (m + 2.0);
    float r = 2.0 * s + k_series(s);
    return float(e) * 0.693359375 + (float(e) * -2.12194440e-4 + r);
}""",
    "k_log1p": """
float k_log1p(float y) {
    if (y < -0.25 || y > 0.5 || k_nan(y)) return k_log(1.0 + y);
    float s = y / (2.0 + y);
    float z = s * s;
    float q = ((0.237547676 * z + 0.285323392) * z + 0.400003167) * z + 0.666666663;
    return 2.0 * s + s * (z * q);
}""",
    "k_head": """
float k_head(float x) { return uintBitsToFloat(floatBitsToUint(x) & 0xfffff000u); }""",
    "k_power": """
float k_power(float x, float b) {
    // For a positive finite x. The logarithm is kept in two floats, the first of 12 bits: their products
    // with a part of b of 12 bits are exact, so large exponents do not magnify its error.
    int e;
    float m = k_mantissa(x, e);
    EXACT float d = m + 2.0;
    float sh = k_head(m / d);
    float dh = k_head(d);
    EXACT float dl = m - (dh - 2.0);
    EXACT float rest = (m - sh * dh) - sh * dl;
    float sl = rest / d;
    EXACT float th = sh * 2.884765625;
    float tl = sh * 6.24456778e-4 + (2.0 * sl + k_series(sh + sl)) * 1.44269504;
    EXACT float sum = (float(e) + th) + tl;
    float t = k_head(sum);
    EXACT float u = tl - ((t - float(e)) - th);
    float bh = k_head(b);
    EXACT float low = (b - bh) * t + b * u;
    return k_exp2(bh * t, low);
}""",
    "k_pow": """
float k_pow(float a, float b) {
    uint ua = floatBitsToUint(a) & 0x7fffffffu;
    uint ub = floatBitsToUint(b) & 0x7fffffffu;
    if (ub == 0u || a == 1.0) return 1.0;
    if (k_nan(a) || k_nan(b)) return uintBitsToFloat(0x7fc00000u);
    bool whole = ub >= 0x4b800000u || b == trunc(b);
    bool odd = whole && ub < 0x4b800000u && (int(b) & 1) != 0;
    bool minus = (floatBitsToUint(a) >> 31) != 0u;
    float m = uintBitsToFloat(ua);
    float inf = uintBitsToFloat(0x7f800000u);
    float r;
    if (ub == 0x7f800000u) r = m == 1.0 ? 1.0 : ((m > 1.0) == (b > 0.0) ? inf : 0.0);
    else if (ua == 0u) r = b > 0.0 ? 0.0 : inf;
    else if (ua == 0x7f800000u) r = b > 0.0 ? inf : 0.0;
    else if (minus && !whole) return uintBitsToFloat(0x7fc00000u);
    else if (whole && ub <= 0x41000000u) {
        // Powers up to 8 are products, and so exact where the result is.
        r = 1.0;
        float p = m;
        for (int n = int(abs(b)); n > 0; n >>= 1) {
            if ((n & 1) != 0) r *= p;
            p *= p;
        }
        if (b < 0.0) r = 1.0 / r;
    } else r = k_power(m, b);
    return minus && odd ? -r : r;
}""",
    # Circular functions.
    "k_quarter": """
float k_quarter(float x, out int q) {
    // x less q quarter turns, within an eighth of a turn.
    float k = roundEven(x * 0.636619772);
    q = int(k);
    EXACT float a = x - k * 1.5703125;
    EXACT float b = a - k * 4.83751296e-4;
    EXACT float c = b - k * 7.54979013e-8;
    return c;
}""",
    "k_wave": """
float k_wave(float r, int q) {
    float z = r * r;
    float s = ((2.72469625e-06 * z - 0.000198400639) * z + 0.00833333183) * z - 0.166666667;
    float c = ((2.454552e-05 * z - 0.00138882919) * z + 0.0416666646) * z - 0.5;
    float y = (q & 1) != 0 ? c * z + 1.0 : s * (z * r) + r;
    return (q & 2) != 0 ? -y : y;
}""",
    "k_sin": """
float k_sin(float x) { int q; float r = k_quarter(x, q); return k_wave(r, q); }""",
    "k_cos": """
float k_cos(float x) { int q; float r = k_quarter(x, q); return k_wave(r, q + 1); }""",
    "k_tan": """
float k_tan(float x) { int q; float r = k_quarter(x, q); return k_wave(r, q) / k_wave(r, q + 1); }""",
    "k_arc": """
float k_arc(float x, float z) {
    float q = ((0.0383282398 * z + 0.0264333959) * z + 0.0450202099) * z + 0.0749876165;
    return (q * z + 0.166666731) * (z * x) + x;
}""",
    "k_asin": """
float k_asin(float x) {
    float a = abs(x);
    if (a > 1.0 || k_nan(x)) return uintBitsToFloat(0x7fc00000u);
    float z = 0.5 * (1.0 - a);
    float r = a > 0.5 ? 1.57079633 - 2.0 * k_arc(sqrt(z), z) : k_arc(a, a * a);
    return x < 0.0 ? -r : r;
}""",
    "k_acos": """
float k_acos(float x) {
    float a = abs(x);
    if (a > 1.0 || k_nan(x)) return uintBitsToFloat(0x7fc00000u);
    if (a <= 0.5) return 1.57079633 - k_arc(x, x * x);
    float z = 0.5 * (1.0 - a);
    float r = 2.0 * k_arc(sqrt(z), z);
    return x < 0.0 ? 3.14159265 - r : r;
}""",
    "k_atan": """
float k_atan(float x) {
    float a = abs(x);
    float t = a > 2.41421356 ? -1.0 / a : (a > 0.414213562 ? (a - 1.0) / (a + 1.0) : a);
    float base = a > 2.41421356 ? 1.57079633 : (a > 0.414213562 ? 0.785398163 : 0.0);
    float z = t * t;
    float q = ((0.0851801159 * z - 0.140244309) * z + 0.199913171) * z - 0.333332879;
    float r = base + (q * (z * t) + t);
    return k_nan(x) ? x : (x < 0.0 ? -r : r);
}""",
    # Hyperbolic functions.
    "k_sinh": """
float k_sinh(float x) {
    float a = abs(x);
    float z = a * a;
    float h = k_exp(0.5 * a);
    float q = (0.00020259203 * z + 0.00833175955) * z + 0.166666754;
    float r = a < 1.0 ? q * (z * a) + a : (0.5 * h) * h - (0.5 / h) / h;
    return k_nan(x) ? x : (x < 0.0 ? -r : r);
}""",
    "k_cosh": """
float k_cosh(float x) {
    float h = k_exp(0.5 * abs(x));
    return (0.5 * h) * h + (0.5 / h) / h;
}""",
    "k_tanh": """
float k_tanh(float x) {
    float a = abs(x);
    float z = a * a;
    float q = ((-0.00611318849 * z + 0.0210100791) * z - 0.0538540692) * z + 0.133327945;
    q = q * z - 0.333333292;
    float r = a < 0.625 ? q * (z * a) + a : 1.0 - 2.0 / (k_exp(2.0 * a) + 1.0);
    return k_nan(x) ? x : (x < 0.0 ? -r : r);
}""",
    "k_asinh": """
float k_asinh(float x) {
    float a = abs(x);
    float r = a > 1.0e9 ? k_log(a) + 0.693147181 : k_log1p(a + a * (a / (1.0 + sqrt(1.0 + a * a))));
    return k_nan(x) ? x : (x < 0.0 ? -r : r);
}""",
    "k_acosh": """
float k_acosh(float x) {
    if (x < 1.0 || k_nan(x)) return uintBitsToFloat(0x7fc00000u);
    if (x > 1.0e9) return k_log(x) + 0.693147181;
    float t = x - 1.0;
    return k_log1p(t + sqrt(t * (t + 2.0)));
}""",
    "k_atanh": """
float k_atanh(float x) {
    float a = abs(x);
    if (a > 1.0 || k_nan(x)) return uintBitsToFloat(0x7fc00000u);
    float r = a == 1.0 ? uintBitsToFloat(0x7f800000u) : 0.5 * k_log1p(2.0 * a / (1.0 - a));
    return x < 0.0 ? -r : r;
}""",
    "k_erf": """
float k_erf(float x) {
    float a = abs(x);
    float z = a * a;
    float s = ((-0.000566015302 * z + 0.00492478896) * z - 0.0267177069) * z + 0.112804116;
    s = (s * z - 0.376123557) * z + 1.12837913;
    float c = min(a, 4.0);
    float l = ((-0.000185574893 * c + 0.00293961573) * c - 0.0218053512) * c + 0.103037436;
    l = ((l * c + 0.638225602) * c + 1.12704008) * c + 0.000353708929;
    float r = a < 1.0 ? s * a : (a < 4.0 ? 1.0 - k_exp(-l) : 1.0);
    return k_nan(x) ? x : (x < 0.0 ? -r : r);
}""",
    "k_fmod": """
float k_fmod(float x, float y) {
    // Exact: the remainder of the significands, seven bits of the quotient at a time.
    uint a = floatBitsToUint(x) & 0x7fffffffu;
    uint b = floatBitsToUint(y) & 0x7fffffffu;
    if (b == 0u || a >= 0x7f800000u || b > 0x7f800000u) return uintBitsToFloat(0x7fc00000u);
    if (a < b) return x;
    int eb = int(b >> 23);
    uint mb = eb == 0 ? b << 1 : (b & 0x7fffffu) | 0x800000u;
    int ea = int(a >> 23);
    uint ma = (ea == 0 ? a << 1 : (a & 0x7fffffu) | 0x800000u) % mb;
    for (int k = ea - eb; k > 0; k -= 7) ma = (ma << min(k, 7)) % mb;
    float r = k_scale(float(ma), eb - 150);
    return x < 0.0 ? -r : r;
}""",
}
"""Name -> definition, each after those that it calls."""

_CALL = re.compile(r"\bk_\w+(?=\()")


@cache
def _needs(name: str) -> frozenset[str]:
    called = set(_CALL.findall(FUNCTIONS[name])) - {name}
    return frozenset(called).union(*(_needs(other) for other in called))


def functions_for(text: str) -> str:
    """The definitions that `text` needs, in order, with the `EXACT` macro; empty if none."""
    called = {name for name in _CALL.findall(text) if name in FUNCTIONS}
    wanted = called.union(*(_needs(name) for name in called))
    if not wanted:
        return ""
    return EXACT + "".join(body for name, body in FUNCTIONS.items() if name in wanted)
