"""`SystemInfo` tells what there is, and never raises where there is nothing."""

from __future__ import annotations

import os

import moderngl
import pytest

from engine.device.gl.context_switch import current_platform
from engine.device.gl.device import GLDevice
from engine.device.system_info import SystemInfo


@pytest.mark.gl
def test_the_context_of_the_game_is_described_and_left_current(
    game: moderngl.Context, gl_device: GLDevice
) -> None:
    platform = current_platform()
    assert platform is not None
    before = platform.current_context()
    SystemInfo.query.cache_clear()
    info = SystemInfo.query()
    assert platform.current_context() == before
    assert info.gl == gl_device.info
    assert info.gl_limits == gl_device.limits
    assert info.gl_reason == ""
    has_compute = gl_device.info.version_code >= 430
    assert SystemInfo.supports_compute_shaders == info.supports_compute_shaders == has_compute
    assert SystemInfo.graphics_device_name == game.info["GL_RENDERER"]


def test_the_cpu_is_described() -> None:
    info = SystemInfo.query()
    assert info.cpu_name
    assert 1 <= info.cpu_cores <= (os.cpu_count() or 1)
    assert info.operating_system


CHILD = """
from engine.device.system_info import SystemInfo
info = SystemInfo.query()
assert info.gl is None and info.gl_limits is None, info
assert not SystemInfo.supports_compute_shaders
assert SystemInfo.graphics_device_name == ""
assert info.cl_devices == ()
print("GL:", info.gl_reason)
print("CL:", info.cl_reason)
"""


def test_a_machine_with_nothing_gets_reasons(run_child) -> None:
    answer = run_child(
        CHILD,
        DISPLAY="",
        __EGL_VENDOR_LIBRARY_FILENAMES="/nowhere",
        OCL_ICD_VENDORS="/nowhere",
        OPENCL_VENDOR_PATH="/nowhere",
    )
    reasons = dict(line.split(": ", 1) for line in answer.splitlines() if ": " in line)
    assert len(reasons["GL"]) > 10
    assert "pocl" in reasons["CL"]


def test_a_machine_whose_libraries_are_missing_gets_reasons(run_child) -> None:
    """As on a system without any OpenGL package: nothing of it can be loaded."""
    hide = """
import ctypes
real = ctypes.CDLL.__init__
def refuse(self, name=None, *arguments, **keywords):
    if name and ("GL" in name or "OpenCL" in name):
        raise OSError(f"{name}: cannot open shared object file")
    real(self, name, *arguments, **keywords)
ctypes.CDLL.__init__ = refuse
import sys
sys.modules["glcontext"] = None
sys.modules["pyopencl"] = None
"""
    answer = run_child(hide + CHILD, DISPLAY="")
    assert "BackendType.CPU" in answer
    assert "pip install pyopencl" in answer
