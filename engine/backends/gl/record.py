"""Shared parts of recording plans as OpenGL calls: the list, its bindings, and the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from engine.backends.base import Program
from engine.backends.gl.commands import CallList, CommandLoop, IterationRows, Setting
from engine.backends.gl.memory import AnyBuffer, releases
from engine.backends.gl.programs import ProgramStore
from engine.base.errors import DisposedError
from engine.compiler.plan import RepeatedSteps, Step
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL
from engine.kernels.expr import IterationNumber


class Temporary(Protocol):
    """Protocol: memory of temporaries, a buffer or a texture."""

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        ...

    def clear(self) -> None:
        """Fill it with zeros."""
        ...

    def release(self) -> None:
        """Free it."""
        ...


class GLProgram(Program):
    """A recorded plan, the memory of its temporaries, and the buffers it refers to."""

    def __init__(
        self,
        commands: CallList,
        temporaries: Sequence[Temporary],
        buffers: Sequence[AnyBuffer],
        make_places: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.commands = commands
        self._make_places = make_places
        self._temporaries = tuple(temporaries)
        self._buffers = tuple(buffers)
        self._is_released = False
        # `releases.latest` when the buffers were last checked.
        self._checked: object = None

    @cached_property
    def places(self) -> Mapping[str, Any]:
        """Where each tensor is."""
        return self._make_places()

    def become(self, commands: CallList, make_places: Callable[[], Mapping[str, Any]]) -> None:
        """Have other commands, of other sizes, over the same memory."""
        self.commands, self._make_places = commands, make_places
        self.__dict__.pop("places", None)

    def check(self) -> None:
        """Raise `DisposedError` if this program or a buffer that it uses was released."""
        latest = releases.latest
        if self._is_released or (
            latest is not self._checked and any(buffer.is_released for buffer in self._buffers)
        ):
            raise DisposedError("a recorded plan was run after its buffers were released")
        self._checked = latest

    def temporaries(self) -> dict[int, int]:
        """Buffers or textures."""
        return {id(memory): memory.nbytes for memory in self._temporaries}

    def clear(self) -> None:
        """Fill the temporaries with zeros."""
        for memory in self._temporaries:
            memory.clear()

    @property
    def is_released(self) -> bool:
        """Whether `release` was called."""
        return self._is_released

    def release(self) -> None:
        """Free the temporaries."""
        self._is_released = True
        for memory in self._temporaries:
            memory.release()


class _SymbolicRun(NamedTuple):
    """What `IterationRows` say of a run, while it is being recorded."""

    settings: list[Setting]
    repetitions: list[CommandLoop]


class GLRecorder:
    """Adds calls to a list and skips redundant bindings. The initial state is unknown."""

    def __init__(self, device: GLDevice, programs: ProgramStore[Any]) -> None:
        self.device = device
        self.programs = programs
        self.commands = CallList()
        self._program = 0
        self._unit = -1
        self._textures: dict[tuple[int, int], int] = {}
        self.used_words = np.zeros(0, np.int32)
        """The arguments of the kernel that is used."""
        self.first_row = 0
        """Where the rows of the innermost repetition begin that is being recorded."""
        self._open: list[_SymbolicRun] = []

    def forget(self) -> None:
        """Assume unknown bindings."""
        self._program, self._unit = 0, -1
        self._textures.clear()

    def repeat(self, step: Step, add: Callable[[Step], Sequence[Setting]]) -> None:
        """Record the steps that a step repeats, with `add`, which returns the settings of an iteration.

        They become two repetitions: all runs, and what follows the last.
        """
        kernel, count = step.kernel, step.space[0]
        assert isinstance(kernel, RepeatedSteps)
        self._repeat(kernel, kernel.body, range(count), add)
        self._repeat(kernel, kernel.last, range(count, count + 1), add)

    def _repeat(
        self,
        kernel: RepeatedSteps,
        steps: Sequence[Step],
        runs: range,
        add: Callable[[Step], Sequence[Setting]],
    ) -> None:
        origin, first = self.first_row, len(self.commands)
        self.first_row = first
        made: list[IterationRows] = []
        for part in range(2):
            begin, own = len(self.commands) - first, _SymbolicRun([], [])
            if any(run % 2 == part for run in runs[:2]):
                self.forget()
                self._open.append(own)
                for inner in kernel.in_iteration(steps, part):
                    if isinstance(inner.kernel, RepeatedSteps):
                        self.repeat(inner, add)
                    else:
                        own.settings.extend(add(inner))
                self._open.pop()
            made.append(IterationRows(begin, len(self.commands) - first, *own))
        self.forget()
        self.first_row = origin
        around = self._open[-1].repetitions if self._open else self.commands.repetitions
        around.append(CommandLoop(first - origin, (made[0], made[1]), runs))

    def run_numbers(self, step: Step) -> list[Setting]:
        """The settings that write the iteration number to the arguments of the kernel just used."""
        words = self.used_words
        places = [k for k, value in enumerate(step.values) if isinstance(value, IterationNumber)]
        if not places:
            return []

        def setting(table: np.ndarray, first: int, run: int) -> None:
            words[places] = run

        return [setting]

    def call(self, function: str, *arguments: int) -> None:
        """Add a call by the function's name."""
        self.commands.call(self.device.gl.address(function), *arguments)

    def use(self, key: str, words: np.ndarray) -> None:
        """Use a kernel's program with these arguments `A`."""
        program = self.programs[key]
        if program != self._program:
            self.call("glUseProgram", program)
            self._program = program
        self.used_words = words
        pointer = self.commands.pointer(words)
        self.call("glUniform4iv", self.programs.location(key), len(words) // 4, pointer)

    def bind_texture(self, unit: int, target: int, name: int) -> None:
        """Bind a texture to a unit."""
        if self._textures.get((unit, target)) == name:
            return
        self._textures[unit, target] = name
        if self._unit != unit:
            self.call("glActiveTexture", GL.TEXTURE0 + unit)
            self._unit = unit
        self.call("glBindTexture", target, name)
