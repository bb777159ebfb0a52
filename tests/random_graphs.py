"""Random small ONNX graphs, the same for the same seed, that are valid at every size they are run at.

A dimension is a tuple: its size in each setting of the model's dynamic dimensions. Whatever is joined or
broadcast fits in all settings, also where a size is 1 in one of them only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tests.graphs import node, proto

GIVEN = os.environ.get("GAMEGLUE_RANDOM_GRAPHS", "")
"""How many graphs the long suites take, or which, as FIRST:END."""

Dim = tuple[int, ...]
Shape = tuple[Dim, ...]

LARGEST = 3000
"""Elements of the largest tensor in a graph."""

ACTIVATIONS: dict[str, dict[str, Any]] = {
    **{name: {} for name in "Relu Tanh Sigmoid Abs Neg Softplus Erf Sin Selu HardSwish Softsign".split()},
    "LeakyRelu": {"alpha": 0.2},
    "Elu": {"alpha": 0.7},
    "HardSigmoid": {"alpha": 0.3},
}
SETTINGS = (
    [(3, 4)],
    [(2, 3), (1, 4), (5, 1)],
    [(1, 1), (3, 3), (2, 6)],
    [(4, 2), (1, 1)],
    [(40, 2), (33, 1), (65, 3)],
    [(37, 19)],
)
"""The sizes of the dynamic dimensions n and m. What is drawn fits these and need not fit any others."""

ACROSS = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp", "ArgMax", "ArgMin", "TopK")
"""What large tensors are reduced by."""


def long_seeds(count: int) -> range:
    """Seeds of a long suite: those that `GIVEN` names, or `count` of them."""
    first, is_range, last = (GIVEN or str(count)).rpartition(":")
    return range(int(first), int(last)) if is_range else range(1000, 1000 + int(last))


@dataclass
class Val:
    """A tensor of the graph; `bound` is about how large its elements get."""

    name: str
    dtype: str
    shape: Shape
    bound: float = 4.0

    @property
    def rank(self) -> int:
        return len(self.shape)


def static(dim: Dim) -> bool:
    return len(set(dim)) == 1


class RandomGraph:
    """One graph: `source` (a model file's bytes) and `feeds` (its inputs at each setting)."""

    def __init__(self, seed: int, length: int = 12, *, stops: bool = False) -> None:
        """`stops` adds layers whose sizes data decides behind the others."""
        self.rng = np.random.default_rng(seed)
        self.settings = SETTINGS[self.choice(len(SETTINGS))]
        # Exporters call sizes open that they have written into the graph.
        self.is_open = len(self.settings) > 1 or self.maybe()
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: dict[str, tuple[str, list[int | str]]] = {}
        self.values: list[Val] = []
        self.is_coarse = self.is_long = False
        self.feeds: list[dict[str, np.ndarray]] = [{} for _ in self.settings]
        for _ in range(1 + self.choice(3)):
            self.add_input()
        steps = [getattr(self, n) for n in dir(self) if n.startswith("step_")]
        weights = np.array([WEIGHTS.get(s.__name__[5:], 1.0) for s in steps])
        for _ in range(length * 40):
            if len(self.nodes) >= length:
                break
            steps[self.rng.choice(len(steps), p=weights / weights.sum())]()
        self.source = self.finish(
            [self.of_computed_size() for _ in range(1 + self.choice(2))] if stops else []
        )

    # Helpers

    def choice(self, n: int) -> int:
        return int(self.rng.integers(n))

    def maybe(self, p: float = 0.5) -> bool:
        return bool(self.rng.random() < p)

    def dim(self, size: int) -> Dim:
        return (size,) * len(self.settings)

    def pick(self, accept: Callable[[Val], bool] = lambda v: True) -> Val | None:
        """A value, younger ones more likely."""
        found = [v for v in self.values if accept(v)]
        if not found:
            return None
        return found[-1 - min(int(self.rng.exponential(2.0)), len(found) - 1)]

    def real(self) -> Val | None:
        return self.pick(lambda v: v.dtype == "float32")

    def emit(
        self, op: str, inputs: list[str], dtype: str, shape: Shape, bound: float = 4.0, extra: int = 0,
        **attributes: Any,
    ) -> Val:  # fmt: skip
        name = f"v{len(self.nodes)}"
        outputs = [name, *(f"{name}_{i}" for i in range(extra))]
        self.nodes.append(node(op, inputs, outputs, **attributes))
        value = Val(name, dtype, shape, bound)
        if bound > 100 and dtype == "float32":
            return self.emit("Tanh", [name], dtype, shape, 1.0)
        self.values.append(value)
        return value

    def constant(self, array: np.ndarray) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = array
        return name

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def weights(self, *shape: int) -> str:
        fan = max(1, int(np.prod(shape[1:])))
        return self.constant(self.rng.normal(0, fan**-0.5, shape).astype(np.float32))

    def fits(self, shape: Shape) -> bool:
        return all(
            np.prod([d[k] for d in shape]) <= LARGEST and all(d[k] >= 1 for d in shape)
            for k in range(len(self.settings))
        )

    def broadcast(self, *shapes: Shape) -> Shape | None:
        rank = max(map(len, shapes))
        one = self.dim(1)
        out = []
        for axis in range(rank):
            dims = [s[axis - rank + len(s)] if axis - rank + len(s) >= 0 else one for s in shapes]
            sizes = []
            for k in range(len(self.settings)):
                found = {d[k] for d in dims} - {1}
                if len(found) > 1:
                    return None
                sizes.append(found.pop() if found else 1)
            out.append(tuple(sizes))
        return tuple(out) if self.fits(tuple(out)) else None

    def add_input(self) -> None:
        name = f"x{len(self.inputs)}"
        rank = self.choice(5)
        symbols = [tuple(s[0] for s in self.settings), tuple(s[1] for s in self.settings)]
        shape: list[Dim] = []
        declared: list[int | str] = []
        for _ in range(rank):
            if self.is_open and self.maybe(0.5):
                which = self.choice(2)
                shape.append(symbols[which])
                declared.append("nm"[which])
            else:
                size = (1, 2, 3, 4, 5, 8)[self.choice(6)]
                shape.append(self.dim(size))
                declared.append(size)
            if not self.fits(tuple(shape)):
                shape[-1], declared[-1] = self.dim(1), 1
        if rank == 4 and self.maybe(0.7):
            shape[2:] = [self.dim(6), self.dim(7)]
            declared[2:] = [6, 7]
            if not static(shape[1]):
                shape[1], declared[1] = self.dim(4), 4
            if not self.fits(tuple(shape)):
                shape[0], declared[0] = self.dim(1), 1
        dtypes = ("float32", "float32", "float32", "int64", "int32", "bool")
        dtype = dtypes[self.choice(6)] if self.inputs else "float32"
        self.inputs[name] = (dtype, declared)
        self.values.append(Val(name, dtype, tuple(shape)))
        for k, feed in enumerate(self.feeds):
            feed[name] = self.array(dtype, [d[k] for d in shape])

    def array(self, dtype: str, shape: list[int]) -> np.ndarray:
        if dtype == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        if dtype.startswith("float"):
            return np.asarray(self.rng.normal(size=shape)).astype(dtype)
        return np.asarray(self.rng.integers(-9, 10, shape)).astype(dtype)

    def operand(self, x: Val) -> tuple[str, Shape, float] | None:
        """Something that broadcasts with x: a value, or a constant with some axes of size 1 or left out."""
        if self.maybe(0.55):
            y = self.pick(lambda v: v.dtype == x.dtype and self.broadcast(x.shape, v.shape) is not None)
            return None if y is None else (y.name, y.shape, y.bound)
        shape = [d if static(d) and self.maybe(0.6) else self.dim(1) for d in x.shape]
        shape = shape[self.choice(len(shape) + 1) :]
        if self.maybe(0.15):
            shape = [self.dim(2), *[self.dim(1)] * (x.rank - len(shape)), *shape]
        name = self.constant(self.array(x.dtype, [d[0] for d in shape]))
        return name, tuple(shape), 4.0

    # Steps: each adds layers, or none where nothing fits

    def step_unary(self) -> None:
        if x := self.real():
            op = list(ACTIVATIONS)[self.choice(len(ACTIVATIONS))]
            self.emit(op, [x.name], "float32", x.shape, x.bound + 1, **ACTIVATIONS[op])

    def step_binary(self) -> None:
        x = self.real()
        other = self.operand(x) if x is not None else None
        if x is None or other is None:
            return
        op = ("Add", "Sub", "Mul", "Max", "Min", "Div")[self.choice(6)]
        name, shape, bound = other
        out = self.broadcast(x.shape, shape)
        if out is None:
            return
        if op == "Div":
            lower = self.emit("Abs", [name], "float32", shape, bound)
            positive = shape or (self.dim(1),)
            one = self.constant(np.array([1.5], np.float32))
            name = self.emit("Add", [lower.name, one], "float32", positive, bound + 2).name
            out = self.broadcast(x.shape, positive)
            assert out is not None
        pair = [x.name, name] if self.maybe(0.7) or op == "Div" else [name, x.name]
        self.emit(op, pair, "float32", out, x.bound * bound if op == "Mul" else x.bound + bound)

    def step_sum(self) -> None:
        if x := self.real():
            reals = [v for v in self.values if v.dtype == "float32"]
            same = [v for v in reals if self.broadcast(x.shape, v.shape) == x.shape]
            count = 1 + self.choice(18 if self.maybe(0.2) else 3)
            picked = [x, *(same[self.choice(len(same))] for _ in range(count))]
            op = ("Sum", "Mean", "Max", "Min")[self.choice(4)]
            self.emit(op, [v.name for v in picked], "float32", x.shape, sum(v.bound for v in picked))

    def step_integer(self) -> None:
        x = self.pick(lambda v: v.dtype in ("int32", "int64"))
        other = self.operand(x) if x is not None else None
        if x is None or other is None:
            return
        name, shape, _ = other
        if (out := self.broadcast(x.shape, shape)) is None:
            return
        op = ("Add", "Sub", "Mul", "Max", "Min")[self.choice(5)]
        y = self.emit(op, [x.name, name], x.dtype, out)
        modulus = self.constant(np.array(11, x.dtype))
        self.emit("Mod", [y.name, modulus], x.dtype, out)

    def step_compare(self) -> None:
        x = self.pick(lambda v: v.dtype in ("int32", "int64"))
        other = self.operand(x) if x is not None else None
        if x and other and (out := self.broadcast(x.shape, other[1])) is not None:
            op = ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual")[self.choice(5)]
            self.emit(op, [x.name, other[0]], "bool", out)

    def step_logic(self) -> None:
        x = self.pick(lambda v: v.dtype == "bool")
        if x is None:
            return
        if self.maybe(0.3):
            self.emit("Not", [x.name], "bool", x.shape)
        elif (other := self.operand(x)) and (out := self.broadcast(x.shape, other[1])) is not None:
            self.emit(("And", "Or", "Xor")[self.choice(3)], [x.name, other[0]], "bool", out)

    def step_where(self) -> None:
        c = self.pick(lambda v: v.dtype == "bool")
        if c is None:
            return
        x = self.pick(lambda v: v.dtype != "bool" and self.broadcast(c.shape, v.shape) is not None)
        other = self.operand(x) if x is not None else None
        if x and other and (out := self.broadcast(c.shape, x.shape, other[1])) is not None:
            self.emit("Where", [c.name, x.name, other[0]], x.dtype, out, max(x.bound, other[2]))

    def step_cast(self) -> None:
        x = self.pick()
        assert x is not None
        if x.dtype == "float32":
            # Only an input's own elements: a computed one may lie on either side of an integer.
            if x.name in self.inputs:
                target = ("int32", "int64", "bool")[self.choice(3)]
                self.emit("Cast", [x.name], target, x.shape, to=CODES[target])
            return
        target = ("float32", "float32", "int32", "int64")[self.choice(4)]
        if x.dtype in ("int32", "int64") and self.maybe(0.3):
            narrow = ("uint8", "int8", "int16")[self.choice(3)]
            middle = f"v{len(self.nodes)}"
            self.nodes.append(node("Cast", [x.name], [middle], to=CODES[narrow]))
            x = Val(middle, narrow, x.shape)
        bound = 260.0 if x.dtype == "uint8" else 16.0
        self.emit("Cast", [x.name], target, x.shape, bound, to=CODES[target])

    def step_half(self) -> None:
        """A stretch in float16, left again at once: its rounding is coarse."""
        x = self.real()
        if x is None or x.bound > 8 or any(v.name.startswith("half") for v in self.values):
            return
        n = len(self.nodes)
        self.nodes += [
            node("Cast", [x.name], [f"h{n}"], to=CODES["float16"]),
            node("Tanh", [f"h{n}"], [f"i{n}"]),
            node("Mul", [f"i{n}", f"h{n}"], [f"half{n}"]),
        ]
        self.values.append(Val(f"half{n}", "float16", x.shape))

    def step_half_region(self) -> None:
        """Layers in float16 between conversions, as half precision models keep them."""
        x = self.pick(lambda v: v.dtype == "float32" and v.bound <= 8 and v.rank > 0)
        if x is None:
            return
        self.is_coarse = True
        at, name, shape = len(self.nodes), f"hr{len(self.nodes)}", x.shape
        self.nodes.append(node("Cast", [x.name], [name], to=CODES["float16"]))
        for number in range(1 + self.choice(3)):
            made = f"hr{at}_{number}"
            kind = self.choice(8)
            if kind == 0 and static(shape[-1]) and self.fits((*shape, self.dim(2))):
                n = 1 + self.choice(2 * shape[-1][0])
                w = self.weights(shape[-1][0], n)
                self.constants[w] = (self.constants[w] / 2).astype(np.float16)
                self.nodes.append(node("MatMul", [name, w], [made]))
                shape = (*shape[:-1], self.dim(n))
            elif kind == 1:
                self.nodes.append(node("Softmax", [name], [made], axis=self.choice(len(shape))))
            elif kind == 2:
                self.nodes.append(node("ReduceMean", [name, self.ints(-1)], [made], keepdims=1))
                shape = (*shape[:-1], self.dim(1))
            elif kind == 3:
                other = self.constant(np.array(0.75, np.float16))
                self.nodes.append(node(("Add", "Mul", "Max")[self.choice(3)], [name, other], [made]))
            elif kind == 4:
                self.nodes.append(node("Transpose", [name], [made]))
                shape = shape[::-1]
            elif kind == 5:
                # Between conversions, as around layers that a converter leaves in float32.
                self.nodes.append(node("Cast", [name], [f"{made}f"], to=CODES["float32"]))
                self.nodes.append(node("Neg", [f"{made}f"], [f"{made}n"]))
                self.nodes.append(node("Cast", [f"{made}n"], [made], to=CODES["float16"]))
            elif kind == 6:
                low, high = (self.constant(np.array(n, np.float16)) for n in (-0.5, 0.5))
                self.nodes.append(node("Clip", [name, low, high], [made]))
            else:
                self.nodes.append(node(("Tanh", "Sigmoid", "Relu")[self.choice(3)], [name], [made]))
            name = made
        self.emit("Cast", [name], "float32", shape, 16.0, to=CODES["float32"])

    def step_quantized(self) -> None:
        """Layers in bytes, as quantisers write them.

        All scales are powers of 2 and what comes in is a multiple of one, so that every result is exact: no
        rounding may go the other way elsewhere.
        """
        x = self.pick(lambda v: v.dtype in ("int32", "int64") and v.rank > 1 and static(v.shape[-1]))
        if x is None:
            return
        at, depth, n = len(self.nodes), x.shape[-1][0], 1 + self.choice(9)
        shape = (*x.shape[:-1], self.dim(n))
        if not self.fits(shape):
            return
        signed = self.maybe()
        byte = np.int8 if signed else np.uint8
        zero = self.constant(np.array(self.choice(9) if signed else 128, byte))
        in_scale, out_scale = (self.constant(np.array(2.0**-p, np.float32)) for p in (2, self.choice(3)))
        w = self.constant(self.rng.integers(-90, 91, (depth, n)).astype(np.int8))
        columns = self.maybe()
        per = n if columns else ()
        w_scale = self.constant(np.float32(2.0) ** -self.rng.integers(4, 7, per).astype(np.float32))
        w_zero = self.constant(np.zeros(per, np.int8))
        axis = {"axis": 1} if columns else {}
        names = {k: f"qd{at}_{k}" for k in "f s q d w p t u".split()}
        self.nodes += [
            node("Cast", [x.name], [names["f"]], to=CODES["float32"]),
            node("Mul", [names["f"], in_scale], [names["s"]]),
            node("QuantizeLinear", [names["s"], in_scale, zero], [names["q"]]),
        ]
        kind = self.choice(3)
        if kind == 0:
            # As operators on bytes.
            operands = [names["q"], in_scale, zero, w, w_scale, w_zero, out_scale, zero]
            self.nodes.append(node("QLinearMatMul", operands, [names["t"]]))
        elif kind == 1:
            self.nodes.append(node("MatMulInteger", [names["q"], w, zero], [names["p"]]))
            self.emit("Mod", [names["p"], self.constant(np.array(11, np.int32))], "int32", shape)
            return
        else:
            self.nodes += [
                node("DequantizeLinear", [names["q"], in_scale, zero], [names["d"]]),
                node("DequantizeLinear", [w, w_scale, w_zero], [names["w"]], **axis),
                node("MatMul", [names["d"], names["w"]], [names["p"]]),
                node("QuantizeLinear", [names["p"], out_scale, zero], [names["t"]]),
            ]
        if self.maybe(0.3):
            shape = tuple(shape[a] for a in (*range(1, len(shape)), 0))
            self.nodes.append(node("Transpose", [names["t"]], [names["u"]], perm=[*range(1, len(shape)), 0]))
        last = names["u"] if any(names["u"] in n.output for n in self.nodes[-1:]) else names["t"]
        self.emit("DequantizeLinear", [last, out_scale, zero], "float32", shape, 99.0)

    def step_large(self) -> None:
        """A large tensor, reduced at once: longer than loops, tables and sums of a device may be."""
        x = self.pick(
            lambda v: v.dtype == "float32" and v.rank > 0 and v.bound <= 16
            and self.fits((*v.shape, self.dim(3)))
        )  # fmt: skip
        if x is None:
            return
        at, count = len(self.nodes), (5000, 16_385, 40_003, 65_537)[self.choice(4)]
        count = min(count, 400_000 // max(self.product(x.shape)))
        ramp = self.constant((self.rng.permutation(count) / count + 0.5).astype(np.float32))
        wide, name = (*x.shape, self.dim(count)), f"lg{at}"
        self.nodes += [
            node("Unsqueeze", [x.name, self.ints(-1)], [f"{name}_x"]),
            node("Add", [f"{name}_x", ramp], [name]),
        ]
        if self.maybe(0.3):
            self.nodes.append(node("Transpose", [name], [f"{name}_t"], perm=[x.rank, *range(x.rank)]))
            wide, name = (wide[-1], *wide[:-1]), f"{name}_t"
        axis = wide.index(self.dim(count))
        kind = ACROSS[self.choice(len(ACROSS))] if self.maybe(0.8) else "MatMul"
        rest = tuple(d for a, d in enumerate(wide) if a != axis)
        if kind == "MatMul" and axis == x.rank:
            self.is_long = True
            self.emit("MatMul", [name, self.weights(count, 2)], "float32", (*x.shape, self.dim(2)), 99.0)
        elif kind.startswith("Arg"):
            self.emit(kind, [name], "int64", rest, axis=axis, keepdims=0)
        elif kind == "TopK":
            shape = tuple(self.dim(3) if a == axis else d for a, d in enumerate(wide))
            self.emit(kind, [name, self.ints(3)], "float32", shape, x.bound + 2, 1, axis=axis)
        else:
            kind = "ReduceMean" if kind == "MatMul" else kind
            bound = (x.bound + 2) * (count**0.5 if kind == "ReduceL2" else 3)
            self.emit(kind, [name, self.ints(axis)], "float32", rest, bound, keepdims=0)

    def step_unread(self) -> None:
        """A layer with outputs that are named and not read."""
        x = self.pick(lambda v: v.dtype == "float32" and v.rank > 0)
        if x is None:
            return
        kind = self.choice(3)
        if kind == 0:
            self.emit("Dropout", [x.name], "float32", x.shape, x.bound, 1)
        elif kind == 1:
            axis = self.choice(x.rank)
            shape = tuple(self.dim(1) if a == axis else d for a, d in enumerate(x.shape))
            # Elements that differ by nothing but rounding have no order: only the values are read.
            self.emit("TopK", [x.name, self.ints(1)], "float32", shape, x.bound, 1, axis=axis)
        elif static(x.shape[-1]) and x.shape[-1][0] > 2:
            n = x.shape[-1][0]
            shape = (*x.shape[:-1], self.dim(1))
            parts = [x.name, self.ints(1, 1, n - 2)]
            made = self.emit("Split", parts, "float32", shape, min(x.bound, 99.0), 2, axis=-1)
            if self.maybe():
                rest = (*x.shape[:-1], self.dim(n - 2))
                self.values.append(Val(f"{made.name}_1", "float32", rest, x.bound))

    def step_transpose(self) -> None:
        if x := self.pick(lambda v: v.rank > 1):
            perm = [int(a) for a in self.rng.permutation(x.rank)]
            self.emit("Transpose", [x.name], x.dtype, tuple(x.shape[a] for a in perm), x.bound, perm=perm)

    def step_reshape(self) -> None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return
        kind = self.choice(3)
        if kind == 0 and all(map(static, x.shape)):
            total = int(np.prod([d[0] for d in x.shape]))
            factors = [f for f in range(1, total + 1) if total % f == 0]
            first = factors[self.choice(len(factors))]
            shape = [first, total // first] if self.maybe() else [1, first, 1, total // first]
            wanted = [*shape[:-1], -1] if self.maybe() else shape
            self.emit("Reshape", [x.name, self.ints(*wanted)], x.dtype, tuple(map(self.dim, shape)), x.bound)
        elif kind == 1:
            axis = self.choice(x.rank + 1)
            shape2 = (self.product(x.shape[:axis]), self.product(x.shape[axis:]))
            self.emit("Flatten", [x.name], x.dtype, shape2, x.bound, axis=axis)
        elif x.rank > 1:
            # Two neighbours become one, their size worked out by the graph itself.
            axis = self.choice(x.rank - 1)
            n = len(self.nodes)
            self.nodes += [
                node("Shape", [x.name], [f"s{n}"]),
                node("Gather", [f"s{n}", self.ints(axis)], [f"a{n}"]),
                node("Gather", [f"s{n}", self.ints(axis + 1)], [f"b{n}"]),
                node("Mul", [f"a{n}", f"b{n}"], [f"m{n}"]),
            ]
            before, left = x.shape[:axis], x.shape[axis + 2 :]
            parts = [self.ints(*[0] * axis)] * bool(before) + [f"m{n}"] + [self.ints(-1)] * bool(left)
            rest = [self.product(left)] if left else []
            shape3 = (*before, self.product(x.shape[axis : axis + 2]), *rest)
            self.nodes.append(node("Concat", parts, [f"t{n}"], axis=0))
            self.emit("Reshape", [x.name, f"t{n}"], x.dtype, shape3, x.bound)

    def product(self, dims: Shape) -> Dim:
        return tuple(int(np.prod([d[k] for d in dims])) for k in range(len(self.settings)))

    def step_unsqueeze(self) -> None:
        if x := self.pick(lambda v: v.rank < 5):
            axis = self.choice(x.rank + 1)
            shape = (*x.shape[:axis], self.dim(1), *x.shape[axis:])
            self.emit("Unsqueeze", [x.name, self.ints(axis)], x.dtype, shape, x.bound)

    def step_squeeze(self) -> None:
        if x := self.pick(lambda v: self.dim(1) in v.shape):
            axis = x.shape.index(self.dim(1))
            shape = (*x.shape[:axis], *x.shape[axis + 1 :])
            self.emit("Squeeze", [x.name, self.ints(axis)], x.dtype, shape, x.bound)

    def step_concat(self) -> None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return
        axis = self.choice(x.rank)

        def joins(v: Val) -> bool:
            return v.dtype == x.dtype and v.rank == x.rank and all(
                a == axis or d == x.shape[a] for a, d in enumerate(v.shape)
            )  # fmt: skip

        fitting = [v for v in self.values if joins(v)]
        count = 2 + self.choice(10 if self.maybe(0.2) else 3)
        parts = [fitting[self.choice(len(fitting))] for _ in range(count)]
        total = tuple(sum(p.shape[axis][k] for p in parts) for k in range(len(self.settings)))
        shape = (*x.shape[:axis], total, *x.shape[axis + 1 :])
        if self.fits(shape):
            bound = max(p.bound for p in parts)
            self.emit("Concat", [p.name for p in parts], x.dtype, shape, bound, axis=axis)

    def step_split(self) -> None:
        x = self.pick(lambda v: any(static(d) and d[0] > 1 for d in v.shape))
        if x is None:
            return
        axis = next(a for a, d in enumerate(x.shape) if static(d) and d[0] > 1)
        first = 1 + self.choice(x.shape[axis][0] - 1)
        rest = x.shape[axis][0] - first
        one, other = ((*x.shape[:axis], self.dim(n), *x.shape[axis + 1 :]) for n in (first, rest))
        names = [x.name, self.ints(first, rest)]
        value = self.emit("Split", names, x.dtype, one, min(x.bound, 99.0), extra=1, axis=axis)
        self.values.append(Val(f"{value.name}_0", x.dtype, other, x.bound))

    def step_slice(self) -> None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return
        axis = self.choice(x.rank)
        step = (1, 1, 2, -1)[self.choice(4)]
        start, end = (-1, -(2**40)) if step < 0 else (self.choice(2), 2**40 if self.maybe() else -1)
        sizes = tuple(len(range(*slice(start, end, step).indices(n))) for n in x.shape[axis])
        shape = (*x.shape[:axis], sizes, *x.shape[axis + 1 :])
        if self.fits(shape):
            names = [self.ints(v) for v in (start, end, axis, step)]
            self.emit("Slice", [x.name, *names], x.dtype, shape, x.bound)

    def step_pad(self) -> None:
        x = self.pick(lambda v: v.rank > 0 and v.dtype == "float32")
        if x is None:
            return
        mode = ("constant", "edge", "reflect")[self.choice(3)]
        pads = [self.choice(3) if self.maybe(0.4) else 0 for _ in range(2 * x.rank)]
        if mode == "reflect":
            pads = [min(p, min(x.shape[i % x.rank]) - 1) for i, p in enumerate(pads)]
        shape = tuple(tuple(n + pads[a] + pads[a + x.rank] for n in d) for a, d in enumerate(x.shape))
        if self.fits(shape):
            self.emit("Pad", [x.name, self.ints(*pads)], x.dtype, shape, x.bound, mode=mode)

    def step_expand(self) -> None:
        x = self.pick(lambda v: v.rank > 0)
        if x is None:
            return
        wanted = [2, *(1 if d != self.dim(1) else 1 + self.choice(3) for d in x.shape)]
        out = self.broadcast(x.shape, tuple(map(self.dim, wanted)))
        if out is not None:
            self.emit("Expand", [x.name, self.ints(*wanted)], x.dtype, out, x.bound)

    def step_tile(self) -> None:
        if x := self.pick(lambda v: v.rank > 0):
            times = [1 + self.choice(2) for _ in x.shape]
            shape = tuple(tuple(n * t for n in d) for d, t in zip(x.shape, times, strict=True))
            if self.fits(shape):
                self.emit("Tile", [x.name, self.ints(*times)], x.dtype, shape, x.bound)

    def step_gather(self) -> None:
        x = self.pick(lambda v: any(map(static, v.shape)))
        if x is None:
            return
        axis = next(a for a, d in enumerate(x.shape) if static(d))
        size = x.shape[axis][0]
        at = self.rng.integers(-size, size, [(), (3,), (2, 2)][self.choice(3)])
        shape = (*x.shape[:axis], *map(self.dim, at.shape), *x.shape[axis + 1 :])
        if self.fits(shape):
            names = [x.name, self.constant(np.asarray(at, np.int64))]
            self.emit("Gather", names, x.dtype, shape, x.bound, axis=axis)

    def step_reduce(self) -> None:
        x = self.pick(lambda v: v.dtype == "float32" and v.rank > 0)
        if x is None:
            return
        axes = sorted({self.choice(x.rank) for _ in range(1 + self.choice(2))})
        keep = self.maybe()
        op = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL2")[self.choice(5)]
        shape = tuple(self.dim(1) if a in axes else d for a, d in enumerate(x.shape) if keep or a not in axes)
        largest = max(max(self.product(tuple(x.shape[a] for a in axes))), 1)
        self.emit(
            op, [x.name, self.ints(*axes)], "float32", shape,
            x.bound * (largest if op in ("ReduceSum", "ReduceL2") else 1), keepdims=int(keep),
        )  # fmt: skip

    def step_softmax(self) -> None:
        if x := self.pick(lambda v: v.dtype == "float32" and v.rank > 0):
            self.emit("Softmax", [x.name], "float32", x.shape, 1.0, axis=self.choice(x.rank))

    def step_layer_norm(self) -> None:
        x = self.pick(
            lambda v: v.dtype == "float32" and v.rank > 0 and static(v.shape[-1]) and v.shape[-1][0] > 2
        )
        if x is not None:
            n = x.shape[-1][0]
            names = [x.name, self.weights(n), self.weights(n)]
            # Mean and inverse deviation, which nobody reads.
            extra = self.choice(3) if self.maybe(0.3) else 0
            self.emit("LayerNormalization", names, "float32", x.shape, 8.0, extra, epsilon=0.1)

    def step_matmul(self) -> None:
        x = self.pick(lambda v: v.dtype == "float32" and v.rank > 0)
        if x is None:
            return
        y = self.pick(
            lambda v: v.dtype == "float32" and v.rank > 1 and x.rank > 1 and v.shape[-2] == x.shape[-1]
            and self.broadcast(x.shape[:-2], v.shape[:-2]) is not None
        )  # fmt: skip
        if y is not None and self.maybe():
            lead = self.broadcast(x.shape[:-2], y.shape[:-2]) if x.rank + y.rank > 4 else ()
            shape = (*(lead or ()), x.shape[-2], y.shape[-1])
            if self.fits(shape):
                self.emit("MatMul", [x.name, y.name], "float32", shape, x.bound * y.bound * max(x.shape[-1]))
        elif static(x.shape[-1]):
            n = 1 + self.choice(20)
            shape = (*x.shape[:-1], self.dim(n))
            if self.fits(shape):
                name = self.weights(x.shape[-1][0], n)
                y2 = self.emit("MatMul", [x.name, name], "float32", shape, x.bound * 3 + 1)
                if self.maybe():
                    self.emit("Add", [self.weights(n), y2.name], "float32", shape, y2.bound + 1)

    def step_gemm(self) -> None:
        x = self.pick(lambda v: v.dtype == "float32" and v.rank == 2 and any(map(static, v.shape)))
        if x is None:
            return
        trans_a = int(not static(x.shape[1]) or (static(x.shape[0]) and self.maybe(0.3)))
        rows, depth = (x.shape[1], x.shape[0]) if trans_a else x.shape
        n, trans_b = 1 + self.choice(20), self.choice(2)
        b = self.weights(n, depth[0]) if trans_b else self.weights(depth[0], n)
        shape = (rows, self.dim(n))
        if not self.fits(shape):
            return
        c = [self.weights(*[(n,), (1, n), (1,), (1, 1)][self.choice(4)])] if self.maybe(0.8) else []
        attributes: dict[str, Any] = {"alpha": 0.5, "beta": 1.5} if self.maybe(0.3) else {}
        self.emit(
            "Gemm", [x.name, b, *c], "float32", shape, x.bound * 6 + 2,
            transA=trans_a, transB=trans_b, **attributes,
        )  # fmt: skip

    def step_conv(self) -> None:
        x = self.pick(
            lambda v: v.dtype == "float32" and v.rank in (3, 4) and static(v.shape[1]) and v.shape[1][0] <= 12
        )
        if x is None:
            return
        channels = x.shape[1][0]
        group = channels if self.maybe(0.25) else 2 if channels % 2 == 0 and self.maybe(0.2) else 1
        out = group * (1 + self.choice(max(1, 12 // group)))
        spatial = x.rank - 2
        kernel = [self.window(d, (1, 2, 3, 3)) for d in x.shape[2:]]
        stride = [1 + self.choice(2) for _ in range(spatial)] if self.maybe(0.4) else [1] * spatial
        dilation = [1 + self.choice(2) for _ in range(spatial)] if self.maybe(0.2) else [1] * spatial
        pads = [self.choice(3) if self.maybe(0.6) else 0 for _ in range(2 * spatial)]
        if self.maybe(0.3):
            kernel, stride, dilation, pads = [3] * spatial, [1] * spatial, [1] * spatial, [1] * 2 * spatial
        sizes: list[Dim] = []
        for a, d in enumerate(x.shape[2:]):
            extent = (kernel[a] - 1) * dilation[a] + 1
            sizes.append(tuple((n + pads[a] + pads[a + spatial] - extent) // stride[a] + 1 for n in d))
        shape = (x.shape[0], self.dim(out), *sizes)
        if not self.fits(shape):
            return
        names = [x.name, self.weights(out, channels // group, *kernel)]
        if self.maybe(0.7):
            names.append(self.weights(out))
        y = self.emit(
            "Conv", names, "float32", shape, x.bound * 3 + 1,
            strides=stride, dilations=dilation, pads=pads, group=group,
        )  # fmt: skip
        if self.maybe(0.3):
            stats = [self.weights(out), self.weights(out), self.weights(out)]
            var = self.constant(self.rng.random(out).astype(np.float32) + 0.5)
            y = self.emit("BatchNormalization", [y.name, *stats, var], "float32", shape, y.bound * 2)
        if self.maybe(0.4):
            residual = self.pick(lambda v: v.dtype == "float32" and v.shape == shape and v is not y)
            if residual is not None:
                y = self.emit("Add", [residual.name, y.name], "float32", shape, residual.bound + y.bound)
        if self.maybe(0.6):
            op = ("Relu", "Sigmoid", "LeakyRelu", "HardSwish")[self.choice(4)]
            self.emit(op, [y.name], "float32", shape, y.bound)

    def step_conv_transpose(self) -> None:
        x = self.pick(lambda v: v.dtype == "float32" and v.rank == 4 and static(v.shape[1]))
        if x is None:
            return
        out, kernel, stride = 1 + self.choice(6), 1 + self.choice(3), 1 + self.choice(2)
        sizes = [tuple((n - 1) * stride + kernel for n in d) for d in x.shape[2:]]
        shape = (x.shape[0], self.dim(out), *sizes)
        if self.fits(shape):
            names = [x.name, self.weights(x.shape[1][0], out, kernel, kernel), self.weights(out)]
            self.emit("ConvTranspose", names, "float32", shape, x.bound * 4 + 1, strides=[stride] * 2)

    def step_pool(self) -> None:
        x = self.pick(lambda v: v.dtype == "float32" and v.rank in (3, 4))
        if x is None:
            return
        spatial = x.rank - 2
        if self.maybe(0.3):
            shape = (*x.shape[:2], *[self.dim(1)] * spatial)
            self.emit("GlobalAveragePool", [x.name], "float32", shape, x.bound)
            return
        op = ("MaxPool", "AveragePool")[self.choice(2)]
        kernel = [self.window(d, (2, 3)) for d in x.shape[2:]]
        stride, pad = 1 + self.choice(2), self.choice(2) if min(kernel) > 1 else 0
        pairs = list(zip(x.shape[2:], kernel, strict=True))
        sizes = [tuple((n + 2 * pad - size) // stride + 1 for n in d) for d, size in pairs]
        shape = (*x.shape[:2], *sizes)
        if self.fits(shape) and all(n + pad >= size for d, size in pairs for n in d):
            attributes = {"count_include_pad": self.choice(2)} if op == "AveragePool" else {}
            with_places = int(op == "MaxPool" and self.maybe(0.3))
            y = self.emit(
                op, [x.name], "float32", shape, x.bound, with_places, kernel_shape=kernel,
                strides=[stride] * spatial, pads=[pad] * 2 * spatial, **attributes,
            )  # fmt: skip
            if with_places and self.maybe():
                self.values.append(Val(f"{y.name}_0", "int64", shape))

    def window(self, dim: Dim, small: tuple[int, ...]) -> int:
        """How wide a window over a dimension is: now and then as wide as all settings allow."""
        return min(dim) if self.maybe(0.15) else small[self.choice(len(small))]

    def step_recurrent(self) -> None:
        x = self.pick(
            lambda v: v.dtype == "float32" and v.rank == 3 and static(v.shape[2]) and max(v.shape[0]) <= 6
        )
        if x is None:
            return
        hidden = 1 + self.choice(6)
        direction = ("forward", "reverse", "bidirectional")[self.choice(3)]
        d = 2 if direction == "bidirectional" else 1
        op = ("LSTM", "GRU", "RNN")[self.choice(3)]
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
        rows = gates * hidden
        names = [x.name, self.weights(d, rows, x.shape[2][0]), self.weights(d, rows, hidden)]
        if self.maybe(0.7):
            names.append(self.weights(d, 2 * gates * hidden))
        shape = (x.shape[0], self.dim(d), x.shape[1], self.dim(hidden))
        if not self.fits(shape):
            return
        attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
        if op == "GRU":
            attributes["linear_before_reset"] = self.choice(2)
        states = self.choice(3 if op == "LSTM" else 2)
        y = self.emit(op, names, "float32", shape, 1.0, states, **attributes)
        for number in range(states):
            # Exporters name all states, and often nobody reads them.
            if self.maybe(0.3):
                self.values.append(Val(f"{y.name}_{number}", "float32", shape[1:], 1.0 + number))

    @property
    def tolerance(self) -> float:
        """How far an output may be off.

        Each step in float16 may round to another neighbour; products of 65,537 terms add up to hundreds, of
        which float32 keeps 3e-5, and what follows may leave the difference only.
        """
        if self.is_coarse or any(v.dtype == "float16" for v in self.values):
            return 5e-3
        return 5e-4 if self.is_long else 1e-4

    def made(self, op: str, inputs: list[str], **attributes: Any) -> str:
        """The result of a layer, whose shape nobody knows here."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op, inputs, [name], **attributes))
        return name

    def of_computed_size(self) -> str:
        """Elements that are picked by what they are, through layers that need to know how many there are."""
        x = self.real()
        flat = self.made("Reshape", [self.values[0].name if x is None else x.name, self.ints(-1)])
        flat = self.made("Cast", [flat], to=CODES["float32"])
        limit, scale = (self.constant(np.array(n, np.float32)) for n in (self.rng.normal(0, 0.5), 2.0))
        match self.choice(4):
            case 0:
                y = self.made("Compress", [flat, self.made("Greater", [flat, limit])])
            case 1:
                found = self.made("NonZero", [self.made("Relu", [self.made("Sub", [flat, limit])])])
                y = self.made("GatherND", [flat, self.made("Transpose", [found])])
            case 2:
                y = self.made("Unique", [self.made("Round", [self.made("Mul", [flat, scale])])])
            case _:
                most = self.made("ReduceMax", [self.made("Tanh", [flat])], keepdims=0)
                count = self.made(
                    "Cast", [self.made("Mul", [most, self.constant(np.array(9, np.float32))])], to=7
                )
                number, one = self.constant(np.array(-2)), self.constant(np.array(1))
                y = self.made("Cast", [self.made("Range", [number, count, one])], to=CODES["float32"])
        for _ in range(1 + self.choice(4)):
            match self.choice(6):
                case 0:
                    y = self.made("Softmax", [y], axis=0)
                case 1:
                    y = self.made("Concat", [y, y, flat][self.choice(2) :], axis=0)
                case 2:
                    y = self.made("Add", [y, self.made("ReduceSum", [y], keepdims=1)])
                case 3:
                    y = self.made("Slice", [y, self.ints(1), self.ints(40)])
                case 4:
                    column = self.made("Unsqueeze", [y, self.ints(1)])
                    product = self.made("MatMul", [column, self.weights(1, 5)])
                    y = self.made("ReduceSum", [product, self.ints(1)], keepdims=0)
                case _:
                    size = self.made("Cast", [self.made("Shape", [y])], to=CODES["float32"])
                    y = self.made("Mul", [y, size])
        return y

    def finish(self, further: list[str]) -> bytes:
        """The last value, a few others, `further` ones, and now and then an input as it is."""
        wanted = [self.values[-1]]
        for _ in range(self.choice(3)):
            wanted.append(self.values[self.choice(len(self.values))])
        outputs: dict[str, tuple[str, None]] = {}
        for v in dict.fromkeys(v.name for v in wanted):
            value = next(w for w in self.values if w.name == v)
            if v in self.inputs:
                self.nodes.append(node("Identity", [v], [f"same_{v}"]))
                v = f"same_{v}"
            outputs[v] = (value.dtype, None)
        outputs |= dict.fromkeys(further, ("float32", None))
        return proto(self.nodes, self.inputs, outputs, self.constants)


WEIGHTS = {
    "unary": 3.0,
    "binary": 5.0,
    "conv": 3.0,
    "transpose": 1.5,
    "half": 0.3,
    "recurrent": 0.7,
    "half_region": 0.4,
    "quantized": 0.7,
    "large": 0.6,
    "unread": 0.7,
    "integer": 1.5,
}
"""How often a step is taken; 1 by default."""

CODES = {"float32": 1, "uint8": 2, "int8": 3, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10}
"""TensorProto.DataType by name."""
