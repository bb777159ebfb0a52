"""Argument blocks: a kernel reads each name from the word where the caller's packing has put its value."""

from __future__ import annotations

import pytest

from engine.backends.cpu.codegen.argument_block import FIRST_WORD, ArgumentBlock
from engine.backends.cpu.codegen.epilogue import Epilogue
from engine.kernels.word_encoding import as_word

BANDS = ArgumentBlock("height width scale", reals="scale")
BLOCK = ArgumentBlock("planes", BANDS, "top left")


def words_read(lines: list[str], words: list[int]) -> dict[str, int | float]:
    """What a prologue's statements make of an args block."""
    read: dict[str, int | float] = {}
    kinds = {"arg_i64": lambda args, k: args[k], "arg_f64": lambda args, k: ("bits", args[k])}
    exec("\n".join(lines), {"args": words, **kinds}, read)
    return read


def test_a_kernel_reads_what_the_caller_names() -> None:
    given = {"left": 6, "planes": 1, "top": 5, "scale": 0.5, "width": 3, "height": 2}
    words = [4, *map(as_word, (7.5, *BLOCK.values(**given))), 64, 128]
    found = words_read(BLOCK.prologue("out", "x"), words)
    assert found == {**given, "scale": ("bits", as_word(0.5)), "out": 64, "x": 128}
    assert BLOCK.values(planes=1, top=5, left=6, **BANDS.named((2, 3, 0.5))) == (1, 2, 3, 0.5, 5, 6)


def test_an_epilogue_reads_its_own_words_between() -> None:
    """It has a factor, the output's address and that of a tensor; `x` is the kernel's own input."""
    arguments = [f"{name} = arg_i64(args, {BANDS.end + k})" for k, name in enumerate(("p0", "out", "in0"))]
    epilogue = Epilogue(arguments, [], [], (9,), ("bias",), 0.0)
    values = (7.5, *BANDS.values(height=2, width=3, scale=0.5), 9)
    words = [4, *map(as_word, values), 64, 128, 192]
    found = words_read(BANDS.prologue("x", epilogue=epilogue), words)
    assert {name: found[name] for name in ("p0", "out", "in0", "x")} == {
        "p0": 9, "out": 64, "in0": 128, "x": 192,
    }  # fmt: skip


def test_the_first_word_follows_the_tasks_and_their_time() -> None:
    assert BANDS.read("height") == f"arg_i64(args, {FIRST_WORD})" == "arg_i64(args, 2)"
    assert ArgumentBlock("out rows", first=0).reading("{rows} + {out} + {lanes}") == (
        "arg_i64(args, 1) + arg_i64(args, 0) + {lanes}"
    )


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"height": 1, "width": 2}, "scale"),
        ({"height": 1, "width": 2, "scale": 0.5, "depth": 3}, "depth"),
        ({"height": 1, "depth": 2, "scale": 0.5}, "depth, width"),
    ],
)
def test_missing_and_unknown_names_are_refused(given: dict[str, float], wrong: str) -> None:
    with pytest.raises(TypeError, match=f"height, width, scale; missing or unknown: {wrong}$"):
        BANDS.values(**given)


def test_a_name_may_stand_once() -> None:
    with pytest.raises(AssertionError, match="stands twice"):
        ArgumentBlock("height", BANDS)
    with pytest.raises(AssertionError, match="none of the names"):
        ArgumentBlock("height", reals="width")
