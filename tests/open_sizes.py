"""Sets of sizes for a model's dynamic dimensions: likely ones, and those on either side of every guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import combinations, pairwise

import numpy as np

from engine import Worker
from engine.base.errors import EngineError
from engine.runtime.plans.plan_requests import InputsRequest

SMALL = (0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 23, 31, 32, 33, 47, 63, 64, 65, 97, 127, 128, 129)
"""0 and 1, primes, and powers of two with their neighbours."""

Feeds = dict[str, np.ndarray]
Sizes = dict[object, int]


def open_sizes(worker: Worker, feeds: Mapping[str, np.ndarray]) -> Sizes:
    """The sizes of a model's dynamic dimensions in some inputs."""
    found: Sizes = {}
    for item in worker.model.inputs:
        for axis, dim in enumerate(item.shape or ()):
            if not isinstance(dim, int):
                found[(item.name, axis) if dim is None else dim] = feeds[item.name].shape[axis]
    return found


def resized(worker: Worker, feeds: Mapping[str, np.ndarray], sizes: Sizes) -> Feeds:
    """Inputs of other sizes, made of the same elements."""
    found = {}
    for item in worker.model.inputs:
        shape = [
            dim if isinstance(dim, int) else sizes[(item.name, axis) if dim is None else dim]
            for axis, dim in enumerate(item.shape or ())
        ]
        given = feeds[item.name]
        found[item.name] = np.resize(given, shape) if given.size else np.zeros(shape, given.dtype)
    return found


def sets_of_sizes(
    worker: Worker, feeds: Mapping[str, np.ndarray], count: int, rng: np.random.Generator
) -> Iterator[Sizes]:
    """So many sets: each dimension by itself at first, then both sides of guards, then any mixture.

    Guards are those of the plans that the worker has when they are reached.
    """
    base = open_sizes(worker, feeds)
    near = {key: sorted({*SMALL, *(max(0, size + n) for n in (-1, 0, 1))}) for key, size in base.items()}
    left, seen = count, set[tuple[int, ...]]()

    def new(sizes: Sizes) -> bool:
        nonlocal left
        if left <= 0 or (key := tuple(sizes.values())) in seen:
            return False
        seen.add(key)
        left -= 1
        return True

    one_each = [{**base, key: size} for key, sizes in near.items() for size in sizes]
    for place in rng.permutation(len(one_each))[: count // 2]:
        if new(one_each[place]):
            yield one_each[place]
    for key, sizes in near.items():
        for pair in pairwise(sizes):
            for edge in _edges(partial(_takers_at, worker, feeds, base, key), *pair):
                if new({**base, key: edge}):
                    yield {**base, key: edge}
    sums = _sums(base)
    for _ in range(20 * count):
        # Some sizes of a model are fixed although it does not say so, and some are sums of others.
        changed = {key: int(rng.choice(sizes)) for key, sizes in near.items() if rng.random() < 0.7}
        mixture = {**base, **changed}
        if sums and rng.random() < 0.7:
            total, first, second = sums[rng.integers(len(sums))]
            mixture[total] = mixture[first] + mixture[second]
        if new(mixture):
            yield mixture


def _sums(base: Sizes) -> list[tuple[object, object, object]]:
    """Dimensions whose size is a sum of two others': all tokens, of those in a cache and new ones."""
    return [
        (total, first, second)
        for first, second in combinations(base, 2)
        for total in base
        if total not in (first, second) and base[total] == base[first] + base[second]
    ]


def _takers_at(
    worker: Worker, feeds: Mapping[str, np.ndarray], base: Sizes, key: object, size: int
) -> tuple[bool, ...]:
    """Which of the worker's plans take some sizes, one of them changed."""
    sizes = {**base, key: size}
    plans = worker._session.symbolic_plans
    shapes = {name: array.shape for name, array in resized(worker, feeds, sizes).items()}
    given = InputsRequest(worker._session, shapes, {}).given
    if given is None:
        return ()
    return tuple(
        plan.accepts(given.numbers) for plan in plans.ready if len(plan.record.inputs) == len(given.numbers)
    )


def _edges(takers: Callable[[int], tuple[bool, ...]], low: int, high: int) -> Iterator[int]:
    """Both sides of a change between two sizes, if there is one."""
    first, last = takers(low), takers(high)
    if first == last:
        return
    while high - low > 1:
        middle = (low + high) // 2
        if takers(middle) == first:
            low = middle
        else:
            high = middle
    yield from (low, high)


def answers(worker: Worker, feeds: Feeds) -> list[np.ndarray] | type[EngineError]:
    """The outputs, or the type of the error that the inputs end in."""
    try:
        worker.schedule(feeds)
        return [worker.peek_output(item.name).download_to_array() for item in worker.model.outputs]
    except EngineError as error:
        return type(error)


def check_sizes(worker: Worker, apart: Worker, feeds: Feeds, count: int, seed: int) -> int:
    """Compare a worker with one that plans all sizes for themselves, to the bit; how many it answered."""
    answered = 0
    for sizes in sets_of_sizes(worker, feeds, count, np.random.default_rng(seed)):
        given = resized(worker, feeds, sizes)
        expected, found = answers(apart, given), answers(worker, given)
        if isinstance(expected, type) or isinstance(found, type):
            assert found is expected, sizes
            continue
        answered += 1
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=str(sizes))
    return answered


def plan_statically(worker: Worker) -> Worker:
    """Have a worker plan each set of sizes for itself."""
    session = worker._session
    session.symbolic_plans.release()
    session.backends["native"].plans_for_all_sizes = False  # type: ignore[misc]
    return worker
