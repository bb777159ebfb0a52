"""`CommandBuilder`: builds native command lists from the steps of a plan.

Sizes and addresses stay open: `engine.backends.cpu.execution.template_source` fills them in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from engine.backends.cpu.codegen.cost import step_ns
from engine.backends.cpu.execution.arguments import count_words, has_blocks
from engine.compiler.plan import RepeatedSteps, Step
from engine.device.jobs.builtin_commands import builtin_functions
from engine.device.jobs.command_loops import BEGIN, TURN
from engine.kernels.expr import IterationNumber
from engine.kernels.size import Number, Size, as_float
from engine.kernels.word_encoding import as_word

INSIDE = -1
"""What a row within a repetition has in place of followers, unless it begins another one."""


class CommandWords:
    """The words of a command list, some of them symbolic; floats are stored as their bits."""

    def __init__(self) -> None:
        self._words: list[int] = []
        self._open: dict[bool, list[tuple[int, Size]]] = {False: [], True: []}

    def __len__(self) -> int:
        return len(self._words)

    def add(self, *numbers: Any) -> int:
        """Append numbers; the place of the first."""
        words = self._words
        begin = len(words)
        for number in numbers:
            if isinstance(number, Size):
                self._open[isinstance(number.hint, float)].append((len(words), number))
                words.append(0)
            else:
                words.append(as_word(number))
        return begin

    def reserve(self, count: int) -> int:
        """Append `count` zeros; returns the place of the first."""
        self._words += [0] * count
        return len(self._words) - count

    def set(self, place: int, number: int) -> None:
        """Set a word."""
        self._words[place] = number

    def array(self) -> np.ndarray:
        """The words, with 0 for symbolic ones."""
        return np.array(self._words, np.int64)

    def close(self) -> tuple[list[Size], list[Size], list[tuple[int, int]]]:
        """Return the distinct symbolic numbers, and for each symbolic word its index and its number's."""
        kinds = [{size.name: size for _, size in self._open[is_float]} for is_float in (False, True)]
        order = {key: n for n, key in enumerate((k, name) for k, sizes in enumerate(kinds) for name in sizes)}
        pairs = [(place, order[k, size.name]) for k in (0, 1) for place, size in self._open[bool(k)]]
        return [*kinds[0].values()], [*kinds[1].values()], pairs


class Row(NamedTuple):
    """A command before its sizes are known.

    Attributes:
        function: Its address.
        words: Where its argument words begin.
        blocks: The place of the word for the blocks of a row of elements, which the size of one follows; -1
            if rows are not cut.
        followers: How many rows belong to the repetition that it begins, `INSIDE`, or 0.
    """

    function: int
    words: int
    blocks: int = -1
    followers: int = 0


class _Changing(NamedTuple):
    """A word that changes in each iteration.

    Before run n it is `first + n * stride`, or the address of the tensor `even`; of `odd` where n is odd.
    """

    place: int
    first: Number = 0
    stride: Number = 0
    even: str = ""
    odd: str = ""


class CommandBuilder:
    """Collects the rows and words of steps.

    Attributes:
        words: All argument words, with 0 for addresses.
        pointers: The places of the address of each tensor.
        ways: Places of words that say how far one tensor's address is from another's.
        rows: The commands.
        sizes: What a row's range and its chunks depend on: its cost, its units or rows of elements, the
            elements of such a row, and how often it runs.
    """

    def __init__(self, functions: Mapping[str, int]) -> None:
        """`functions` are the addresses of compiled kernels by their keys."""
        self._functions = functions
        self.words = CommandWords()
        self.pointers: dict[str, list[int]] = {}
        self.ways: list[tuple[int, str, str]] = []
        self.rows: list[Row] = []
        self.sizes: list[tuple[Number, Number, Number, Number]] = []
        # Of each repetition that is being added, innermost last: which tensors stand for which in runs with
        # an odd number, and the words that change.
        self._repetitions: list[tuple[Mapping[str, str], list[_Changing]]] = []

    def add(self, step: Step, runs: Number = 1) -> None:
        """Add a step with its repeat count."""
        if isinstance(step.kernel, RepeatedSteps):
            self._repeat(step, step.kernel, runs)
        else:
            self._command(step, runs)

    def _command(self, step: Step, runs: Number) -> None:
        words, window, blocks = self.words, step.window, -1
        function, start, units = self._functions[step.kernel.key], len(words), step.space[0]
        if window is not None:
            words.add(function, window.start)
            function, units = builtin_functions()["window"], window.elements
        words.add(*step.space)
        if has_blocks(step):
            blocks, units = words.reserve(2), prod(step.space[:-1])
        words.add(*step.values)
        for name in (step.output, *step.inputs):
            self.pointers.setdefault(name, []).append(words.reserve(1))
        assert len(words) == start + count_words(step)
        self.rows.append(Row(function, start, blocks, INSIDE if self._repetitions else 0))
        self.sizes.append((as_float(step_ns(step)), units, step.space[-1], runs))
        for outer, (swapped, changing) in enumerate(reversed(self._repetitions)):
            # Numbers of runs, and windows, are those of the innermost.
            changing += [word for word in _changing(step, start, swapped) if word.even or not outer]

    def _repeat(self, step: Step, kernel: RepeatedSteps, runs: Number) -> None:
        """Add repeated commands, as `engine.device.jobs.command_loops` has them."""
        words, changing = self.words, list[_Changing]()
        header, begin = words.add(0, 0, step.space[0], 0), len(self.rows)
        self._mark(BEGIN, header, 0)
        self._repetitions.append((kernel.swapped, changing))
        for inner in kernel.body:
            self.add(inner, runs * step.space[0])
        span = len(self.rows) - 1 - begin
        self._mark(TURN, header, span)
        for inner in kernel.last:
            self.add(inner, runs)
        self._repetitions.pop()
        self.rows[begin] = Row(BEGIN, header, followers=len(self.rows) - 1 - begin)
        self.sizes[begin] = (0.0, span, 1, 0)
        table = words.add(len(changing))
        words.set(header + 3, 8 * (table - header))
        for word in changing:
            entry = words.add(8 * (word.place - table), word.first, word.stride, 0)
            if word.even:
                self.pointers.setdefault(word.even, []).append(entry + 1)
                self.ways.append((entry + 3, word.even, word.odd))

    def _mark(self, function: int, header: int, span: int) -> None:
        self.rows.append(Row(function, header, followers=INSIDE))
        self.sizes.append((0.0, span, 1, 0))


def _changing(step: Step, start: int, swapped: Mapping[str, str]) -> Iterator[_Changing]:
    """Yield the words of a step that change per iteration; the step's words begin at `start`."""
    names = (step.output, *step.inputs)
    end = start + count_words(step)
    if step.window is not None:
        yield _Changing(start + 1, step.window.start, step.window.stride)
    for place, value in enumerate(step.values, end - len(names) - len(step.values)):
        if isinstance(value, IterationNumber):
            yield _Changing(place, 0, 1)
    for place, name in enumerate(names, end - len(names)):
        if name in swapped:
            yield _Changing(place, even=name, odd=swapped[name])
