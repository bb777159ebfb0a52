"""Where compiled kernels and programs are kept between runs, and how a file is stored there."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path


def cache_dir(*parts: str) -> Path:
    r"""The per-user cache folder, or a folder inside it, created if need be.

    `GAMEGLUE_CACHE_DIR` names it; otherwise it is the system's usual place (`$XDG_CACHE_HOME/gameglue`,
    `~/.cache/gameglue`, `~/Library/Caches/gameglue`, `%LOCALAPPDATA%\gameglue\Cache`). Where that cannot be
    written it is a folder in the temporary directory that belongs to this user alone: what lies in it is
    executed.
    """
    for candidate in (_configured(), _private_temporary()):
        if candidate is None:
            continue
        folder = candidate.joinpath(*parts)
        if _make_writable(folder):
            return folder
    return Path(tempfile.mkdtemp(prefix="gameglue-"))


def read_sealed(path: Path, form: bytes) -> bytes | None:
    """What `write_sealed` stored; None where the file is missing, damaged or of another form."""
    try:
        with path.open("rb") as file:
            found, digest = file.read(len(form)), file.read(hashlib.sha256().digest_size)
            body = file.read()
    except OSError:
        return None
    # Drivers and loaders crash on damaged code rather than refuse it.
    return body if found == form and hashlib.sha256(body).digest() == digest else None


def write_sealed(path: Path, form: bytes, body: bytes) -> None:
    """Store bytes under their digest. Without effect on a full or read-only disk: it is a cache."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(form + hashlib.sha256(body).digest() + body)
            # Another process may be storing the same: the last one wins, and none reads half a file.
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError:
        return


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
    """The user's folder; None where it cannot be told, as in some containers."""
    if os.environ.get("HOME") == "":
        # What expands names takes the root folder for it.
        return None
    try:
        return Path.home()
    except RuntimeError:
        return None


def _private_temporary() -> Path | None:
    """A folder of a fixed name in the temporary directory, None if somebody else has made it."""
    user = getattr(os, "getuid", lambda: 0)()
    folder = Path(tempfile.gettempdir()) / f"gameglue-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    is_ours = folder.is_dir() and not folder.is_symlink()
    if sys.platform != "win32":
        is_ours = is_ours and status.st_uid == user and not status.st_mode & 0o022
    return folder if is_ours else None


def _make_writable(folder: Path) -> bool:
    """Create a folder and see whether a file can be made in it; a read-only file system shows only then."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
