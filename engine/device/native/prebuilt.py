"""Prebuilt object code in the wheel: kernels that networks commonly need.

There is one file for each kind of processor, in the folder `objects`, named after the system, the machine and
a level of its instructions (`linux-x86_64-v4`). The highest level that this processor has all instructions of
is taken. Source trees have no such files; there, every kernel is compiled on the player's machine.

A file is a magic line with the number of the format and of the calling convention (`ABI`), an index as JSON
(for each kernel's key: where its object begins, its compressed size, the words of arguments that it reads,
the symbols that it needs) and the objects, each compressed by itself.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm

ABI = 1
"""The version of the calling convention. It is part of every kernel's key and of every stored plan.

Raise it when compiled code of the same source must be called in another way, or when the words of an argument
block get another order; `tests/engine/device/native/test_abi.py` fails until you do.
"""

FOLDER = Path(__file__).with_name("objects")

_MAGIC = b"GGOBJECTS %d\n" % ABI

_V3 = ("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf", "sse3",
       "sse4.1", "sse4.2", "ssse3")  # fmt: skip
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

LEVELS: Mapping[str, Mapping[str, tuple[str, ...]]] = {"x86_64": {"v4": _V4, "v3": _V3}, "arm64": {"v8": ()}}
"""By machine: levels of instructions, the highest first, and LLVM's names of what belongs to each."""


class Prebuilt(NamedTuple):
    """One kernel of a file."""

    code: bytes
    externals: tuple[str, ...]
    words: int


class PrebuiltObjects:
    """The kernels in one file; raises OSError or ValueError if it cannot be read."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        head = len(_MAGIC) + 8
        if data[: len(_MAGIC)] != _MAGIC:
            raise ValueError(f"{path} is of another version")
        self._start = head + int.from_bytes(data[len(_MAGIC) : head], "little")
        self._data = data
        self._index: dict[str, tuple[int, int, int, list[str]]] = json.loads(data[head : self._start])

    def __contains__(self, key: str) -> bool:
        return key in self._index

    def __len__(self) -> int:
        return len(self._index)

    def get(self, key: str) -> Prebuilt | None:
        """The object of a kernel, if it is there."""
        entry = self._index.get(key)
        if entry is None:
            return None
        at, size, words, externals = entry
        code = zlib.decompress(self._data[self._start + at : self._start + at + size])
        return Prebuilt(code, tuple(externals), words)


def write_objects(path: Path, objects: Mapping[str, Prebuilt]) -> None:
    """Write a file, with kernels in the order of their keys."""
    index: dict[str, tuple[int, int, int, tuple[str, ...]]] = {}
    bodies: list[bytes] = []
    at = 0
    for key, found in sorted(objects.items()):
        body = zlib.compress(found.code, 9)
        index[key] = (at, len(body), found.words, found.externals)
        bodies.append(body)
        at += len(body)
    head = json.dumps(index, separators=(",", ":")).encode()
    path.write_bytes(b"".join([_MAGIC, len(head).to_bytes(8, "little"), head, *bodies]))


def symbol_of(key: str) -> str:
    """The symbol that a prebuilt kernel exports, which differs from that of code compiled here."""
    return f"gameglue_prebuilt_{key[:40]}"


def machine() -> str:
    """The machine's architecture, under one name on all systems."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "aarch64": "arm64"}.get(name, name)


def file_name(level: str) -> str:
    """The name of the file for a level of this machine's instructions."""
    return f"{sys.platform}-{machine()}-{level}"


@functools.cache
def prebuilt_objects() -> PrebuiltObjects | None:
    """The package's kernels for this processor; None if it has none.

    `GAMEGLUE_PREBUILT=off` in the environment leaves them aside.
    """
    if os.environ.get("GAMEGLUE_PREBUILT") == "off":
        return None
    features = llvm.get_host_cpu_features()
    for level, needed in LEVELS.get(machine(), {}).items():
        if all(features.get(name) for name in needed):
            try:
                return PrebuiltObjects(FOLDER / file_name(level))
            except (OSError, ValueError):
                return None
    return None
