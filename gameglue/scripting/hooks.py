"""The hooks that a behaviour may define, and checks of their spelling.

A misspelt hook would simply never be called; here it fails when the class is created.
"""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from typing import Final

from engine.base.spelling import letters_of
from gameglue.errors import HookError, HookWarning


@dataclass(frozen=True)
class Hook:
    """One method that the host calls.

    `may_wait` says whether it may be a generator or `async def`: a hook that draws, or that runs while the
    component goes away, must be done when it returns. A per-frame hook that waits is started again in the
    frame after its last run has ended, so runs never overlap.
    """

    name: str
    doc: str
    parameters: tuple[str, ...] = ()
    may_wait: bool = False


HOOKS: Final[dict[str, Hook]] = {
    hook.name: hook
    for hook in (
        Hook(
            "on_validate",
            "After fields were set: when the component is added, loaded from a file, or edited. "
            "Correct them, or raise; it comes before awake, so what awake makes is not there the first time.",
        ),
        Hook("awake", "Once, before any other, when the object is first active.", may_wait=True),
        Hook("on_enable", "Each time the component becomes enabled and active.", may_wait=True),
        Hook("start", "Once, before the first update, after every new component is awake.", may_wait=True),
        Hook(
            "fixed_update", "At every fixed step of game time: none, one or several a frame.", may_wait=True
        ),
        Hook("update", "Once a frame.", may_wait=True),
        Hook("late_update", "Once a frame, after every update and all coroutines.", may_wait=True),
        Hook(
            "on_render_image",
            "After the cameras have drawn: read the picture `source`, write all of `destination`.",
            ("source", "destination"),
        ),
        Hook("on_gui", "After the image effects: draw with `self.app.gui`, in pixels from the top left."),
        Hook("on_disable", "Each time the component stops being enabled and active."),
        Hook("on_destroy", "Once, at the end of the frame in which the component or object was destroyed."),
        Hook(
            "on_save",
            "When the scene is saved: return what `on_load` is to be given, made of what fields may hold.",
        ),
        Hook(
            "on_load",
            "When a file is loaded that has what `on_save` returned: after the fields, before awake.",
            ("state",),
        ),
        Hook(
            "on_application_focus",
            "At the start of the frame in which the window got the keyboard, or lost it; the game runs on.",
            ("focused",),
        ),
        Hook(
            "on_application_pause",
            "At the start of the frame that finds `self.time.paused` changed.",
            ("paused",),
        ),
        Hook("on_application_quit", "Once, when the game ends, before anything is destroyed."),
    )
}

PER_FRAME_HOOKS: Final = ("fixed_update", "update", "late_update", "on_render_image", "on_gui")

_BY_LETTERS: Final = {name.replace("_", ""): name for name in HOOKS}

_PHYSICS = "there is no physics; compare positions in fixed_update"
_MOUSE = "read self.input.mouse_position and self.input.get_mouse_button in update"
_CAMERA = "subclass Renderer and draw in its draw(canvas), or use on_render_image"
_OWN_NAMES: Final = ("reset",)
"""Messages of Unity's whose names games give to methods of their own."""

_ELSEWHERE: Final[dict[str, str]] = {
    "reset": "give the fields defaults in the class",
    **dict.fromkeys(
        ("onbecamevisible", "onbecameinvisible", "onprecull", "onprerender", "onrenderobject",
         "onwillrenderobject", "onpostrender"), _CAMERA,
    ),
    **dict.fromkeys(("ondrawgizmos", "ondrawgizmosselected"), "draw with self.app.gui in on_gui"),
    **dict.fromkeys(
        ("onmousedown", "onmouseup", "onmouseupasbutton", "onmousedrag", "onmouseenter", "onmouseover",
         "onmouseexit"), _MOUSE,
    ),
    **dict.fromkeys(
        (f"on{kind}{when}{dimensions}" for kind in ("collision", "trigger")
         for when in ("enter", "stay", "exit") for dimensions in ("", "2d")), _PHYSICS,
    ),
    **dict.fromkeys(
        ("oncontrollercolliderhit", "onjointbreak", "onjointbreak2d", "onparticlecollision",
         "onparticletrigger"), _PHYSICS,
    ),
    "onparticlesystemstopped": "set ParticleSystem.destroy_when_done, and use on_destroy",
    **dict.fromkeys(("onanimatorik", "onanimatormove"), "there is no animator; move things in late_update"),
    "onaudiofilterread": "there is no audio callback",
    "ontransformchildrenchanged": "read self.transform.children",
    "ontransformparentchanged": "read self.transform.parent",
}  # fmt: skip

