"""The generated function of a record of sizes: which instructions it needs, in which order."""

from __future__ import annotations

import hashlib
import marshal
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from engine.base.cache import cache_dir, read_kept, write_kept

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
        is_call: Whether it calls a Python function.
    """

    text: str
    used: tuple[str, ...]
    made: tuple[str, ...] = ()
    is_call: bool = False


def ordered(lines: Sequence[Line], results: Iterable[str]) -> list[Line]:
    """The lines that guards, calls and results need; guards come first, but for those that need a call.

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
    return first + rest


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
    body = "\n        ".join([*(line.text for line in lines), f"return [{', '.join(results)}]"])
    names: dict[str, Any] = {**constants} | {
        name: getattr(math, name) for name in ("floor", "ceil", "trunc", "inf", "nan")
    }
    names["refusals"], names["numbers"] = refusals, frozenset((int, float))
    head = f"def program({', '.join(inputs)}):\n    try:\n        "
    text = f"{head}{body}\n    except refusals:\n        return None\n"
    exec(_code_of(text), names)
    made: Callable[..., list[Any] | None] = names["program"]
    return made


@lru_cache(maxsize=128)
def _code_of(text: str) -> CodeType:
    """The code of a module; workers of one model have the same programs.

    It is cached on disk: to compile it takes ten times as long as all else that a stored plan needs of it.
    """
    here = _folder()
    path = None if here is None else here / f"{hashlib.sha256(text.encode()).hexdigest()}.code"
    body = read_kept(path, _FORM)
    if body is not None:
        found: CodeType = marshal.loads(body)
        return found
    code = compile(text, "<sizes>", "exec")
    write_kept(path, _FORM, marshal.dumps(code), _MOST_FILES, _MOST_BYTES)
    return code


@cache
def _folder() -> Path | None:
    """The folder of compiled functions; None if nothing is cached between runs."""
    return cache_dir("sizes")
