"""OpenCL templates: kernels shared by all sizes, whose arguments are set when sizes change.

Commands take the arguments that a kernel has when they are enqueued, so programs of different sizes may use
the same kernels in turn. Temporaries are in buffers that all sizes share and that grow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.gpu.division import divisor
from engine.backends.gpu.symbolic_arrays import (
    ArrayTemplate,
    SymbolicArray,
    SymbolicSlots,
    SymbolicWords,
    Values,
    Variables,
    owned,
)
from engine.backends.gpu.template import GPUTemplate, Needs
from engine.backends.opencl.codegen.printer import GenericSource
from engine.backends.opencl.codegen.storage import device_dtype
from engine.backends.opencl.codegen.tuned_kernel import FIRST_GROUP
from engine.backends.opencl.execution.dispatches import (
    SIZES,
    CLProgram,
    Command,
    Repetition,
    command_rows,
    dispatches,
    is_one,
    pointed,
    work_items,
)
from engine.backends.opencl.execution.memory import CLBuffer, TemporaryBuffer
from engine.backends.opencl.execution.programs import CompiledProgram, set_arguments
from engine.compiler.plan import Plan, Step
from engine.device.cl.device import CLDevice
from engine.device.cl.native_calls import DATA, SET_ARGUMENT, new_rows, point
from engine.kernels.size import Number, has_sizes, hint_of, largest

if TYPE_CHECKING:
    from engine.backends.opencl.backend import OpenCLBackend

_SMALLEST = 16
"""Bytes of the smallest slot, and what others are multiples of."""

Setting = tuple[Any, tuple[Any, ...], tuple[Any, ...]]
"""A kernel, and its arguments that differ by size, each after its position: buffers, and numbers."""


class _Kernels:
    """The kernels of a template's steps as a whole, and which program's arguments they have."""

    latest: CLTemplateProgram | None = None

    def __init__(self, device: CLDevice) -> None:
        self._device = device
        self._buffers: list[tuple[Any, int]] = []
        self._tensors: list[int] = []
        self._numbers: list[tuple[Any, int]] = []

    def add(self, kernel: Any, tensors: Mapping[int, int], numbers: Sequence[int]) -> None:
        """A kernel, which tensors its buffers are, by position, and the positions of its numbers."""
        self._buffers += [(kernel, position) for position in tensors]
        self._tensors += tensors.values()
        self._numbers += [(kernel, position) for position in numbers]

    def close(self) -> None:
        """Create the call rows, once all kernels are added."""
        self._buffer_rows = _argument_rows(self._buffers, 8)
        self._number_rows = _argument_rows(self._numbers, 4)

    def bind(self, tensors: Sequence[Any]) -> None:
        """Set the buffers."""
        self._buffer_rows[:, DATA] = np.array([mem.int_ptr for mem in tensors], np.int64)[self._tensors]
        self._device.set_arguments(self._buffer_rows)

    def fill_in(self, words: np.ndarray) -> None:
        """Set the numbers."""
        self._number_rows[:, DATA] = words
        self._device.set_arguments(self._number_rows)


def _argument_rows(arguments: Sequence[tuple[Any, int]], size: int) -> np.ndarray:
    """The calls that set arguments of `size` bytes: kernels, which must outlive them, and positions."""
    rows = new_rows(SET_ARGUMENT, len(arguments))
    rows[:, 1:3] = np.array([(kernel.int_ptr, at) for kernel, at in arguments], np.int64).reshape(-1, 2)
    rows[:, 3] = size
    point(rows, 4, DATA)
    return rows


class CLTemplateProgram(CLProgram):
    """A program of a template: one size of a plan.

    kernels: the kernels that it shares with others.
    """

    def __init__(self, kernels: _Kernels) -> None:
        self._kernels = kernels
        self._numbers = []

    def become(
        self,
        tensors: list[Any],
        words: np.ndarray,
        settings: list[Setting],
        make_commands: Callable[[], list[Command]],
        rows: np.ndarray,
        slots: list[Any],
        numbers: list[Any],
    ) -> None:
        """Have the commands of a size; if there were others before, then in the same memory.

        Args:
            tensors: The kernels' buffers that differ by size.
            words: Their numbers that do.
            settings: What sets the arguments of other kernels.
            make_commands: Makes the dispatches.
            rows: The calls that enqueue them.
            slots: The shared buffers for temporaries.
            numbers: The buffers with numbers of other kernels.
        """
        for mem in self._numbers:
            mem.release()
        self.memory, self._numbers = slots, numbers
        self._make_commands = make_commands
        self._rows = rows
        self._tensors = tensors
        self._words = words
        self._settings = settings
        self._is_set = False
        self.__dict__.pop("commands", None)

    @cached_property
    def commands(self) -> list[Command | Repetition]:  # type: ignore[override]
        """The dispatches, for all but enqueueing."""
        return [*self._make_commands()]

    def activate(self) -> None:
        """Set this program's arguments on the shared kernels."""
        kernels = self._kernels
        before = kernels.latest
        if before is self and self._is_set:
            return
        # None while they are set: an error leaves some of each.
        kernels.latest = None
        # Most sizes share their memory, as it was allocated for larger ones.
        if before is None or not all(map(is_, before._tensors, self._tensors)):
            kernels.bind(self._tensors)
        kernels.fill_in(self._words)
        for kernel, buffers, numbers in self._settings:
            set_arguments(kernel, buffers, numbers)
        kernels.latest, self._is_set = self, True

    def release(self) -> None:
        """Free the commands, and what no other program uses."""
        self._make_commands = list
        self.memory.clear()
        super().release()
        if self._kernels.latest is self:
            self._kernels.latest = None
        self._tensors.clear()
        self._settings.clear()


