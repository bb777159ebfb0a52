"""The CPU backend's fast path from inputs to a job: arrays are copied once, large tensors not at all."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from engine.backends.cpu.execution.memory import CPUBuffer
from engine.backends.cpu.execution.program import CPUProgram, released
from engine.backends.cpu.execution.stream import JobStream
from engine.backends.repeat import Repeat
from engine.backends.tensor_data import CPUTensorData
from engine.base import instrumentation
from engine.base.memory.aligned import address_in_place
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.system import JobHandle, JobSystem, RepeatedJob

IN_PLACE_BYTES = 1 << 14
"""Copying a smaller input costs less than setting its address."""

SHORT_IN_PLACE_BYTES = 1 << 17
"""The same for a program that runs on the calling thread, which is over when the next thing happens."""

_COPY_NS = 0.04
"""Nanoseconds that the calling thread takes to copy a byte."""


class CPURepeat(Repeat):
    """Where nothing is in flight, arrays go straight to where kernels read them, and tensors nowhere.

    Arrays have to be copied before `schedule` returns. A program that takes little longer than that runs on
    the calling thread instead, and reads them in place.
    """

    __slots__ = (
        "_elsewhere",
        "_in_place",
        "_is_small",
        "_program",
        "_saved_ns",
        "_stream",
        "_targets",
        "_views",
    )

    def __init__(
        self,
        stream: JobStream,
        program: CPUProgram,
        targets: Sequence[CPUBuffer],
        shapes: Sequence[tuple[int, ...]],
        in_place: Sequence[bool],
    ) -> None:
        self._stream = stream
        self._program = program
        self._targets = targets
        self._in_place = in_place
        self._views = [seen(buffer, shape) for buffer, shape in zip(targets, shapes, strict=True)]
        self._is_small = max((view.nbytes for view in self._views), default=0) < SHORT_IN_PLACE_BYTES
        large = [view.nbytes for view, may in zip(self._views, in_place, strict=True) if may]
        self._saved_ns = sum(size for size in large if size >= IN_PLACE_BYTES) * _COPY_NS
        self._elsewhere: ZeroCopyInputs | None = None

    def run(self, arrays: Sequence[np.ndarray], tensors: Sequence[CPUTensorData | None] = ()) -> bool:
        program, stream, is_watched = self._program, self._stream, instrumentation.installed != 0
        if (is_watched and not tensors) or (
            (stream.last is not None or stream.marks) and not stream.is_idle()
        ):
            return False
        is_quick = program.is_short or not tensors and program.is_quick(self._saved_ns)
        if is_quick and not self._is_small:
            self._run_here(arrays, tensors)
            return True
        if tensors and not program.is_short:
            if program.is_new:
                program.was_enqueued()
            self._run_elsewhere(arrays, tensors)
            return True
        for number, view in enumerate(self._views):
            view[...] = arrays[number]
        if program.is_short:
            program.run_here()
            return True
        if program.is_new:
            program.was_enqueued()
        if program.commands is None:
            released()
        else:
            program.job = stream.submit_repeated(program.job, program.commands, None)
        return True

    def _run_here(self, arrays: Sequence[np.ndarray], tensors: Sequence[CPUTensorData | None]) -> None:
        here = self._copy_of_commands()
        if not tensors:
            here.aim_for_now(arrays)
        elif not here.is_bound_to(arrays, tensors):
            here.aim(arrays, tensors)
        for number in here.copied:
            self._views[number][...] = arrays[number]
        self._program.run_copy_here(here.run_here, self._saved_ns)

    def _copy_of_commands(self) -> ZeroCopyInputs:
        here = self._elsewhere
        if here is None:
            jobs = self._stream.jobs
            here = self._elsewhere = ZeroCopyInputs(self._program, self._targets, self._in_place, jobs)
        return here

    def _run_elsewhere(self, arrays: Sequence[np.ndarray], tensors: Sequence[CPUTensorData | None]) -> None:
        here = self._copy_of_commands()
        if not here.is_bound_to(arrays, tensors):
            here.aim(arrays, tensors)
        for number in here.copied:
            self._views[number][...] = arrays[number]
        job: JobHandle
        if instrumentation.installed:
            job = self._stream.submit_observed(here.commands, here.taken)
        else:
            here.job = self._stream.submit_repeated(here.job, here.commands, here.taken)
            job = here.job.handle
        for tensor in here.read:
            tensor.is_read_by(job)

    def again(self, tensors: Sequence[CPUTensorData | None]) -> bool:
        here = self._elsewhere
        # The same list is the same tensors, whose elements are where they were.
        if here is None or here.tensors is not tensors or here.copied or instrumentation.installed:
            return False
        if here.job is None or not self._stream.repeat(here.job):
            return False
        handle = here.job.handle
        for tensor in here.read:
            if handle not in tensor.readers:
                tensor.is_read_by(handle)
        return True


class ZeroCopyInputs:
    """A copy of a program's commands with their own argument blocks, which read inputs in place.

    To be changed only while they are not running. `read` are the tensors that are read where they lie;
    inputs in `copied` have to be.
    """

    __slots__ = (
        "_allowed",
        "_home",
        "_places",
        "_words",
        "commands",
        "copied",
        "job",
        "read",
        "run_here",
        "taken",
        "tensors",
    )

    def __init__(
        self, program: CPUProgram, inputs: Sequence[CPUBuffer], allowed: Sequence[bool], jobs: JobSystem
    ) -> None:
        assert program.commands is not None
        block: np.ndarray = program.commands.keep_alive[0]  # type: ignore[index]
        own = block.copy()
        rows = program.commands.array.copy()
        rows[:, 1] += own.ctypes.data - block.ctypes.data
        self.commands = CommandList(rows, (own, program.commands))
        self.run_here = jobs.runner(self.commands)
        self._words = own.data
        self._places = [program.places.get(buffer.address, ()) for buffer in inputs]
        self._home = [buffer.address for buffer in inputs]
        self._allowed = [
            may and buffer.array.nbytes >= IN_PLACE_BYTES for may, buffer in zip(allowed, inputs, strict=True)
        ]
        self.tensors: Sequence[CPUTensorData | None] = ()  # what `aim` was given
        self.job: RepeatedJob | None = None  # what runs it as it is aimed
        self.taken: list[tuple[int, np.ndarray]] = []
        self.read: list[CPUTensorData] = []
        self.copied: list[int] = []

    def is_bound_to(self, arrays: Sequence[np.ndarray], tensors: Sequence[CPUTensorData | None]) -> bool:
        """Whether the commands read these tensors in place."""
        # Arrays are others where they were written while they were read.
        if tensors != self.tensors or any(arrays[number] is not array for number, array in self.taken):
            return False
        self.tensors = tensors
        return True

    def aim(self, arrays: Sequence[np.ndarray], tensors: Sequence[CPUTensorData | None]) -> None:
        """Let the commands read these tensors in place, as far as possible."""
        self.tensors, self.job = tensors, None
        self.taken, self.read, self.copied = [], [], []
        for number, tensor in enumerate(tensors):
            address = tensor.address if tensor is not None and self._allowed[number] else 0
            if tensor is not None and address:
                self.taken.append((number, arrays[number]))
                self.read.append(tensor)
            else:
                self.copied.append(number)
            self._point(number, address)

    def aim_for_now(self, arrays: Sequence[np.ndarray]) -> None:
        """Let the commands read arrays in place, for a run that ends before their owner can change them."""
        self.tensors, self.job = (), None
        self.taken, self.read, self.copied = [], [], []
        for number, array in enumerate(arrays):
            address = address_in_place(array) if self._allowed[number] else 0
            if not address:
                self.copied.append(number)
            self._point(number, address)

    def _point(self, number: int, address: int) -> None:
        for place in self._places[number]:
            self._words[place] = address or self._home[number]


def seen(buffer: CPUBuffer, shape: tuple[int, ...]) -> np.ndarray:
    """A buffer's first elements in a shape."""
    return buffer.array[: prod(shape)].reshape(shape)
