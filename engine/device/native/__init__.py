"""Native code from kernel source: cached on disk, compiled in child processes."""

from engine.device.native.store import NativeSource as NativeSource
from engine.device.native.store import NativeStore as NativeStore
from engine.device.native.store import PendingLoad as PendingLoad
from engine.device.native.store import compilations as compilations
from engine.device.native.store import is_kept as is_kept
from engine.device.native.store import leave_a_core as leave_a_core
from engine.device.native.store import load as load
from engine.device.native.store import load_stored as load_stored
from engine.device.native.store import machine_identity as machine_identity
from engine.device.native.store import prepare_ahead as prepare_ahead
from engine.device.native.store import prepare_async as prepare_async
