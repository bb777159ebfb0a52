"""Finds sizes for a model's dynamic dimensions by trial.

A trial walks the model's shapes as far as they go. Where a layer refuses, it says which sizes do not fit and
which would (`ShapeError.size_conflicts`); sizes are corrected by that, and otherwise taken from what the
model
holds: shapes written into constants, windows, weights, attributes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import combinations
from typing import Protocol

import numpy as np

from engine.graph.model import Model

LADDER = (1, 64, 256, 16, 1024, 2, 3, 4, 5, 8, 32, 128, 512, 4096, 16_000)
"""Sizes that are tried for any model, the likely ones first."""

MOST_TRIALS = 600
"""Trials after which a search is given up."""

MOST_WORK = 100_000
"""Layers walked through, and tensors that they made, in all trials of a search."""

LARGEST = 1 << 20
"""No larger size is tried."""

LONGEST_SHAPE = 8
"""Constants of integers with more entries are no shapes."""

MOST_NUMBERS = 32
"""How many of a model's own numbers are tried as sizes, the most frequent first."""

MOST_SHAPES = 64
"""How many shapes in its constants are tried."""

Sizes = tuple[int, ...]


class Trial(Protocol):
    """The result of trying some sizes: layers reached, whether all, and the last one's refusal."""

    fits: bool
    size_conflicts: tuple[tuple[int, int], ...]
    steps: int
    """How many tensors its layers made."""

    @property
    def passed(self) -> int: ...


def find_sizes(model: Model, count: int, trial: Callable[[Sizes], Trial]) -> Sizes | None:
    """Sizes of `count` dynamic dimensions that the model accepts; None if none are found.

    Those that get furthest are changed first, and among them those with the fewest size_conflicts.
    """
    seen: set[Sizes] = set()
    waiting: list[tuple[int, int, int, Iterator[Sizes]]] = []
    numbers = _numbers(model)
    work = 0
    coming = (1, 0, 0, _starts(model, count))
    while True:
        furthest, size_conflicts, _, changes = coming
        is_start = furthest > 0
        for sizes in changes:
            if sizes in seen or max(sizes) > LARGEST:
                continue
            if len(seen) == MOST_TRIALS or work > MOST_WORK:
                return None
            seen.add(sizes)
            found = trial(sizes)
            if found.fits:
                return sizes
            work += found.passed + found.steps
            rank = (-found.passed, len(found.size_conflicts))
            if rank <= (furthest, size_conflicts):
                heappush(waiting, (*rank, len(seen), _changed(sizes, found.size_conflicts, numbers)))
            if rank < (furthest, size_conflicts) and not is_start:
                # What was left untried of these sizes comes later.
                heappush(waiting, coming)
                break
        if not waiting:
            return None
        coming = heappop(waiting)


def shrunk(sizes: Sizes, fits: Callable[[Sizes], bool]) -> Sizes:
    """Reduce each size as far as the model accepts."""
    for axis, size in enumerate(sizes):
        for other in sorted(n for n in LADDER if n < size):
            trial = (*sizes[:axis], other, *sizes[axis + 1 :])
            if fits(trial):
                sizes = trial
                break
    return sizes


def vary(sizes: Sizes, fits: Callable[[Sizes], bool]) -> list[Sizes]:
    """Sizes that a model accepts, and others with as many of them changed as possible."""
    changed = list(sizes)
    for axis, size in enumerate(sizes):
        for other in (size * (axis + 2), size + axis + 1, size * 2, 1):
            trial = (*changed[:axis], other, *changed[axis + 1 :])
            if other != size and fits(trial):
                changed[axis] = other
                break
    return [sizes] if tuple(changed) == sizes else [sizes, tuple(changed)]


def _starts(model: Model, count: int) -> Iterator[Sizes]:
    """All sizes alike; and sizes that stand beside one another in a constant."""
    yield from ((size,) * count for size in LADDER)
    shapes = {tuple(a.reshape(-1).tolist()) for a in _integers(model) if 1 < a.size <= LONGEST_SHAPE}
    for shape in sorted(shapes, key=lambda s: (len(s), s))[:MOST_SHAPES]:
        if count <= len(shape):
            yield from (chosen for chosen in combinations(shape, count) if min(chosen) > 0)


def _changed(
    sizes: Sizes, size_conflicts: Sequence[tuple[int, int]], numbers: Sequence[int]
) -> Iterator[Sizes]:
    """The sizes with one of them changed."""
    for has, needs in size_conflicts:
        for axis, size in enumerate(sizes):
            scaled = -(-size * needs // has) if has > 0 else needs
            for other in (needs, scaled, size + needs - has):
                if other > 0:
                    yield (*sizes[:axis], other, *sizes[axis + 1 :])
    for other in (*numbers, *LADDER):
        for axis in range(len(sizes)):
            yield (*sizes[:axis], other, *sizes[axis + 1 :])


def _integers(model: Model) -> Iterator[np.ndarray]:
    """Small constants of integers, those of `Constant` layers included."""
    for layer in model.walk():
        for array in (layer.attributes.get("value"), layer.attributes.get("value_ints")):
            if array is not None and np.asarray(array).dtype.kind == "i":
                yield np.asarray(array)
    for array in model.constants.values():
        if array.dtype.kind == "i" and array.size <= LONGEST_SHAPE:
            yield array


def _numbers(model: Model) -> list[int]:
    """Numbers in the model that may be sizes, the most frequent first."""
    found: Counter[int] = Counter()
    for array in _integers(model):
        found.update(array.reshape(-1).tolist())
    for layer in model.walk():
        for value in layer.attributes.values():
            found.update(n for n in (value if isinstance(value, tuple) else (value,)) if type(n) is int)
    found.update(n for array in model.constants.values() for n in array.shape)
    return [n for n, _ in found.most_common() if 1 < n <= LARGEST][:MOST_NUMBERS]
