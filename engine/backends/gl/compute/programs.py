"""Compute programs of one device."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from pathlib import Path

from engine.backends.gl.compute.printer import ARGUMENTS_LOCATION
from engine.backends.gl.programs import ProgramStore
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL, generate

_SCRATCH_BYTES = 1024
_BINDINGS = 8


class ComputePrograms(ProgramStore[str]):
    """Linked compute programs by kernel key."""

    stage = GL.COMPUTE_SHADER

    def __init__(self, device: GLDevice, folder: Path | None = None) -> None:
        super().__init__(device, folder)
        self._scratch = 0

    def text(self, shader: str) -> str:
        return shader

    def use_once(self, programs: Mapping[str, tuple[int, str]]) -> Iterator[tuple[str, int]]:
        """Dispatch with all arguments 0, which writes nothing."""
        gl = self.context.gl
        with self._publishing:
            if not self._scratch:
                self._scratch = generate(gl.glGenBuffers)
                gl.glBindBuffer(GL.COPY_WRITE_BUFFER, self._scratch)
                gl.glBufferData(GL.COPY_WRITE_BUFFER, _SCRATCH_BYTES, None, GL.DYNAMIC_COPY)
        for binding in range(_BINDINGS):
            gl.glBindBufferBase(GL.SHADER_STORAGE_BUFFER, binding, self._scratch)
        for key, (program, _) in programs.items():
            gl.glUseProgram(program)
            gl.glUniform4iv(ARGUMENTS_LOCATION, 1, (ctypes.c_int * 4)())
            gl.glDispatchCompute(1, 1, 1)
            yield key, ARGUMENTS_LOCATION
