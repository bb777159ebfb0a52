"""Surfaces: a window, or off-screen memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Protocol

import moderngl

from gameglue.errors import GraphicsError
from gameglue.graphics.context import SYSTEM, flush_call, how_to_get_opengl, open_offscreen_context
from gameglue.graphics.device import GraphicsDevice, RenderTarget
from gameglue.graphics.window import Window
from gameglue.input import InputEvent

_log = logging.getLogger("gameglue")


class Surface(Protocol):
    """Protocol of an output surface."""

    ctx: moderngl.Context | None
    size: tuple[int, int]
    is_window: bool

    def events(self, time: float) -> Sequence[InputEvent]:
        """Return the input events since the last call."""
        ...

    def present(self, device: GraphicsDevice, picture: RenderTarget) -> None:
        """Present the finished image."""
        ...

    def close(self) -> None:
        """Close the window or context."""
        ...


class Offscreen:
    """A surface without a window, for screenshots. `ctx` is `None` without OpenGL.

    A context that is given belongs to the caller, and is not released.
    """

    is_window = False

    def __init__(self, size: tuple[int, int], ctx: moderngl.Context | None = None) -> None:
        self.size = size
        self._owned = ctx is None
        self.reason = ""
        if ctx is None:
            ctx, self.reason = open_offscreen_context()
        self.ctx: moderngl.Context | None = ctx
        self._flush = flush_call(self.ctx) if self.ctx is not None else None

    def events(self, time: float) -> Sequence[InputEvent]:
        """None: there is no window."""
        return ()

    def present(self, device: GraphicsDevice, picture: RenderTarget) -> None:
        """Flush the frame to the GPU; there is no window to present it."""
        if self._flush is not None:
            self._flush()

    def close(self) -> None:
        """Free the context."""
        if self.ctx is not None:
            self._flush = None
            if self._owned:
                self.ctx.release()
            self.ctx = None


def has_display() -> bool:
    """True if a window can probably be opened."""
    if os.environ.get("SDL_VIDEODRIVER", "") in ("dummy", "offscreen"):
        return False
    if SYSTEM == "Linux":
        return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return True


def open_surface(
    title: str,
    size: tuple[int, int],
    headless: bool | None,
    ctx: moderngl.Context | None,
    *,
    resizable: bool,
    vsync: bool,
) -> Surface:
    """A window, or an off-screen surface.

    headless: `None` decides by whether there is a display, and falls back to off-screen if the window
    cannot be had; `False` raises `GraphicsError` then. ctx: draw off-screen in this context.
    """
    if ctx is not None:
        return Offscreen(size, ctx)
    if headless is None:
        headless = not has_display()
        if not headless:
            try:
                return Window(title, size, resizable=resizable, vsync=vsync)
            except GraphicsError as error:
                _log.warning("no window, playing without one: %s", error)
                headless = True
    if not headless:
        return Window(title, size, resizable=resizable, vsync=vsync)
    offscreen = Offscreen(size)
    if offscreen.ctx is None:
        _log.warning(
            "no OpenGL (%s): playing without drawing. To draw: %s", offscreen.reason, how_to_get_opengl()
        )
    return offscreen
