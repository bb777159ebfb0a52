"""Caches the functions that pyopencl generates for kernels, by signature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyopencl import invoker

_NAME = "generate_enqueue_and_set_args"


def memoise_invokers() -> None:
    """Cache pyopencl's kernel invoker functions by signature.

    It reads them from a database on disk for each object: in 0.1 ms, in 5 where other processes use it too.
    """
    found: Any = getattr(invoker, _NAME, None)
    if found is not None and not isinstance(found, Memoised):
        setattr(invoker, _NAME, Memoised(found))


class Memoised:
    """A function whose results are cached by its arguments; lists among these count by their elements."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._found: dict[Any, Any] = {}

    def __call__(self, *args: Any, **options: Any) -> Any:
        """The result for these arguments."""
        key = *map(_hashable, args), *((name, _hashable(value)) for name, value in options.items())
        try:
            return self._found[key]
        except KeyError:
            made = self._found[key] = self._function(*args, **options)
            return made
        except TypeError:
            # Arguments of another version of pyopencl, which no dictionary takes as a key.
            return self._function(*args, **options)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
