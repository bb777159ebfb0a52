"""Calls native functions over ranges on several Python threads, while loading."""

from __future__ import annotations

import ctypes

import numpy as np

from engine.base.memory.parallel import in_parts
from engine.device import native
from engine.device.native import NativeSource

_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def call_in_parts(source: NativeSource, words: np.ndarray, count: int, size: int) -> None:
    """Run `source(words, begin, end)` for parts of `range(count)`, which together touch `size` bytes.

    `words` are int64; the caller keeps what they point to alive until this returns.
    """
    function = _FUNCTION(native.process_store().address(source))
    in_parts(lambda begin, end: function(words.ctypes.data, begin, end), count, size)
