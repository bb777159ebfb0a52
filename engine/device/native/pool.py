"""Pool of child processes that compile kernels without delaying frames.

A `CompilePool` keeps one daemon thread per child. Each thread sends its child one kernel at a time and waits
for the reply without the GIL. It takes one once its child is ready, those first that somebody waits for.
Children stay for a while after the last kernel, because importing numba costs them more than compiling a few
kernels. Where no child can be started the thread compiles in this process.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import IO, Any

from engine.device.native import child_processes
from engine.device.native.prelude import SHARED_ABOVE

# A child costs about eight kernels' worth of time to start.
KERNELS_PER_CHILD = 6
IDLE_SECONDS = 20.0


class CompileError(Exception):
    """One kernel was refused; the message is the compiler's."""


@dataclass(frozen=True)
class CompileRequest:
    """A request to compile one kernel."""

    name: str
    source: str
    entry: str
    signature: str
    symbol: str


@dataclass(frozen=True)
class CompiledObject:
    """An object file and the process symbols that it refers to."""

    code: bytes
    externals: tuple[str, ...]
    is_prebuilt: bool = False


@dataclass(eq=False)
class _Task:
    request: CompileRequest
    keep: Callable[[CompiledObject], None]
    future: Future[CompiledObject]
    is_ahead: bool


class _Child:
    """One running compiler process."""

    def __init__(self) -> None:
        # Numba's own settings must not change what is stored under a key that does not hold them.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
        environment["NUMBA_DISABLE_INTEL_SVML"] = "1"
        self._log = _log_file()
        try:
            self._process = child_processes.start(self._log, environment)
        except OSError:
            self._log.close()
            raise

    def be_ready(self) -> None:
        """Wait until it has finished its imports; raises OSError if the process has died."""
        self._ask({"shared_above": SHARED_ABOVE})

    def compile(self, request: CompileRequest) -> CompiledObject:
        """Compile a kernel; raises `CompileError` if it is refused, OSError if the process has died."""
        reply = self._ask(vars(request))
        if "error" in reply:
            raise CompileError(reply["error"])
        return CompiledObject(base64.b64decode(reply["object"]), tuple(reply["externals"]))

    def _ask(self, message: Mapping[str, object]) -> dict[str, Any]:
        child_processes.send(self._process, message)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise OSError(self._last_words())
        try:
            reply: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise OSError(f"the compiling process answered {line[:200]!r}") from error
        return reply

    def _last_words(self) -> str:
        try:
            self._log.seek(0)
            text = self._log.read().decode(errors="replace").strip()
        except ValueError:
            text = "it was closed"  # by another thread, as the program ends
        return f"the compiling process ended with status {self._process.wait()}: {text[-2000:]}"

    def close(self) -> None:
        child_processes.end(self._process)
        self._log.close()


