"""Cached results of running a small test kernel, by device and driver."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass

from engine.base.cache import cache_file, read_sealed, write_sealed

_FORM = b"gameglue probe 1\n"
_SECONDS = struct.Struct("<d")


@dataclass(frozen=True)
class Probe:
    """Whether a kernel was compiled, run and read back on a device, and how fast it ran (OpenCL)."""

    problem: str = ""
    """Why not; empty if it gave the right numbers."""
    seconds: float = 0.0
    """The best time of a few runs; 0 where it failed or was not timed."""

    @property
    def runs(self) -> bool:
        """Whether kernels run on the device."""
        return not self.problem


_known: dict[tuple[str, ...], Probe] = {}


def probed(key: tuple[str, ...], attempt: Callable[[], Probe]) -> Probe:
    """The result of `attempt`, made once for a key that names the device and all versions of its driver.

    A success is stored for later processes. A failure is tried again by each, as what caused it may be gone:
    a missing library, a full disk.
    """
    found = _known.get(key)
    if found is None:
        found = _stored(key)
        if found is None:
            found = attempt()
            if found.runs:
                write_sealed(cache_file("probes", _name(key)), _FORM, _SECONDS.pack(found.seconds))
        _known[key] = found
    return found


def _stored(key: tuple[str, ...]) -> Probe | None:
    body = read_sealed(cache_file("probes", _name(key)), _FORM)
    if body is None or len(body) != _SECONDS.size:
        return None
    return Probe(seconds=_SECONDS.unpack(body)[0])


def _name(key: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(key).encode()).hexdigest()
