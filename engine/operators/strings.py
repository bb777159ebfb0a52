"""Operators on text, which NumPy runs on the host: strings are object arrays of `str`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.dtypes import TEXT
from engine.operators.registry import numpy_operator


def texts(x: np.ndarray) -> np.ndarray:
    """A tensor of strings, or a ValueError for any other."""
    if x.dtype != TEXT:
        raise ValueError(f"takes strings, not {x.dtype.name}{list(x.shape)}")
    return x


def each(function: Callable[[str], Any], x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The function's result for every string, in the shape of `x`."""
    found = np.empty(x.size, dtype)
    for i, text in enumerate(texts(x).reshape(-1)):
        found[i] = function(text)
    return found.reshape(x.shape)


@numpy_operator("StringConcat", since=20)
def string_concat(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x followed by y, element by element, broadcast."""
    joined = np.empty(np.broadcast_shapes(x.shape, y.shape), TEXT)
    joined[...] = np.asarray(texts(x) + texts(y), TEXT)
    return joined


@numpy_operator("StringSplit", since=20)
def string_split(
    x: np.ndarray, *, delimiter: str | None = None, maxsplit: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Pieces between delimiters along a new last axis, filled up with "", and how many each string has.

    Without a delimiter, strings are cut at runs of white space. At most `maxsplit` cuts are made.
    """
    most = -1 if maxsplit is None else maxsplit
    pieces = [text.split(delimiter or None, most) for text in texts(x).reshape(-1)]
    counts = np.array([len(p) for p in pieces], np.int64)
    table = np.full((len(pieces), int(counts.max(initial=0))), "", TEXT)
    for row, found in zip(table, pieces, strict=True):
        row[: len(found)] = found
    return table.reshape(*x.shape, table.shape[1]), counts.reshape(x.shape)


CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


@numpy_operator("StringNormalizer", since=10)
def string_normalizer(
    x: np.ndarray,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: Sequence[str] = (),
) -> np.ndarray:
    """The strings that are no stop words, in lower or upper case; one empty string if none is left.

    Letters change as Unicode says, whatever the locale.
    """
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ValueError(f"takes strings of shape [C] or [1, C], not {list(x.shape)}")
    if case_change_action not in CASES:
        raise ValueError(f"case_change_action is {case_change_action!r}; one of {', '.join(CASES)}")
    compared = str if is_case_sensitive else str.lower
    unwanted = {compared(word) for word in stopwords}
    kept = [text for text in texts(x).reshape(-1) if compared(text) not in unwanted] or [""]
    found = np.array([CASES[case_change_action](text) for text in kept], TEXT)
    return found.reshape(*x.shape[:-1], len(kept))


# Regular expressions

CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f", "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~",
    "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ", "upper": "A-Z",
    "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
"""What RE2's named classes hold."""


def python_pattern(pattern: str) -> str:
    r"""A pattern of RE2's syntax as Python spells it: named classes like [[:alpha:]], and \z for the end."""

    def named(found: re.Match[str]) -> str:
        name = found[1]
        if name not in CLASSES:
            raise ValueError(f"pattern {pattern!r} has the unknown class [:{name}:]")
        return CLASSES[name]

    plain = re.sub(r"\[:(\w+):\]", named, pattern)
    return re.sub(r"(?<!\\)((?:\\\\)*)\\z", r"\1\\Z", plain)


@numpy_operator("RegexFullMatch", since=20)
def regex_full_match(x: np.ndarray, *, pattern: str) -> np.ndarray:
    """Whether each string as a whole matches a regular expression, with ASCII classes as in RE2."""
    try:
        expression = re.compile(python_pattern(pattern), re.ASCII)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from error
    return each(lambda text: expression.fullmatch(text) is not None, x, np.dtype(bool))
