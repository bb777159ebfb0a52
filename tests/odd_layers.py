"""Layers with something wrong: every attribute and input of every operator replaced by what it should not be.

The layers to start from are ONNX's own cases; operators that have none start from small tensors that they
turn out to take.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from engine import Model, ModelLoader, Worker
from engine.backends import table
from engine.base.errors import EngineError
from engine.compiler.interpreter import interpret
from engine.graph.importers.onnx_importer import read_onnx
from engine.operators import OPERATORS
from engine.operators.registry import Operator
from tests.onnx_cases import all_cases, stored_cases
from tests.print_only import own_device, printing_only

NEWEST = {"": onnx.defs.onnx_opset_version(), "ai.onnx.ml": 5}

HUGE = 2**62


@dataclass(frozen=True)
class Given:
    """An input's value: an array, a list of them, None for an empty optional; and how the layer gets it."""

    value: Any
    place: str = "input"
    """"input", "open" (no dimension is declared), or "constant"."""


@dataclass(frozen=True)
class Odd:
    """One layer as a file and what it is given."""

    operator: str
    data: bytes
    feeds: dict[str, Any]


@dataclass(frozen=True)
class Start:
    """A layer that is right: `inputs` in order, None where one is left out."""

    operator: Operator
    version: int
    inputs: tuple[Given | None, ...]
    attributes: tuple[AttributeProto, ...]
    outputs: int

    @property
    def title(self) -> str:
        return f"{self.operator.domain or 'onnx'}.{self.operator.name}-{self.version}"

    def made(self) -> Odd:
        """The layer as a model."""
        names = ["" if g is None else f"x{i}" for i, g in enumerate(self.inputs)]
        graph = onnx.GraphProto(name="odd")
        feeds = {}
        for name, given in zip(names, self.inputs, strict=True):
            if given is None:
                continue
            if given.place == "constant" and isinstance(given.value, np.ndarray):
                graph.initializer.append(numpy_helper.from_array(given.value, name))
                continue
            graph.input.append(declared(name, given.value, given.place == "open"))
            feeds[name] = given.value
        outputs = [f"y{i}" for i in range(self.outputs)]
        node = onnx.NodeProto(
            op_type=self.operator.name, domain=self.operator.domain, name="odd", input=names, output=outputs
        )
        node.attribute.extend(self.attributes)
        graph.node.append(node)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        opsets = {"": NEWEST[""], self.operator.domain: self.version}
        model = onnx.ModelProto(ir_version=10, graph=graph)
        model.opset_import.extend(helper.make_opsetid(d, v) for d, v in opsets.items())
        return Odd(self.title, model.SerializeToString(), feeds)


def declared(name: str, value: Any, is_open: bool = False) -> onnx.ValueInfoProto:
    """A graph's input of a value's type."""
    return helper.make_value_info(name, type_of(value, is_open))


def type_of(value: Any, is_open: bool = False) -> onnx.TypeProto:
    """The type that a model declares for a value."""
    if value is None:
        return helper.make_optional_type_proto(helper.make_tensor_type_proto(1, None))
    if isinstance(value, list):
        inner = type_of(value[0], True) if value else helper.make_tensor_type_proto(1, None)
        return helper.make_sequence_type_proto(inner)
    kind = TensorProto.STRING if value.dtype == object else helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_type_proto(kind, [None] * value.ndim if is_open else value.shape)


# Layers to start from


@cache
def starts() -> tuple[Start, ...]:
    """One or two right layers of every operator, each version of it."""
    known = from_cases()
    made: list[Start] = []
    for operator in OPERATORS:
        if not operator.domain.startswith("gameglue"):
            made += known.get(id(operator)) or [found_by_trying(operator)]
    return tuple(made)


