"""Context switches: queries and changes the OpenGL context that is current on this thread."""

from __future__ import annotations

import logging
import sys

from engine.base.errors import DeviceError
from engine.device.gl.cgl import CGL
from engine.device.gl.context import Binding, NativeContext, Platform
from engine.device.gl.egl import EGL
from engine.device.gl.glx import GLX
from engine.device.gl.wgl import WGL

_log = logging.getLogger("engine")


def loaded_platforms() -> list[Platform]:
    """The platforms whose library this process has loaded already, most likely first."""
    by_system: dict[str, tuple[type[WGL | CGL | EGL | GLX], ...]] = {"win32": (WGL, EGL), "darwin": (CGL,)}
    found: list[Platform] = []
    for kind in by_system.get(sys.platform, (EGL, GLX)):
        platform = _loaded.get(kind) or kind.loaded()
        if platform is not None:
            _loaded[kind] = platform
            found.append(platform)
    return found


# Binding a library's functions takes a quarter of a millisecond, as long as a slice of a frame.
_loaded: dict[type[WGL | CGL | EGL | GLX], Platform] = {}


def current_platform() -> Platform | None:
    """The platform that has a context current on this thread, or None."""
    for platform in loaded_platforms():
        if platform.current_context():
            return platform
    return None


class ContextSwitch:
    """Makes a context current on entry and restores the previous one on exit; may be nested.

    Entering while the context is current already changes nothing, and neither does leaving then.
    """

    def __init__(self, context: NativeContext) -> None:
        self._platform = context.platform
        self._context = context
        # For each level of nesting: None when nothing was changed, else what to go back to.
        self._previous: list[tuple[Platform, Binding] | None] = []

    def enter(self) -> bool:
        """Make the context current; returns True if another one (or none) was current."""
        platform = self._platform
        context = self._context
        current = platform.current_context()
        if current == context.handle:
            self._previous.append(None)
            return False
        if current:
            previous: tuple[Platform, Binding] = (platform, platform.binding())
        else:
            previous = self._leave_other_platform()
            platform.check_alive(context)
        platform.make_current(context.binding)
        self._previous.append(previous)
        return True

    @property
    def outermost(self) -> Binding | None:
        """The context that the outermost `leave` restores, if it is of the same platform."""
        for previous in self._previous:
            if previous is not None:
                platform, binding = previous
                return binding if platform is self._platform and binding[-1] else None
        return None

    @property
    def will_change(self) -> bool:
        """Whether the next `leave` makes another context current."""
        return self._previous[-1] is not None

    def leave(self) -> None:
        """Restore the context that was current before the matching `enter`."""
        previous = self._previous.pop()
        if previous is None:
            return
        platform, binding = previous
        if platform is not self._platform or not binding[-1]:
            self._platform.release_current(self._context.binding)
            if not binding[-1]:
                return
        try:
            platform.make_current(binding)
        except DeviceError as error:
            # The game has released its context, which lasted only while it was current.
            self._platform.release_current(self._context.binding)
            _log.warning("the context that was current before inference is gone: %s", error)

    def _leave_other_platform(self) -> tuple[Platform, Binding]:
        """Free this thread of a context of another platform: no library replaces another's."""
        other = current_platform()
        if other is None:
            return self._platform, (0,)
        binding = other.binding()
        other.release_current(binding)
        return other, binding
