"""Elementary functions of float32 as arithmetic without branches, for work-items alone in their group.

Processors' compilers make vectors of neighbouring work-items, for which they have vector functions. In a loop
of one work-item they call the built-in function for each element, and the loop around it is not vector code
either. Methods and coefficients are those of `engine.backends.cpu.library.functions`, as are errors: exp 1,
log 1, erf 1.4 and tanh 2.4 units of the last place.
"""

from __future__ import annotations

from collections.abc import Mapping

NAMES = ("exp", "log", "tanh", "erf")
"""The functions; `k_{name}_float` and `k_{name}_double` in source."""


def _polynomial(variable: str, *coefficients: float) -> str:
    """A polynomial, highest power first."""
    text = f"{coefficients[0]!r}f"
    for coefficient in coefficients[1:]:
        text = f"({text} * {variable} + {coefficient!r}f)"
    return text


_EXP = _polynomial(
    "r", 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1
)  # fmt: skip
_LOG = _polynomial(
    "f", 7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_ERF_BELOW_1 = _polynomial(
    "square", 7.882497448008507e-05, -0.0008018855005502701, 0.005189312156289816, -0.02685432881116867,
    0.11283597350120544, -0.3761262595653534, 0.12837916709551256,
)  # fmt: skip
_ERF_FROM_1 = _polynomial(
    "limited", 1.5604026657456416e-06, -4.476584945223294e-05, 0.000587583752349019, -0.004723159596323967,
    0.026333898305892944, -0.10995030403137207, -0.63194340467453, -1.1301742792129517,
    0.0003073970729019493,
)  # fmt: skip

# e**x = (1 + p) * 2**n. ln 2 is in two parts: the first has so few bits that its product with n is exact.
_EXP_PARTS = f"""\
    const float shifted = x * 0x1.715476p+0f + 0x1.8p23f, rounded = shifted - 0x1.8p23f;
    const int n = as_int(shifted) - as_int(0x1.8p23f);
    const float r = rounded * 2.12194440e-4f + (rounded * -0.693359375f + x);
    const float p = {_EXP} * (r * r) + r;
"""
_MAGNITUDE = "as_float(as_uint(a) & 0x7fffffffu)"
_SIGNED = "as_float(as_uint({0}) | (as_uint(a) & 0x80000000u))"

_BODIES: Mapping[str, str] = {
    # The power is taken in two steps, because the ends of the range lie beyond what one factor can reach.
    "exp": f"""\
    const float x = a < -104.0f ? 0.0f : a > 89.0f ? 89.0f : a;
{_EXP_PARTS}\
    const float half_power = as_float(((n >> 1) + 127) << 23);
    const float y = (p + 1.0f) * half_power * as_float((n - (n >> 1) + 127) << 23);
    return a < -104.0f ? 0.0f : y;
""",
    # Mantissas run from the square root of 1/2 to that of 2. The last comparison catches NaN, too.
    "log": f"""\
    const bool tiny = a < 0x1p-126f;
    const int bits = as_int(tiny ? a * 0x1p23f : a), e = (bits - 0x3F3504F3) >> 23;
    const float f = as_float(bits - (e << 23)) - 1.0f, n = (float)(e - (tiny ? 23 : 0)), square = f * f;
    const float p = n * -2.12194440e-4f + {_LOG} * f * square;
    const float y = n * 0.693359375f + (f + (square * -0.5f + p));
    return a == 0.0f ? -INFINITY : a == INFINITY ? a : a >= 0.0f ? y : NAN;
""",
    # t / (t + 2) with t = e**2x - 1, written so that nothing is lost where e**2x is close to 1.
    "tanh": f"""\
    const float m = {_MAGNITUDE}, x = m > 10.0f ? 20.0f : m + m;
{_EXP_PARTS}\
    const float power = as_float((n + 127) << 23), t = power * p + (power - 1.0f), y = t / (t + 2.0f);
    return {_SIGNED.format("y")};
""",
    # A polynomial below 1, 1 - exp(polynomial) above, exactly 1 from 4 on.
    "erf": f"""\
    const float m = {_MAGNITUDE}, square = a * a, limited = m > 4.0f ? 4.0f : m;
    const float below = {_ERF_BELOW_1} * a + a, x = {_ERF_FROM_1};
{_EXP_PARTS}\
    const float y = 1.0f - (p + 1.0f) * as_float((n + 127) << 23);
    return m < 1.0f ? below : {_SIGNED.format("y")};
""",
}

FUNCTIONS: Mapping[str, str] = {
    f"k_{name}_float": f"""float k_{name}_float(float a) {{
#if defined(K_PROCESSOR) && defined(K_ALONE)
{_BODIES[name]}\
#else
    return {name}(a);
#endif
}}"""
    for name in NAMES
} | {f"k_{name}_double": f"double k_{name}_double(double a) {{ return {name}(a); }}" for name in NAMES}
"""Definitions by name."""
