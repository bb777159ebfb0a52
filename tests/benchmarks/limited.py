"""A function that runs in a child process under a time limit: a hang costs one call and not the run."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class LimitReached(Exception):
    """A call did not end within its limit, or its process died."""


def _serve(pipe: Connection, make: Callable[..., Callable[..., Any]], values: tuple[Any, ...]) -> None:
    call = make(*values)
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        pipe.send(call(*request))


class Limited(Generic[T]):
    """Calls `make(*values)`'s result in a child process, which is started anew after a limit was reached.

    Both are sent to the child, so they are importable by name; arguments and results can be pickled.
    """

    def __init__(self, limit: float, make: Callable[..., Callable[..., T]], *values: Any) -> None:
        """limit: seconds that a call may take, the start of the process included."""
        self._limit = limit
        self._start = make, values
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def __enter__(self) -> Limited[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, *request: Any) -> T:
        """The function's result.

        Raises:
            LimitReached: it took longer than the limit, or the process ended.
        """
        if self._pipe is None:
            spawn = multiprocessing.get_context("spawn")
            self._pipe, end = spawn.Pipe()
            self._process = spawn.Process(target=_serve, args=(end, *self._start), daemon=True)
            self._process.start()
            end.close()
        try:
            self._pipe.send(request)
            if self._pipe.poll(self._limit):
                result: T = self._pipe.recv()
                return result
            problem = f"not done after {self._limit:g} s"
        except (EOFError, OSError):
            problem = "its process ended"
        self.close()
        raise LimitReached(problem)

    def close(self) -> None:
        """End the child process, whatever it does."""
        if self._process is not None and self._pipe is not None:
            self._pipe.close()
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None
