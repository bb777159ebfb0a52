"""The files of one kind in the cache: read, written, and the oldest forgotten."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from engine.base.cache import cache_dir, read_sealed, write_sealed

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
    body = read_sealed(path, form)
    if path is not None and body is not None:
        try:
            os.utime(path)
        except OSError:
            return None  # another process has just forgotten it
    return body


def write(path: Path | None, form: bytes, body: bytes) -> None:
    """Store the content; does nothing if that fails."""
    if path is None:
        return
    write_sealed(path, form, body)
    try:
        files = [(other.stat(), other) for other in path.parent.glob(f"*{path.suffix}")]
        size = 0
        for number, (status, other) in enumerate(sorted(files, key=lambda f: -f[0].st_mtime_ns), 1):
            size += status.st_size
            if number > MOST_FILES or size > MOST_BYTES:
                other.unlink(missing_ok=True)
    except OSError:
        return  # another process is at it too
