"""The CPU backend's fast path from inputs to a job, with at most one copy.

Outputs that a tensor takes over are not copied at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from math import inf
from time import perf_counter_ns

import numpy as np

from engine.backends.cpu.execution.memory import CPUBuffer
from engine.backends.cpu.execution.output_memory import OutputMemory
from engine.backends.cpu.execution.program import TRIALS, CPUProgram, own_ns
from engine.backends.cpu.execution.stream import JobStream
from engine.backends.cpu.execution.template_source import COPIED, MOST_COPIED, OTHERS, RAN
from engine.backends.cpu.execution.zero_copy import IN_PLACE_BYTES, ZeroCopyCommands
from engine.backends.host import INLINE_NS
from engine.backends.program_runner import ProgramRunner
from engine.backends.tensor_data import CPUTensorData
from engine.base import instrumentation
from engine.base.memory.aligned import address_in_place
from engine.device.jobs.system import JobHandle

SHORT_IN_PLACE_BYTES = MOST_COPIED
"""The same for a program that runs on the calling thread, which is over when the next thing happens."""

_COPY_NS = 0.05
"""Nanoseconds that the calling thread takes at least to copy a byte.

A few times as long where the arrays and their copies do not fit into the cache that other cores share.
"""

_DOUBT = 2.0
"""How many times as long as one thread took a shared run may be expected to take less, when it is tried.

The one thread may have found the caches cold, or other processes using the memory.
"""

_AWAITED = 3
"""How many results in a row a caller has to wait for to be expected to wait for the next, too."""

_MOST_AWAITED_NS = 8_000_000.0
"""How long such a caller's thread may be kept: half a frame, which one that waits no more loses once."""

_REST, _LONGEST_REST = 4, 64
"""How many runs go without help after one that took too long with it, as it does where all cores are busy.

Twice as many after each further one.
"""


