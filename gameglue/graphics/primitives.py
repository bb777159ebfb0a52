"""Built-in meshes by name, such as "sphere" or "plane(8, 8, cells=4)" in scene files and fields."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from gameglue.errors import MeshError

P = ParamSpec("P")
T = TypeVar("T")


def records_source(make: Callable[P, T]) -> Callable[P, T]:
    """Decorator below `@classmethod`: stores the call as `source`, from which `call_of` can repeat it."""

    @functools.wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> T:
        form = make(*args, **kwargs)
        given = [_written(value) for value in args[1:]]
        given += [f"{name}={_written(value)}" for name, value in kwargs.items()]
        form.source = f"{make.__name__}({', '.join(given)})" if given else make.__name__  # type: ignore[attr-defined]
        return form

    return made


def call_of(text: str) -> tuple[str, list[Any], dict[str, Any]] | None:
    """Parse text such as "torus(1.0, tube=0.3)" to name, arguments and keywords; `None` for other text.

    Raises `MeshError` for arguments that are no plain numbers or tuples of them.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return None
    if isinstance(tree, ast.Name):
        return tree.id, [], {}
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        return None
    try:
        arguments = [ast.literal_eval(value) for value in tree.args]
        keywords = {word.arg or "**": ast.literal_eval(word.value) for word in tree.keywords}
    except ValueError as error:
        raise MeshError(f"{text!r}: a form takes numbers and tuples of numbers") from error
    return tree.func.id, arguments, keywords


def _written(value: object) -> str:
    if isinstance(value, Iterable):
        return repr(tuple(float(number) for number in value))
    return repr(value if isinstance(value, int) or value is None else float(value))  # type: ignore[arg-type]
