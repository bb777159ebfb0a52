"""The per-user cache of compiled kernels, programs and plans: its folder, and how files are read and written.

Files there are executed, so they count only if no other user can have written them: folders and files must
belong to this user (or to root), and neither group nor others may have write access. Windows has no such
modes: the default folder there is inside the user's profile, which other users cannot write.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
import warnings
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

_LARGEST = 1 << 30
"""Bytes of a file that is read at most."""

_refused: set[Path] = set()


def cache_dir(*parts: str) -> Path | None:
    r"""The per-user cache folder, or a folder inside it, created if need be; None where there can be none.

    `GAMEGLUE_CACHE_DIR` names it; otherwise it is the system's usual place (`$XDG_CACHE_HOME/gameglue`,
    `~/.cache/gameglue`, `~/Library/Caches/gameglue`, `%LOCALAPPDATA%\gameglue\Cache`). Where that cannot be
    written, or other users could write there, it is a folder in the temporary directory that belongs to this
    user alone. A folder that is refused is warned about once.
    """
    for candidate in (_configured, _in_temporary):
        base = candidate()
        if base is None:
            continue
        try:
            folder = _prepared(base, parts)
        except OSError:
            continue
        if folder is not None:
            return folder
    return None


def cache_file(folder: str, name: str) -> Path | None:
    """A file of a folder inside the cache folder; None where there is none."""
    here = cache_dir(folder)
    return None if here is None else here / name


def read_sealed(path: Path | None, form: bytes) -> bytes | None:
    """The bytes that `write_sealed` stored.

    None where the file is missing or damaged, of another form or name, or where another user may have written
    it.
    """
    if path is None:
        return None
    # Neither a link nor a pipe that somebody has put there.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(os.open(path, flags | getattr(os, "O_BINARY", 0)), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST or _distrust(status):
                return None
            found, seal = file.read(len(form)), file.read(hashlib.sha256().digest_size)
            body = file.read()
    except OSError:
        return None
    # Drivers and loaders crash on damaged code rather than refuse it.
    return body if found == form and _seal(path, body) == seal else None


def write_sealed(path: Path | None, form: bytes, body: bytes) -> None:
    """Store bytes with a digest of them and of the file's name.

    Without effect on a full or read-only disk: it is a cache.
    """
    if path is None:
        return
    try:
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(form + _seal(path, body) + body)
            # Another process may be storing the same: the last one wins, and none reads half a file.
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError:
        return


def read_cached(path: Path | None, form: bytes) -> bytes | None:
    """Read a file that `write_cached` stored, and mark it as recently used."""
    body = read_sealed(path, form)
    if path is not None and body is not None:
        try:
            os.utime(path)
        except OSError:
            return None  # another process has just forgotten it
    return body


def write_cached(path: Path | None, form: bytes, body: bytes, most_files: int, most_bytes: int) -> None:
    """Store a file as `write_sealed` does, and delete the least recently used ones with this suffix."""
    if path is None:
        return
    write_sealed(path, form, body)
    try:
        files = [(other.stat(), other) for other in path.parent.glob(f"*{path.suffix}")]
        size = 0
        for number, (status, other) in enumerate(sorted(files, key=lambda f: -f[0].st_mtime_ns), 1):
            size += status.st_size
            if number > most_files or size > most_bytes:
                other.unlink(missing_ok=True)
    except OSError:
        return  # another process is at it too


def _seal(path: Path, body: bytes) -> bytes:
    """A digest that a file has under its own name only."""
    seal = hashlib.sha256(path.name.encode() + b"\0")
    seal.update(body)
    return seal.digest()


def _configured() -> Path | None:
    named = os.environ.get("GAMEGLUE_CACHE_DIR")
    if named:
        return Path(named).expanduser()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local) / "gameglue" / "Cache" if local else None
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says to ignore a relative path.
    if base.startswith("/") and sys.platform != "darwin":
        return Path(base) / "gameglue"
    home = _home()
    if home is None:
        return None
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "gameglue"


def _home() -> Path | None:
    """The user's folder; None where it is unknown, as in some containers."""
    if os.environ.get("HOME") == "":
        # What expands names takes the root folder for it.
        return None
    try:
        return Path.home()
    except RuntimeError:
        return None


def _in_temporary() -> Path | None:
    """A folder of a fixed name in the temporary directory; None where there is no such directory."""
    user = getattr(os, "getuid", lambda: 0)()
    try:
        return Path(tempfile.gettempdir()) / f"gameglue-{user}"
    except OSError:
        return None


def _prepared(base: Path, parts: tuple[str, ...]) -> Path | None:
    """The folder inside `base`, made if it is missing; None, with a warning, if others could write there.

    Raises OSError where no file can be made in it; a read-only file system shows only then.
    """
    if base.is_symlink() and (reason := _distrust(base.lstat())):
        _refuse(base, reason)
        return None
    # A link of the user's own is resolved once, so that nobody can redirect it later.
    folder = Path(os.path.realpath(base))
    folder.parent.mkdir(parents=True, exist_ok=True)
    for part in ("", *parts):
        folder /= part
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if reason := _distrust(status) if stat.S_ISDIR(status.st_mode) else "it is a link":
            _refuse(folder, reason)
            return None
    with tempfile.TemporaryFile(dir=folder):
        return folder


def _distrust(status: os.stat_result) -> str:
    """Why another user may have written something; '' if none can have."""
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to the user with the number {status.st_uid}"
    # Links have no modes of their own.
    is_open = status.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(status.st_mode)
    return "other users can write there" if is_open else ""


def _refuse(folder: Path, reason: str) -> None:
    if folder not in _refused:
        _refused.add(folder)
        warnings.warn(
            f"the cache folder {folder} is not used: {reason}, and its files are executed. If it is your own,"
            f" run: chmod go-w '{folder}'; otherwise set GAMEGLUE_CACHE_DIR to a folder of your own",
            RuntimeWarning,
            stacklevel=2,
        )
