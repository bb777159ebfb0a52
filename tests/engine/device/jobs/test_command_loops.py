"""Commands that repeat: as so many in a row, on threads, on the calling one, in parts, and in each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest

from engine.device import native
from engine.device.jobs.builtin_commands import builtin_functions
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.command_loops import (
    BEGIN,
    HEADER_WORDS,
    TURN,
    count_runs,
    some_runs,
    table_of,
    units_of,
)
from engine.device.jobs.system import JobSystem
from engine.device.native import NativeSource
from engine.device.native.prelude import PRELUDE

STEP = """
def step(args, begin, end):
    source, target = arg_i64(args, 0), arg_i64(args, 1)
    n, run = arg_i64(args, 2), arg_i64(args, 3)
    for i in range(begin, end):
        value = load_i64(source, (i + n - 1) % n) + 3 * load_i64(source, (i + 1) % n) + run * i
        store_i64(target, i, value % 1000003)
"""
"""args: source, target, how many elements, the run."""

N = 257


@pytest.fixture(scope="module")
def step() -> int:
    source = NativeSource("step", PRELUDE + STEP, "step")
    return native.process_store().address(source)


@pytest.fixture(params=["1 thread", "4 threads", "4 threads, no spin"])
def system(request: pytest.FixtureRequest) -> Iterator[JobSystem]:
    with JobSystem(int(request.param[0]), spin=0 if "no spin" in request.param else None) as jobs:
        yield jobs


class Walk:
    """A state that steps `count` times: each result goes to a row of `kept`, the last one to `last`."""

    def __init__(self, step: int, count: int, grain: int = N) -> None:
        self.count = count
        self.states = np.zeros((2, N), np.int64)
        self.states[0] = self.first = np.arange(N)
        self.kept = np.zeros((count, N), np.int64)
        self.last = np.zeros(N, np.int64)
        even, odd = (row.ctypes.data for row in self.states)
        copy = builtin_functions()["copy"]
        words = [0, 0, count, 0]
        assert len(words) == HEADER_WORDS
        stepping, keeping, ending = 4, 8, 12
        words += [even, odd, N, 0]
        words += [builtin_functions()["copy"], 0, self.kept.ctypes.data, odd]
        words += [self.last.ctypes.data, even]
        table = len(words)
        words[3] = 8 * table

        def entry(place: int, first: int, stride: int, other: int) -> tuple[int, int, int, int]:
            return 8 * (place - table), first, stride, other - first if other else 0

        words += table_of(
            [
                entry(stepping, even, 0, odd),
                entry(stepping + 1, odd, 0, even),
                entry(stepping + 3, 0, 1, 0),
                entry(keeping + 1, 0, 8 * N, 0),
                entry(keeping + 3, odd, 0, even),
                entry(ending + 1, even, 0, odd),
            ]
        )
        # A window begins `first` bytes into both of what is copied: the source has as many runs before it.
        words[table + 1 + 4 * 4 + 2] = -8 * N
        self.block = np.array(words, np.int64)
        address = self.block.ctypes.data

        def args(place: int) -> int:
            return address + 8 * place

        self.rows = np.array(
            [
                (BEGIN, address, 2, 4),
                (step, args(stepping), N, grain),
                (builtin_functions()["window"], args(keeping), 8 * N, 8 * grain),
                (TURN, address, 2, 1),
                (copy, args(ending), 8 * N, 8 * N),
            ],
            np.int64,
        )

    def expected(self) -> np.ndarray:
        rows, state = [], self.first
        for run in range(self.count):
            state = (np.roll(state, 1) + 3 * np.roll(state, -1) + run * np.arange(N)) % 1000003
            rows.append(state)
        return np.array(rows)

    def check(self) -> None:
        rows = self.expected()
        np.testing.assert_array_equal(self.kept, rows)
        np.testing.assert_array_equal(self.last, rows[-1])
        self.kept[:] = self.last[:] = 0
        self.states[0] = self.first

    def commands(self) -> CommandList:
        return CommandList(self.rows, self.block)


def inline(system: JobSystem, commands: CommandList) -> None:
    system.run_inline(commands)


def submitted(system: JobSystem, commands: CommandList) -> None:
    assert system.submit(commands).complete(20)


def polled(system: JobSystem, commands: CommandList) -> None:
    """No thread helps the job threads."""
    handle = system.submit(commands)
    while not handle.is_completed:
        pass


def listed(system: JobSystem, commands: CommandList) -> None:
    words = np.array([commands.address, commands.count], np.int64)
    row = (builtin_functions()["lists"], words.ctypes.data, 1, 1)
    system.run_inline(CommandList([row], (words, commands)))


@pytest.mark.parametrize("run", [inline, submitted, polled, listed])
@pytest.mark.parametrize(("count", "grain"), [(1, N), (2, N), (9, 20), (300, 64), (1001, N)])
def test_runs_follow_each_other(
    step: int, system: JobSystem, run: Callable[[JobSystem, CommandList], None], count: int, grain: int
) -> None:
    walk = Walk(step, count, grain)
    commands = walk.commands()
    for _ in range(3):
        run(system, commands)
        walk.check()


def test_commands_stand_before_and_behind(step: int, system: JobSystem) -> None:
    one, other = Walk(step, 7, 50), Walk(step, 8)
    rows = np.concatenate([one.rows, other.rows, one.rows[4:]])
    assert units_of(rows).tolist() == [0, 5, 10]
    submitted(system, CommandList(rows, (one, other)))
    one.check()
    other.check()


@pytest.mark.parametrize("cuts", [(0, 13), (0, 1, 13), (0, 5, 6, 12, 13), tuple(range(14))])
def test_runs_in_parts(step: int, system: JobSystem, cuts: tuple[int, ...]) -> None:
    walk = Walk(step, 13, 40)
    assert count_runs(walk.rows) == 13
    last = None
    for first, end in pairwise(cuts):
        rows, header = some_runs(walk.rows, first, end)
        assert units_of(rows).tolist() == [0]
        last = system.submit(CommandList(rows, (header, walk)), [last] if last is not None else [])
    assert last is not None
    assert last.complete(20)
    walk.check()


def test_runs_inside_runs(step: int, system: JobSystem) -> None:
    """The inner runs begin anew in each of the outer ones, from where the last have ended."""
    walk = Walk(step, 6, 50)
    back = np.array([walk.states[0].ctypes.data, walk.last.ctypes.data], np.int64)
    again = (builtin_functions()["copy"], back.ctypes.data, 8 * N, 8 * N)
    header = np.array([0, 0, 5, 8 * HEADER_WORDS, *table_of([])], np.int64)
    inner = [*walk.rows.tolist(), again]
    address = header.ctypes.data
    rows = [(BEGIN, address, len(inner), len(inner) + 1), *inner, (TURN, address, len(inner), 1)]
    submitted(system, CommandList(np.array(rows, np.int64), (walk, back, header)))
    state = walk.first
    for _ in range(5):
        walk.first = state
        state = walk.expected()[-1]
    np.testing.assert_array_equal(walk.last, state)
