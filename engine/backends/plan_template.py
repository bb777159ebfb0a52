"""`Template`: a recorded plan with symbolic sizes; `PlanTemplate` for backends without their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from engine.backends.growable_memory import GrowableMemory
from engine.base.generators import SmallSteps, finish
from engine.compiler.plan import Plan
from engine.kernels.size import Number, Size
from engine.kernels.size_table import SizeTable

if TYPE_CHECKING:
    from engine.backends.base import Backend, DeviceBuffer, Program


class Template(Protocol):
    """A recorded plan with symbolic sizes."""

    @property
    def numbers(self) -> Sequence[Number]:
        """The symbolic numbers whose values `fill` needs, in order."""
        ...

    def shared_memory(self, values: Sequence[int | float]) -> Sequence[tuple[GrowableMemory[Any, Any], Any]]:
        """The shared memory that `fill` uses for one set of sizes, with the size of each part.

        Raises `OverflowError` as `fill` does.
        """
        ...

    def fill(self, values: Sequence[int | float], buffers: Mapping[str, DeviceBuffer]) -> Program:
        """The program for one set of sizes, over these inputs and outputs.

        Raises `OverflowError` where a number exceeds what arguments hold here.
        """
        ...


@runtime_checkable
class DeferredBindingTemplate(Template, Protocol):
    """A host template whose constants may be bound late: before a step first reads them."""

    def bind(self, constants: Mapping[str, DeviceBuffer]) -> None:
        """Bind constants."""
        ...


@dataclass(slots=True, eq=False)
class FilledSizes:
    """A program for one set of sizes, made by `NativeSizes.fill` and updated by `refill`.

    Attributes:
        sizes: The symbolic numbers.
        program: The program.
        outer: Its inputs and outputs, in the plan's order.
        memory: Bytes of the blocks of memory that it uses, by their numbers.
        numbers: Those that are looked up, as they are now.
        block: Where the program's commands are written.
        near: What is to be allocated ahead, as sizes come near to what there is.
    """

    sizes: Sequence[int]
    program: Program
    outer: Sequence[DeviceBuffer]
    memory: Mapping[int, int]
    numbers: LookedUpNumbers
    block: Any
    near: Sequence[GrowableMemory[Any, Any]] = ()


class LookedUpNumbers(Sequence[int]):
    """The numbers for one set of sizes, each read from native memory on access."""

    __slots__ = ("_places", "_words")

    def __init__(self, words: memoryview, places: Sequence[int]) -> None:
        self._words, self._places = words, places

    def __len__(self) -> int:
        return len(self._places)

    def part(self, which: slice) -> Callable[[], tuple[int, ...]]:
        """Return a function that reads a slice of the numbers when it is called."""
        places = self._places[which]
        return partial(itemgetter(*places), self._words) if len(places) > 1 else lambda: tuple(self[which])

    def __getitem__(self, which: Any) -> Any:
        words, found = self._words, self._places[which]
        return [words[place] for place in found] if type(which) is slice else words[found]


class NativeSizes(Protocol):
    """Computes the numbers of a plan, and its program, without Python."""

    def fill(
        self,
        sizes: Sequence[int],
        memory: Sequence[GrowableMemory[int, DeviceBuffer]],
    ) -> FilledSizes | None:
        """The program for some sizes; None where guards refuse them.

        Args:
            sizes: The symbolic numbers.
            memory: That of inputs and outputs, in the plan's order. On the host it grows where it is too
                small; elsewhere None is returned then.
        """
        ...

    def refill(self, filled: FilledSizes, sizes: Sequence[int]) -> bool:
        """Update a program, its buffers and its numbers to other sizes, in place.

        Returns whether it did: not while the program is in flight, where its memory is not the current one
        or too small, nor for sizes that guards refuse. Then all stays as it is.
        """
        ...


@dataclass(frozen=True, slots=True)
class SizedInput:
    """An input of a plan with symbolic sizes.

    Attributes:
        dtype: The type of its elements.
        shape: For each axis the number of the size that it is, or -1, and the size that it has then.
        place: Which of the plan's inputs and outputs it is.
    """

    dtype: np.dtype
    shape: Sequence[tuple[int, int]]
    place: int


@runtime_checkable
class ArraySizes(NativeSizes, Protocol):
    """Sizes that native code can read from the arrays themselves."""

    def reads(self, inputs: Sequence[SizedInput], zeros: Sequence[int]) -> bool:
        """Prepare `refill_from_arrays` for arrays of these inputs, or for fewer `zeros`; False if impossible.

        Args:
            inputs: All of them.
            zeros: Which of the numbers that are looked up have to be 0 where sizes are to be taken.
        """
        ...

    def refill_from_arrays(self, filled: FilledSizes, arrays: Sequence[np.ndarray]) -> bool | None:
        """As `refill`, with the sizes of arrays; also runs the program on them if it is expected to be short.

        Args:
            filled: What `fill` made.
            arrays: As many as there are inputs, in this order; they may be any.

        Returns:
            Whether the program was run; None if all stays as it is, for any of the reasons of `refill` or as
            the arrays are not those of the inputs, or not in C order.
        """
        ...


@runtime_checkable
class NativeTemplate(Template, Protocol):
    """A template whose numbers native code can compute."""

    def native_sizes(
        self,
        make_table: Callable[[int], SizeTable | None],
        numbers: Sequence[Number],
        elements: Sequence[Number],
    ) -> NativeSizes | None:
        """The native code that fills in sizes; None if part of it is Python or not compiled yet.

        Args:
            make_table: Makes what computes the numbers of this template and those below; given how many
                words it has to have behind those of the sizes.
            numbers: What is looked up later, floats as their bits.
            elements: How many elements inputs and outputs have, in the plan's order.
        """
        ...


class PlanTemplate:
    """A plan with symbolic sizes that is recorded again for each set of sizes."""

    def __init__(self, backend: Backend, plan: Plan, constants: Mapping[str, DeviceBuffer]) -> None:
        self._backend = backend
        self._plan = plan
        self._constants = dict(constants)
        self.numbers: tuple[Number, ...] = tuple(plan.numbers())
        self._open = [
            k for k, x in enumerate(self.numbers) if isinstance(x, Size) and isinstance(x.hint, int)
        ]

    def shared_memory(self, values: Sequence[int | float]) -> Sequence[tuple[GrowableMemory[Any, Any], Any]]:
        """None: each program has its own."""
        return ()

    def fill(self, values: Sequence[int | float], buffers: Mapping[str, DeviceBuffer]) -> Program:
        """The program for one set of sizes. Raises `OverflowError` for integers beyond 32 bits."""
        return finish(self.recording(values, buffers))

    def recording(
        self, values: Sequence[int | float], buffers: Mapping[str, DeviceBuffer]
    ) -> SmallSteps[Program]:
        """`fill`, a step of the plan at a time."""
        integers = [values[place] for place in self._open]
        if integers and not -(2**31) <= min(integers) <= max(integers) < 2**31:
            raise OverflowError(f"{self._backend.name} has 32-bit integers")
        plan = self._plan.filled(values)
        return (yield from self._backend.recording(plan, {**self._constants, **buffers}))
