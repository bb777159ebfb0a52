"""Non-blocking uploads, copies and readbacks of textures.

Where the GPU draws, pixel buffers carry data both ways. Drivers that draw with the CPU fill and read those
at once, which waits for what is in flight: there an upload goes through a texture with new storage, and a
readback is drawn into a texture of its own that is read when its fence has passed.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np

from engine.backends.gl.commands import CallList, Replayer
from engine.backends.gl.pixel.layout import TexelLayout, texels_of
from engine.backends.gl.pixel.memory import FORMATS, GLPixelBuffer, TensorTexture, TextureRange
from engine.backends.gl.pixel.printer import arguments, print_kernel
from engine.backends.gl.pixel.programs import PixelPrograms
from engine.backends.gl.pixel.record import PixelRecorder, rows_at_once, texel_nanoseconds
from engine.backends.gl.pixel.shader import Shader
from engine.backends.gl.readback import GLReadback
from engine.base.memory.aligned import address_of
from engine.compiler.plan import AnyKernel
from engine.device.gl.device import GLDevice
from engine.device.gl.fence import Fence
from engine.device.gl.staging_readback import StagingReadback
from engine.kernels.expr import FLAT
from engine.kernels.kernel import Kernel, kernel_call
from engine.kernels.value import Value

Kept = TypeVar("Kept")

_IDLE_TEXTURES = 8
# Shapes of tensors for which textures and arrays in between are kept, and copies whose calls are: more would
# pile up as sizes vary.
_KEPT_LAYOUTS = 64


class TexelTransfers:
    """Moves tensors in and out of textures. deferred: the driver would wait where pixel buffers are used."""

    def __init__(self, device: GLDevice, programs: PixelPrograms, replayer: Replayer, deferred: bool) -> None:
        self.device = device
        self._programs = programs
        self._replayer = replayer
        self._deferred = deferred
        self._copies = {element: _copy_kernel(element) for element in FORMATS}
        self._shaders = {kernel.key: print_kernel(kernel) for kernel in self._copies.values()}
        self._uploads: dict[str, TensorTexture] = {}
        self._idle: dict[tuple[TexelLayout, str], list[TensorTexture]] = {}
        # A copy of one draw, by the NumPy type in memory.
        self._draws: dict[str, _Draw] = {}
        # The calls of copies, by what these depend on.
        self._lists: dict[object, CallList] = {}
        # What uploads were copied to last, as a driver takes elements before its call returns.
        self._padded: dict[tuple[TexelLayout, np.dtype], np.ndarray] = {}

    def prepare(self, element: str) -> None:
        """Compile what copies elements of a type in memory."""
        key = self._copies[element].key
        self._programs.prepare({key: self._shaders[key]})

    def upload(self, data: np.ndarray, target: TensorTexture) -> None:
        """Set a texture's first elements, in stream order."""
        device, texels = self.device, texels_of(data.size)
        layout = target.layout.holding(texels, target.layout.height)
        padded = padded_texels(data, layout, self._padded)
        if not self._deferred:
            form = FORMATS[target.element]
            size = (layout.width, layout.height)
            device.staging.write_texture(target.name, size, form.pixels, form.component, padded)
            return
        with device.current():
            upload = self._uploads.get(target.element)
            if upload is None:
                upload = self._uploads[target.element] = TensorTexture(device, layout, target.element)
            upload.layout = layout
            upload.allocate(padded)
            self.copy(upload, target, 4 * texels)
        device.counters.uploads += 1
        device.counters.bytes_up += data.nbytes

    def copy(self, source: TensorTexture, target: TensorTexture, elements: int) -> None:
        """Copy the first elements on the device."""
        with self.device.current():
            # All that the calls depend on; the names are those of others once textures are deleted.
            key = (source.element, source.name, source.layout, target.framebuffer, target.layout, elements)
            commands = self._lists.get(key)
            if commands is None:
                _crowded_out(self._lists)
                commands = self._lists[key] = self._recorded_copy(source, target, elements)
            self._replayer.run(commands)

    def _recorded_copy(self, source: TensorTexture, target: TensorTexture, elements: int) -> CallList:
        """The calls of `copy`: those of an earlier one with its arguments, where both are one draw."""
        element, texels = source.element, texels_of(elements)
        kernel, (columns, rows) = self._copies[element], target.layout.area(texels)
        shader = self._shaders[kernel.key]
        known = self._draws.get(element)
        if known is not None and rows_at_once(columns, rows, known.texel_ns) == rows:
            return known.filled(
                arguments(shader, (), (elements,), (target.layout.shift, source.layout.shift), texels),
                {"texture": source.name, "framebuffer": target.framebuffer, "columns": columns, "rows": rows},
            )
        self.prepare(element)
        recorder = PixelRecorder(self.device, self._programs, self._shader)
        places = [TextureRange(texture, texture.layout) for texture in (source, target)]
        recorder.draw(kernel, (), (elements,), places[:1], places[1])
        recorder.commands.finish()
        if recorder.draws == 1:
            self._draws[element] = _Draw(recorder, texel_nanoseconds(kernel, shader, ()))
        return recorder.commands

    def readback(self, buffer: GLPixelBuffer, elements: int) -> GLReadback:
        """Start a readback of the value's first elements as of now."""
        if not elements:
            return GLReadback(0, buffer.dtype, None)
        source = buffer.memory
        if not self._deferred:
            return GLReadback(elements, buffer.dtype, self.read(source, elements))
        with self.device.current():
            snapshot = self._take_snapshot(source, elements)
            fence = Fence(self.device)
            self.device.gl.glFlush()
        return FencedReadback(self, elements, buffer.dtype, snapshot, fence)

    def read(self, source: TensorTexture, elements: int) -> StagingReadback:
        """Start a readback through a pixel buffer."""
        form, layout = FORMATS[source.element], source.layout
        size = layout.area(-(-elements // 4))
        shape = (size[0] * size[1] * 4,)
        return self.device.staging.read_texture(
            source.name, size, form.pixels, form.component, np.dtype(source.element), shape
        )

    def give_back(self, texture: TensorTexture) -> None:
        """Keep a snapshot's texture for the next one."""
        key = (texture.layout, texture.element)
        if key not in self._idle:
            for others in _crowded_out(self._idle):
                for other in others:
                    other.release()
        idle = self._idle.setdefault(key, [])
        if len(idle) < _IDLE_TEXTURES:
            idle.append(texture)
        else:
            texture.release()

    def dispose(self) -> None:
        """Free the intermediate textures."""
        for texture in (*self._uploads.values(), *(t for idle in self._idle.values() for t in idle)):
            texture.release()
        self._uploads.clear()
        self._padded.clear()
        self._lists.clear()
        self._draws.clear()
        self._idle.clear()

    def _take_snapshot(self, source: TensorTexture, elements: int) -> TensorTexture:
        idle = self._idle.get((source.layout, source.element))
        texture = idle.pop() if idle else TensorTexture(self.device, source.layout, source.element)
        self.copy(source, texture, elements)
        return texture

    def _shader(self, kernel: AnyKernel) -> Shader:
        return self._shaders[kernel.key]


class _Draw:
    """The calls of one draw, which `filled` returns with other arguments."""

    _COLUMNS: ClassVar = {
        "words": ("glUniform4iv", 3),
        "texture": ("glBindTexture", 2),
        "framebuffer": ("glBindFramebuffer", 2),
        "columns": ("glViewport", 3),
        "rows": ("glViewport", 4),
    }

    def __init__(self, recorder: PixelRecorder, texel_ns: float) -> None:
        self.texel_ns = texel_ns
        self._commands = recorder.commands
        self._places = {}
        functions = recorder.commands.table[:, 0].tolist()
        for name, (function, column) in self._COLUMNS.items():
            address = recorder.device.gl.address(function)
            assert functions.count(address) == 1, f"{function} is called once for a draw"
            self._places[name] = functions.index(address), column

    def filled(self, words: np.ndarray, given: Mapping[str, int]) -> CallList:
        """The calls of another draw, with its uniform words."""
        table = self._commands.table.copy()
        for name, argument in (("words", address_of(words)), *given.items()):
            table[self._places[name]] = argument
        return self._commands.filled(table, (words,))


class FencedReadback(GLReadback):
    """A readback of a texture that holds the value once its fence has passed."""

    def __init__(
        self,
        transfers: TexelTransfers,
        elements: int,
        dtype: np.dtype,
        snapshot: TensorTexture,
        fence: Fence,
    ) -> None:
        super().__init__(elements, dtype, None)
        self._transfers = transfers
        self._snapshot = snapshot
        self.fence = fence
        # May run on any thread: the device calls it later. Commands issued so far may still read the texture.
        give_back = partial(transfers.give_back, snapshot)
        self._finalizer = weakref.finalize(self, transfers.device.call_later, give_back)
        self._finalizer.atexit = False

    def done(self) -> bool:
        """Whether the elements have arrived."""
        if self._staging is None and self.fence.is_open():
            self._read()
        return super().done()

    def wait(self) -> None:
        """Block until they have."""
        if self._staging is None:
            self.fence.wait()
            self._read()
        super().wait()

    def _read(self) -> None:
        self._staging = self._transfers.read(self._snapshot, self._elements)
        self._finalizer()


def padded_texels(
    data: np.ndarray, layout: TexelLayout, kept: dict[tuple[TexelLayout, np.dtype], np.ndarray] | None = None
) -> np.ndarray:
    """Pad elements to a texture's size, in the reusable array `kept` if there is one."""
    total = 4 * layout.texels
    if data.size == total:
        return data
    padded = None if kept is None else kept.get((layout, data.dtype))
    if padded is None:
        padded = np.zeros(total, data.dtype)
        if kept is not None:
            _crowded_out(kept)
            kept[layout, data.dtype] = padded
    padded[: data.size] = data
    padded[data.size :] = 0
    return padded


def _crowded_out(kept: dict[Any, Kept]) -> list[Kept]:
    """Evict the oldest entry if the cache is full; returns it."""
    return [kept.pop(next(iter(kept)))] if len(kept) >= _KEPT_LAYOUTS else []


def _copy_kernel(element: str) -> Kernel:
    dtype = np.dtype(element)
    return kernel_call(Value("x", (1,), dtype).at(FLAT), 1, dtype).kernel
