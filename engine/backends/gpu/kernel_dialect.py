"""`KernelDialect`: how GLSL and OpenCL C write the kernels that both share (`engine.backends.gpu.tuning`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from engine.backends.gpu.division import divisor, divisor_names
from engine.compiler.plan import Compute, Tuner

GROUP = 64
"""Threads in a group."""

Text = Callable[[str, str], str]
"""Prints a text from two others."""

Store = Callable[[str, str], Sequence[str]]
"""Prints the statements that apply a step's epilogue to a value, and store it at a position."""


@dataclass(frozen=True)
class ThreadStep:
    """A dispatch of a one-dimensional grid of threads, which store at any position.

    Attributes:
        threads: Number of threads.
        lines: Statements of thread `t`.
        names: Names of the arguments.
        values: Their values.
        inputs: Names and element types of the tensors that it reads.
        output: The tensor that it stores to.
        kind: Element type of the output.
        widths: Elements that a load of each input returns; empty for one each.
        divisors: Names of the arguments by which it divides.
        shared: Declarations of shared memory.
        functions: Source of functions that it calls.
        rounds: Names of arguments whose product is the number of iterations of a thread's loops.
        is_coherent: Whether threads read what others of their group have stored.
        is_alone: Whether a thread is a group of its own on processors, because it computes so much.
        area: Multiplications of a group in an iteration.
        ns: Nanoseconds of a group in an iteration on one processor.
    """

    threads: int
    lines: Sequence[str]
    names: Sequence[str]
    values: tuple[int, ...]
    inputs: Sequence[tuple[str, str]]
    output: str
    kind: str = "int32"
    widths: Sequence[int] = ()
    divisors: Sequence[str] = ()
    shared: Sequence[str] = ()
    functions: Sequence[str] = ()
    rounds: Sequence[str] = ()
    is_coherent: bool = False
    is_alone: bool = False
    area: int = GROUP
    ns: float = 500.0

    @property
    def argument_names(self) -> list[str]:
        """Names of its arguments, and behind them of those by which it divides."""
        return [*self.names, *divisor_names([*self.divisors])]

    @property
    def argument_values(self) -> list[int]:
        """Their values."""
        sizes = (self.values[self.names.index(name)] for name in self.divisors)
        return [*self.values, *(part for size in sizes for part in divisor(size))]


class KernelDialect(ABC):
    """A language's loads, vectors, atomics and barriers, and how its backend emits steps.

    Functions that emit a step return False where they cannot.
    """

    output: ClassVar[str]
    """The name of a kernel's output."""

    shared: ClassVar[str]
    """The qualifier of a variable in shared (local) memory."""

    static: ClassVar[str] = ""
    """The qualifiers of a function definition, such as "static "."""

    barrier: ClassVar[str]
    """The statement that waits for a group's other threads."""

    full_barrier: ClassVar[str]
    """The same, after which threads also see what the others have stored in the output."""

    most_rounds: int = 1 << 30
    """After how many rounds a driver ends a thread's loops."""

    alone: int = 0
    """How many elements a thread sorts by itself; 0 where a group sorts in shared memory."""

    longest_row: int = 1 << 14
    """Marks of a row up to which one group, or thread alone, looks at all of them."""

    widths: tuple[int, ...] = (4,)
    """Elements of the vectors of floats, the longest first; more than one where a thread is a processor's."""

    sorted_block: Callable[[str, Text, Text, bool], tuple[list[str], list[str]]] | None = None
    """Prints a function's source and the statements that sort a block of `alone` elements, where a backend
    has its own.

    From how many elements the row has, what prints the statement that sets a variable to the key at a
    position of `row`, and the text of where in the row the element at a position and a slot is, and whether
    the output takes that alone.
    """

    as_int: ClassVar[str]
    """Format of a number of another type converted to int; `{}` is the number."""

    as_float: ClassVar[str]
    """Format of an int converted to float."""

    bits: ClassVar[str]
    """Format of the bits of a float32 as an int."""

    from_bits: ClassVar[str]
    """Format of the float32 with the bits of an int."""

    bit_place: ClassVar[str]
    """Format of the index of the only set bit of a uint."""

    @abstractmethod
    def fits(self, elements: int, dtype: np.dtype) -> bool:
        """Whether a tensor fits in a buffer."""

    @abstractmethod
    def load(self, slot: int, position: str, kind: str) -> str:
        """Source of a load of one element of an input."""

    @abstractmethod
    def load_vector(self, slot: int, position: str, width: int = 4) -> str:
        """Source of a load of several floats of an input; the position counts vectors."""

    @abstractmethod
    def load_word(self, slot: int, position: str) -> str:
        """Source of a load of four bytes of an input as a uint; the position counts words."""

    def element(self, slot: int, position: str, kind: str = "int32") -> str:
        """Source of a load of an element as an int: an integer of any type, or the bits of a float32."""
        found = self.load(slot, position, kind)
        if kind == "int32":
            return found
        return (self.bits if kind == "float32" else self.as_int).format(found)

    @abstractmethod
    def vector(self, width: int = 4) -> str:
        """The type of several floats."""

    @abstractmethod
    def construct_vector(self, numbers: str, width: int = 4) -> str:
        """Source of a vector constructor: of these floats, or of one for all elements."""

    @abstractmethod
    def lane(self, vector: str, number: int) -> str:
        """Source of an element of a vector."""

    @abstractmethod
    def atomic(self, operation: str, array: str, position: str, number: str) -> str:
        """The statement of an atomic operation, "max" or "or", on an element of an array."""

    @abstractmethod
    def emit(self, tuner: Tuner, step: ThreadStep) -> bool:
        """Emit a step."""

    @abstractmethod
    def emit_with_epilogue(
        self, compute: Compute, tuner: Tuner, step: ThreadStep, lines: Callable[[Store], Sequence[str]]
    ) -> bool:
        """Emit a step of these lines, whose results get the epilogue of `compute`."""
