"""`ComponentError`: an entry of `app.errors`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ComponentError:
    """An exception that a game's code raised and that the frame loop survived.

    Attributes:
        component: The component, or None for a coroutine or callback without one.
        where: The hook or function that raised, such as "update".
        error: The exception.
    """

    component: object
    where: str
    error: Exception
