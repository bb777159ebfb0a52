"""Input from scripts: what components see, frame by frame, and recordings that play back the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameglue import GameError, InputScript, InputState
from gameglue.input import KeyEvent, MouseMoved, MouseScrolled, Resized, TextEvent


def state_at(script: InputScript) -> InputState:
    state = InputState()
    state.sources = [script]
    return state


def test_keys_are_down_once_held_and_up_once() -> None:
    state = state_at(InputScript().press("space", at=0.1, hold=0.2))
    seen = []
    for frame in range(5):
        state.begin_frame(frame * 0.1)
        seen.append((state.get_key_down("space"), state.get_key("space"), state.get_key_up("space")))
    no = (False, False, False)
    assert seen == [no, (True, True, False), (False, True, False), (False, False, True), no]


def test_a_press_between_two_frames_is_not_lost() -> None:
    state = state_at(InputScript().press("a", at=0.01, hold=0.01))
    state.begin_frame(0.1)
    assert state.get_key_down("a")
    assert state.get_key_up("a")
    assert not state.get_key("a")


def test_dragging_moves_the_pointer_at_even_speed() -> None:
    state = state_at(InputScript().drag([(0, 0), (10, 0), (10, 20)], at=0.0, duration=1.0))
    positions = []
    for time in (0.0, 0.5, 0.9, 1.0):
        state.begin_frame(time)
        positions.append((state.mouse_position, state.get_mouse_button()))
    assert positions == [((0, 0), True), ((10, 0), True), ((10, 0), True), ((10, 20), False)]
    assert state.get_mouse_button_up(0)


def test_every_point_of_a_fast_stroke_is_kept() -> None:
    state = state_at(InputScript().drag([(0, 0), (1, 1), (2, 0), (3, 1)], at=0.0, duration=0.01))
    state.begin_frame(0.1)
    assert state.mouse_path == [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert list(state.mouse_delta) == [3, 1]
    state.begin_frame(0.2)
    assert state.mouse_path == []
    assert list(state.mouse_delta) == [0, 0]


def test_text_wheel_and_axes() -> None:
    script = InputScript().add(0.0, TextEvent("h"), TextEvent("i"), MouseScrolled(0, 1), MouseScrolled(0, 2))
    state = state_at(script.add(0.0, KeyEvent("left", True)))
    state.begin_frame(0.0)
    assert (state.text, state.mouse_scroll, state.get_axis("left", "right")) == ("hi", (0, 3), -1)
    state.begin_frame(0.1)
    assert (state.text, state.mouse_scroll) == ("", (0, 0))


def test_click_with_another_button() -> None:
    state = state_at(InputScript().click(5, 6, at=0.0, button=1))
    state.begin_frame(0.0)
    assert state.get_mouse_button_down(1)
    assert not state.get_mouse_button(0)
    assert state.mouse_position == (5, 6)


def test_events_added_out_of_order_come_in_order() -> None:
    script = (
        InputScript()
        .add(1.0, KeyEvent("b", True))
        .add(0.5, KeyEvent("a", True))
        .add(1.0, KeyEvent("c", True))
    )
    assert [getattr(e, "key", "") for e in script.events(2.0)] == ["a", "b", "c"]


def test_a_script_survives_saving(tmp_path: Path) -> None:
    script = (
        InputScript()
        .click(1, 2, at=0.5)
        .press("a", at=1.0)
        .add(2.0, Resized(3, 4), TextEvent("ü"))
        .quit(at=3)
    )
    script.save(tmp_path / "script.json")
    loaded = InputScript.load(tmp_path / "script.json")
    assert loaded.timeline == script.timeline
    assert loaded.duration == 3


@pytest.mark.parametrize("content", ["no json", "[1]", '[{"at": 0}]', '[{"at": 0, "kind": "Jump"}]'])
def test_something_else_is_not_a_script(tmp_path: Path, content: str) -> None:
    (tmp_path / "script.json").write_text(content)
    with pytest.raises(GameError, match="is not an input script"):
        InputScript.load(tmp_path / "script.json")


def test_a_drag_needs_two_points() -> None:
    with pytest.raises(GameError, match="at least 2 points, got 1"):
        InputScript().drag([(0, 0)], at=0, duration=1)
    script = InputScript([(0.0, MouseMoved(1, 1))])
    assert script.events(0.0)
    script.rewind()
    assert script.events(0.0)
