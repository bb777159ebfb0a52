"""Elementary functions of float32 as arithmetic without branches, so that loops over them vectorise.

Each takes and returns an `LLVMValue`. Largest errors, in units of the last place, over all of the domain:
exp 1, log 1, pow 1, erf 1, tanh 2.4, asin, acos and atan 2.1, sin and cos 2 up to 1e9. Denormals, infinities
and NaN come out as they should.
"""

from llvmlite import ir

from engine.backends.cpu.library.llvm_value import LLVMValue

# Adding this to a small float32 leaves the nearest integer in the low bits.
_TO_NEAREST = 12582912.0
_TO_NEAREST_BITS = 0x4B400000


def _power_of_two(n: LLVMValue) -> LLVMValue:
    """2**n for elements of integers from -126 to 127."""
    return ((n + 127) << 23).as_float32()


def _exp_parts(x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """p and n with e**x = (1 + p) * 2**n."""
    shifted = x.times_plus(1.44269504088896341, _TO_NEAREST)
    n = shifted.bits() - _TO_NEAREST_BITS
    rounded = shifted - _TO_NEAREST
    # ln 2 in two parts: the first has so few bits that its product with n is exact.
    r = rounded.times_plus(-0.693359375, x)
    r = rounded.times_plus(2.12194440e-4, r)
    p = r.polynomial(
        1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1
    )
    return p.times_plus(r * r, r), n


def exp_near(x: LLVMValue) -> LLVMValue:
    """e**x from -87 to 88, where it is neither denormal nor infinite."""
    p, n = _exp_parts(x)
    return (p + 1.0) * _power_of_two(n)


def exp_value(x: LLVMValue) -> LLVMValue:
    """e**x: 0 below -104, infinite above 88.73."""
    # Approaching 0, these would pass through denormals, which take many times as long.
    is_zero = x < -104.0
    x = x.constant(0.0).where(is_zero, x)
    x = x.constant(89.0).where(x > 89.0, x)
    p, n = _exp_parts(x)
    p = p + 1.0
    # In two steps, because the ends of the range lie beyond what one factor can reach.
    half = n >> 1
    return x.constant(0.0).where(is_zero, p * _power_of_two(half) * _power_of_two(n - half))


def log_value(x: LLVMValue) -> LLVMValue:
    """The natural logarithm: -infinity at 0, NaN below."""
    tiny = x < 1.17549435e-38
    scaled = (x * 8388608.0).where(tiny, x)
    bits = scaled.bits()
    # Mantissas run from the square root of 1/2 to that of 2.
    e = (bits - 0x3F3504F3) >> 23
    f = (bits - (e << 23)).as_float32() - 1.0
    n = (e - e.constant(23).where(tiny, e.constant(0))).to(ir.FloatType())
    square = f * f
    p = f.polynomial(
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    )
    y = n.times_plus(-2.12194440e-4, p * f * square)
    y = square.times_plus(-0.5, y)
    y = n.times_plus(0.693359375, f + y)
    y = x.where(x.equals(float("inf")), y)
    y = y.constant(float("-inf")).where(x.equals(0.0), y)
    # Written so that NaN is caught too.
    return y.where(x >= 0.0, y.constant(float("nan")))


def tanh_value(x: LLVMValue) -> LLVMValue:
    """The hyperbolic tangent as t / (t + 2) with t = e**2x - 1; exactly 1 from 9.02 on."""
    a = x.magnitude()
    limited = a.constant(10.0).where(a > 10.0, a)
    p, n = _exp_parts(limited + limited)
    power = _power_of_two(n)
    # Written so that nothing is lost where e**2x is close to 1.
    t = power.times_plus(p, power - 1.0)
    return (t / (t + 2.0)).call("llvm.copysign", x)


def erf_value(x: LLVMValue) -> LLVMValue:
    """The error function: a polynomial below 1, 1 - exp(polynomial) above, exactly 1 from 4 on."""
    a = x.magnitude()
    square = x * x
    p = square.polynomial(
        7.882497448008507e-05,
        -0.0008018855005502701,
        0.005189312156289816,
        -0.02685432881116867,
        0.11283597350120544,
        -0.3761262595653534,
        0.12837916709551256,
    )
    small = p.times_plus(x, x)
    limited = a.constant(4.0).where(a > 4.0, a)
    q = limited.polynomial(
        1.5604026657456416e-06,
        -4.476584945223294e-05,
        0.000587583752349019,
        -0.004723159596323967,
        0.026333898305892944,
        -0.10995030403137207,
        -0.63194340467453,
        -1.1301742792129517,
        0.0003073970729019493,
    )
    large = x.constant(1.0) - exp_near(q)
    return small.where(a < 1.0, large.call("llvm.copysign", x))


def _turned(x: LLVMValue, quarter_turns: int) -> LLVMValue:
    """sin(x + quarter_turns * pi/2). The angle is reduced in float64, which is exact enough up to 1e9."""
    wide = x.to(ir.DoubleType())
    n = (wide * 0.63661977236758134308).call("llvm.rint")
    r = n.times_plus(-1.5707963267948966, wide)
    r = n.times_plus(-6.123233995736766e-17, r).to(ir.FloatType())
    turns = n + float(quarter_turns)
    # Both are exact: the quarter, without a conversion to integers.
    quarter = (turns - (turns * 0.25).call("llvm.floor") * 4.0).to(ir.FloatType())
    square = r * r
    sine = square.polynomial(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
    sine = (sine * square).times_plus(r, r)
    cosine = square.polynomial(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
    cosine = (cosine * square * square) + square.times_plus(-0.5, 1.0)
    odd = quarter.equals(1.0) | quarter.equals(3.0)
    value = cosine.where(odd, sine)
    return (-value).where(quarter >= 2.0, value)


def sin_value(x: LLVMValue) -> LLVMValue:
    """The sine."""
    return _turned(x, 0)


def cos_value(x: LLVMValue) -> LLVMValue:
    """The cosine."""
    return _turned(x, 1)


def _log2_wide(a: LLVMValue) -> LLVMValue:
    """The binary logarithm of positive finite float64s, to 1e-13."""
    bits = a.bits()
    # Mantissas run from the square root of 1/2 to that of 2.
    e = (bits - 0x3FE6A09E667F3BCD) >> 52
    m = (bits - (e << 52)).seen_as(a.type)
    s = (m - 1.0) / (m + 1.0)
    p = (s * s).polynomial(*(2.8853900817779268 / n for n in range(15, 0, -2)))
    return p.times_plus(s, e.to(ir.DoubleType()))


def _exp2_wide(t: LLVMValue) -> LLVMValue:
    """2**t in float64 for t from -1000 to 1000, to 1e-11."""
    shifted = t + 6755399441055744.0
    n = shifted.bits() - 0x4338000000000000
    f = (t - (shifted - 6755399441055744.0)) * 0.6931471805599453
    factorials = (3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0)
    p = f.polynomial(*(1.0 / x for x in factorials))
    return p * ((n + 1023) << 52).seen_as(t.type)


def pow_value(x: LLVMValue, y: LLVMValue) -> LLVMValue:
    """x**y, in float64 inside and so right to the last place. A negative base needs a whole power."""
    one, zero, infinity = x.constant(1.0), x.constant(0.0), x.constant(float("inf"))
    a = x.magnitude()
    t = _log2_wide(a.to(ir.DoubleType())) * y.to(ir.DoubleType())
    t = t.constant(1000.0).where(t > 1000.0, t)
    t = t.constant(-1000.0).where(t < -1000.0, t)
    power = _exp2_wide(t).to(ir.FloatType())
    # The ends, of which the logarithm above knows nothing.
    power = infinity.where(y < 0.0, zero).where(a.equals(0.0), power)
    power = zero.where(y < 0.0, infinity).where(a.equals(float("inf")), power)
    power = one.where(a.equals(1.0), power)
    whole = y.equals(y.call("llvm.trunc"))
    half = y * 0.5
    odd = whole & half.differs(half.call("llvm.trunc"))
    negative = x.bits() < 0
    power = (-power).where(negative & odd, power)
    nan = x.constant(float("nan"))
    power = nan.where((x < 0.0) & a.differs(float("inf")) & (whole ^ 1), power)
    power = nan.where(x.differs(x) | y.differs(y), power)
    return one.where(y.equals(0.0) | x.equals(1.0), power)


_HALF_PI = 1.57079637050628662
_HALF_PI_TAIL = -4.37113900018624283e-8
"""What the nearest float32 lacks of a right angle."""


def _arcsine_parts(x: LLVMValue) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
    """Whether |x| > 1/2; and in two parts the arcsine of |x|, or there half of the arccosine."""
    a, zero = x.magnitude(), x.constant(0.0)
    is_large = a > 0.5
    square = ((x.constant(1.0) - a) * 0.5).where(is_large, a * a)
    root = square.call("llvm.sqrt").where(is_large, a)
    p = square.polynomial(4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
    # What rounding took from the root.
    lost = ((-root).times_plus(root, square) / (root + root)).where(is_large & (root > 0.0), zero)
    return is_large, root, (p * square).times_plus(root, lost)


def asin_value(x: LLVMValue) -> LLVMValue:
    """The arcsine: NaN beyond 1."""
    is_large, angle, tail = _arcsine_parts(x)
    large = (x.constant(_HALF_PI) - angle - angle) + (x.constant(_HALF_PI_TAIL) - tail - tail)
    return large.where(is_large, angle + tail).call("llvm.copysign", x)


def acos_value(x: LLVMValue) -> LLVMValue:
    """The arccosine: NaN beyond 1."""
    is_large, angle, tail = _arcsine_parts(x)
    half = angle + tail
    below = (x.constant(2 * _HALF_PI) - angle - angle) + (x.constant(2 * _HALF_PI_TAIL) - tail - tail)
    small = x.constant(_HALF_PI) - (half.call("llvm.copysign", x) - _HALF_PI_TAIL)
    return below.where(x < 0.0, half + half).where(is_large, small)


def atan_value(x: LLVMValue) -> LLVMValue:
    """The arctangent; tangents beyond that of a sixteenth of a turn are turned back."""
    a = x.magnitude()
    one = x.constant(1.0)
    is_far, is_beyond = a > 2.414213562373095, a > 0.4142135623730950
    above = (-one).where(is_far, (a - 1.0).where(is_beyond, a))
    below = a.where(is_far, (a + 1.0).where(is_beyond, one))
    t = above / below
    turns = x.constant(2.0).where(is_far, x.constant(1.0).where(is_beyond, x.constant(0.0)))
    square = t * t
    p = square.polynomial(8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
    tail = turns.times_plus(_HALF_PI_TAIL / 2, p * square * t)
    return ((turns * (_HALF_PI / 2) + t) + tail).call("llvm.copysign", x)


VECTOR_FUNCTIONS = {
    "exp": exp_value,
    "log": log_value,
    "tanh": tanh_value,
    "erf": erf_value,
    "sin": sin_value,
    "cos": cos_value,
    "asin": asin_value,
    "acos": acos_value,
    "atan": atan_value,
}


def function_value(name: str, x: LLVMValue) -> LLVMValue:
    """A function of the kernel language: vector arithmetic for float32 if available, else the C library's."""
    single = isinstance(x.element, ir.FloatType)
    if single and name in VECTOR_FUNCTIONS:
        return VECTOR_FUNCTIONS[name](x)
    return x.named(name + "f" if single else name, x.type, pure=True)
