"""Shares tensors with the game's moderngl context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import moderngl

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


@contextmanager
def in_turn(device: GLDevice, ctx: moderngl.Context) -> Iterator[None]:
    """Context manager: orders the game's commands after earlier and before later engine commands.

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
