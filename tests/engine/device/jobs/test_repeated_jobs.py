"""Jobs that are queued again and again."""

from __future__ import annotations

import threading
import time
import weakref

import numpy as np
import pytest

from engine.base.errors import DisposedError
from engine.device.jobs.layout import LAYOUT
from engine.device.jobs.system import JobSystem
from tests.engine.device.jobs.gates import Gate
from tests.engine.device.jobs.test_system import command


def test_records_are_used_again(pair: JobSystem, functions: dict[str, int]) -> None:
    out = np.zeros(1, np.int64)
    add = command(functions["add"], out, 1, 0)
    for _ in range(3000):
        assert pair.submit(add).complete(20)
    assert out[0] == 3000
    # The system block and one block of records: 3000 jobs in sequence never need a second.
    assert len(pair._memory) == 2


def test_a_job_is_queued_again_and_again(system: JobSystem, functions: dict[str, int]) -> None:
    """By its own handle, with other jobs in between; nothing piles up."""
    out, other = np.zeros(1, np.int64), np.zeros(1, np.int64)
    add, add_other = command(functions["add"], out, 1, 0), command(functions["add"], other, 1, 0)
    job, others = system.submit_repeated(None, add), 0
    for turn in range(2000):
        assert job.handle.complete(20)
        assert out[0] == turn + 1
        if turn % 3 == 0:
            assert system.submit(add_other).complete(20)
        following = system.submit_repeated(job, add)
        others += following is not job  # where a thread has just looked at it
        job = following
    assert job.handle.complete(20)
    assert out[0] == 2001
    assert others < 2000
    assert len(system._live) < 50


def test_a_job_on_its_way_is_not_queued_again(system: JobSystem, functions: dict[str, int]) -> None:
    gate, out = Gate(), np.zeros(1, np.int64)
    job = system.submit_repeated(None, gate.commands)
    assert not job.handle.is_completed
    assert job.again() == 0
    following = system.submit_repeated(job, command(functions["add"], out, 1, 0))
    assert following is not job
    gate.open()
    assert job.handle.complete(20)
    assert following.handle.complete(20)
    assert out[0] == 1


def test_a_handle_that_somebody_keeps_is_of_one_run(system: JobSystem, functions: dict[str, int]) -> None:
    gate = Gate()
    gate.open()
    job = system.submit_repeated(None, gate.commands)
    kept = job.handle.pin_run()
    assert job.handle.complete(20)
    shut = Gate()
    following = system.submit_repeated(job, shut.commands)
    assert kept.is_completed
    assert not following.handle.is_completed
    shut.open()
    assert following.handle.complete(20)


def test_a_job_that_is_waited_for_is_not_queued_again(system: JobSystem, functions: dict[str, int]) -> None:
    out, gate = np.zeros(1, np.int64), Gate()
    job = system.submit_repeated(None, gate.commands)
    handle = job.handle
    waiting = threading.Thread(target=handle.complete)
    waiting.start()
    while handle._words[handle._base + LAYOUT["PINS"]] == 0:
        time.sleep(0.001)
    assert job.again() == 0
    gate.open()
    waiting.join(20)
    assert handle._words[handle._base + LAYOUT["PINS"]] == 0
    assert system.submit(command(functions["add"], out, 1, 0)).complete(20)


def test_a_repeated_job_runs_on_when_nobody_has_its_handle(
    system: JobSystem, functions: dict[str, int]
) -> None:
    out, gate = np.zeros(1, np.int64), Gate()
    add = command(functions["add"], out, 1, 0)
    held, flag = weakref.ref(gate), gate.flag
    system.submit_repeated(None, gate.commands, keep_alive=gate)
    del gate
    assert held() is not None
    flag[0] = 1
    for _ in range(300):
        system.submit_repeated(None, add).handle.complete(20)
    limit = time.monotonic() + 20
    while held() is not None and time.monotonic() < limit:
        system.submit(add).complete(20)
    assert held() is None
    assert len(system._memory) == 2


def test_a_closed_system_repeats_nothing(functions: dict[str, int]) -> None:
    out = np.zeros(1, np.int64)
    add = command(functions["add"], out, 1, 0)
    with JobSystem(1) as system:
        job = system.submit_repeated(None, add)
    assert out[0] == 1
    assert job.again() == 0
    with pytest.raises(DisposedError):
        system.submit_repeated(job, add)
    assert out[0] == 1
