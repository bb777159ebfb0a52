"""Compiled OpenCL programs: built once, cached on disk as binaries, dispatched once when loaded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from engine.backends.opencl.codegen.printer import GenericSource, Signature
from engine.backends.opencl.codegen.tuned_kernel import TunedKernel
from engine.base.errors import KernelCompileError
from engine.compiler.plan import AnyKernel
from engine.device.cl.binaries import binary_path, compile_program, read_binary, write_binary
from engine.device.cl.device import CLDevice
from engine.kernels.kernel import Kernel


class Source(Protocol):
    """A kernel function `k` in OpenCL C: source, parameters and work-group size."""

    @property
    def text(self) -> str:
        """The program."""
        ...

    @property
    def signature(self) -> Signature:
        """The function's parameters. With all numbers 0 it does nothing, which is used for warm-up."""
        ...

    @property
    def local(self) -> tuple[int, ...]:
        """Work-items in a group along each dimension."""
        ...


class CompiledProgram:
    """A program ready to run: `new_kernel` gives functions whose arguments are set independently."""

    def __init__(self, device: CLDevice, program: Any, source: Source) -> None:
        self.source = source
        self._device = device
        self._program = program

    def new_kernel(self, buffers: list[Any], numbers: list[Any]) -> Any:
        """A `pyopencl.Kernel` with its arguments set: buffers (the output last), then numbers."""
        kernel = self.bare_kernel()
        numbered = [item for pair in enumerate(numbers, len(buffers)) for item in pair]
        if self.source.signature.in_buffer:
            buffers, numbered = [*buffers, *numbers], []
        set_arguments(kernel, tuple(item for pair in enumerate(buffers) for item in pair), tuple(numbered))
        return kernel

    def bare_kernel(self) -> Any:
        """A `pyopencl.Kernel` without arguments."""
        return self._device.cl.Kernel(self._program, "k")


def set_arguments(kernel: Any, buffers: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
    """Set arguments that come after their positions."""
    if hasattr(kernel, "_set_arg_multi"):
        # What `set_args` of pyopencl calls: `set_arg` takes 50 times as long for a number.
        if buffers:
            kernel._set_arg_multi(buffers)
        if numbers:
            kernel._set_arg_buf_multi(numbers)
        return
    for given in (buffers, numbers):
        for position, value in zip(given[::2], given[1::2], strict=True):
            kernel.set_arg(position, value)


class ProgramStore:
    """The programs of one device. `folder` holds binaries between runs."""

    def __init__(self, device: CLDevice, folder: Path | None) -> None:
        self.compilations = 0
        """Programs that had to be compiled from source, ever."""
        self._device = device
        self._folder = folder
        self._ready: dict[str, CompiledProgram] = {}
        # Sources are printed when a kernel is first seen; compiling them is put off to `load`.
        self._sources: dict[str, Source] = {}
        self._scratch: Any = None
        self._options = _options(device)

    @classmethod
    def of(cls, device: CLDevice, folder: Path | None) -> ProgramStore:
        """The store that all backends of a device share, for each folder."""
        if folder not in device.stores:
            device.stores[folder] = cls(device, folder)
        store: ProgramStore = device.stores[folder]
        return store

    @property
    def ready(self) -> Iterable[CompiledProgram]:
        """The programs that can be dispatched."""
        return self._ready.values()

    def is_ready(self, kernel: AnyKernel) -> bool:
        """Whether a kernel can be dispatched without compiling."""
        return kernel.key in self._ready

    def source(self, kernel: AnyKernel) -> Source:
        """Source of a kernel."""
        if kernel.key not in self._sources:
            if isinstance(kernel, Kernel):
                self._sources[kernel.key] = GenericSource(kernel)
            else:
                assert isinstance(kernel, TunedKernel), f"{type(kernel).__name__} is another backend's"
                self._sources[kernel.key] = kernel
        return self._sources[kernel.key]

    def get(self, kernel: AnyKernel) -> CompiledProgram:
        """A kernel's program; compiled now if it is not ready."""
        if kernel.key not in self._ready:
            self.load(kernel)
        return self._ready[kernel.key]

    def load(self, kernel: AnyKernel) -> bool:
        """Load a kernel; returns True if it had to be compiled. Waits for the compiler.

        Raises `KernelCompileError`.
        """
        source = self.source(kernel)
        device, local = self._device, " ".join(map(str, source.local))
        path = binary_path(self._folder, *device.info.identity, " ".join(self._options), local, source.text)
        program = read_binary(device.cl, device.context, device.device, path)
        compiled_now = program is None
        if program is None:
            program = self._from_source(source.text)
            self.compilations += 1
        compiled = CompiledProgram(self._device, program, source)
        self._warm(compiled)
        if compiled_now:
            # After the first dispatch: only then PoCL's binary holds machine code.
            write_binary(device.cl, program, path)
        self._ready[kernel.key] = compiled
        return compiled_now

    def _from_source(self, text: str) -> Any:
        cl = self._device.cl
        try:
            return compile_program(cl, self._device.context, text, self._options)
        except cl.Error as error:
            lines = enumerate(text.splitlines(), 1)
            numbered = "\n".join(f"{number:4} | {line}" for number, line in lines)
            message = f"{self._device.info.name} refused a kernel: {error}\n{numbered}"
            raise KernelCompileError(message) from error

    def _warm(self, compiled: CompiledProgram) -> None:
        """Dispatch once with every number 0, which does nothing: drivers finish compiling then."""
        device, signature = self._device, compiled.source.signature
        if self._scratch is None:
            self._scratch = device.cl.Buffer(device.context, device.cl.mem_flags.READ_WRITE, 1 << 16)
            device.cl.enqueue_fill_buffer(device.queue, self._scratch, np.int32(0), 0, 1 << 16)
        buffers = [self._scratch] * (signature.inputs + 1)
        zeros: list[Any] = list(signature.numbers([0] * len(signature.arguments)))
        if signature.in_buffer:
            zeros = [self._scratch]
        kernel = compiled.new_kernel(buffers, zeros)
        local = compiled.source.local
        device.cl.enqueue_nd_range_kernel(device.queue, kernel, local, local).wait()


def _options(device: CLDevice) -> tuple[str, ...]:
    options = ["-cl-std=CL1.2"]
    if device.info.is_software:
        options.append("-DK_PROCESSOR")
    if device.device.single_fp_config & device.cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
        options.append("-cl-fp32-correctly-rounded-divide-sqrt")
    return tuple(options)
