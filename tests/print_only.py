"""Workers that plan a model and print its kernels, which then do nothing: what takes no compiler's time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from engine.backends import table
from engine.backends.base import Backend, DeviceBuffer, Program, Readback
from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.codegen.native_kernel import source_of
from engine.backends.gl.compute.backend import GLComputeBackend
from engine.backends.gl.compute.record import program_key
from engine.backends.gl.pixel.backend import GLPixelBackend
from engine.backends.gl.programs import LinkedProgram
from engine.backends.opencl.backend import OpenCLBackend
from engine.backends.opencl.execution.programs import Source
from engine.compiler.plan import AnyKernel
from engine.device.cl.device import CLDevice
from engine.device.gl.device import GLDevice


@cache
def own_device(channel: str) -> Any:
    """A device that no other worker uses: its programs are not real."""
    match table.named(channel).device:
        case "gl":
            return GLDevice()
        case "opencl":
            return CLDevice()
    return None


@contextmanager
def printing_only() -> Iterator[None]:
    """A block in which all backends print kernels instead of compiling them, and run nothing.

    What is read is zeros, such as how many elements an output has. Workers have to be on an `own_device`.
    """
    replaced: list[tuple[type, str, Callable[..., Any]]] = [
        (CPUBackend, "prepare", _print_for_cpu),
        (CPUBackend, "create_unset", CPUBackend.create),
        (GLComputeBackend, "prepare", _print_for_compute),
        (GLPixelBackend, "prepare", _print_for_pixel),
        (OpenCLBackend, "prepare", _print_for_opencl),
    ]
    for graphics in (GLComputeBackend, GLPixelBackend, OpenCLBackend):
        replaced += [(graphics, "run", _run_nothing), (graphics, "readback", _Zeros)]
    before = [(owner, name, owner.__dict__.get(name)) for owner, name, _ in replaced]
    for owner, name, function in replaced:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, name, own in before:
            if own is None:
                delattr(owner, name)
            else:
                setattr(owner, name, own)


def _print_for_cpu(self: CPUBackend, kernels: Iterable[AnyKernel], progress: object = None) -> int:
    nothing = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
    assert nothing is not None
    for kernel in kernels:
        if kernel.key not in self._functions:
            source_of(kernel)
            self._functions[kernel.key] = nothing
    _ = self.stream
    return 0


def _print_for_compute(self: GLComputeBackend, kernels: Iterable[AnyKernel], progress: object = None) -> int:
    for kernel in kernels:
        if (key := program_key(kernel, self.texels)) not in self.programs:
            self.source(kernel)
            self.programs._publish({key: LinkedProgram(0, 0)})
    return 0


def _print_for_pixel(self: GLPixelBackend, kernels: Iterable[AnyKernel], progress: object = None) -> int:
    for kernel in kernels:
        if kernel.key not in self.programs:
            self.shader(kernel)
            self.programs._publish({kernel.key: LinkedProgram(0, 0)})
    return 0


def _print_for_opencl(self: OpenCLBackend, kernels: Iterable[AnyKernel], progress: object = None) -> int:
    for kernel in kernels:
        if not self.programs.is_ready(kernel):
            source = self.programs.source(kernel)
            assert source.text
            self.programs._ready[kernel.key] = _Printed(source)  # type: ignore[assignment]
    return 0


class _Printed:
    """In place of a compiled OpenCL program, and of its kernels."""

    int_ptr = 0
    """No kernel's handle: nothing is called with it."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def new_kernel(self, buffers: list[Any], numbers: list[Any]) -> _Printed:
        """Itself."""
        return self

    def bare_kernel(self) -> _Printed:
        """Itself."""
        return self

    def set_arg(self, position: int, value: Any) -> None:
        """Nothing to do."""


def _run_nothing(self: Backend, program: Program) -> None:
    pass


class _Zeros(Readback):
    """Zeros in place of a buffer's value."""

    def __init__(self, buffer: DeviceBuffer, elements: int | None = None) -> None:
        self._value = np.zeros(buffer.elements if elements is None else elements, buffer.dtype)

    def done(self) -> bool:
        """Always true."""
        return True

    def array(self) -> np.ndarray:
        """The zeros."""
        return self._value

    def wait(self) -> None:
        """Nothing to wait for."""
