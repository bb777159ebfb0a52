"""`SystemInfo`: the devices of this machine, queried without raising."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.base.errors import EngineError
from engine.device.cl.device import OPENCL_HINT, CLInfo, try_cl_devices
from engine.device.gl.device import GLDevice
from engine.device.gl.limits import GLInfo, GLLimits
from engine.device.gl.probe import probe_gl
from engine.device.processor import cpu_cores, cpu_features, cpu_name


class _Fact:
    """An attribute of the class as well as of its instances: `SystemInfo.supports_compute_shaders`."""

    def __init__(self, ask: Callable[[SystemInfo], Any]) -> None:
        self._ask = ask

    def __get__(self, instance: SystemInfo | None, owner: type[SystemInfo]) -> Any:
        return self._ask(owner.query() if instance is None else instance)


@dataclass(frozen=True)
class SystemInfo:
    """The devices of this machine. `SystemInfo.query()` queries once per process.

    A device is listed when a small kernel was compiled, run and read back on it. `supports_compute_shaders`
    and `graphics_device_name` can be read from the class, too.

    Attributes:
        cpu_name: The processor's name.
        cpu_features: Instruction sets that kernels use, such as "avx2".
        operating_system: Name and version of the operating system.
        gl_limits: Limits of that context; None without one.
        supports_compute_shaders: Whether compute shaders run in OpenGL.
        graphics_device_name: OpenGL's name of the graphics card; '' without OpenGL.
    """

    cpu_name: str
    cpu_cores: int
    """Cores that this process may use."""
    cpu_features: tuple[str, ...]
    operating_system: str
    gl: GLInfo | None
    """The OpenGL context of this thread, else of a headless one; None where there is none."""
    gl_limits: GLLimits | None
    gl_reason: str
    """Why there is no OpenGL, or empty."""
    gl_compute_reason: str
    """Why compute shaders do not run in OpenGL, or empty."""
    gl_pixel_reason: str
    """Why fragment shaders do not run in OpenGL, or empty."""
    cl_devices: tuple[CLInfo, ...]
    """The OpenCL devices on which kernels run."""
    cl_reason: str
    """Why there is no OpenCL, or empty."""
    cl_refused: tuple[tuple[CLInfo, str], ...]
    """The OpenCL devices on which kernels do not run, each with the reason."""

    supports_compute_shaders = _Fact(lambda info: not info.gl_compute_reason)
    graphics_device_name = _Fact(lambda info: info.gl.renderer if info.gl is not None else "")

    @classmethod
    @functools.cache
    def query(cls) -> SystemInfo:
        """Query the machine; the result is cached. The current OpenGL context stays as it is."""
        return cls(
            cpu_name=cpu_name(),
            cpu_cores=cpu_cores(),
            cpu_features=cpu_features(),
            operating_system=platform.platform(),
            **_ask_gl(),
            **_ask_cl(),
        )


def _ask_gl() -> dict[str, Any]:
    try:
        with GLDevice() as device:
            return {
                "gl": device.info,
                "gl_limits": device.limits,
                "gl_reason": "",
                "gl_compute_reason": probe_gl(device, "compute").problem,
                "gl_pixel_reason": probe_gl(device, "pixel").problem,
            }
    except (EngineError, OSError, AttributeError, ValueError) as error:
        # A broken driver library may lack functions; it must not keep the rest of the answer from the user.
        reasons = dict.fromkeys(("gl_reason", "gl_compute_reason", "gl_pixel_reason"), str(error))
        return {"gl": None, "gl_limits": None, **reasons}


def _ask_cl() -> dict[str, Any]:
    try:
        tried = try_cl_devices()
    except Exception as error:  # noqa: BLE001 - a driver's exceptions have no common class
        return {"cl_devices": (), "cl_reason": str(error), "cl_refused": ()}
    devices = tuple(info for info, probe in tried if probe.runs)
    refused = tuple((info, probe.problem) for info, probe in tried if not probe.runs)
    reasons = "; ".join(f"{info.name} ({info.platform}): {problem}" for info, problem in refused)
    return {
        "cl_devices": devices,
        "cl_reason": "" if devices else f"no kernel runs on OpenCL here: {reasons}; {OPENCL_HINT}",
        "cl_refused": refused,
    }
