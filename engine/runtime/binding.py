"""Binds the inputs of a schedule to a recorded plan's buffers, in stream order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from engine.backends.base import Backend, DeviceBuffer
from engine.backends.readback import PendingRead
from engine.backends.tensor_data import CPUTensorData, TensorData
from engine.base import instrumentation
from engine.compiler.lower import Place
from engine.runtime.device_tensor_data import BufferTensorData

T = TypeVar("T")

Feed = TensorData | np.ndarray
"""An input of a schedule."""


class UnboundInputs:
    """The unbound inputs of a run, with readbacks of those that are not computed yet."""

    def __init__(self, feeds: Mapping[str, Feed]) -> None:
        self._feeds = feeds
        # Outputs that are not computed yet are requested now: a later schedule may replace them.
        self._arriving: dict[str, PendingRead] = {}
        self._copies: list[BufferTensorData] = []
        there = np.ndarray | CPUTensorData | BufferTensorData
        self._request(name for name, feed in feeds.items() if not isinstance(feed, there))

    def hold(self, native: Backend) -> None:
        """Copy the inputs, which may change before they are bound; those on the device are copied there."""
        feeds = self._feeds
        self._feeds = {name: self._held(feed, native) for name, feed in feeds.items()}
        self._request(name for name, feed in self._feeds.items() if feed is feeds[name])

    def _held(self, feed: Feed, native: Backend) -> Feed:
        if isinstance(feed, np.ndarray):
            return feed.copy()
        if isinstance(feed, BufferTensorData) and can_bind(feed, native):
            copy = feed.copied()
            if isinstance(copy, BufferTensorData):
                self._copies.append(copy)
            return copy
        return feed

    def bind(
        self,
        buffers: Mapping[str, Sequence[tuple[Place, DeviceBuffer]]],
        backends: Mapping[Place, Backend],
        wait: bool,
    ) -> bool:
        """Bind the inputs to their buffers. Returns False while one has not arrived; `wait` blocks."""
        self._request(
            name
            for name, feed in self._feeds.items()
            if not all(can_bind(feed, backends[place]) for place, _ in buffers.get(name, ()))
        )
        for read in self._arriving.values():
            if wait:
                read.wait()
            if not read.done():
                return False
        for name, places in buffers.items():
            feed = self._arriving[name].array() if name in self._arriving else self._feeds[name]
            for place, buffer in places:
                bind(feed, backends[place], buffer)
        self.drop()
        return True

    def drop(self) -> None:
        """Release all inputs; work that was enqueued before still reads copies of them."""
        for copy in self._copies:
            with copy.backend.entered():
                copy.dispose()
        self._copies.clear()
        self._feeds = {}
        self._arriving.clear()

    def _request(self, names: Iterable[str]) -> None:
        """Request readbacks of these inputs, if there are none yet."""
        for name in names:
            feed = self._feeds[name]
            if name not in self._arriving and not isinstance(feed, np.ndarray):
                self._arriving[name] = feed.request()


NO_INPUTS = UnboundInputs({})


def can_bind(feed: Feed, backend: Backend) -> bool:
    """Whether `bind` needs no wait, because the stream runs after the work that computes the input."""
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
        if feed.backend is backend:
            backend.copy(feed.storage, buffer)
            return
        backend.after(feed.backend.fence())
        backend.copy(feed.storage, buffer)
        # The owner of the buffer may write it again once this returns.
        feed.backend.after(backend.fence())
    else:
        assert isinstance(feed, CPUTensorData)
        backend.upload_after(buffer, feed)


def bind_all(feeds: Sequence[Feed], backend: Backend, buffers: Sequence[DeviceBuffer | None]) -> None:
    """Copy inputs to a plan's buffers, as `bind` does; None for an input that nothing reads."""
    pairs = [(b, feed) for feed, b in zip(feeds, buffers, strict=True) if b is not None]
    if instrumentation.installed or {*map(type, feeds)} != {np.ndarray}:
        for buffer, feed in pairs:
            bind(feed, backend, buffer)
    else:
        backend.upload_all([pair for pair in pairs if pair[1].size])  # type: ignore[union-attr, misc]


def enqueue(backend: Backend, call: Callable[..., T], *arguments: Any) -> T:
    """Call what enqueues a program whose inputs are bound, or slices of it, and report it to observers."""
    if instrumentation.installed:
        with instrumentation.spanning("enqueue", backend=backend.name):
            return call(*arguments)
    return call(*arguments)
