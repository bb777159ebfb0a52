"""Backends on the device of the session: reading buffer textures, and reading storage buffers."""

from __future__ import annotations

import pytest

from engine.backends.gl.compute.backend import GLComputeBackend
from engine.device.gl.device import GLDevice


def made(device: GLDevice, texels: bool) -> GLComputeBackend:
    if not device.info.supports_compute:
        pytest.skip("no OpenGL 4.3 here")
    return GLComputeBackend(device, texels=texels)


@pytest.fixture(params=["texels", "storage"])
def backend(gl_device: GLDevice, request: pytest.FixtureRequest) -> GLComputeBackend:
    """Each way of reading tensors in turn."""
    return made(gl_device, request.param == "texels")


@pytest.fixture
def texel_backend(gl_device: GLDevice) -> GLComputeBackend:
    """The way that software rendering takes."""
    return made(gl_device, True)
