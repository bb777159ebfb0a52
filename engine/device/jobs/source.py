"""Extracts the source of a user's function, so that it can be compiled and cached.

A function is more than its own lines: it calls others and reads names of its module. All of that becomes
text: functions that are called as text of their own, numbers as literals, modules as imports. What has no
text (a list, an object) is refused by name. Names are read once: changing one later changes nothing.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.base.errors import InputError

Function = types.FunctionType


@dataclass(frozen=True)
class SourceSpan:
    """Maps `count` lines of a text, from `first` on, to lines of `file` from `line` on."""

    first: int
    count: int
    file: str
    line: int


@dataclass(frozen=True)
class FunctionText:
    """The source text of a function and everything it needs.

    `written(parameter, axes)`: whether it may set elements of an array with so many axes.
    """

    text: str
    spans: tuple[SourceSpan, ...]
    parameters: tuple[str, ...]
    written: Callable[[str, int], bool]

    def place(self, line: int) -> str | None:
        """The origin of a line of the text, as "file:line"."""
        for s in self.spans:
            if s.first <= line < s.first + s.count:
                return f"{s.file}:{s.line + line - s.first}"
        return None


def where(function: Function) -> str:
    """A function's file and line, for messages."""
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def source_text(function: Callable[..., object]) -> FunctionText:
    """The source of a job's function; raises `InputError` if it is not a valid one."""
    assert isinstance(function, Function)
    definition, _ = _definition(function)
    arguments = definition.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
        raise InputError(
            f"job '{function.__name__}' ({where(function)}) takes plain parameters only: begin, end, then "
            "its arrays and numbers, without defaults or stars"
        )
    names = tuple(a.arg for a in (*arguments.posonlyargs, *arguments.args))
    if len(names) < 2:
        raise InputError(
            f"job '{function.__name__}' ({where(function)}) needs the parameters begin and end, the range of "
            "indices that one call does"
        )
    writer = _Writer()
    writer.function(function)
    read_only_to = _uses(definition)
    written = lambda name, rank: read_only_to(name) < rank  # noqa: E731
    return FunctionText("".join(writer.parts), tuple(writer.spans), names, written)


class _Writer:
    """Collects texts, those first that others need."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.spans: list[SourceSpan] = []
        self._known: dict[str, Any] = {}
        self._lines = 0

    def function(self, function: Function) -> None:
        definition, lines = _definition(function)
        name = function.__name__
        self._claim(name, function, function)
        for free in sorted(_free_names(definition) - {name}):
            found = _look_up(function, free)
            if found is not _MISSING:
                self._name(free, found, function)
        # With its annotations: `engine.device.native.compile` postpones them, so nothing evaluates them.
        text = "\n".join(lines[definition.lineno - 1 : definition.end_lineno]) + "\n"
        self._add("@_gameglue_helper\n")
        first = self._lines + 1
        start = function.__code__.co_firstlineno + definition.lineno - 1
        self._add(text)
        self.spans.append(SourceSpan(first, text.count("\n"), function.__code__.co_filename, start))

    def _add(self, text: str) -> None:
        self.parts.append(text)
        self._lines += text.count("\n")

    def _claim(self, name: str, value: object, user: Function) -> bool:
        """Whether the name is new; one name cannot mean two things in one text."""
        if name in self._known:
            if self._known[name] is not value and self._known[name] != value:
                raise InputError(
                    f"job '{user.__name__}' ({where(user)}) meets two things called '{name}' in what it "
                    "calls; rename one"
                )
            return False
        self._known[name] = value
        return True

    def _name(self, name: str, value: Any, user: Function) -> None:
        """The definition of a module-level name, as text."""
        value = getattr(value, "py_func", value)  # of a job, or of a function that numba has wrapped
        if isinstance(value, Function):
            if value.__name__ != name:
                raise InputError(
                    f"job '{user.__name__}' ({where(user)}) calls '{value.__name__}' as '{name}'; call it by "
                    "its own name"
                )
            if name not in self._known:
                self.function(value)
            else:
                self._claim(name, value, user)
            return
        text = _statement(name, value)
        if text is None:
            raise InputError(
                f"job '{user.__name__}' ({where(user)}) uses '{name}', a {type(value).__name__}: compiled "
                "code knows numbers, modules and other functions; pass anything else as an argument"
            )
        if self._claim(name, value, user):
            self._add(text)


_MISSING = object()


def _look_up(function: Function, name: str) -> Any:
    """The value of a name in a function: of its closure or its module."""
    if name in function.__code__.co_freevars:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:
            return _MISSING
    if name in function.__globals__:
        return function.__globals__[name]
    if hasattr(builtins, name):
        return _MISSING
    raise InputError(f"job '{function.__name__}' ({where(function)}) uses '{name}', which is not defined")


def _statement(name: str, value: Any) -> str | None:
    """The assignment of a name's value; None if it has none."""
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__} as {name}\n"
    literal = _literal(value)
    if literal is not None:
        return f"{name} = {literal}\n"
    module, own = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if isinstance(value, np.ufunc):
        module = "numpy"
    if type(value).__module__.startswith("numba.core.types"):
        return f"from numba import {value} as {name}\n"
    if module in ("math", "numpy", "operator", "cmath") and own is not None:
        return f"from {module} import {own} as {name}\n"
    return None