class _SymbolicStep:
    """A step: its kernels, one for each dispatch, and its sizes and values as numbers to fill in."""

    def __init__(
        self,
        step: Step,
        compiled: CompiledProgram,
        numbers: Variables,
        tensors: Mapping[str, int],
        constants: Mapping[str, Any],
    ) -> None:
        self.step = step
        self.compiled = compiled
        operands = [*enumerate((*step.inputs, step.output))]
        self.tensors = {position: tensors[name] for position, name in operands if name in tensors}
        """Those whose memory differs by size, by the positions of arguments."""
        fixed = [(position, constants[name]) for position, name in operands if name in constants]
        self.constants = tuple([item for pair in fixed for item in pair])
        """Buffers of the other arguments, each after its position."""
        self.kernels: list[Any] = []
        """That of the whole step, and those of the dispatches that it was ever cut into."""
        self._numbers = [_form(number, numbers) for number in (*step.space, *step.values)]

    def filled(self, given: Values) -> Step:
        """The step with its sizes."""
        parts = given.integers.tolist(), given.floats.tolist()
        numbers = [number if part is None else parts[part][number] for part, number in self._numbers]
        rank = len(self.step.space)
        return replace(self.step, space=tuple(numbers[:rank]), values=tuple(numbers[rank:]))

    def kernel(self, number: int) -> Any:
        """A kernel, made now if there was none."""
        while len(self.kernels) <= number:
            self.kernels.append(self.compiled.bare_kernel())
        return self.kernels[number]


def _form(number: Number, numbers: Variables) -> tuple[int | None, Any]:
    """(None, number), or for a symbolic number (1 if it is a float else 0, its index in `numbers`)."""
    if not has_sizes([number]):
        return None, number
    return int(isinstance(hint_of(number), float)), numbers.index(number)  # type: ignore[arg-type]


