"""Custom operators, declared like the engine's own: models that use them run on every backend.

`operator` takes a formula of the kernel language, `numpy_operator` a plain function of NumPy arrays. The
decorated function's signature is the declaration: positional parameters are the inputs (a default of None
marks an optional one, `*xs` any number of them), keyword-only ones the attributes with their defaults.
Declare operators before the models that use them are loaded.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, get_args

import numpy as np

from engine.base.errors import InputError, ShapeError
from engine.graph.model import qualified_op
from engine.kernels.value import ListValue, Value
from engine.operators.builder import Builder
from engine.operators.registry import OPERATORS, Kind, Operator, Precision, declare

D = TypeVar("D", bound=Callable[..., Any])

_ATTRIBUTES = (int, float, str, bytes, tuple, type(None))
"""Types of attributes' defaults; a list would be shared by all layers."""


def operator(
    name: str,
    *,
    domain: str,
    since: int = 1,
    until: int | None = None,
    host: tuple[str, ...] = (),
    precision: Precision = "rounding",
) -> Callable[[D], D]:
    """Declare the decorated function as an operator that writes formulas, native on every backend.

    It is called as `define(k, *inputs, **attributes)` with a `Builder` and `Value`s, and returns a Value or a
    tuple of them. `since` and `until` bound the versions of `domain` that it is for; `host` names integer
    inputs whose elements it has to know (`k.ints`); `precision` is "exact", "rounding" or "random".

    Raises:
        InputError: The operator exists already, or the signature declares none.
    """

    def register(define: D) -> D:
        title = _checked(define, name, domain, since, until, "kernel")
        parameters = list(inspect.signature(define).parameters)[1:]
        if not isinstance(host, tuple):
            raise InputError(f"{title}: host is a tuple of names, not {host!r}")
        if precision not in get_args(Precision):
            known = ", ".join(map(repr, get_args(Precision)))
            raise InputError(f"{title}: there is no precision {precision!r}; there are {known}")
        if unknown := [h for h in host if h not in parameters]:
            raise InputError(f"{title}: host names {unknown[0]!r}, which is no input of it")
        _add(declare(_with_values(define, title), name, since, until, _own(domain), host, precision))
        return define

    return register


def numpy_operator(name: str, *, domain: str, since: int = 1, until: int | None = None) -> Callable[[D], D]:
    """Declare the decorated function of NumPy arrays as an operator.

    It runs on the CPU on every backend and is reported as a fallback; on a GPU its inputs are read back.
    Inputs and results are arrays, lists of arrays for sequences, object arrays of `str` for strings. A
    `ValueError` that it raises is reported with the layer's name.

    Args:
        name: Name of the operator.
        domain: Its domain.
        since: First opset version.
        until: Last opset version; `None` for all later ones.

    Raises:
        InputError: The operator exists already, or the function's parameters do not fit.
    """

    def register(define: D) -> D:
        title = _checked(define, name, domain, since, until, "numpy")
        _add(declare(_with_arrays(define, title), name, since, until, _own(domain), kind="numpy"))
        return define

    return register


def remove_operator(name: str, *, domain: str) -> None:
    """Unregister an operator that `operator` or `numpy_operator` registered, in all its versions.

    Models that are loaded already keep it.

    Raises:
        InputError: No such operator was declared.
    """
    mine = [op for op in OPERATORS if (op.domain, op.name) == (_own(domain), name)]
    if not mine or not all(op in _declared for op in mine):
        raise InputError(f"no operator {qualified_op(_own(domain), name)} was declared here")
    for op in mine:
        OPERATORS.remove(op)
        _declared.remove(op)


_declared: list[Operator] = []


def _add(op: Operator) -> None:
    title = qualified_op(op.domain, op.name)
    for other in OPERATORS:
        if (other.domain, other.name) == (op.domain, op.name) and other not in _declared:
            raise InputError(f"the engine has an operator {title} itself; give yours a domain of its own")
    try:
        OPERATORS.add(op)
    except ValueError as error:
        raise InputError(f"operator {title} is declared twice: {error}; remove_operator forgets it") from None
    _declared.append(op)


def _checked(define: Any, name: str, domain: str, since: int, until: int | None, kind: Kind) -> str:
    """Raise `InputError` for an invalid declaration; returns the operator's name in messages."""
    if not isinstance(name, str) or not name or not isinstance(domain, str):
        raise InputError(f"an operator needs a name and a domain, got {name!r} and {domain!r}")
    title = f"operator {qualified_op(_own(domain), name)}"
    if not callable(define) or inspect.isclass(define):
        raise InputError(f"{title}: a function declares it, not {define!r}")
    if not isinstance(since, int) or not isinstance(until, int | None):
        raise InputError(f"{title}: versions are whole numbers, not since={since!r} and until={until!r}")
    if since < 1 or (until is not None and until < since):
        raise InputError(f"{title}: no version is between since={since} and until={until}")
    parameters = list(inspect.signature(define).parameters.values())
    if kind == "kernel":
        if not parameters or parameters[0].kind not in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            raise InputError(f"{title}: its function needs a first parameter for the Builder: (k, x, ...)")
        parameters = parameters[1:]
    for parameter in parameters:
        _check_parameter(title, parameter)
    return title


def _check_parameter(title: str, parameter: inspect.Parameter) -> None:
    default, name = parameter.default, parameter.name
    if parameter.kind is parameter.VAR_KEYWORD:
        raise InputError(f"{title}: name its attributes one by one after a *, instead of **{name}")
    if parameter.kind is parameter.KEYWORD_ONLY:
        if default is not parameter.empty and not isinstance(default, _ATTRIBUTES):
            raise InputError(
                f"{title}: attribute {name} has the default {default!r}; it may be a number, a string, "
                "a tuple or None"
            )
    elif default is not parameter.empty and default is not None:
        raise InputError(
            f"{title}: input {name} has the default {default!r}; an optional input's is None, and attributes "
            "come after a *"
        )


def _with_values(define: Callable[..., Any], title: str) -> Callable[..., Any]:
    """Wrap a definition: results that are not tensors raise a clear error."""

    @functools.wraps(define)
    def checked(k: Builder, *inputs: Any, **attributes: Any) -> Any:
        with _noted(f"in {title}, for {k.layer}"):
            result = define(k, *inputs, **attributes)
        for item in result if isinstance(result, tuple) else (result,):
            if not isinstance(item, Value | ListValue | None):
                raise ShapeError(
                    f"{k.layer}: {title} yielded {type(item).__name__}; a definition yields what "
                    "k.elementwise, k.compute or k.constant gave, one or a tuple"
                )
        return result

    return checked


def _with_arrays(define: Callable[..., Any], title: str) -> Callable[..., Any]:
    """Wrap a function: results that are not arrays raise a clear error."""

    @functools.wraps(define)
    def checked(*inputs: Any, **attributes: Any) -> Any:
        with _noted(f"in {title}"):
            result = define(*inputs, **attributes)
        for item in result if isinstance(result, tuple) else (result,):
            items = item if isinstance(item, list) else [item]
            if not all(isinstance(x, np.ndarray | np.generic) for x in items):
                raise ValueError(f"{title} yielded {type(item).__name__}; its function returns arrays")
        return result

    return checked


@contextmanager
def _noted(note: str) -> Iterator[None]:
    """Context manager: adds a note on their origin to errors of a game's own code."""
    try:
        yield
    except Exception as error:
        error.add_note(note)
        raise


def _own(domain: str) -> str:
    """A domain as layers have it: ONNX's own is empty."""
    return "" if domain == "ai.onnx" else domain
