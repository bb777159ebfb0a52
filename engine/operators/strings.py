"""String operators, which NumPy runs on the host on object arrays of `str`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from engine.base.dtypes import TEXT
from engine.graph.model import CONTRIB
from engine.operators.registry import operator


def map_strings(function: Callable[[str], Any], x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The function's result for every string, in the shape of `x`."""
    found = np.empty(x.size, dtype)
    for i, text in enumerate(x.reshape(-1)):
        found[i] = function(text)
    return found.reshape(x.shape)


@operator("StringConcat", kind="numpy", since=20)
def string_concat(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x followed by y, element by element, broadcast."""
    joined = np.empty(np.broadcast_shapes(x.shape, y.shape), TEXT)
    joined[...] = np.asarray(x + y, TEXT)
    return joined


@operator("StringSplit", kind="numpy", since=20)
def string_split(
    x: np.ndarray, *, delimiter: str | None = None, maxsplit: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Split each string at delimiters along a new last axis, padded with "", and count the pieces.

    Without a delimiter, strings are cut at runs of white space. At most `maxsplit` cuts are made.
    """
    most = -1 if maxsplit is None else maxsplit
    pieces = [text.split(delimiter or None, most) for text in x.reshape(-1)]
    counts = np.array([len(p) for p in pieces], np.int64)
    return padded(pieces, "", x.shape), counts.reshape(x.shape)


def padded(rows: Sequence[Sequence[str]], filler: str, shape: tuple[int, ...]) -> np.ndarray:
    """Pad rows of strings to the longest one, along a last axis added to `shape`."""
    table = np.full((len(rows), max(map(len, rows), default=0)), filler, TEXT)
    for filled, row in zip(table, rows, strict=True):
        filled[: len(row)] = row
    return table.reshape(*shape, table.shape[1])


CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


@operator("StringNormalizer", kind="numpy", since=10)
def string_normalizer(
    x: np.ndarray,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: Sequence[str] = (),
) -> np.ndarray:
    """The strings that are no stop words, in lower or upper case; one empty string if none is left.

    Letters change as Unicode says, regardless of the locale.
    """
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ValueError(f"takes strings of shape [C] or [1, C], not {list(x.shape)}")
    if case_change_action not in CASES:
        raise ValueError(f"case_change_action is {case_change_action!r}; one of {', '.join(CASES)}")
    compared = str if is_case_sensitive else str.lower
    unwanted = {compared(word) for word in stopwords}
    kept = [text for text in x.reshape(-1) if compared(text) not in unwanted] or [""]
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
    r"""A pattern of RE2's syntax in Python's: named classes such as [[:alpha:]], \z, leading flags."""

    def named(found: re.Match[str]) -> str:
        name = found[1]
        if name not in CLASSES:
            raise ValueError(f"pattern {pattern!r} has the unknown class [:{name}:]")
        return CLASSES[name]

    plain = re.sub(r"\[:(\w+):\]", named, pattern)
    plain = re.sub(r"^\(\?([ims]+)\)(.*)$", r"(?\1:\2)", plain, flags=re.DOTALL)
    return re.sub(r"(?<!\\)((?:\\\\)*)\\z", r"\1\\Z", plain)


@operator("RegexFullMatch", kind="numpy", since=20)
def regex_full_match(x: np.ndarray, *, pattern: str) -> np.ndarray:
    """Whether each string as a whole matches a regular expression, with ASCII classes as in RE2."""
    try:
        expression = re.compile(python_pattern(pattern), re.ASCII)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from error
    return map_strings(lambda text: expression.fullmatch(text) is not None, x, np.dtype(bool))


# Tokens

START, END = "\x02", "\x03"
"""What stands around a string's tokens where they are marked."""


class Longest:
    """A regular expression that takes the longest of the matches that begin first, as onnxruntime's does.

    Python's takes the first alternative that matches.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = python_pattern(pattern)
        self.expression = self._compiled("")
        bare = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "c", self.pattern)
        self.is_plain = re.fullmatch(r"[^|?*+{(]*[?*+]?[^|?*+{(]*", bare) is not None
        """Whether nothing but one repeated character varies in length: Python's match is the longest one."""

    def _compiled(self, following: str) -> re.Pattern[str]:
        try:
            return re.compile(f"(?:{self.pattern}){following}", re.ASCII)
        except re.error as error:
            raise ValueError(f"{self.pattern!r} is no regular expression: {error}") from error

    def search(self, text: str, start: int) -> tuple[int, int] | None:
        """Begin and end of the first match at or after `start`."""
        found = self.expression.search(text, start)
        if found is None:
            return None
        first, end = found.span()
        if not self.is_plain:
            for last in range(len(text), end, -1):
                if self._compiled(rf"(?=(?s:.){{{len(text) - last}}}\Z)").match(text, first):
                    return first, last
        return first, end


def matches(expression: Longest, text: str) -> Iterator[tuple[int, int]]:
    """Begin and end of all matches; empty ones advance by one character."""
    start = 0
    while start <= len(text) and (found := expression.search(text, start)) is not None:
        yield found
        start = found[1] + (found[0] == found[1])


def between(expression: Longest, text: str) -> Iterator[str]:
    """The text between matches, without the characters that empty matches skip."""
    start = 0
    for first, end in matches(expression, text):
        if first == len(text):
            break
        yield text[start:first]
        start = end + (first == end)
    yield text[start:]


@operator("Tokenizer", kind="numpy", domain=CONTRIB)
def tokenizer(
    x: np.ndarray, *, mark: int, pad_value: str, mincharnum: int, separators: Sequence[str] = (),
    tokenexp: str | None = None,
) -> np.ndarray:  # fmt: skip
    """Tokens of at least `mincharnum` characters along a new last axis, filled up with `pad_value`.

    They are the matches of the regular expression `tokenexp`, or what is between those of `separators`, one
    after another; an empty separator alone, or "." as `tokenexp`, yields characters. `mark` adds a token
    before and behind them.
    """
    if x.ndim not in (1, 2) or x.dtype != TEXT:
        found = list(x.shape) if x.dtype == TEXT else x.dtype.name
        raise ValueError(f"takes strings of shape [C] or [N, C], not {found}")
    if not separators and not tokenexp:
        raise ValueError("has neither separators nor tokenexp")
    if mincharnum < 1:
        raise ValueError(f"mincharnum is {mincharnum}; it has to be 1 or more")
    # onnxruntime takes both of these for every character, line ends too.
    by_character = tokenexp == "." or tuple(separators) == ("",)
    token = Longest(tokenexp) if tokenexp else None
    cuts = [Longest(separator) for separator in separators]

    def tokens(text: str) -> list[str]:
        found = [text]
        if by_character:
            found = [*text]
        elif token is not None:
            found = [text[first:end] for first, end in matches(token, text)]
        else:
            for cut in cuts:
                found = [piece for part in found for piece in between(cut, part)]
        return [piece for piece in found if len(piece) >= mincharnum]

    rows = [tokens(text) for text in x.reshape(-1)]
    if mark and any(rows):
        rows = [[START, *row, END] for row in rows]
    return padded(rows, pad_value, x.shape)


# Hashes

WORD = 0xFFFFFFFF


def rotate_left(word: int, by: int) -> int:
    """A 32-bit word, rotated to the left."""
    return (word << by | word >> (32 - by)) & WORD


def murmur_hash(data: bytes, seed: int) -> int:
    """MurmurHash3 (x86, 32 bits), as Austin Appleby published it."""

    def mixed(word: int) -> int:
        return rotate_left(word * 0xCC9E2D51 & WORD, 15) * 0x1B873593 & WORD

    found, whole = seed & WORD, len(data) // 4 * 4
    for word in np.frombuffer(data[:whole], "<u4").tolist():
        found = (rotate_left(found ^ mixed(word), 13) * 5 + 0xE6546B64) & WORD
    found ^= mixed(int.from_bytes(data[whole:], "little")) ^ len(data)
    found = (found ^ found >> 16) * 0x85EBCA6B & WORD
    found = (found ^ found >> 13) * 0xC2B2AE35 & WORD
    return found ^ found >> 16


@operator("MurmurHash3", kind="numpy", domain=CONTRIB)
def murmur_hash3(x: np.ndarray, *, seed: int = 0, positive: int = 1) -> np.ndarray:
    """The hash of each string (UTF-8) or of each number's bytes: uint32, or int32 if not `positive`."""
    if x.dtype == TEXT:
        data = [text.encode() for text in x.reshape(-1)]
    else:
        data = [number.tobytes() for number in x.reshape(-1)]
    found = np.array([murmur_hash(one, seed) for one in data], np.uint32).reshape(x.shape)
    return found if positive else found.view(np.int32)
