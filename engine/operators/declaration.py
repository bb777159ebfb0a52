"""Operator declarations: attributes and inputs, against which layers are checked.

The types of attributes are those of the definition's keyword-only parameters. What elements an input may have
is declared by ONNX's schema where the operator is ONNX's; formulas of onnxruntime's operators take numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from engine.base.dtypes import INTEGER_TYPES, TEXT
from engine.graph.model import CONTRIB, Model, Output

ONNX_DOMAINS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"})
"""Domains whose operators the `onnx` package describes."""

_NEWEST = 1 << 20
"""A version beyond every one of an opset."""

_NAMES: dict[type, tuple[str, str, tuple[type, ...]]] = {
    int: ("an integer", "integers", (int, np.integer)),
    float: ("a number", "numbers", (int, float, np.integer, np.floating)),
    str: ("a string", "strings", (str,)),
    np.ndarray: ("a tensor", "tensors", (np.ndarray,)),
    Model: ("a graph", "graphs", (Model,)),
    Output: ("a type", "types", (Output,)),
}
"""What attributes may be: in words, in words for a list of them, and the types of their values."""


@dataclass(frozen=True, slots=True)
class AttributeType:
    """The type of an attribute: its name in messages, and the types of its values or list items."""

    words: str
    types: tuple[type, ...]
    is_list: bool
    may_be_none: bool

    def accepts(self, value: Any) -> bool:
        """Whether a layer may give this value."""
        if value is None:
            return self.may_be_none
        if not self.is_list:
            return isinstance(value, self.types)
        return isinstance(value, tuple | list) and all(isinstance(item, self.types) for item in value)


class AttributeGroup:
    """Base of dataclasses whose fields are attributes that several operators share.

    A definition takes a group as one keyword-only parameter, and its operator has all of the attributes.
    """


def group_of(define: Callable[..., Any], parameter: inspect.Parameter) -> type[Any] | None:
    """The attribute group of a definition's parameter; None for a single attribute."""
    found = getattr(define, "__globals__", {}).get(str(parameter.annotation))
    return found if inspect.isclass(found) and issubclass(found, AttributeGroup) else None


def attribute_types(define: Callable[..., Any]) -> dict[str, AttributeType]:
    """Attribute types from a definition's annotations, as far as these are specific."""
    function: Any = define.__init__ if inspect.isclass(define) else inspect.unwrap(define)
    try:
        hints = get_type_hints(function)
    except (AttributeError, NameError, SyntaxError, TypeError):
        return {}  # the annotations of a game's own operator need not be types
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    for name in names:
        if inspect.isclass(group := hints.get(name)) and issubclass(group, AttributeGroup):
            hints |= get_type_hints(group)
            names = [*names, *(field.name for field in fields(group))]  # type: ignore[arg-type]
    found = {name: _attribute_type(hints[name]) for name in names if name in hints}
    return {name: made for name, made in found.items() if made is not None}


def list_of(item: type) -> AttributeType:
    """A list of integers or numbers."""
    _, many, types = _NAMES[item]
    return AttributeType(f"a list of {many}", types, is_list=True, may_be_none=False)


def _attribute_type(hint: Any) -> AttributeType | None:
    parts = [hint]
    if get_origin(hint) in (Union, UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
    may_be_none = type(None) in get_args(hint)
    if len(parts) != 1:
        return None
    [part] = parts
    if get_origin(part) is np.ndarray:
        part = np.ndarray
    items = [a for a in get_args(part) if a is not Ellipsis]
    is_list = isinstance(get_origin(part), type) and issubclass(get_origin(part), Sequence)
    named = _NAMES.get(items[0] if is_list and len(items) == 1 else part)
    if named is None:
        return None
    one, many, types = named
    return AttributeType(f"a list of {many}" if is_list else one, types, is_list, may_be_none)


def shown(value: Any) -> str:
    """An attribute's value as messages show it."""
    if isinstance(value, np.ndarray):
        return f"a {value.dtype.name} tensor of shape {list(value.shape)}"
    for kind in (Model, Output):
        if isinstance(value, kind):
            return _NAMES[kind][0]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# Elements of inputs


@dataclass(frozen=True, slots=True)
class Elements:
    """Which elements an input takes."""

    text: bool = True
    only_integers: bool = False
    only_text: bool = False

    def problem(self, dtype: np.dtype) -> str | None:
        """Why elements of this type cannot be given, or None."""
        is_text = dtype == TEXT
        if self.only_integers and dtype.name not in INTEGER_TYPES:
            return f"holds {'strings' if is_text else dtype.name}; the operator takes integers"
        if is_text and not self.text:
            return "holds strings; the operator takes numbers"
        if self.only_text and not is_text:
            return f"holds {dtype.name}; the operator takes strings"
        return None


ANY = Elements()
"""What is known of an input that nothing describes."""


NUMBERS = Elements(text=False)
"""What formulas compute with."""

_MOVING = frozenset({"GatherND", "ExpandDims"})
"""Operators of onnxruntime's own domain that move elements of any type."""


def input_elements(domain: str, name: str, until: int | None, is_kernel: bool) -> tuple[Elements, ...]:
    """The declared elements of each input; the last item applies to all following inputs.

    ONNX's schemas describe ONNX's operators. Of those that onnxruntime adds, the ones that are formulas
    (`is_kernel`) take numbers.
    """
    if domain == CONTRIB and is_kernel and name not in _MOVING:
        return (NUMBERS,)
    if domain not in ONNX_DOMAINS:
        return ()
    # Importing it takes as long as all of the engine, and a model whose graph is stored needs no schema.
    from onnx import defs

    try:
        schema = defs.get_schema(name, _NEWEST if until is None else until, domain)
    except defs.SchemaError:
        return ()
    return tuple(_elements(formal.types) for formal in schema.inputs)


def _elements(types: Collection[str]) -> Elements:
    """The element types of one input's type constraints."""
    texts = [t for t in types if "(string)" in t]
    integers = [t for t in types if any(f"({kind})" in t for kind in INTEGER_TYPES)]
    return Elements(
        text=bool(texts),
        only_integers=len(integers) == len(types) > 0,
        only_text=len(texts) == len(types) > 0,
    )
