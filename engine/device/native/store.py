"""The store of native code: from kernel source to function addresses, without numba when cached.

Each kernel's object code is kept in a file of a per-user cache folder, named after a key made of the complete
source (prelude included), this CPU, and the versions of the compilers. A warm `load` reads the files and
links them with llvmlite in well under a millisecond each. What the cache lacks is taken from the package
(`engine.device.native.prebuilt`), and compiled for this very processor a while later, in the background. What
neither has compiles in child processes (`engine.device.native.pool`), so that a game in the meantime loses no
frame; `prepare_async` starts that and returns.

Environment: GAMEGLUE_CACHE_DIR moves the cache (`engine.base.cache`); GAMEGLUE_COMPILE=inline compiles in
this process; GAMEGLUE_PREBUILT=off leaves the package's objects aside.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from engine.base.cache import cache_dir, read_sealed, write_sealed
from engine.base.errors import KernelCompileError
from engine.base.versions import version_text
from engine.device.native import child_processes
from engine.device.native.pool import CompiledObject, CompileError, CompilePool, CompileRequest
from engine.device.native.prebuilt import ABI, PrebuiltObjects, prebuilt_objects, symbol_of
from engine.device.native.prelude import SHARED_ABOVE, written_out

# Addresses of code are plain numbers in command lists and threads: no code is ever unloaded.
_engines: list[Any] = []
_MAGIC = b"GGOBJ1\n"

IMPROVE_AFTER = 5.0
"""Seconds after a kernel was taken from the package: then a worker is likely to be made, and a game's first
frames to be drawn.
"""
_COMPILER_FILE = Path(__file__).with_name("compile.py")
_READ_ARGUMENT = re.compile(r"\barg_[if]64\(args, (\d+)\)")


def _compiler() -> tuple[str, int]:
    """A digest of the program that compiles, and when it was changed last."""
    try:
        return hashlib.sha256(_COMPILER_FILE.read_bytes()).hexdigest(), _COMPILER_FILE.stat().st_ctime_ns
    except OSError:
        return "", 0


# Now, and not when a key is first needed: the file may change under a running process.
_COMPILER = _compiler()


@dataclass(frozen=True)
class NativeSource:
    """A kernel's source: the text of a Python module, its function, and numba's signature.

    The text may begin with lines that stand for others (`engine.device.native.prelude.shared`); see
    `whole_text`.

    Kernels that a job runs have the signature `void(int64, int64, int64)` (see
    `engine.device.native.prelude`). The text may use njit helpers and intrinsics. The code must not be able
    to raise, allocate arrays or touch Python objects.
    """

    name: str
    source: str
    entry: str
    signature: str = "void(int64, int64, int64)"

    @cached_property
    def key(self) -> str:
        """A machine-independent key: a hash of the text, calling convention and compiler."""
        parts = (str(ABI), _COMPILER[0], self.entry, self.signature, self.source)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @cached_property
    def words(self) -> int:
        """The least number of argument words, as far as the text reads them individually."""
        return max((int(place) + 1 for place in _READ_ARGUMENT.findall(self.source)), default=0)

    @property
    def whole_text(self) -> str:
        """The complete text of the module."""
        return written_out(self.source)


def _symbol(key: str) -> str:
    """The symbol that an object file compiled here exports."""
    return f"gameglue_{key[:40]}"


class PendingLoad:
    """Kernels being loaded: poll `done()` or `progress`; `result()` returns their addresses."""

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
    def missing(self) -> int:
        """How many of the kernels are not ready."""
        return sum(not future.done() for future in self._futures.values())

    @property
    def progress(self) -> tuple[int, int]:
        """How many of the kernels are ready, and how many there are."""
        total = len({source.key for source in self._sources})
        return total - self.missing, total

    def result(self, progress: Callable[[int, int], None] | None = None) -> dict[str, int]:
        """Wait for the rest; returns function addresses by key.

        progress: called on this thread with (ready, total) now and after each kernel.
        Raises `KernelCompileError` with the numbered source of the first kernel that was refused.
        """
        if progress is not None:
            progress(*self.progress)
        while pending := [future for future in self._futures.values() if not future.done()]:
            if threading.current_thread() is threading.main_thread():
                self._store.pool.start_more_children()
                child_processes.let_go()
            wait(pending, return_when=FIRST_COMPLETED)
            if progress is not None:
                progress(*self.progress)
        return self._store._link(self._sources, self._futures)


class NativeStore:
    """Object code in one folder, and the part that this process has linked. Thread-safe."""

    def __init__(
        self, folder: Path | None, pool: CompilePool, prebuilt: PrebuiltObjects | None = None
    ) -> None:
        """`folder` is None where nothing is kept between runs, `prebuilt` what the package brings along."""
        self.folder = folder
        self.pool = pool
        self.prebuilt = prebuilt
        self._addresses: dict[str, int] = {}
        self._begin_anew()
        self._engine: Any = None
        self._compilations = 0
        _stores.add(self)

    def forget(self) -> None:
        """Forget pending kernels, as after a fork."""
        self._begin_anew()
        self.pool.forget()

    def _begin_anew(self) -> None:
        self._lock = threading.RLock()
        self._in_flight: dict[str, Future[CompiledObject]] = {}
        # Kernels that were taken from the package, and those of them that were compiled since.
        self._to_improve: list[NativeSource] = []
        self._improving: dict[str, Future[CompiledObject]] = {}

    @property
    def compilations(self) -> int:
        """How many kernels this store had to compile, refused ones included."""
        return self._compilations

    def load(
        self, sources: Sequence[NativeSource], progress: Callable[[int, int], None] | None = None
    ) -> dict[str, int]:
        """Return function addresses by key; compiles what is missing and waits."""
        addresses = self._addresses
        if self._improving:
            with self._lock:
                self._link_improved()
        if progress is None and all(source.key in addresses for source in sources):
            return {source.key: addresses[source.key] for source in sources}
        return self.prepare_async(sources).result(progress)

    def address(self, source: NativeSource) -> int:
        """The function address of one source; waits if it must be compiled."""
        return self.load([source])[source.key]

    def prepare_async(self, sources: Sequence[NativeSource]) -> PendingLoad:
        """Start compiling what the cache lacks, without waiting."""
        return self._begin(sources, is_ahead=False)

    def prepare_ahead(self, sources: Sequence[NativeSource]) -> None:
        """Like `prepare_async`, for kernels that are likely to be needed soon; at lower priority.

        Does nothing where that would take time of this process.
        """
        if self.pool.is_compiling:
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
                    self.pool.prioritize(future)
                futures[source.key] = future
        return PendingLoad(self, tuple(sources), futures)

    def load_stored(self, words: Mapping[str, int]) -> dict[str, int] | None:
        """Key -> function address of cached kernels; None if one is no longer cached.

        For callers that know the keys and not the sources. What the package has counts only where nothing
        better is compiled in the background, as that takes the sources.

        Args:
            words: by key, how many words of arguments a kernel is called with, 0 where that is not known. One
                that reads more is not loaded.
        """
        keys = list(words)
        with self._lock:
            read: dict[str, CompiledObject] = {}
            for key, given in words.items():
                if key not in self._addresses:
                    compiled = _read_object(self.path(key), key, given)
                    if compiled is None and not self.pool.is_compiling:
                        compiled = self._from_package(key, given)
                    if compiled is None or self._missing(compiled):
                        return None
                    read[key] = compiled
            for compiled in read.values():
                self._engine.add_object_file(llvm.ObjectFileRef.from_data(compiled.code))
            self._look_up_addresses({key: compiled.is_prebuilt for key, compiled in read.items()})
            return {key: self._addresses[key] for key in keys}

    def _from_package(self, key: str, words: int) -> CompiledObject | None:
        """The package's object; None if it has none, or one that reads more words."""
        found = None if self.prebuilt is None else self.prebuilt.get(key)
        if found is None or (words and found.words > words):
            return None
        return CompiledObject(found.code, found.externals, is_prebuilt=True)

    def _missing(self, compiled: CompiledObject) -> list[str]:
        """Symbols that the process lacks: MCJIT ends it when one is missing, so ask first."""
        # Creating the engine is what lets LLVM see the process's libraries.
        if self._engine is None:
            self._engine = _create_engine()
        return [name for name in compiled.externals if not llvm.address_of_symbol(name)]

    def _look_up_addresses(self, are_prebuilt: Mapping[str, bool]) -> None:
        """The addresses of kernels whose objects were added, by key whether those are the package's."""
        if are_prebuilt:
            self._engine.finalize_object()
            for key, is_prebuilt in are_prebuilt.items():
                symbol = symbol_of(key) if is_prebuilt else _symbol(key)
                self._addresses[key] = self._engine.get_function_address(symbol)

    def path(self, key: str) -> Path | None:
        """The file of one kernel's object code."""
        return None if self.folder is None else self.folder / f"{key}-{_this_machine()}.o"

    def is_kept(self, source: NativeSource) -> bool:
        """Whether the kernel is cached, judged by the file's name."""
        path, prebuilt = self.path(source.key), self.prebuilt
        is_here = source.key in self._addresses or (path is not None and path.is_file())
        return is_here or (prebuilt is not None and source.key in prebuilt)

    def _read_or_compile(self, source: NativeSource, is_ahead: bool) -> Future[CompiledObject]:
        stored = _read_object(self.path(source.key), source.key, source.words)
        if stored is None:
            stored = self._from_package(source.key, 0)
            if stored is not None:
                self._improve_later(source)
        if stored is not None:
            future: Future[CompiledObject] = Future()
            future.set_result(stored)
            return future
        self._compilations += 1
        return self._compile(source, is_ahead)

    def _compile(
        self, source: NativeSource, is_ahead: bool, is_urgent: bool = True
    ) -> Future[CompiledObject]:
        request = CompileRequest(
            source.name, source.whole_text, source.entry, source.signature, _symbol(source.key)
        )
        keep = functools.partial(_write_object, self.path(source.key), source)
        return self.pool.submit(request, keep, is_ahead, is_urgent)

    # Kernels of the package, compiled again for this very processor

    def _improve_later(self, source: NativeSource) -> None:
        """Have a kernel compiled in a while, with those that are taken from the package until then."""
        if not self.pool.is_compiling:
            return
        if not self._to_improve:
            timer = threading.Timer(IMPROVE_AFTER, self.improve)
            timer.daemon = True
            timer.start()
        self._to_improve.append(source)

    def improve(self) -> None:
        """Start compiling kernels that were taken from the package; later loads get the results."""
        with self._lock:
            for source in self._to_improve:
                self._improving[source.key] = self._compile(source, is_ahead=True, is_urgent=False)
            self._to_improve.clear()

    def _link_improved(self) -> None:
        """Link finished kernels of `_improving`; called with the lock held."""
        done = {key: future for key, future in self._improving.items() if future.done()}
        found: list[str] = []
        for key, future in done.items():
            del self._improving[key]
            # One that cannot be compiled here stays what it is.
            if future.exception() is None and not self._missing(future.result()):
                self._engine.add_object_file(llvm.ObjectFileRef.from_data(future.result().code))
                found.append(key)
        self._look_up_addresses(dict.fromkeys(found, False))

    def _link(
        self, sources: Sequence[NativeSource], futures: dict[str, Future[CompiledObject]]
    ) -> dict[str, int]:
        by_key = {source.key: source for source in sources}
        with self._lock:
            linked: dict[str, bool] = {}
            try:
                for key, future in futures.items():
                    if key not in self._addresses:
                        linked[key] = self._add(by_key[key], future).is_prebuilt
            finally:
                for key in futures:
                    self._in_flight.pop(key, None)
                self._look_up_addresses(linked)
            return {key: self._addresses[key] for key in by_key}

    def _add(self, source: NativeSource, future: Future[CompiledObject]) -> CompiledObject:
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
        return compiled


