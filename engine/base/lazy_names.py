"""Packages whose public names are imported when they are first used.

A package lists its names under `if TYPE_CHECKING:`, for type checkers, editors and PyInstaller, and once more
by module for `lazy_names`. A test compares the two lists.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine.base.garbage_collection import imported


def lazy_names(
    package: str, places: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package.

    Args:
        package: the package's name.
        places: by module, the public names that are imported from it.
    """
    homes = {name: module for module, names in places.items() for name in names}

    def getattribute(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=_module())
        # The first name may take some hundred modules.
        found = getattr(imported(home), name)
        # From now on, Python finds it without asking here.
        setattr(_module(), name, found)
        return found

    def directory() -> list[str]:
        return sorted({*vars(_module()), *homes})

    def _module() -> Any:
        return sys.modules[package]

    return getattribute, directory
