"""Job systems, and native functions for their jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.device import native
from engine.device.jobs.system import JobSystem
from engine.device.native import NativeSource
from engine.device.native.prelude import PRELUDE

KERNELS = {
    # args: array of int64, amount, 0 or the grain that every chunk must start on a multiple of
    "add": """
def add(args, begin, end):
    grain = arg_i64(args, 2)
    for i in range(begin, end):
        wrong = grain > 0 and (begin % grain != 0 or end - begin > grain)
        atomic_add_i64(arg_i64(args, 0), i, -1000000 if wrong else arg_i64(args, 1))
""",
    # args: counter, first ticket, last ticket: the order in which things began and ended
    "stamp": """
def stamp(args, begin, end):
    counter = arg_i64(args, 0)
    store_i64(arg_i64(args, 1), 0, atomic_add_i64(counter, 0, 1))
    store_i64(arg_i64(args, 2), 0, atomic_add_i64(counter, 0, 1))
""",
    # args: source, destination, length: each element the sum of its neighbours
    "blur": """
def blur(args, begin, end):
    a, n = arg_i64(args, 0), arg_i64(args, 2)
    for i in range(begin, end):
        store_i64(arg_i64(args, 1), i, load_i64(a, (i + n - 1) % n) + load_i64(a, (i + 1) % n))
""",
    # args: how many pauses
    "pause": """
def pause(args, begin, end):
    for _ in range(arg_i64(args, 0)):
        cpu_pause()
""",
    # args: a counter; two chunks wait for each other, so that two threads must take them
    "meet": """
def meet(args, begin, end):
    met = (atomic_add_i64(arg_i64(args, 0), 0, 1) // 2 + 1) * 2
    while atomic_load_i64(arg_i64(args, 0), 0) < met:
        cpu_pause()
""",
    # args: a result, and how long to work for it
    "burn": """
def burn(args, begin, end):
    value = 0.0
    for i in range(arg_i64(args, 1) * (end - begin)):
        value = value * 0.999 + i
    store_f64(arg_i64(args, 0), 0, value)
""",
}


@pytest.fixture(scope="module")
def functions() -> dict[str, int]:
    sources = {name: NativeSource(name, PRELUDE + text, name) for name, text in KERNELS.items()}
    addresses = native.process_store().load(list(sources.values()))
    return {name: addresses[source.key] for name, source in sources.items()}


@pytest.fixture(params=["1 thread", "4 threads", "4 threads, no spin", "2 threads, polling"])
def system(request: pytest.FixtureRequest) -> Iterator[JobSystem]:
    """Every way to run jobs; more threads than cores bring out races."""
    threads = int(request.param[0])
    spin = 0 if "no spin" in request.param else None
    with JobSystem(threads, spin=spin, waiting="poll" if "polling" in request.param else None) as jobs:
        yield jobs


@pytest.fixture
def pair() -> Iterator[JobSystem]:
    with JobSystem(2) as jobs:
        yield jobs
