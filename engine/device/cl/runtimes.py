"""Lets the loader find OpenCL runtimes that were installed with pip."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_LOADER_VARIABLES = ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH")
_SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
_LOAD_WITH_ALTERED_SEARCH_PATH = 8


def installed_runtimes() -> list[Path]:
    """Driver libraries that packages of this Python environment have brought.

    Intel's package puts its library next to the environment's own and registers it under the path of the
    machine that built the package, so no loader finds it. PoCL's registers itself with pyopencl.
    """
    prefix = Path(sys.prefix)
    if sys.platform == "win32":
        library = prefix / "Library" / "bin" / "intelocl64.dll"
    else:
        library = prefix / "lib" / "libintelocl.so"
    return [library] if library.is_file() else []


@contextmanager
def runtimes_registered() -> Iterator[None]:
    """Context manager: OpenCL's loader sees the system's runtimes and those of this environment.

    Loaders read their list once in a process, at the first question. Variables that the user has set for the
    loader are left alone, and then nothing is added.
    """
    runtimes = installed_runtimes()
    if not runtimes or any(os.environ.get(name) for name in _LOADER_VARIABLES):
        yield
        return
    with ExitStack() as undo:
        # Without a place for temporary files the system's runtimes are all there is.
        with suppress(OSError):
            name, value = _registration(runtimes, undo)
            os.environ[name] = value
            undo.callback(os.environ.pop, name)
        yield


def _registration(runtimes: list[Path], undo: ExitStack) -> tuple[str, str]:
    """The loader's environment variable and its value."""
    if sys.platform == "win32":
        for library in runtimes:
            # Loaded with the folder that its own libraries are in, which the loader does not search.
            ctypes.WinDLL(str(library), winmode=_LOAD_WITH_ALTERED_SEARCH_PATH)
        return "OCL_ICD_FILENAMES", os.pathsep.join(map(str, runtimes))
    # Both loaders in use, the Khronos group's and ocl-icd, take a folder in place of the system's.
    folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="gameglue-")))
    if _SYSTEM_VENDORS.is_dir():
        for file in _SYSTEM_VENDORS.glob("*.icd"):
            shutil.copyfile(file, folder / file.name)
    for library in runtimes:
        (folder / f"{library.stem}.icd").write_text(f"{library}\n", encoding="utf-8")
    return "OCL_ICD_VENDORS", str(folder)
