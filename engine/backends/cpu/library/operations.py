# mypy: allow-untyped-defs, allow-incomplete-defs
"""The operations of the kernel language as numba intrinsics, one name for all arithmetic types.

Both operands have one type, which is also the result's: numba's own rules would turn int32 sums into
int64 and mix uint64 with float64. `op_*` are the language's operations, `to_*` its casts, `read_*` and
`write_*` its loads and stores. A kernel's output overlaps none of its inputs, and loads and stores say so,
because LLVM would otherwise test it at run time or give up vectorising.
"""

from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import errors
from numba.extending import intrinsic

from engine.backends.cpu.library.functions import function_value, pow_value
from engine.backends.cpu.library.llvm_intrinsic import llvm_intrinsic
from engine.backends.cpu.library.llvm_value import LLVMValue, _bytes_of

_BIT = ir.IntType(1)


def _signed(kind):
    return kind in types.signed_domain


def _value(builder, value, kind):
    return LLVMValue(builder, value, _signed(kind))


def _same(kinds):
    if any(kind != kinds[0] for kind in kinds):
        raise errors.TypingError(f"operands differ: {', '.join(map(str, kinds))}")


def _plain(kind):
    """The type of a literal's value."""
    return types.unliteral(kind)


def _unary(step, result=None):
    @intrinsic
    def operation(typing_context, x):
        def generate(context, builder, signature, args):
            return step(_value(builder, args[0], signature.args[0])).value

        return (result or _plain(x))(_plain(x)), generate

    return operation


def _binary(step, result=None):
    @intrinsic
    def operation(typing_context, a, b):
        _same((_plain(a), _plain(b)))

        def generate(context, builder, signature, args):
            kind = signature.args[0]
            return step(_value(builder, args[0], kind), _value(builder, args[1], kind)).value

        return (result or _plain(a))(_plain(a), _plain(b)), generate

    return operation


@intrinsic
def op_select(typing_context, condition, a, b):
    """Evaluate both sides and select one."""
    _same((_plain(a), _plain(b)))

    def generate(context, builder, signature, args):
        return builder.select(*args)

    return _plain(a)(types.boolean, _plain(a), _plain(b)), generate


# Arithmetic

_ROUNDED = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc"}
"""Operations that are one instruction, by LLVM's name."""

