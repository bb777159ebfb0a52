"""How job threads sleep and wake on each operating system: kernel source and system functions."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from typing import Any

from engine.base.errors import InputError

SET_AFFINITY = {"x86_64": 203, "aarch64": 122, "riscv64": 122}
"""The number of Linux's system call sched_setaffinity, by machine."""

MOST_CORES = 1024
"""Which the job system knows apart."""

# How a thread waits on a 4-byte word, per platform; `os_rest` does so for a job thread without work, of which
# `os_wake_first` wakes one, preferably the first, on another core than the caller's. The functions' addresses
# come from Python, as they are in libraries that the linker may not search. Each caller looks again after
# waking, for any reason.
OS_TEXTS = {
    "futex": """
@typed_helper("void(int64, int64, int64, int64)")
def os_wait(system, address, expected, nanoseconds):
    time = _types.int64(0)
    if nanoseconds >= 0:
        time = stack_bytes(16)
        store_i64(time, 0, nanoseconds // 1000000000)
        store_i64(time, 1, nanoseconds % 1000000000)
    call_os(load_i64(system, OS_WAIT), FUTEX, address, 128, expected, time, 0)


@typed_helper("void(int64, int64, int64)")
def os_wake(system, address, count):
    call_os(load_i64(system, OS_WAIT), FUTEX, address, 129, count, 0, 0)


@typed_helper("void(int64, int64, int64, int64)")
def os_rest(system, address, expected, number):
    call_os_7(load_i64(system, OS_WAIT), FUTEX, address, 137, expected, 0, 0, 1 if number == 0 else 2)


@typed_helper("void(int64)")
def keep_off_this_core(system):
    thread = load_i64(system, FIRST_THREAD)
    if load_i64(system, OS_CORE) == 0 or thread == 0:
        return
    core = call_os(load_i64(system, OS_CORE), 0, 0, 0, 0, 0, 0) & 1023
    if atomic_load_i64(system, OFF_CORE) == core + 1:
        return
    atomic_store_i64(system, OFF_CORE, core + 1)
    allowed = stack_bytes(128)
    for word in range(16):
        bits = load_i64(system, ALLOWED + word)
        if word == core // 64:
            bits &= ~(1 << (core % 64))
        store_i64(allowed, word, bits)
    call_os(load_i64(system, OS_WAIT), SET_AFFINITY, thread, 128, allowed, 0, 0)


@typed_helper("void(int64, int64)")
def os_wake_first(system, address):
    # A thread that is woken on its waker's core waits there, even where Linux could see another core idle: on
    # many virtual machines cores share no cache that it knows of, and so it does not look for one.
    keep_off_this_core(system)
    if call_os_7(load_i64(system, OS_WAIT), FUTEX, address, 138, 1, 0, 0, 1) != 1:
        os_wake(system, address, 1)
""",
    "wait_on_address": """
@typed_helper("void(int64, int64, int64, int64)")
def os_wait(system, address, expected, nanoseconds):
    compared = stack_bytes(8)
    store_i64(compared, 0, expected)
    milliseconds = 0xFFFFFFFF if nanoseconds < 0 else nanoseconds // 1000000 + 1
    call_os(load_i64(system, OS_WAIT), address, compared, 4, milliseconds, 0, 0)

""",
    "os_sync": """
@typed_helper("void(int64, int64, int64, int64)")
def os_wait(system, address, expected, nanoseconds):
    # A timed wait wakes within a millisecond of a change anyway: its caller looks again.
    limit = 1000000000 if nanoseconds < 0 else max(nanoseconds, 1)
    call_os(load_i64(system, OS_WAIT), address, expected & 0xFFFFFFFF, 4, 0, 32, limit)

""",
    "poll": """
@typed_helper("void(int64, int64, int64, int64)")
def os_wait(system, address, expected, nanoseconds):
    call_os(load_i64(system, OS_WAIT), 50, 0, 0, 0, 0, 0)


@typed_helper("void(int64, int64, int64)")
def os_wake(system, address, count):
    pass
""",
}

