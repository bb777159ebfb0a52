"""Native code from kernel source: cached on disk, compiled in child processes."""

from engine.device.native.store import (
    NativeSource,
    NativeStore,
    PendingLoad,
    compilations,
    is_kept,
    leave_a_core,
    load,
    load_stored,
    machine_identity,
    prepare_ahead,
    prepare_async,
)

__all__ = [
    "NativeSource",
    "NativeStore",
    "PendingLoad",
    "compilations",
    "is_kept",
    "leave_a_core",
    "load",
    "load_stored",
    "machine_identity",
    "prepare_ahead",
    "prepare_async",
]
