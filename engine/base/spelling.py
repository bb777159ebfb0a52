"""Errors for C# spellings: `worker.Schedule` raises one that names `schedule`."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from enum import EnumMeta
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=type)


def suggestion(word: object, known: Iterable[str], most: int = 1, cutoff: float = 0.6) -> str:
    """Suffix of a message about an unknown name: "; did you mean 'space'?", or "" without a similar one."""
    names = {letters_of(each): each for each in reversed(list(known))}
    near = difflib.get_close_matches(letters_of(str(word)), names, n=most, cutoff=cutoff)
    return f"; did you mean {' or '.join(repr(names[each]) for each in near)}?" if near else ""


def letters_of(name: str) -> str:
    """A name without its spelling: `StartCoroutine` and `start_coroutine` have the same letters."""
    return name.replace("_", "").lower()


def near(word: object, known: Iterable[str], label: str) -> str:
    """Suffix of a message about an unknown name: the likely one, else all names."""
    names = list(dict.fromkeys(known))
    if close := suggestion(word, names, most=2):
        return close
    shown = names[:20]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"; {label}: {', '.join(shown) or 'none'}{more}"


class UnknownAttributeError(AttributeError):
    """An attribute does not exist; the message names the likely one.

    The message is made when it is read: `hasattr` and `getattr` with a default stay cheap.
    """

    def __init__(self, owner: object, name: str) -> None:
        super().__init__(name)
        self.owner, self.name = owner, name

    def __str__(self) -> str:
        owner, name = self.owner, str(self.name)
        what = f"class {owner.__name__!r}" if isinstance(owner, type) else f"{type(owner).__name__!r} object"
        known = {letters_of(each): each for each in dir(owner) if not each.startswith("_")}
        letters = letters_of(name)
        if letters in known:
            return f"{what} has no attribute {name!r}; in Python it is spelled {known[letters]!r}"
        for part in getattr(owner, "_parts", ()):
            # None where a component is not attached yet.
            for each in dir(getattr(owner, part, None)):
                if not each.startswith("_") and letters_of(each) == letters:
                    return f"{what} has no attribute {name!r}; did you mean '{part}.{each}'?"
        for part, kind in getattr(owner, "_part_types", {}).items():
            if hasattr(kind, name):
                return f"{what} has no attribute {name!r}; did you mean '{part}.{name}'?"
        close = suggestion(name, known.values(), cutoff=0.8)
        if not close and isinstance(owner, EnumMeta):
            close = f"; it has: {', '.join(owner.__members__)}"
        return f"{what} has no attribute {name!r}{close}"


def raise_unknown(owner: object, name: str) -> NoReturn:
    """Raise `UnknownAttributeError` for an attribute that was not found on an object or a class."""
    if not isinstance(owner, type) and inspect.getattr_static(type(owner), name, None) is not None:
        # A property raised it: once more, with its own message.
        object.__getattribute__(owner, name)
    raise UnknownAttributeError(owner, name)


def answers_spelling(cls: T) -> T:
    """A class decorator: objects answer unknown attributes with `raise_unknown`.

    A class attribute `_parts` names the attributes in which the missing one may be found instead, and
    `_part_types` expressions with the classes of what they give.
    """

    cls.__getattr__ = raise_unknown  # type: ignore[attr-defined]
    return cls


class SpellingType(type):
    """The type of classes that answer unknown class attributes with `raise_unknown`."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            raise_unknown(cls, name)


def explains_arguments(error: type[Exception], hint: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: a call with wrong arguments raises `error` with `hint`, instead of `TypeError`."""

    def explain(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except TypeError as wrong:
                # With a frame below this one, the function was entered: the arguments fitted.
                if wrong.__traceback__ is not None and wrong.__traceback__.tb_next is not None:
                    raise
                raise error(f"{wrong}: {hint}") from None

        return call

    return explain
