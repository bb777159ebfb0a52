"""Versions of packages, for cache keys."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path


@functools.cache
def version_text(package: str) -> str:
    """A package's version without importing it: as its own file or its folder of metadata has it."""
    found = importlib.util.find_spec(package)
    if found is not None and found.origin is not None:
        folder = Path(found.origin).parent
        version_file = folder / "_version.py"
        if version_file.is_file():
            return version_file.read_text(encoding="utf-8")
        metadata = [path.name for path in folder.parent.glob(f"{package}-*.dist-info")]
        if len(metadata) == 1:
            return metadata[0]
    # It takes 20 ms to import and to search, which is as long as a warm load takes.
    from importlib.metadata import version

    return version(package)
