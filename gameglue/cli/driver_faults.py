"""Known faults of OpenGL drivers that cause wrong results, and their workarounds."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from engine.device.gl.limits import GLInfo

_ZINK_UNTIL = (22, 3)
"""The last version of Mesa whose zink was seen with these faults."""

_ZINK_FAULTS = {
    "ZINK_INLINE_UNIFORMS": "miscompiles shaders with uniforms",
    "GALLIUM_THREAD": "reorders copies between buffers and textures",
}
"""Switches of the environment, each to be 0, and what goes wrong without."""


def driver_faults(info: GLInfo, environment: Mapping[str, str] | None = None) -> list[str]:
    """Known faults of a driver, one line each, except for those that environment variables already avoid."""
    variables = os.environ if environment is None else environment
    mesa = re.search(r"Mesa (\d+)\.(\d+)", info.version)
    if not info.renderer.startswith("zink") or mesa is None:
        return []
    version = (int(mesa[1]), int(mesa[2]))
    if version > _ZINK_UNTIL:
        return []
    return [
        f"OpenGL: zink of Mesa {mesa[1]}.{mesa[2]} {fault}, so results and pictures are wrong: set {name}=0,"
        " or update Mesa"
        for name, fault in _ZINK_FAULTS.items()
        if variables.get(name) != "0"
    ]
