"""Counters of a device's transfers and blocking calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class DeviceCounters:
    """Counters of a device's work since it was created or since `reset`."""

    blocking: Counter[str] = field(default_factory=Counter)
    """Calls of the engine that waited for the device, by name; only made on an explicit wait."""
    readbacks: int = 0
    uploads: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    switches: int = 0
    """Times the device's context was made current and the former one again."""

    def reset(self) -> None:
        """Reset all counters."""
        self.blocking.clear()
        self.readbacks = self.uploads = self.bytes_down = self.bytes_up = self.switches = 0
