"""The processor: cores, name, vector units."""

from __future__ import annotations

import functools
import os
import platform
import sys

# What inference kernels look for, in the spelling of Linux.
_CPU_FEATURES = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx_vnni",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_tile",
    "asimd",
    "sve",
)


def cpu_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name() -> str:
    """The name that its maker gave it; for virtual machines it may name a whole family."""
    name = _cpuinfo().get("model name") or platform.processor() or platform.machine()
    return name.strip()


def cpu_model() -> str:
    """A string that distinguishes processor models, even those with equal names."""
    fields = _cpuinfo()
    numbers = [fields[name] for name in ("cpu family", "model", "CPU part") if name in fields]
    return " ".join([cpu_name(), platform.machine(), *numbers])


def cpu_features() -> tuple[str, ...]:
    """The relevant features of this CPU; empty if the system does not report them."""
    fields = _cpuinfo()
    present = set((fields.get("flags") or fields.get("Features") or "").split())
    return tuple(feature for feature in _CPU_FEATURES if feature in present)


@functools.cache
def _cpuinfo() -> dict[str, str]:
    if not sys.platform.startswith("linux"):
        return {}
    fields: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                fields.setdefault(key.strip(), value.strip())
    except OSError:
        return {}
    return fields
