"""What a frame leaves, told from how long frames take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gameglue import App, Phase
from gameglue.inference import FrameSlack
from tests.gameglue.inference.fakes import Clock

FRAME = 16.0


def play(slack: FrameSlack, clock: Clock, before: float, behind: float, late: float = 0.0) -> float:
    """A frame whose parts take so many ms and that spends nothing; what it might have spent."""
    start = clock.now
    slack.begin_frame(clock.now, FRAME)
    clock.pass_ms(before)
    budget = slack.budget_ms(clock.now)
    slack.end_spending(clock.now)
    clock.pass_ms(behind)
    slack.end_frame(clock.now)
    clock.now = max(start + FRAME / 1e3, clock.now) + late / 1e3
    return budget


def calm(slack: FrameSlack, clock: Clock) -> None:
    """So many frames in time that nothing is left of the first caution."""
    for _ in range(400):
        play(slack, clock, 1.0, 0.5)


def test_what_is_left_may_be_spent_but_a_margin() -> None:
    slack, clock = FrameSlack(), Clock()
    calm(slack, clock)
    play(slack, clock, 5.0, 3.0)
    assert play(slack, clock, 5.0, 3.0) == pytest.approx(16.0 - 5.0 - 3.0 - 0.8, abs=1e-3)
    assert play(slack, clock, 9.0, 3.0) == pytest.approx(16.0 - 9.0 - 3.0 - 0.8, abs=1e-3)


def test_the_longest_of_the_latest_frames_counts_for_what_comes_behind() -> None:
    slack, clock = FrameSlack(), Clock()
    calm(slack, clock)
    for behind in (1.0, 4.0, 1.0):
        play(slack, clock, 2.0, behind)
    assert play(slack, clock, 2.0, 1.0) == pytest.approx(16.0 - 2.0 - 4.0 - 0.8, abs=1e-3)


def test_waiting_for_the_display_is_no_work() -> None:
    slack, clock = FrameSlack(waits_behind=True), Clock()
    calm(slack, clock)
    for behind in (0.5, 7.0, 6.0):
        play(slack, clock, 2.0, behind)
    assert play(slack, clock, 2.0, 6.0) == pytest.approx(16.0 - 2.0 - 0.5 - 0.8, abs=1e-3)


def test_late_frames_make_careful_at_once_and_confidence_returns_slowly() -> None:
    slack, clock = FrameSlack(), Clock()
    calm(slack, clock)
    usual = play(slack, clock, 4.0, 0.5)
    play(slack, clock, 4.0, 0.5, late=6.0)
    assert play(slack, clock, 4.0, 0.5) == pytest.approx(usual - 4.0, abs=0.2)
    after = [play(slack, clock, 4.0, 0.5) for _ in range(200)]
    assert after == sorted(after)
    assert after[-1] == pytest.approx(usual, abs=0.1)


def test_the_first_frames_are_careful() -> None:
    slack, clock = FrameSlack(), Clock()
    assert play(slack, clock, 4.0, 0.5) == pytest.approx(16.0 - 4.0 - 8.0 - 0.8)


def test_a_game_that_is_late_anyway_leaves_a_little() -> None:
    slack, clock = FrameSlack(), Clock()
    assert play(slack, clock, 30.0, 5.0) == 0.25
    assert play(slack, clock, 30.0, 5.0) == 0.25


def test_an_app_pumps_with_the_slack(make_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(frame_budget_ms="slack", target_frame_rate=100.0)
    budgets: list[float] = []
    monkeypatch.setattr(app.inference, "pump", budgets.append)
    for _ in range(200):  # on a busy machine frames are late, which makes the next careful
        app.step()
        if len(budgets) >= 5 and max(budgets) > 1.0:
            break
    assert all(0.25 <= budget < 9.5 for budget in budgets)
    assert max(budgets) > 1.0
    slow = Phase("slow", "Takes nearly all of the frame.", lambda app: busy(9.0))
    app.frame.insert(slow, before="update")
    app.step()
    assert budgets[-1] <= 0.5


def busy(ms: float) -> None:
    import time

    end = time.perf_counter() + ms / 1e3
    while time.perf_counter() < end:
        pass
