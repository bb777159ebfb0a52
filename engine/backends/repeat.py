"""A program that runs repeatedly, with new inputs each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.tensor_data import CPUTensorData
from engine.base import instrumentation

if TYPE_CHECKING:
    from engine.backends.base import Backend, DeviceBuffer, Program


class Repeat:
    """A program that runs repeatedly, with new inputs each time.

    They come as arrays and, where some are those of tensors, these beside them, in the same order.
    """

    __slots__ = ("_backend", "_program", "_targets")

    def __init__(self, backend: Backend, program: Program, targets: Sequence[DeviceBuffer | None]) -> None:
        self._backend = backend
        self._program = program
        self._targets = targets

    def run(self, arrays: Sequence[np.ndarray], tensors: Sequence[CPUTensorData | None] = ()) -> None:
        """Take these inputs, and enqueue the program."""
        backend = self._backend
        with backend.entered():
            if instrumentation.installed:
                self._run_observed(arrays)
                return
            for array, target in zip(arrays, self._targets, strict=True):
                if target is not None:
                    backend.upload(target, array)
            backend.run(self._program)
            backend.flush()

    def again(self, tensors: Sequence[CPUTensorData | None]) -> bool:
        """The same with nothing but tensors, and the very list that `run` was given last, whose elements are
        where they were. Where that takes more than enqueueing, nothing is done, and this is False.
        """
        return False

    def run_after(self, arrays: Sequence[np.ndarray], tensors: Sequence[CPUTensorData | None]) -> None:
        """The same where jobs still write some of the tensors, for which the stream can wait."""
        for array, tensor, target in zip(arrays, tensors, self._targets, strict=True):
            if target is None:
                continue
            if tensor is None:
                self._backend.upload(target, array)
            else:
                self._backend.upload_after(target, tensor)
        self._backend.run(self._program)

    def _run_observed(self, arrays: Sequence[np.ndarray]) -> None:
        backend = self._backend
        for array, target in zip(arrays, self._targets, strict=True):
            if target is not None:
                with instrumentation.spanning("upload", bytes=array.nbytes):
                    backend.upload(target, array)
                instrumentation.count("bytes up", array.nbytes)
        with instrumentation.spanning("enqueue", backend=backend.name):
            backend.run(self._program)
            backend.flush()
