"""`InputActions`: named controls of a game, and their bindings.

A game asks for `"jump"`, not for the space bar: the same action may be on a key, a mouse button and a
gamepad, and the player may change that while the game runs. The definitions can be kept in a file:

    dead_zone = 0.2

    [actions]
    jump = ["space", "pad a"]

    [axes]
    horizontal = ["left/right", "a/d", "pad left_x"]

`gameglue.input.bindings` says how a binding is written.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from engine.base.spelling import suggestion
from gameglue.errors import GameError
from gameglue.input.bindings import Binding, controls_of, parse_binding

DEFAULT_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "jump": ("space", "pad a"),
    "fire": ("left ctrl", "mouse left", "pad x", "pad right_trigger"),
    "submit": ("return", "enter", "pad a"),
    "cancel": ("escape", "pad b"),
}
"""What every app begins with; a game changes or adds to it."""

DEFAULT_AXES: Mapping[str, tuple[str, ...]] = {
    "horizontal": ("left/right", "a/d", "pad left_x", "pad dpad_left/pad dpad_right"),
    "vertical": ("down/up", "s/w", "pad left_y", "pad dpad_down/pad dpad_up"),
}
"""The axes that every app begins with: right and up are positive."""


class InputActions:
    """Named actions (pressed or not) and axes (from -1 to 1) with their bindings; `self.input.actions`.

    >>> actions = InputActions()
    >>> actions.add_action("dash", "left shift", "pad b")
    >>> actions.bindings("dash")
    ('left shift', 'pad b')
    """

    def __init__(self) -> None:
        self.dead_zone = 0.2
        """How far a stick or trigger moves before it counts, from 0 to 1; beyond, it counts from 0 on."""
        self.revision = 0
        """Goes up with every change."""
        self._actions = {name: _parse(name, texts) for name, texts in DEFAULT_ACTIONS.items()}
        self._axes = {name: _parse(name, texts) for name, texts in DEFAULT_AXES.items()}

    # -- defining -------------------------------------------------------------------------------

    def add_action(self, name: str, *bindings: str) -> None:
        """Define an action, replacing one of the same name.

        Raises:
            GameError: A binding is unknown.
        """
        self._define(self._actions, self._axes, name, _as_action(name, _parse(name, bindings)))

    def add_axis(self, name: str, *bindings: str) -> None:
        """Define an axis, replacing one of the same name.

        Raises:
            GameError: A binding is unknown.
        """
        self._define(self._axes, self._actions, name, _parse(name, bindings))

    def bind(self, name: str, *bindings: str) -> None:
        """Bind the action or axis `name` to these and nothing else; while the game runs, too."""
        self._known(name)
        if name in self._actions:
            self.add_action(name, *bindings)
        else:
            self.add_axis(name, *bindings)

    def remove(self, name: str) -> None:
        """Remove an action or axis."""
        self._known(name)
        self._actions.pop(name, None)
        self._axes.pop(name, None)
        self.revision += 1

    def clear(self) -> None:
        """Remove all, including the defaults."""
        self._actions.clear()
        self._axes.clear()
        self.revision += 1

    def _define(
        self,
        table: dict[str, tuple[Binding, ...]],
        other: Mapping[str, object],
        name: str,
        bindings: tuple[Binding, ...],
    ) -> None:
        if name in other:
            raise GameError(f"{name!r} cannot be both an action and an axis; remove({name!r}) first")
        table[name] = bindings
        self.revision += 1

    # -- asking ---------------------------------------------------------------------------------

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of all actions."""
        return tuple(self._actions)

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of all axes."""
        return tuple(self._axes)

    def bindings(self, name: str) -> tuple[str, ...]:
        """The bindings of an action or axis as text, for a settings screen."""
        self._known(name)
        return tuple(str(b) for b in self._actions.get(name, self._axes.get(name, ())))

    def of_action(self, name: str) -> tuple[Binding, ...]:
        """The bindings of an action.

        Raises:
            GameError: There is no action of that name.
        """
        if name not in self._actions:
            raise GameError(self._unknown("action", name, self._actions, self._axes))
        return self._actions[name]

    def of_axis(self, name: str) -> tuple[Binding, ...]:
        """The bindings of an axis.

        Raises:
            GameError: There is no axis of that name.
        """
        if name not in self._axes:
            raise GameError(self._unknown("axis", name, self._axes, self._actions))
        return self._axes[name]

    def _known(self, name: str) -> None:
        if name not in self._actions and name not in self._axes:
            raise GameError(self._unknown("action or axis", name, {**self._actions, **self._axes}, {}))

    @staticmethod
    def _unknown(what: str, name: str, known: Iterable[str], other: Iterable[str]) -> str:
        hint = suggestion(name, known, cutoff=0.5)
        if name in other:
            hint = " (there is an axis of that name);" if what == "action" else " (that is an action);"
        return f"no {what} {name!r}{hint or ';'} there are: {', '.join(known) or 'none'}"

    # -- files ----------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write all definitions as a TOML file, to be edited or loaded again."""
        lines = [f"dead_zone = {self.dead_zone!r}", ""]
        for title, table in (("actions", self._actions), ("axes", self._axes)):
            lines.append(f"[{title}]")
            lines += [
                f"{_key(name)} = [{', '.join(_quoted(b) for b in all_)}]" for name, all_ in table.items()
            ]
            lines.append("")
        Path(path).write_text("\n".join(lines), encoding="utf-8")

    def load(self, path: str | Path) -> None:
        """Load definitions from a TOML file; others are unchanged.

        Raises:
            GameError: It is not such a file; then nothing changes.
        """
        try:
            found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            dead_zone = float(found.pop("dead_zone", self.dead_zone))
            actions = _read_table(found.pop("actions", {}))
            for name, bindings in actions.items():
                _as_action(name, bindings)
            axes = _read_table(found.pop("axes", {}))
            if found:
                raise GameError(
                    f"unknown entry {next(iter(found))!r}; there are: dead_zone, [actions], [axes]"
                )
            both = set(actions) & set(axes)
            if both:
                raise GameError(f"{both.pop()!r} is an action and an axis")
            _check_dead_zone(dead_zone)
        except (GameError, ValueError, TypeError, AttributeError) as error:
            raise GameError(f"{path} does not define actions and axes: {error}") from error
        self.dead_zone = dead_zone
        for name in (*actions, *axes):
            self._actions.pop(name, None)
            self._axes.pop(name, None)
        self._actions.update(actions)
        self._axes.update(axes)
        self.revision += 1


