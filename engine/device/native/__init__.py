"""Native code from kernel source: cached on disk, compiled in child processes."""

from engine.device.native.store import NativeSource as NativeSource
from engine.device.native.store import NativeStore as NativeStore
from engine.device.native.store import PendingLoad as PendingLoad
from engine.device.native.store import machine_identity as machine_identity
from engine.device.native.store import process_store as process_store
