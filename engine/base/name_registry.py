"""Registries of functions and classes by name, for serialization."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


class NameRegistry(dict[str, Callable[..., Any]]):
    """A registry of functions and classes by module and name, filled by a decorator.

    What is looked up with `[]` may be in a module that nothing has imported yet: a process that reads plans
    from disk imports the modules that these name, instead of all that make plans.
    """

    def add(self, made: Callable[..., Any]) -> None:
        """Add a function or class."""
        self[f"{made.__module__}.{made.__qualname__}"] = made

    def name_of(self, made: Any) -> str | None:
        """Return the name of a registered object, or None."""
        name = f"{made.__module__}.{made.__qualname__}"
        return name if self.get(name) is made else None

    def __missing__(self, name: str) -> Callable[..., Any]:
        module = name.rpartition(".")[0]
        if module.startswith("engine."):
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise KeyError(name) from error
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found
