"""What a session makes of a stretch of a model for given input shapes: programs, and what lies where."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from engine.backends.base import Compiling, DeviceBuffer, Program
from engine.compiler.lower import Lowered, Place
from engine.compiler.plan import Plan
from engine.kernels.value import Value

PLAN_BYTES = 256 << 10
"""About what a plan takes beside its buffers: steps, values and commands."""


@dataclass
class Location:
    """Where a tensor of a run lies: a buffer at a place, or elements known ahead of time."""

    value: Value
    place: Place | None = None
    buffer: DeviceBuffer | None = None

    def array(self) -> np.ndarray:
        """A copy of elements that lie in no buffer: known ahead of time, or none at all."""
        value = self.value
        if value.known is None:
            return np.empty(value.shape, value.dtype)
        return value.known.reshape(value.shape).copy()

    def seen_in(self, flat: np.ndarray) -> np.ndarray:
        """The tensor's elements in a copy of its buffer, which may hold more."""
        return flat[: self.value.size].reshape(self.value.shape)


@dataclass
class Stage:
    """A program to run at a place, after copying `moves` there from the other place."""

    place: Place
    program: Program
    make_plan: Callable[[], Plan]
    moves: tuple[tuple[str, DeviceBuffer, DeviceBuffer], ...] = ()
    slicing: Any = None
    """The program in pieces and what its steps are expected to take, once somebody asked for that."""

    @cached_property
    def plan(self) -> Plan:
        """The steps of the program, with their sizes."""
        return self.make_plan()


@dataclass(eq=False)
class Part:
    """A recorded stretch of a model: its stages, and the buffers that outlive them.

    `users` counts the runs that have it on their way or as their result; without any it may be dropped.
    """

    lowered: Lowered
    compiling: tuple[Compiling, ...] = ()
    """What compiles its kernels; until that is done, there is nothing below."""
    stages: list[Stage] = field(default_factory=list)
    buffers: dict[tuple[Place, str], DeviceBuffer] = field(default_factory=dict)
    home: dict[str, Place] = field(default_factory=dict)
    owned: list[DeviceBuffer] = field(default_factory=list)
    inputs: dict[str, list[tuple[Place, DeviceBuffer]]] = field(default_factory=dict)
    later: OrderedDict[object, Part] = field(default_factory=OrderedDict)
    users: int = 0
    nbytes: int = PLAN_BYTES
    """Memory that goes when this part does, roughly."""
    short: Any = None
    """This part's `Direct`, once one was made."""

    def locate(self, value: Value) -> Location:
        """Where a tensor lies once this part has run."""
        if value.known is not None or value.size == 0:
            return Location(value)
        root = value.root.name
        place = self.home[root]
        return Location(value, place, self.buffers[place, root])

    def release(self) -> None:
        """Free programs and buffers."""
        self.short = None
        for stage in self.stages:
            stage.program.release()
            stage.slicing = None
        for buffer in self.owned:
            buffer.release()
