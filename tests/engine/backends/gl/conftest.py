"""Each OpenGL backend, with each of its ways of moving data, on the session's device or a watched one."""

from __future__ import annotations

from collections.abc import Iterator

import moderngl
import pytest

from engine.backends.gl.backend import GLBackend
from engine.backends.gl.compute.backend import GLComputeBackend
from engine.backends.gl.pixel.backend import GLPixelBackend
from engine.device.gl.counting import CountingLoader
from engine.device.gl.device import GLDevice

WAYS = ("compute texels", "compute storage", "pixel at once", "pixel deferred")


def made(device: GLDevice, way: str) -> GLBackend:
    kind, how = way.split(" ", 1)
    if kind == "pixel":
        return GLPixelBackend(device, deferred_transfers=how == "deferred")
    if not device.info.supports_compute:
        pytest.skip("no OpenGL 4.3 here")
    return GLComputeBackend(device, texels=how == "texels")


@pytest.fixture(params=WAYS)
def backend(gl_device: GLDevice, request: pytest.FixtureRequest) -> Iterator[GLBackend]:
    """Each backend, each way."""
    backend = made(gl_device, request.param)
    yield backend
    backend.dispose()


@pytest.fixture(scope="session")
def counted_device(game_context: moderngl.Context) -> Iterator[tuple[GLDevice, CountingLoader]]:
    """A device whose blocking calls are counted, and the counter."""
    loaders: list[CountingLoader] = []

    def wrap(loader: object) -> CountingLoader:
        loaders.append(CountingLoader(loader))
        return loaders[0]

    device = GLDevice(game_context, loader_wrapper=wrap)
    yield device, loaders[0]
    device.dispose()
