"""A snapshot of the engine's source files at import, which identifies stored plans.

`engine` imports this module before any other. A file that changes later, under a running process, is not what
that process runs, or only in part: its plans must not be taken for those of the new files.
"""

from __future__ import annotations

import os
from pathlib import Path


def metadata_of(folder: Path) -> tuple[str, ...]:
    """Names, sizes and times of all Python files below a folder; none where there are no files.

    The time of the last change of the entry is among them, which nothing sets back. To read all files takes
    ten times as long.
    """
    found: list[str] = []
    pending = [str(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir():
                        pending.append(entry.path)
                    elif entry.name.endswith(".py"):
                        status = entry.stat()
                        times = f"{status.st_mtime_ns} {status.st_ctime_ns}"
                        found.append(f"{entry.path} {status.st_size} {times}")
        except OSError:
            # Inside an archive, or being replaced right now.
            return ()
    return tuple(sorted(found))


_FOLDER = Path(__file__).parents[1]
AT_IMPORT = metadata_of(_FOLDER)


def are_unchanged() -> bool:
    """Return whether the files are still those of the import.

    Modules that are imported after an edit come from the new files. A process that mixes both must not store
    what it computes.
    """
    return metadata_of(_FOLDER) == AT_IMPORT
