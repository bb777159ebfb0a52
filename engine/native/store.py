"""The store of native code: kernel text in, function addresses out, without importing numba when warm.

Each kernel's object code is kept in a file of a per-user cache folder, under a key made of everything that
it depends on: its complete source (prelude included), this CPU, and the versions of the compilers. A warm
`load` reads the files and links them with llvmlite in well under a millisecond each. What is missing compiles
in child processes (`engine.native.pool`), so that a game in the meantime loses no frame; `prepare_async`
starts that and returns.

Environment: GAMEGLUE_CACHE_DIR moves the cache (`engine.cache`); GAMEGLUE_COMPILE=inline compiles in
this process.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from engine.cache import cache_dir, read_sealed, write_sealed
from engine.errors import KernelCompileError
from engine.native import children
from engine.native.pool import CompiledObject, CompileError, CompilePool, CompileRequest
from engine.native.prelude import SHARED_ABOVE, written_out

# Addresses of code are plain numbers in command lists and threads: no code is ever unloaded.
_engines: list[Any] = []
_MAGIC = b"GGOBJ1\n"


@dataclass(frozen=True)
class NativeSource:
    """One kernel: the text of a Python module, the function in it, and numba's signature for it.

    The text may begin with lines that stand for others (`engine.native.prelude.shared`); see `whole_text`.

    Kernels that a job runs have the signature `void(int64, int64, int64)` (see `engine.native.prelude`).
    The text may use njit helpers and intrinsics. The code must not be able to raise, allocate arrays or
    touch Python objects.
    """

    name: str
    source: str
    entry: str
    signature: str = "void(int64, int64, int64)"

    @cached_property
    def key(self) -> str:
        """What identifies the object code: a hash of the text, this CPU and the compilers' versions."""
        parts = (machine_identity(), self.entry, self.signature, self.source)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def whole_text(self) -> str:
        """The complete text of the module."""
        return written_out(self.source)

    @property
    def symbol(self) -> str:
        """The one name that the object file exports."""
        return _symbol(self.key)


def _symbol(key: str) -> str:
    return f"gameglue_{key[:40]}"


class PendingLoad:
    """Kernels on their way: poll `done()` or `progress`, then `result()` gives their addresses."""

    def __init__(
        self, store: NativeStore, sources: Sequence[NativeSource], futures: dict[str, Future[CompiledObject]]
    ) -> None:
        self._store = store
        self._sources = sources
        self._futures = futures

    def done(self) -> bool:
        """Whether `result()` would return at once."""
        return all(future.done() for future in self._futures.values())

    @property
    def progress(self) -> tuple[int, int]:
        """How many of the kernels are ready, and how many there are."""
        total = len({source.key for source in self._sources})
        return total - sum(not future.done() for future in self._futures.values()), total

    def result(self, progress: Callable[[int, int], None] | None = None) -> dict[str, int]:
        """Waits for the rest; returns key -> function address.

        progress: called on this thread with (ready, total) now and after each kernel.
        Raises `KernelCompileError` with the numbered source of the first kernel that was refused.
        """
        if progress is not None:
            progress(*self.progress)
        while pending := [future for future in self._futures.values() if not future.done()]:
            if threading.current_thread() is threading.main_thread():
                self._store.pool.hurry()
                children.let_go()
            wait(pending, return_when=FIRST_COMPLETED)
            if progress is not None:
                progress(*self.progress)
        return self._store._link(self._sources, self._futures)


