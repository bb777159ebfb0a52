"""The list of operators, built by the decorators under which their definitions stand.

A definition's signature is its declaration: positional parameters are the inputs (a default of None, or a
type that allows None, marks an optional one, `*xs` any number), keyword-only ones the attributes with their
defaults. There are three kinds: formulas of the kernel language (`operator`), plain NumPy functions that run
on the CPU whatever the backend (`numpy_operator`), and classes that run other layers (`control_operator`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from engine.errors import ShapeError
from engine.kernels.value import Entry, ListValue, Value
from engine.model import Layer
from engine.operators.bounds import BoundRule
from engine.operators.builder import Builder
from engine.operators.control import ControlFlow

Definition = Callable[..., Entry | tuple[Entry, ...]]
NumpyDefinition = Callable[..., Any]
Precision = Literal["exact", "rounding", "random"]
Kind = Literal["kernel", "numpy", "control"]
Form = Literal["tensor", "sequence"]
_FORMS: dict[str, Form] = {"Value": "tensor", "Value | None": "tensor", "ListValue": "sequence"}
"""What definitions declare of an input by its type; any other type takes both."""

HostInputs = tuple[str, ...] | Callable[[Layer], tuple[str, ...]]
"""Names of inputs, or what gives them for a layer (where an attribute decides)."""


@dataclass(frozen=True)
class Operator:
    """One operator over a range of opset versions.

    `since` and `until` bound the opset versions (inclusive; until None means the newest). `host` names the
    inputs whose elements must be known before kernels can be chosen. `precision` tells how closely
    backends agree: "exact", "rounding" (to the tolerance of floats) or "random" (in distribution). `bound`
    says what becomes of an axis whose exact size only the device knows; without it the layer has to know.
    """

    name: str
    domain: str
    since: int
    until: int | None
    define: Callable[..., Any]
    host: HostInputs = ()
    precision: Precision = "rounding"
    kind: Kind = "kernel"
    bound: BoundRule | None = None
    inputs: tuple[str, ...] = ()
    optional: frozenset[str] = frozenset()
    variadic: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    forms: Mapping[str, Form] = field(default_factory=dict)

    def host_positions(self, layer: Layer) -> tuple[int, ...]:
        """Which of a layer's inputs must be known on the host."""
        count = len(layer.inputs)
        host = self.host(layer) if callable(self.host) else self.host
        names = [*self.inputs, *[self.variadic] * max(0, count - len(self.inputs))]
        return tuple(i for i in range(count) if names[i] in host)

    def problem(self, layer: Layer) -> str | None:
        """What makes a layer unusable whatever its shapes: a missing input, an unknown attribute."""
        if len(layer.inputs) > len(self.inputs) and self.variadic is None:
            return f"takes at most {len(self.inputs)} inputs, not {len(layer.inputs)}"
        given = {name for name, value in zip(self.inputs, layer.inputs, strict=False) if value}
        if missing := [name for name in self.inputs if name not in given and name not in self.optional]:
            return f"lacks its input {missing[0]}"
        if unknown := sorted(set(layer.attributes) - set(self.attributes)):
            known = ", ".join(self.attributes) or "none"
            return f"has an unknown attribute {unknown[0]}; known: {known}"
        required = [a for a, default in self.attributes.items() if default is inspect.Parameter.empty]
        if absent := [a for a in required if a not in layer.attributes]:
            return f"lacks its attribute {absent[0]}"
        return None

    def build(self, builder: Builder, inputs: Sequence[Entry]) -> tuple[Entry, ...]:
        """Run the definition of a "kernel" operator for a layer."""
        self.check(builder.layer)
        self.check_forms(builder, inputs)
        result = self.define(builder, *inputs, **builder.layer.attributes)
        return result if isinstance(result, tuple) else (result,)

    def open(self, builder: Builder, inputs: Sequence[Entry]) -> ControlFlow:
        """What a "control" operator's layer does, before its first run of a body."""
        self.check(builder.layer)
        self.check_forms(builder, inputs)
        opened = self.define(builder, *inputs, **builder.layer.attributes)
        assert isinstance(opened, ControlFlow)
        return opened

    def call(self, layer: Layer, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Run a "numpy" operator on arrays (lists of them for sequences, None for absent inputs)."""
        self.check(layer)
        try:
            result = self.define(*inputs, **layer.attributes)
        except (ArithmeticError, LookupError, TypeError, ValueError, ImportError) as error:
            raise ShapeError(f"{layer}: {error}") from error
        results = result if isinstance(result, tuple) else (result,)
        return tuple(np.asarray(r) if isinstance(r, np.generic) else r for r in results)

    def check_forms(self, builder: Builder, inputs: Sequence[Entry]) -> None:
        """Refuse a sequence where the definition takes a tensor, and a tensor where it takes a sequence."""
        names = [*self.inputs, *[self.variadic or ""] * (len(inputs) - len(self.inputs))]
        for name, given in zip(names, inputs, strict=False):
            form = self.forms.get(name)
            if isinstance(given, ListValue) and form == "tensor":
                builder.error(f"its input {name} is a sequence; the operator takes a tensor")
            if isinstance(given, Value) and form == "sequence":
                builder.error(f"its input {name} is a tensor; the operator takes a sequence")

    def check(self, layer: Layer) -> None:
        """Raise `ShapeError` for a layer that `problem` refuses."""
        if message := self.problem(layer):
            raise ShapeError(f"{layer} {message}")


class Registry:
    """Operators by domain and name; `find` picks the one that covers an opset version."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], list[Operator]] = {}

    def add(self, op: Operator) -> None:
        """Register; two definitions of one operator must not overlap in versions."""
        group = self._by_name.setdefault((op.domain, op.name), [])
        for other in group:
            if (other.until is None or op.since <= other.until) and (
                op.until is None or other.since <= op.until
            ):
                raise ValueError(
                    f"{op.name} is already defined for opset {other.since} to {other.until or 'newest'}"
                )
        group.append(op)

    def remove(self, op: Operator) -> None:
        """Take a definition out again."""
        group = self._by_name[op.domain, op.name]
        group.remove(op)
        if not group:
            del self._by_name[op.domain, op.name]

    def find(self, domain: str, name: str, version: int) -> Operator | None:
        """The definition for an opset version, or None."""
        for op in self._by_name.get((domain, name), ()):
            if op.since <= version and (op.until is None or version <= op.until):
                return op
        return None

    def __iter__(self) -> Iterator[Operator]:
        for group in self._by_name.values():
            yield from group

    def unsupported(self, domain: str, name: str, version: int) -> str | None:
        """Why a model that uses this operator cannot run, or None."""
        if self.find(domain, name, version):
            return None
        if (domain, name) in self._by_name:
            ranges = ", ".join(f"{o.since} to {o.until or 'newest'}" for o in self._by_name[domain, name])
            return f"opset version {version} is not supported (supported: {ranges})"
        return "no such operator in this engine"


OPERATORS = Registry()
"""Every built-in operator; filled when `engine.operators` is imported."""

D = TypeVar("D", bound=Callable[..., Any])


def operator(
    name: str,
    *,
    since: int = 1,
    until: int | None = None,
    domain: str = "",
    host: HostInputs = (),
    precision: Precision = "rounding",
    bound: BoundRule | None = None,
    registry: Registry = OPERATORS,
) -> Callable[[D], D]:
    """Register the decorated function, which writes formulas, as the definition of an operator."""

    def register(define: D) -> D:
        registry.add(declare(define, name, since, until, domain, host, precision, bound=bound))
        return define

    return register


def numpy_operator(
    name: str,
    *,
    since: int = 1,
    until: int | None = None,
    domain: str = "",
    registry: Registry = OPERATORS,
) -> Callable[[D], D]:
    """Register the decorated function of NumPy arrays as an operator that runs on the CPU.

    Inputs are arrays, lists of arrays for sequences, object arrays of `str` for strings, None where absent;
    so are the results, one or a tuple. On a GPU backend its inputs are read back, and the plan goes on when
    they have arrived. A ValueError that it raises is reported with the layer's name.
    """

    def register(define: D) -> D:
        registry.add(declare(define, name, since, until, domain, kind="numpy"))
        return define

    return register


def control_operator(
    name: str,
    *,
    since: int = 1,
    until: int | None = None,
    domain: str = "",
    host: HostInputs = (),
    registry: Registry = OPERATORS,
) -> Callable[[D], D]:
    """Register the decorated `ControlFlow` class as an operator that runs other layers."""

    def register(define: D) -> D:
        registry.add(declare(define, name, since, until, domain, host, kind="control"))
        return define

    return register


def declare(
    define: Callable[..., Any],
    name: str,
    since: int = 1,
    until: int | None = None,
    domain: str = "",
    host: HostInputs = (),
    precision: Precision = "rounding",
    kind: Kind = "kernel",
    bound: BoundRule | None = None,
) -> Operator:
    """An `Operator` from a definition's signature."""
    inputs: list[str] = []
    optional: set[str] = set()
    variadic: str | None = None
    attributes: dict[str, Any] = {}
    forms: dict[str, Form] = {}
    parameters = list(inspect.signature(define).parameters.values())
    for parameter in parameters if kind == "numpy" else parameters[1:]:
        if form := _FORMS.get(str(parameter.annotation)):
            forms[parameter.name] = form
        if parameter.kind is parameter.KEYWORD_ONLY:
            attributes[parameter.name] = parameter.default
        elif parameter.kind is parameter.VAR_POSITIONAL:
            variadic = parameter.name
        else:
            inputs.append(parameter.name)
            if parameter.default is not parameter.empty or "None" in str(parameter.annotation):
                optional.add(parameter.name)
    if not callable(host):
        unknown = set(host) - set(inputs) - {variadic}
        assert not unknown, f"{name}: host inputs {unknown} are not parameters"
    return Operator(
        name, domain, since, until, define, host, precision, kind, bound,
        tuple(inputs), frozenset(optional), variadic, attributes, forms,
    )  # fmt: skip
