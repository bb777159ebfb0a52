"""What tests of the whole engine share: a worker on any backend, disposed when the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from engine import Model, Worker
from engine.backends import table

CHANNELS = tuple(entry.name for entry in table.BACKENDS)
"""The backends by name."""

_DEVICES = {"gl": "gl_device", "opencl": "cl_device"}
"""Fixtures by kind of device."""

MakeWorker = Callable[..., Worker]


def device_for(channel: str, request: pytest.FixtureRequest) -> Any:
    """The device on which tests run a backend: a fixture, which skips the test where there is none."""
    name = table.named(channel).device
    return request.getfixturevalue(_DEVICES[name]) if name in _DEVICES else name


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
        if "device" not in options:
            options["device"] = device_for(channel, request)
        worker = Worker(model, table.named(channel).backend_type, **options)
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.dispose()


def answers(worker: Worker, *arrays: Any, **named: Any) -> list[np.ndarray]:
    """All outputs of a worker, one after another, after a schedule."""
    worker.schedule(*arrays, **named)
    return [worker.peek_output(o.name).download_to_array() for o in worker.model.outputs]
