"""Calls of OpenCL functions as rows of integers, made by native code.

A call from Python costs microseconds, as pyopencl makes an event for each. A row has the address of a
function, nine arguments, and six words that arguments may point to. A row of zeros is left to Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

from engine.base.memory.aligned import address_of
from engine.device.native import NativeSource
from engine.device.native.background_function import BackgroundFunction
from engine.device.native.call_rows import call_row
from engine.device.native.prelude import PRELUDE

ENQUEUE, SET_ARGUMENT = "clEnqueueNDRangeKernel", "clSetKernelArg"
RETAIN, RELEASE = "clRetainMemObject", "clReleaseMemObject"

WORDS = 16
"""Of a row."""

DATA = 10
"""The first word that arguments may point to."""

CALLS = NativeSource(
    "OpenCL calls",
    PRELUDE
    + call_row(DATA - 1)
    + f"""

def calls(rows, begin, end):
    for k in range(begin, end):
        row = rows + {8 * WORDS} * k
        if load_i64(row, 0) == 0 or _call_row(row) != 0:
            return k
    return end
""",
    "calls",
    "int64(int64, int64, int64)",
)

# With the GIL held, as pyopencl does: releasing it would mean waiting for other Python threads.
_KIND = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class NativeCalls:
    """Makes the calls of rows: none until the native code is compiled."""

    def __init__(self) -> None:
        self._function = BackgroundFunction(CALLS, _KIND)

    def wait(self) -> bool:
        """Wait until the native code is loaded; False if it is unavailable."""
        return self._function.wait() is not None

    def run(self, rows: np.ndarray, begin: int) -> int:
        """Make the calls from row `begin` on.

        Returns:
            The row that is left to the caller: one of zeros, one whose call failed, or the end.
        """
        function = self._function.get()
        end: int = begin if function is None else function(address_of(rows), begin, len(rows))
        return end


def new_rows(function: str, count: int) -> np.ndarray:
    """Rows that call a function with zeros; rows of zeros where its address is unknown."""
    rows = np.zeros((count, WORDS), np.int64)
    rows[:, 0] = address_of_function(function)
    return rows


def point(rows: np.ndarray, argument: int, word: int) -> None:
    """Have an argument of each row, from 1 on, point to one of its words."""
    begin = address_of(rows) + 8 * word
    rows[:, argument] = np.arange(begin, begin + rows.nbytes, 8 * WORDS)


def address_of_function(name: str) -> int:
    """The address of an OpenCL function, 0 if unknown."""
    return _addresses().get(name, 0)


@cache
def _addresses() -> Mapping[str, int]:
    """The addresses of OpenCL's functions by name; any loader serves any runtime's objects."""
    # Imported on use, as in `engine.device.cl.device`.
    import pyopencl

    # Symbols of pyopencl's native part are also those of the libraries that it needs, except on Windows.
    native = pyopencl._cl.__file__
    beside = Path(pyopencl.__file__).parents[1].glob("pyopencl.libs/opencl-*.dll")
    for path in (native, *beside, "OpenCL.dll"):
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(str(path))
            names = ENQUEUE, SET_ARGUMENT, RETAIN, RELEASE
            return {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names}
    return {}
