"""The function that is generated of a record of sizes: its guards come first, and nothing is for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.kernels import size_program
from engine.kernels.size import deferred, largest
from engine.kernels.size_program import Line, ordered
from engine.kernels.size_recorder import SizeRecorder


def test_guards_come_before_calls_and_what_nobody_needs_is_left_out() -> None:
    call = Line("r = f(a)", ("a",), ("r",), is_call=True)
    behind_call = Line("if r: return None", ("r",))
    unused, used = Line("b = a + 1", ("a",), ("b",)), Line("c = a + 2", ("a",), ("c",))
    guard = Line("if c: return None", ("c",))
    result = Line("d = r + 1", ("r",), ("d",))
    assert ordered([call, behind_call, unused, used, guard, result], ["d"]) == [
        used,
        guard,
        call,
        behind_call,
        result,
    ]


def test_sizes_that_a_guard_refuses_call_nothing() -> None:
    called = []

    def doubled(number: int) -> int:
        called.append(number)
        return 2 * number

    recorder = SizeRecorder()
    size = recorder.input(7)
    twice = deferred(doubled, size)
    assert size % 3 == 1
    program = recorder.program([twice])
    called.clear()
    assert program(9) is None
    assert not called
    assert program(10) == [20]
    assert called == [10]


def test_what_is_equal_for_all_sizes_needs_no_guard() -> None:
    recorder = SizeRecorder()
    n, m = recorder.input(5), recorder.input(6)
    assert 64 * (2 * n) == n * 64 + n * 64
    assert (n + m) * (n + m) == n * n + 2 * n * m + m * m
    assert n * 64 // n == 64
    assert n - (0 - m) - m is n
    assert largest(3 * n, 5 * n, n) == 5 * n
    assert 3 * n + 1 != 3 * n
    assert n * m + n > n
    assert not recorder.guards


def test_a_result_of_another_form_refuses_the_sizes() -> None:
    recorder = SizeRecorder()
    size = recorder.input(4)
    found = deferred(lambda n: (n, None) if n < 10 else (n, n) if n < 20 else n, size)
    assert found[1] is None
    program = recorder.program([found[0]])
    assert program(9) == [9]
    assert program(10) is None
    assert program(20) is None


def test_its_code_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_program, "_folder", lambda: tmp_path)
    recorder = SizeRecorder()
    size = recorder.input(7)
    numbers = [size * 3, size // 2]
    size_program._code_of.cache_clear()
    assert recorder.program(numbers)(8) == [24, 4]
    [file] = tmp_path.iterdir()
    size_program._code_of.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(size_program, "compile", None, raising=False)
        assert recorder.program(numbers)(9) == [27, 4]
    # A damaged file is as good as none.
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    size_program._code_of.cache_clear()
    assert recorder.program(numbers)(10) == [30, 5]
