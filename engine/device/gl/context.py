"""Native OpenGL contexts: query the current one, create shared ones, and switch.

A sibling has state of its own (so nothing that inference sets can leak into a game's drawing, and nothing
that the game set can reach inference) but the same buffers, textures, programs and fences. Saving and
restoring the game's state instead would need `glGet*` calls, which wait on many drivers, and could not
restore an active query.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

from engine.base.errors import DeviceError
from engine.device.gl.functions import FUNCTION_TYPE

# What is current on a thread, as one platform describes it; the last item is the context's handle.
Binding = tuple[int, ...]

# Attributes of new contexts: names and values. The first has the same numbers in EGL, GLX and WGL.
NO_FLUSH_ON_RELEASE = (0x2097, 0)
# In GLX and WGL: robust access, and reset notification by losing the context.
ROBUST = (0x2094, 0x0004, 0x8256, 0x8252)


def attribute_list(*values: int, end: int = 0) -> Any:
    """Attributes as an array that ends with `end`."""
    return (ctypes.c_int * (len(values) + 1))(*values, end)


def exported(library: ctypes.CDLL | None, name: str) -> int:
    """The address of a function that a library exports, 0 if it does not."""
    function = getattr(library, name, None)
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


def bind_functions(library: ctypes.CDLL, functions: dict[str, tuple[Any, ...]]) -> Any:
    """A namespace of C functions, from a table of names and (result type, argument types...).

    Prototypes of our own: the attributes of a `CDLL` object belong to everyone who holds it.
    Raises `AttributeError` where the library lacks one.
    """
    bound = {}
    for name, (result, *arguments) in functions.items():
        bound[name] = FUNCTION_TYPE(result, *arguments)((name, library))
    return SimpleNamespace(**bound)


def is_loaded_on_windows(library: str) -> bool:
    """Whether this process has loaded a library, on Windows."""
    windows: Any = ctypes
    get_module = windows.WinDLL("kernel32").GetModuleHandleW
    get_module.restype = ctypes.c_void_p
    return bool(get_module(library))


VERSIONS = ((4, 6), (4, 5), (4, 3), (3, 3))
"""The versions of OpenGL that the engine asks for, newest first.

NVIDIA's drivers give exactly the version that they are asked for, Mesa's a later one that is compatible.
"""


class Platform(ABC):
    """One of the operating system's interfaces to OpenGL contexts, bound from its library.

    Attributes:
        name: Its name in messages.
        functions: As `bind_functions` takes them.
        current: Functions with their arguments that give what is current on a thread; the last one the handle
            of the context, 0 if none.
        make: The function that makes all of these current on a thread.
        keeps_display: Whether the first of them stays where no context is to be current.
    """

    name: ClassVar[str]
    functions: ClassVar[dict[str, tuple[Any, ...]]]
    current: ClassVar[Sequence[tuple[Any, ...]]]
    make: ClassVar[str]
    keeps_display: ClassVar[bool] = False

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._api = bind_functions(library, self.functions)
        self._current = [partial(getattr(self._api, name), *arguments) for name, *arguments in self.current]
        self._make: Callable[..., Any] = getattr(self._api, self.make)

    def current_context(self) -> int:
        """The handle of the context that is current on this thread, 0 if none."""
        return self._current[-1]() or 0

    def binding(self) -> Binding:
        """Everything needed to make the current context current again."""
        return tuple(function() or 0 for function in self._current)

    def make_current(self, binding: Binding) -> None:
        """Make a context current on this thread. Raises `DeviceError`."""
        if not self._make(*binding):
            raise DeviceError(
                f"{self.name} cannot make an OpenGL context current{self.error()}; was its window closed?"
            )

    def release_current(self, binding: Binding) -> None:
        """Release this thread's current context; `binding` is what is current now."""
        self._make(*(binding[:1] if self.keeps_display else (0,)), *(0 for _ in binding[1:]))

    def error(self) -> str:
        """What the library tells of its last failure, in parentheses, if it does."""
        return ""

    @abstractmethod
    def create_sibling(self, version: tuple[int, int], of: Binding | None = None) -> NativeContext:
        """A core-profile context that shares objects with another. Raises `DeviceError`.

        of: the other, if the platform `creates_anywhere`; the one that is current on this thread by default.
        """

    def creates_anywhere(self, of: Binding) -> bool:
        """Whether any thread may call `create_sibling` for a context that is current on another one."""
        return False

    def first_created(
        self,
        create: Callable[[Any], int | None],
        version: tuple[int, int],
        attempts: Iterable[tuple[int, ...]],
    ) -> int:
        """The first core-profile context that GLX or WGL creates with the attributes of an attempt."""
        major, minor, profile_mask, core_profile_bit = 0x2091, 0x2092, 0x9126, 0x0001
        base = (major, version[0], minor, version[1], profile_mask, core_profile_bit)
        for attempt in attempts:
            if handle := create(attribute_list(*base, *attempt)):
                return int(handle)
        raise DeviceError(
            f"{self.name} cannot create an OpenGL {version[0]}.{version[1]} context that shares objects with"
            " the game's; update the graphics driver"
        )

    @abstractmethod
    def destroy(self, context: NativeContext) -> None:
        """Destroy a context that is not current anywhere; does nothing if its display is gone."""

    @abstractmethod
    def load_opengl_function(self, name: str) -> int:
        """The address of an OpenGL function, 0 if unknown."""

    def check_alive(self, context: NativeContext) -> None:
        """Raise `DeviceError` if the display connection behind the context was closed.

        Nothing to do where the platform itself refuses such a context, or a context needs no window.
        """


class NativeContext:
    """A context that this package owns, with the binding that makes it current."""

    def __init__(self, platform: Platform, binding: Binding, resources: tuple[Any, ...] = ()) -> None:
        self.platform = platform
        self.binding = binding
        self.handle = binding[-1]
        self.resources = resources
        self.stop: Callable[[], None] = lambda: None
        """Has another thread leave the context, and returns then: the display is about to be closed."""

    def destroy(self) -> None:
        """Destroy the context and the surface made for it."""
        self.platform.destroy(self)
