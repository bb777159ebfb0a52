"""A recorded plan on the CPU: its command list, where it runs, and inputs that are read where they lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter_ns

import numpy as np

from engine.backends.base import Program
from engine.backends.cpu.cost import INLINE_NS, TRIAL_NS, TRIALS
from engine.backends.cpu.memory import CPUBuffer
from engine.errors import DisposedError
from engine.jobs.system import CommandList, JobHandle, JobSystem
from engine.tensor import CPUTensorData

IN_PLACE_BYTES = 1 << 14
"""Copying a smaller input costs less than saying where it lies."""


class CPUProgram(Program):
    """A plan as one command list, with the memory that it works in.

    `is_short`: it takes less time on the calling thread than waking another is worth. `places` says for the
    address of each input's buffer which words of the args it is in.
    """

    __slots__ = (
        "_alike",
        "_fastest",
        "_trials",
        "_verdicts",
        "commands",
        "is_short",
        "job",
        "nanoseconds",
        "places",
        "run_here",
    )

    def __init__(
        self,
        commands: CommandList,
        nanoseconds: float,
        jobs: JobSystem,
        places: Mapping[int, Sequence[int]],
        verdicts: dict[bytes, bool],
    ) -> None:
        """`verdicts` says of plans of the same kernels, for other shapes, whether they were short."""
        self.commands: CommandList | None = commands
        self.nanoseconds = nanoseconds
        self.places = places
        self.job: JobHandle | None = None  # the last that ran it on its own
        self._verdicts = verdicts
        self._alike = commands.array[:, 0].tobytes()
        verdict = verdicts.get(self._alike)
        self.is_short = nanoseconds < TRIAL_NS and verdict is not False
        self._trials = TRIALS
        self._fastest = nanoseconds
        self.run_here: Callable[[], object] = jobs.runner(commands)
        if self.is_short and verdict is None:
            self.run_here = partial(self._try_here, self.run_here)

    def _try_here(self, run: Callable[[], object]) -> None:
        """Run on this thread with an eye on the clock: estimates are rough."""
        before = perf_counter_ns()
        run()
        took = perf_counter_ns() - before
        self._fastest = took if self._trials == TRIALS else min(self._fastest, took)
        self._trials -= 1
        if self._trials == 0:
            self.is_short = self._verdicts[self._alike] = self._fastest < INLINE_NS
            self.run_here = run

    def temporaries(self) -> dict[int, int]:
        """The block that the programs of a stream share."""
        if self.commands is None:
            return {}
        arena: np.ndarray = self.commands.keep_alive[1][0]  # type: ignore[index]
        return {int(arena.ctypes.data): arena.nbytes} if arena.nbytes else {}

    @property
    def fastest_ns(self) -> float:
        """What it takes on one thread: as measured where it ran here, else as estimated."""
        return self._fastest

    def release(self) -> None:
        """Let go of commands and temporaries; a run in flight holds them until it is done."""
        self.commands = self.job = None
        self.run_here = released


class InPlace:
    """A program's commands once more, with args of their own, so that inputs may lie anywhere.

    To be changed only while they are not running.
    """

    def __init__(self, program: CPUProgram, inputs: Sequence[CPUBuffer], allowed: Sequence[bool]) -> None:
        assert program.commands is not None
        block: np.ndarray = program.commands.keep_alive[0]  # type: ignore[index]
        own = block.copy()
        rows = program.commands.array.copy()
        rows[:, 1] += own.ctypes.data - block.ctypes.data
        self.commands = CommandList(rows, (own, program.commands))
        self._words = own.data
        self._places = [program.places.get(buffer.address, ()) for buffer in inputs]
        self._home = [buffer.address for buffer in inputs]
        self._allowed = [
            may and buffer.array.nbytes >= IN_PLACE_BYTES for may, buffer in zip(allowed, inputs, strict=True)
        ]
        self.tensors: Sequence[CPUTensorData | None] = ()  # what `aim` was given
        self.job: JobHandle | None = None  # the last that ran it as it is aimed
        self.taken: list[tuple[int, CPUTensorData, np.ndarray]] = []
        self.copied: list[int] = []

    def is_aimed_at(self, arrays: Sequence[np.ndarray], tensors: Sequence[CPUTensorData | None]) -> bool:
        """Whether the commands read these tensors where they lie now."""
        if tensors != self.tensors:
            return False
        for number, _, array in self.taken:
            if arrays[number] is not array:
                return False  # it was written while it was read
        self.tensors = tensors
        return True

    def aim(self, arrays: Sequence[np.ndarray], tensors: Sequence[CPUTensorData | None]) -> None:
        """Have the commands read tensors where they lie, those in `taken`; inputs in `copied` have to be."""
        self.tensors, self.job = tensors, None
        self.taken, self.copied = [], []
        for number, tensor in enumerate(tensors):
            address = tensor.address if tensor is not None and self._allowed[number] else 0
            if tensor is not None and address:
                self.taken.append((number, tensor, arrays[number]))
            else:
                self.copied.append(number)
            for place in self._places[number]:
                self._words[place] = address or self._home[number]


def released() -> None:
    """What a released program does instead of running."""
    raise DisposedError("this program was released")
