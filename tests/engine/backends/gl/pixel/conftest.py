"""Backends on the device of the session, and on one held to the minimum."""

from __future__ import annotations

from collections.abc import Iterator

import moderngl
import pytest

from engine.backends.gl.pixel.backend import GLPixelBackend
from engine.device.gl.device import GLDevice
from tests.engine.gl_limits import minimum


@pytest.fixture(params=["at once", "deferred"])
def backend(gl_device: GLDevice, request: pytest.FixtureRequest) -> Iterator[GLPixelBackend]:
    """Each way of moving data in turn."""
    made = GLPixelBackend(gl_device, deferred_transfers=request.param == "deferred")
    yield made
    made.dispose()


@pytest.fixture
def plain_backend(gl_device: GLDevice) -> Iterator[GLPixelBackend]:
    """The way that suits the device."""
    made = GLPixelBackend(gl_device)
    yield made
    made.dispose()


@pytest.fixture(scope="session")
def minimal_device(game_context: moderngl.Context) -> Iterator[GLDevice]:
    """A device that pretends to have only what OpenGL 3.3 guarantees."""
    device = GLDevice(game_context, limits=minimum(330))
    yield device
    device.dispose()
