"""The numba prelude of native kernels: memory access, bit operations, atomics and indirect calls.

`PRELUDE` stands for source, not code: it becomes part of a kernel's source, and so of the key under which the
kernel's object code is stored. Printers write `PRELUDE + their own text`.

A kernel is `void(int64 args, int64 begin, int64 end)`. `args` is the address of a block of 8-byte words;
`arg_i64(args, k)` and `arg_f64(args, k)` read word k (an integer or pointer, or a float64's bits).

- `load_T(address, index)` and `store_T(address, index, value)` for T in f32, f64, f16 (as float32 values),
  i8, i16, i32, i64, u8, u16, u32, u64, bool (one byte). `address` is in bytes and aligned for T; `index`
  counts elements. Stores cast the value to T as numba casts. Loops over such accesses vectorise.
- `i32_as_f32`, `f32_as_i32`: same bits.
- `atomic_load_T`, `atomic_store_T`, `atomic_add_T`, `atomic_exchange_T`, `atomic_cas_T` for T in i32, i64, in
  one total order. All but the store return the old value; `atomic_cas_T(address, index, expected, desired)`.
- `copy_bytes(destination, source, count)`, `set_bytes(destination, byte, count)`.
- `stack_bytes(count)`: the address of `count` (a literal) bytes, aligned to 64, gone when the kernel returns.
- `call_kernel(function, args, begin, end)`, `cpu_pause()`.
- `@helper` and `@typed_helper("int64(int64)")` are njit for the functions that a kernel calls: with the
  kernel's own options, and without the wrappers for Python that plain njit compiles too (they double the
  time). The typed form compiles once; the other for each combination of argument types, literals included.
"""

from __future__ import annotations

import hashlib

SHARED_ABOVE = "# what is above is shared with other kernels\n"
"""A line of a kernel's source: the text before it does not change what it means with the text behind, and is
executed once for all kernels of a compiling process that begin with it. There may be several.
"""

_STANDS_FOR = "# shared: "
_texts: dict[str, str] = {}


def shared(text: str) -> str:
    """Return a line that refers to source text shared by many kernels of a plan.

    Several may follow each other. The line holds a digest of the text, so a source's own digest covers it.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()
    _texts[digest] = text
    return f"{_STANDS_FOR}{digest}\n"


def written_out(source: str) -> str:
    """Expand the references to shared text; each is followed by `SHARED_ABOVE`."""
    found: list[str] = []
    while source.startswith(_STANDS_FOR):
        line, _, source = source.partition("\n")
        found += [_texts[line.removeprefix(_STANDS_FOR)], SHARED_ABOVE]
    return "".join([*found, source])


PRELUDE = shared(
    """\
import platform as _platform

from llvmlite import binding as _binding
from llvmlite import ir as _ir
from numba import njit as _njit
from numba import types as _types
from numba.core import errors as _errors
from numba.extending import intrinsic as _intrinsic

