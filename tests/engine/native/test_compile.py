"""What compiling leaves as it was, and what it does once: the rest of it is tested through the store."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from numba.core import config

from engine.native.compile import CompileFailure, Compiler
from engine.native.prelude import PRELUDE, SHARED_ABOVE

KERNEL = """
def kernel(args, begin, end):
    store_i64(args, 0, arg_i64(args, 0) + step)
"""
SIGNATURE = "void(int64, int64, int64)"


def compiled(compiler: Compiler, text: str) -> bytes:
    code, _ = compiler.compile("one", text, "kernel", SIGNATURE, "one")
    return code


def test_what_texts_share_is_executed_once_and_the_rest_each_time() -> None:
    compiler = Compiler(SHARED_ABOVE)
    told: list[str] = []
    compiler._shared[""] = {"told": told}  # so that texts can say that they run
    shared = PRELUDE + "told.append('shared')\n" + SHARED_ABOVE
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
    with pytest.raises(CompileFailure, match=f"line {len(text.splitlines())}:"):
        compiled(Compiler(SHARED_ABOVE), text)


@pytest.mark.parametrize("text", ["step = 1\n" + KERNEL, "step = nothing\n", "step = ''\n" + KERNEL])
def test_numba_optimises_a_game_s_own_code_as_before(text: str) -> None:
    settings: Any = config
    level = settings.OPT
    with contextlib.suppress(CompileFailure):
        compiled(Compiler(SHARED_ABOVE), PRELUDE + text)
    assert settings.OPT is level
