"""Where the contract is tried: a game whose OpenGL and OpenCL calls are counted, in a process of its own."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import glcontext
import moderngl

from engine import BackendType, JobHandle, Model, Worker
from engine.compiler.lower import Planner
from engine.device.cl.counting import counting_cl_calls
from engine.device.cl.device import CLDevice
from engine.device.gl.counting import CountingLoader
from engine.device.gl.device import GLDevice
from engine.runtime.plans.session import Session

CHANNELS = ("cpu", "gl_compute", "gl_pixel", "opencl")
"""The four backends by name."""


@contextmanager
def counting_job_waits() -> Iterator[Counter[str]]:
    """Count the waits for CPU jobs that were not done; what it yields is filled as they happen."""
    counts: Counter[str] = Counter()
    complete = JobHandle.complete

    def counted(handle: JobHandle, timeout: float | None = None) -> bool:
        if timeout != 0 and not handle.is_completed:
            counts["JobHandle.complete"] += 1
        return complete(handle, timeout)

    JobHandle.complete = counted  # type: ignore[method-assign,assignment]
    try:
        yield counts
    finally:
        JobHandle.complete = complete  # type: ignore[method-assign]


@contextmanager
def counting_plans() -> Iterator[Counter[str]]:
    """Count what this thread plans and compiles; what it yields is filled as it happens."""
    counts: Counter[str] = Counter()
    this = threading.get_ident()
    before: list[tuple[type, str, Any]] = []

    def count(of: type, name: str) -> None:
        original = getattr(of, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            result = original(*arguments, **named)
            # `Session.compile` returns how many kernels were missing.
            if threading.get_ident() == this and result != 0:
                counts[f"{of.__name__}.{name}"] += 1
            return result

        before.append((of, name, original))
        setattr(of, name, counted)

    for name in ("lower", "lower_symbolic", "resume", "resume_symbolic"):
        count(Planner, name)
    count(Session, "compile")
    try:
        yield counts
    finally:
        for of, name, original in before:
            setattr(of, name, original)


class Place:
    """A game's OpenGL context and a device beside it, and one backend.

    Both are under a counting loader, unless times are taken: counting takes some itself.
    """

    def __init__(self, channel: str, *, is_counted: bool = True) -> None:
        self.channel = channel
        self.loaders: list[CountingLoader] = []
        backend = glcontext.get_backend_by_name("egl")
        native: Any = backend(mode="standalone", glversion=430)
        loader: Any = self._wrap(native) if is_counted else native
        self.game = moderngl.create_context(context=loader)
        self.gl_device = GLDevice(self.game, loader_wrapper=self._wrap if is_counted else None)
        self.cl_device = CLDevice() if channel == "opencl" else None

    def _wrap(self, loader: Any) -> CountingLoader:
        self.loaders.append(CountingLoader(loader))
        return self.loaders[-1]

    @property
    def backend_type(self) -> BackendType:
        """What a worker is told."""
        if self.channel == "cpu":
            return BackendType.CPU
        return BackendType.GPU_PIXEL if self.channel == "gl_pixel" else BackendType.GPU_COMPUTE

    @property
    def device(self) -> GLDevice | CLDevice | None:
        """What a worker is given."""
        return {"cpu": None, "opencl": self.cl_device}.get(self.channel, self.gl_device)

    def worker(self, model: Model, **options: Any) -> Worker:
        """A worker on the backend."""
        return Worker(model, self.backend_type, device=self.device, **options)

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Count blocking calls, and what is planned or compiled on this thread, within a block.

        What it yields is filled when the block ends.
        """
        found: Counter[str] = Counter()
        before = [loader.counts.copy() for loader in self.loaders]
        with counting_cl_calls() as cl_counts, counting_job_waits() as job_counts, counting_plans() as plans:
            yield found
        found.update(job_counts)
        found.update(plans)
        for owner, loader, mark in zip(("game", "engine"), self.loaders, before, strict=True):
            found.update({f"{owner} {name}": n for name, n in (loader.counts - mark).items()})
        found.update(cl_counts)

    def release(self) -> None:
        """End the devices."""
        for device in (self.cl_device, self.gl_device):
            if device is not None:
                device.dispose()
