"""Draws that read or write the game's textures."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TypeAlias

from engine.backends.gl.commands import CallList
from engine.backends.gl.memory import AnyBuffer
from engine.backends.gl.pixel.layout import texels_of
from engine.backends.gl.pixel.memory import GLPixelBuffer
from engine.backends.gl.pixel.printer import FragmentPrinter, arguments, print_kernel
from engine.backends.gl.pixel.record import PixelRecorder
from engine.backends.gl.pixel.shader import Shader
from engine.backends.gl.storage import decoded, memory_word, word_type
from engine.backends.gl.textures import TEXTURE_SHIFT, TextureCommands, TextureReader, TextureWriter
from engine.device.gl.functions import GL
from engine.kernels.kernel import Kernel, KernelCall

Draw: TypeAlias = tuple[tuple[int, int, int, int], tuple[int, int, int, int]]
"""A colour mask and a viewport."""

_SAMPLER = {"float": "samplerBuffer", "int": "isamplerBuffer", "uint": "usamplerBuffer"}


class PixelTextures(TextureReader, TextureWriter):
    """The conversions of `GLPixelBackend`."""

    def record_from_texture(
        self,
        texture: int,
        call: KernelCall,
        space: tuple[int, ...],
        buffer: AnyBuffer,
        begin: int,
        end: int,
    ) -> CallList:
        """Draws of whole texels. The shader takes the texture for a tensor that is 2**14 texels wide."""
        assert isinstance(buffer, GLPixelBuffer)
        recorder = self.recorder()
        assert isinstance(recorder, PixelRecorder)
        shared, layout = TextureCommands.of(self.device), buffer.memory.layout
        shader = print_kernel(call.kernel)
        recorder.programs.prepare({shader.key: shader})
        shifts = (layout.shift, TEXTURE_SHIFT)
        recorder.use(shader.key, arguments(shader, call.values, space, shifts, texels_of(prod(space))))
        shared.bind(recorder, texture)
        recorder.call("glBindFramebuffer", GL.FRAMEBUFFER, buffer.memory.framebuffer)
        for mask, viewport in texel_draws(begin, end, layout.width):
            recorder.call("glColorMask", *mask)
            recorder.call("glViewport", *viewport)
            recorder.call("glDrawArrays", GL.TRIANGLES, 0, 3)
        recorder.call("glColorMask", 1, 1, 1, 1)
        return shared.finish(recorder)

    def record_to_texture(
        self,
        buffer: AnyBuffer,
        call: KernelCall,
        space: tuple[int, ...],
        texture: int,
        size: tuple[int, int],
    ) -> CallList:
        """One draw, which reads a tensor's texture, or another backend's buffer as one."""
        recorder = self.recorder()
        assert isinstance(recorder, PixelRecorder)
        shifts = [TEXTURE_SHIFT]
        if isinstance(buffer, GLPixelBuffer):
            shader = print_kernel(call.kernel)
            shifts.append(buffer.memory.layout.shift)
        else:
            shader = drawing_from_buffer(call.kernel)
            recorder.call("glMemoryBarrier", GL.TEXTURE_FETCH_BARRIER_BIT)
        recorder.programs.prepare({shader.key: shader})
        recorder.use(shader.key, arguments(shader, call.values, space, shifts, prod(space) // 4))
        recorder.call("glBindSampler", 0, 0)
        recorder.bind_texture(0, *buffer.readable)
        recorder.call("glBindFramebuffer", GL.FRAMEBUFFER, TextureCommands.of(self.device).framebuffer)
        attachment = (GL.FRAMEBUFFER, GL.COLOR_ATTACHMENT0, GL.TEXTURE_2D)
        recorder.call("glFramebufferTexture2D", *attachment, texture, 0)
        recorder.call("glViewport", 0, 0, *size)
        recorder.call("glDrawArrays", GL.TRIANGLES, 0, 3)
        # Left attached, the texture would live on after its deletion.
        recorder.call("glFramebufferTexture2D", *attachment, 0, 0)
        recorder.commands.finish()
        return recorder.commands


@lru_cache(maxsize=256)
def drawing_from_buffer(kernel: Kernel) -> Shader:
    """A fragment shader that reads slot 0 of a kernel from a buffer texture on unit 0."""
    storage = kernel.buffers[0]
    value = decoded("texelFetch(b0, e).x", storage)
    helpers = (
        f"uniform {_SAMPLER[memory_word(storage)]} b0;\n"
        f"{word_type(storage)} k_at0(int e) {{ return {value}; }}\n"
    )
    return FragmentPrinter(kernel).shader(helpers=helpers, reads_itself=True)


def texel_draws(begin: int, end: int, width: int) -> list[Draw]:
    """Draws that cover exactly the elements begin..end-1 of a texture of this width.

    A texel holds four elements; one that belongs to two images of a batch is drawn with a mask.
    """
    draws: list[Draw] = []

    def masked(texel: int) -> None:
        r, g, b, a = (int(begin <= 4 * texel + k < end) for k in range(4))
        draws.append(((r, g, b, a), (texel % width, texel // width, 1, 1)))

    first, last = begin // 4, end // 4  # the whole texels between, once the parts at both ends are drawn
    if begin % 4:
        masked(first)
        first += 1
    if end % 4 and last >= first:
        masked(last)
    while first < last:
        column, row = first % width, first // width
        rows = 1 if column or last - first < width else (last - first) // width
        columns = width if rows > 1 else min(width - column, last - first)
        draws.append(((1, 1, 1, 1), (column, row, columns, rows)))
        first += columns * rows
    return draws
