"""The errors that OpenGL records until `glGetError` returns them."""

from __future__ import annotations

from engine.base.errors import DeviceError, OutOfMemoryError
from engine.device.gl.functions import GL


def raise_recorded(error: int, doing: str) -> None:
    """Raise what `glGetError` returned: `OutOfMemoryError` or `DeviceError`, or nothing."""
    if error == GL.OUT_OF_MEMORY:
        raise OutOfMemoryError(f"OpenGL reports that it is out of memory while {doing}")
    if error != GL.NO_ERROR:
        raise DeviceError(f"OpenGL reports error 0x{error:04x} while {doing}")
