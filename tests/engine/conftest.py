"""What tests of the whole engine share: a worker on any backend, disposed when the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine import BackendType, Model, Worker

CHANNELS = ("cpu", "gl_compute", "gl_pixel", "opencl")
"""The four backends by name."""

MakeWorker = Callable[..., Worker]


@pytest.fixture(params=CHANNELS)
def channel(request: pytest.FixtureRequest) -> str:
    """Each backend in turn."""
    return str(request.param)


@pytest.fixture
def make_worker(request: pytest.FixtureRequest) -> Iterator[MakeWorker]:
    """`make_worker(model, channel)`: a worker on a backend, which must run every layer itself."""
    made: list[Worker] = []

    def make(model: Model, channel: str, **options: Any) -> Worker:
        options.setdefault("allow_fallback", False)
        if channel in ("gl_compute", "gl_pixel"):
            device = request.getfixturevalue("gl_device")
            kind = BackendType.GPU_COMPUTE if channel == "gl_compute" else BackendType.GPU_PIXEL
            worker = Worker(model, kind, device=device, **options)
        elif channel == "opencl":
            worker = Worker(
                model, BackendType.GPU_COMPUTE, device=request.getfixturevalue("cl_device"), **options
            )
        else:
            worker = Worker(model, BackendType.CPU, **options)
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.dispose()
