"""Shared parts of templates: calls recorded for symbolic sizes, and their arguments filled in per size."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.backends.base import Backend, DeviceBuffer
from engine.backends.gl.record import GLRecorder
from engine.backends.gpu.symbolic_arrays import ArrayTemplate, SymbolicWords, Values, Variables, columns
from engine.backends.gpu.template import GPUTemplate
from engine.base.memory.aligned import address_of
from engine.compiler.plan import Plan, Step
from engine.kernels.size import Number, hint_of


class SymbolicRecorder(GLRecorder):
    """Records calls of which some arguments are filled in later; for subclasses of a backend's recorder."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.numbers = Variables()
        self.words = SymbolicWords(self.numbers)
        # Rows of calls, each with where its words begin, or with the number of the texture.
        self.word_rows: list[tuple[int, int]] = []
        self.texture_rows: list[tuple[int, int]] = []
        # Symbolic arguments of calls: their row, the first column, and the numbers.
        self.filled_rows: list[tuple[int, int, Sequence[Number]]] = []

    def begin(self, step: Step) -> Step | None:
        """Begin a step; returns it with the sizes it was planned for, or None if it has no elements."""
        self.commands.begin_step()
        if any(type(size) is int and size == 0 for size in step.space):
            return None
        return replace(step, space=tuple(map(hint_of, step.space)), values=tuple(map(hint_of, step.values)))

    def use(self, key: str, words: np.ndarray) -> None:
        super().use(key, words)
        self.word_rows.append((len(self.commands) - 1, self.words.add(words)))

    def bind_numbered_texture(self, unit: int, target: int, number: int) -> None:
        """Bind a texture that differs by size."""
        before = len(self.commands)
        # Names that no texture has, until it has one.
        self.bind_texture(unit, target, -1 - number)
        if len(self.commands) > before:
            self.texture_rows.append((len(self.commands) - 1, number))


class GLTemplate(GPUTemplate):
    """A plan with symbolic sizes, recorded as OpenGL calls."""

    def __init__(
        self, backend: Backend, plan: Plan, constants: Container[str], own: type[DeviceBuffer]
    ) -> None:
        super().__init__(backend, plan.given(constants), own)
        self._lifetimes = plan.lifetimes()
        self._temporaries = list(self._lifetimes)

    def _close(self, recorder: SymbolicRecorder) -> None:
        """Keep what was recorded."""
        recorder.commands.finish()
        self._commands = recorder.commands
        self._word_rows, self._word_offsets = columns(recorder.word_rows)
        self._word_offsets *= 4
        self._texture_rows, self._texture_numbers = columns(recorder.texture_rows)
        self._words = recorder.words.close()
        self._table = ArrayTemplate.of_rows(recorder.numbers, recorder.commands.table, recorder.filled_rows)
        self._variables = recorder.numbers

    def _filled_table(self, given: Values, words: np.ndarray) -> np.ndarray:
        """The calls with the addresses of their words."""
        table = self._table(given)
        table[self._word_rows, 3] = self._word_offsets + address_of(words)
        return table
