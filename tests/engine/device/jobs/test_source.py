"""The text that a function becomes: what it needs is there, what it cannot have is named."""

from __future__ import annotations

import math
import math as mathematics
from math import sqrt
from typing import Any

import numpy as np
import pytest

from engine import InputError, job
from engine.device.jobs.source import source_text

NOTHING: list[int] = []
TABLE = (1, 2.5, (True, np.float32(0.5)))


def inner(value: float) -> float:
    return sqrt(value) + TABLE[0]


def outer(value: float) -> float:
    return inner(value) * mathematics.pi


def uses_all(
    begin: int,
    end: int,
    out: np.ndarray[Any, Any],
    x: list[float],
) -> (
    dict[
        str, int  # of some length
    ]
    | None
):
    for i in range(begin, end):
        note: float = outer(x[i])
        out[i] = note + math.floor(np.float32(x[i])) + inner(TABLE[1])
    return None


def test_what_a_function_calls_comes_before_it_and_runs() -> None:
    found = source_text(uses_all)
    assert found.parameters == ("begin", "end", "out", "x")
    names: dict[str, Any] = {"_gameglue_helper": lambda function: function}
    exec(found.text, names)
    out = [0.0]
    names["uses_all"](0, 1, out, [4.0])
    assert out == [pytest.approx((2 + 1) * math.pi + 4 + math.sqrt(2.5) + 1)]


def test_lines_are_those_of_the_file() -> None:
    found = source_text(uses_all)
    number = next(k for k, line in enumerate(found.text.splitlines(), 1) if "note + math" in line)
    place = found.place(number)
    assert place is not None
    file, line = place.rsplit(":", 1)
    with open(file, encoding="utf-8") as lines:
        assert "note + math" in lines.readlines()[int(line) - 1]
    assert found.place(10_000) is None


def test_which_arrays_may_be_written() -> None:
    def mixed(begin, end, read, cut, part, passed, whole):
        for i in range(begin, end):
            row = part[i]
            row[0] = read[i, 0] + len(read) + read.shape[1]
            whole[i] += inner(passed)
            cut[:1] = 0

    written = source_text(mixed).written
    assert [written(name, 2) for name in ("read", "cut", "part", "passed", "whole")] == [
        False, True, True, True, True
    ]  # fmt: skip
    assert not written("part", 1)


def test_what_has_no_text_is_named() -> None:
    def uses_list(begin, end, out):
        out[0] = NOTHING[0]

    def uses_unknown(begin, end, out):
        out[0] = not_defined_anywhere  # type: ignore[name-defined]  # noqa: F821

    def has_default(begin, end, out, scale=1.0):
        out[0] = scale

    def has_no_range(out):
        out[0] = 1

    renamed = inner

    def calls_renamed(begin, end, out):
        out[0] = renamed(1.0)

    for function, message in (
        (uses_list, "uses 'NOTHING', a list: .*pass anything else as an argument"),
        (uses_unknown, "uses 'not_defined_anywhere', which is not defined"),
        (has_default, "plain parameters only"),
        (has_no_range, "needs the parameters begin and end"),
        (calls_renamed, "calls 'inner' as 'renamed'"),
        (lambda begin, end, out: None, "not a lambda"),
    ):
        with pytest.raises(InputError, match=message):
            source_text(function)
    names: dict[str, Any] = {}
    exec("def unseen(begin, end, out):\n    out[0] = 1\n", names)
    with pytest.raises(InputError, match="cannot be read"):
        source_text(names["unseen"])
    with pytest.raises(InputError, match="not a type"):
        job(int)
