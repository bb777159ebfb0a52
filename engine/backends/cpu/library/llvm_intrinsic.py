# mypy: allow-untyped-defs, allow-incomplete-defs
"""`llvm_intrinsic`: numba intrinsics from functions that emit LLVM code."""

import inspect

from numba import types
from numba.extending import intrinsic

from engine.backends.cpu.library.llvm_value import LLVMValue


def llvm_intrinsic(*kinds, result=types.void):
    """Decorator: makes an intrinsic from a function that takes and returns `LLVMValue`s.

    The arguments have these types; without any, all are int64.
    """

    def decorate(emit):
        names = [*inspect.signature(emit).parameters] if not kinds else map("x{}".format, range(len(kinds)))
        parameters = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("context", *names)
        ]
        signature = result(*(kinds or [types.int64] * (len(parameters) - 1)))

        def typed(typing_context, *given):
            def generate(context, builder, _, values):
                made = emit(*(LLVMValue(builder, value) for value in values))
                return context.get_dummy_value() if result is types.void else made.value

            return signature, generate

        typed.__name__ = emit.__name__
        # Numba asks how many arguments there are.
        typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return intrinsic(typed)

    return decorate
