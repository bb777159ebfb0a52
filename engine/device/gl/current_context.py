"""Helpers of `GLDevice`: the context manager of `current`, the loader, and a disposed placeholder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.base.errors import DeviceError, DisposedError
from engine.device.gl.context import Platform
from engine.device.gl.functions import GL

if TYPE_CHECKING:
    from engine.device.gl.device import GLDevice


# What a frame may lose to deleting what others dropped, each time that the device is entered.
_COLLECT_SECONDS = 1e-4


class CurrentContext:
    """The context manager that `GLDevice.current` returns."""

    __slots__ = ("_after_game", "_before_game", "_device", "_flush")

    def __init__(self, device: GLDevice, after_game: bool, before_game: bool, flush: bool) -> None:
        self._device = device
        self._after_game = after_game
        self._before_game = before_game
        self._flush = flush

    def __enter__(self) -> GLDevice:
        device = self._device
        device.check()
        fence = _fence_of_game(device) if self._after_game else 0
        if device._switch.enter():
            device.counters.switches += 1
        try:
            if fence:
                device.gl.glWaitSync(fence, 0, GL.TIMEOUT_IGNORED)
                device.gl.glDeleteSync(fence)
            if device._trash or device.ctx.objects:
                device.collect(_COLLECT_SECONDS)
        except BaseException:
            # Ctrl-C, or what was to be released: the block is not entered, so nobody will leave it.
            device._switch.leave()
            raise
        return device

    def __exit__(self, *exception: object) -> None:
        device = self._device
        # An inner block asks, the outermost one acts.
        device._wants_flush |= self._flush
        device._wants_publishing |= self._before_game and device.shares_with_game
        if device._switch.will_change:
            _leave(device)
        else:
            device._switch.leave()


def _leave(device: GLDevice) -> None:
    """Switch back to the game's context, and run the calls that were deferred until then."""
    gl = device.gl
    device.staging.fence_uploads()
    fence = gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0) if device._wants_publishing else 0
    if device._wants_flush or fence:
        gl.glFlush()
    device._wants_flush = device._wants_publishing = False
    device._switch.leave()
    if not fence:
        return
    if device._native.platform.current_context() == device._game_handle:
        gl.glWaitSync(fence, 0, GL.TIMEOUT_IGNORED)
        gl.glDeleteSync(fence)
    else:
        device.call_later(lambda: gl.glDeleteSync(fence))


def _fence_of_game(device: GLDevice) -> int:
    """A fence after the game's commands; 0 without a game's context."""
    if not device.shares_with_game:
        return 0
    platform = device._native.platform
    game = device._switch.outermost if platform.current_context() == device._native.handle else None
    if game is not None:
        # Inside a block already: go out for a moment.
        platform.make_current(game)
    try:
        current = platform.current_context()
        is_game = current == device._game_handle or device.is_shared_with_current()
        if not is_game or current == device._native.handle:
            return 0
        fence: int = device.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
        device.gl.glFlush()
        return fence
    finally:
        if game is not None:
            platform.make_current(device._native.binding)


class DeviceLoader:
    """The loader object that moderngl expects for a native context."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def load_opengl_function(self, name: str) -> int:
        """The address of an OpenGL function, 0 if unknown."""
        return self._platform.load_opengl_function(name)

    def __enter__(self) -> None:
        raise DeviceError(
            "this moderngl context belongs to a GLDevice; enter it with `with device.current():`"
        )

    def __exit__(self, *exception: object) -> None:
        return None

    def release(self) -> None:
        """The device destroys its context itself."""


class Disposed:
    """Placeholder for the resources of a disposed device."""

    def __getattr__(self, name: str) -> Any:
        raise DisposedError("this OpenGL device was disposed; create another one")


DISPOSED = Disposed()
