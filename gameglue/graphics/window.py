"""`Window`: a pygame window with a moderngl context."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import glcontext
import moderngl

from engine.device.gl.counting import loader_wrapper
from gameglue.errors import GraphicsError
from gameglue.graphics.context import FORCE_OFF, SYSTEM, VERSIONS, how_to_get_opengl
from gameglue.graphics.current_context import EglContext, release_current_context
from gameglue.graphics.device import GraphicsDevice, RenderTarget
from gameglue.host.pygame_ce import import_pygame
from gameglue.input import (
    FocusChanged,
    InputEvent,
    KeyEvent,
    MouseButton,
    MouseMoved,
    MouseScrolled,
    QuitRequested,
    Resized,
    TextEvent,
)
from gameglue.input.gamepads import open_gamepads

# pygame counts left, middle, right from 1.
_BUTTONS = {1: 0, 3: 1, 2: 2, 6: 3, 7: 4}


class Window:
    """The one window that a process can have through pygame.

    Raises `GraphicsError` if there is no display, no OpenGL, or a window already.
    """

    is_window = True

    def __init__(self, title: str, size: tuple[int, int], *, resizable: bool, vsync: bool) -> None:
        self._pygame = import_pygame()
        pygame = self._pygame
        if pygame.display.get_init() and pygame.display.get_surface() is not None:
            raise GraphicsError(
                "this process has a pygame window already; further apps must be made with headless=True"
            )
        if os.environ.get(FORCE_OFF, "") not in ("", "0"):
            raise GraphicsError(f"OpenGL is switched off by {FORCE_OFF}")
        try:
            pygame.display.init()
        except pygame.error as error:
            raise GraphicsError(f"no display: {error}") from error
        try:
            if pygame.display.get_driver() in ("dummy", "offscreen"):
                # What SDL falls back to without a word when the display that is named does not answer.
                raise GraphicsError(f"no display: SDL only found its {pygame.display.get_driver()!r} driver")
            self._open(pygame, size, resizable, vsync)
        except GraphicsError:
            pygame.display.quit()
            raise
        pygame.display.set_caption(title)
        self.size = pygame.display.get_window_size()
        self._gamepads = open_gamepads(pygame)

    def _open(self, pygame: ModuleType, size: tuple[int, int], resizable: bool, vsync: bool) -> None:
        release_current_context()
        flags = pygame.OPENGL | pygame.DOUBLEBUF | (pygame.RESIZABLE if resizable else 0)
        reasons = []
        for version in VERSIONS:
            try:
                # Only before the window is made do these count.
                pygame.display.gl_set_attribute(pygame.GL_CONTEXT_MAJOR_VERSION, version // 100)
                pygame.display.gl_set_attribute(pygame.GL_CONTEXT_MINOR_VERSION, version // 10 % 10)
                pygame.display.gl_set_attribute(
                    pygame.GL_CONTEXT_PROFILE_MASK, pygame.GL_CONTEXT_PROFILE_CORE
                )
                if SYSTEM == "Darwin":
                    pygame.display.gl_set_attribute(
                        pygame.GL_CONTEXT_FLAGS, pygame.GL_CONTEXT_FORWARD_COMPATIBLE_FLAG
                    )
                pygame.display.set_mode(size, flags, vsync=1 if vsync else 0)
                self.ctx: moderngl.Context | None = _adopt_context()
                self._screen: moderngl.Framebuffer | None = self._detect_screen()
                return
            except (pygame.error, GraphicsError) as error:
                reasons.append(f"OpenGL {version // 100}.{version // 10 % 10}: {error}")
        raise GraphicsError(f"no window with OpenGL ({'; '.join(reasons)}). {how_to_get_opengl()}")

    def events(self, time: float) -> Sequence[InputEvent]:
        """Return the input events since the last call."""
        pygame = self._pygame
        found: list[InputEvent] = []
        for event in pygame.event.get():
            kind = event.type
            if kind == pygame.MOUSEMOTION:
                found.append(MouseMoved(*event.pos))
            elif kind in (pygame.MOUSEBUTTONDOWN, pygame.MOUSEBUTTONUP):
                if event.button in _BUTTONS:  # 4 and 5 are the wheel, which has an event of its own
                    button = _BUTTONS[event.button]
                    found.append(MouseButton(button, kind == pygame.MOUSEBUTTONDOWN, *event.pos))
            elif kind in (pygame.KEYDOWN, pygame.KEYUP):
                found.append(KeyEvent(pygame.key.name(event.key), kind == pygame.KEYDOWN))
            elif kind == pygame.TEXTINPUT:
                found.append(TextEvent(event.text))
            elif kind == pygame.MOUSEWHEEL:
                found.append(MouseScrolled(event.x, event.y))
            elif kind == pygame.VIDEORESIZE:
                self._resize(event.w, event.h)
                found.append(Resized(event.w, event.h))
            elif kind in (pygame.WINDOWFOCUSGAINED, pygame.WINDOWFOCUSLOST):
                found.append(FocusChanged(kind == pygame.WINDOWFOCUSGAINED))
            elif kind == pygame.QUIT:
                found.append(QuitRequested())
            elif self._gamepads is not None:
                found += self._gamepads.take(event)
        return found

    def present(self, device: GraphicsDevice, picture: RenderTarget) -> None:
        """Copy the image into the window and present it."""
        if self._screen is not None:
            device.copy(picture, self._screen)
        self._pygame.display.flip()

    def close(self) -> None:
        """Close the window."""
        if self.ctx is not None:
            self.ctx.release()
            self.ctx = self._screen = None
            self._pygame.display.quit()

    def _detect_screen(self) -> moderngl.Framebuffer | None:
        # It asks the driver for the size, so only when the window is new or has a new size.
        return self.ctx.detect_framebuffer(0) if self.ctx is not None else None

    def _resize(self, width: int, height: int) -> None:
        self.size = (width, height)
        if self.ctx is not None:
            self.ctx.viewport = (0, 0, width, height)
            self._screen = self._detect_screen()


def _adopt_context() -> moderngl.Context:
    """The context that SDL has made current; SDL uses EGL on Wayland, which moderngl does not look for."""
    settings: dict[str, Any] = {
        "libgl": None
    }  # Any setting makes moderngl look up the context again, not reuse another app's.
    egl = EglContext.current()
    if egl is not None:
        settings = {"context": egl}
    wrap = loader_wrapper()
    if wrap is not None:
        opened = egl or glcontext.default_backend()(mode="detect", glversion=330)
        settings = {"context": wrap(opened)}
    try:
        return moderngl.create_context(require=330, **settings)
    except Exception as error:
        raise GraphicsError(str(error)) from error
