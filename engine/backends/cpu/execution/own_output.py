"""An output of one run in memory of its own, which a copy of the output takes over.

Made by `engine.backends.cpu.execution.fast_path.ZeroCopyCommands.aim_outputs`.
"""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.execution.memory import CPUBuffer
from engine.backends.cpu.execution.stream import JobStream
from engine.backends.tensor_data import CPUTensorData
from engine.base.errors import DisposedError
from engine.base.memory.aligned import reserve


class OwnOutput:
    """Memory of an output that a tensor may take over instead of a copy.

    It belongs to one side at a time. Nothing takes it over once the output was looked at; and once a tensor
    has it, the worker gets a copy before the output is looked at or the tensor is written.

    Attributes:
        array: The elements, 1-D.
        address: The address of the first.
    """

    __slots__ = ("__weakref__", "_given", "_is_seen", "_stream", "address", "array")

    def __init__(self, array: np.ndarray, address: int, stream: JobStream) -> None:
        """For a run in a stream."""
        self.array = array
        self.address = address
        self._stream = stream
        self._given: CPUTensorData | None = None
        self._is_seen = False

    def seen(self) -> CPUBuffer:
        """The output, for the worker: nothing takes its memory over from now on."""
        self.part()
        self._is_seen = True
        return CPUBuffer(len(self.array), self.array.dtype, self.array)

    def given(self, shape: tuple[int, ...], elements: int) -> CPUTensorData | None:
        """The first elements as a tensor's, which takes the memory over; None if that is not possible."""
        if self._is_seen:
            return None
        self._is_seen = True
        self._given = data = CPUTensorData(self.array[:elements].reshape(shape), owned=True)
        data.is_shared_with(self, self.address)
        stream = self._stream
        if (stream.last is not None or stream.marks) and (fence := stream.fence()) is not None:
            data.is_written_by(fence.of_this_run())
        return data

    def part(self) -> None:
        """Give the worker a copy, if a tensor has its memory and has not changed it yet."""
        data, self._given = self._given, None
        if data is None:
            return
        data.is_shared_with(None)
        copy: np.ndarray = reserve(self.array.nbytes).view(self.array.dtype)
        try:
            reading = self._stream.transfer(self.array, copy)
        except DisposedError:
            return  # without the worker, nobody looks at the output
        if reading is not None:
            data.is_read_by(reading)
        self.array = copy
