"""Functions of sizes: what native code makes of them, and calls of several at once."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from engine.backends.cpu.codegen import task_partition
from engine.device import native
from engine.kernels.size import deferred
from engine.kernels.size_function import SizeFunction
from engine.kernels.size_program import Line, ordered
from engine.kernels.size_recorder import SizeRecorder


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    native.process_store().load([task_partition.cut_tasks.library.source])


def numbers(
    rng: random.Random, function: SizeFunction[..., Any], rows: tuple[int, int, int]
) -> list[int | float]:
    """Arguments of a function of `task_partition`, for such tiles."""
    size, few, ns = partial(rng.randint, 1, 700), partial(rng.randint, 1, 8), partial(rng.uniform, 10.0, 1e5)
    if function is task_partition.cut_product:
        return [size(), size(), size(), 14, 32, few(), ns(), few()]
    if function is task_partition.cut_tasks:
        return [size(), few(), few(), few(), ns(), ns(), ns(), 300.0]
    if function is task_partition.cut_bands:
        return [size(), size(), few(), few(), few(), few(), few(), few(), ns(), 0.1, 100.0, few()]
    shape = [few(), size(), size(), size(), size(), rng.choice([2, 4])]
    return [*shape, 32, 16, *rows, 75.0, 28.0, 14.0, 85.0, 45.0, 0.9, 0.75, 1 << 20, 2e4, few()]


@pytest.mark.parametrize("name", ["cut_product", "cut_tasks", "cut_bands", "cut_winograd"])
@pytest.mark.parametrize("rows", [(14, 8, 4), (6, 3, 0)])
def test_native_code_yields_the_same_bits(name: str, rows: tuple[int, int, int]) -> None:
    """Also where it is called for several sizes at once."""
    function, rng = getattr(task_partition, name), random.Random(3)
    first = numbers(rng, function, rows)
    recorder = SizeRecorder()
    sizes = [recorder.input(n) if isinstance(n, int) else n for n in first]
    others = [size + 1 if kind == "q" else size for size, kind in zip(sizes, function.given, strict=True)]
    results = [*deferred(function, *sizes), *deferred(function, *others)]
    program = recorder.program(results)
    assert any(name.startswith("pack") for name in program.__globals__)
    for _ in range(200):
        drawn = numbers(rng, function, rows)
        given = [n if isinstance(n, int) else one for n, one in zip(drawn, first, strict=True)]
        made = program(*[n for n in given if isinstance(n, int)])
        again = [n + isinstance(n, int) for n in given]
        assert made == [*function(*given), *function(*again)]
        assert [*map(type, made)] == 2 * [int if kind == "q" else float for kind in function.made]


def test_a_size_beyond_64_bits_is_refused() -> None:
    recorder = SizeRecorder()
    size = recorder.input(7)
    program = recorder.program(deferred(task_partition.cut_product, size**8, 3, 3, 14, 32, 1, 1e4, 2))
    assert program(8) == [*task_partition.cut_product(8**8, 3, 3, 14, 32, 1, 1e4, 2)]
    assert program(1 << 10) is None


def test_without_native_code_it_is_a_python_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_partition.cut_tasks.library, "run", lambda: None)
    recorder = SizeRecorder()
    program = recorder.program(
        deferred(task_partition.cut_product, recorder.input(7), 3, 3, 14, 32, 1, 1e4, 2)
    )
    assert program(8) == [*task_partition.cut_product(8, 3, 3, 14, 32, 1, 1e4, 2)]


def test_calls_that_can_be_made_together_follow_each_other() -> None:
    def call(made: str, *used: str) -> Line:
        return Line(f"{made} = f({used})", used, (made,), is_call=True)

    first, between, second = call("a", "s"), Line("b = a + s", ("a", "s"), ("b",)), call("c", "s")
    last = call("d", "b")
    assert ordered([first, between, last, second], ["d", "c"]) == [first, second, between, last]
