"""Backends whose tuned kernels have several forms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.backends.base import Backend
from engine.backends.gl.compute.backend import GLComputeBackend
from engine.backends.opencl import OpenCLBackend
from engine.device.cl.device import CLDevice
from engine.device.gl.device import GLDevice

FORMS = [
    pytest.param("texels", marks=pytest.mark.gl),
    pytest.param("storage", marks=pytest.mark.gl),
    pytest.param("cpu", marks=pytest.mark.opencl),
    pytest.param("gpu", marks=pytest.mark.opencl),
]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A backend with tuned kernels, in one of their forms."""
    backend: Backend
    if request.param in ("cpu", "gpu"):
        cl_device: CLDevice = request.getfixturevalue("cl_device")
        backend = OpenCLBackend(cl_device, form=request.param)
    else:
        gl_device: GLDevice = request.getfixturevalue("gl_device")
        backend = GLComputeBackend(gl_device, texels=request.param == "texels")
        if not gl_device.info.supports_compute:
            pytest.skip("no OpenGL 4.3 here")
    yield backend
    if isinstance(backend, OpenCLBackend):
        backend.dispose()
