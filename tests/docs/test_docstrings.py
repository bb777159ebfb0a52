"""Docstrings of the public API: functions with several parameters document each of them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gameglue
from tests.conftest import ROOT

MANY = 3
"""From so many parameters on, each has to be documented."""

NOT_CALLED_BY_USERS = {
    "Canvas", "Coroutine", "GameObject", "InferenceQueue", "InferenceRequest", "InferenceRequest.end",
    "JobHandle", "Loading", "PlayOptions", "Prefab", "RenderTarget", "SystemInfo", "Model", "BackendChoice",
    "Range", "TextureTransform",
}  # fmt: skip
"""Made by the engine or the host, or records whose attributes are documented instead."""

DRAWING = re.compile(r"Canvas\.\w+")
"""Told by a table of the guide to text and GUI, and by their own sentences."""


def public() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Public classes, methods and functions by name, with what documents their parameters."""
    for name in gameglue.__all__:
        found = getattr(gameglue, name)
        if not getattr(found, "__module__", "").startswith(("gameglue", "engine")):
            continue
        if inspect.isfunction(found):
            yield name, found, inspect.getdoc(found) or ""
        if not inspect.isclass(found):
            continue
        if "__init__" in vars(found):
            made = found.__init__
            yield name, made, f"{inspect.getdoc(found) or ''}\n{inspect.getdoc(made) or ''}"
        for attribute, value in vars(found).items():
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if inspect.isfunction(function) and not attribute.startswith("_"):
                yield f"{name}.{attribute}", function, inspect.getdoc(function) or ""


PUBLIC = {name: (function, text) for name, function, text in public()}


def parameters(function: Callable[..., Any]) -> list[str]:
    """The names that callers may give."""
    names = list(inspect.signature(function).parameters)
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def documented(text: str) -> list[str]:
    """The names in a docstring's `Args:`."""
    section = re.search(r"^Args:\n((?: {4}.*\n?|\n)+)", text, re.MULTILINE)
    return re.findall(r"^ {4}\*{0,2}(\w+): ", section[1], re.MULTILINE) if section else []


MANY_PARAMETERS = sorted(
    name
    for name, (function, _) in PUBLIC.items()
    if len(parameters(function)) >= MANY and name not in NOT_CALLED_BY_USERS and not DRAWING.fullmatch(name)
)


@pytest.mark.parametrize("name", MANY_PARAMETERS)
def test_each_parameter_is_documented(name: str) -> None:
    function, text = PUBLIC[name]
    assert sorted(documented(text)) == sorted(parameters(function))


@pytest.mark.parametrize("name", sorted(name for name, (_, text) in PUBLIC.items() if "Args:" in text))
def test_what_is_documented_is_a_parameter(name: str) -> None:
    function, text = PUBLIC[name]
    assert set(documented(text)) <= set(parameters(function))
    assert documented(text), "Args: without names"


def test_everything_public_has_a_docstring() -> None:
    assert len(PUBLIC) > 300
    assert len(MANY_PARAMETERS) > 50
    assert [name for name, (_, text) in PUBLIC.items() if not text.strip()] == []


PLAIN = re.compile(
    r"\b(told|tells?|telling|whoever|whatever|who asks|nobody|somebody|lies?|stretch(es)?|"
    r"on (its|their) way|under way|so many|pictures?|sharers?|go(es)? on|beside (the|a) (game's )?frames?)\b",
    re.IGNORECASE,
)
"""Words that make a reader stop, where docstrings begin; see *Write documentation*."""


def public_first_lines() -> Iterator[tuple[str, str]]:
    """The first docstring lines of the public classes, their methods and properties."""
    for name in gameglue.__all__:
        found = getattr(gameglue, name)
        if not getattr(found, "__module__", "").startswith(("gameglue", "engine")):
            continue
        yield name, inspect.getdoc(found) or ""
        for attribute, value in vars(found).items() if inspect.isclass(found) else ():
            if not attribute.startswith("_") and callable(getattr(value, "__get__", None)):
                yield f"{name}.{attribute}", inspect.getdoc(value) or ""


def module_first_lines() -> Iterator[tuple[str, str]]:
    """The first docstring lines of all modules."""
    for folder in ("gameglue", "engine"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""


@pytest.mark.parametrize("lines", [public_first_lines, module_first_lines])
def test_first_lines_are_plain(lines: Callable[[], Iterator[tuple[str, str]]]) -> None:
    found = {name: text.partition("\n")[0] for name, text in lines()}
    assert len(found) > 300
    assert {name: first for name, first in found.items() if PLAIN.search(first)} == {}


def test_errors_have_a_section_of_their_own() -> None:
    """Where an editor shows them: under `Raises:`, not in prose."""
    game = {name: text for name, text in public_first_lines() if is_of_the_game(name)}
    game |= {name: text for name, (_, text) in PUBLIC.items() if is_of_the_game(name)}
    assert len(game) > 300
    assert [name for name, text in game.items() if re.search(r"\b[Rr]aises `", text)] == []


def is_of_the_game(name: str) -> bool:
    """Whether a public name is defined in `gameglue`, not in the engine."""
    return getattr(gameglue, name.partition(".")[0]).__module__.startswith("gameglue")
