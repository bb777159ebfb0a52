"""Conversions between the game's textures and tensors, recorded once and replayed.

Everything happens in the device's own context, which shares objects with the game's: the game's state is out
of reach. Command lists hold OpenGL names and numbers only, and bind all they use, so they keep nothing alive.
"""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable, Hashable

from engine.backends.gl.backend import GLBackend
from engine.backends.gl.commands import CallList
from engine.backends.gl.memory import AnyBuffer
from engine.backends.gl.record import GLRecorder
from engine.compiler.plan_memo import LRUCache
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL, generate
from engine.kernels.kernel import KernelCall

TEXTURE_SHIFT = 14
"""log2 of the columns that a kernel counts in a row of the game's texture: the most that one has."""

# Each is a few hundred bytes; a game with more conversions than that at once records some of them again.
_KEPT = 256


class TextureReader(GLBackend):
    """A backend whose kernels can read a texture of the game."""

    @abstractmethod
    def record_from_texture(
        self,
        texture: int,
        call: KernelCall,
        space: tuple[int, ...],
        buffer: AnyBuffer,
        begin: int,
        end: int,
    ) -> CallList:
        """Commands that compute elements begin..end-1 of a buffer.

        Args:
            texture: GL name of the texture, which is the kernel's only buffer.
            call: The kernel and its arguments.
            space: Its index space.
            buffer: The buffer to write.
            begin: The first element.
            end: The element behind the last one.
        """


class TextureWriter(GLBackend):
    """Base class of backends that can draw any OpenGL backend's tensors into the game's textures."""

    @abstractmethod
    def record_to_texture(
        self,
        buffer: AnyBuffer,
        call: KernelCall,
        space: tuple[int, ...],
        texture: int,
        size: tuple[int, int],
    ) -> CallList:
        """Commands that draw a whole texture.

        Args:
            buffer: The tensor, which is the kernel's only buffer.
            call: The kernel and its arguments.
            space: Its index space.
            texture: GL name of the texture.
            size: Its columns and rows.
        """


class TextureCommands:
    """The recorded conversions of one device, and the objects that they bind."""

    def __init__(self, device: GLDevice) -> None:
        # Kept by the device's key in a weak dictionary: no reference back.
        self._lists: LRUCache[Hashable, CallList] = LRUCache(_KEPT)
        gl = device.gl
        with device.current(flush=False):
            self.framebuffer = generate(gl.glGenFramebuffers)
            self._sampler = generate(gl.glGenSamplers)
            # A texture whose filter requires mipmaps that it lacks could not be read at all.
            for name in (GL.TEXTURE_MIN_FILTER, GL.TEXTURE_MAG_FILTER):
                gl.glSamplerParameteri(self._sampler, name, GL.NEAREST)

    @staticmethod
    def of(device: GLDevice) -> TextureCommands:
        """The commands of a device."""
        found = _commands.get(device)
        if found is None:
            found = _commands[device] = TextureCommands(device)
        return found

    def run(self, backend: GLBackend, key: Hashable, record: Callable[[], CallList]) -> None:
        """Enqueue the commands of a key, which are recorded first if they are new."""
        commands = self._lists.get(key)
        if commands is None:
            commands = record()
            self._lists.keep(key, commands)
        backend.replayer.run(commands)

    def bind(self, recorder: GLRecorder, texture: int) -> None:
        """Bind a texture of the game to unit 0."""
        recorder.call("glBindSampler", 0, self._sampler)
        recorder.bind_texture(0, GL.TEXTURE_2D, texture)

    def finish(self, recorder: GLRecorder) -> CallList:
        """Unbind the game's texture and the sampler."""
        recorder.bind_texture(0, GL.TEXTURE_2D, 0)
        recorder.call("glBindSampler", 0, 0)
        recorder.commands.finish()
        return recorder.commands


_commands: weakref.WeakKeyDictionary[GLDevice, TextureCommands] = weakref.WeakKeyDictionary()
