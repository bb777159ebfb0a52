"""Pictures that were enqueued and are not drawn yet: counted by fences, and never many."""

from __future__ import annotations

from collections.abc import Callable

import moderngl
import pytest

from engine.device.gl.functions import GL
from gameglue import App
from gameglue.graphics.pending_fences import PendingFences
from gameglue.host.idle_time import MOST_IN_FLIGHT

pytestmark = pytest.mark.gl


class Answers:
    """What fences answer, in the place of the driver: a fence is passed once `passed` counts it."""

    def __init__(self, pending: PendingFences, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = self.made = 0
        self.deleted: list[int] = []
        self.failed = False
        monkeypatch.setattr(pending._gl, "glFenceSync", self._make)
        monkeypatch.setattr(pending._gl, "glClientWaitSync", self._ask)
        monkeypatch.setattr(pending._gl, "glDeleteSync", self.deleted.append)

    def _make(self, condition: int, flags: int) -> int:
        self.made += 1
        return self.made

    def _ask(self, fence: int, flags: int, timeout: int) -> int:
        assert timeout == 0
        if self.failed:
            return GL.WAIT_FAILED
        return GL.ALREADY_SIGNALED if fence <= self.passed else GL.TIMEOUT_EXPIRED


def test_marks_are_counted_until_they_are_reached(
    game: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = PendingFences(game)
    answers = Answers(pending, monkeypatch)
    assert pending.count() == 0
    for _ in range(3):
        pending.mark()
    assert pending.count() == 3
    answers.passed = 2
    assert pending.count() == 1
    assert answers.deleted == [1, 2]
    pending.release()
    assert answers.deleted == [1, 2, 3]
    assert pending.count() == 0


def test_nothing_is_waited_for_in_a_lost_context(
    game: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = PendingFences(game)
    answers = Answers(pending, monkeypatch)
    pending.mark()
    answers.failed = True
    assert pending.count() == 0


def test_the_driver_reaches_a_mark(game: moderngl.Context) -> None:
    pending = PendingFences(game)
    pending.mark()
    while pending.count():
        pass
    pending.release()


def test_headless_frames_wait_between_them_for_the_pictures(
    make_drawing_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that is two pictures behind when a frame ends has drawn one after three polls."""
    in_frame: list[bool] = []
    in_flight: list[int] = []

    def sleep(seconds: float) -> None:
        in_frame.append(app._in_frame)
        if len(in_frame) % 3 == 0:
            answers.passed += 1

    app = make_drawing_app(sleep=sleep)
    assert app.graphics._pending is not None
    answers = Answers(app.graphics._pending, monkeypatch)
    for _ in range(6):
        app.run(frames=1)
        in_flight.append(answers.made - answers.passed)
    assert max(in_flight) == MOST_IN_FLIGHT - 1
    assert len(in_frame) == 3 * 5
    assert not any(in_frame)
    answers.passed = answers.made
    assert app.graphics.pending == 0