@cache
def from_cases() -> dict[int, list[Start]]:
    """Layers of ONNX's cases by the identity of their operators, at most two of each, the fullest first."""
    found: dict[tuple[int, tuple[Any, ...]], Start] = {}
    for case in (*all_cases(), *stored_cases()):
        nodes = case.proto.graph.node
        if len(nodes) != 1 or case.proto.functions or case.missing:
            continue
        node = nodes[0]
        versions = {o.domain: o.version for o in case.proto.opset_import}
        version = versions.get(node.domain, 1)
        operator = OPERATORS.find(node.domain, node.op_type, version)
        if operator is None:
            continue
        feeds = dict(case.data_sets[0][0])
        feeds |= {t.name: numpy_helper.to_array(t) for t in case.proto.graph.initializer}
        inputs = tuple(Given(feeds[n]) if n else None for n in node.input)
        # One start for each set of inputs and attributes: cases differ in values, mostly.
        shape = (len(inputs), tuple(sorted(a.name for a in node.attribute)))
        found.setdefault(
            (id(operator), shape), Start(operator, version, inputs, tuple(node.attribute), len(node.output))
        )
    fullest: dict[int, list[Start]] = {}
    for (key, _), start in found.items():
        fullest.setdefault(key, []).append(start)
    return {
        key: sorted(some, key=lambda s: -len(s.inputs) - len(s.attributes))[:2]
        for key, some in fullest.items()
    }


SHAPES = ((2, 4), (1, 4), (4,), (1, 2, 4), (2, 4, 4), (1, 4, 4, 4), (1, 1, 4, 4), (2,), (1,), (), (4, 4))
TYPES = ("float32", "float32", "int64", "int32", "uint8", "int8", "bool", "float16", "object")


def found_by_trying(operator: Operator, tries: int = 400) -> Start:
    """A layer that the engine takes, of small random tensors; the last that was tried, if none is."""
    rng = np.random.default_rng(sum(map(ord, operator.name)))
    start = None
    for _ in range(tries):
        names = [n for n in operator.inputs if n not in operator.optional or rng.random() < 0.3]
        base = SHAPES[rng.integers(len(SHAPES))]
        dtype = TYPES[rng.integers(len(TYPES))]
        inputs: list[Given | None] = []
        for name in operator.inputs:
            if name not in names:
                inputs.append(None)
                continue
            if operator.forms.get(name) == "sequence":
                inputs.append(Given([some_array(base, dtype, rng)] * 2))
                continue
            shape = base if rng.random() < 0.6 else SHAPES[rng.integers(len(SHAPES))]
            kind = dtype if rng.random() < 0.6 else TYPES[rng.integers(len(TYPES))]
            inputs.append(Given(some_array(shape, kind, rng)))
        if operator.variadic:
            inputs += [Given(some_array(base, dtype, rng)) for _ in range(2)]
        attributes = tuple(
            helper.make_attribute(name, right_value(operator, name, rng))
            for name, default in operator.attributes.items()
            if default is inspect.Parameter.empty or (rng.random() < 0.2 and default not in ((), None))
        )
        version = operator.until or max(operator.since, NEWEST.get(operator.domain, 1))
        start = Start(operator, version, tuple(inputs), attributes, 1)
        odd = start.made()
        try:
            interpret(read_onnx(odd.data), odd.feeds)
        except EngineError:
            continue
        except Exception:  # noqa: BLE001 - the sweep will meet it again
            continue
        return start
    assert start is not None
    return start


def some_array(shape: tuple[int, ...], kind: str, rng: np.random.Generator) -> np.ndarray:
    """Small elements of a type."""
    if kind == "object":
        words = np.empty(shape, object)
        words[...] = "word"
        return words
    return np.asarray(rng.integers(0, 3, shape)).astype(kind)


def right_value(operator: Operator, name: str, rng: np.random.Generator) -> Any:
    """A value for an attribute, of the kind that it is declared to be."""
    default = operator.attributes[name]
    if default is not inspect.Parameter.empty and default not in ((), None):
        return default
    declared = operator.attribute_types.get(name)
    words = "an integer" if declared is None else declared.words
    number = int(rng.integers(1, 5))
    values = {
        "a string": "a",
        "a list of strings": ["a", "b"],
        "a number": 1.5,
        "a list of numbers": [1.0] * number,
        "a list of integers": [1] * number,
        "a tensor": numpy_helper.from_array(np.ones(2, np.float32)),
    }
    return values.get(words, number)


