"""`Kernels`: the backend-specific parts of the shared rules; see `engine.backends.gpu.rules`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from engine.backends.gpu.expert_matmul import ExpertProduct
from engine.backends.gpu.interpolation import Interpolation
from engine.backends.gpu.non_max_suppression import Suppression
from engine.backends.gpu.roi_align import Regions
from engine.backends.gpu.scans import Blocks, MarkedRows, Marks
from engine.compiler.plan import Tuner
from engine.kernels.value import Value

GROUP = 64
"""Threads in a group."""

Text = Callable[[str, str], str]
"""Prints a text from two others."""


@dataclass(frozen=True)
class ThreadStep:
    """A step with one thread per element that stores int32s at any position.

    lines: statements of thread `t`. names, values: its arguments. divisors: names of those by which it
    divides. inputs: the tensors that it reads, each with its element type. shared: declarations of memory
    that a group shares. area, ns: what a group computes, in multiplications, and in nanoseconds of one
    processor.
    """

    threads: int
    lines: Sequence[str]
    names: Sequence[str]
    values: tuple[int, ...]
    inputs: Sequence[tuple[str, str]]
    output: str
    divisors: Sequence[str] = ()
    shared: Sequence[str] = ()
    area: int = GROUP
    ns: float = 500.0

    @property
    def divided_by(self) -> list[int]:
        """The values of the divisors."""
        return [self.values[self.names.index(name)] for name in self.divisors]


class Kernels(ABC):
    """Spelling of the shared kernels in a backend's language, and the backend's own kernels.

    Functions that emit a step return False where they cannot.
    """

    output: ClassVar[str]
    """The name of a kernel's output."""

    shared: ClassVar[str]
    """The word before a variable that a group shares."""

    barrier: ClassVar[str]
    """The statement that waits for a group's other threads."""

    tile: tuple[int, int]
    """How many rows and columns of a product with chosen weights a thread computes."""

    most_rounds: int = 1 << 30
    """After how many rounds a driver ends a thread's loops."""

    alone: int = 0
    """How many elements a thread sorts by itself; 0 where a group sorts in shared memory."""

    emit_sorted_block: Callable[[Tuner, ThreadStep, str, Text, Text, bool], bool] | None = None
    """Emits the step that sorts blocks of `alone` elements, where a backend has its own, of rows of so many.

    Then come what prints the statement that sets a variable to the key at a position of `row`, and the text
    of where in the row the element at a position and a slot is, and whether the output takes that alone.
    """

    as_int: ClassVar[str]
    """The form of an integer of another type as an int."""

    bits: ClassVar[str]
    """The form of the bits of a float32 as an int."""

    @abstractmethod
    def fits(self, elements: int, dtype: np.dtype) -> bool:
        """Whether a tensor fits in a buffer."""

    @abstractmethod
    def load(self, slot: int, position: str, kind: str) -> str:
        """The text of an element of an input."""

    def element(self, slot: int, position: str, kind: str = "int32") -> str:
        """The text of an element of an input as an int: an integer of a type, or the bits of a float32."""
        found = self.load(slot, position, kind)
        if kind == "int32":
            return found
        return (self.bits if kind == "float32" else self.as_int).format(found)

    @abstractmethod
    def divide(self, number: str, by: str) -> str:
        """Source of the quotient of a non-negative number by a divisor."""

    @abstractmethod
    def raised(self, position: str, number: str) -> str:
        """The statement that raises an element of the output to a number at least, for all threads."""

    @abstractmethod
    def emit(self, tuner: Tuner, step: ThreadStep) -> bool:
        """Emit a step of a row of threads."""

    @abstractmethod
    def emit_blocks(self, tuner: Tuner, blocks: Blocks) -> bool:
        """Emit the last step of a running sum."""

    @abstractmethod
    def emit_rows(self, tuner: Tuner, rows: MarkedRows) -> bool:
        """Emit the step that goes through whole rows of marks."""

    @abstractmethod
    def emit_marks(self, tuner: Tuner, marks: Marks) -> bool:
        """Emit the step that writes positions of marks."""

    @abstractmethod
    def emit_means(self, tuner: Tuner, step: Regions) -> bool:
        """Emit the step that takes means over bins of regions."""

    @abstractmethod
    def emit_blend(self, tuner: Tuner, blend: Interpolation) -> bool:
        """Emit the steps that blend elements of planes at listed positions."""

    @abstractmethod
    def emit_suppression(self, tuner: Tuner, step: Suppression) -> bool:
        """Emit a step of non-maximum suppression."""

    @abstractmethod
    def pack_experts(self, tuner: Tuner, weights: Value) -> str:
        """Emit the step that lays weights (experts, n, k) out for `emit_product`; returns its tensor."""

    @abstractmethod
    def emit_product(self, tuner: Tuner, product: ExpertProduct) -> bool:
        """Emit a product with the weights of chosen experts."""