class CPUProgramRunner(ProgramRunner):
    """Zero-copy runs while nothing is in flight: kernels read arrays and tensors in place.

    Arrays have to be copied before `schedule` returns. A program that takes little longer than that runs on
    the calling thread instead, and reads them in place; job threads help with it while that takes no longer,
    or while the caller waits for the results anyway.
    Outputs of which the caller takes copies are computed in new memory, which these take over.
    """

    __slots__ = (
        "_alone_ns",
        "_awaited",
        "_copied_ns",
        "_elsewhere",
        "_in_place",
        "_is_noted",
        "_is_rare",
        "_is_small",
        "_over_ns",
        "_program",
        "_resized",
        "_rest",
        "_saved_ns",
        "_saved_share",
        "_share_ns",
        "_stream",
        "_targets",
        "_took_ns",
        "_untimed",
        "_views",
        "_waits",
        "outputs",
        "own",
    )

    def __init__(
        self,
        stream: JobStream,
        program: CPUProgram,
        targets: Sequence[CPUBuffer],
        in_place: Sequence[bool],
    ) -> None:
        self._stream = stream
        self._program = program
        self._targets, self._in_place = targets, in_place
        self.outputs = program.outputs
        self.own: Mapping[str, OutputMemory] = {}
        self._elsewhere: ZeroCopyCommands | None = None
        # Commands of other sizes.
        self._resized: ZeroCopyCommands | None = None
        # Views of the inputs' buffers in their shapes, made when an array is first copied to one; None until
        # inputs of these sizes come.
        self._views: list[np.ndarray] | None = None
        self._is_rare = True
        self._is_small, self._saved_ns, self._saved_share = True, 0.0, 0.0
        # How many runs that copy are still to be timed, and the shortest so far.
        self._untimed, self._copied_ns = 0, inf
        # How long a run in place may take with the help of job threads, how many runs go without them after
        # the next one that takes longer, and how many are left of those after the last one.
        self._share_ns, self._rest, self._waits = 0.0, _REST, 0
        # How long the latest run in place took alone, since one with help was faster than any alone.
        self._alone_ns = 0
        # For how many results in a row the caller has waited, and whether it was seen for the latest run; how
        # long that took if it kept the calling thread, and when it was over.
        self._awaited, self._is_noted = 0, True
        self._took_ns, self._over_ns = 0, 0

    def settle(self) -> None:
        self._program.settle()

    def resize(self) -> None:
        self._views, self._is_rare = None, True
        if self.own:
            self.own = {}
        if self._elsewhere is not None:
            self._resized, self._elsewhere = self._elsewhere, None

    def run(
        self,
        arrays: Sequence[np.ndarray],
        tensors: Sequence[CPUTensorData | None] = (),
        own: Collection[str] = (),
    ) -> bool:
        program, stream, is_watched = self._program, self._stream, instrumentation.installed != 0
        if (is_watched and not tensors) or (
            (stream.last is not None or stream.marks) and not stream.is_idle()
        ):
            program.settle()
            return False
        if stream.copied:  # see `run_apart`
            return False
        if self._views is None:
            # What comes a third time will come more often: views take less time than `direct`, once made.
            done = OTHERS
            if self._is_rare and program.direct is not None and not tensors and not own:
                self._is_rare = False
                if (done := program.direct(program, arrays)) == RAN:
                    return True
            program.settle()
            if done == COPIED:
                program.enqueue(stream)
                return True
            self._follow(arrays, not tensors)
        is_quick = program.is_short or not tensors and program.is_quick(self._saved_ns)
        is_shared = False
        if not (self._is_small or tensors):
            self._awaited = self._awaited if self._is_noted else 0
            self._is_noted, self._took_ns = False, 0
            is_shared = self._may_share(is_quick)
            is_quick = is_quick or is_shared
        if own or (tensors and not program.is_short) or (is_quick and not self._is_small):
            self._run_elsewhere(arrays, tensors, own, is_quick, is_shared)
            return True
        if self.own:
            self.own = {}
        self._copy_inputs(arrays)
        if program.is_short:
            program.run_here()
        else:
            program.enqueue(stream)
        return True

    def _copy_inputs(self, arrays: Sequence[np.ndarray]) -> None:
        if self._untimed and not self._program.is_new:
            self._time_copies(arrays)
        elif self._is_small:
            self._copy(arrays)
        else:
            for view, array in zip(self._views or self._seen(arrays), arrays, strict=True):
                self._stream.copy_input(array, view)

    def _copy(self, arrays: Sequence[np.ndarray]) -> None:
        for number, view in enumerate(self._views or self._seen(arrays)):
            view[...] = arrays[number]

    def _time_copies(self, arrays: Sequence[np.ndarray]) -> None:
        """Copy arrays and time it, to learn how long an in-place run on this thread may take instead.

        As many times as that is tried. It depends on how much of the caches is left to this process.
        """
        took = own_ns(partial(self._copy, arrays))
        if all(map(address_in_place, arrays, [t.address in self._program.exact for t in self._targets])):
            self._copied_ns = min(self._copied_ns, took)
        self._untimed -= 1
        if not self._untimed:
            self._saved_ns = self._most_saved_ns

    @property
    def _most_saved_ns(self) -> float:
        """How long an in-place run may take instead of copies, by those timed so far."""
        if self._copied_ns == inf:
            return self._saved_ns
        # Copies leave a thread's share of the program to wait for, which takes about as long.
        may_take = self._copied_ns * (1 + 1 / self._stream.jobs.thread_count)
        return max(self._saved_ns, may_take * self._saved_share)

    def _may_share(self, is_quick: bool) -> bool:
        """Whether job threads share this in-place run; `is_quick`: whether it is fast without them."""
        program, jobs = self._program, self._stream.jobs
        if not jobs.helps_callers:
            return False
        is_awaited = self._awaited >= _AWAITED
        if self._untimed and not (is_quick or is_awaited):
            return False
        limit = _MOST_AWAITED_NS if is_awaited else INLINE_NS + self._saved_ns
        if not program.may_be_shared(is_quick, _DOUBT * limit * jobs.thread_count, is_awaited):
            return False
        self._waits -= 1
        self._share_ns = max(program.fastest_ns, self._alone_ns) if is_quick else limit
        return self._waits < 0

    def _note_over(self, before: int) -> None:
        """Note that a run is over that kept the calling thread since then."""
        self._over_ns = perf_counter_ns()
        self._took_ns = self._over_ns - before

    def note_taken(self) -> None:
        if self._is_small:
            return
        if self._took_ns:
            is_awaited = 2 * (perf_counter_ns() - self._over_ns) < self._took_ns
        else:
            is_awaited = not self._stream.is_idle()
        self._awaited, self._is_noted = self._awaited + 1 if is_awaited else 0, True
        if self._awaited == _AWAITED:
            self._rest, self._waits = _REST, 0

    def _share(self, here: ZeroCopyCommands, arrays: Sequence[np.ndarray]) -> None:
        """Run commands on this thread and the job threads; share less often if that was too slow."""
        job, held = here.shared or (None, [])
        # Interrupted, the job goes on with what it holds, and the next run makes another.
        here.shared = None
        held += arrays, here.held
        before = perf_counter_ns()
        job = self._stream.submit_repeated(job, here.commands, held)
        job.handle.complete()
        self._note_over(before)
        if self._took_ns > self._share_ns:
            self._waits, self._rest = self._rest, min(2 * self._rest, _LONGEST_REST)
        else:
            self._waits, self._rest = 0, _REST
        if self._took_ns <= self._program.fastest_ns:
            self._alone_ns = 0
        self._stream.is_idle()  # forgets the job, which is over
        held.clear()
        here.shared = job, held

    def run_apart(
        self, arrays: Sequence[np.ndarray], tensors: Sequence[CPUTensorData | None], fixed: Collection[str]
    ) -> bool:
        stream = self._stream
        if not stream.copied:
            return False
        own, stream.copied = stream.copied.difference(fixed), set()
        return self.run(arrays, tensors, own)

    def _run_elsewhere(
        self,
        arrays: Sequence[np.ndarray],
        tensors: Sequence[CPUTensorData | None],
        own: Collection[str],
        is_quick: bool,
        is_shared: bool,
    ) -> None:
        """Run a copy of the commands, which reads inputs in place and writes outputs to new memory."""
        program, stream, here = self._program, self._stream, self._elsewhere
        if here is None:
            here, self._resized = self._resized, None
            if here is None or not here.resize(program, self._targets):
                here = ZeroCopyCommands(program, self._targets, self._in_place, stream.jobs)
            self._elsewhere = here
        # The worker's outputs of the run before are gone: their memory is free unless others have it.
        self.own, here.held = {}, None
        self.own, is_new = here.bind_outputs(own, stream)
        if is_new and not program.is_settled:
            # The first use of memory takes several times as long, which tells nothing of later runs.
            is_quick = is_shared = False
        if is_quick and not tensors:
            here.bind_inputs_now(arrays)
        elif not here.is_bound_to(arrays, tensors):
            here.bind_inputs(arrays, tensors)
        here.held = here.taken, [memory.array for memory in self.own.values()]
        if is_quick or tensors:
            for number in here.copied:
                stream.copy_input(arrays[number], (self._views or self._seen(arrays))[number])
        else:
            self._copy_inputs(arrays)
        if is_shared:
            self._share(here, arrays)
            return
        if is_quick:
            before = perf_counter_ns()
            program.run_copy_here(here.run_here, self._most_saved_ns)
            self._note_over(before)
            self._alone_ns = self._took_ns
            return
        if program.is_new:
            program.mark_enqueued()
        job: JobHandle
        if instrumentation.installed:
            job = stream.submit_observed(here.commands, here.held)
        elif self.own:
            job = stream.submit(here.commands, here.held)
        else:
            here.job = stream.submit_repeated(here.job, here.commands, here.held)
            job = here.job.handle
        for tensor in here.read:
            tensor.add_reader(job)

    def _follow(self, arrays: Sequence[np.ndarray], are_copied: bool) -> None:
        """Note whether inputs of these sizes are small, and how long it takes at least to copy others."""
        self._is_small, self._saved_ns, whole = True, 0.0, 0
        for array, may in zip(arrays, self._in_place, strict=True):
            whole += (nbytes := array.nbytes)
            if nbytes >= IN_PLACE_BYTES:
                self._is_small = self._is_small and nbytes < SHORT_IN_PLACE_BYTES
                self._saved_ns += nbytes * _COPY_NS if may else 0.0
        self._untimed, self._copied_ns = 0 if self._is_small else TRIALS, inf
        self._rest, self._waits = _REST, 0
        self._saved_share = self._saved_ns / max(whole * _COPY_NS, 1.0)
        self._views = []
        if are_copied:
            self._seen(arrays)

    def _seen(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        targets = zip(self._targets, arrays, strict=True)
        self._views = [target.view(array.shape) for target, array in targets]
        return self._views

    def again(self, tensors: Sequence[CPUTensorData | None]) -> bool:
        here = self._elsewhere
        # The same list is the same tensors, whose elements are where they were.
        if (
            here is None
            or here.tensors is not tensors
            or here.copied
            or here.moved
            or self._stream.copied
            or instrumentation.installed
        ):
            return False
        if here.job is None or not self._stream.repeat(here.job):
            return False
        handle = here.job.handle
        for tensor in here.read:
            if handle not in tensor.readers:
                tensor.add_reader(handle)
        return True

    def own_output(self, name: str) -> CPUBuffer | None:
        found = self.own.get(name)
        return None if found is None else found.read()

    def detach_output(
        self, name: str, shape: tuple[int, ...], elements: int, is_apart: bool
    ) -> CPUTensorData | None:
        self._stream.copied.add(name)
        found = self.own.get(name) if is_apart else None
        return None if found is None else found.give(shape, elements)

    def let_go(self) -> None:
        if self.own:
            self.own = {}
        for here in (self._elsewhere, self._resized):
            if here is not None:
                here.let_go()