# What goes wrong


def identity_graph(inputs: int = 1, outputs: int = 1) -> onnx.GraphProto:
    """A subgraph that yields what it takes."""
    names = [f"in{i}" for i in range(inputs)]
    outs = [f"out{i}" for i in range(outputs)]
    nodes = [helper.make_node("Identity", [names[0] if names else "x0"], [out]) for out in outs]
    infos = [onnx.ValueInfoProto(name=name) for name in names]
    return helper.make_graph(nodes, "inner", infos, [onnx.ValueInfoProto(name=name) for name in outs])


def texts(*words: str | bytes) -> np.ndarray:
    """A tensor of strings."""
    return np.array(words, object)


def attribute_values() -> list[Any]:
    """Values of every kind that an attribute may have in a file."""
    floats = np.ones(2, np.float32)
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(floats, "s"), numpy_helper.from_array(np.array([1, 3])), [4]
    )
    return [
        0, 1, -1, 2, 7, 2**31, HUGE, -HUGE, 1.5, float("nan"), float("inf"), -1e38,
        "", "text", b"\xff\xfe", "linear" * 200,
        numpy_helper.from_array(floats), numpy_helper.from_array(np.array(1)),
        numpy_helper.from_array(np.zeros((0, 2), np.int64)), numpy_helper.from_array(texts("a", "b")),
        numpy_helper.from_array(np.ones((1, 1, 1), np.complex64)),
        numpy_helper.from_array(np.ones(3, ml_dtypes.bfloat16)),
        identity_graph(), identity_graph(0, 0), identity_graph(3, 2),
        sparse, helper.make_tensor_type_proto(1, [2]), helper.make_optional_type_proto(type_of([floats])),
        [1.5, 2.5], [1], [0, 0], [-1, 5, 2], [1, 1, 1, 1], [HUGE, HUGE], [2**31] * 4, [float("nan")] * 3,
        ["a"], ["Tanh", "b", ""], [b"\xff"],
        [numpy_helper.from_array(floats)] * 2, [identity_graph()] * 2, [sparse],
        [helper.make_tensor_type_proto(1, [2])],
    ]  # fmt: skip


EMPTY = ("INTS", "FLOATS", "STRINGS", "TENSORS", "GRAPHS", "TENSOR", "GRAPH", "UNDEFINED")
"""Types of attributes that are declared and have no value."""


def wrong_attributes(name: str) -> Iterator[AttributeProto]:
    """An attribute with values of every kind, and with none."""
    for value in attribute_values():
        yield helper.make_attribute(name, value)
    for kind in EMPTY:
        yield AttributeProto(name=name, type=AttributeProto.AttributeType.Value(kind))


def wrong_inputs(value: Any) -> Iterator[Any]:
    """Values in place of an input: of other types, ranks, sizes and kinds."""
    shape = value.shape if isinstance(value, np.ndarray) else (2,)
    filled = value if isinstance(value, np.ndarray) and value.dtype.kind in "fiub" else np.ones(shape)
    for name in ("float32", "float64", "float16", "int64", "int32", "uint8", "int8", "uint64", "bool"):
        with np.errstate(all="ignore"):
            yield filled.astype(name)
    for other in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4):
        yield np.ones(shape, other)
    yield np.ones(shape, np.complex64)
    words = np.empty(shape, object)
    words[...] = "word"
    yield words
    yield texts("")
    base = value if isinstance(value, np.ndarray) and value.size else np.ones(2, np.float32)
    yield base.reshape(-1)[:1].reshape(())
    yield base.reshape(-1)
    yield base[None]
    yield base.reshape(*base.shape, 1, 1)
    yield base.reshape(-1)[:0]
    yield np.zeros((0, *base.shape[1:]), base.dtype)
    yield np.zeros((*base.shape[:-1], 0), base.dtype)
    if base.ndim:
        yield np.concatenate([base, base])
        yield np.concatenate([base, base], -1)
        yield base[:1]
    if base.dtype.kind in "iu":
        for number in (-1, 0, 1, 5, 2**31 - 1, 2**40, HUGE, -HUGE):
            info = np.iinfo(base.dtype)
            yield np.full(base.shape, max(info.min, min(info.max, number)), base.dtype)
    if base.dtype.kind == "f":
        for odd in (np.nan, np.inf, -1.0, 0.0, 1e30):
            yield np.full(base.shape, odd, base.dtype)
    yield [base, base]
    yield []
    yield None


