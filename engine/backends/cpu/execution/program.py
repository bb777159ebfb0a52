"""A recorded plan on the CPU: its command list and whether it runs inline."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from sys import getrefcount
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Protocol

import numpy as np

from engine.backends.base import Program
from engine.backends.cpu.codegen.cost import TRIAL_NS
from engine.backends.cpu.execution.memory import CPUBuffer
from engine.backends.host import INLINE_NS
from engine.base.errors import DisposedError
from engine.base.memory.aligned import address_of
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.system import JobSystem, RepeatedJob

if TYPE_CHECKING:
    from engine.backends.cpu.execution.stream import JobStream

TRIALS = 8
"""How often a plan that may be short runs on the calling thread before that is decided.

The shortest counts, as the first runs touch new memory and any may be interrupted.
"""

_ROUGHLY = 8.0
"""How many times as long as it takes a program may be estimated to take."""

_MOST_TRIED_NS = 2_000_000.0
"""Estimate from which no program is tried: where it is right, two frames take so long."""

_HOPELESS = 3.0
"""A program that takes this many times as long as it may is not tried again."""

_REFERENCES = 3
"""References to commands that have no job: their owner's, that of what runs them here, and a call's."""

_LEAST_TRIALS = 3
"""How many runs it takes at least to be hopeless: the first touches new memory, any may be disturbed."""

_ENOUGH = 3
"""How many programs of the same kernels have to run before others are expected to exceed their estimates."""

_SURE = 8
"""How many of them have to before others that are expected to be tiny are short without trials."""

_LEAST_RATIO = 1e-3
"""Clocks with long ticks may say that a program took no time."""

_TINY_NS = 15_000.0
"""A program that takes less needs no more trials: the clocks of each take two microseconds."""


class _Runnable(Protocol):
    """Commands, what runs them on the calling thread, and the job that runs them on others, if any."""

    @property
    def commands(self) -> CommandList | None: ...

    @property
    def job(self) -> RepeatedJob | None: ...


def is_free(item: _Runnable) -> bool:
    """Whether commands may be changed: nothing runs them and nothing else refers to them."""
    if item.job is None:
        return getrefcount(item.commands) == _REFERENCES
    return item.job.is_idle and getrefcount(item.commands) == _REFERENCES + 1


class MeasuredRate:
    """Measured single-thread time of programs with the same kernels, relative to estimates.

    Attributes:
        ratio: The least so far; 1 at most until enough programs ran, as any may have been interrupted.
        tiny_ns: Estimated nanoseconds below which a program is expected to be tiny, once many have run.
        short_ns: The same of one that is expected to be short.
    """

    __slots__ = ("_count", "_least", "ratio", "short_ns", "tiny_ns")

    def __init__(self) -> None:
        self.ratio = self._least = 1.0
        self._count = self.tiny_ns = self.short_ns = 0

    def learn(self, ratio: float) -> None:
        """Add a measured time."""
        self._count += 1
        self._least = ratio if self._count == 1 else min(self._least, ratio)
        self.ratio = self._least if self._count >= _ENOUGH else min(self._least, 1.0)
        if self._count >= _SURE:
            ratio = max(self.ratio, _LEAST_RATIO)
            self.tiny_ns = int(min(_TINY_NS / ratio, TRIAL_NS))
            self.short_ns = int(min(INLINE_NS / ratio, TRIAL_NS))


class CPUProgram(Program):
    """A plan as one command list, with the memory that it works in.

    `commands` is None after `release`. `is_short`: it takes less time on the calling thread than waking
    another is worth. `fastest_ns`: nanoseconds on one thread, as measured where it ran on the calling one,
    else as estimated. `is_new`: it has not been enqueued yet. `places` says for the address of each input's
    buffer which words of the args it is in; `outputs` has the buffer of each output, and the same words.
    `exact` are the addresses of input buffers beyond whose end no kernel reads. `pace` is what programs of
    its kernels took. `direct` copies arrays in a native call, which runs it if it is tiny; returns one of
    `engine.backends.cpu.execution.template_source.OTHERS` and those behind it. `is_stale`: native code has
    filled in other sizes and run them, whose `results` `settle` takes over.

    Estimates are rough, so programs are tried on the calling thread: at once if they are expected to be
    short, by their estimates and by what others of the same kernels took at other sizes; otherwise from the
    second time on, as with sizes that vary each of them may be run once.
    """

    __slots__ = (
        "_run",
        "_trials",
        "commands",
        "direct",
        "exact",
        "fastest_ns",
        "is_new",
        "is_short",
        "is_stale",
        "job",
        "nanoseconds",
        "outputs",
        "pace",
        "places",
        "results",
        "run_here",
    )

    def __init__(
        self,
        commands: CommandList,
        nanoseconds: float,
        jobs: JobSystem,
        places: Mapping[int, Sequence[int]],
        outputs: Mapping[str, tuple[CPUBuffer, Sequence[int]]],
        pace: MeasuredRate,
        exact: Container[int] = (),
    ) -> None:
        self.commands: CommandList | None = commands
        self.places, self.exact = places, exact
        self.job: RepeatedJob | None = None  # what runs it on its own
        self.pace = pace
        self.outputs = outputs
        self.direct: Callable[[CPUProgram, Sequence[np.ndarray]], int] | None = None
        self.results: Callable[[], tuple[int, float]] = lambda: (commands.count, nanoseconds)
        self._run: Callable[[], object] = jobs.inline_runner(commands)
        self.refill(commands.count, nanoseconds)

    def refill(self, count: int, nanoseconds: float) -> None:
        """Become the program of other sizes, whose commands are written in place of those before."""
        assert self.commands is not None
        self.commands.count = count
        if self.job is not None:
            self.job.resize(count)
        self.is_stale = False
        # What is known of sizes with which it has not run.
        self.nanoseconds = nanoseconds
        self.fastest_ns = nanoseconds * self.pace.ratio
        is_tiny = nanoseconds < self.pace.tiny_ns
        self._trials = 0 if is_tiny else TRIALS
        self.is_new = True
        self.is_short = nanoseconds < TRIAL_NS and self.fastest_ns < INLINE_NS
        self.run_here: Callable[[], object] = self._run_tiny if is_tiny else self._run_measured

    def settle(self) -> None:
        """Take over the sizes that native code has filled in and run."""
        if self.is_stale:
            self.refill(*self.results())

    def enqueue(self, stream: JobStream) -> None:
        """Run it here if it is short, else as a job, of a stream in which nothing is in flight."""
        if self.is_short:
            self.run_here()
            return
        if self.is_new:
            self.mark_enqueued()
        if self.commands is None:
            released()
        else:
            self.job = stream.submit_repeated(self.job, self.commands, None)

    def mark_enqueued(self) -> None:
        """Record that it was enqueued, so that it may be tried inline from now on."""
        self.is_new = False
        self.is_short = self.may_be_short

    @property
    def may_be_short(self) -> bool:
        """Whether it may be short, by what is known."""
        if not self._trials:
            return self.is_short
        return self.nanoseconds < TRIAL_NS and self.fastest_ns < _HOPELESS * INLINE_NS

    @property
    def is_settled(self) -> bool:
        """Whether it has been measured on the calling thread, or needs no measuring."""
        return not self._trials

    def is_quick(self, saved_ns: float) -> bool:
        """Whether running it inline is better when that saves this thread other work.

        Args:
            saved_ns: How long the other work takes: copying inputs, which can be read where they are.
        """
        enough = INLINE_NS + saved_ns
        if not self._trials:
            return self.fastest_ns < enough
        if self.is_new:
            return self.fastest_ns < enough and self.nanoseconds < _MOST_TRIED_NS
        most = min(TRIAL_NS + saved_ns * _ROUGHLY, _MOST_TRIED_NS)
        return self.nanoseconds < most and self.nanoseconds * self.pace.ratio < _HOPELESS * enough

    def may_be_shared(self, is_quick: bool, most_ns: float, is_awaited: bool) -> bool:
        """Whether job threads may share an inline run: only once measurements have settled `is_quick`.

        Not with one that takes longer than `most_ns` on one thread by what is known, or too short a time for
        threads to wake; nor with one that is estimated to be long, unless the caller waits for it anyway.
        """
        is_settled = not (self.is_new or (is_quick and self._trials))
        is_worth_it = 2 * INLINE_NS < self.fastest_ns < most_ns
        return is_settled and is_worth_it and (is_awaited or self.nanoseconds < _MOST_TRIED_NS)

    def run_copy_here(self, run: Callable[[], object], saved_ns: float) -> None:
        """Run a copy of its commands with other inputs inline on this thread; see `is_quick`."""
        self.is_new = False
        if not self._trials:
            run()
            return
        self._try_here(run)
        if TRIALS - self._trials >= _LEAST_TRIALS and self.fastest_ns > _HOPELESS * (INLINE_NS + saved_ns):
            self._end_trials()

    def _run_tiny(self) -> None:
        """Run on this thread, and begin trials if that takes long after all."""
        before = perf_counter_ns()
        self._run()
        if perf_counter_ns() - before > INLINE_NS:
            self.begin_trials()

    def begin_trials(self) -> None:
        """Time the next runs on the calling thread, as the program may not be tiny."""
        self._trials, self.run_here = TRIALS, self._run_measured

    def _run_measured(self) -> None:
        self._try_here(self._run)

    def _try_here(self, run: Callable[[], object]) -> None:
        """Run on this thread with an eye on the clock: estimates are rough."""
        took = own_ns(run)
        self.fastest_ns = took if self._trials == TRIALS else min(self.fastest_ns, took)
        if self.nanoseconds:
            self.pace.learn(took / self.nanoseconds)
        self._trials -= 1
        if self._trials == 0 or self.fastest_ns < _TINY_NS:
            self._end_trials()

    def _end_trials(self) -> None:
        self._trials, self.run_here = 0, self._run
        self.is_short = self.nanoseconds < TRIAL_NS and self.fastest_ns < INLINE_NS

    def temporaries(self) -> dict[int, int]:
        """The block that the programs of a stream share."""
        if self.commands is None:
            return {}
        arena: np.ndarray = self.commands.keep_alive[1][0]  # type: ignore[index]
        return {address_of(arena): arena.nbytes} if arena.nbytes else {}

    def release(self) -> None:
        """Drop commands and temporaries; a run in flight keeps them until it is done."""
        self.commands = self.job = self.direct = None
        self.run_here = self._run = released


def own_ns(run: Callable[[], object]) -> int:
    """Nanoseconds that a call takes this thread, without those in which another thread had the core."""
    before, before_here = perf_counter_ns(), thread_time_ns()
    run()
    took, here = perf_counter_ns() - before, thread_time_ns() - before_here
    # Systems that count in long ticks say 0.
    return min(took, here or took)


def released() -> None:
    """Raise for a released program."""
    raise DisposedError("this program was released")