def _parse(name: str, texts: Iterable[str]) -> tuple[Binding, ...]:
    try:
        return tuple(parse_binding(text) for text in texts)
    except GameError as error:
        raise GameError(f"{name}: {error}") from error


def _as_action(name: str, bindings: tuple[Binding, ...]) -> tuple[Binding, ...]:
    for binding in bindings:
        if any(control.kind == "motion" for control in controls_of(binding)):
            raise GameError(f"{name}: an action is pressed or not, {str(binding)!r} can only be an axis")
    return bindings


def _read_table(table: Mapping[str, object]) -> dict[str, tuple[Binding, ...]]:
    read = {}
    for name, texts in table.items():
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise GameError(f'{name} must be a list of bindings such as ["space", "pad a"], got {texts!r}')
        read[name] = _parse(name, texts)
    return read


def _check_dead_zone(value: float) -> None:
    if not 0.0 <= value < 1.0:
        raise GameError(f"dead_zone must be at least 0 and below 1, got {value}")


def _quoted(binding: Binding) -> str:
    # A basic string of TOML is written as one of JSON.
    return json.dumps(str(binding), ensure_ascii=False)


def _key(name: str) -> str:
    return (
        name if name.isascii() and name.replace("_", "").isalnum() else json.dumps(name, ensure_ascii=False)
    )


def index_of(actions: InputActions) -> dict[tuple[str, str], list[str]]:
    """Which actions each control belongs to, by the control's kind and name."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in actions.actions:
        for binding in actions.of_action(name):
            for control in controls_of(binding):
                found.setdefault((control.kind, control.name), []).append(name)
    return found