def variants(start: Start) -> Iterator[tuple[str, Start]]:
    """The layer itself, and with one thing wrong at a time."""
    yield "as it is", start
    constant = tuple(g and replace(g, place="constant") for g in start.inputs)
    opened = tuple(g and replace(g, place="open") for g in start.inputs)
    yield "constants", replace(start, inputs=constant)
    yield "open", replace(start, inputs=opened)
    yield "no attributes", replace(start, attributes=())
    yield "no inputs", replace(start, inputs=())
    yield "empty inputs", replace(start, inputs=(None,) * len(start.inputs))
    yield "no outputs", replace(start, outputs=0)
    yield "many outputs", replace(start, outputs=40)
    yield "many inputs", replace(start, inputs=start.inputs * 9)
    yield (
        "unknown attribute",
        replace(start, attributes=(*start.attributes, helper.make_attribute("unknown", 1))),
    )
    for name in start.operator.attributes:
        others = tuple(a for a in start.attributes if a.name != name)
        yield f"{name} dropped", replace(start, attributes=others)
        for number, wrong in enumerate(wrong_attributes(name)):
            changed = replace(start, attributes=(*others, wrong))
            title = f"{name} = #{number} {AttributeProto.AttributeType.Name(wrong.type)}"
            yield title, changed
            yield f"{title}, constants", replace(changed, inputs=constant)
    for position, given in enumerate(start.inputs):
        before, after = start.inputs[:position], start.inputs[position + 1 :]
        yield f"input {position} dropped", replace(start, inputs=before + after)
        yield f"input {position} left out", replace(start, inputs=(*before, None, *after))
        yield f"inputs from {position} cut", replace(start, inputs=before)
        for number, wrong in enumerate(wrong_inputs(None if given is None else given.value)):
            shown = "none" if wrong is None else type_title(wrong)
            title = f"input {position} = #{number} {shown}"
            for place, rest in (("input", start.inputs), ("open", opened), ("constant", constant)):
                if place == "constant" and not isinstance(wrong, np.ndarray):
                    continue
                changed_inputs = (*rest[:position], Given(wrong, place), *rest[position + 1 :])
                yield f"{title} {place}", replace(start, inputs=changed_inputs)


def type_title(value: Any) -> str:
    """A value as labels show it."""
    return f"{len(value)} items" if isinstance(value, list) else f"{value.dtype.name}{list(value.shape)}"


def odd_layers(some: Iterable[Start], each: int = 1) -> Iterator[tuple[str, Odd]]:
    """The layers with one thing wrong at a time, or `each` so manieth of these, and what that is."""
    for start in some:
        for what, changed in islice(variants(start), 0, None, each):
            yield f"{start.title}: {what}", changed.made()


def run_odd(odd: Odd, channel: str = "cpu") -> str:
    """Load the layer, plan it for a backend and print its kernels."""
    model = ModelLoader.load(odd.data)
    with printing_only():
        return run_model(model, odd.feeds, channel)


def run_model(model: Model, feeds: dict[str, Any], channel: str = "cpu") -> str:
    """One inference."""
    backend_type = table.named(channel).backend_type
    with Worker(model, backend_type, device=own_device(channel)) as worker:
        worker.schedule(feeds)
        worker.take_outputs()
    return "answer"