class CLTemplate(GPUTemplate):
    """An OpenCL plan with symbolic sizes."""

    def __init__(self, backend: OpenCLBackend, plan: Plan, constants: Mapping[str, DeviceBuffer]) -> None:
        super().__init__(backend, plan.given(constants), CLBuffer)
        self._backend = backend
        numbers = Variables()
        lifetimes = plan.lifetimes()
        specs = [plan.buffers[name] for name in lifetimes]
        sizes = {spec.name: spec.elements * device_dtype(spec.dtype).itemsize for spec in specs}
        slots, slot_sizes = SymbolicSlots(sizes, lifetimes, _SMALLEST), SymbolicArray(numbers, are_bytes=True)
        for size in slots.sizes:
            slot_sizes.add(largest(_SMALLEST, size))
        self._slot_of = slots.of
        # Tensors whose memory differs by size, by number: temporaries, inputs, outputs and tables.
        tensors = {name: number for number, name in enumerate(lifetimes)}
        tensors |= {name: number for number, name in enumerate(self._outer, len(specs))}
        mems = {name: b.mem for name, b in owned(constants, constants, CLBuffer).items()}
        self._kernels = _Kernels(backend.device)
        self._steps: list[_SymbolicStep] = []
        # Words of numbers that are set for each size, and each one's position among a kernel's arguments.
        words = SymbolicWords(numbers)
        positions: list[int] = []
        # Of each step: whether it is a single dispatch, and the work-items of that.
        are_single, work = SymbolicArray(numbers), list[Sequence[Number]]()
        for step in plan.steps:
            if any(type(size) is int and size == 0 for size in step.space):
                continue
            compiled = backend.programs.get(step.kernel)
            own = _SymbolicStep(step, compiled, numbers, tensors, mems)
            self._steps.append(own)
            begin = len(positions)
            is_plain = self._add_arguments(own, words, positions)
            if is_plain:
                self._kernels.add(own.kernel(0), own.tensors, positions[begin:])
            are_single.add(is_one(compiled, step) if is_plain else 0)
            work.append(work_items(compiled, step))
        self._words = words.close()
        self._kernels.close()
        self._whole = [own.kernel(0) for own in self._steps]
        self._work_groups = [own.compiled.source.local for own in self._steps]
        whole = zip(self._whole, self._work_groups, self._work_groups, strict=True)
        rows = command_rows(backend.device, [*whole])
        filled = ((row, SIZES.start, counts) for row, counts in enumerate(work))
        self._rows = ArrayTemplate.of_rows(numbers, rows, filled)
        self._are_single = are_single.close()
        self._slot_sizes = slot_sizes.close()
        self._variables = numbers

    @staticmethod
    def _add_arguments(own: _SymbolicStep, words: SymbolicWords, positions: list[int]) -> bool:
        """Set what is the same for all sizes, and note what is not; False where numbers are no arguments."""
        step, source = own.step, own.compiled.source
        signature = source.signature
        if signature.in_buffer or "float64" in signature.arguments:
            return False
        begin = signature.inputs + 1

        def opened(position: int, count: int = 1) -> int:
            """Some more words, for arguments from a position on."""
            positions.extend(range(position, position + count))
            return words.add(np.zeros(count, np.int32))

        hinted = replace(step, space=tuple(map(hint_of, step.space)), values=tuple(map(hint_of, step.values)))
        kinds = signature.arguments
        for k, value in enumerate(step.values):
            if has_sizes([value]):
                words.fill_in(opened(begin + k), kinds[k : k + 1], [value])
        if isinstance(source, GenericSource):
            fixed = source.values(hinted.values, hinted.space, 0, prod(hinted.space))
            at = begin + len(step.values)
            total = prod(step.space)
            if has_sizes([total]):
                words.fill_in(opened(at), ["index"], [total])
            for k, size in enumerate(source.axes.divisors(step.space)):
                if has_sizes([size]):
                    divided = (largest(1, size), *divisor(size))
                    words.fill_in(opened(at + 2 + 3 * k, 3), ("index",) * 3, divided)
        else:
            fixed = [*hinted.values, *[0] * len(FIRST_GROUP)]
        typed = signature.numbers(fixed)
        pairs = [item for pair in enumerate(typed, begin) for item in pair]
        set_arguments(own.kernel(0), own.constants, tuple(pairs))
        return True

    def place_temporaries(self, given: Values) -> list[tuple[TemporaryBuffer, int]]:
        """The buffers for temporaries, and their sizes."""
        return [(self._backend.slot(k), size) for k, size in enumerate(self._slot_sizes(given).tolist())]

    def needs(self, placed: list[tuple[TemporaryBuffer, int]]) -> Needs:
        """The buffers for temporaries, and their sizes."""
        return placed

    def program(
        self, given: Values, placed: list[tuple[TemporaryBuffer, int]], outer: Sequence[CLBuffer]
    ) -> CLTemplateProgram:
        """The program for one set of sizes."""
        program = CLTemplateProgram(self._kernels)
        self.refill(program, given, placed, outer)
        return program

    def refill(
        self,
        program: CLTemplateProgram,
        given: Values,
        placed: list[tuple[TemporaryBuffer, int]],
        outer: Sequence[CLBuffer],
    ) -> None:
        """Turn a program into that of other sizes."""
        whole = self._rows(given)
        slots = [slot.reserve(size) for slot, size in placed]
        tensors = [slots[k] for k in self._slot_of]
        tensors += [buffer.mem for buffer in outer]
        settings: list[Setting] = []
        numbers: list[Any] = []
        # Commands of other steps, which come behind those of the whole ones; and the order of all.
        parts: list[Command] = []
        order: list[int] = []
        begin, count = 0, len(self._whole)
        for k in np.flatnonzero(self._are_single(given) == 0).tolist():
            order += range(begin, k)
            begin = k + 1
            first = count + len(parts)
            self._add_parts(self._steps[k], given, tensors, settings, parts, numbers)
            order += range(first, count + len(parts))
        order += range(begin, count)
        if parts:
            rows = np.concatenate([whole, command_rows(self._backend.device, parts)])[order]
        else:
            rows = whole if len(order) == count else whole[order]

        def make_commands() -> list[Command]:
            groups = self._work_groups
            work = whole[:, SIZES].tolist()
            items = [tuple(n[: len(local)]) for n, local in zip(work, groups, strict=True)]
            found = [*zip(self._whole, items, groups, strict=True), *parts]
            return [found[k] for k in order]

        words = self._words(given)
        program.become(tensors, words, settings, make_commands, pointed(rows), slots, numbers)

    def _add_parts(
        self,
        own: _SymbolicStep,
        given: Values,
        tensors: Sequence[Any],
        settings: list[Setting],
        commands: list[Command],
        memory: list[Any],
    ) -> None:
        """A step that is cut into several dispatches, or whose numbers are no plain arguments."""
        step = own.filled(given)
        if not prod(step.space):
            return
        signature = own.compiled.source.signature
        begin = signature.inputs + 1
        open_ones = tuple([item for at, k in own.tensors.items() for item in (at, tensors[k])])
        for number, (values, size) in enumerate(dispatches(own.compiled, step), 1):
            numbers: list[Any] = list(signature.numbers(values))
            buffers = own.constants + open_ones
            if signature.in_buffer:
                memory.append(self._backend.numbers_in_buffer(numbers[0]))
                buffers, numbers = (*buffers, begin, memory[-1]), []
            pairs = [item for pair in enumerate(numbers, begin) for item in pair]
            kernel = own.kernel(number)
            settings.append((kernel, buffers, tuple(pairs)))
            commands.append((kernel, size, own.compiled.source.local))
