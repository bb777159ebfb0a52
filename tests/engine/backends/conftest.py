"""Backends whose tuned kernels have several forms, and devices held to what standards guarantee."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import moderngl
import pytest

from engine.backends.base import Backend
from engine.backends.gl.compute.backend import GLComputeBackend
from engine.backends.gl.pixel.backend import GLPixelBackend
from engine.backends.opencl import OpenCLBackend
from engine.device.cl.device import CLDevice
from engine.device.gl.device import GLDevice
from tests.engine.gl_limits import minimum

FORMS = [
    pytest.param("texels", marks=pytest.mark.gl),
    pytest.param("storage", marks=pytest.mark.gl),
    pytest.param("minimal", marks=pytest.mark.gl),
    pytest.param("cpu", marks=pytest.mark.opencl),
    pytest.param("gpu", marks=pytest.mark.opencl),
    pytest.param("small", marks=pytest.mark.opencl),
]
"""Ways of GL compute and OpenCL. "minimal" and "small" have no more than devices must have to be used."""

TUNED = [
    *(p for p in FORMS if p.values[0] not in ("minimal", "small")),
    pytest.param("pixel", marks=pytest.mark.gl),
]
"""The same without limits, and the pixel backend."""

SMALL_GROUP, SMALL_MEMORY = 64, 1024
"""Work-items in a group, without which a device is not used, and bytes that every OpenCL device has."""


@pytest.fixture(scope="session")
def minimal_device(game_context: moderngl.Context) -> Iterator[GLDevice]:
    """A device that pretends to have only what OpenGL 4.3 guarantees."""
    device = GLDevice(game_context, limits=minimum(430))
    if not device.info.supports_compute:
        pytest.skip("no OpenGL 4.3 here")
    yield device
    device.dispose()


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A backend with tuned kernels, in one of their forms."""
    yield from opened(request)


@pytest.fixture(params=TUNED)
def tuned_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Every GPU backend, each way of reading tensors in tuned kernels."""
    yield from opened(request)


def opened(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """The backend that a fixture's parameter names, until the test is over."""
    backend: Backend
    if request.param in ("cpu", "gpu", "small"):
        is_small = request.param == "small"
        cl_device: CLDevice = request.getfixturevalue("small_device" if is_small else "cl_device")
        if is_small and cl_device.info.is_gpu:
            pytest.skip("the least that a device may have goes with the form for processors")
        backend = OpenCLBackend(cl_device, form="cpu" if is_small else request.param)
    elif request.param == "minimal":
        request.getfixturevalue("gl_device")
        backend = GLComputeBackend(request.getfixturevalue("minimal_device"), texels=False)
    else:
        gl_device: GLDevice = request.getfixturevalue("gl_device")
        if request.param == "pixel":
            backend = GLPixelBackend(gl_device, deferred_transfers=False)
        elif gl_device.info.supports_compute:
            backend = GLComputeBackend(gl_device, texels=request.param == "texels")
        else:
            pytest.skip("no OpenGL 4.3 here")
    yield backend
    if request.param == "small":
        assert isinstance(backend, OpenCLBackend)
        check_groups(backend)
    backend.dispose()


@pytest.fixture(scope="session")
def small_device(cl_device: CLDevice) -> Iterator[CLDevice]:
    """A device that pretends to have small groups and little local memory."""
    device = CLDevice()
    device.limits = replace(device.limits, max_work_group_size=SMALL_GROUP, local_memory=SMALL_MEMORY)
    yield device
    device.dispose()


def check_groups(backend: OpenCLBackend) -> None:
    """Fail for a kernel that has run, and has larger groups or more local memory than small devices."""
    asked = backend.device.cl.kernel_work_group_info.LOCAL_MEM_SIZE
    for compiled in backend.programs.ready:
        local = compiled.bare_kernel().get_work_group_info(asked, backend.device.device)
        assert prod(compiled.source.local) <= SMALL_GROUP, compiled.source.text
        assert local <= SMALL_MEMORY, compiled.source.text
