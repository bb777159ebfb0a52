"""Timestamps against a context that is written here, whose clock and progress the test holds."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from engine.device.gl import timer_queries
from engine.device.gl.functions import GL
from engine.device.gl.timer_queries import GLTimer


class FakeGL:
    """Queries whose results come when the test says so; `ready` of them, in order."""

    def __init__(self) -> None:
        self.now = 500.0
        self.times: dict[int, float] = {}
        self.ready = 0
        self.order: list[int] = []
        self.alive: set[int] = set()
        self.too_early = 0

    def glGenQueries(self, count: int, names: Any) -> None:  # noqa: N802 - OpenGL's name
        for i in range(count):
            names[i] = len(self.alive) + 1
            self.alive.add(names[i])

    def glDeleteQueries(self, count: int, names: Any) -> None:  # noqa: N802
        self.alive -= set(names[:count])

    def glQueryCounter(self, query: int, target: int) -> None:  # noqa: N802
        assert target == GL.TIMESTAMP
        self.order.append(query)
        self.times[query] = self.now

    def glGetQueryObjectuiv(self, query: int, what: int, out: Any) -> None:  # noqa: N802
        assert what == GL.QUERY_RESULT_AVAILABLE
        flag = ctypes.cast(out, ctypes.POINTER(ctypes.c_uint))
        flag[0] = query in self.order[: self.ready]

    def glGetQueryObjectui64v(self, query: int, what: int, out: Any) -> None:  # noqa: N802
        assert what == GL.QUERY_RESULT
        self.too_early += query not in self.order[: self.ready]
        ctypes.cast(out, ctypes.POINTER(ctypes.c_uint64))[0] = round(self.times[query] * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the processor, to be set."""
    now = [10.0]
    monkeypatch.setattr(timer_queries, "perf_counter", lambda: now[0])
    return now


def test_times_are_told_when_they_have_come_and_not_before(clock: list[float]) -> None:
    gl = FakeGL()
    timer = GLTimer(gl)  # type: ignore[arg-type]
    told: list[list[float]] = []
    first = timer.stamp()
    gl.now, clock[0] = 500.002, 10.001
    timer.request((first, timer.stamp()), told.append)
    assert timer.collect() == 1
    gl.ready = 1
    assert timer.collect() == 1
    assert told == []
    gl.ready = 2
    assert timer.collect() == 0
    # The first stamp was issued at 10.0 and none may lie before its issue: that is where the clocks meet.
    assert told == [[pytest.approx(10.0), pytest.approx(10.002)]]
    assert gl.too_early == 0


def test_the_clocks_come_closer_with_every_stamp_that_was_not_late(clock: list[float]) -> None:
    gl = FakeGL()
    timer = GLTimer(gl)  # type: ignore[arg-type]
    told: list[list[float]] = []
    gl.now = 500.5  # half a second behind its issue
    timer.request((timer.stamp(),), told.append)
    gl.now, clock[0] = 501.0, 11.0
    timer.request((timer.stamp(),), told.append)
    gl.ready = 2
    timer.collect()
    assert told == [[pytest.approx(10.0)], [pytest.approx(11.0)]]
    gl.now, clock[0] = 502.25, 12.0
    timer.request((timer.stamp(),), told.append)
    gl.ready = 3
    timer.collect()
    assert told[2] == [pytest.approx(12.25)]


def test_queries_are_used_again_and_deleted(clock: list[float]) -> None:
    gl = FakeGL()
    timer = GLTimer(gl)  # type: ignore[arg-type]
    for i in range(500):
        timer.request((timer.stamp(), timer.stamp()), lambda times: None)
        gl.ready = 2 * i + 2
        timer.collect()
    assert len(gl.alive) <= 64
    timer.release()
    assert gl.alive == set()
