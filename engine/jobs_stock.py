"""The commands that every command list may use: copy and fill."""

from __future__ import annotations

from engine import native
from engine.native import NativeSource
from engine.native_prelude import PRELUDE

_STOCK_TEXT = """
def copy(args, begin, end):
    copy_bytes(arg_i64(args, 0) + begin, arg_i64(args, 1) + begin, end - begin)


def fill(args, begin, end):
    address = arg_i64(args, 0)
    pattern = arg_i64(args, 1)
    width = arg_i64(args, 2)
    if width == 1:
        set_bytes(address + begin, pattern & 0xFF, end - begin)
    elif width == 2:
        for index in range(begin, end):
            store_i16(address, index, pattern)
    elif width == 4:
        for index in range(begin, end):
            store_i32(address, index, pattern)
    else:
        for index in range(begin, end):
            store_i64(address, index, pattern)
"""

COPY = NativeSource("copy", PRELUDE + _STOCK_TEXT, "copy")
FILL = NativeSource("fill", PRELUDE + _STOCK_TEXT, "fill")


def stock_functions() -> dict[str, int]:
    """Addresses of the stock commands.

    "copy": args (destination, source), total in bytes. "fill": args (destination, pattern, width in bytes: 1,
    2, 4 or 8), total in elements.
    """
    addresses = native.load([COPY, FILL])
    return {"copy": addresses[COPY.key], "fill": addresses[FILL.key]}