class NativeStore:
    """Object code in one folder, and what this process has linked of it. Safe to use from any thread."""

    def __init__(self, folder: Path, pool: CompilePool) -> None:
        self.folder = folder
        self.pool = pool
        self._lock = threading.RLock()
        self._addresses: dict[str, int] = {}
        self._in_flight: dict[str, Future[CompiledObject]] = {}
        self._engine: Any = None
        self._compilations = 0
        _stores.add(self)

    def forget(self) -> None:
        """Wait for nothing that was on its way, as after a fork: it comes to the parent."""
        self._lock = threading.RLock()
        self._in_flight = {}
        self.pool.forget()

    @property
    def compilations(self) -> int:
        """How many kernels this store had to compile, refused ones included."""
        return self._compilations

    def load(
        self, sources: Sequence[NativeSource], progress: Callable[[int, int], None] | None = None
    ) -> dict[str, int]:
        """Key -> function address for every source; waits for what must be compiled."""
        addresses = self._addresses
        if progress is None and all(source.key in addresses for source in sources):
            return {source.key: addresses[source.key] for source in sources}
        return self.prepare_async(sources).result(progress)

    def prepare_async(self, sources: Sequence[NativeSource]) -> PendingLoad:
        """Starts compiling what the cache lacks, and returns at once."""
        return self._begin(sources, is_ahead=False)

    def prepare_ahead(self, sources: Sequence[NativeSource]) -> None:
        """The same for what is likely to be wanted soon, behind all that is.

        Does nothing where that would take time of this process.
        """
        if self.pool.is_beside:
            self._begin(sources, is_ahead=True)

    def _begin(self, sources: Sequence[NativeSource], is_ahead: bool) -> PendingLoad:
        futures: dict[str, Future[CompiledObject]] = {}
        with self._lock:
            for source in sources:
                if source.key in self._addresses or source.key in futures:
                    continue
                future = self._in_flight.get(source.key)
                if future is None:
                    future = self._read_or_compile(source, is_ahead)
                    self._in_flight[source.key] = future
                elif not (is_ahead or future.done()):
                    self.pool.is_wanted(future)
                futures[source.key] = future
        return PendingLoad(self, tuple(sources), futures)

    def load_stored(self, keys: Sequence[str]) -> dict[str, int] | None:
        """Key -> function address of kernels that were compiled before; None where one is not here any more.

        For those who know the keys and not the sources.
        """
        with self._lock:
            read: dict[str, CompiledObject] = {}
            for key in keys:
                if key not in self._addresses:
                    compiled = _read_object(self.folder / f"{key}.o", key)
                    if compiled is None or self._missing(compiled):
                        return None
                    read[key] = compiled
            for compiled in read.values():
                self._engine.add_object_file(llvm.ObjectFileRef.from_data(compiled.code))
            self._take_addresses(list(read))
            return {key: self._addresses[key] for key in keys}

    def _missing(self, compiled: CompiledObject) -> list[str]:
        """Symbols that the process lacks: MCJIT ends it when one is missing, so ask first."""
        # Creating the engine is what lets LLVM see the process's libraries.
        if self._engine is None:
            self._engine = _create_engine()
        return [name for name in compiled.externals if not llvm.address_of_symbol(name)]

    def _take_addresses(self, keys: Sequence[str]) -> None:
        if keys:
            self._engine.finalize_object()
            for key in keys:
                self._addresses[key] = self._engine.get_function_address(_symbol(key))

    def path(self, source: NativeSource) -> Path:
        """The file of one kernel's object code."""
        return self.folder / f"{source.key}.o"

    def is_kept(self, source: NativeSource) -> bool:
        """Whether the kernel was linked or compiled before, as far as a file's name tells."""
        return source.key in self._addresses or self.path(source).is_file()

    def _read_or_compile(self, source: NativeSource, is_ahead: bool) -> Future[CompiledObject]:
        stored = _read_object(self.path(source), source.key)
        if stored is not None:
            future: Future[CompiledObject] = Future()
            future.set_result(stored)
            return future
        self._compilations += 1
        request = CompileRequest(
            source.name, source.whole_text, source.entry, source.signature, source.symbol
        )
        keep = functools.partial(_write_object, self.path(source), source.key)
        return self.pool.submit(request, keep, is_ahead)

    def _link(
        self, sources: Sequence[NativeSource], futures: dict[str, Future[CompiledObject]]
    ) -> dict[str, int]:
        by_key = {source.key: source for source in sources}
        with self._lock:
            linked = []
            try:
                for key, future in futures.items():
                    if key not in self._addresses:
                        self._add(by_key[key], future)
                        linked.append(key)
            finally:
                for key in futures:
                    self._in_flight.pop(key, None)
                self._take_addresses(linked)
            return {key: self._addresses[key] for key in by_key}

    def _add(self, source: NativeSource, future: Future[CompiledObject]) -> None:
        try:
            compiled = future.result()
        except CompileError as error:
            raise KernelCompileError(
                f"kernel {source.name!r} ({source.entry}: {source.signature}) was refused:\n{error}\n"
                f"Its source:\n{_numbered(source.whole_text)}"
            ) from error
        if missing := self._missing(compiled):
            raise KernelCompileError(
                f"kernel {source.name!r} calls {', '.join(missing)}, which this process does not have; "
                f"write it out as arithmetic.\nIts source:\n{_numbered(source.whole_text)}"
            )
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(compiled.code))


