"""Devices: which OpenGL context or OpenCL queue inference runs on, what it allows, and what it did."""

from __future__ import annotations

from engine.devices.counting import CountingLoader, DeviceCounters
from engine.devices.gl import GLDevice
from engine.devices.gl_functions import GL, GLFunctions
from engine.devices.gl_limits import GLInfo, GLLimits
from engine.devices.staging import StagingPool, StagingReadback

__all__ = [
    "GL",
    "CountingLoader",
    "DeviceCounters",
    "GLDevice",
    "GLFunctions",
    "GLInfo",
    "GLLimits",
    "StagingPool",
    "StagingReadback",
]
