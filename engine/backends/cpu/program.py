"""A recorded plan on the CPU: its command list and whether it runs inline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter_ns

import numpy as np

from engine.backends.cpu.cost import TRIAL_NS
from engine.backends.host import INLINE_NS, TRIALS, HostProgram
from engine.base.errors import DisposedError
from engine.base.memory.aligned import address_of
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.system import JobSystem, RepeatedJob

_ROUGHLY = 8.0
"""How many times as long as it takes a program may be estimated to take."""

_MOST_TRIED_NS = 2_000_000.0
"""Estimate from which no program is tried: where it is right, two frames take so long."""

_HOPELESS = 3.0
"""A program that takes this many times as long as it may is not tried again."""


class CPUProgram(HostProgram):
    """A plan as one command list, with the memory that it works in.

    `is_short`: it takes less time on the calling thread than waking another is worth. `places` says for the
    address of each input's buffer which words of the args it is in.
    """

    __slots__ = (
        "_alike",
        "_fastest",
        "_run",
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
        self.job: RepeatedJob | None = None  # what runs it on its own
        self._verdicts = verdicts
        self._alike, verdict = b"", None
        if nanoseconds < TRIAL_NS:
            self._alike = commands.array[:, 0].tobytes()
            verdict = verdicts.get(self._alike)
        self.is_short = nanoseconds < TRIAL_NS and verdict is not False
        self._trials = 0 if verdict else TRIALS
        self._fastest = nanoseconds
        self._run: Callable[[], object] = jobs.runner(commands)
        self.run_here = self._run
        if self.is_short and verdict is None:
            self.run_here = partial(self._try_here, self._run)

    def is_quick(self, saved_ns: float) -> bool:
        """Whether it is better run on the calling thread where that saves the thread other work.

        Args:
            saved_ns: How long the other work takes: copying inputs, which can be read where they are.
        """
        if self._trials:
            return self.nanoseconds < min(TRIAL_NS + saved_ns * _ROUGHLY, _MOST_TRIED_NS)
        return self._fastest < INLINE_NS + saved_ns

    def run_copy_here(self, run: Callable[[], object], saved_ns: float) -> None:
        """Run a copy of its commands, which reads its inputs elsewhere, on this thread; see `is_quick`."""
        if not self._trials:
            run()
            return
        self._try_here(run)
        # The first run does not count: it touches new memory.
        if TRIALS - self._trials > 1 and self._fastest > _HOPELESS * (INLINE_NS + saved_ns):
            self._end_trials()

    def _try_here(self, run: Callable[[], object]) -> None:
        """Run on this thread with an eye on the clock: estimates are rough."""
        before = perf_counter_ns()
        run()
        took = perf_counter_ns() - before
        self._fastest = took if self._trials == TRIALS else min(self._fastest, took)
        self._trials -= 1
        if self._trials == 0:
            self._end_trials()

    def _end_trials(self) -> None:
        self._trials, self.run_here = 0, self._run
        if self.nanoseconds < TRIAL_NS:
            self.is_short = self._verdicts[self._alike] = self._fastest < INLINE_NS

    def temporaries(self) -> dict[int, int]:
        """The block that the programs of a stream share."""
        if self.commands is None:
            return {}
        arena: np.ndarray = self.commands.keep_alive[1][0]  # type: ignore[index]
        return {address_of(arena): arena.nbytes} if arena.nbytes else {}

    @property
    def fastest_ns(self) -> float:
        """Nanoseconds on one thread: measured if it has run inline, otherwise estimated."""
        return self._fastest

    def release(self) -> None:
        """Let go of commands and temporaries; a run in flight holds them until it is done."""
        self.commands = self.job = None
        self.run_here = self._run = released


def released() -> None:
    """Raise for a released program."""
    raise DisposedError("this program was released")
