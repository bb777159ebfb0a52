"""Devices: which OpenGL context or OpenCL queue inference runs on, what it allows, and what it did."""

from __future__ import annotations

from engine.devices.cl import CLDevice, CLInfo, CLLimits, counting_cl_calls
from engine.devices.counting import CountingLoader, DeviceCounters
from engine.devices.gl import GLDevice
from engine.devices.gl_fence import Fence
from engine.devices.gl_functions import GL, GLFunctions
from engine.devices.gl_limits import GLInfo, GLLimits
from engine.devices.staging import StagingPool
from engine.devices.staging_readback import StagingReadback
from engine.devices.system_info import SystemInfo

__all__ = [
    "GL",
    "CLDevice",
    "CLInfo",
    "CLLimits",
    "CountingLoader",
    "DeviceCounters",
    "Fence",
    "GLDevice",
    "GLFunctions",
    "GLInfo",
    "GLLimits",
    "StagingPool",
    "StagingReadback",
    "SystemInfo",
    "counting_cl_calls",
]
