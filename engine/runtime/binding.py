"""Binds the inputs of a schedule to a recorded plan's buffers, in stream order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

import numpy as np

from engine.backends.base import Backend, DeviceBuffer
from engine.backends.tensor_data import CPUTensorData, TensorData
from engine.base import instrumentation
from engine.runtime.device_tensor_data import BufferTensorData

T = TypeVar("T")

Feed = TensorData | np.ndarray
"""An input of a schedule."""


def is_promise(feed: Feed) -> TypeGuard[TensorData]:
    """Whether an input is not computed yet: a readback of it is requested when it is scheduled."""
    return not (isinstance(feed, np.ndarray | BufferTensorData) or type(feed) is CPUTensorData)


def can_bind(feed: Feed, backend: Backend) -> bool:
    """Whether `bind` needs no wait: the stream itself runs behind the work that computes the input."""
    if isinstance(feed, np.ndarray):
        return True
    if isinstance(feed, BufferTensorData):
        return backend.name == feed.backend.name and backend.owner is feed.backend.owner
    if not isinstance(feed, CPUTensorData):
        return False
    fence = feed.fence
    return fence is None or backend.can_wait_for(fence)


def bind(feed: Feed, backend: Backend, buffer: DeviceBuffer) -> None:
    """Copy an input to a buffer of a plan; an empty one needs no copy.

    Later changes of the input do not reach the buffer.
    """
    if isinstance(feed, np.ndarray):
        if not feed.size:
            return
        if instrumentation.installed:
            with instrumentation.spanning("upload", bytes=feed.nbytes):
                backend.upload(buffer, feed)
            instrumentation.count("bytes up", feed.nbytes)
        else:
            backend.upload(buffer, feed)
    elif 0 in (feed.shape_or_none or ()):
        return
    elif isinstance(feed, BufferTensorData):
        backend.after(feed.backend.fence())
        backend.copy(feed.storage, buffer)
        # The owner of the buffer may write it again once this returns.
        feed.backend.after(backend.fence())
    else:
        assert isinstance(feed, CPUTensorData)
        backend.upload_after(buffer, feed)


def enqueue(backend: Backend, call: Callable[..., T], *arguments: Any) -> T:
    """Call what enqueues a program whose inputs are bound, or slices of it, and report it to observers."""
    if instrumentation.installed:
        with instrumentation.spanning("enqueue", backend=backend.name):
            return call(*arguments)
    return call(*arguments)
