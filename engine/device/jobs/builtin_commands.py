"""Built-in commands of command lists: copy, fill, sub-ranges, nested lists, timestamps; sources of jobs."""

from __future__ import annotations

from functools import cache

import numpy as np

from engine.base.memory.aligned import address_of
from engine.device import native
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.command_loops import JUMP
from engine.device.jobs.program import program_source
from engine.device.jobs.waiting import CALL_OS, waiting_functions
from engine.device.native import NativeSource
from engine.device.native.prelude import PRELUDE

_BUILTIN_TEXT = """
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

_PART_TEXT = """
def part(args, begin, end):
    first = arg_i64(args, 2)
    call_kernel(arg_i64(args, 0), arg_i64(args, 1), first + begin, first + end)
"""

_WINDOW_TEXT = """
def window(args, begin, end):
    first = arg_i64(args, 1)
    call_kernel(arg_i64(args, 0), args + 16, first + begin, first + end)
"""

_LISTS_TEXT = """
def lists(args, begin, end):
    for k in range(begin, end):
        run(arg_i64(args, 2 * k), arg_i64(args, 2 * k + 1))
"""

_STAMP_TEXT = """
def stamp(args, begin, end):
    call_os(arg_i64(args, 0), arg_i64(args, 1), arg_i64(args, 2), 0, 0, 0, 0)
"""

COPY = NativeSource("copy", PRELUDE + _BUILTIN_TEXT, "copy")
FILL = NativeSource("fill", PRELUDE + _BUILTIN_TEXT, "fill")
PART = NativeSource("part of a command", PRELUDE + _PART_TEXT, "part")
LISTS = NativeSource("lists of commands", PRELUDE + JUMP + _LISTS_TEXT, "lists")
WINDOW = NativeSource("window of a command", PRELUDE + _WINDOW_TEXT, "window")
STAMP = NativeSource("stamp", PRELUDE + CALL_OS + _STAMP_TEXT, "stamp")
SOURCES = {"copy": COPY, "fill": FILL, "part": PART, "stamp": STAMP, "lists": LISTS, "window": WINDOW}

COPY_GRAIN = 1 << 18
"""Bytes that one thread copies at a time; fewer are copied by the caller, where nothing is in flight."""


@cache
def builtin_functions() -> dict[str, int]:
    """Addresses of the built-in commands.

    "copy": args (destination, source), total in bytes. "fill": args (destination, pattern, width in bytes: 1,
    2, 4 or 8), total in elements. "part": args (function, its args, first), total in that function's units.
    "window": args (function, first, then the args of the function), total in that function's units. "stamp":
    args (function of the system, its first two arguments), total 1. "lists": args (address of a
    command list, how many commands it has) for each list, total the number of lists; each is run by one
    thread.
    """
    addresses = native.process_store().load([*SOURCES.values()])
    return {name: addresses[source.key] for name, source in SOURCES.items()}


def job_sources() -> list[NativeSource]:
    """The sources of all kernels of a job system, for precompiling."""
    kind, _, futex = waiting_functions(None)
    return [program_source(kind, futex), *SOURCES.values()]


def copy_commands(source: np.ndarray, target: np.ndarray) -> CommandList:
    """The command that copies an array's bytes into another array of the same size."""
    words = address_of(target), address_of(source)
    function = builtin_functions()["copy"]
    return CommandList.single(function, words, source.nbytes, COPY_GRAIN, (source, target))
