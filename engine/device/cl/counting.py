"""Counts blocking OpenCL calls, for tests and profiles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from engine.device.cl.device import import_pyopencl


@contextmanager
def counting_cl_calls() -> Iterator[dict[str, int]]:
    """Count the blocking OpenCL calls that this thread makes through pyopencl in a block, for tests.

    Counted: finishing a queue, waiting for events, copies between host and device that block (pyopencl's
    default), and events of unfinished host copies that are dropped, as pyopencl waits there. What it yields
    is filled as the calls happen.
    """
    cl: Any = import_pyopencl()
    counts: dict[str, int] = {}
    this = threading.get_ident()

    def count(name: str) -> None:
        if threading.get_ident() == this:
            counts[name] = counts.get(name, 0) + 1

    def counted(name: str, function: Any, always: bool = True) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            if always or keywords.get("is_blocking", True):
                count(name)
            return function(*arguments, **keywords)

        return call

    def counted_copy(function: Any) -> Any:
        def call(queue: Any, destination: Any, source: Any, **keywords: Any) -> Any:
            touches_host = not (
                isinstance(destination, cl.MemoryObjectHolder) and isinstance(source, cl.MemoryObjectHolder)
            )
            if touches_host and keywords.get("is_blocking", True):
                count("enqueue_copy")
            event = function(queue, destination, source, **keywords)
            if touches_host and event.command_execution_status > 0:
                # Goes with the event, before pyopencl waits.
                twin = cl.Event.from_int_ptr(event.int_ptr)
                event._dropped = _Dropped(twin, lambda: count("dropped event"))
            return event

        return call

    replaced = [
        (cl.CommandQueue, "finish", counted("clFinish", cl.CommandQueue.finish)),
        (cl.Event, "wait", counted("clWaitForEvents", cl.Event.wait)),
        (cl, "wait_for_events", counted("clWaitForEvents", cl.wait_for_events)),
        (cl, "enqueue_copy", counted_copy(cl.enqueue_copy)),
        (cl, "enqueue_map_buffer", counted("enqueue_map_buffer", cl.enqueue_map_buffer, always=False)),
    ]
    with ExitStack() as undo:
        for owner, name, function in replaced:
            undo.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, function)
        yield counts


class _Dropped:
    """Reports if it is dropped before its event has completed."""

    def __init__(self, event: Any, report: Callable[[], None]) -> None:
        self._event = event
        self._report = report

    def __del__(self) -> None:
        if self._event.command_execution_status > 0:
            self._report()