# Starting, stopping and waiting are methods of the base class; a C# habit would define or call these.
_NEAR_MISSES: Final = {
    "onguiupdate": "on_gui",
    "onstart": "start",
    "onawake": "awake",
    "onupdate": "update",
    "onfixedupdate": "fixed_update",
    "onlateupdate": "late_update",
    "onenabled": "on_enable",
    "ondisabled": "on_disable",
    "ondestroyed": "on_destroy",
    "onapplicationexit": "on_application_quit",
    "onbeforeserialize": "on_save",
    "onafterdeserialize": "on_load",
}


def check_hooks(cls: type) -> None:
    """Raise `HookError` if `cls` defines a method that is spelled like a C# hook.

    Warn (`HookWarning`) of one that may be meant as it is: a name one letter off, or a message of Unity's
    that has no counterpart.
    """
    for name, value in vars(cls).items():
        if name.startswith("_") or not inspect.isfunction(value):
            continue
        hook = HOOKS.get(name)
        if hook is not None:
            _check_shape(cls, hook, value)
            continue
        letters = letters_of(name)
        spelled = _BY_LETTERS.get(letters) or _NEAR_MISSES.get(letters)
        if spelled is not None:
            raise HookError(f"{cls.__name__}.{name} would never be called: spell this hook {spelled!r}")
        if letters in _ELSEWHERE and name != name.lower():
            raise HookError(
                f"{cls.__name__}.{name} would never be called: there is no such hook; {_ELSEWHERE[letters]}"
            )
        if any(hasattr(base, name) for base in cls.__mro__[1:]):
            continue
        if letters in _ELSEWHERE and name not in _OWN_NAMES:
            _warn(f"{cls.__name__}.{name} is not called by the app: {_ELSEWHERE[letters]}")
        elif (near := _near_hook(name)) is not None:
            _warn(
                f"{cls.__name__}.{name} is not called by the app: is it meant to be {near!r}? "
                "Otherwise choose a name that differs more"
            )


def check_constructor(cls: type) -> None:
    """Raise `HookError` if `cls` has an `__init__` that needs arguments: the host makes components."""
    function = vars(cls).get("__init__")
    if not inspect.isfunction(function):
        return
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        needed = list(inspect.signature(function).parameters)[1:]
        raise HookError(
            f"{cls.__name__}.__init__ needs arguments, and components are made without: declare fields in "
            f"the class instead, such as `{needed[0]}: float = 3.0`, and set things up in awake or start"
        ) from None


def _near_hook(name: str) -> str | None:
    """The hook that differs from `name` by one letter (missing, added or changed) or by two swapped ones."""
    for hook in HOOKS:
        # Another form of the word ("updated", "starts") is meant as it stands.
        if not (name.startswith(hook) or hook.endswith(name)) and _is_one_letter_off(name, hook):
            return hook
    return None


def _is_one_letter_off(a: str, b: str) -> bool:
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    a, b = a[start:], b[start:]
    is_swapped = len(a) > 1 and a[:2] == b[:2][::-1] and a[2:] == b[2:]
    return is_swapped or a[1:] == b[1:] or a[1:] == b or a == b[1:]


def _warn(message: str) -> None:
    # Above this are `check_hooks`, `__init_subclass__` and the class statement.
    warnings.warn(message, HookWarning, stacklevel=4)


def _check_shape(cls: type, hook: Hook, function: object) -> None:
    where = f"{cls.__name__}.{hook.name}"
    expected = f"def {hook.name}({', '.join(('self', *hook.parameters))})"
    assert callable(function)
    try:
        inspect.signature(function).bind(None, *hook.parameters)
    except TypeError:
        hint = "" if hook.parameters else "; the frame's length is self.time.delta_time"
        raise HookError(f"{where} takes {inspect.signature(function)}, expected {expected}{hint}") from None
    if inspect.isasyncgenfunction(function):
        raise HookError(
            f"{where} is `async def` and has a yield, which nothing runs: write await instead of yield"
        )
    if waits(function) and not hook.may_wait:
        raise HookError(
            f"{where} must be a plain method, as it has to be done when it returns; "
            f"call self.start_coroutine(...) in it for what takes longer"
        )


def hooks_of(cls: type) -> dict[str, bool]:
    """The hooks that a behaviour class defines or inherits, with whether each is one that waits."""
    known: dict[str, bool] | None = cls.__dict__.get("_known_hooks")
    if known is None:
        known = {name: waits(getattr(cls, name)) for name in HOOKS if hasattr(cls, name)}
        cls._known_hooks = known  # type: ignore[attr-defined]
    return known


def waits(function: object) -> bool:
    """True if a call of `function` makes something that the host has to drive: a generator or coroutine."""
    return inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)
