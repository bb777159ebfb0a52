"""`GLComputeBackend`: plans on compute shaders of the game's own OpenGL context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np

from engine.backends.base import Backend, DeviceBuffer, Program, Progress
from engine.backends.gl_compute.commands import Replayer
from engine.backends.gl_compute.matmul import slices_constant
from engine.backends.gl_compute.memory import WORD_SIZE, GLComputeBuffer, GLReadback, buffer_size
from engine.backends.gl_compute.printer import ComputePrinter
from engine.backends.gl_compute.programs import ProgramStore
from engine.backends.gl_compute.record import GLComputeProgram, Recorder, program_key
from engine.backends.gl_compute.shader import ShaderKernel
from engine.backends.gl_compute.target import Target
from engine.backends.gl_compute.tuning import TUNERS
from engine.backends.glsl import exceeds_words, to_words, type_refusal
from engine.compiler.plan import AnyKernel, Compute, Plan, Tuner
from engine.devices import GL, GLDevice
from engine.errors import DeviceError, InputError
from engine.kernels.expr import nodes
from engine.kernels.kernel import Kernel

_LARGEST_INDEX = 2**31 - 1


class GLComputeBackend(Backend):
    """One stream of compute work on a `GLDevice`, whose thread it belongs to.

    texels: read tensors as buffer textures; by default where the CPU does the drawing.
    Raises `DeviceError` on a device older than OpenGL 4.3.
    """

    name: ClassVar[str] = "gl_compute"

    def __init__(self, device: GLDevice, *, texels: bool | None = None) -> None:
        if not device.info.supports_compute:
            raise DeviceError(
                f"compute shaders need OpenGL 4.3, and this context has {device.info.version}; use"
                ' BackendType.GPU_PIXEL, or GPU_COMPUTE with device="opencl"'
            )
        self.device = device
        self.texels = device.info.is_software if texels is None else texels
        limits = device.limits
        self.fan_in = min(limits.max_compute_storage_blocks, limits.max_storage_buffer_bindings) - 1
        if self.texels:
            self.fan_in = min(self.fan_in, limits.max_compute_texture_image_units)
        self._programs = ProgramStore.of(device)
        self._replayer = Replayer()
        self._target = Target(device.limits, self.texels)
        self._sources: dict[str, str] = {}

    @property
    def max_inputs(self) -> int:
        """How many tensors one kernel may read."""
        return self.fan_in

    def refusal(self, compute: Compute) -> str | None:
        """Types that GLSL lacks, sizes beyond what a shader can address, more inputs than it can bind."""
        found = list(nodes(compute.body, *([] if compute.epilogue is None else [compute.epilogue])))
        inputs = {node.attr for node in found if node.op == "load"}
        reason = type_refusal([compute.output.dtype, *(v.dtype for v in inputs)])
        if reason is None and any(node.dtype == "float64" for node in found):
            reason = "GLSL kernels do not compute in float64"
        if reason is not None:
            return reason
        if len(inputs) > self.fan_in:
            return f"it reads {len(inputs)} tensors at once; a shader here can bind {self.fan_in}"
        limit = min(self.device.limits.max_storage_block_size, _LARGEST_INDEX * WORD_SIZE)
        for value in (compute.output, *inputs):
            size = buffer_size(value.size)
            if size > limit and not slices_constant(compute, value, self._target):
                return f"{value.name} takes {size} bytes; a shader here can address {limit} of one tensor"
        return None

    def tune(self, compute: Compute, tuner: Tuner) -> bool:
        """Matrix products and convolutions of float32, see `tuning`."""
        rule = TUNERS.get(compute.hint.kind) if compute.hint is not None else None
        return rule is not None and rule(compute, tuner, self._target)

    def prepare(self, kernels: Iterable[AnyKernel], progress: Progress | None = None) -> int:
        """Compile and link what is missing; returns how many programs no stored binary could give."""
        sources = {}
        for kernel in kernels:
            key = program_key(kernel, self.texels)
            if key not in self._programs and key not in sources:
                sources[key] = self.source(kernel)
        return self._programs.prepare(sources, progress)

    def source(self, kernel: AnyKernel) -> str:
        """The text of the kernel's compute shader."""
        if isinstance(kernel, ShaderKernel):
            return kernel.source
        assert isinstance(kernel, Kernel)
        return ComputePrinter(kernel, self.texels).shader()

    def create(self, elements: int, dtype: np.dtype, data: np.ndarray | None = None) -> GLComputeBuffer:
        """A buffer of 32-bit words. Raises `InputError` for integers beyond 32 bits."""
        words = None if data is None else self._words(data, np.dtype(dtype), elements)
        buffer = GLComputeBuffer(self.device, elements, dtype, words)
        if words is not None:
            self.device.counters.bytes_up += words.nbytes
        return buffer

    def upload(self, buffer: DeviceBuffer, data: np.ndarray) -> None:
        """Set a buffer's value through a staging buffer that no command uses any more."""
        target = _own(buffer)
        words = self._words(data, target.dtype, target.elements)
        if words.nbytes:
            self.device.staging.write_buffer(target.name, words)

    def copy(self, source: DeviceBuffer, target: DeviceBuffer) -> None:
        """Copy on the device."""
        a, b = _own(source), _own(target)
        gl = self.device.gl
        if not a.elements:
            return
        with self.device.current():
            gl.glMemoryBarrier(GL.BUFFER_UPDATE_BARRIER_BIT)
            gl.glBindBuffer(GL.COPY_READ_BUFFER, a.name)
            gl.glBindBuffer(GL.COPY_WRITE_BUFFER, b.name)
            nbytes = min(a.elements, b.elements) * WORD_SIZE
            gl.glCopyBufferSubData(GL.COPY_READ_BUFFER, GL.COPY_WRITE_BUFFER, 0, 0, nbytes)

    def record(self, plan: Plan, buffers: Mapping[str, DeviceBuffer]) -> GLComputeProgram:
        """Turn a plan into a command list; compiles what `prepare` was not asked for."""
        self.prepare(step.kernel for step in plan.steps)
        with self.device.current():
            return Recorder(self.device, self._programs, self.texels).record(plan, buffers)

    def run(self, program: Program) -> None:
        """Issue a recorded plan."""
        assert isinstance(program, GLComputeProgram)
        program.check()
        with self.device.current():
            self._replayer.run(program.commands)

    def readback(self, buffer: DeviceBuffer) -> GLReadback:
        """Start a copy of the value, as of now in the stream."""
        return GLReadback.start(self.device, _own(buffer))

    def entered(self) -> AbstractContextManager[Any]:
        """A block in which the context stays current."""
        return self.device.current()

    def flush(self) -> None:
        """Hand over what was issued."""
        with self.device.current():
            self.device.gl.glFlush()

    def synchronize(self) -> None:
        """Block until the device is idle."""
        with self.device.current():
            fence = self.device.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
            self.device.wait(fence)
            self.device.gl.glDeleteSync(fence)

    def dispose(self) -> None:
        """Free what was dropped; programs stay with the device, for other workers."""
        if not self.device.is_disposed:
            self.device.collect()

    @staticmethod
    def _words(data: np.ndarray, dtype: np.dtype, elements: int) -> np.ndarray:
        if data.dtype != dtype or data.size != elements:
            raise InputError(f"expected {elements} elements of {dtype}, got {data.size} of {data.dtype}")
        if exceeds_words(data):
            raise InputError(
                f"an {dtype} tensor holds values beyond 32 bits; GPU backends keep 32, so use BackendType.CPU"
            )
        return to_words(data)


def _own(buffer: DeviceBuffer) -> GLComputeBuffer:
    assert isinstance(buffer, GLComputeBuffer), "a buffer of another backend"
    return buffer