def _literal(value: Any) -> str | None:
    """A number, truth value or tuple of them as Python text."""
    if isinstance(value, tuple):
        items = [_literal(item) for item in value]
        return None if None in items else f"({', '.join(map(str, items))}{',' if len(items) == 1 else ''})"
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return f"__import__('numpy').{value.dtype.name}({_literal(value.item())})"
    if type(value) is float and (value != value or value in (float("inf"), -float("inf"))):
        return f"float('{value}')"
    return repr(value) if type(value) in (int, float, bool, complex) or value is None else None


def _definition(function: Function) -> tuple[ast.FunctionDef, list[str]]:
    """A function's syntax tree and its dedented lines."""
    if function.__name__ == "<lambda>":
        raise InputError(f"a job is a function with a name, not a lambda ({where(function)})")
    try:
        text = textwrap.dedent(inspect.getsource(function))
        found = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise InputError(
            f"the source of '{function.__name__}' ({where(function)}) cannot be read, and a job is compiled "
            "from it: define it in a file"
        ) from error
    if not isinstance(found, ast.FunctionDef):
        raise InputError(f"a job is a plain function; '{function.__name__}' ({where(function)}) is none")
    return found, text.split("\n")


def _free_names(definition: ast.FunctionDef) -> set[str]:
    """Names that a function reads and does not set."""
    loads: set[str] = set()
    bound = {a.arg for a in ast.walk(definition) if isinstance(a, ast.arg)}
    for part in (*definition.body, *definition.args.defaults):
        for node in _without_annotations(part):
            if isinstance(node, ast.Name):
                (loads if isinstance(node.ctx, ast.Load) else bound).add(node.id)
            elif isinstance(node, ast.FunctionDef):
                bound.add(node.name)
    return loads - bound


def _without_annotations(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _without_annotations(child)


_READING = frozenset("shape size ndim dtype sum min max mean argmin argmax any all".split())


def _uses(definition: ast.FunctionDef) -> Callable[[str], int]:
    """For a parameter: up to how many axes an array is surely only read.

    `x[i]` reads an element of a vector, and is a part of a matrix that may be written to; what is passed on
    or set is taken to be written.
    """
    axes: dict[str, int] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            plain = isinstance(node.ctx, ast.Load) and not any(isinstance(i, ast.Slice) for i in index)
            note(node.value.id, len(index) if plain else 0)
            visit(node.slice)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr not in _READING:
                note(node.value.id, 0)
        elif isinstance(node, ast.Call) and _is_len(node):
            pass
        elif isinstance(node, ast.Name):
            note(node.id, 0)
        else:
            for child in ast.iter_child_nodes(node):
                visit(child)

    def note(name: str, count: int) -> None:
        axes[name] = min(axes.get(name, count), count)

    for statement in definition.body:
        visit(statement)
    return lambda name: axes.get(name, 99)


def _is_len(call: ast.Call) -> bool:
    is_len = isinstance(call.func, ast.Name) and call.func.id == "len"
    return is_len and len(call.args) == 1 and isinstance(call.args[0], ast.Name)
