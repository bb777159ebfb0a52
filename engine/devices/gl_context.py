"""Native OpenGL contexts: which one is current on this thread, a sibling that shares its objects, switching.

A sibling has state of its own (so nothing that inference sets can leak into a game's drawing, and nothing
that the game set can reach inference) but the same buffers, textures, programs and fences. Saving and
restoring the game's state instead would need `glGet*` calls, which wait on many drivers, and could not
restore an active query.
"""

from __future__ import annotations

import ctypes
import sys
from abc import ABC, abstractmethod
from types import SimpleNamespace
from typing import Any

from engine.devices.gl_functions import FUNCTION_TYPE

# What is current on a thread, as one platform describes it; the last item is the context's handle.
Binding = tuple[int, ...]

# The same numbers hold in EGL, GLX and WGL.
CONTEXT_RELEASE_BEHAVIOR = 0x2097
CONTEXT_RELEASE_BEHAVIOR_NONE = 0


def bind_functions(library: ctypes.CDLL, functions: dict[str, tuple[Any, ...]]) -> Any:
    """A namespace of C functions, from a table of names and (result type, argument types...).

    Prototypes of our own: the attributes of a `CDLL` object belong to everyone who holds it.
    Raises `AttributeError` where the library lacks one.
    """
    bound = {}
    for name, (result, *arguments) in functions.items():
        bound[name] = FUNCTION_TYPE(result, *arguments)((name, library))
    return SimpleNamespace(**bound)


class Platform(ABC):
    """One way in which the operating system hands out OpenGL contexts."""

    name: str

    @abstractmethod
    def current_context(self) -> int:
        """The handle of the context that is current on this thread, 0 if none."""

    @abstractmethod
    def binding(self) -> Binding:
        """Everything needed to make the current context current again."""

    @abstractmethod
    def make_current(self, binding: Binding) -> None:
        """Make a context current on this thread. Raises `DeviceError`."""

    @abstractmethod
    def release_current(self, binding: Binding) -> None:
        """Leave this thread without a current context; `binding` is what is current now."""

    @abstractmethod
    def create_sibling(self, version: tuple[int, int]) -> NativeContext:
        """A core-profile context that shares objects with the current one. Raises `DeviceError`."""

    @abstractmethod
    def destroy(self, context: NativeContext) -> None:
        """Destroy a context that is not current anywhere; does nothing if its display is gone."""

    @abstractmethod
    def load_opengl_function(self, name: str) -> int:
        """The address of an OpenGL function, 0 if unknown."""

    @abstractmethod
    def check_alive(self, context: NativeContext) -> None:
        """Raise `DeviceError` if the display connection behind the context was closed."""


class NativeContext:
    """A context that this package owns, with the binding that makes it current."""

    def __init__(self, platform: Platform, binding: Binding, resources: tuple[Any, ...] = ()) -> None:
        self.platform = platform
        self.binding = binding
        self.handle = binding[-1]
        self.resources = resources

    def destroy(self) -> None:
        """Destroy the context and the surface made for it."""
        self.platform.destroy(self)


def loaded_platforms() -> list[Platform]:
    """The platforms whose library this process has loaded already, most likely first."""
    # Imported here because each module belongs to one operating system.
    platforms: list[Platform | None] = []
    if sys.platform == "win32":
        from engine.devices.gl_wgl import WGL

        platforms.append(WGL.loaded())
    elif sys.platform == "darwin":
        from engine.devices.gl_cgl import CGL

        platforms.append(CGL.loaded())
    if sys.platform != "darwin":
        from engine.devices.gl_egl import EGL

        platforms.append(EGL.loaded())
    if sys.platform not in ("win32", "darwin"):
        from engine.devices.gl_glx import GLX

        platforms.append(GLX.loaded())
    return [platform for platform in platforms if platform is not None]


def current_platform() -> Platform | None:
    """The platform that has a context current on this thread, or None."""
    for platform in loaded_platforms():
        if platform.current_context():
            return platform
    return None


class Switch:
    """Enter to make a context current, leave to make current what was so before; may be nested.

    Entering while the context is current already changes nothing, and neither does leaving then.
    """

    def __init__(self, context: NativeContext) -> None:
        self._platform = context.platform
        self._context = context
        # For each level of nesting: None when nothing was changed, else what to go back to.
        self._previous: list[tuple[Platform, Binding] | None] = []

    def enter(self) -> bool:
        """Make the context current; True if another one (or none) was so before."""
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
        """What the outermost `leave` goes back to, if that is a context of the same platform."""
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
        """Make current what was so before the matching `enter`."""
        previous = self._previous.pop()
        if previous is None:
            return
        platform, binding = previous
        if platform is not self._platform or not binding[-1]:
            self._platform.release_current(self._context.binding)
            if not binding[-1]:
                return
        platform.make_current(binding)

    def _leave_other_platform(self) -> tuple[Platform, Binding]:
        """Free this thread of a context of another platform: no library replaces another's."""
        other = current_platform()
        if other is None:
            return self._platform, (0,)
        binding = other.binding()
        other.release_current(binding)
        return other, binding
