"""What compiling leaves as it was, and what it does once: the rest of it is tested through the store."""

from __future__ import annotations

import contextlib
from typing import Any

import llvmlite.binding as llvm
import pytest
from numba.core import config
from numba.core.types.functions import BaseFunction

from engine.device.native import compile as compile_module
from engine.device.native.compile import CompileFailure, Compiler
from engine.device.native.prelude import PRELUDE, SHARED_ABOVE, written_out

KERNEL = """
def kernel(args, begin, end):
    store_i64(args, 0, arg_i64(args, 0) + step)
"""
SIGNATURE = "void(int64, int64, int64)"


def compiled(compiler: Compiler, text: str) -> bytes:
    code, _ = compiler.compile("one", written_out(text), "kernel", SIGNATURE, "one")
    return code


def test_what_texts_share_is_executed_once_and_the_rest_each_time() -> None:
    compiler = Compiler(SHARED_ABOVE)
    told: list[str] = []
    compiler._shared[""] = {"told": told}  # so that texts can say that they run
    shared = written_out(PRELUDE) + "told.append('shared')\n" + SHARED_ABOVE
    for step in (1, 2):
        compiled(compiler, f"{shared}told.append('own')\nstep = {step}\n{KERNEL}")
    assert told == ["shared", "own", "own"]
    # What a kernel defines of its own reaches no other one.
    with pytest.raises(CompileFailure, match="step"):
        compiled(compiler, shared + KERNEL)


def test_a_text_may_share_nothing() -> None:
    alone = compiled(Compiler(SHARED_ABOVE), "def kernel(args, begin, end):\n    pass\n")
    assert alone


def test_messages_count_lines_from_the_start_of_the_whole_text() -> None:
    text = PRELUDE + "\ndef kernel(args, begin, end):\n    store_i64(args, 0, begin.none)\n"
    with pytest.raises(CompileFailure, match=f"line {len(written_out(text).splitlines())}:"):
        compiled(Compiler(SHARED_ABOVE), text)


@pytest.mark.parametrize("text", ["step = 1\n" + KERNEL, "step = nothing\n", "step = ''\n" + KERNEL])
def test_numba_compiles_a_game_s_own_code_as_before(text: str) -> None:
    settings: Any = config
    level, rules = settings.OPT, BaseFunction.get_call_type
    with contextlib.suppress(CompileFailure):
        compiled(Compiler(SHARED_ABOVE), PRELUDE + text)
    assert settings.OPT is level
    assert BaseFunction.get_call_type is rules


MIXED = """
@helper
def half(x):
    return x / 2


def kernel(args, begin, end):
    one, two = arg_i64(args, 0), arg_f64(args, 1)
    for i in range(begin, end):
        total = one + i + 1
        store_f32(one, i, half(total) + half(two) * i + half(_types.float32(3)) + (total > two) + half(1))
        store_i64(one, i, min(total, 7) // 2 + max(i, one) % 3 - (one & 1) - half(1 << 2))
"""


def test_what_numba_remembers_changes_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same operations on other types stand in one kernel, and both in the next."""

    def instructions() -> bytes:
        code = compiled(Compiler(SHARED_ABOVE), PRELUDE + MIXED)
        # Names are others each time, as numba numbers what it compiles.
        sections = llvm.ObjectFileRef.from_data(code).sections()
        return b"".join(bytes(section.data()) for section in sections if section.is_text())

    remembered = [instructions() for _ in range(2)]
    assert compile_module._call_types
    monkeypatch.setattr(compile_module, "_cached_call_type", compile_module._call_type)
    plain = instructions()
    assert len(plain) > 200
    assert remembered == [plain, plain]
