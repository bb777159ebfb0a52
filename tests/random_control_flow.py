"""Random ONNX graphs whose plans follow data: branches, loops, scans, sequences, sizes that are computed.

Every layer is run by onnxruntime as soon as it is drawn, on every feed, and left out again where that refuses
it or its numbers are no good to compare. So what is drawn next knows the arrays that it works on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.peer import open_session

Item: TypeAlias = "np.ndarray | list[np.ndarray]"
Items: TypeAlias = "tuple[Item, ...]"

LARGEST = 600
"""Elements of the largest tensor."""

STEEP = 40.0
"""The largest real number that is followed further: beyond it, differences in rounding grow too fast."""

ELEMENT = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "bool": TensorProto.BOOL,
}
REAL = ("float32",)
WHOLE = ("int64", "int32")
SETTINGS = (
    ((3, 4), (3, 4), (3, 4)),
    ((2, 3), (1, 4), (4, 1)),
    ((3, 2), (0, 3), (2, 2)),
    ((1, 1), (4, 4), (2, 0)),
)
"""The sizes of the dynamic dimensions n and m in each feed."""


class Refused(Exception):
    """What was drawn does not run, or nobody could compare its results."""


@dataclass(frozen=True, eq=False)
class Var:
    """A name of the graph, and what it holds for each feed."""

    name: str
    items: Items
    is_constant: bool = False

    @property
    def is_sequence(self) -> bool:
        return isinstance(self.items[0], list)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        assert not self.is_sequence
        return self.items  # type: ignore[return-value]

    @property
    def dtype(self) -> str:
        flat = [a for x in self.items for a in (x if isinstance(x, list) else [x])]
        return str(flat[0].dtype.name) if flat else "float32"

    @property
    def rank(self) -> int:
        return int(self.arrays[0].ndim)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [a.shape for a in self.arrays]

    @property
    def largest(self) -> int:
        return max(a.size for a in self.arrays)

    @property
    def is_empty(self) -> bool:
        return any(not a.size for a in self.arrays)

    def info(self) -> onnx.ValueInfoProto:
        element = ELEMENT[self.dtype]
        if self.is_sequence:
            return helper.make_tensor_sequence_value_info(self.name, element, None)
        return helper.make_tensor_value_info(self.name, element, [None] * self.rank)


@dataclass
class Scope:
    """The main graph, or a body inside it: what it defines, and what is around it."""

    depth: int = 0
    around: Scope | None = None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    own: list[Var] = field(default_factory=list)
    names: int = 0

    def fresh(self) -> str:
        """A name; bodies side by side use the same ones."""
        self.names += 1
        return f"{'vabcd'[self.depth]}{self.names}"

    def visible(self) -> list[Var]:
        """Everything that a layer here may read, its own last."""
        return [*(self.around.visible() if self.around else ()), *self.own]


def free_names(nodes: Sequence[onnx.NodeProto]) -> Iterator[str]:
    """What some layers read that none of them makes."""
    made: set[str] = set()
    for node in nodes:
        yield from (n for n in node.input if n and n not in made)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                graph = attribute.g
                own = {i.name for i in graph.input} | {i.name for i in graph.initializer}
                inside = {o for n in graph.node for o in n.output}
                read = [*free_names(graph.node), *(o.name for o in graph.output if o.name not in inside)]
                yield from (n for n in read if n not in own and n not in made)
        made.update(node.output)


def run_reference(source: bytes, feeds: Sequence[Mapping[str, Item]]) -> list[dict[str, Item]]:
    """onnxruntime's outputs for each feed, without its own fusions."""
    try:
        session = open_session(source, threads=1, optimised=False, severity=4)
        names = [o.name for o in session.get_outputs()]
        return [dict(zip(names, session.run(None, dict(feed)), strict=True)) for feed in feeds]
    except Exception as error:
        raise Refused(str(error)) from error


def infos(names: Sequence[str], dtypes: Sequence[str]) -> list[onnx.ValueInfoProto]:
    """Tensors of unknown shape."""
    return [helper.make_tensor_value_info(n, ELEMENT[d], None) for n, d in zip(names, dtypes, strict=True)]


def usable(items: Items) -> bool:
    """Whether the results are small enough to go on with, and numbers at all."""
    for item in items:
        for a in item if isinstance(item, list) else [item]:
            if a is None or a.size > LARGEST or a.dtype.name not in ELEMENT:
                return False
            limit = STEEP if a.dtype.kind == "f" else 1e5
            if a.size and not np.all(np.abs(a.astype(np.float64)) <= limit):
                return False
        if isinstance(item, list) and len(item) > 8:
            return False
    kinds = {(type(i), i.dtype, i.ndim) for i in items if not isinstance(i, list)}
    return len(kinds) <= 1


