"""Cache files of one type: reading, writing and eviction of the least recently used."""

from __future__ import annotations

import functools
from pathlib import Path

from engine.base.cache import cache_dir, read_cached, write_cached

MOST_FILES = 128
MOST_BYTES = 1 << 28
"""How many files of a kind are kept, and of which size in all, the latest used; most have some 50 KiB."""


@functools.cache
def folder() -> Path | None:
    """The folder of stored files; None if nothing is cached between runs."""
    return cache_dir("plans")


def path_of(key: str, kind: str) -> Path | None:
    """The path of a cache file, by type and key."""
    here = folder()
    return None if here is None else here / f"{key}.{kind}"


def read(path: Path | None, form: bytes) -> bytes | None:
    """The stored content; None if the file is missing, damaged or of another format."""
    return read_cached(path, form)


def write(path: Path | None, form: bytes, body: bytes) -> None:
    """Store the content; does nothing if that fails."""
    write_cached(path, form, body, MOST_FILES, MOST_BYTES)