_FUNCTIONS = (
    *("exp", "log", "erf", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)


def _or_bits(step, logic):
    """Booleans add as `or` and multiply as `and`."""
    return lambda a, b: logic(a, b) if a.element == _BIT else step(a, b)


def _divisor(b):
    """Where a division would trap, and a divisor with which it does not."""
    zero = b.equals(0)
    minus = b.equals(-1) if b.signed else None
    traps = zero if minus is None else zero | minus
    return zero, minus, b.constant(1).where(traps, b)


def _divide(a, b):
    if a.is_float:
        return a / b
    zero, minus, safe = _divisor(b)
    quotient = a / safe
    if minus is not None:
        quotient = (-a).where(minus, quotient)
    return a.constant(0).where(zero, quotient)


def _remainder(a, b):
    if a.is_float:
        return a % b
    zero, _, safe = _divisor(b)
    return a.constant(0).where(zero, a % safe)


def _extreme(symbol):
    return lambda a, b: a.extreme(symbol, b) if a.is_float else a.where(a.compare(symbol, b), b)


def _shift_left(a, b):
    inside = LLVMValue(b.builder, b.builder.icmp_unsigned("<", b.value, b.constant(b.width).value))
    return (a << b.where(inside, b.constant(0))).where(inside, a.constant(0))


def _shift_right(a, b):
    inside = LLVMValue(b.builder, b.builder.icmp_unsigned("<", b.value, b.constant(b.width).value))
    if a.signed:
        return a >> b.where(inside, b.constant(b.width - 1))
    return (a >> b.where(inside, b.constant(0))).where(inside, a.constant(0))


def _sign(x):
    one, zero = x.constant(1), x.constant(0)
    if not x.is_float and not x.signed:
        return one.where(x.differs(0), zero)
    known = one.where(x > 0, (-one).where(x < 0, zero))
    return x.where(x.differs(x), known) if x.is_float else known


op_add = _binary(_or_bits(lambda a, b: a + b, lambda a, b: a | b))
op_sub = _binary(lambda a, b: a - b)
op_mul = _binary(_or_bits(lambda a, b: a * b, lambda a, b: a & b))
op_div, op_rem = _binary(_divide), _binary(_remainder)
op_max, op_min = _binary(_extreme(">")), _binary(_extreme("<"))


def _reordered(step, integer_step):
    """A step of a reduction: the order is unspecified, so several partial sums may be kept."""

    def apply(a, b):
        if a.is_float:
            return a.like(getattr(a.builder, step)(a.value, b.value, flags=("reassoc",)))
        return integer_step(a, b)

    return apply


def _reduced_extreme(name, symbol):
    # LLVM vectorises reductions with this function, which treats NaN as the language does.
    return lambda a, b: a.call(name, b) if a.is_float else a.where(a.compare(symbol, b), b)


reduce_add = _binary(_reordered("fadd", _or_bits(lambda a, b: a + b, lambda a, b: a | b)))
reduce_mul = _binary(_reordered("fmul", _or_bits(lambda a, b: a * b, lambda a, b: a & b)))
reduce_max, reduce_min = (
    _binary(_reduced_extreme("llvm.maximum", ">")),
    _binary(_reduced_extreme("llvm.minimum", "<")),
)
op_and, op_or, op_xor = _binary(lambda a, b: a & b), _binary(lambda a, b: a | b), _binary(lambda a, b: a ^ b)
op_shl, op_shr = _binary(_shift_left), _binary(_shift_right)
op_eq = _binary(lambda a, b: a.equals(b), types.boolean)
op_ne = _binary(lambda a, b: a.differs(b), types.boolean)
op_lt = _binary(lambda a, b: a < b, types.boolean)
op_le = _binary(lambda a, b: a <= b, types.boolean)
op_gt = _binary(lambda a, b: a > b, types.boolean)
op_ge = _binary(lambda a, b: a >= b, types.boolean)
op_neg, op_abs, op_sign = _unary(lambda x: -x), _unary(lambda x: x.magnitude()), _unary(_sign)
op_not = _unary(lambda x: x ^ 1)
op_bitnot = _unary(lambda x: x ^ -1)
op_isnan = _unary(lambda x: x.differs(x), types.boolean)
op_isinf = _unary(lambda x: x.magnitude().equals(float("inf")), types.boolean)
for _name, _function in _ROUNDED.items():
    globals()[f"op_{_name}"] = _unary(lambda x, function=f"llvm.{_function}": x.call(function))
for _name in _FUNCTIONS:
    globals()[f"op_{_name}"] = _unary(partial(function_value, _name))


def _integer_power(a, b):
    """By repeated squaring; a negative power truncates 1 / a**-b, and so is 0 except for bases 1 and -1."""
    builder, one, zero = a.builder, a.constant(1), a.constant(0)
    head, before = builder.append_basic_block("power"), builder.block
    builder.branch(head)
    builder.position_at_end(head)
    total, base, left = (LLVMValue(builder, builder.phi(a.type), a.signed) for _ in range(3))
    unsigned = LLVMValue(builder, left.value, False)
    odd = (unsigned & 1).differs(0)
    next_total = (total * base).where(odd, total)
    next_base, next_left = base * base, unsigned >> 1
    for phi, start, step in ((total, one, next_total), (base, a, next_base), (left, b, next_left)):
        phi.value.add_incoming(start.value, before)
        phi.value.add_incoming(step.value, builder.block)
    after = builder.append_basic_block("power_done")
    builder.cbranch(next_left.differs(0).value, head, after)
    builder.position_at_end(after)
    if not a.signed:
        return next_total
    flip = (b & 1).differs(0)
    inverse = one.where(a.equals(1), (-one).where(flip, one).where(a.equals(-1), zero))
    return inverse.where(b < 0, next_total)


def _power(a, b):
    if not a.is_float:
        return _integer_power(a, b)
    return pow_value(a, b) if isinstance(a.element, ir.FloatType) else a.call("llvm.pow", b)


op_pow = _binary(_power)
call_pow = _binary(lambda a, b: a.call("llvm.pow", b) if a.is_float else _integer_power(a, b))


# Casts

_ELEMENTS: dict[str, Any] = {
    "float32": (types.float32, ir.FloatType()),
    "float64": (types.float64, ir.DoubleType()),
    "int32": (types.int32, ir.IntType(32)),
    "int64": (types.int64, ir.IntType(64)),
    "uint32": (types.uint32, ir.IntType(32)),
    "uint64": (types.uint64, ir.IntType(64)),
    "bool": (types.boolean, _BIT),
}


def _cast(name):
    kind, element = _ELEMENTS[name]
    return _unary(lambda x: x.to(element, _signed(kind)), kind)


to_float32, to_float64, to_bool = _cast("float32"), _cast("float64"), _cast("bool")
to_int32, to_int64, to_uint32, to_uint64 = _cast("int32"), _cast("int64"), _cast("uint32"), _cast("uint64")
bounded_int32 = _unary(lambda x: x.bounded(_ELEMENTS["int32"][1]), types.int32)


@intrinsic
def op_bits(typing_context, x):
    """A float's bits as an integer of its width, or the float that an integer's bits make."""
    twins = (("float32", "int32"), ("int32", "float32"), ("float64", "int64"), ("int64", "float64"))
    name = next(b for a, b in twins if _ELEMENTS[a][0] == _plain(x))
    result, element = _ELEMENTS[name]

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], element)

    return result(_plain(x)), generate