class RandomFlow:
    """One graph: `source` (a model file's bytes) and `feeds`, what it is run on.

    `plain` is the same model without the Identity layers that onnxruntime wants where a body yields something
    from around it.
    """

    def __init__(self, seed: int, length: int = 16, deepest: int = 3) -> None:
        self.rng = np.random.default_rng(seed)
        self.deepest = deepest
        self.settings = SETTINGS[self.choice(len(SETTINGS))]
        self.is_dynamic = self.maybe(0.6) and len(set(self.settings)) > 1
        self.refused = 0
        # Every name ever made, the latest of each: bodies side by side share names.
        self.lookup: dict[str, Var] = {}
        self.inputs: dict[str, tuple[str, list[int | str]]] = {}
        self.scope = self.root = Scope()
        self.feeds: list[dict[str, Item]] = [{} for _ in self.settings]
        for dtype in ("float32", "int64", *self.rng.choice(["float32", "bool", "int64", "int32"], 2)):
            self.add_input(str(dtype))
        self.steps(length)
        self.source, self.plain = self.finish()

    # Helpers

    def choice(self, n: int) -> int:
        return int(self.rng.integers(n))

    def maybe(self, p: float = 0.5) -> bool:
        return bool(self.rng.random() < p)

    def one_of(self, *options: Any) -> Any:
        return options[self.choice(len(options))]

    def pick(self, accept: Callable[[Var], bool] = lambda v: True, sequences: bool = False) -> Var:
        """Something visible, younger things more likely."""
        found = [v for v in self.scope.visible() if v.is_sequence == sequences and accept(v)]
        if not found:
            raise Refused("nothing fits")
        return found[-1 - min(int(self.rng.exponential(3.0)), len(found) - 1)]

    def real(self, accept: Callable[[Var], bool] = lambda v: True) -> Var:
        return self.pick(lambda v: v.dtype in REAL and accept(v))

    def constant(self, array: np.ndarray) -> Var:
        """A constant: of this graph, of the main graph, or of a layer."""
        kind = self.choice(3)
        scope = self.root if kind == 0 else self.scope
        name = f"{'vabcd'[scope.depth]}k{len(scope.constants)}_{len(scope.nodes)}"
        value = Var(name, (array,) * len(self.settings), True)
        if kind == 2:
            scope.nodes.append(
                helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))
            )
        else:
            scope.constants[name] = array
        if self.maybe(0.15):
            scope.own.append(value)
        self.lookup[name] = value
        return value

    def ints(self, *numbers: int) -> Var:
        return self.constant(np.array(numbers, np.int64))

    def define(self, name: str, items: Items) -> Var:
        value = Var(name, items)
        self.scope.own.append(value)
        self.lookup[name] = value
        return value

    def emit(self, op: str, inputs: Sequence[Var | None], count: int = 1, **attributes: Any) -> list[Var]:
        """A layer, if onnxruntime takes it on every feed."""
        names = [self.scope.fresh() for _ in range(count)]
        label = names[0] if self.maybe(0.7) else ""
        node = helper.make_node(op, [v.name if v else "" for v in inputs], names, label, **attributes)
        made = self.tried(node)
        if not all(map(usable, made)):
            raise Refused("no numbers to go on with")
        self.scope.nodes.append(node)
        return [self.define(n, items) for n, items in zip(names, made, strict=True)]

    def tried(self, node: onnx.NodeProto) -> list[Items]:
        """What onnxruntime makes of a layer."""
        read = [self.lookup[n] for n in dict.fromkeys(free_names([node]))]
        outputs = [onnx.ValueInfoProto(name=n) for n in node.output]
        graph = helper.make_graph([node], "one", [v.info() for v in read], outputs)
        feeds = [{v.name: v.items[k] for v in read} for k in range(len(self.settings))]
        found = run_reference(packed(graph), feeds)
        return [tuple(f[n] for f in found) for n in node.output]

    def add_input(self, dtype: str) -> None:
        name = f"x{len(self.inputs)}"
        arrays, declared = [], list[int | str]()
        rank = 1 + self.choice(3)
        for axis in range(rank):
            is_open = self.maybe(0.5) and self.is_dynamic
            declared.append("nm"[axis % 2] if is_open else self.one_of(1, 2, 3, 4))
        for k, setting in enumerate(self.settings):
            sizes = dict(zip("nm", setting, strict=True))
            shape = [sizes[d] if isinstance(d, str) else d for d in declared]
            arrays.append(self.array(dtype, shape))
            self.feeds[k][name] = arrays[-1]
        self.inputs[name] = (dtype, declared)
        self.define(name, tuple(arrays))

    def array(self, dtype: str, shape: Sequence[int]) -> np.ndarray:
        if dtype == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        if dtype.startswith("float"):
            return np.asarray(np.round(self.rng.normal(size=shape), 2)).astype(dtype)
        return np.asarray(self.rng.integers(-4, 7, shape)).astype(dtype)

    # Small things that data decides

    def count(self) -> Var:
        """An int64 scalar of 0..4: a constant, from a shape, or computed."""
        kind = self.choice(4)
        if kind == 0:
            return self.constant(np.array(self.choice(5), np.int64))
        if kind == 1:
            x = self.pick(lambda v: v.rank > 0)
            (shape,) = self.emit("Shape", [x])
            at = self.constant(np.array(self.choice(x.rank), np.int64))
            (number,) = self.emit("Gather", [shape, at])
        else:
            x = self.pick(lambda v: v.dtype in ("int64", "bool"))
            if x.dtype == "bool":
                (x,) = self.emit("Cast", [x], to=TensorProto.INT64)
            (number,) = self.emit("ReduceSum", [x], keepdims=0)
        top = self.constant(np.array(2 + self.choice(4), np.int64))
        return self.emit("Mod", [number, top])[0]

    def condition(self) -> Var:
        """A bool scalar: a constant, from a shape, or computed."""
        kind = self.choice(6)
        if kind == 0:
            return self.constant(np.array(self.maybe()))
        if kind <= 3:
            number = self.count()
            limit = self.constant(np.array(self.choice(4), np.int64))
            return self.emit(self.one_of("Less", "Greater", "Equal"), [number, limit])[0]
        x = self.real(lambda v: not v.is_empty)
        (total,) = self.emit("ReduceMean", [x], keepdims=0)
        sums = [float(a) for a in total.arrays]
        middle = float(np.mean(sums) + self.rng.normal() * 0.3)
        if any(abs(s - middle) < 0.02 for s in sums):
            raise Refused("too close to tell")
        limit = self.constant(np.array(middle, np.float32))
        return self.emit(self.one_of("Less", "Greater"), [total, limit])[0]

    # Layers

    def steps(self, count: int) -> None:
        """Draw layers into the present scope."""
        names = [n for n in dir(self) if n.startswith("step_")]
        weights = np.array([WEIGHTS.get(n[5:], 1.0) for n in names])
        if self.scope.depth >= self.deepest:
            weights *= [n[5:] not in CONTROL for n in names]
        weights /= weights.sum()
        wanted, tries = len(self.scope.own) + count, 0
        while len(self.scope.own) < wanted and tries < 12 * count:
            tries += 1
            self.attempt(getattr(self, str(self.rng.choice(names, p=weights))))

    def attempt(self, step: Callable[[], Any]) -> bool:
        """Take a step; if it is refused, undo what it has done."""
        scope = self.scope
        changed = [scope] if scope is self.root else [scope, self.root]
        marks = [(s, len(s.nodes), len(s.own), dict(s.constants)) for s in changed]
        try:
            step()
        except Refused:
            self.refused += 1
            self.scope = scope
            for s, nodes, own, constants in marks:
                del s.nodes[nodes:], s.own[own:]
                s.constants = constants
            return False
        return True

    def step_unary(self) -> None:
        op = self.one_of("Tanh", "Sigmoid", "Relu", "Neg", "Abs", "Sin")
        self.emit(op, [self.real()])

    def step_binary(self) -> None:
        x = self.pick(lambda v: v.dtype != "bool")
        y = self.pick(lambda v: v.dtype == x.dtype) if self.maybe(0.7) else None
        if y is None:
            sizes = [set(s) for s in zip(*x.shapes, strict=True)]
            shape = [n.pop() if self.maybe() and len(n) == 1 else 1 for n in sizes]
            y = self.constant(self.array(x.dtype, shape))
        (found,) = self.emit(self.one_of("Add", "Sub", "Mul", "Max", "Min"), [x, y])
        if x.dtype in WHOLE:
            self.emit("Mod", [found, self.constant(np.array(7, x.dtype))])

    def step_several(self) -> None:
        """A layer with several outputs, of which later layers may read any or none."""
        x = self.real(lambda v: v.rank > 0 and not v.is_empty)
        kind = self.choice(4)
        if kind == 0:
            self.emit("Dropout", [x], 2)
        elif kind == 1:
            scale = self.constant(self.array("float32", [1]))
            self.emit("LayerNormalization", [x, scale], 1 + self.choice(3), epsilon=0.1, axis=-1)
        elif kind == 2 and len(set(x.shapes)) == 1 and x.shapes[0][0] > 1:
            sizes = self.ints(1, x.shapes[0][0] - 1)
            self.emit("Split", [x, sizes], 2, axis=0)
        elif x.rank == 3 and len({s[2] for s in x.shapes}) == 1:
            op, gates, states = self.one_of(("LSTM", 4, 2), ("GRU", 3, 1), ("RNN", 1, 1))
            weights = [self.constant(self.array("float32", [1, 2 * gates, n])) for n in (x.shapes[0][2], 2)]
            self.emit(op, [x, *weights], 1 + self.choice(states + 1), hidden_size=2)

    def step_logic(self) -> None:
        x = self.pick(lambda v: v.dtype == "bool")
        y = self.pick(lambda v: v.dtype == "bool")
        self.emit(self.one_of("And", "Or", "Xor"), [x, y]) if self.maybe(0.7) else self.emit("Not", [x])

    def step_compare(self) -> None:
        x = self.pick(lambda v: v.dtype in WHOLE)
        y = self.pick(lambda v: v.dtype == x.dtype)
        self.emit(self.one_of("Less", "Greater", "Equal", "GreaterOrEqual"), [x, y])

    def step_where(self) -> None:
        c = self.pick(lambda v: v.dtype == "bool")
        x = self.pick()
        self.emit("Where", [c, x, self.pick(lambda v: v.dtype == x.dtype)])

    def step_cast(self) -> None:
        x = self.pick(lambda v: v.dtype != "float32")
        self.emit("Cast", [x], to=ELEMENT[self.one_of("float32", "float32", "int64", "bool")])

    def step_half(self) -> None:
        """A stretch in float16."""
        (x,) = self.emit("Cast", [self.real()], to=TensorProto.FLOAT16)
        self.emit("Tanh", [x])

    def step_product(self) -> None:
        x = self.real(lambda v: v.rank > 1)
        depths = {s[-1] for s in x.shapes}
        if len(depths) > 1 or self.maybe(0.3):
            (other,) = self.emit("Transpose", [x], perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])
        else:
            other = self.constant(self.array("float32", (depths.pop(), 3)))
        (found,) = self.emit("MatMul", [x, other])
        self.emit("Tanh", [found])

    def step_reduce(self) -> None:
        x = self.real(lambda v: v.rank > 0 and not v.is_empty)
        op = self.one_of("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2")
        axes = self.ints(self.choice(2 * x.rank) - x.rank) if self.maybe(0.8) else None
        self.emit(op, [x, axes], keepdims=self.choice(2))

    def step_softmax(self) -> None:
        x = self.real(lambda v: v.rank > 0)
        self.emit("Softmax", [x], axis=self.choice(x.rank))

    def step_running_sum(self) -> None:
        x = self.pick(lambda v: v.rank > 0 and v.dtype != "bool")
        axis = self.constant(np.array(self.choice(x.rank), np.int64))
        self.emit("CumSum", [x, axis], reverse=self.choice(2), exclusive=self.choice(2))

    def step_concat(self) -> None:
        x = self.pick(lambda v: v.rank > 0)
        y = self.pick(lambda v: v.dtype == x.dtype and v.rank == x.rank)
        axis = self.choice(x.rank)
        pairs = zip(x.shapes, y.shapes, strict=True)
        if any(
            a != b
            for one, other in pairs
            for i, (a, b) in enumerate(zip(one, other, strict=True))
            if i != axis
        ):
            raise Refused("onnxruntime takes anything that is empty")
        self.emit("Concat", [x, y, x][: 2 + self.choice(2)], axis=axis)

    def step_transpose(self) -> None:
        x = self.pick(lambda v: v.rank > 1)
        self.emit("Transpose", [x], perm=[int(a) for a in self.rng.permutation(x.rank)])

    def step_unsqueeze(self) -> None:
        x = self.pick(lambda v: v.rank < 4)
        self.emit("Unsqueeze", [x, self.ints(self.choice(x.rank + 1))])

    def step_squeeze(self) -> None:
        x = self.pick(lambda v: v.rank > 0)
        self.emit("Squeeze", [x, self.ints(self.choice(x.rank))])

    def step_split(self) -> None:
        x = self.pick(lambda v: v.rank > 0)
        self.emit("Split", [x], 2, axis=self.choice(x.rank), num_outputs=2)

    def step_gather(self) -> None:
        x = self.pick(lambda v: v.rank > 0)
        if self.maybe(0.4):
            at = self.count()
        elif self.maybe():
            at = self.pick(lambda v: v.dtype in WHOLE)
        else:
            at = self.constant(self.rng.integers(-1, 2, [2] * self.choice(2)))
        self.emit("Gather", [x, at], axis=self.choice(x.rank))

    def step_slice(self) -> None:
        x = self.pick(lambda v: v.rank > 0)
        step = self.one_of(1, 1, 1, -1, 2, -2)
        first, last = self.choice(3), 2 + self.choice(4)
        if step < 0:
            first, last = last, first - 1
        start, end = self.ints(first), self.ints(last)
        if self.maybe(0.3):
            (end,) = self.emit("Unsqueeze", [self.count(), self.ints(0)])
        self.emit("Slice", [x, start, end, self.ints(self.choice(x.rank)), self.ints(step)])

    def step_pad(self) -> None:
        x = self.real(lambda v: 0 < v.rank < 3)
        pads = self.ints(*(self.choice(4) - 1 for _ in range(2 * x.rank)))
        self.emit("Pad", [x, pads], mode=self.one_of("constant", "edge"))

    def step_reshape(self) -> None:
        x = self.pick(lambda v: v.rank > 0)
        if self.maybe():
            self.emit("Reshape", [x, self.ints(-1)])
            return
        # Rows as long as another tensor, or as data says.
        (width,) = self.emit("Unsqueeze", [self.count(), self.ints(0)])
        (shape,) = self.emit("Concat", [self.ints(-1), width], axis=0)
        self.emit("Reshape", [x, shape])

    def step_expand(self) -> None:
        x = self.pick(lambda v: v.rank < 3)
        (first,) = self.emit("Unsqueeze", [self.count(), self.ints(0)])
        (shape,) = self.emit("Concat", [first, self.ints(*([1] * self.choice(3)))], axis=0)
        self.emit("Expand", [x, shape])

    def step_tile(self) -> None:
        x = self.pick(lambda v: v.rank == 1)
        (times,) = self.emit("Unsqueeze", [self.count(), self.ints(0)])
        self.emit("Tile", [x, times])

    def step_range(self) -> None:
        zero, one = (self.constant(np.array(n, np.int64)) for n in (0, 1))
        (found,) = self.emit("Range", [zero, self.count(), one])
        if self.maybe(0.6):
            self.emit("Cast", [found], to=TensorProto.FLOAT)

    def step_fill(self) -> None:
        (sizes,) = self.emit("Unsqueeze", [self.count(), self.ints(0)])
        if self.maybe():
            (sizes,) = self.emit("Concat", [sizes, self.ints(2)], axis=0)
        kind = self.one_of("float32", "int64", "bool")
        value = numpy_helper.from_array(np.array([1]).astype(kind), "value")
        self.emit("ConstantOfShape", [sizes], value=value)

    def step_shape(self) -> None:
        self.emit(self.one_of("Shape", "Size"), [self.pick()])

    def step_non_zero(self) -> None:
        # onnxruntime differs from the standard on scalars.
        (at,) = self.emit("NonZero", [self.pick(lambda v: v.dtype != "float32" and v.rank > 0)])
        if self.maybe(0.6):
            (at,) = self.emit("Transpose", [at])
            self.emit("Cast", [at], to=TensorProto.FLOAT)

    def step_gather_nd(self) -> None:
        c = self.pick(lambda v: v.dtype == "bool" and v.rank > 0)
        x = self.pick(lambda v: v.shapes == c.shapes)
        (at,) = self.emit("NonZero", [c])
        (at,) = self.emit("Transpose", [at])
        self.emit("GatherND", [x, at])

    def step_compress(self) -> None:
        x = self.pick(lambda v: v.rank > 0)
        if self.maybe(0.4):
            c = self.constant(self.array("bool", [1 + self.choice(4)]))
        else:
            c = self.pick(lambda v: v.dtype == "bool" and v.rank > 0)
            if c.rank > 1:
                (c,) = self.emit("Reshape", [c, self.ints(-1)])
        self.emit("Compress", [x, c], **({"axis": self.choice(x.rank)} if self.maybe(0.6) else {}))

    def step_top(self) -> None:
        # Equal numbers would come in any order.
        x = self.real(lambda v: v.rank > 0 and all(_apart(a) for a in v.arrays))
        (k,) = self.emit("Unsqueeze", [self.count(), self.ints(0)])
        self.emit("TopK", [x, k], 2, axis=self.choice(x.rank), largest=self.choice(2))

    def step_unique(self) -> None:
        self.emit("Unique", [self.pick(lambda v: v.dtype == "int64")], self.one_of(1, 2, 4))

    def step_suppress(self) -> None:
        boxes = self.array("float32", (1, 5, 4))
        scores = self.constant(self.array("float32", (1, 1, 5)))
        if self.maybe():
            scores = self.emit("Softmax", [scores])[0]
        (most,) = self.emit("Unsqueeze", [self.count(), self.ints(0)])
        limit = self.constant(np.array([0.5], np.float32))
        self.emit("NonMaxSuppression", [self.constant(boxes), scores, most, limit])

    # Sequences and optionals

    def step_sequence(self) -> None:
        x = self.pick(lambda v: v.rank > 0)
        kind = self.choice(4)
        if kind == 0:
            y = self.pick(lambda v: v.dtype == x.dtype)
            self.emit("SequenceConstruct", [x, y, x][: 1 + self.choice(3)])
        elif kind == 1:
            self.emit("SplitToSequence", [x], axis=self.choice(x.rank), keepdims=self.choice(2))
        elif kind == 2:
            self.emit("SplitToSequence", [x, self.constant(np.array(2, np.int64))])
        else:
            sizes = [self.choice(3) for _ in range(2)]
            self.emit("SplitToSequence", [x, self.ints(*sizes)], axis=self.choice(x.rank))

    def step_sequence_change(self) -> None:
        s = self.pick(sequences=True)
        at = self.count() if self.maybe(0.6) else None
        if self.maybe(0.6):
            self.emit("SequenceInsert", [s, self.pick(lambda v: v.dtype == s.dtype), at])
        else:
            self.emit("SequenceErase", [s, at])

    def step_sequence_read(self) -> None:
        s = self.pick(sequences=True)
        kind = self.choice(4)
        if kind < 2:
            self.emit("SequenceAt", [s, self.count()])
        elif kind == 2:
            self.emit("ConcatFromSequence", [s], axis=0, new_axis=self.choice(2))
        else:
            self.emit("SequenceLength", [s])

    def step_optional(self) -> None:
        x = self.pick(sequences=self.maybe(0.2))
        names = [self.scope.fresh() for _ in range(3)]
        nodes = [
            helper.make_node("Optional", [x.name], [names[0]]),
            helper.make_node("OptionalHasElement", [names[0]], [names[1]]),
            helper.make_node("OptionalGetElement", [names[0]], [names[2]]),
        ]
        self.scope.nodes += nodes
        self.define(names[1], tuple(np.array(True) for _ in x.items))
        self.define(names[2], x.items)

    # Layers that run others

    def body(self, inputs: Sequence[Var], length: int, finish: Callable[[], list[Var]]) -> onnx.GraphProto:
        """A graph of its own, of some layers and the outputs that `finish` gives."""
        outer = self.scope
        self.scope = Scope(outer.depth + 1, outer)
        for value in inputs:
            self.scope.own.append(value)
            self.lookup[value.name] = value
        try:
            self.steps(length)
            outputs: list[Var] = []
            for v in finish():
                outputs.append(self.yielded(v, outputs))
            scope = self.scope
            return helper.make_graph(
                scope.nodes, f"body{outer.names}", [v.info() for v in inputs],
                [_open(v, is_body=True) for v in outputs],
                [numpy_helper.from_array(a, n) for n, a in scope.constants.items()],
            )  # fmt: skip
        finally:
            self.scope = outer

    def yielded(self, value: Var, others: Sequence[Var]) -> Var:
        """An output of a body: onnxruntime wants an Identity where it is from around, or named already."""
        made = {o for n in self.scope.nodes for o in n.output} - {v.name for v in others}
        if value.name in made and self.maybe(0.8):
            return value
        name = f"keep_{self.scope.fresh()}"
        self.scope.nodes.append(helper.make_node("Identity", [value.name], [name]))
        self.lookup[name] = Var(name, value.items)
        return self.lookup[name]

    def step_if(self) -> None:
        cond = self.condition()
        if self.maybe(0.2):
            (cond,) = self.emit("Reshape", [cond, self.ints(1)])
        outputs: list[tuple[str, int]] = []
        lengths = [self.one_of(0, 1, 1, 2, 4) for _ in range(2)]

        def first() -> list[Var]:
            made = [self.pick(sequences=self.maybe(0.1)) for _ in range(1 + self.choice(3))]
            outputs.extend((v.dtype, -1 if v.is_sequence else v.rank) for v in made)
            return made

        def second() -> list[Var]:
            def fits(wanted: tuple[str, int]) -> Var:
                dtype, rank = wanted
                return self.pick(lambda v: v.dtype == dtype and (rank < 0 or v.rank == rank), rank < 0)

            return [fits(wanted) for wanted in outputs]

        then_branch = self.body([], lengths[0], first)
        else_branch = self.body([], lengths[1], second)
        if self.maybe(0.3):
            then_branch, else_branch = else_branch, then_branch
        self.emit("If", [cond], len(outputs), then_branch=then_branch, else_branch=else_branch)

    def step_loop(self) -> None:
        ends_by_data = self.maybe(0.6)
        trip: Var | None = self.count()
        if ends_by_data and self.maybe(0.7):
            trip = self.constant(np.array(3 + self.choice(20), np.int64))
        cond = self.condition() if self.maybe(0.3) else self.one_of(None, self.constant(np.array(True)))
        states = [self.pick(sequences=self.maybe(0.12)) for _ in range(1 + self.choice(3))]
        counter = self.constant(np.array(0, np.int64)) if ends_by_data else None
        states += [counter] if counter else []
        depth, feeds = self.scope.depth + 1, len(self.settings)
        letter = "vabcd"[depth]
        inputs = [
            Var(f"{letter}i", (np.array(0, np.int64),) * feeds),
            Var(f"{letter}g", (np.array(True),) * feeds),
            *(Var(f"{letter}s{i}", s.items) for i, s in enumerate(states)),
        ]

        def finish() -> list[Var]:
            carried = [self.next_state(v) for v in inputs[2:]]
            going = inputs[1] if self.maybe(0.7) else self.constant(np.array(True))
            if ends_by_data:
                going = self.going_on(inputs[-1], carried)
            stacks = [self.pick() for _ in range(self.choice(3))]
            return [going, *carried, *stacks]

        body = self.body(inputs, self.one_of(0, 1, 2, 4), finish)
        made = self.emit("Loop", [trip, cond, *states], len(body.output) - 1, body=body)
        if any(v.rank > 1 and 0 in [s[0] for s in v.shapes] for v in made[len(states) :]):
            raise Refused("what was never stacked has sizes that nobody defines")

    def next_state(self, state: Var) -> Var:
        """What a loop carries on in the place of a state."""
        if state.is_sequence:
            if self.maybe():
                return state
            x = self.pick(lambda v: v.dtype == state.dtype)
            return self.emit("SequenceInsert", [state, x])[0]
        alike = [v for v in self.scope.visible() if not v.is_sequence and v.dtype == state.dtype]
        same = [v for v in alike if v.shapes == state.shapes]
        kind = self.choice(10)
        if kind == 0:
            return state
        if kind == 1 and state.rank:
            other = self.pick(lambda v: v in alike and v.rank == state.rank)
            return self.emit("Concat", [state, other], axis=0)[0]
        if kind == 2:
            return self.pick(lambda v: v in alike and v.rank == state.rank)
        other = self.pick(lambda v: v in same)
        if state.dtype == "bool":
            return self.emit("Xor", [state, other])[0]
        (found,) = self.emit(self.one_of("Add", "Sub", "Max"), [state, other])
        if state.dtype.startswith("float"):
            return self.emit("Tanh", [found])[0] if self.maybe(0.7) else found
        return self.emit("Mod", [found, self.constant(np.array(5, state.dtype))])[0]

    def going_on(self, counter: Var, carried: list[Var]) -> Var:
        """Whether another run is due: by a number that is counted up to where data says."""
        one = self.constant(np.array(1, np.int64))
        (carried[-1],) = self.emit("Add", [counter, one])
        (found,) = self.emit("LessOrEqual", [carried[-1], self.count()])
        x = self.pick(lambda v: v.dtype == "int64" and v.rank > 0) if self.maybe(0.3) else None
        if x is not None:
            (total,) = self.emit("ReduceSum", [x], keepdims=0)
            (more,) = self.emit("Less", [total, self.constant(np.array(8, np.int64))])
            (found,) = self.emit("And", [found, more])
        return found

    def step_scan(self) -> None:
        # onnxruntime divides by zero, and takes the process with it, where anything to scan is empty.
        scanned = [self.real(lambda v: v.rank > 0 and not v.is_empty)]
        axes = [self.choice(scanned[0].rank)]
        lengths = [s[axes[0]] for s in scanned[0].shapes]
        if self.maybe(0.4):
            other = self.pick(
                lambda v: not v.is_empty and lengths in [[s[a] for s in v.shapes] for a in range(v.rank)]
            )
            scanned.append(other)
            fits = [a for a in range(other.rank) if [s[a] for s in other.shapes] == lengths]
            axes.append(fits[self.choice(len(fits))])
        states = [self.pick(lambda v: v.largest <= 60) for _ in range(self.choice(3))]
        letter = "vabcd"[self.scope.depth + 1]
        slices = [tuple(np.take(x, 0, a) for x in v.arrays) for v, a in zip(scanned, axes, strict=True)]
        inputs = [Var(f"{letter}s{i}", s.items) for i, s in enumerate(states)]
        inputs += [Var(f"{letter}x{i}", items) for i, items in enumerate(slices)]
        ranks: list[int] = []

        def finish() -> list[Var]:
            carried = []
            for state in inputs[: len(states)]:
                following = self.next_state(state)
                if following.shapes != state.shapes:
                    raise Refused("a state of Scan keeps its shape")
                carried.append(following)
            stacks = [self.pick() for _ in range(1 + self.choice(2))]
            ranks.extend(v.rank + 1 for v in stacks)
            return [*carried, *stacks]

        body = self.body(inputs, self.one_of(0, 1, 2, 3), finish)
        given, names = [*states, *scanned], [f"try{i}" for i in range(len(body.output))]
        attributes: dict[str, Any] = {
            "body": body,
            "num_scan_inputs": len(scanned),
            "scan_input_axes": [self.one_of(a, a - v.rank) for a, v in zip(axes, scanned, strict=True)],
            "scan_input_directions": [self.choice(2) for _ in scanned],
        }
        first = self.tried(helper.make_node("Scan", [v.name for v in given], names, **attributes))
        if not all(map(usable, first)) or any(Var("", items).is_empty for items in first):
            raise Refused("nothing to put along another axis")
        self.emit(
            "Scan", given, len(names), **attributes, scan_output_axes=[self.choice(r) for r in ranks],
            scan_output_directions=[self.choice(2) for _ in ranks],
        )  # fmt: skip

    # The model

    def finish(self) -> tuple[bytes, bytes]:
        """What was made last, some others, and now and then an input, a constant, the same tensor twice."""
        pool = self.root.own
        read = set(free_names(self.root.nodes[::-1]))
        unread = [v for v in pool if v.name not in read][-4:]
        wanted = [*unread, *(pool[self.choice(len(pool))] for _ in range(1 + self.choice(2)))]
        if self.maybe(0.3):
            again = self.root.fresh()
            self.root.nodes.append(helper.make_node("Identity", [wanted[0].name], [again]))
            wanted.append(Var(again, wanted[0].items))
        if self.root.constants and self.maybe(0.3):
            name = next(iter(self.root.constants))
            wanted.append(Var(name, (self.root.constants[name],)))
        outputs = [_open(v) for v in {v.name: v for v in wanted}.values()]
        inputs = [
            helper.make_tensor_value_info(n, ELEMENT[dtype], dims) for n, (dtype, dims) in self.inputs.items()
        ]
        constants = [numpy_helper.from_array(a, n) for n, a in self.root.constants.items()]
        graph = helper.make_graph(self.root.nodes, "made", inputs, outputs, constants)
        source = packed(graph)
        _strip(graph)
        return source, packed(graph)

    @property
    def tolerance(self) -> float:
        """How far an output may be off; each step in float16 may round to another neighbour."""
        return 1e-2 if any(v.dtype == "float16" for v in self.lookup.values()) else 2e-4


