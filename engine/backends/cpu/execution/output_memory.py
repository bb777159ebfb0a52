"""Outputs in new memory, which `Worker.copy_output` hands over without copying.

Made by `engine.backends.cpu.execution.zero_copy.ZeroCopyCommands.bind_outputs`.
"""

from __future__ import annotations

from enum import Enum, auto

import numpy as np

from engine.backends.cpu.execution.memory import CPUBuffer
from engine.backends.cpu.execution.stream import JobStream
from engine.backends.tensor_data import CPUTensorData
from engine.base.errors import DisposedError
from engine.base.memory.aligned import reserve


class OutputOwner(Enum):
    """Who owns the memory of an output."""

    NOBODY = auto()
    """Nothing has read the output, and the first copy takes its memory over."""
    WORKER = auto()
    """The worker: something has read the output, and copies of it are copied."""
    TENSOR = auto()
    """A tensor that was a copy. The worker takes a copy before it reads the output or the tensor changes."""


class OutputMemory:
    """Memory that one run writes an output to, of `engine.base.memory.results.OutputPool`.

    The pool has it again once neither the worker, nor a tensor, nor a pending readback refers to it.

    Attributes:
        array: The elements, 1-D.
        address: The address of the first.
        owner: Who has it.
    """

    __slots__ = ("__weakref__", "_stream", "_tensor", "address", "array", "owner")

    def __init__(self, array: np.ndarray, address: int, stream: JobStream) -> None:
        """For a run in a stream."""
        self.array = array
        self.address = address
        self.owner = OutputOwner.NOBODY
        self._stream = stream
        self._tensor: CPUTensorData | None = None

    def read(self) -> CPUBuffer:
        """The output, for the worker."""
        self.part()
        self.owner = OutputOwner.WORKER
        return CPUBuffer(len(self.array), self.array.dtype, self.array)

    def give(self, shape: tuple[int, ...], elements: int) -> CPUTensorData | None:
        """Transfer the memory to a new tensor of its first elements; None if it already has an owner."""
        if self.owner is not OutputOwner.NOBODY:
            return None
        self.owner = OutputOwner.TENSOR
        self._tensor = data = CPUTensorData(self.array[:elements].reshape(shape), is_shared=False)
        data.share_with(self, self.address)
        stream = self._stream
        if (stream.last is not None or stream.marks) and (fence := stream.fence()) is not None:
            data.set_writer(fence.pin_run())
        return data

    def part(self) -> None:
        """Give the worker a copy, if a tensor has the memory."""
        data, self._tensor = self._tensor, None
        if data is None:
            return
        self.owner = OutputOwner.WORKER
        data.share_with(None)
        copy: np.ndarray = reserve(self.array.nbytes).view(self.array.dtype)
        try:
            reading = self._stream.transfer(self.array, copy)
        except DisposedError:
            return  # without the worker, nobody looks at the output
        if reading is not None:
            data.add_reader(reading)
        self.array = copy
