"""`SystemInfo`: what this machine offers to inference, asked without ever raising."""

from __future__ import annotations

import functools
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.devices.cl import CLDevice, CLInfo
from engine.devices.gl import GLDevice
from engine.devices.gl_limits import GLInfo, GLLimits
from engine.errors import EngineError

# What inference kernels look for, in the spelling of Linux.
_CPU_FEATURES = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_tile",
    "asimd",
    "sve",
)


class _Fact:
    """An attribute of the class as well as of its instances: `SystemInfo.supports_compute_shaders`."""

    def __init__(self, ask: Callable[[SystemInfo], Any]) -> None:
        self._ask = ask

    def __get__(self, instance: SystemInfo | None, owner: type[SystemInfo]) -> Any:
        return self._ask(owner.query() if instance is None else instance)


@dataclass(frozen=True)
class SystemInfo:
    """What this machine offers. `SystemInfo.query()` asks once per process.

    `supports_compute_shaders` (whether OpenGL 4.3 is there) and `graphics_device_name` can be read from
    the class.
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
    cl_devices: tuple[CLInfo, ...]
    cl_reason: str
    """Why there is no OpenCL, or empty."""

    supports_compute_shaders = _Fact(lambda info: info.gl is not None and info.gl.supports_compute)
    graphics_device_name = _Fact(lambda info: info.gl.renderer if info.gl is not None else "")

    @classmethod
    @functools.cache
    def query(cls) -> SystemInfo:
        """Ask the machine; the answer is kept. It leaves the current OpenGL context as it is."""
        gl, gl_limits, gl_reason = _ask_gl()
        cl_devices, cl_reason = _ask_cl()
        return cls(
            cpu_name=_cpu_name(),
            cpu_cores=_cpu_cores(),
            cpu_features=_cpu_features(),
            operating_system=platform.platform(),
            gl=gl,
            gl_limits=gl_limits,
            gl_reason=gl_reason,
            cl_devices=cl_devices,
            cl_reason=cl_reason,
        )


def _ask_gl() -> tuple[GLInfo | None, GLLimits | None, str]:
    try:
        with GLDevice() as device:
            return device.info, device.limits, ""
    except (EngineError, OSError, AttributeError, ValueError) as error:
        # A broken driver library may lack functions; it must not keep the rest of the answer from the user.
        return None, None, str(error)


def _ask_cl() -> tuple[tuple[CLInfo, ...], str]:
    try:
        return tuple(CLDevice.list_devices()), ""
    except Exception as error:  # noqa: BLE001 - a driver's exceptions have no common class
        return (), str(error)


def _cpu_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_name() -> str:
    name = _cpuinfo().get("model name") or platform.processor() or platform.machine()
    return name.strip()


def _cpu_features() -> tuple[str, ...]:
    """The features in question that this CPU has; empty where the system does not tell."""
    facts = _cpuinfo()
    present = set((facts.get("flags") or facts.get("Features") or "").split())
    return tuple(feature for feature in _CPU_FEATURES if feature in present)


def _cpuinfo() -> dict[str, str]:
    if not sys.platform.startswith("linux"):
        return {}
    facts: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                facts.setdefault(key.strip(), value.strip())
    except OSError:
        return {}
    return facts
