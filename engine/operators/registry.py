"""The operator registry, filled by decorators on the definitions.

A definition's signature is its declaration: positional parameters are the inputs (a default of None, or a
type that allows None, marks an optional one, `*xs` any number), keyword-only ones the attributes with their
defaults, or a dataclass of attributes (`AttributeGroup`). There are four kinds: formulas of the kernel
language, plain NumPy functions that run on the CPU for any backend, classes that run other layers, and
functions that return another layer instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from itertools import chain, repeat
from typing import Any, Literal, TypeVar

import numpy as np

from engine.base.errors import ShapeError
from engine.graph.model import Layer
from engine.kernels.value import Entry, ListValue, MapsValue
from engine.operators.bounded_sizes import BoundRule
from engine.operators.builder import Builder
from engine.operators.control_flow_interface import ControlFlow
from engine.operators.declaration import (
    ANY,
    AttributeType,
    Elements,
    attribute_types,
    group_of,
    input_elements,
    list_of,
    shown,
)

Definition = Callable[..., Entry | tuple[Entry, ...]]
Precision = Literal["exact", "rounding", "random"]
Kind = Literal["kernel", "numpy", "control", "rewritten"]
Form = Literal["tensor", "sequence"]
_FORMS: dict[str, Form] = {
    "Value": "tensor",
    "Value | None": "tensor",
    "ListValue": "sequence",
    "np.ndarray": "tensor",
    "np.ndarray | None": "tensor",
}
"""What definitions declare of an input by its type; any other type takes both."""

HostInputs = tuple[str, ...] | Callable[[Layer], tuple[str, ...]]
"""Names of inputs, or what gives them for a layer (where an attribute decides)."""


@dataclass(frozen=True)
class Operator:
    """One operator over a range of opset versions.

    `since` and `until` bound the opset versions (inclusive; until None means the newest). `host` names the
    inputs whose elements must be known before kernels can be chosen. `precision` says how closely
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
    groups: Mapping[str, type[Any]] = field(default_factory=dict)
    """Parameters of the definition that stand for several attributes, with the dataclasses of these."""
    listed: Mapping[str, type] = field(default_factory=dict)
    """Inputs of the definition that this version has as attributes: lists of such items."""
    moves: str = ""
    """The input whose elements make up the outputs; of strings it moves the positions in a list of them."""

    def host_positions(self, layer: Layer) -> tuple[int, ...]:
        """Which of a layer's inputs must be known on the host."""
        count = len(layer.inputs)
        host = self.host(layer) if callable(self.host) else self.host
        names = [*self.inputs, *[self.variadic] * max(0, count - len(self.inputs))]
        return tuple(i for i in range(count) if names[i] in host)

    @cached_property
    def moved_position(self) -> int:
        """Which input is the one that it moves; -1 for none."""
        return self.inputs.index(self.moves) if self.moves else -1

    @cached_property
    def attribute_types(self) -> Mapping[str, AttributeType]:
        """Types of the attributes that the definition annotates."""
        return {**attribute_types(self.define), **{name: list_of(item) for name, item in self.listed.items()}}

    @cached_property
    def elements(self) -> tuple[Elements, ...]:
        """Accepted elements of each input; none if undeclared."""
        return input_elements(self.domain, self.name, self.until, self.kind == "kernel")

    @cached_property
    def _roles(self) -> tuple[_Role, ...]:
        """What each input has to be; the last one stands for all of a variadic one."""
        names = (*self.inputs, *([self.variadic] if self.variadic else ()))
        given = chain(self.elements, repeat(self.elements[-1] if self.elements else ANY))
        return tuple(
            _Role(name, self.forms.get(name), name in self.optional, elements)
            for name, elements in zip(names, given, strict=False)
        )

    def roles(self, count: int) -> Iterator[_Role]:
        """The role of each of `count` inputs."""
        yield from self._roles[:count]
        yield from repeat(self._roles[-1] if self.variadic else _NO_ROLE, count - len(self._roles))

    def problem(self, layer: Layer, constants: Mapping[str, np.ndarray] | None = None) -> str | None:
        """Why a layer is invalid for all shapes: a missing input, a wrong attribute; or None.

        `constants` are those that it may have among its inputs, whose types are known.
        """
        return self._wrong_input(layer, constants or {}) or self._wrong_attribute(layer)

    def _wrong_input(self, layer: Layer, constants: Mapping[str, np.ndarray]) -> str | None:
        count = len(layer.inputs)
        if count > len(self.inputs) and self.variadic is None:
            return f"takes at most {len(self.inputs)} inputs, not {count}"
        # Of a variadic input there has to be one; those that take anything may be there or not.
        least = len(self.inputs) + (self.variadic is not None and self.forms.get(self.variadic) is not None)
        for position, role in enumerate(self.roles(max(count, least))):
            name = layer.inputs[position] if position < count else ""
            if not name and not role.is_optional and (role.form is not None or position < len(self.inputs)):
                return f"lacks its input {role.name}"
            if name in constants and (wrong := role.elements.problem(constants[name].dtype)):
                return f"its input {role.name} {wrong}"
        return None

    def _wrong_attribute(self, layer: Layer) -> str | None:
        if unknown := sorted(set(layer.attributes) - set(self.attributes)):
            known = ", ".join(self.attributes) or "none"
            return f"has an unknown attribute {unknown[0]}; known: {known}"
        required = [a for a, default in self.attributes.items() if default is inspect.Parameter.empty]
        if absent := [a for a in required if a not in layer.attributes]:
            return f"lacks its attribute {absent[0]}"
        for name, value in layer.attributes.items():
            declared = self.attribute_types.get(name)
            if declared is not None and not declared.accepts(value):
                return f"has the attribute {name} = {shown(value)}; it has to be {declared.words}"
        return None

    def _given(self, layer: Layer) -> Mapping[str, Any]:
        """A layer's attributes as the definition takes them."""
        if not self.groups:
            return layer.attributes
        given = dict(layer.attributes)
        for name, group in self.groups.items():
            given[name] = group(**{f.name: given.pop(f.name) for f in fields(group) if f.name in given})
        return given

    def build(self, builder: Builder, inputs: Sequence[Entry]) -> tuple[Entry, ...]:
        """Run the definition of a "kernel" operator for a layer that `check` has accepted."""
        self.check_inputs(builder.layer, inputs)
        given = dict(self._given(builder.layer))
        for name, item in self.listed.items():
            if (numbers := given.pop(name, ())) or name not in self.optional:
                given[name] = builder.constant(np.array(numbers, np.int64 if item is int else np.float32))
        result = self.define(builder, *inputs, **given)
        return result if isinstance(result, tuple) else (result,)

    def open(self, builder: Builder, inputs: Sequence[Entry]) -> ControlFlow:
        """Start a "control" operator's layer, before the first iteration of its body."""
        self.check_inputs(builder.layer, inputs)
        opened = self.define(builder, *inputs, **self._given(builder.layer))
        assert isinstance(opened, ControlFlow)
        return opened

    def rewrite(self, layer: Layer) -> Layer:
        """The replacement of a "rewritten" operator's layer that passed `check`."""
        found = self.define(layer, *layer.inputs, **layer.attributes)
        assert isinstance(found, Layer)
        return found

    def call(self, layer: Layer, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Run a "numpy" operator on arrays (lists of them for sequences, None for absent inputs)."""
        self.check_inputs(layer, inputs)
        try:
            result = self.define(*inputs, **layer.attributes)
        except (ArithmeticError, LookupError, TypeError, ValueError, ImportError) as error:
            raise ShapeError(f"{layer}: {error}") from error
        results = result if isinstance(result, tuple) else (result,)
        return tuple(np.asarray(r) if isinstance(r, np.generic) else r for r in results)

    def check_inputs(self, layer: Layer, inputs: Sequence[Any]) -> None:
        """Raise `ShapeError` for inputs of another form or type than the definition takes."""
        for role, given in zip(self.roles(len(inputs)), inputs, strict=True):
            if (wrong := role.problem(given)) is not None:
                raise ShapeError(f"{layer}: its input {role.name} {wrong}")

    def check(self, layer: Layer) -> None:
        """Raise `ShapeError` for a layer that `problem` refuses."""
        if message := self.problem(layer):
            raise ShapeError(f"{layer} {message}")


@dataclass(frozen=True, slots=True)
class _Role:
    """What one input of an operator has to be."""

    name: str
    form: Form | None
    is_optional: bool
    elements: Elements

    def problem(self, given: Any) -> str | None:
        """Why the operator cannot take a value, an array or a list of these, or None where it can."""
        if given is None:
            return None if self.is_optional or self.form is None else "is missing"
        if isinstance(given, MapsValue):
            return None if self.form is None else "is a sequence of maps, which only outputs may be"
        if isinstance(given, ListValue | list):
            return "is a sequence; the operator takes a tensor" if self.form == "tensor" else None
        if self.form == "sequence":
            return "is a tensor; the operator takes a sequence"
        return self.elements.problem(given.dtype)


_NO_ROLE = _Role("", None, True, ANY)


class Registry:
    """Operators by domain and name; `find` picks the one that covers an opset version."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], list[Operator]] = {}

    def add(self, op: Operator) -> None:
        """Register an operator; versions of definitions must not overlap."""
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
        """Unregister a definition."""
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
    kind: Kind = "kernel",
    since: int = 1,
    until: int | None = None,
    domain: str = "",
    host: HostInputs = (),
    precision: Precision = "rounding",
    bound: BoundRule | None = None,
    attributes_before: Mapping[str, type] | None = None,
    moves: str = "",
    registry: Registry = OPERATORS,
) -> Callable[[D], D]:
    """Decorator that registers a definition of an operator.

    Args:
        name: The operator's name, as layers have it.
        kind: What is decorated. "kernel": a function that writes formulas. "numpy": a function of NumPy
            arrays, which runs on the CPU. Its inputs are arrays, lists of arrays for sequences, object arrays
            of `str` for strings, None where absent; so are the results, one or a tuple. On a GPU backend they
            are read back, and the plan continues when they have arrived. A ValueError is reported with the
            layer's name. "control": a `ControlFlow` class, which runs other layers. "rewritten": a function
            of a layer, the names of its inputs and its attributes, which returns the layer with the same
            outputs that runs instead.
        since: The first opset version for which it holds.
        until: The last one; None if it holds for the newest.
        domain: The operator's domain; empty for ONNX's own.
        host: Inputs whose elements must be known before a kernel can be chosen.
        precision: How exact results are, for tests.
        bound: What becomes of an input whose exact size only the device knows.
        attributes_before: Inputs that are attributes in the versions before `since`, lists of such items;
            inputs behind them are new.
        moves: The input whose elements make up the outputs, of any type, strings included.
        registry: The list to add it to.
    """

    def register(define: D) -> D:
        registry.add(declare(define, name, since, until, domain, host, precision, kind, bound, moves=moves))
        if attributes_before:
            older = (name, 1, since - 1, domain, (), precision, kind, bound, attributes_before)
            registry.add(declare(define, *older, moves=moves))
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
    listed: Mapping[str, type] | None = None,
    moves: str = "",
) -> Operator:
    """Create an `Operator` from a definition's signature; inputs after `listed` are not in this version."""
    inputs: list[str] = []
    optional: set[str] = set()
    variadic: str | None = None
    attributes: dict[str, Any] = {}
    forms: dict[str, Form] = {}
    groups: dict[str, type[Any]] = {}
    parameters = list(inspect.signature(define).parameters.values())
    for parameter in parameters if kind == "numpy" else parameters[1:]:
        if form := _FORMS.get(str(parameter.annotation)):
            forms[parameter.name] = form
        if parameter.kind is parameter.KEYWORD_ONLY:
            if (group := group_of(define, parameter)) is None:
                attributes[parameter.name] = parameter.default
            else:
                groups[parameter.name] = group
                attributes |= {
                    f.name: parameter.empty if f.default is MISSING else f.default for f in fields(group)
                }
            continue
        is_optional = parameter.default is not parameter.empty or "None" in str(parameter.annotation)
        if is_optional:
            optional.add(parameter.name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            variadic = parameter.name
        elif not listed or not listed.keys() & {parameter.name, *attributes}:
            inputs.append(parameter.name)
        elif parameter.name in listed:
            attributes[parameter.name] = () if is_optional else parameter.empty
    if not callable(host):
        unknown = set(host) - set(inputs) - {variadic}
        assert not unknown, f"{name}: host inputs {unknown} are not parameters"
    return Operator(
        name, domain, since, until, define, host, precision, kind, bound,
        tuple(inputs), frozenset(optional), variadic, attributes, forms, groups, listed or {}, moves,
    )  # fmt: skip
