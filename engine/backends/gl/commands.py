"""A command list: OpenGL calls as rows of integers, replayed by native code.

A call from Python costs about half a microsecond; a loop over rows of (function, five arguments) in machine
code a sixth of that, in one Python call for a whole plan. All calls in it take integers and pointers only,
and none returns anything that is used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from engine.device.gl.functions import FUNCTION_TYPE
from engine.device.native import NativeSource
from engine.device.native.background_function import BackgroundFunction
from engine.device.native.call_rows import call_row
from engine.device.native.prelude import PRELUDE

ARGUMENTS = 5
_ROW = 1 + ARGUMENTS

REPLAY = NativeSource(
    "replay of OpenGL calls",
    PRELUDE
    + call_row(ARGUMENTS)
    + f"""

def replay(args, begin, end):
    for k in range(begin, end):
        _call_row(args + k * {8 * _ROW})
""",
    "replay",
)

_NATIVE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


Setting = Callable[[np.ndarray, int, int], None]
"""Sets what differs by run: called with a list's rows, where those of the repetition begin, and the run."""


class IterationRows(NamedTuple):
    """The rows of one run, counted from the first row of its repetition on.

    settings: what sets their arguments. repetitions: those among the rows, which begin at rows counted alike.
    """

    begin: int
    end: int
    settings: Sequence[Setting]
    repetitions: Sequence[CommandLoop]


@dataclass(frozen=True)
class CommandLoop:
    """A loop in a command list: the rows of even iterations and those of odd ones."""

    first: int
    rows: tuple[IterationRows, IterationRows]
    runs: range

    @property
    def end(self) -> int:
        """Behind its last row."""
        return self.first + self.rows[1].end


class CallList:
    """A list of calls, finally one array. `keep` holds the arrays that their pointers point to."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []
        self.keep: list[np.ndarray] = []
        self.steps: list[int] = []
        """Where each step of the plan begins, in rows."""
        self.repetitions: list[CommandLoop] = []
        """In order."""
        self.table = np.zeros((0, _ROW), np.int64)

    @classmethod
    def joined(cls, lists: Sequence[CallList]) -> CallList:
        """Join finished lists; they must outlive the result."""
        found = cls()
        found.table = np.concatenate([each.table for each in lists])
        begin = 0
        for each in lists:
            found.repetitions += [replace(r, first=begin + r.first) for r in each.repetitions]
            begin += len(each.table)
        return found

    def filled(self, table: np.ndarray, keep: Sequence[np.ndarray]) -> CallList:
        """A finished list like this one with other arguments; `keep` holds what their pointers point to."""
        found = CallList()
        found.table, found.steps, found.keep = table, self.steps, list(keep)
        return found

    def call(self, function: int, *arguments: int) -> None:
        """Add a call of the function at an address."""
        self._rows.append((function, *arguments, *[0] * (ARGUMENTS - len(arguments))))

    def begin_step(self) -> None:
        """Begin the next step."""
        self.steps.append(len(self._rows))

    def pointer(self, array: np.ndarray) -> int:
        """The address of an array that lives as long as this list."""
        self.keep.append(array)
        return array.ctypes.data

    def finish(self) -> None:
        """Make the rows ready for replay."""
        self.table = np.array(self._rows, np.int64).reshape(-1, _ROW)

    def __len__(self) -> int:
        return len(self._rows)


class Replayer:
    """Runs command lists: in native code once that is compiled, through ctypes until then."""

    def __init__(self) -> None:
        self._native = BackgroundFunction(REPLAY, _NATIVE)
        self._functions: dict[int, Any] = {}

    def load(self) -> bool:
        """Load the native code if it is compiled, so that no frame's run does; returns whether it is loaded.

        Any thread may call this.
        """
        return self._native.get() is not None

    def wait(self) -> bool:
        """Wait until the native code is loaded; False if it is unavailable."""
        return self._native.wait() is not None

    def run(self, commands: CallList, first: int = 0, end: int | None = None) -> None:
        """Issue the calls of a finished list, or its rows `first` to `end`; the context must be current."""
        end = len(commands.table) if end is None else end
        self._run(commands.table, first, end, commands.repetitions, 0)

    def _run(
        self, table: np.ndarray, first: int, end: int, repetitions: Sequence[CommandLoop], origin: int
    ) -> None:
        """Rows of a list; `origin` is the row from which those of the repetitions are counted."""
        for repetition in repetitions:
            begin = origin + repetition.first
            if not first <= begin < end:
                continue
            self._issue(table, first, begin)
            for number in repetition.runs:
                rows = repetition.rows[number % 2]
                for setting in rows.settings:
                    setting(table, begin, number)
                self._run(table, begin + rows.begin, begin + rows.end, rows.repetitions, begin)
            first = origin + repetition.end
        self._issue(table, first, end)

    def _issue(self, table: np.ndarray, first: int, end: int) -> None:
        native = self._native.get()
        if native is not None:
            native(table.ctypes.data, first, end)
            return
        for address, *arguments in table[first:end].tolist():
            function = self._functions.get(address)
            if function is None:
                function = FUNCTION_TYPE(None, *[ctypes.c_int64] * ARGUMENTS)(address)
                self._functions[address] = function
            function(*arguments)
