"""OpenGL contexts through EGL: headless, Wayland, and X11 if the window library uses EGL."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import partial
from typing import Any

from engine.base.errors import DeviceError
from engine.device.gl.context import (
    NO_FLUSH_ON_RELEASE,
    VERSIONS,
    Binding,
    NativeContext,
    Platform,
    attribute_list,
    exported,
    is_loaded_on_windows,
)

_NONE = 0x3038
_EXTENSIONS = 0x3055
_DRAW, _READ = 0x3059, 0x305A
_OPENGL_API = 0x30A2
_CONFIG_ID, _SURFACE_TYPE, _RENDERABLE_TYPE = 0x3028, 0x3033, 0x3040
_PBUFFER_BIT, _OPENGL_BIT = 0x0001, 0x0008
_HEIGHT, _WIDTH = 0x3056, 0x3057
_CONTEXT_MAJOR, _CONTEXT_MINOR = 0x3098, 0x30FB
_CONTEXT_PROFILE_MASK, _CORE_PROFILE_BIT = 0x30FD, 0x0001
_RESET_STRATEGY, _LOSE_CONTEXT_ON_RESET = 0x31BD, 0x31BF
_ROBUST_ACCESS, _NO_ERROR = 0x31B2, 0x31B3
_PLATFORM_DEVICE = 0x313F

_LIBRARIES = {"win32": ("libEGL.dll",)}.get(sys.platform, ("libEGL.so.1", "libEGL.so"))
_GL_LIBRARIES = {"win32": ()}.get(sys.platform, ("libOpenGL.so.0", "libGL.so.1", "libGL.so"))

_p, _i, _u = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "eglGetCurrentContext": (_p,),
    "eglGetCurrentDisplay": (_p,),
    "eglGetCurrentSurface": (_p, _i),
    "eglMakeCurrent": (_u, _p, _p, _p, _p),
    "eglQueryContext": (_u, _p, _p, _i, _p),
    "eglQueryString": (ctypes.c_char_p, _p, _i),
    "eglChooseConfig": (_u, _p, _p, _p, _i, _p),
    "eglCreateContext": (_p, _p, _p, _p, _p),
    "eglDestroyContext": (_u, _p, _p),
    "eglCreatePbufferSurface": (_p, _p, _p, _p),
    "eglDestroySurface": (_u, _p, _p),
    "eglBindAPI": (_u, _u),
    "eglQueryAPI": (_u,),
    "eglGetError": (_i,),
    "eglGetDisplay": (_p, _p),
    "eglInitialize": (_u, _p, _p, _p),
    "eglGetProcAddress": (_p, ctypes.c_char_p),
}


_attributes = partial(attribute_list, end=_NONE)


class EGL(Platform):
    """EGL, bound from its library."""

    name = "EGL"
    functions = _FUNCTIONS
    current = (
        ("eglGetCurrentDisplay",),
        ("eglGetCurrentSurface", _DRAW),
        ("eglGetCurrentSurface", _READ),
        ("eglGetCurrentContext",),
    )
    make = "eglMakeCurrent"
    keeps_display = True

    @classmethod
    def loaded(cls) -> EGL | None:
        """EGL if this process has loaded its library, else None."""
        library = _open(_LIBRARIES, loaded_only=True)
        return cls(library) if library is not None else None

    @classmethod
    def load(cls) -> EGL | None:
        """Load EGL; None if the machine has none."""
        library = _open(_LIBRARIES, loaded_only=False)
        return cls(library) if library is not None else None

    def load_opengl_function(self, name: str) -> int:
        """The address of an OpenGL function, 0 if unknown."""
        address = self._api.eglGetProcAddress(name.encode())
        if address:
            return int(address)
        # Old EGLs give extensions only, and leave the rest to the library.
        return exported(_open(_GL_LIBRARIES, loaded_only=False), name)

    def create_sibling(self, version: tuple[int, int], of: Binding | None = None) -> NativeContext:
        """A core-profile context that shares objects with another. Raises `DeviceError`."""
        display, draw, read, game = self.binding()
        if of is not None:
            # Its surface may be current on its own thread.
            display, draw, read, game = of[0], 0, 0, of[-1]
        api = self._api.eglQueryAPI()
        self._api.eglBindAPI(_OPENGL_API)
        try:
            config = self._config_of(display, game)
            handle = self._create_context(display, config, game, version)
            surfaces = self._surfaces_for(display, config, handle, draw, read)
        finally:
            self._api.eglBindAPI(api)
        own_surface = surfaces[0] if surfaces[0] not in (0, draw) else 0
        return NativeContext(self, (display, *surfaces, handle), (own_surface,))

    def creates_anywhere(self, of: Binding) -> bool:
        """Return True: EGL is thread-safe."""
        return True

    def destroy(self, context: NativeContext) -> None:
        """Destroy a context and the surface made for it."""
        # A display that was terminated meanwhile makes these calls fail, without harm.
        display, *_, handle = context.binding
        self._api.eglDestroyContext(display, handle)
        if context.resources and context.resources[0]:
            self._api.eglDestroySurface(display, context.resources[0])

    def create_headless(self) -> NativeContext:
        """Create a headless context, on a GPU if there is one.

        The environment variable GLCONTEXT_DEVICE_INDEX picks one EGL device. Raises `DeviceError`.
        """
        reasons = []
        api = self._api.eglQueryAPI()
        self._api.eglBindAPI(_OPENGL_API)
        try:
            for display in self._displays():
                if not self._api.eglInitialize(display, None, None):
                    reasons.append(f"eglInitialize fails{self.error()}")
                    continue
                config = self._choose_config(
                    display, _SURFACE_TYPE, _PBUFFER_BIT, _RENDERABLE_TYPE, _OPENGL_BIT
                )
                for version in VERSIONS:
                    try:
                        handle = self._create_context(display, config, 0, version)
                        surfaces = self._surfaces_for(display, config, handle, 0, 0)
                    except DeviceError as error:
                        reasons.append(str(error))
                        continue
                    return NativeContext(self, (display, *surfaces, handle), (surfaces[0],))
        finally:
            self._api.eglBindAPI(api)
        raise DeviceError(
            "EGL offers no OpenGL 3.3 context without a window: "
            + ("; ".join(dict.fromkeys(reasons)) or "no device")
        )

    def _displays(self) -> list[int]:
        client_extensions = self._extensions(0)
        if (
            "EGL_EXT_device_enumeration" not in client_extensions
            and "EGL_EXT_device_base" not in client_extensions
        ):
            return [display for display in (self._api.eglGetDisplay(None),) if display]
        query_devices = self._extension("eglQueryDevicesEXT", _u, _i, _p, _p)
        query_device_string = self._extension("eglQueryDeviceStringEXT", ctypes.c_char_p, _p, _i)
        get_platform_display = self._extension("eglGetPlatformDisplayEXT", _p, _u, _p, _p)
        devices = (ctypes.c_void_p * 16)()
        count = ctypes.c_int()
        query_devices(16, devices, ctypes.byref(count))
        found = [device for device in devices[: count.value] if device]
        index = os.environ.get("GLCONTEXT_DEVICE_INDEX", "")
        if index.isdigit():
            found = found[int(index) : int(index) + 1]
        found.sort(key=lambda device: b"software" in (query_device_string(device, _EXTENSIONS) or b""))
        displays = (get_platform_display(_PLATFORM_DEVICE, device, None) for device in found)
        return [display for display in displays if display]

    def _extension(self, name: str, result: Any, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(result, *arguments)(self._api.eglGetProcAddress(name.encode()))

    def _extensions(self, display: int) -> set[str]:
        return set((self._api.eglQueryString(display or None, _EXTENSIONS) or b"").decode().split())

    def _config_of(self, display: int, context: int) -> int:
        """The configuration of a context, 0 for one that was made without."""
        number = ctypes.c_int(0)
        self._api.eglQueryContext(display, context, _CONFIG_ID, ctypes.byref(number))
        return self._choose_config(display, _CONFIG_ID, number.value) if number.value else 0

    def _choose_config(self, display: int, *attributes: int) -> int:
        config = ctypes.c_void_p()
        count = ctypes.c_int()
        self._api.eglChooseConfig(
            display, _attributes(*attributes), ctypes.byref(config), 1, ctypes.byref(count)
        )
        return config.value or 0 if count.value else 0

    def _create_context(self, display: int, config: int, share: int, version: tuple[int, int]) -> int:
        base = (
            *(_CONTEXT_MAJOR, version[0], _CONTEXT_MINOR, version[1]),
            *(_CONTEXT_PROFILE_MASK, _CORE_PROFILE_BIT),
        )
        extensions = self._extensions(display)
        attempts: list[tuple[int, ...]] = [()]
        if "EGL_KHR_context_flush_control" in extensions:
            attempts.insert(0, NO_FLUSH_ON_RELEASE)
        if share:
            # Sharing demands that both contexts agree on these, and EGL cannot be asked what the game
            # chose.
            attempts.append((_ROBUST_ACCESS, 1, _RESET_STRATEGY, _LOSE_CONTEXT_ON_RESET))
            if "EGL_KHR_create_context_no_error" in extensions:
                attempts.append((_NO_ERROR, 1))
        for attempt in attempts:
            handle = self._api.eglCreateContext(
                display, config or None, share or None, _attributes(*base, *attempt)
            )
            if handle:
                return int(handle)
        kind = "that shares objects with the game's" if share else "core profile"
        raise DeviceError(
            f"EGL cannot create an OpenGL {version[0]}.{version[1]} context {kind}{self.error()};"
            " update the graphics driver"
        )

    def _surfaces_for(self, display: int, config: int, handle: int, draw: int, read: int) -> tuple[int, int]:
        """The default surface of the context (never used): none, one pixel, or the game's window."""
        if "EGL_KHR_surfaceless_context" in self._extensions(display):
            return 0, 0
        if config:
            surface = self._api.eglCreatePbufferSurface(display, config, _attributes(_WIDTH, 1, _HEIGHT, 1))
            if surface:
                return surface, surface
        if draw:
            return draw, read
        self._api.eglDestroyContext(display, handle)
        raise DeviceError(
            "EGL offers neither surfaceless contexts nor pixel buffers; update the graphics driver"
        )

    def error(self) -> str:
        """EGL's number of its last error."""
        return f" (EGL error 0x{self._api.eglGetError():04x})"


def _open(names: tuple[str, ...], *, loaded_only: bool) -> ctypes.CDLL | None:
    """The first library of that name, only if it is in this process already when asked so."""
    for name in names:
        if loaded_only and sys.platform == "win32" and not is_loaded_on_windows(name):
            continue
        no_load = getattr(os, "RTLD_NOLOAD", 0) if loaded_only else 0
        try:
            return ctypes.CDLL(name, mode=ctypes.DEFAULT_MODE | no_load)
        except OSError:
            continue
    return None
