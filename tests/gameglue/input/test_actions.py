"""Named actions and axes: what they are bound to, what a frame sees of them, and their files."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pygame
import pytest

from gameglue import GameError, InputActions, InputScript, InputState
from gameglue.input import GamepadAxis, KeyEvent, MouseScrolled
from gameglue.input.bindings import NAMED_KEYS, parse_binding


def state_of(script: InputScript) -> InputState:
    state = InputState()
    state.sources = [script]
    return state


def test_an_action_is_down_once_held_and_up_once() -> None:
    state = state_of(InputScript().press("space", at=0.1, hold=0.2))
    seen = []
    for frame in range(5):
        state.begin_frame(frame * 0.1)
        seen.append((state.get_action_down("jump"), state.get_action("jump"), state.get_action_up("jump")))
    no = (False, False, False)
    assert seen == [no, (True, True, False), (False, True, False), (False, False, True), no]


def test_an_action_that_begins_and_ends_between_two_frames_is_not_lost() -> None:
    state = state_of(InputScript().click(3, 4, at=0.01, hold=0.01))
    state.begin_frame(0.1)
    assert state.get_action_down("fire")
    assert state.get_action_up("fire")
    assert not state.get_action("fire")


def test_a_second_binding_neither_begins_nor_ends_an_action_that_is_held() -> None:
    script = InputScript().press("space", at=0.0, hold=1.0).pad_press("a", at=0.5, hold=0.1)
    state = state_of(script)
    downs = ups = 0
    for frame in range(13):
        state.begin_frame(frame / 10)
        downs += state.get_action_down("jump")
        ups += state.get_action_up("jump")
        assert state.get_action("jump") == (frame < 10)
    assert (downs, ups) == (1, 1)


def test_axes_come_from_keys_and_sticks_and_the_farthest_counts() -> None:
    state = state_of(InputScript().add(0.0, KeyEvent("a", True)).pad_tilt("left_x", 0.6, at=0.1))
    state.begin_frame(0.0)
    assert state.get_axis("horizontal") == -1.0
    state.begin_frame(0.1)
    assert state.get_axis("horizontal") == -1.0
    state._take(KeyEvent("a", False))
    # (0.6 - 0.2) / (1 - 0.2)
    assert state.get_axis("horizontal") == pytest.approx(0.5)
    assert state.get_axis("vertical") == 0.0
    assert state.get_axis("left", "right") == 0.0


@pytest.mark.parametrize(
    ("value", "expected"), [(0.1, 0.0), (0.2, 0.0), (-0.6, -0.5), (1.0, 1.0), (-1.0, -1.0)]
)
def test_the_dead_zone_is_cut_out_without_a_jump(value: float, expected: float) -> None:
    state = state_of(InputScript().pad_tilt("right_y", value, at=0.0))
    state.begin_frame(0.0)
    assert state.get_pad_axis("right_y") == pytest.approx(expected)


def test_a_trigger_fires_past_its_middle() -> None:
    state = state_of(
        InputScript()
        .pad_tilt("right_trigger", 0.5, at=0.0)
        .pad_tilt("right_trigger", 0.9, at=0.1)
        .pad_tilt("right_trigger", 0.1, at=0.2)
    )
    seen = []
    for frame in range(3):
        state.begin_frame(frame / 10)
        seen.append((state.get_action_down("fire"), state.get_action("fire"), state.get_action_up("fire")))
    assert seen == [(False, False, False), (True, True, False), (False, False, True)]


def test_halves_inversions_and_the_wheel() -> None:
    state = state_of(InputScript().add(0.0, GamepadAxis(0, "left_x", -1.0), MouseScrolled(0, 3)))
    for name, binding in (
        ("brake", "pad left_x-"),
        ("gas", "pad left_x+"),
        ("mirrored", "-pad left_x"),
        ("zoom", "mouse wheel"),
        ("made of halves", "pad left_x-/pad left_x+"),
    ):
        state.actions.add_axis(name, binding)
    state.actions.add_action("lean", "pad left_x-")
    state.begin_frame(0.0)
    values = {name: state.get_axis(name) for name in ("brake", "gas", "mirrored", "zoom", "made of halves")}
    assert values == {"brake": 1.0, "gas": 0.0, "mirrored": 1.0, "zoom": 3.0, "made of halves": -1.0}
    assert state.get_action("lean")


def test_one_gamepad_of_two() -> None:
    state = state_of(InputScript().pad_press("a", at=0.0, pad=1, hold=1.0))
    state.actions.add_action("one", "pad1 a")
    state.actions.add_action("two", "pad2 a")
    state.begin_frame(0.0)
    assert (state.get_action("one"), state.get_action("two"), state.get_action("jump")) == (False, True, True)
    assert state.get_pad_button_down("a", 1)
    assert not state.get_pad_button("a", 0)


def test_rebinding_while_the_game_runs() -> None:
    state = state_of(InputScript().press("space", at=0.0, hold=9.0).press("k", at=0.2, hold=9.0))
    state.begin_frame(0.0)
    assert state.get_action("jump")
    assert state.pressed == ["space"]
    state.actions.bind("jump", "k")
    state.begin_frame(0.1)
    assert state.get_action_up("jump")
    assert not state.get_action("jump")
    state.begin_frame(0.2)
    assert state.get_action_down("jump")
    assert state.actions.bindings("jump") == ("k",)


def test_a_key_that_is_held_when_it_is_bound_does_not_begin_the_action() -> None:
    state = state_of(InputScript().press("k", at=0.0, hold=0.15).press("k", at=0.3))
    state.begin_frame(0.0)
    state.actions.bind("jump", *state.pressed)
    state.begin_frame(0.1)
    assert (state.get_action_down("jump"), state.get_action("jump")) == (False, True)
    state.begin_frame(0.2)
    assert state.get_action_up("jump")
    state.begin_frame(0.3)
    assert state.get_action_down("jump")


def test_a_gamepad_that_is_pulled_out_lets_go_of_everything() -> None:
    script = InputScript().connect_gamepad(at=0.0, name="pad").pad_press("b", at=0.0, hold=9.0)
    script.pad_tilt("left_x", 1.0, at=0.0).disconnect_gamepad(at=0.1)
    state = state_of(script)
    state.begin_frame(0.0)
    assert state.gamepads == {0: "pad"}
    assert (state.get_action("cancel"), state.get_axis("horizontal")) == (True, 1.0)
    assert state.pressed == ["pad b", "pad left_x+"]
    state.begin_frame(0.1)
    assert state.gamepads == {}
    assert (state.get_action("cancel"), state.get_axis("horizontal")) == (False, 0.0)
    assert state.get_action_up("cancel")


def test_definitions_survive_a_file(tmp_path: Path) -> None:
    actions = InputActions()
    actions.dead_zone = 0.25
    actions.add_action("dash", "left shift", "pad2 b", "mouse back", '"', "\\")
    actions.add_axis("look up", "-pad right_y", "[-]/[+]", "-mouse y", "pad left_x-")
    actions.save(tmp_path / "keys.toml")
    read = tomllib.loads((tmp_path / "keys.toml").read_text(encoding="utf-8"))
    assert read["actions"]["dash"] == ["left shift", "pad2 b", "mouse back", '"', "\\"]
    loaded = InputActions()
    loaded.add_action("only here", "z")
    loaded.load(tmp_path / "keys.toml")
    assert loaded.dead_zone == 0.25
    for name in (*actions.actions, *actions.axes):
        assert loaded.bindings(name) == actions.bindings(name)
    assert loaded.bindings("only here") == ("z",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jump = 3", "unknown entry 'jump'"),
        ("[actions]\njump = 'space'", "jump must be a list of bindings"),
        ("[actions]\njump = ['spcae']", "jump: unknown binding 'spcae'; did you mean 'space'?"),
        ("[actions]\njump = ['mouse wheel']", "can only be an axis"),
        ("[axes]\nturn = ['a/padd left']", "unknown binding 'padd left'"),
        ("[axes]\nturn = ['pad0 left_x']", "unknown binding 'pad0 left_x'"),
        ("[axes]\nx = ['a']\n[actions]\nx = ['b']", "'x' is an action and an axis"),
        ("dead_zone = 1.0", "dead_zone must be at least 0 and below 1"),
        ("[actions", "does not define"),
    ],
)
def test_a_file_with_a_mistake_changes_nothing(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "keys.toml").write_text(text, encoding="utf-8")
    actions = InputActions()
    with pytest.raises(GameError) as caught:
        actions.load(tmp_path / "keys.toml")
    assert message in str(caught.value)
    assert "keys.toml" in str(caught.value)
    assert actions.bindings("jump") == InputActions().bindings("jump")


def test_unknown_names_are_told_with_the_near_ones() -> None:
    state = InputState()
    with pytest.raises(GameError, match="no action 'jmp'; did you mean 'jump'"):
        state.get_action("jmp")
    with pytest.raises(GameError, match=r"no axis 'jump' \(that is an action\)"):
        state.get_axis("jump")
    with pytest.raises(GameError, match="there is an axis of that name"):
        state.get_action_down("vertical")
    with pytest.raises(GameError, match="both an action and an axis"):
        state.actions.add_axis("jump", "a/d")
    with pytest.raises(GameError, match="no axis 'middle'"):
        state.get_pad_axis("middle")
    state.actions.clear()
    with pytest.raises(GameError, match="there are: none"):
        state.get_action_up("jump")


def test_the_names_of_keys_are_pygames() -> None:
    constants = [getattr(pygame, name) for name in dir(pygame) if name.startswith("K_")]
    names = {pygame.key.name(code) for code in constants} - {"", "AC Back", "CurrencySubUnit"}
    assert {name for name in names if len(name) > 1} == set(NAMED_KEYS)
    for name in sorted(names):
        assert str(parse_binding(name)) == name
