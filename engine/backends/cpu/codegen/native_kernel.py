"""`NativeKernel`: a hand-written CPU kernel as source text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from engine.backends.cpu.codegen.printer import NumbaPrinter
from engine.compiler.plan import AnyKernel
from engine.device.native import NativeSource
from engine.kernels.kernel import Kernel


@dataclass(frozen=True)
class NativeKernel:
    """The source of a module with the function `kernel(args, begin, end)`.

    Steps of such kernels have a space of one dimension, the number of tasks; begin..end counts these. The
    first run-time argument is the estimated nanoseconds of one task, which the kernel ignores. In `args`
    stand the number of tasks, the arguments, the output's address and the inputs' addresses.
    """

    name: str
    text: str

    @cached_property
    def source(self) -> NativeSource:
        """The source that the native store compiles."""
        return _source(self.name, self.text)

    @property
    def key(self) -> str:
        """A hash of the source, processor and compilers."""
        return self.source.key


@lru_cache(maxsize=1024)
def _source(name: str, text: str) -> NativeSource:
    """One for all plans: digesting the text of each step again would be a good part of planning."""
    return NativeSource(name, text, "kernel")


def source_of(kernel: AnyKernel) -> NativeSource:
    """The native source of a generic or tuned kernel."""
    if isinstance(kernel, NativeKernel):
        return kernel.source
    assert isinstance(kernel, Kernel), f"{type(kernel).__name__} is not a kernel of the CPU"
    return _printed(kernel)


@lru_cache(maxsize=4096)
def _printed(kernel: Kernel) -> NativeSource:
    return NumbaPrinter(kernel).source()
