"""Finds kernels of the CPU backend that write beside their memory, or read what nobody wrote.

With GAMEGLUE_GUARDS=on in the environment, every allocation lies between bytes that must stay as they are,
and so does every temporary of a plan, which then shares memory with no other. Temporaries and the bytes
around allocations begin as NaN, so that an answer that depends on them shows. Every test checks as it ends:

    GAMEGLUE_GUARDS=on python -m pytest tests/engine/operators -k cpu
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engine.backends.cpu import backend as cpu
from engine.backends.cpu.execution import template
from engine.base.memory import aligned

WANTED = os.environ.get("GAMEGLUE_GUARDS") == "on"
GUARD = 0xFF
"""The value of each guarding byte: as float16, bfloat16, float32 and float64 it is NaN."""


@dataclass(frozen=True)
class Guarded:
    """A block of bytes, and which of its ranges may be written."""

    block: np.ndarray
    ranges: tuple[tuple[int, int], ...]

    def overwritten(self) -> list[int]:
        """Offsets of guarding bytes that have changed."""
        changed = self.block != GUARD
        for start, end in self.ranges:
            changed[start:end] = False
        return [int(i) for i in np.flatnonzero(changed)]


_guarded: list[Guarded] = []


def _on_cache_line(block: np.ndarray, size: int) -> np.ndarray:
    """As `aligned.on_cache_line`, of a block of its own with guards on both sides."""
    before, behind = aligned.ALIGNMENT, aligned.SLACK
    held = np.full(size + 2 * before + behind, GUARD, np.uint8)
    skip = -aligned.address_of(held) % aligned.ALIGNMENT + before
    held[skip : skip + size] = block[:size]
    _guarded.append(Guarded(held, ((skip, skip + size),)))
    return held[skip : skip + size]


def _place(
    sizes: Mapping[str, int], lifetimes: Mapping[str, tuple[int, int]], alignment: int
) -> tuple[dict[str, int], int]:
    """As `place`, where nothing is shared and guards lie in between; notes the ranges for `_arena_of`."""
    offsets, end = {}, aligned.SLACK
    for name in lifetimes:
        if name in sizes:
            offsets[name] = end
            end += -(-sizes[name] // alignment) * alignment + aligned.SLACK
    _places.append(tuple((start, start + sizes[name]) for name, start in offsets.items()))
    return offsets, end


_places: list[tuple[tuple[int, int], ...]] = []


def _arena_of(backend: cpu.CPUBackend, size: int) -> np.ndarray:
    """An arena for one plan, whose temporaries may be written; all of it if the plan has symbolic sizes."""
    held = np.full(size + aligned.ALIGNMENT + aligned.SLACK, GUARD, np.uint8)
    skip = -aligned.address_of(held) % aligned.ALIGNMENT
    ranges = _places.pop() if _places else ((0, size),)
    _guarded.append(Guarded(held, tuple((skip + start, skip + end) for start, end in ranges)))
    return held[skip : skip + size]


def install() -> None:
    """Guard what is allocated from now on."""
    aligned.on_cache_line = _on_cache_line
    template.assign_offsets = _place
    cpu.CPUBackend.arena_of = _arena_of  # type: ignore[assignment,method-assign]
    # Their temporaries share slots, which have no guards between them.
    cpu.CPUBackend.plans_for_all_sizes = False


def check() -> None:
    """Fail where a guard was overwritten; forgets what nobody else holds any more."""
    broken = [(g, found) for g in _guarded if (found := g.overwritten())]
    # The list's, this loop's and the call's own are three; views hold the block, too.
    kept = [g for g in _guarded if sys.getrefcount(g.block) > 2]
    _guarded[:] = [] if broken else kept
    for guarded, found in broken:
        raise AssertionError(
            f"a kernel wrote {len(found)} bytes at {found[:8]}... beside what lies at {guarded.ranges[:8]}"
        )
