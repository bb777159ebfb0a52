"""Cached binaries of OpenCL programs; pyopencl's own cache would be files of pickles."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

from engine.base.cache import read_sealed, write_sealed

_FORMAT = b"gameglue-cl-1\n"


def binary_path(folder: Path | None, *key: str) -> Path | None:
    """The file of a program's binary; `key` is all that it depends on: device, driver, options, source."""
    if folder is None:
        return None
    return folder / (hashlib.sha256("\0".join(key).encode()).hexdigest()[:40] + ".clbin")


def compile_program(cl: Any, context: Any, source: str, options: tuple[str, ...]) -> Any:
    """A built `pyopencl.Program`. Raises `pyopencl.Error` if the compiler refuses the source."""
    program = cl.Program(context, source)
    with warnings.catch_warnings():
        # Compilers remark on vector types, and pyopencl on the next line.
        warnings.simplefilter("ignore")
        # A program that exists as an OpenCL object before it is built is not looked up in pyopencl's cache.
        _ = program.int_ptr
        return program.build(options=list(options))


def read_binary(cl: Any, context: Any, device: Any, path: Path | None) -> Any:
    """A built `pyopencl.Program`; None if the file is missing or the driver refuses it."""
    binary = read_sealed(path, _FORMAT)
    if binary is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cl.Program(context, [device], [binary]).build()
    except cl.Error:
        # A binary of another driver version, say: compiled again and replaced.
        return None


def write_binary(cl: Any, program: Any, path: Path | None) -> None:
    """Store a built program. PoCL's binary holds machine code only after the first dispatch."""
    write_sealed(path, _FORMAT, program.get_info(cl.program_info.BINARIES)[0])
