"""What can run a kernel: each printer's way of computing one, under a name, for the tests of the language.

A printer joins by adding a `Runner` to `RUNNERS`. `run(kernel, space, values, arrays)` returns the output,
1-D, in its storage type.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.backends.cpu.codegen.printer import NumbaPrinter
from engine.backends.gl.compute.backend import GLComputeBackend
from engine.backends.gl.pixel.backend import GLPixelBackend
from engine.backends.opencl import OpenCLBackend
from engine.base.dtypes import ArithmeticType, as_dtype
from engine.base.errors import DeviceError
from engine.compiler.plan import BufferSpec, Plan, Step
from engine.device import native
from engine.device.cl.device import CLDevice
from engine.device.gl.device import GLDevice
from engine.kernels.evaluate import evaluate
from engine.kernels.kernel import Kernel
from engine.kernels.word_encoding import as_word

Run = Callable[[Kernel, Sequence[int], Sequence[int | float], Sequence[np.ndarray]], np.ndarray]
ALL_TYPES: frozenset[ArithmeticType] = frozenset(
    {"float32", "float64", "int32", "int64", "uint32", "uint64", "bool", "index"}
)


@dataclass(frozen=True)
class Runner:
    """One way to run kernels.

    types: the arithmetic types it computes in; tests of others are left out. ulps: how many units of the
    last place a transcendental function may be off. denormals: whether the smallest floats are kept.
    large_angles: whether sin and cos are right beyond 1e4.
    """

    run: Run
    types: frozenset[ArithmeticType] = ALL_TYPES
    ulps: float = 0.0
    denormals: bool = True
    large_angles: bool = True


def run_on_cpu(
    kernel: Kernel, space: Sequence[int], values: Sequence[int | float], arrays: Sequence[np.ndarray]
) -> np.ndarray:
    """Through the numba printer and the native store: rows in two blocks each, in two chunks."""
    source = NumbaPrinter(kernel).source()
    address = native.process_store().address(source)
    output = np.zeros(prod(space), as_dtype(kernel.dtype))
    inputs = [np.ascontiguousarray(a) for a in arrays]
    blocks = (2, -(-space[-1] // 2)) if len(space) > 1 else ()
    addresses = [a.ctypes.data for a in (output, *inputs)]
    block = np.array([*space, *blocks, *map(as_word, values), *addresses], np.int64)
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)
    count = 2 * prod(space[:-1]) if blocks else space[0]
    for begin, end in ((count // 2, count), (0, count // 2)):
        function(block.ctypes.data, begin, end)
    return output


@functools.cache
def _opencl_backend() -> OpenCLBackend:
    return OpenCLBackend(CLDevice())


def run_on_opencl(
    kernel: Kernel, space: Sequence[int], values: Sequence[int | float], arrays: Sequence[np.ndarray]
) -> np.ndarray:
    """Through the OpenCL printer, as a plan of one step. Skips the test where there is no OpenCL."""
    try:
        backend = _opencl_backend()
    except DeviceError as error:
        pytest.skip(str(error))
    return _run_on(backend, kernel, space, values, arrays)


# By device: that of a context which an earlier test left current ends with its app.
@functools.lru_cache(maxsize=4)
def _gl_compute_backend(device: GLDevice, texels: bool) -> GLComputeBackend:
    return GLComputeBackend(device, texels=texels)


def run_on_gl_compute(
    kernel: Kernel, space: Sequence[int], values: Sequence[int | float], arrays: Sequence[np.ndarray]
) -> np.ndarray:
    """Through compute shaders that read buffer textures. Skips the test where there is no OpenGL 4.3."""
    return _run_on_gl_compute(True, kernel, space, values, arrays)


def run_on_gl_compute_storage(
    kernel: Kernel, space: Sequence[int], values: Sequence[int | float], arrays: Sequence[np.ndarray]
) -> np.ndarray:
    """Through compute shaders that read storage buffers."""
    return _run_on_gl_compute(False, kernel, space, values, arrays)


def _run_on_gl_compute(
    texels: bool,
    kernel: Kernel,
    space: Sequence[int],
    values: Sequence[int | float],
    arrays: Sequence[np.ndarray],
) -> np.ndarray:
    try:
        backend = _gl_compute_backend(GLDevice.for_context(), texels)
    except DeviceError as error:
        pytest.skip(str(error))
    return _run_on(backend, kernel, space, values, arrays)


@functools.lru_cache(maxsize=2)
def _gl_pixel_backend(device: GLDevice) -> GLPixelBackend:
    return GLPixelBackend(device)


def run_on_gl_pixel(
    kernel: Kernel, space: Sequence[int], values: Sequence[int | float], arrays: Sequence[np.ndarray]
) -> np.ndarray:
    """Through fragment shaders. Skips the test where there is no OpenGL."""
    try:
        backend = _gl_pixel_backend(GLDevice.for_context())
    except DeviceError as error:
        pytest.skip(str(error))
    return _run_on(backend, kernel, space, values, arrays)


def _run_on(
    backend: Backend,
    kernel: Kernel,
    space: Sequence[int],
    values: Sequence[int | float],
    arrays: Sequence[np.ndarray],
) -> np.ndarray:
    """As a plan of one step."""
    names = tuple(f"x{k}" for k in range(len(arrays)))
    buffers = {name: backend.create(a.size, a.dtype, a) for name, a in zip(names, arrays, strict=True)}
    buffers["y"] = backend.create(prod(space), as_dtype(kernel.dtype))
    plan = Plan([Step("layer", "Test", kernel, tuple(space), tuple(values), names, "y")])
    plan.buffers = {name: BufferSpec(name, b.elements, b.dtype, "input") for name, b in buffers.items()}
    program = backend.record(plan, buffers)
    backend.run(program)
    result = backend.readback(buffers["y"])
    result.wait()
    program.release()
    for buffer in buffers.values():
        buffer.release()
    return result.array()


ON_GPU: frozenset[ArithmeticType] = frozenset({"float32", "int32", "uint32", "bool", "index"})

RUNNERS: dict[str, Runner] = {
    "numpy": Runner(evaluate),
    "cpu": Runner(run_on_cpu, ulps=2.0),
    # 64-bit integers are 32 bits wide there, so NumPy is no yardstick for them.
    "opencl": Runner(run_on_opencl, ON_GPU, ulps=4.0),
    "gl_compute": Runner(run_on_gl_compute, ON_GPU, ulps=4.0, denormals=False, large_angles=False),
    "gl_compute storage": Runner(
        run_on_gl_compute_storage, ON_GPU, ulps=4.0, denormals=False, large_angles=False
    ),
    "gl_pixel": Runner(run_on_gl_pixel, ON_GPU, ulps=4.0, denormals=False, large_angles=False),
}
