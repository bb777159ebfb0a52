"""One OpenCL device for all tests here; they are skipped where a machine has none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.backends.opencl import OpenCLBackend
from engine.devices.cl import CLDevice
from engine.errors import DeviceError


@pytest.fixture(scope="session")
def cl_device() -> Iterator[CLDevice]:
    try:
        device = CLDevice()
    except DeviceError as error:
        pytest.skip(str(error))
    with device:
        yield device


@pytest.fixture
def backend(cl_device: CLDevice) -> Iterator[OpenCLBackend]:
    backend = OpenCLBackend(cl_device)
    yield backend
    backend.dispose()
