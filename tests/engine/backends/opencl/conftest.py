"""An OpenCL backend for each test; they are skipped where a machine has no device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.backends.opencl import OpenCLBackend
from engine.device.cl.device import CLDevice


@pytest.fixture
def backend(cl_device: CLDevice) -> Iterator[OpenCLBackend]:
    backend = OpenCLBackend(cl_device)
    yield backend
    backend.dispose()