_stores: weakref.WeakSet[NativeStore] = weakref.WeakSet()


def _forget_all() -> None:
    for store in _stores:
        store.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def load(
    sources: Sequence[NativeSource], progress: Callable[[int, int], None] | None = None
) -> dict[str, int]:
    """Key -> function address, through this process's store; see `NativeStore.load`."""
    return process_store().load(sources, progress)


def load_stored(keys: Sequence[str]) -> dict[str, int] | None:
    """Key -> function address of kernels compiled before; see `NativeStore.load_stored`."""
    return process_store().load_stored(keys)


def prepare_async(sources: Sequence[NativeSource]) -> PendingLoad:
    """Starts compiling what the cache lacks, through this process's store."""
    return process_store().prepare_async(sources)


def prepare_ahead(sources: Sequence[NativeSource]) -> None:
    """Starts compiling what is likely to be wanted soon; see `NativeStore.prepare_ahead`."""
    process_store().prepare_ahead(sources)


def is_kept(source: NativeSource) -> bool:
    """Whether the kernel was compiled before; see `NativeStore.is_kept`."""
    return process_store().is_kept(source)


def compilations() -> int:
    """How many kernels this process had to have compiled so far; a warm start leaves it at 0."""
    return process_store().compilations


def leave_a_core(always: bool = False) -> None:
    """Compile on one core less from now on, except, unless `always`, while the main thread waits for it."""
    process_store().pool.leave_a_core(always)


@functools.cache
def process_store() -> NativeStore:
    """The store that linked code is shared through: one per process, as machine code cannot be unloaded."""
    in_process = os.environ.get("GAMEGLUE_COMPILE", "process") == "inline"
    return NativeStore(cache_dir("native"), CompilePool(in_process=in_process))


@functools.cache
def machine_identity() -> str:
    """What compiled code depends on beside its source: this CPU, and the compilers' versions."""
    compiler_text = Path(__file__).with_name("compile.py")
    return "\0".join(
        (
            hashlib.sha256(compiler_text.read_bytes()).hexdigest() if compiler_text.is_file() else "",
            llvm.get_process_triple(),
            llvm.get_host_cpu_name(),
            llvm.get_host_cpu_features().flatten(),
            _version_text("numba"),
            _version_text("llvmlite"),
            platform.python_version(),
        )
    )


def _version_text(package: str) -> str:
    """A package's version without importing it.

    Its own version file is read first: `importlib.metadata` takes 20 ms to import and search, which is ten
    times what a whole warm load takes.
    """
    found = importlib.util.find_spec(package)
    if found is not None and found.origin is not None:
        version_file = Path(found.origin).with_name("_version.py")
        if version_file.is_file():
            return version_file.read_text(encoding="utf-8")
    return importlib.metadata.version(package)


def _create_engine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    _engines.append(engine)
    return engine


def _read_object(path: Path, key: str) -> CompiledObject | None:
    """The stored object, or None where the file is missing, damaged or of another kernel."""
    body = read_sealed(path, _MAGIC)
    if body is None:
        return None
    head, _, code = body.partition(b"\n")
    facts = json.loads(head)
    return CompiledObject(code, tuple(facts["externals"])) if facts["key"] == key else None


def _write_object(path: Path, key: str, compiled: CompiledObject) -> None:
    head = json.dumps({"key": key, "externals": compiled.externals}).encode()
    body = head + b"\n" + compiled.code
    write_sealed(path, _MAGIC, body)


def _numbered(source: str) -> str:
    """The text with line numbers, as messages count them; what kernels share is left out."""
    shared, mark, text = source.rpartition(SHARED_ABOVE)
    lines = enumerate(text.splitlines(), (shared + mark).count("\n") + 1)
    return "\n".join(f"{number:4} | {line}" for number, line in lines)