_I1, _I8, _I16, _I32, _I64 = (_ir.IntType(_bits) for _bits in (1, 8, 16, 32, 64))
_HALF, _FLOAT, _DOUBLE = _ir.HalfType(), _ir.FloatType(), _ir.DoubleType()
_HELPER_OPTIONS = {
    "error_model": "numpy",
    "fastmath": {"contract"},
    "boundscheck": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def helper(function):
    return _njit(**_HELPER_OPTIONS)(function)


def typed_helper(signature):
    return _njit(signature, **_HELPER_OPTIONS)


def _element(builder, address, index, storage):
    pointer = builder.inttoptr(address, storage.as_pointer())
    return builder.gep(pointer, [index], inbounds=True)


def _make_load(result, storage, size, convert=None):
    @_intrinsic
    def load(typing_context, address, index):
        def generate(context, builder, signature, args):
            value = builder.load(_element(builder, args[0], args[1], storage), align=size)
            return value if convert is None else convert(builder, value)

        return result(_types.int64, _types.int64), generate

    return load


def _make_store(stored, storage, size, convert=None):
    @_intrinsic
    def store(typing_context, address, index, value):
        def generate(context, builder, signature, args):
            converted = context.cast(builder, args[2], signature.args[2], stored)
            if convert is not None:
                converted = convert(builder, converted)
            builder.store(converted, _element(builder, args[0], args[1], storage), align=size)
            return context.get_dummy_value()

        return _types.void(_types.int64, _types.int64, value), generate

    return store


load_f32, store_f32 = _make_load(_types.float32, _FLOAT, 4), _make_store(_types.float32, _FLOAT, 4)
load_f64, store_f64 = _make_load(_types.float64, _DOUBLE, 8), _make_store(_types.float64, _DOUBLE, 8)
load_i8, store_i8 = _make_load(_types.int8, _I8, 1), _make_store(_types.int8, _I8, 1)
load_i16, store_i16 = _make_load(_types.int16, _I16, 2), _make_store(_types.int16, _I16, 2)
load_i32, store_i32 = _make_load(_types.int32, _I32, 4), _make_store(_types.int32, _I32, 4)
load_i64, store_i64 = _make_load(_types.int64, _I64, 8), _make_store(_types.int64, _I64, 8)
load_u8, store_u8 = _make_load(_types.uint8, _I8, 1), _make_store(_types.uint8, _I8, 1)
load_u16, store_u16 = _make_load(_types.uint16, _I16, 2), _make_store(_types.uint16, _I16, 2)
load_u32, store_u32 = _make_load(_types.uint32, _I32, 4), _make_store(_types.uint32, _I32, 4)
load_u64, store_u64 = _make_load(_types.uint64, _I64, 8), _make_store(_types.uint64, _I64, 8)
load_bool = _make_load(_types.boolean, _I8, 1, lambda b, v: b.icmp_unsigned("!=", v, _I8(0)))
store_bool = _make_store(_types.boolean, _I8, 1, lambda b, v: b.zext(v, _I8))
arg_i64, arg_f64 = load_i64, load_f64


def _make_bitcast(source, target, storage):
    @_intrinsic
    def bitcast(typing_context, value):
        def generate(context, builder, signature, args):
            return builder.bitcast(args[0], storage)

        return target(source), generate

    return bitcast


i32_as_f32 = _make_bitcast(_types.int32, _types.float32, _FLOAT)
f32_as_i32 = _make_bitcast(_types.float32, _types.int32, _I32)


# Without a half conversion instruction LLVM calls a compiler-rt function that the process may lack.
_HARDWARE_HALF = _platform.machine().lower() in ("arm64", "aarch64") or _binding.get_host_cpu_features().get(
    "f16c", False
)


@helper
def soft_f16_bits_to_f32(bits):
    wide = (_types.int64(bits) & 0x7FFF) << 13
    magnitude = i32_as_f32(_types.int32(wide)) * i32_as_f32(_types.int32((254 - 15) << 23))
    result = _types.int64(f32_as_i32(magnitude))
    if wide >= 0x7C00 << 13:
        result |= 255 << 23
    return i32_as_f32(_types.int32(result | ((_types.int64(bits) & 0x8000) << 16)))


@helper
def soft_f32_to_f16_bits(value):
    bits = _types.int64(f32_as_i32(_types.float32(value))) & 0xFFFFFFFF
    sign = (bits >> 16) & 0x8000
    bits &= 0x7FFFFFFF
    if bits > 0x7F800000:
        half = 0x7E00 | ((bits >> 13) & 0x3FF)
    elif bits >= (127 + 16) << 23:
        half = 0x7C00
    elif bits < 113 << 23:
        # The sum's rounding drops exactly the bits that a subnormal half cannot hold.
        anchor = i32_as_f32(_types.int32(126 << 23))
        total = i32_as_f32(_types.int32(bits)) + anchor
        half = _types.int64(f32_as_i32(total)) - (126 << 23)
    else:
        half = (bits - (112 << 23) + 0xFFF + ((bits >> 13) & 1)) >> 13
    return _types.uint16(half | sign)


if _HARDWARE_HALF:
    load_f16 = _make_load(_types.float32, _HALF, 2, lambda b, v: b.fpext(v, _FLOAT))
    store_f16 = _make_store(_types.float32, _HALF, 2, lambda b, v: b.fptrunc(v, _HALF))
else:

    @helper
    def load_f16(address, index):
        return soft_f16_bits_to_f32(load_u16(address, index))

    @helper
    def store_f16(address, index, value):
        store_u16(address, index, soft_f32_to_f16_bits(value))


def _make_atomics(kind, storage, size):
    @_intrinsic
    def atomic_load(typing_context, address, index):
        def generate(context, builder, signature, args):
            return builder.load_atomic(_element(builder, *args, storage), "seq_cst", size)

        return kind(_types.int64, _types.int64), generate

    @_intrinsic
    def atomic_store(typing_context, address, index, value):
        def generate(context, builder, signature, args):
            builder.store_atomic(args[2], _element(builder, args[0], args[1], storage), "seq_cst", size)
            return context.get_dummy_value()

        return _types.void(_types.int64, _types.int64, kind), generate

    def make_update(operation):
        @_intrinsic
        def update(typing_context, address, index, value):
            def generate(context, builder, signature, args):
                pointer = _element(builder, args[0], args[1], storage)
                return builder.atomic_rmw(operation, pointer, args[2], "seq_cst")

            return kind(_types.int64, _types.int64, kind), generate

        return update

    @_intrinsic
    def atomic_cas(typing_context, address, index, expected, desired):
        def generate(context, builder, signature, args):
            pointer = _element(builder, args[0], args[1], storage)
            return builder.extract_value(builder.cmpxchg(pointer, args[2], args[3], "seq_cst", "seq_cst"), 0)

        return kind(_types.int64, _types.int64, kind, kind), generate

    return atomic_load, atomic_store, make_update("add"), make_update("xchg"), atomic_cas


(atomic_load_i32, atomic_store_i32, atomic_add_i32, atomic_exchange_i32, atomic_cas_i32) = _make_atomics(
    _types.int32, _I32, 4
)
(atomic_load_i64, atomic_store_i64, atomic_add_i64, atomic_exchange_i64, atomic_cas_i64) = _make_atomics(
    _types.int64, _I64, 8
)


@_intrinsic
def copy_bytes(typing_context, destination, source, count):
    def generate(context, builder, signature, args):
        pointers = [builder.inttoptr(value, _I8.as_pointer()) for value in args[:2]]
        copy = builder.module.declare_intrinsic("llvm.memcpy", [pointers[0].type, pointers[1].type, _I64])
        builder.call(copy, [*pointers, args[2], _I1(0)])
        return context.get_dummy_value()

    return _types.void(_types.int64, _types.int64, _types.int64), generate


@_intrinsic
def set_bytes(typing_context, destination, byte, count):
    def generate(context, builder, signature, args):
        pointer = builder.inttoptr(args[0], _I8.as_pointer())
        fill = builder.module.declare_intrinsic("llvm.memset", [pointer.type, _I64])
        builder.call(fill, [pointer, args[1], args[2], _I1(0)])
        return context.get_dummy_value()

    return _types.void(_types.int64, _types.uint8, _types.int64), generate


@_intrinsic(prefer_literal=True)
def stack_bytes(typing_context, count):
    if not isinstance(count, _types.IntegerLiteral):
        raise _errors.TypingError("stack_bytes needs a literal count")
    size = count.literal_value

    def generate(context, builder, signature, args):
        # Not numba's own alloca helper: it would fill the bytes with zeros.
        with builder.goto_entry_block():
            slot = builder.alloca(_ir.ArrayType(_I8, size))
        slot.align = 64
        return builder.ptrtoint(slot, _I64)

    return _types.int64(count), generate


@_intrinsic
def call_kernel(typing_context, function, args_address, begin, end):
    def generate(context, builder, signature, args):
        kind = _ir.FunctionType(_ir.VoidType(), [_I64, _I64, _I64])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return _types.void(_types.int64, _types.int64, _types.int64, _types.int64), generate


_MACHINE = _platform.machine().lower()


@_intrinsic
def cpu_pause(typing_context):
    def generate(context, builder, signature, args):
        if _MACHINE in ("x86_64", "amd64"):
            kind = _ir.FunctionType(_ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), kind), [])
        elif _MACHINE in ("aarch64", "arm64"):
            kind = _ir.FunctionType(_ir.VoidType(), [_I32])
            builder.call(builder.module.declare_intrinsic("llvm.aarch64.hint", (), kind), [_I32(1)])
        return context.get_dummy_value()

    return _types.void(), generate


"""
)
