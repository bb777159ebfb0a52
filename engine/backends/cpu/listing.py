"""From steps to commands: rows of a command list and the words of their arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from engine.backends.cpu.arguments import argument_words, count_words, generic_units, generic_words
from engine.backends.cpu.cost import grain, row_blocks, step_ns
from engine.compiler.plan import RepeatedSteps, Step
from engine.device.jobs.repetition import BEGIN, HEADER_WORDS, TURN, table_of
from engine.device.jobs.stock import stock_functions
from engine.kernels.expr import RunNumber
from engine.kernels.size import Number


class Changing(NamedTuple):
    """A word of a repeated step that is another in each run, by its place among the step's words.

    Before run n it is `first + n * stride`, or the address of the tensor `even`; of `odd` where n is odd.
    """

    place: int
    first: Number = 0
    stride: Number = 0
    even: str = ""
    odd: str = ""


def changing_words(step: Step, swapped: Mapping[str, str]) -> Iterator[Changing]:
    """Those of a step. A window's come first among its words: the kernel, and where it begins."""
    names = (step.output, *step.inputs)
    end = count_words(step)
    if step.window is not None:
        yield Changing(1, step.window.start, step.window.stride)
    for place, value in enumerate(step.values, end - len(names) - len(step.values)):
        if isinstance(value, RunNumber):
            yield Changing(place, 0, 1)
    for place, name in enumerate(names, end - len(names)):
        if name in swapped:
            yield Changing(place, even=name, odd=swapped[name])


class OpenRepeats:
    """The repeats whose steps are being added, innermost last, and the words that change in their runs."""

    def __init__(self) -> None:
        self._levels: list[tuple[Mapping[str, str], list[tuple[int, Changing]]]] = []

    @contextmanager
    def opened(self, swapped: Mapping[str, str]) -> Iterator[list[tuple[int, Changing]]]:
        """A block in which steps are added to one more repeat.

        Yields the words that change, each with where those of its step begin. `swapped`: which tensors stand
        for which in runs with an odd number.
        """
        changing: list[tuple[int, Changing]] = []
        self._levels.append((swapped, changing))
        yield changing
        self._levels.pop()

    def add(self, step: Step, start: int) -> None:
        """Add a step whose words begin at `start`."""
        for outer, (swapped, changing) in enumerate(reversed(self._levels)):
            # Numbers of runs, and windows, are those of the innermost.
            changing += [(start, word) for word in changing_words(step, swapped) if word.even or not outer]


class Listing:
    """Collects the commands of steps whose buffers have addresses.

    nanoseconds: what they are estimated to take on one thread. places: for addresses of which that is to be
    known, which words they are.
    """

    def __init__(
        self,
        functions: Mapping[str, int],
        addresses: Mapping[str, int],
        threads: int,
        places: dict[int, list[int]],
    ) -> None:
        self._functions = functions
        self._addresses = addresses
        self._threads = threads
        self._words: list[int] = []
        self._rows: list[tuple[int, int, int, int]] = []
        self._repeats = OpenRepeats()
        self.places = places
        self.nanoseconds = 0.0

    def close(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows, and the words that they point to."""
        block = np.array(self._words, np.int64)
        table = np.array(self._rows, np.int64).reshape(-1, 4)
        table[:, 1] = table[:, 1] * 8 + block.ctypes.data
        return table, block

    def add(self, step: Step) -> None:
        """Add a step, if it has elements."""
        self.nanoseconds += step_ns(step)
        self._add(step)

    def _add(self, step: Step) -> None:
        if isinstance(step.kernel, RepeatedSteps):
            self._repeat(step, step.kernel)
        else:
            self._command(step)

    def _command(self, step: Step) -> None:
        cost, window = step_ns(step), step.window
        pointers = [self._addresses[n] for n in (step.output, *step.inputs)]
        function = self._functions[step.kernel.key]
        start = len(self._words)
        if not step.is_generic:
            count = step.space[0]
            words = argument_words(step.space, step.values, pointers)
        else:
            blocks = row_blocks(step.space, cost, self._threads)
            count = generic_units(step.space, blocks)
            words = generic_words(step.space, step.values, pointers, blocks)
        if window is not None:
            words = [function, window.start, *words]
            count, function = window.elements, stock_functions()["window"]
        if count == 0:
            return
        self._words += words
        for behind, pointer in enumerate(reversed(pointers)):
            if pointer in self.places:
                self.places[pointer].append(len(self._words) - 1 - behind)
        self._rows.append((function, start, count, grain(count, cost, self._threads)))
        self._repeats.add(step, start)

    def _repeat(self, step: Step, kernel: RepeatedSteps) -> None:
        header, first = len(self._words), len(self._rows)
        self._words += [0, 0, step.space[0], 0]
        assert len(self._words) == header + HEADER_WORDS
        self._rows.append((BEGIN, header, 0, 0))
        with self._repeats.opened(kernel.swapped) as changing:
            for inner in kernel.body:
                self._add(inner)
            span = len(self._rows) - first - 1
            self._rows.append((TURN, header, span, 1))
            for inner in kernel.last:
                self._add(inner)
        self._rows[first] = (BEGIN, header, span, len(self._rows) - first - 1)
        table = len(self._words)
        self._words[header + 3] = 8 * (table - header)
        self._words += table_of([self._entry(start - table, word) for start, word in changing])

    def _entry(self, start: int, word: Changing) -> tuple[int, int, int, int]:
        if not word.even:
            return 8 * (start + word.place), int(word.first), int(word.stride), 0
        even, odd = self._addresses[word.even], self._addresses[word.odd]
        return 8 * (start + word.place), even, 0, odd - even
