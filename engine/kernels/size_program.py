"""Code generation for a record of sizes: selects and orders the instructions."""

from __future__ import annotations

import hashlib
import marshal
import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import addressof, c_char
from functools import cache, lru_cache
from importlib.util import MAGIC_NUMBER
from itertools import groupby
from pathlib import Path
from struct import Struct
from types import CodeType
from typing import Any, NamedTuple

from engine.base.cache import cache_dir, read_cached, write_cached
from engine.kernels.size_function import SizeFunction

_FORM = b"GGSIZES1" + MAGIC_NUMBER

_MOST_FILES = 512
_MOST_BYTES = 1 << 24
"""How many compiled functions are cached, and of which size in all; most have some 10 KiB."""


class Line(NamedTuple):
    """A statement of the function: an instruction, or a guard, which makes nothing.

    Attributes:
        text: The statement.
        used: The names that it reads.
        made: The names that it assigns.
        is_call: Whether it calls a function.
        function: The one whose results all names are, if it is a `SizeFunction`.
        args: The arguments that it is called with, or the operands of `op`.
        op: The operation of an instruction or of a guard, by its name; "within" is a guard of two bounds.
        holds: Whether a guard demands that the comparison holds, or that it does not.
    """

    text: str
    used: tuple[str, ...]
    made: tuple[str, ...] = ()
    is_call: bool = False
    function: SizeFunction[..., Any] | None = None
    args: tuple[str, ...] = ()
    op: str = ""
    holds: bool = True


def ordered(lines: Sequence[Line], results: Iterable[str]) -> list[Line]:
    """The lines that guards, calls and results need; guards come first unless they need a call.

    Calls are guards too, as they may refuse sizes; they take the longest by far.
    """
    behind_calls: set[str] = set()
    for line in lines:
        if line.is_call or not behind_calls.isdisjoint(line.used):
            behind_calls.update(line.made)
    early = _needed(
        lines, [line for line in lines if not line.made and behind_calls.isdisjoint(line.used)], ()
    )
    late = _needed(lines, [line for line in lines if not line.made or line.is_call], results)
    first = [line for line, is_early in zip(lines, early, strict=True) if is_early]
    rest = [line for line, e, is_late in zip(lines, early, late, strict=True) if is_late and not e]
    return first + _by_level(rest)


def _by_level(lines: Sequence[Line]) -> list[Line]:
    """The lines, with as many calls as possible behind one another."""
    levels: dict[str, int] = {}
    keys = []
    for line in lines:
        level = max([levels.get(name, 0) for name in line.used], default=0)
        keys.append((level, line.is_call, line.function is not None))
        levels.update(dict.fromkeys(line.made, level + line.is_call))
    order = sorted(range(len(lines)), key=keys.__getitem__)
    return [lines[place] for place in order]


def _needed(lines: Sequence[Line], roots: Iterable[Line], results: Iterable[str]) -> list[bool]:
    """Of each line, whether it is among some or makes what they or the results need."""
    names, wanted = set(results), {line.text for line in roots}
    found = []
    for line in reversed(lines):
        is_needed = line.text in wanted or not names.isdisjoint(line.made)
        found.append(is_needed)
        if is_needed:
            names.update(line.used)
    return found[::-1]


def compiled(
    inputs: Sequence[str],
    lines: Sequence[Line],
    results: Sequence[str],
    constants: Mapping[str, Any],
    refusals: tuple[type[Exception], ...],
) -> Callable[..., list[Any] | None]:
    """Compile a function of the inputs that returns the results.

    It returns None if a guard fails, or one of `refusals` is raised. `constants` are the objects that lines
    name.
    """
    names: dict[str, Any] = {**constants} | {
        name: getattr(math, name) for name in ("floor", "ceil", "trunc", "inf", "nan")
    }
    texts: list[str] = []
    for library, grouped in groupby(lines, lambda line: line.function and line.function.library):
        group = [*grouped]
        run = library and library.run()
        texts += _calls(group, run, names) if run else [line.text for line in group]
    body = "\n        ".join([*texts, f"return [{', '.join(results)}]"])
    names["refusals"], names["numbers"] = refusals, frozenset((int, float))
    head = f"def program({', '.join(inputs)}):\n    try:\n        "
    text = f"{head}{body}\n    except refusals:\n        return None\n"
    exec(_code_of(text), names)
    made: Callable[..., list[Any] | None] = names["program"]
    return made


def _calls(lines: Sequence[Line], run: Callable[[int, int, int], None], names: dict[str, Any]) -> list[str]:
    """Statements of calls that do not depend on each other, in native code; adds what they name."""
    functions = [line.function for line in lines if line.function is not None]
    given, made, place = "=", "=", 0
    calls: list[int] = []
    for function in functions:
        calls += [function.number, place]
        given += f"{function.given}{8 * len(function.made)}x"
        made += f"{8 * len(function.given)}x{function.made}"
        place += len(function.given) + len(function.made)
    table = array("q", calls)
    n = sum(name.startswith("pack") for name in names)
    names |= {
        f"pack{n}": Struct(given).pack, f"unpack{n}": Struct(made).unpack_from, f"run{n}": run,
        f"calls{n}": table.buffer_info()[0], f"table{n}": table, "c_char": c_char, "addressof": addressof,
    }  # fmt: skip
    args = ", ".join([arg for line in lines for arg in line.args])
    results = ", ".join([name for line in lines for name in line.made])
    return [
        f"block = bytearray(pack{n}({args}))",
        f"run{n}(addressof(c_char.from_buffer(block)), calls{n}, {len(lines)})",
        f"{results}, = unpack{n}(block)",
    ]


@lru_cache(maxsize=128)
def _code_of(text: str) -> CodeType:
    """The code of a module; workers of one model have the same programs.

    It is cached on disk: to compile it takes ten times as long as all else that a stored plan needs of it.
    """
    here = _folder()
    path = None if here is None else here / f"{hashlib.sha256(text.encode()).hexdigest()}.code"
    body = read_cached(path, _FORM)
    if body is not None:
        found: CodeType = marshal.loads(body)
        return found
    code = compile(text, "<sizes>", "exec")
    write_cached(path, _FORM, marshal.dumps(code), _MOST_FILES, _MOST_BYTES)
    return code


@cache
def _folder() -> Path | None:
    """The folder of compiled functions; None if nothing is cached between runs."""
    return cache_dir("sizes")
