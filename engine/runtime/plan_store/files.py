"""The files of one kind in the cache: read, written, and the oldest forgotten."""

from __future__ import annotations

import functools
from pathlib import Path

from engine.base.cache import cache_dir, read_kept, write_kept

MOST_FILES = 128
MOST_BYTES = 1 << 28
"""How many files of a kind are kept, and of which size in all, the latest used; most have some 50 KiB."""


@functools.cache
def folder() -> Path | None:
    """The folder of stored files; None if nothing is cached between runs."""
    return cache_dir("plans")


def path_of(key: str, kind: str) -> Path | None:
    """The file of a kind that is known by a key."""
    here = folder()
    return None if here is None else here / f"{key}.{kind}"


def read(path: Path | None, form: bytes) -> bytes | None:
    """The stored content; None if the file is missing, damaged or of another format."""
    return read_kept(path, form)


def write(path: Path | None, form: bytes, body: bytes) -> None:
    """Store the content; does nothing if that fails."""
    write_kept(path, form, body, MOST_FILES, MOST_BYTES)
