"""Textures to tensors and back without leaving the GPU: one draw or dispatch each, replayed as a command
list.

Everything happens in the device's own context, which shares objects with the game's: the game's state is out
of reach. Command lists hold OpenGL names and numbers only, and bind all they use, so they keep nothing alive.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from math import prod
from typing import TypeAlias

from engine.api.textures.formula import TEXTURE_SHIFT, Recipe, to_picture_recipe, to_tensor_recipe
from engine.api.textures.pictures import GLPicture
from engine.api.textures.shaders import dispatch_from_texture, drawing_from_buffer
from engine.api.textures.transform import TextureTransform
from engine.backends.base import Backend, DeviceBuffer
from engine.backends.gl.backend import GLBackend
from engine.backends.gl.commands import CommandList
from engine.backends.gl.compute.memory import TEXTURE_BUFFER, GLComputeBuffer
from engine.backends.gl.compute.printer import LOCAL_SIZE
from engine.backends.gl.compute.printer import arguments as compute_arguments
from engine.backends.gl.compute.programs import ComputePrograms
from engine.backends.gl.memory import generate
from engine.backends.gl.pixel.layout import texels_of
from engine.backends.gl.pixel.memory import GLPixelBuffer
from engine.backends.gl.pixel.printer import arguments as pixel_arguments
from engine.backends.gl.pixel.printer import print_kernel
from engine.backends.gl.pixel.programs import PixelPrograms
from engine.backends.gl.record import GLRecorder
from engine.backends.gl.storage import FORMS, lanes
from engine.base.errors import InputError
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import FUNCTION_TYPE, GL

# Each is a few hundred bytes; a game with more conversions than that at once records some of them again.
_KEPT = 256

Draw: TypeAlias = tuple[tuple[int, int, int, int], tuple[int, int, int, int]]
"""A colour mask and a viewport."""


class GLConversions:
    """The conversions of one device."""

    def __init__(self, device: GLDevice) -> None:
        # Kept by the device's key in a weak dictionary: no reference back.
        self._lists: OrderedDict[Hashable, CommandList] = OrderedDict()
        gl = device.gl
        with device.current(flush=False):
            self._framebuffer = generate(gl.glGenFramebuffers)
            self._sampler = generate(gl.glGenSamplers)
            kinds = (ctypes.c_uint, ctypes.c_uint, ctypes.c_int)
            set_parameter = FUNCTION_TYPE(None, *kinds)(device.address("glSamplerParameteri"))
            # A texture that asks for mipmaps it does not have could not be read at all.
            for name in (GL.TEXTURE_MIN_FILTER, GL.TEXTURE_MAG_FILTER):
                set_parameter(self._sampler, name, GL.NEAREST)

    @staticmethod
    def of(device: GLDevice) -> GLConversions:
        """Those of a device."""
        found = _conversions.get(device)
        if found is None:
            found = _conversions[device] = GLConversions(device)
        return found

    def to_tensor(
        self,
        backend: GLBackend,
        picture: GLPicture,
        transform: TextureTransform,
        shape: tuple[int, ...],
        buffer: DeviceBuffer,
        slot: int | None,
    ) -> None:
        """Fill a buffer of a shape, or picture `slot` of it, in stream order."""
        begin, end = 0, prod(shape)
        if slot is not None:
            part = end // shape[0]
            begin, end = slot * part, (slot + 1) * part
        with backend.device.current(after_game=True, before_game=True):
            target = _gl_buffer(buffer)
            name = target.memory.framebuffer if isinstance(target, GLPixelBuffer) else target.name
            key = ("in", backend.name, picture.grid, transform, shape, begin, end, picture.name, name)

            def record() -> CommandList:
                recipe = to_tensor_recipe(picture.grid, transform, shape)
                if isinstance(target, GLPixelBuffer):
                    return self._draw_tensor(backend, picture, recipe, target, begin, end)
                return self._dispatch_tensor(backend, picture, recipe, target, begin, end)

            backend.replayer.run(self._list(key, record))

    def to_texture(
        self,
        backend: GLBackend,
        buffer: DeviceBuffer,
        transform: TextureTransform,
        shape: tuple[int, ...],
        slot: int,
        target: GLPicture,
    ) -> None:
        """Draw picture `slot` of a tensor into a texture, in stream order."""
        with backend.device.current(after_game=True, before_game=True):
            source = _gl_buffer(buffer)
            name = source.memory.name if isinstance(source, GLPixelBuffer) else _as_texture(source)
            dtype = buffer.dtype.name
            key = ("out", backend.name, target.grid, transform, shape, dtype, slot, name, target.name)

            def record() -> CommandList:
                recipe = to_picture_recipe(target.grid, transform, shape, dtype, slot)
                return self._draw_picture(backend, recipe, source, name, target)

            backend.replayer.run(self._list(key, record))

    def _list(self, key: Hashable, record: Callable[[], CommandList]) -> CommandList:
        commands = self._lists.get(key)
        if commands is None:
            commands = self._lists[key] = record()
            if len(self._lists) > _KEPT:
                self._lists.popitem(last=False)
        else:
            self._lists.move_to_end(key)
        return commands

    def _draw_tensor(
        self,
        backend: GLBackend,
        picture: GLPicture,
        recipe: Recipe,
        buffer: GLPixelBuffer,
        begin: int,
        end: int,
    ) -> CommandList:
        """On fragment shaders, which take the texture for a tensor that is 2**14 texels wide."""
        recorder, programs = self._drawing(backend)
        numbered, layout = recipe.numbered, buffer.memory.layout
        shader = print_kernel(numbered.kernel)
        programs.prepare({shader.key: shader})
        texels = texels_of(prod(recipe.space))
        shifts = (layout.shift, TEXTURE_SHIFT)
        recorder.use(shader.key, pixel_arguments(shader, numbered.values, recipe.space, shifts, texels))
        self._bind_picture(recorder, picture)
        recorder.call("glBindFramebuffer", GL.FRAMEBUFFER, buffer.memory.framebuffer)
        for mask, viewport in texel_draws(begin, end, layout.width):
            recorder.call("glColorMask", *mask)
            recorder.call("glViewport", *viewport)
            recorder.call("glDrawArrays", GL.TRIANGLES, 0, 3)
        recorder.call("glColorMask", 1, 1, 1, 1)
        return self._finish(recorder)

    def _dispatch_tensor(
        self,
        backend: GLBackend,
        picture: GLPicture,
        recipe: Recipe,
        buffer: GLComputeBuffer,
        begin: int,
        end: int,
    ) -> CommandList:
        """On compute shaders."""
        numbered = recipe.numbered
        together = lanes(numbered.kernel.dtype)
        if begin % together or (end % together and end != prod(recipe.space)):
            raise InputError(
                f"pictures of {end - begin} {numbered.kernel.dtype} elements do not start at whole 32-bit"
                " words of a batch; use float32 or int32"
            )
        key, text = dispatch_from_texture(numbered.kernel)
        programs = ComputePrograms.of(backend.device)
        programs.prepare({key: text})
        recorder = GLRecorder(backend.device, programs)
        recorder.call("glMemoryBarrier", GL.SHADER_STORAGE_BARRIER_BIT | GL.TEXTURE_FETCH_BARRIER_BIT)
        recorder.use(key, compute_arguments(numbered.kernel, numbered.values, recipe.space, begin, end))
        self._bind_picture(recorder, picture)
        nbytes = buffer.memory.nbytes
        recorder.call("glBindBufferRange", GL.SHADER_STORAGE_BUFFER, 0, buffer.name, 0, nbytes)
        groups = -(-(end - begin) // (together * LOCAL_SIZE))
        width = min(groups, backend.device.limits.max_compute_group_count[0])
        recorder.call("glDispatchCompute", width, -(-groups // width), 1)
        return self._finish(recorder)

    def _draw_picture(
        self,
        backend: GLBackend,
        recipe: Recipe,
        buffer: GLPixelBuffer | GLComputeBuffer,
        source: int,
        target: GLPicture,
    ) -> CommandList:
        """A draw into the texture; it reads a tensor's texture, or its buffer as one."""
        recorder, programs = self._drawing(backend)
        numbered, shifts = recipe.numbered, [TEXTURE_SHIFT]
        if isinstance(buffer, GLPixelBuffer):
            shader, kind = print_kernel(numbered.kernel), GL.TEXTURE_2D
            shifts.append(buffer.memory.layout.shift)
        else:
            shader, kind = drawing_from_buffer(numbered.kernel), TEXTURE_BUFFER
            recorder.call("glMemoryBarrier", GL.TEXTURE_FETCH_BARRIER_BIT)
        programs.prepare({shader.key: shader})
        texels = prod(recipe.space) // 4
        recorder.use(shader.key, pixel_arguments(shader, numbered.values, recipe.space, shifts, texels))
        recorder.call("glBindSampler", 0, 0)
        recorder.bind_texture(0, kind, source)
        recorder.call("glBindFramebuffer", GL.FRAMEBUFFER, self._framebuffer)
        attachment = (GL.FRAMEBUFFER, GL.COLOR_ATTACHMENT0, GL.TEXTURE_2D)
        recorder.call("glFramebufferTexture2D", *attachment, target.name, 0)
        recorder.call("glViewport", 0, 0, target.grid.width, target.grid.height)
        recorder.call("glDrawArrays", GL.TRIANGLES, 0, 3)
        # Left attached, the texture would live on after its deletion.
        recorder.call("glFramebufferTexture2D", *attachment, 0, 0)
        recorder.commands.finish()
        return recorder.commands

    def _drawing(self, backend: GLBackend) -> tuple[GLRecorder, PixelPrograms]:
        programs = PixelPrograms.of(backend.device)
        recorder = GLRecorder(backend.device, programs)
        for function, *values in programs.drawing_state():
            recorder.call(str(function), *(int(v) for v in values))
        return recorder, programs

    def _bind_picture(self, recorder: GLRecorder, picture: GLPicture) -> None:
        recorder.call("glBindSampler", 0, self._sampler)
        recorder.bind_texture(0, GL.TEXTURE_2D, picture.name)

    def _finish(self, recorder: GLRecorder) -> CommandList:
        """Let go of the game's texture, and of the sampler, which others do not expect."""
        recorder.bind_texture(0, GL.TEXTURE_2D, 0)
        recorder.call("glBindSampler", 0, 0)
        recorder.commands.finish()
        return recorder.commands


_conversions: weakref.WeakKeyDictionary[GLDevice, GLConversions] = weakref.WeakKeyDictionary()


def gl_backend(backend: Backend) -> GLBackend:
    """A backend that is known to be one of OpenGL's."""
    assert isinstance(backend, GLBackend), backend.name
    return backend


def _gl_buffer(buffer: DeviceBuffer) -> GLPixelBuffer | GLComputeBuffer:
    assert isinstance(buffer, GLPixelBuffer | GLComputeBuffer), "a buffer of another backend"
    return buffer


def _as_texture(buffer: GLComputeBuffer) -> int:
    """A buffer's tensor as a buffer texture; raises `DisposedError` after its release."""
    assert buffer.name
    return buffer.memory.texture(FORMS[buffer.dtype.name].memory, 1, 0, buffer.memory.nbytes)


def texel_draws(begin: int, end: int, width: int) -> list[Draw]:
    """Draws that cover the elements begin..end-1 of a texture so many texels wide, and no others.

    A texel holds four elements; one that belongs to two pictures of a batch is drawn with a mask.
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
