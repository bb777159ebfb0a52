"""Tensors of the engine as objects of the game's own moderngl context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import moderngl
import numpy as np

from engine.backends.base import Backend, DeviceBuffer
from engine.backends.gl.storage import memory_dtype
from engine.base.errors import DeviceError
from engine.device.gl.create import default_context_if_current
from engine.device.gl.device import GLDevice

_HAS_BARRIERS = 420


def game_context(device: GLDevice) -> moderngl.Context:
    """The moderngl context in which a game uses a device's objects: the current one, or a private device's.

    Raises `DeviceError` if that is not current.
    """
    if not device.shares_with_game:
        return device.ctx
    ctx = default_context_if_current()
    if ctx is None or not device.is_shared_with_current():
        raise DeviceError(
            "the moderngl context that is current is not the one whose objects the tensor shares; make the "
            "game's current (`with ctx:`), or name it: data.shared(ctx)"
        )
    return ctx


def shared_object(storage: DeviceBuffer, ctx: moderngl.Context) -> moderngl.Buffer | moderngl.Texture:
    """A backend's storage as an object of a moderngl context, which does not own it.

    Raises `DisposedError` if it was released.
    """
    # Imported where it is needed: a game uses one of the two backends.
    from engine.backends.gl.compute.memory import GLComputeBuffer

    if isinstance(storage, GLComputeBuffer):
        found: moderngl.Buffer = ctx.external_buffer(storage.name, storage.memory.nbytes)
        return found
    # Likewise.
    from engine.backends.gl.pixel.memory import GLPixelBuffer

    assert isinstance(storage, GLPixelBuffer)
    layout, element = storage.memory.layout, memory_dtype(storage.dtype)
    size, kind = (layout.width, layout.height), f"{element.kind}{element.itemsize}"
    texture: moderngl.Texture = ctx.external_texture(storage.memory.name, size, 4, 0, kind)
    return texture


@contextmanager
def in_turn(device: GLDevice, ctx: moderngl.Context) -> Iterator[None]:
    """A block of the game's commands between those of the engine before it and those behind it.

    Nothing waits but the GPU. For a private device, its context is current in the block.
    """
    if not device.shares_with_game:
        with device.current():
            yield
            _barrier(ctx)
        return
    with device.current(before_game=True):
        pass
    try:
        yield
    finally:
        _barrier(ctx)
        with device.current(after_game=True):
            pass


def _barrier(ctx: moderngl.Context) -> None:
    if ctx.version_code >= _HAS_BARRIERS:
        ctx.memory_barrier()


def element_type(backend: Backend, dtype: np.dtype) -> np.dtype:
    """The NumPy type of an element as it lies in a GPU backend's memory."""
    if backend.name == "opencl":
        # Imported where it is needed, as it belongs to pyopencl.
        from engine.backends.opencl.storage import device_dtype

        found: np.dtype = device_dtype(dtype)
        return found
    return memory_dtype(dtype)
