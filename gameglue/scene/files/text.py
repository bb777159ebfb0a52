"""Reads and writes a small, strict subset of YAML, with the line of each value.

Plain words mean what YAML 1.2's core schema says (`no` is a text, `1e-3` a number). There are no anchors,
tags, merged or repeated keys, and no more than `MAX_DEPTH` levels: a file means what one reads in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from gameglue.errors import SceneError

MAX_DEPTH = 150

# The parser written in C, where PyYAML was built with it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
# Python refuses to read longer ones, too.
_LONGEST_INTEGER = 1000


_BARE_COLOR = re.compile(r"(?:[:,\[]|^\s*-)\s+(#(?:[0-9a-fA-F]{3,4}){1,2})\s*(?:[,}\]].*)?$")
"""A colour without quotes, as the end of a line: YAML takes it for a comment."""


@dataclass(slots=True)
class Node:
    """A value with its line: None, bool, int, float, str, a list of nodes, or a dict of nodes.

    The value of a key has the key's line.
    """

    value: Any
    line: int


class _Dumper(_SafeDumper):
    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    # Line breaks as \n: what YAML folds is hard to read.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)

for _tag, _words in (
    ("null", re.compile(r"(?:~|null|Null|NULL|)\Z")),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")),
    ("int", re.compile(rf"(?:{_INTEGER.pattern})\Z")),
    ("float", re.compile(rf"(?:{_NUMBER.pattern})\Z")),
):
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _words, None)


def parse(text: str, name: str) -> Node:
    """The content of a file as nodes. Raises `SceneError` with `name` and the line."""
    lines = text.splitlines()
    for number, written in enumerate(lines, 1):
        found = _BARE_COLOR.search(written) if "#" in written else None
        if found is not None and not _is_quoted(written[: found.start()]):
            raise SceneError(
                f'{name}, line {number}: a colour needs quotes, "{found[1]}": what follows # is a comment'
            )
    try:
        return _build(iter(yaml.parse(text, Loader=_Loader)), name)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        what = ", ".join(part for part in (error.context, error.problem) if part)
        if line <= len(lines) and "\t" in lines[line - 1][: mark.column + 1 if mark is not None else 0]:
            what = "a line is indented with spaces, not with tabs"
        raise SceneError(f"{name}, line {line}: this is not YAML: {what}") from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise SceneError(f"{name} is not YAML: {error}") from error


def _is_quoted(before: str) -> bool:
    """Whether what follows on the line is inside quotes."""
    return before.count('"') % 2 == 1 or before.count("'") % 2 == 1


def dump(data: object) -> str:
    """Serialize data made of None, bool, int, float, str, list and dict; scalars stay on one line."""
    text: str = yaml.dump(
        data, Dumper=_Dumper, default_flow_style=None, sort_keys=False, allow_unicode=True, width=100
    )
    return text


def _build(events: Iterator[Any], name: str) -> Node:
    """One document; a stack of its own instead of recursion, as files may be nested as deep as they like."""
    root = Node(None, 1)
    stack: list[_Open] = []
    documents = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise SceneError(f"{name}, line {line}: a file holds one document, and here begins another")
        elif isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
        elif isinstance(event, yaml.NodeEvent):
            node = _node(event, line, name)
            if stack:
                stack[-1].take(node, name)
            else:
                root = node
            if isinstance(event, yaml.CollectionStartEvent):
                if len(stack) == MAX_DEPTH:
                    raise SceneError(f"{name}, line {line}: more than {MAX_DEPTH} levels")
                stack.append(_Open(node))
    return root


class _Open:
    """A list or mapping that is being filled."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._key: Node | None = None

    def take(self, node: Node, name: str) -> None:
        content = self._node.value
        if isinstance(content, list):
            content.append(node)
        elif self._key is None:
            if isinstance(node.value, list | dict):
                raise SceneError(f"{name}, line {node.line}: a key is a single word or number")
            if node.value in content:
                raise SceneError(f"{name}, line {node.line}: duplicate key {node.value!r}")
            self._key = node
        else:
            content[self._key.value] = node
            node.line = self._key.line
            self._key = None


def _node(event: Any, line: int, name: str) -> Node:
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        raise SceneError(f"{name}, line {line}: anchors (& and *) are not used in scenes")
    if event.tag is not None and event.tag != "!":
        raise SceneError(f"{name}, line {line}: tags such as {event.tag!r} are not used in scenes")
    if isinstance(event, yaml.SequenceStartEvent):
        return Node([], line)
    if isinstance(event, yaml.MappingStartEvent):
        return Node({}, line)
    word = event.value
    if not event.implicit[0]:
        return Node(word, line)
    if word in _WORDS:
        return Node(_WORDS[word], line)
    if _INTEGER.fullmatch(word):
        if len(word) > _LONGEST_INTEGER:
            raise SceneError(f"{name}, line {line}: a number of {len(word)} digits")
        return Node(int(word, 0) if word[:2] in ("0o", "0x") else int(word), line)
    if _NUMBER.fullmatch(word):
        return Node(float(word.lower().replace(".inf", "inf").replace(".nan", "nan")), line)
    return Node(word, line)