class CompilePool:
    """Compiles kernels in up to `limit` child processes (default: one per core), started on demand.

    Where a game was left a core (`reserve_core`) there is one less, until `start_more_children`.

    in_process: compile on this process's thread instead, which holds the GIL; for tests and frozen programs.
    """

    def __init__(self, limit: int | None = None, in_process: bool = False) -> None:
        self._cores = max(1, limit if limit is not None else os.cpu_count() or 1)
        self._limit = self._hurried = self._cores
        self._in_process = in_process or not child_processes.can_start()
        # The first call holds a lock, which a fork of this process would never see free again.
        with contextlib.suppress(OSError):
            tempfile.gettempdir()
        self.forget()

    def forget(self) -> None:
        """Forget all work and processes, as after a fork."""
        self._tasks: list[_Task] = []
        self._changed = threading.Condition()
        self._unfinished = 0
        self._threads = 0
        self._children: set[_Child] = set()
        self._closing = threading.Event()
        weakref.finalize(self, _close_children, self._children, self._closing)

    @property
    def is_compiling(self) -> bool:
        """Whether kernels are being compiled in the background."""
        return not self._in_process

    def submit(
        self,
        request: CompileRequest,
        keep: Callable[[CompiledObject], None],
        is_ahead: bool = False,
        is_urgent: bool = True,
    ) -> Future[CompiledObject]:
        """Starts compiling; the future raises `CompileError`.

        keep: called with the object before the future is done, on the thread that waited for it. is_ahead:
        behind what others submit, as nobody waits for it yet. is_urgent: worth more than one child.
        """
        future: Future[CompiledObject] = Future()
        if self._in_process:
            try:
                result = compile_here(request)
                keep(result)
                future.set_result(result)
            except CompileError as error:
                future.set_exception(error)
            return future
        with self._changed:
            self._tasks.append(_Task(request, keep, future, is_ahead))
            self._unfinished += 1
            self._changed.notify()
            self._start(self._limit if is_urgent else 1)
        return future

    def prioritize(self, future: Future[CompiledObject]) -> None:
        """Raise the priority of precompiled kernels that are now waited for."""
        with self._changed:
            for task in self._tasks:
                if task.future is future:
                    task.is_ahead = False

    def reserve_core(self, always: bool = False) -> None:
        """From now on start one child process less, to leave a core to the frame.

        always: even where somebody waits, as the frames are those of another process.
        """
        self._limit = max(1, self._cores - 1)
        if always:
            self._hurried = self._limit

    def start_more_children(self) -> None:
        """Start more child processes for kernels that frames wait for."""
        with self._changed:
            self._start(self._hurried)

    def _start(self, limit: int) -> None:
        wanted = min(limit, 1 + self._unfinished // KERNELS_PER_CHILD) if self._unfinished else 0
        while self._threads < wanted:
            self._threads += 1
            threading.Thread(target=self._run, name="gameglue-compile", daemon=True).start()

    def _run(self) -> None:
        child: _Child | None = None
        with contextlib.suppress(OSError):  # the first task tries again, or is compiled in this process
            child = self._started()
        while (task := self._next_task()) is not None:
            try:
                child, result = self._compile(child, task.request)
                task.keep(result)
                task.future.set_result(result)
            except CompileError as error:
                task.future.set_exception(error)
            with self._changed:
                self._unfinished -= 1
        if child is not None:
            self._end(child)

    def _next_task(self) -> _Task | None:
        """The next task; None after a while without one, when this thread is to end."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._tasks, IDLE_SECONDS):
                self._threads -= 1
                return None
            task = next((task for task in self._tasks if not task.is_ahead), self._tasks[0])
            self._tasks.remove(task)
            return task

    def _started(self) -> _Child:
        child = _Child()
        self._children.add(child)
        try:
            child.be_ready()
        except OSError:
            self._end(child)
            raise
        return child

    def _end(self, child: _Child) -> None:
        self._children.discard(child)
        child.close()

    def _compile(self, child: _Child | None, request: CompileRequest) -> tuple[_Child | None, CompiledObject]:
        last_error: OSError | None = None
        for _ in range(2):
            try:
                if self._closing.is_set():
                    raise CompileError("the program is ending")
                if child is None:
                    child = self._started()
                return child, child.compile(request)
            except OSError as error:
                last_error = error
                if child is None:
                    return None, compile_here(request)
                self._end(child)
                child = None
        raise CompileError(str(last_error))


def _log_file() -> IO[bytes]:
    """The child's log file; discarded if there is no temporary directory."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return open(os.devnull, "w+b")


def _close_children(child_processes: set[_Child], closing: threading.Event) -> None:
    closing.set()
    for child in list(child_processes):
        child.close()


def compile_here(request: CompileRequest) -> CompiledObject:
    """Compiles on the calling thread."""
    # Numba takes a third of a second to import, and a warm start never gets here.
    from engine.device.native import compile as compiler

    with _in_process_lock:
        if not _in_process_compiler:
            _in_process_compiler.append(compiler.Compiler(SHARED_ABOVE))
        try:
            code, externals = _in_process_compiler[0].compile(**vars(request))
        except compiler.CompileFailure as error:
            raise CompileError(str(error)) from error
    return CompiledObject(code, tuple(externals))


_in_process_lock = threading.Lock()
_in_process_compiler: list[Any] = []