# Memory


def _element_pointer(builder, address, position, storage):
    return builder.gep(builder.inttoptr(address, storage.as_pointer()), [position], inbounds=True)


def _output_scope(module):
    domain = module.add_metadata(["gameglue"])
    return module.add_metadata([module.add_metadata(["output", domain])])


def _read(kind, storage, convert):
    @llvm_intrinsic(types.int64, types.int64, result=kind)
    def read(address, position):
        pointer = _element_pointer(address.builder, address.value, position.value, storage)
        loaded = address.builder.load(pointer, align=_bytes_of(storage))
        loaded.set_metadata("noalias", _output_scope(address.builder.module))
        return convert(LLVMValue(address.builder, loaded))

    return read


def _write(kind, storage, convert):
    @intrinsic
    def write(typing_context, address, position, value):
        if value != kind:
            raise errors.TypingError(f"a store of {kind} is given {value}")

        def generate(context, builder, signature, args):
            given = convert(_value(builder, args[2], kind))
            pointer = _element_pointer(builder, args[0], args[1], storage)
            stored = builder.store(given.value, pointer, align=_bytes_of(storage))
            stored.set_metadata("alias.scope", _output_scope(builder.module))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, kind), generate

    return write


def _same_value(x):
    return x


def _bfloat16_to_float32(x):
    return (LLVMValue(x.builder, x.value, False).to(ir.IntType(32)) << 16).as_float32()


def _float32_to_bfloat16(x):
    bits = x.bits()
    unsigned = LLVMValue(x.builder, bits.value, False)
    even = (unsigned >> 16) & 1
    rounded = (unsigned + even + 0x7FFF) >> 16
    # Rounding could carry a NaN's bits into an infinity.
    quiet = (unsigned >> 16) | 0x40
    return quiet.where(x.differs(x), rounded).to(ir.IntType(16))


def _float16_to_float32(x):
    return x.like(x.builder.fpext(x.value, ir.FloatType()))


def _float32_to_float16(x):
    return x.like(x.builder.fptrunc(x.value, ir.HalfType()))


def _widened(bits, signed):
    """An integer of so many bits as an int32; the higher bits of its byte are ignored."""
    up = max(8 - bits, 0)
    return lambda x: (LLVMValue(x.builder, (x << up).value, signed) >> up).to(ir.IntType(32), signed)


def _narrowed(bits):
    return lambda x: x.to(ir.IntType(8)) & ((1 << bits) - 1) if bits < 8 else x.to(ir.IntType(bits))


_STORED = {
    **{name: (*_ELEMENTS[name], _same_value, _same_value) for name in _ELEMENTS if name != "bool"},
    **{
        f"{sign}int{bits}": (types.int32, ir.IntType(max(bits, 8)), _widened(bits, not sign), _narrowed(bits))
        for sign in ("", "u")
        for bits in (2, 4, 8, 16)
    },
    "bool": (
        types.boolean,
        ir.IntType(8),
        lambda x: x.differs(0),
        lambda x: LLVMValue(x.builder, x.value, False).to(ir.IntType(8)),
    ),
    "bfloat16": (types.float32, ir.IntType(16), _bfloat16_to_float32, _float32_to_bfloat16),
    "float16": (types.float32, ir.HalfType(), _float16_to_float32, _float32_to_float16),
}
"""Storage types: the type that kernels compute with, LLVM's in memory, and what makes one of the other."""

for _name, (_kind, _storage, _loaded, _kept) in _STORED.items():
    globals()[f"read_{_name}"] = _read(_kind, _storage, _loaded)
    globals()[f"write_{_name}"] = _write(_kind, _storage, _kept)

if not globals().get("_HARDWARE_HALF", True):
    # The prelude's, which convert by arithmetic.
    read_float16, write_float16 = globals()["load_f16"], globals()["store_f16"]