_stores: weakref.WeakSet[NativeStore] = weakref.WeakSet()


def _forget_all() -> None:
    for store in _stores:
        store.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


@functools.cache
def process_store() -> NativeStore:
    """The store that linked code is shared through: one per process, as machine code cannot be unloaded."""
    in_process = os.environ.get("GAMEGLUE_COMPILE", "process") == "inline"
    return NativeStore(cache_dir("native"), CompilePool(in_process=in_process), prebuilt_objects())


@functools.cache
def machine_identity() -> str:
    """Identifies the CPU and the compilers' versions, for cache keys of compiled code."""
    return "\0".join(
        (
            _COMPILER[0],
            llvm.get_process_triple(),
            llvm.get_host_cpu_name(),
            llvm.get_host_cpu_features().flatten(),
            version_text("numba"),
            version_text("llvmlite"),
            platform.python_version(),
        )
    )


@functools.cache
def _this_machine() -> str:
    """A digest of `machine_identity`, for the names of files."""
    return hashlib.sha256(machine_identity().encode()).hexdigest()[:16]


def _create_engine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    _engines.append(engine)
    return engine


def _read_object(path: Path | None, key: str, words: int) -> CompiledObject | None:
    """The stored object; None if the file is missing, damaged, of another kernel or reads more words."""
    body = read_sealed(path, _MAGIC)
    if body is None:
        return None
    head, _, code = body.partition(b"\n")
    try:
        header = json.loads(head)
        is_right = header["key"] == key and (not words or header.get("words", 0) <= words)
        return CompiledObject(code, tuple(map(str, header["externals"]))) if is_right else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _write_object(path: Path | None, source: NativeSource, compiled: CompiledObject) -> None:
    if _compiler() != _COMPILER:
        return  # what compiled it is not what its key says
    head = json.dumps({"key": source.key, "words": source.words, "externals": compiled.externals}).encode()
    write_sealed(path, _MAGIC, head + b"\n" + compiled.code)


def _numbered(source: str) -> str:
    """The text with the line numbers of messages, without shared text."""
    shared, mark, text = source.rpartition(SHARED_ABOVE)
    lines = enumerate(text.splitlines(), (shared + mark).count("\n") + 1)
    return "\n".join(f"{number:4} | {line}" for number, line in lines)
