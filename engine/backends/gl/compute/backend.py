"""`GLComputeBackend`: plans on compute shaders of the game's own OpenGL context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import ClassVar

import numpy as np

from engine.backends.base import DeviceBuffer, DeviceLimit, Program, Progress, Storage
from engine.backends.cost import formula_ns
from engine.backends.gl.backend import checked_elements
from engine.backends.gl.compute.matmul import slices_constant
from engine.backends.gl.compute.memory import Arena, GLComputeBuffer, buffer_size
from engine.backends.gl.compute.partial_dispatch import GLComputePartialDispatch
from engine.backends.gl.compute.printer import ComputePrinter
from engine.backends.gl.compute.programs import ComputePrograms
from engine.backends.gl.compute.record import ComputeRecorder, GLComputeProgram, groups_of, program_key
from engine.backends.gl.compute.repeated_kernel import fits, print_merged, print_repeated
from engine.backends.gl.compute.shader import ShaderKernel
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.compute.template import GLComputeTemplate
from engine.backends.gl.compute.textures import ComputeTextures
from engine.backends.gl.compute.tuning import TUNED_KINDS, tune
from engine.backends.gl.readback import GLReadback
from engine.backends.gl.storage import lanes, memory_dtype
from engine.backends.gpu.repeated_kernel import is_small, neighbours, repeated_kernel
from engine.backends.plan_codec import PlanCodec
from engine.base.errors import DeviceError
from engine.compiler.plan import AnyKernel, Compute, Plan, RepeatedSteps, Step, Tuner
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL
from engine.device.gl.probe import probe_gl
from engine.kernels.expr import Expr
from engine.kernels.kernel import Kernel
from engine.kernels.value import Value

# Positions are int32, and the threads beyond a tensor's end have some too.
_MOST_ELEMENTS = 2**31 - 2**25


# Loop rounds of a run up to which one group goes through it; those of a thread are within what drivers allow.
_MOST_WORK = 1 << 17
_MOST_TOGETHER = 1 << 12
# Finding an element's place and storing it.
_ELEMENT_NS = 3.0


class GLComputeBackend(ComputeTextures):
    """One stream of compute work on a `GLDevice`, whose thread it belongs to.

    texels: read tensors as buffer textures; by default where the CPU does the drawing.
    Raises `DeviceError` on a device older than OpenGL 4.3.
    """

    name: ClassVar[str] = "gl_compute"
    storage: ClassVar[Storage] = "buffer"
    shares: ClassVar[bool] = True
    tuned_kinds = TUNED_KINDS

    def __init__(self, device: GLDevice, *, texels: bool | None = None) -> None:
        if not device.info.supports_compute:
            raise DeviceError(
                f"compute shaders need OpenGL 4.3, and this context has {device.info.version}; use"
                ' BackendType.GPU_PIXEL, or GPU_COMPUTE with device="opencl"'
            )
        self.texels = device.info.is_software if texels is None else texels
        limits = device.limits
        fan_in = min(limits.max_compute_storage_blocks, limits.max_storage_buffer_bindings) - 1
        if self.texels:
            fan_in = min(fan_in, limits.max_compute_texture_image_units)
        super().__init__(device, fan_in)
        self._programs = ComputePrograms.of(device)
        self._target = ShaderTarget(device.limits, self.texels)
        self.arena = Arena(device, lambda: self.programs.context)

    @classmethod
    def device_for(cls, device: GLDevice | None) -> GLDevice:
        """The given device, or the current context's; raises if it lacks compute shaders."""
        chosen = GLDevice.for_context() if device is None else device
        if problem := probe_gl(chosen, "compute").problem:
            raise DeviceError(f"{problem}; BackendType.GPU_PIXEL needs OpenGL 3.3 only")
        return chosen

    def elements_per_invocation(self, dtype: np.dtype) -> int:
        """As many elements as a 32-bit word holds."""
        return lanes(np.dtype(dtype).name)

    def size_refusal(self, compute: Compute, formula: Sequence[Expr], values: Sequence[Value]) -> str | None:
        """The reason to refuse sizes that a shader cannot address."""
        for value in values:
            itemsize = memory_dtype(value.dtype).itemsize
            limit = min(self.device.limits.max_storage_block_size, _MOST_ELEMENTS * itemsize)
            size = buffer_size(value.size, value.dtype)
            if size > limit and not slices_constant(compute, value, self._target):
                return DeviceLimit(
                    f"{value.name} takes {size} bytes; a shader here can address {limit} of one tensor"
                )
        return None

    @property
    def programs(self) -> ComputePrograms:
        """The device's compute programs."""
        return self._programs

    def plan_codec(self) -> PlanCodec:
        """Kernels as formulas or shaders."""
        return PlanCodec(f"{self.setting} {self.texels}", ShaderKernel)

    def tune(self, compute: Compute, tuner: Tuner) -> bool:
        """Apply the tuning rules; see `tuning`."""
        return tune(compute, tuner, self._target)

    def merge_repeat(self, steps: Callable[[], Sequence[Step]]) -> tuple[Step, int] | None:
        """Merge small iterations into one single-group shader, except on software renderers."""
        if self.texels:
            return None
        *before, step = steps()
        repeated = repeated_kernel(before, step)
        if repeated is None or not fits(repeated.tensors, self._target):
            return None
        printed = print_repeated(repeated, step)
        if printed is None:
            return None
        kernel, values = printed
        return repeated.as_step(step, kernel, values), is_small(repeated.work, _MOST_WORK)

    def merge_steps(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Merge small adjacent steps into one single-group shader, except on software renderers."""
        if self.texels:
            return steps
        found: list[Step] = []
        for part in neighbours(steps, _MOST_TOGETHER):
            joined = print_merged(part, self._target) if len(part) > 1 else None
            found += part if joined is None else [joined]
        return found

    def prepare(self, kernels: Iterable[AnyKernel], progress: Progress | None = None) -> int:
        """Compile and link missing programs; returns how many had no cached binary."""
        self.replayer.load()
        sources = {}
        for kernel in kernels:
            key = program_key(kernel, self.texels)
            if key not in self._programs and key not in sources:
                sources[key] = self.source(kernel)
        return self._programs.prepare(sources, progress)

    def source(self, kernel: AnyKernel) -> str:
        """Source of the kernel's compute shader."""
        if isinstance(kernel, ShaderKernel):
            return kernel.source
        assert isinstance(kernel, Kernel)
        return ComputePrinter(kernel, self.texels).shader()

    def create(self, elements: int, dtype: np.dtype, data: np.ndarray | None = None) -> GLComputeBuffer:
        """A buffer. Raises `InputError` for integers beyond 32 bits."""
        given = None if data is None else checked_elements(data, np.dtype(dtype), elements)
        buffer = GLComputeBuffer(self.device, elements, dtype, given, self.programs.context)
        if given is not None:
            self.device.counters.bytes_up += given.nbytes
        return buffer

    def write(self, buffer: DeviceBuffer, elements: np.ndarray) -> None:
        """Set a buffer's value through a staging buffer that no command uses any more."""
        self.device.staging.write_buffer(_own(buffer).name, elements)

    def upload_all(self, uploads: Sequence[tuple[DeviceBuffer, np.ndarray]]) -> None:
        """Set the values of several buffers, small ones together."""
        self.device.staging.write_buffers(
            [(_own(b).name, checked_elements(data, b.dtype, b.elements)) for b, data in uploads]
        )

    def move(self, source: DeviceBuffer, target: DeviceBuffer, elements: int) -> None:
        """Copy on the device."""
        a, b = _own(source), _own(target)
        gl = self.device.gl
        with self.device.current():
            gl.glMemoryBarrier(GL.BUFFER_UPDATE_BARRIER_BIT)
            gl.glBindBuffer(GL.COPY_READ_BUFFER, a.name)
            gl.glBindBuffer(GL.COPY_WRITE_BUFFER, b.name)
            nbytes = elements * memory_dtype(a.dtype).itemsize
            gl.glCopyBufferSubData(GL.COPY_READ_BUFFER, GL.COPY_WRITE_BUFFER, 0, 0, nbytes)

    def recorder(self) -> ComputeRecorder:
        """A recorder of one plan."""
        return ComputeRecorder(self.device, self._programs, self.texels)

    def open_template(self, plan: Plan, constants: Mapping[str, DeviceBuffer]) -> GLComputeTemplate:
        """Record a plan with symbolic sizes and without repeated steps."""
        return GLComputeTemplate(self, plan, constants)

    def fits_template(self, plan: Plan) -> bool:
        """Whether the plan repeats no steps, not even within kernels of several dispatches."""
        alone = any(isinstance(x, ShaderKernel) and x.is_alone for x in plan.kernels)
        return super().fits_template(plan) and not alone

    def shared_temporaries(self) -> Sequence[Arena]:
        """The arena of templates."""
        return [self.arena]

    def clear_temporaries(self, program: Program) -> None:
        """Clear the arena."""
        assert isinstance(program, GLComputeProgram)
        program.clear()

    def partial_dispatch(self, program: Program, plan: Plan) -> GLComputePartialDispatch:
        """The plan's dispatches, to be issued over parts of their grids."""
        assert isinstance(program, GLComputeProgram)
        return GLComputePartialDispatch(self, program, plan)

    def estimate(self, step: Step) -> float:
        """Nanoseconds on one core of a processor."""
        kernel = step.kernel
        if isinstance(kernel, RepeatedSteps):
            return self.estimate_repeated(step)
        if isinstance(kernel, Kernel):
            return prod(step.space) * (formula_ns(kernel.body, step.values) + _ELEMENT_NS)
        assert isinstance(kernel, ShaderKernel)
        return groups_of(step) * kernel.group_ns * max(1, prod(int(step.values[k]) for k in kernel.rounds))

    def readback(self, buffer: DeviceBuffer, elements: int | None = None) -> GLReadback:
        """Start a copy of the value, or of its first `elements`, as of now in the stream."""
        own, memory = _own(buffer), memory_dtype(buffer.dtype)
        count = own.elements if elements is None else elements
        if not count:
            return GLReadback(0, own.dtype, None)
        staging = self.device.staging.read_buffer(own.name, count * memory.itemsize, memory)
        return GLReadback(count, own.dtype, staging)

    def dispose(self) -> None:
        """Free released resources; programs stay with the device for other workers."""
        self.arena.drop()
        super().dispose()


def _own(buffer: DeviceBuffer) -> GLComputeBuffer:
    assert isinstance(buffer, GLComputeBuffer), "a buffer of another backend"
    return buffer
