"""`GLPixelBackend`: plans on fragment shaders, for contexts from OpenGL 3.3."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from engine.backends.base import DeviceBuffer, DeviceLimit, Program, Progress, Storage
from engine.backends.gl.backend import checked_elements
from engine.backends.gl.pixel.growable_texture import GrowableTexture, TextureKey
from engine.backends.gl.pixel.layout import capacity, texels_of
from engine.backends.gl.pixel.memory import GLPixelBuffer
from engine.backends.gl.pixel.partial_dispatch import GLPixelPartialDispatch
from engine.backends.gl.pixel.printer import print_kernel, print_windowed
from engine.backends.gl.pixel.programs import PixelPrograms
from engine.backends.gl.pixel.record import GLPixelProgram, PixelRecorder, drawn_texels, texel_nanoseconds
from engine.backends.gl.pixel.shader import Shader
from engine.backends.gl.pixel.template import GLPixelTemplate
from engine.backends.gl.pixel.textures import PixelTextures
from engine.backends.gl.pixel.transfer import TexelTransfers, padded_texels
from engine.backends.gl.pixel.tuning import RULES
from engine.backends.gl.readback import GLReadback
from engine.backends.gl.storage import memory_dtype
from engine.backends.plan_codec import PlanCodec
from engine.base.errors import DeviceError
from engine.compiler.plan import AnyKernel, Compute, Plan, RepeatedSteps, Step, Tuner
from engine.device.gl.device import GLDevice
from engine.device.gl.probe import probe_gl
from engine.kernels.expr import Expr
from engine.kernels.kernel import Kernel
from engine.kernels.value import Value

# Per input, axis and texture a kernel takes a few arguments more than its own.
_STAGE_ARGUMENTS = 64


class GLPixelBackend(PixelTextures):
    """One stream of draws on a `GLDevice`, whose thread it belongs to.

    deferred_transfers: see `transfer`; by default where the CPU does the drawing.
    """

    name: ClassVar[str] = "gl_pixel"
    storage: ClassVar[Storage] = "texture"
    shares: ClassVar[bool] = True
    tuned_kinds = frozenset(RULES)

    def __init__(self, device: GLDevice, *, deferred_transfers: bool | None = None) -> None:
        # The last unit is for what tuned kernels keep for themselves.
        super().__init__(device, min(device.limits.max_texture_image_units, 16) - 1)
        self._programs = PixelPrograms.of(device)
        deferred = device.info.is_software if deferred_transfers is None else deferred_transfers
        self._transfers = TexelTransfers(device, self._programs, self.replayer, deferred)
        self._shaders: dict[str, Shader] = {}
        self._temporaries: dict[TextureKey, GrowableTexture] = {}

    @classmethod
    def device_for(cls, device: GLDevice | None) -> GLDevice:
        """The given device, or the current context's; raises if it lacks fragment shaders."""
        chosen = GLDevice.for_context() if device is None else device
        if problem := probe_gl(chosen, "pixel").problem:
            raise DeviceError(f"{problem}; update the graphics card's driver, or use BackendType.CPU")
        return chosen

    def elements_per_invocation(self, dtype: np.dtype) -> int:
        """The number of elements in a texel."""
        return 4

    def size_refusal(self, compute: Compute, formula: Sequence[Expr], values: Sequence[Value]) -> str | None:
        """The reason to refuse tensors larger than a texture, or too many arguments."""
        limits = self.device.limits
        side = limits.max_texture_size
        for value in values:
            if texels_of(value.size) > capacity(side):
                return DeviceLimit(
                    f"{value.name} has {value.size} elements; a texture of {side}x{side} here holds"
                    f" {4 * capacity(side)}"
                )
        room = limits.max_fragment_uniform_components - _STAGE_ARGUMENTS
        arguments = sum(node.op == "param" for node in formula)
        if arguments > room:
            return f"it takes {arguments} arguments; a fragment shader here can take {room}"
        return None

    @property
    def programs(self) -> PixelPrograms:
        """The device's fragment programs."""
        return self._programs

    def plan_codec(self) -> PlanCodec:
        """Kernels as formulas or shaders."""
        return PlanCodec(self.setting, Shader)

    def tune(self, compute: Compute, tuner: Tuner) -> bool:
        """Apply the tuning rules; see `tuning`."""
        rule = RULES.get(compute.hint.kind) if compute.hint is not None else None
        return rule is not None and rule(compute, tuner, self.device.limits)

    def restrict_to_window(self, step: Step) -> Step:
        """A shader that discards the texels of other runs."""
        assert isinstance(step.kernel, Kernel)
        return replace(step, kernel=print_windowed(step.kernel), values=(*step.values, 0, 0))

    def prepare(self, kernels: Iterable[AnyKernel], progress: Progress | None = None) -> int:
        """Compile, link and draw missing programs once; returns how many came from source."""
        self.replayer.load()
        shaders = {k.key: self.shader(k) for k in kernels}
        compiled = self._programs.prepare(shaders, progress)
        # What moves tensors of these types: a plan that is recorded in a frame compiles nothing either.
        for storage in sorted({s for x in shaders.values() for s in (*x.buffers, x.output)}):
            self._transfers.prepare(memory_dtype(storage).name)
        return compiled

    def shader(self, kernel: AnyKernel) -> Shader:
        """The fragment shader of a kernel."""
        if isinstance(kernel, Shader):
            return kernel
        assert isinstance(kernel, Kernel)
        if kernel.key not in self._shaders:
            self._shaders[kernel.key] = print_kernel(kernel)
        return self._shaders[kernel.key]

    def create(self, elements: int, dtype: np.dtype, data: np.ndarray | None = None) -> GLPixelBuffer:
        """A texture. Raises `InputError` for integers beyond 32 bits."""
        given = None if data is None else checked_elements(data, np.dtype(dtype), elements)
        context = self.programs.context
        with context.current():
            buffer = GLPixelBuffer(self.device, elements, dtype, context)
            self._transfers.prepare(buffer.memory.element)
            if given is not None:
                buffer.memory.allocate(padded_texels(given, buffer.memory.layout), context)
                self.device.counters.bytes_up += given.nbytes
        return buffer

    def write(self, buffer: DeviceBuffer, elements: np.ndarray) -> None:
        """Set a buffer's value, in stream order."""
        self._transfers.upload(elements, _own(buffer).memory)

    def move(self, source: DeviceBuffer, target: DeviceBuffer, elements: int) -> None:
        """Copy on the device."""
        self._transfers.copy(_own(source).memory, _own(target).memory, elements)

    def recorder(self) -> PixelRecorder:
        """A recorder of one plan."""
        return PixelRecorder(self.device, self._programs, self.shader)

    def open_template(self, plan: Plan, constants: Mapping[str, DeviceBuffer]) -> GLPixelTemplate:
        """Record a plan with symbolic sizes and without repeated steps."""
        return GLPixelTemplate(self, plan, constants)

    def temporary(self, key: TextureKey) -> GrowableTexture:
        """A texture for temporaries, shared by all template programs."""
        found = self._temporaries.get(key)
        if found is None:
            found = self._temporaries[key] = GrowableTexture(self.device, key, lambda: self.programs.context)
        return found

    def shared_temporaries(self) -> Sequence[GrowableTexture]:
        """The textures of templates."""
        return [*self._temporaries.values()]

    def clear_temporaries(self, program: Program) -> None:
        """Clear the textures, where the driver has a call for it (OpenGL 4.4)."""
        assert isinstance(program, GLPixelProgram)
        if self.device.info.version_code >= 440:
            program.clear()

    def partial_dispatch(self, program: Program, plan: Plan) -> GLPixelPartialDispatch:
        """The plan's draws, to be issued over some of their rows."""
        assert isinstance(program, GLPixelProgram)
        return GLPixelPartialDispatch(self, program, plan)

    def estimate(self, step: Step) -> float:
        """Nanoseconds on one core of a processor."""
        if isinstance(step.kernel, RepeatedSteps):
            return self.estimate_repeated(step)
        shader = self.shader(step.kernel)
        return drawn_texels(shader, step.space) * texel_nanoseconds(step.kernel, shader, step.values)

    def readback(self, buffer: DeviceBuffer, elements: int | None = None) -> GLReadback:
        """Start a copy of the value, or of its first `elements`, as of now in the stream."""
        return self._transfers.readback(_own(buffer), buffer.elements if elements is None else elements)

    def dispose(self) -> None:
        """Free released resources; programs stay with the device for other workers."""
        self._temporaries.clear()
        if not self.device.is_disposed:
            self._transfers.dispose()
        super().dispose()


def _own(buffer: DeviceBuffer) -> GLPixelBuffer:
    assert isinstance(buffer, GLPixelBuffer), "a buffer of another backend"
    return buffer
