"""Source of native code that calls functions by address: a row has the address, then the arguments."""

from __future__ import annotations


def call_row(arguments: int) -> str:
    """Source of `_call_row(row)`, which calls a row's function with so many 64-bit `arguments`.

    Its result is the function's, as an int32. Callees read as many arguments as they have, and may return
    nothing: on every 64-bit calling convention the rest does no harm.
    """
    return f"""

@_intrinsic
def _call_row(typing_context, row):
    def generate(context, builder, signature, args):
        pointer = builder.inttoptr(args[0], _I64.as_pointer())
        words = [builder.load(builder.gep(pointer, [_I64(k)])) for k in range({1 + arguments})]
        kind = _ir.FunctionType(_I32, [_I64] * {arguments})
        return builder.call(builder.inttoptr(words[0], kind.as_pointer()), words[1:])

    return _types.int32(_types.int64), generate
"""
