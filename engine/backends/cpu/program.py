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
        self._trials = TRIALS
        self._fastest = nanoseconds
        self._run: Callable[[], object] = jobs.runner(commands)
        self.run_here = self._run
        if self.is_short and verdict is None:
            self.run_here = partial(self._try_here, self._run)

    def run_copy_here(self, run: Callable[[], object]) -> None:
        """Run a copy of its commands, which reads its inputs elsewhere, on this thread."""
        if self.run_here is self._run:
            run()
        else:
            self._try_here(run)

    def _try_here(self, run: Callable[[], object]) -> None:
        """Run on this thread with an eye on the clock: estimates are rough."""
        before = perf_counter_ns()
        run()
        took = perf_counter_ns() - before
        self._fastest = took if self._trials == TRIALS else min(self._fastest, took)
        self._trials -= 1
        if self._trials == 0:
            self.is_short = self._verdicts[self._alike] = self._fastest < INLINE_NS
            self.run_here = self._run

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