def _apart(a: np.ndarray) -> bool:
    flat = np.sort(a.reshape(-1))
    return bool(np.all(np.diff(flat) > 1e-3))


def _open(value: Var, is_body: bool = False) -> onnx.ValueInfoProto:
    """An output, its sizes left open; a body's tell their rank, which is all that is known without a run."""
    if value.is_sequence or is_body:
        return value.info()
    return helper.make_tensor_value_info(value.name, ELEMENT[value.dtype], None)


def _strip(graph: onnx.GraphProto) -> None:
    """Take out the Identity layers that only onnxruntime needs."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _strip(attribute.g)
    kept: dict[str, str] = {}
    named = {o.name for o in graph.output}
    for n in graph.node:
        if n.output[0].startswith("keep_") and n.input[0] not in {*named, *kept.values()}:
            kept[n.output[0]] = n.input[0]
    for output in graph.output:
        output.name = kept.get(output.name, output.name)
    rest = [n for n in graph.node if n.output[0] not in kept]
    del graph.node[:]
    graph.node.extend(rest)


def packed(graph: onnx.GraphProto) -> bytes:
    """A model file's bytes."""
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(made.SerializeToString())


CONTROL = ("if", "loop", "scan")
WEIGHTS = {"if": 4.0, "loop": 5.0, "scan": 2.0, "unary": 2.0, "binary": 4.0, "half": 0.3, "suppress": 0.4}
"""How often a step is taken; 1 by default."""
