"""Commands of a program with inputs and outputs in other memory than the program's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from engine.backends.cpu.execution.memory import CPUBuffer
from engine.backends.cpu.execution.output_memory import OutputMemory
from engine.backends.cpu.execution.program import CPUProgram, is_free
from engine.backends.cpu.execution.stream import JobStream
from engine.backends.tensor_data import CPUTensorData
from engine.base.memory.aligned import address_in_place
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.system import JobSystem, RepeatedJob

IN_PLACE_BYTES = 1 << 14
"""Copying a smaller input costs less than setting its address."""


class ZeroCopyCommands:
    """A copy of a program's commands with their own argument blocks, for in-place inputs and outputs.

    To be changed only while they are not running. `read` are the tensors that are read in place; inputs in
    `copied` have to be. `moved` are the outputs in other memory than the program's. Jobs hold `held`.
    """

    __slots__ = (
        "_ahead",
        "_allowed",
        "_exact",
        "_home",
        "_may",
        "_outputs",
        "_own",
        "_places",
        "_rows",
        "_words",
        "commands",
        "copied",
        "held",
        "job",
        "moved",
        "read",
        "run_here",
        "shared",
        "taken",
        "tensors",
    )

    def __init__(
        self, program: CPUProgram, inputs: Sequence[CPUBuffer], allowed: Sequence[bool], jobs: JobSystem
    ) -> None:
        assert program.commands is not None
        block: np.ndarray = program.commands.keep_alive[0]  # type: ignore[index]
        self._own = own = block.copy()
        self._rows, self._ahead = program.commands.array.copy(), own.ctypes.data - block.ctypes.data
        self._rows[:, 1] += self._ahead
        self.commands = CommandList(self._rows, (own, program.commands.keep_alive))
        self.run_here = jobs.inline_runner(self.commands)
        self._words = own.data
        self._places = [program.places.get(buffer.address, ()) for buffer in inputs]
        self._home = [buffer.address for buffer in inputs]
        self._may = allowed
        self._see(program, inputs)
        # The arguments of `bind_inputs`; None if the commands may refer to memory that was freed.
        self.tensors: Sequence[CPUTensorData | None] | None = None
        self.job: RepeatedJob | None = None  # what runs it as it is bound
        # What runs it while the caller waits, and what that holds meanwhile.
        self.shared: tuple[RepeatedJob, list[object]] | None = None
        self.taken: list[tuple[int, np.ndarray]] = []
        self.read: list[CPUTensorData] = []
        self.copied: list[int] = []
        self.held: object = None

    def _see(self, program: CPUProgram, inputs: Sequence[CPUBuffer]) -> None:
        """Note which inputs can be read in place, and the outputs, at the present sizes."""
        self._allowed = [
            may and buffer.elements * buffer.dtype.itemsize >= IN_PLACE_BYTES
            for may, buffer in zip(self._may, inputs, strict=True)
        ]
        self._exact = [buffer.address in program.exact for buffer in inputs]
        self._outputs = program.outputs
        self.moved: tuple[str, ...] = ()

    def resize(self, program: CPUProgram, inputs: Sequence[CPUBuffer]) -> bool:
        """Follow the program to other sizes, with the same buffers; False if that is impossible now."""
        assert program.commands is not None
        self.shared = None
        rows, count = program.commands.array, program.commands.count
        if not is_free(self) or count > len(self._rows):
            return False
        self.let_go()
        self._own[:] = program.commands.keep_alive[0]  # type: ignore[index]
        own = self._rows[:count]
        own[:] = rows
        own[:, 1] += self._ahead
        self.commands.become(own)
        self._see(program, inputs)
        return True

    def is_bound_to(self, arrays: Sequence[np.ndarray], tensors: Sequence[CPUTensorData | None]) -> bool:
        """Whether the commands read these tensors in place."""
        # Arrays are others where they were written while they were read.
        if tensors != self.tensors or any(arrays[number] is not array for number, array in self.taken):
            return False
        self.tensors = tensors
        return True

    def bind_inputs(self, arrays: Sequence[np.ndarray], tensors: Sequence[CPUTensorData | None]) -> None:
        """Bind tensors in place where possible; without any, bind copies."""
        self.let_go()
        self.tensors, words, allowed = tensors, self._words, self._allowed
        for number, places in enumerate(self._places):
            tensor = tensors[number] if tensors else None
            address = tensor.address if tensor is not None and allowed[number] else 0
            if tensor is not None and address:
                self.taken.append((number, arrays[number]))
                self.read.append(tensor)
            else:
                self.copied.append(number)
                address = self._home[number]
            for place in places:
                words[place] = address

    def bind_inputs_now(self, arrays: Sequence[np.ndarray]) -> None:
        """Bind arrays in place, for a run that ends before their owner can change them."""
        self.let_go()
        for number, array in enumerate(arrays):
            address = address_in_place(array, self._exact[number]) if self._allowed[number] else 0
            if not address:
                self.copied.append(number)
                address = self._home[number]
            for place in self._places[number]:
                self._words[place] = address

    def bind_outputs(
        self, own: Collection[str], stream: JobStream
    ) -> tuple[Mapping[str, OutputMemory], bool]:
        """Bind outputs to memory of their own where available, else to the program's.

        Returns:
            Those in memory of their own, and whether the process never used some of that before.
        """
        outputs, words, before, made = self._outputs, self._words, self.moved, dict[str, OutputMemory]()
        is_new = False
        # Those of this run, of the one whose outputs are its inputs, and of the one before, until they go.
        most = 3 * len(own)
        for name, (buffer, places) in outputs.items() if own else ():
            if name in own:
                size = buffer.elements * buffer.dtype.itemsize
                try:
                    array, address, is_unused = stream.own.elements(size, buffer.dtype, most)
                except MemoryError:
                    break  # a copy may find some later
                is_new = is_new or is_unused
                made[name] = OutputMemory(array, address, stream)
                for place in places:
                    words[place] = address
        for name in before:
            if name not in made:
                buffer, places = outputs[name]
                for place in places:
                    words[place] = buffer.address
        if before or made:
            self.job = None
        self.moved = (*made,)
        return made, is_new

    def let_go(self) -> None:
        """Drop inputs and new memory; running commands keep what they need."""
        self.tensors = self.job = self.held = None
        self.taken, self.read, self.copied = [], [], []
