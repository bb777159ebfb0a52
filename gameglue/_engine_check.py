"""Checks that `engine` is ours before anything imports it.

`engine` is a likely name for a game's own file. Python would find that file first, run it, and fail somewhere
inside with a message about something else.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

_MARKER = 'ENGINE_OF = "gameglue"'


def check_engine() -> None:
    """Raise `ImportError`, naming the file, if `import engine` would give something else than our engine."""
    found = sys.modules.get("engine")
    spec = found.__spec__ if found is not None else find_spec("engine")
    if spec is None:
        where = getattr(found, "__file__", None)
        if where is None:
            raise ImportError("gameglue's package `engine` is missing; reinstall it: pip install gameglue")
        raise ImportError(_message(where))
    if not _is_ours(spec):
        raise ImportError(_message(spec.origin or ", ".join(spec.submodule_search_locations or ())))


def _is_ours(spec: ModuleSpec) -> bool:
    # Looked up and read rather than imported: running the game's file would have effects of its own.
    if spec.origin is None or spec.submodule_search_locations is None:
        return False
    beside_us = Path(__file__).resolve().parent.parent
    if Path(spec.origin).resolve().parent.parent == beside_us:
        return True
    get_source = getattr(spec.loader, "get_source", None)
    source = get_source("engine") if get_source is not None else None
    return source is not None and _MARKER in source


def _message(path: str) -> str:
    return (
        f"{path} hides gameglue's own package `engine`, because Python finds it first. Rename that file (or "
        "folder), for example to game_engine"
    )