# What a function does not take, such as the size of a word, it leaves where it is.
_WAKE = """
@typed_helper("void(int64, int64, int64)")
def os_wake(system, address, count):
    if count >= 1 << 30:
        call_os(load_i64(system, OS_WAKE_ALL), address, 4, 0, 0, 0, 0)
    else:
        for _ in range(count):
            call_os(load_i64(system, OS_WAKE_ONE), address, 4, 0, 0, 0, 0)
"""

for _kind in ("wait_on_address", "os_sync"):
    OS_TEXTS[_kind] += _WAKE
for _kind in OS_TEXTS.keys() - {"futex"}:
    OS_TEXTS[_kind] += """

@typed_helper("void(int64, int64, int64, int64)")
def os_rest(system, address, expected, number):
    os_wait(system, address, expected, -1)


@typed_helper("void(int64, int64)")
def os_wake_first(system, address):
    os_wake(system, address, 1)
"""

_FUNCTIONS = {
    "futex": {"OS_WAIT": "syscall"},
    "wait_on_address": {
        "OS_WAIT": "WaitOnAddress",
        "OS_WAKE_ONE": "WakeByAddressSingle",
        "OS_WAKE_ALL": "WakeByAddressAll",
    },
    "os_sync": {
        "OS_WAIT": "os_sync_wait_on_address_with_timeout",
        "OS_WAKE_ONE": "os_sync_wake_by_address_any",
        "OS_WAKE_ALL": "os_sync_wake_by_address_all",
    },
    "poll": {"OS_WAIT": "usleep"},
}
"""What each calls, by the word of the system block that has the address."""

_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
"""The number of Linux's system call futex, by machine."""

CALL_OS = """
@_intrinsic
def call_os_7(typing_context, function, a, b, c, d, e, f, g):
    def generate(context, builder, signature, args):
        kind = _ir.FunctionType(_I64, [_I64] * 7)
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return _types.int64(*[_types.int64] * 8), generate


@_intrinsic
def call_os(typing_context, function, a, b, c, d, e, f):
    def generate(context, builder, signature, args):
        kind = _ir.FunctionType(_I64, [_I64] * 6)
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return _types.int64(*[_types.int64] * 7), generate

"""


def waiting_functions(chosen: str | None) -> tuple[str, dict[str, int], int]:
    """How threads sleep here: a key of `OS_TEXTS`, the functions that it calls, and Linux's futex number."""

    def addresses(library: Any, names: dict[str, str]) -> dict[str, int]:
        return {
            word: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
            for word, name in names.items()
        }

    if sys.platform == "win32":
        synch = ctypes.WinDLL("api-ms-win-core-synch-l1-2-0.dll")
        found = addresses(ctypes.WinDLL("kernel32"), {"OS_YIELD": "SwitchToThread"})
        return "wait_on_address", found | addresses(synch, _FUNCTIONS["wait_on_address"]), 0
    library = ctypes.CDLL(None)
    best = "poll"
    machine = platform.machine().lower()
    if sys.platform == "linux" and machine in _FUTEX:
        best = "futex"
    elif sys.platform == "darwin" and hasattr(library, _FUNCTIONS["os_sync"]["OS_WAIT"]):
        best = "os_sync"
    kind = chosen if chosen is not None else best
    if kind not in OS_TEXTS or (kind != "poll" and kind != best):
        raise InputError(f"this system cannot wait by {kind!r}; it can by {best!r} and 'poll'")
    found = addresses(library, {"OS_YIELD": "sched_yield", **_FUNCTIONS[kind]})
    if kind != "futex":
        return kind, found, 0
    if hasattr(library, "sched_getcpu") and (os.cpu_count() or 1) <= MOST_CORES:
        found |= addresses(library, {"OS_CORE": "sched_getcpu"})
    return kind, found, _FUTEX[machine]
