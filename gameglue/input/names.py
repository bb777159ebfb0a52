"""Names of keys and mouse buttons, and errors for wrong ones."""

from __future__ import annotations

from engine.base.spelling import suggestion
from gameglue.errors import GameError
from gameglue.input.bindings import MOUSE_BUTTONS, NAMED_KEYS, is_key


def check_key(key: object) -> None:
    """Raise `GameError` for an unknown key, suggesting the likely one."""
    if not isinstance(key, str):
        raise GameError(
            f'a key is given by its name, not by a number or constant: get_key("space"), got {key!r}'
        )
    if is_key(key) and key == key.lower():
        return
    if is_key(key.lower()):
        raise GameError(f"keys are written in lower case: {key.lower()!r}, not {key!r}")
    raise GameError(
        f"no keyboard has a key {key!r}{suggestion(key, NAMED_KEYS, cutoff=0.5)} A key is one character, or "
        f"one of: {', '.join(sorted(NAMED_KEYS))}"
    )


def button_number(button: object) -> int:
    """The number of a mouse button, which may be given by number or name. Raises `GameError`."""
    if isinstance(button, int) and not isinstance(button, bool) and button >= 0:
        return button
    number = MOUSE_BUTTONS.get(button) if isinstance(button, str) else None
    if number is None:
        near = suggestion(button, MOUSE_BUTTONS)
        names = ", ".join(f"{n} {name}" for name, n in MOUSE_BUTTONS.items())
        raise GameError(f"there is no mouse button {button!r}{near or ';'} by number or name: {names}")
    return number
