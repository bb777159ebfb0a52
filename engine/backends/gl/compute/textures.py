"""Compute shaders that read the game's textures."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from engine.backends.gl.commands import CallList
from engine.backends.gl.compute.memory import GLComputeBuffer
from engine.backends.gl.compute.printer import LOCAL_SIZE, ComputePrinter, arguments
from engine.backends.gl.compute.programs import ComputePrograms
from engine.backends.gl.memory import AnyBuffer
from engine.backends.gl.record import GLRecorder
from engine.backends.gl.storage import lanes
from engine.backends.gl.textures import TEXTURE_SHIFT, TextureCommands, TextureReader
from engine.base.errors import InputError
from engine.device.gl.functions import GL
from engine.kernels.kernel import Kernel, KernelCall

_TEXTURE = f"""
layout(binding = 0) uniform sampler2D b0;
float k_at0(int e) {{
    vec4 v = texelFetch(b0, ivec2((e >> 2) & {(1 << TEXTURE_SHIFT) - 1}, e >> {TEXTURE_SHIFT + 2}), 0);
    int k = e & 3;
    return k < 2 ? (k == 0 ? v.x : v.y) : (k == 2 ? v.z : v.w);
}}
"""


class _TexturePrinter(ComputePrinter):
    """A compute shader whose one input is a texture."""

    readers = _TEXTURE

    def fetch(self, slot: int, position: str) -> str:
        return f"k_at{slot}({position})"


@lru_cache(maxsize=256)
def dispatch_from_texture(kernel: Kernel) -> tuple[str, str]:
    """Key and source of a compute shader that reads a kernel's slot 0 from a texture on unit 0."""
    return f"{kernel.key}p", _TexturePrinter(kernel, texels=False).shader()


class ComputeTextures(TextureReader):
    """The conversions of `GLComputeBackend`."""

    def record_from_texture(
        self,
        texture: int,
        call: KernelCall,
        space: tuple[int, ...],
        buffer: AnyBuffer,
        begin: int,
        end: int,
    ) -> CallList:
        """One dispatch."""
        assert isinstance(buffer, GLComputeBuffer)
        device = self.device
        together = lanes(call.kernel.dtype)
        if begin % together or (end % together and end != prod(space)):
            raise InputError(
                f"images of {end - begin} {call.kernel.dtype} elements do not start at whole 32-bit"
                " words of a batch; use float32 or int32"
            )
        key, text = dispatch_from_texture(call.kernel)
        programs, shared = ComputePrograms.of(device), TextureCommands.of(device)
        programs.prepare({key: text})
        recorder = GLRecorder(device, programs)
        recorder.call("glMemoryBarrier", GL.SHADER_STORAGE_BARRIER_BIT | GL.TEXTURE_FETCH_BARRIER_BIT)
        recorder.use(key, arguments(call.kernel, call.values, space, begin, end))
        shared.bind(recorder, texture)
        nbytes = buffer.memory.nbytes
        recorder.call("glBindBufferRange", GL.SHADER_STORAGE_BUFFER, 0, buffer.name, 0, nbytes)
        groups = -(-(end - begin) // (together * LOCAL_SIZE))
        width = min(groups, device.limits.max_compute_group_count[0])
        recorder.call("glDispatchCompute", width, -(-groups // width), 1)
        return shared.finish(recorder)
