"""`Builder`: the interface with which an operator's definition creates kernels.

An operator is one function `(k: Builder, *inputs, **attributes) -> Value | tuple[Value, ...]`. The same
function serves shape inference (nothing but shapes flows), constant folding and the making of a plan, so
an operator's shape rule and its formula cannot drift apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from math import prod
from typing import Any, NamedTuple, NoReturn

import numpy as np

from engine.base.dtypes import TEXT
from engine.base.errors import OutOfMemoryError, ShapeError
from engine.graph.model import Layer
from engine.kernels.expr import FLAT, Expr, arg, lit, load
from engine.kernels.hint import Hint
from engine.kernels.size import Size, whole
from engine.kernels.value import Entry, ListValue, Signature, TextValue, Value

FAN_IN = 7
"""How many tensors one kernel may read: GL guarantees 8 storage blocks, one of them for the output."""

MOST_ON_HOST = 1 << 24
"""Elements of the largest table that the host computes for a layer: sizes come from files and inputs."""


class Part(NamedTuple):
    """The location of each iteration's elements in a repeat's tensor: offset and stride."""

    values: Value
    start: int
    stride: int = 0


class Repeated(NamedTuple):
    """The results of a repeat, a tensor per element type: stacked values and last states."""

    kept: tuple[Part, ...]
    last: tuple[Part, ...]


REPEATED = 8
"""From how many runs on a plan repeats one of them: fewer are no more steps than what that takes."""

Formula = Callable[..., Expr]
Groups = tuple[tuple[int, ...], ...]
"""For each axis of an index space, the neighbouring axes of the output that it walks as one."""


class Builder(ABC):
    """The interface between an operator's definition and the compiler."""

    layer: Layer
    path: str = ""
    """Tells the repetitions of a layer apart, where a loop's body has it."""
    fan_in: int = FAN_IN
    """How many tensors one kernel may read."""
    whole_layers: frozenset[str] = frozenset()
    """Kinds of hints that the backend is bound to take, so that a definition need not spell them out."""

    @abstractmethod
    def compute(
        self,
        shape: Sequence[int],
        dtype: np.dtype,
        formula: Formula,
        *,
        hint: Callable[[], Hint | None] | None = None,
        groups: Groups | None = None,
        elementwise: bool = False,
    ) -> Value:
        """A new tensor: element at `indices` is `formula(*indices)`, one index expression per axis.

        With `groups`, the formula takes one index per group of output axes instead. `hint` says what is
        computed to backends that have a faster way. The formula may be called never, once or repeatedly.
        """

    @abstractmethod
    def alias(self, x: Value, shape: Sequence[int]) -> Value:
        """The same elements in row-major order under another shape: no work at run time."""

    @abstractmethod
    def constant(self, array: np.ndarray) -> Value:
        """A tensor whose elements are known now."""

    @abstractmethod
    def table(self, count: int, dtype: np.dtype, function: Callable[..., np.ndarray], *args: Any) -> Value:
        """A tensor of `count` elements in one axis that the host computes: `function(*args)`.

        Once where all sizes in `args` (numbers, and tuples and records of such) are known, else whenever they
        change.
        """

    @abstractmethod
    def wants(self, position: int) -> bool:
        """Whether anything reads the layer's output number `position`."""

    @abstractmethod
    def schedule_count(self) -> Value:
        """A uint32 tensor of one element: how often the worker was scheduled before this time."""

    @abstractmethod
    def elements(self, x: Value) -> np.ndarray | None:
        """The elements of a tensor in its shape, if known."""

    def counted(self, x: Value, axis: int, count: Value) -> Value:
        """`x` with a data-dependent size: only the first `count` entries along `axis` are valid.

        `count` is an integer tensor of one element. What reads the result sees the exact size; an output of
        the model is trimmed when it is read back.
        """
        axis = self.axis(axis, x.rank)
        number = self.elements(count)
        if number is not None and x.known is not None:
            kept = x.known.take(range(int(number.reshape(-1)[0])), axis)
            return self.constant(np.ascontiguousarray(kept))
        return x.bounded(axis, count)

    def sequence(self, items: Sequence[Value], dtype: np.dtype, rows: Value | None = None) -> ListValue:
        """A sequence of tensors of one type; `rows` has them along axis 0."""
        if wrong := [x for x in items if x.dtype != dtype]:
            self.error(f"cannot put {wrong[0].dtype.name} into a sequence of {dtype.name}")
        return ListValue(tuple(items), np.dtype(dtype), rows=rows)

    def text(self, positions: Value, names: np.ndarray) -> Entry:
        """The string at each of these positions; where they are unknown yet, only outputs have them."""
        text = TextValue((positions,), TEXT, names)
        known = self.elements(positions)
        return text if known is None else self.constant(text.objects(known))

    def absent(self) -> None:
        """An empty optional."""

    def varies(self, runs: int) -> bool:
        """Whether the iteration count differs at other input shapes."""
        return False

    def before_iterations(self, states: Sequence[Value]) -> tuple[Value, ...] | None:
        """Placeholders of the states before an iteration of a repeat.

        None where the backend repeats nothing: then the formulas are to be made for each run. Else those of
        one run follow, with `iteration_number()` for its number, and `repeated`.
        """
        return None

    def repeated(
        self,
        count: int,
        first: Sequence[Value],
        before: Sequence[Value],
        after: Sequence[Value],
        kept: Sequence[Value],
    ) -> Repeated | None:
        """Repeat the formulas created since `before_iterations` `count` times, at least once.

        The plan is as long for any number of runs. None where the backend cannot do so.

        Args:
            count: How many runs there are.
            first: The states before the first run.
            before: The states before a run, from `before_iterations`.
            after: Those after it, in the same order.
            kept: What each run yields besides.
        """
        return None

    def steps(self, count: int) -> Iterator[int]:
        """The numbers of a layer's time steps, each of which makes tensors.

        After the first, a layer is refused whose steps need more tensors than a plan may have.
        """
        return iter(range(count))

    @property
    def version(self) -> int:
        """The opset version under which the layer is read."""
        return self.layer.version

    @property
    def is_sampled(self) -> bool:
        """Whether anything is known of the layer's tensors at other input shapes."""
        return True

    def error(self, message: str, has: Sequence[int] = (), needs: Sequence[int] = ()) -> NoReturn:
        """Raise a `ShapeError` that names the layer.

        `has` are sizes that do not fit and `needs` such as would, as far as the layer can tell: that helps to
        find sizes for a model's dynamic dimensions.
        """
        error = ShapeError(f"{self.layer}: {message}")
        error.size_conflicts = tuple((a, b) for a, b in zip(has, needs, strict=False) if a != b)
        raise error

    def one_of(self, name: str, value: object, known: Collection[object]) -> None:
        """Refuse the layer unless an attribute has one of the known values."""
        if value not in known:
            self.error(f"{name} is {value!r}; one of {', '.join(map(str, known))}")

    def axis(self, axis: int, rank: int) -> int:
        """A possibly negative axis as 0..rank-1."""
        if not -rank <= axis < max(rank, 1):
            self.error(f"axis {axis} is outside a tensor of rank {rank}")
        return axis % rank if rank else 0

    def ints(self, x: Value) -> list[int]:
        """The elements of a known integer tensor (an input declared as read on the host)."""
        if x.size == 0:
            return []
        assert x.known is not None, f"{x.name} is read on the host without being declared so"
        return [whole(v) for v in np.asarray(x.known).reshape(-1)]

    def check_table(self, *shape: int) -> None:
        """Raise `OutOfMemoryError` if the host would compute too large a table."""
        if prod(shape) > MOST_ON_HOST:
            sizes = " x ".join(f"{n:,}" for n in shape)
            raise OutOfMemoryError(
                f"{self.layer}: it needs a table of {sizes} numbers, and the host computes "
                f"{MOST_ON_HOST:,} at most; give it smaller sizes"
            )

    # Shapes that every family needs

    def broadcast_shape(self, *values: Value) -> tuple[int, ...]:
        """The common shape of tensors under NumPy's (and ONNX's) broadcasting rule."""
        return self.broadcast(*(v.shape for v in values))

    def broadcast(self, *shapes: Sequence[int]) -> tuple[int, ...]:
        """The common shape under broadcasting, for bare shapes."""
        rank = max(map(len, shapes), default=0)
        out = []
        for axis in range(rank):
            sizes = _without_ones(s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0)
            if len(sizes) > 1:
                some = sorted(sizes)
                shown = " and ".join(str(tuple(s)) for s in shapes)
                self.error(f"cannot broadcast shapes {shown} together", some, [1, *some[:-1]])
            out.append(sizes[0] if sizes else 1)
        return tuple(out)

    def elementwise(self, formula: Formula, *values: Value, dtype: np.dtype | None = None) -> Value:
        """`formula` of one element of each tensor, broadcast; dtype defaults to the first tensor's."""
        shape = self.broadcast_shape(*values)
        dtype = values[0].dtype if dtype is None else np.dtype(dtype)
        rank = len(shape)
        signature = broadcast_signature(rank, values)
        groups, strides = merge_axes(shape, signature, values, self.is_sampled)

        def body(*indices: Expr) -> Expr:
            loads = []
            for value, steps in zip(values, strides, strict=True):
                position = FLAT if steps is None else lit(0)
                for i, step in zip(indices, steps or (), strict=steps is not None):
                    position = position + i * step
                loads.append(load(value, position))
            return formula(*loads)

        return self.compute(shape, dtype, body, groups=groups, elementwise=True)


def broadcast_signature(rank: int, values: Sequence[Value]) -> Signature | None:
    """The signature of broadcast tensors, or None if one has none."""
    columns: list[tuple[int, ...]] = []
    if any(v.signature is None for v in values):
        return None
    for axis in range(rank):
        dims = [
            v.signature[axis - rank + v.rank] for v in values if v.signature and axis - rank + v.rank >= 0
        ]
        width = max(map(len, dims))
        if any(len(d) != width for d in dims):
            return None
        columns.append(tuple(next(iter(_without_ones(sizes)), 1) for sizes in zip(*dims, strict=True)))
    return tuple(columns)


def _without_ones(sizes: Iterable[int]) -> list[int]:
    """The different sizes that are not 1. An open one without others is not compared with 1."""
    given: list[Any] = [*sizes]
    opened = {size.name: size for size in given if isinstance(size, Size)}
    found = dict.fromkeys(size for size in given if not isinstance(size, Size) and size != 1)
    if not opened:
        return [*found]
    left: list[Any] = [*found, *opened.values()]
    if len(left) == 1:
        return left
    apart: list[int] = []
    for size in left:
        if size != 1 and all(size != other for other in apart):
            apart.append(size)
    return apart


def axis_groups(kinds: Sequence[object]) -> Groups:
    """Neighbouring axes of one kind as one group; an axis whose kind is None is on its own."""
    runs = groupby(range(len(kinds)), lambda axis: axis if kinds[axis] is None else (kinds[axis],))
    return tuple(tuple(axes) for _, axes in runs)


def merge_axes(
    shape: tuple[int, ...], signature: Signature | None, values: Sequence[Value], is_sampled: bool = True
) -> tuple[Groups, list[list[Expr] | None]]:
    """Walk as one the neighbouring axes along which every tensor moves, or none does.

    Returns the groups and, per tensor, None where it is read in the output's own order, else its step
    along each group: a literal 0 or 1 where the model's symbolic shapes fix it, else a run-time argument
    (0 included, where only the run knows whether the axis is broadcast).
    """
    rank = len(shape)

    def pattern(value: Value, axis: int) -> str:
        own = axis - rank + value.rank
        if own < 0:
            return "stay"
        if value.always_one(own):
            return "stay"
        if signature is None or value.signature is None:
            # Of an axis along which a tensor moves now, it is taken to do so at other input shapes.
            return "ask" if is_sampled or value.shape[own] != shape[axis] else "move"
        if value.signature[own] == signature[axis]:
            return "move"
        return "ask"

    groups: list[list[int]] = []
    patterns: list[tuple[str, ...]] = []
    for axis in range(rank):
        if signature is not None and all(size == 1 for size in signature[axis]):
            continue
        here = tuple(pattern(v, axis) for v in values)
        if patterns and patterns[-1] == here and "ask" not in here:
            groups[-1] = [*range(groups[-1][0], axis + 1)]
        else:
            groups.append([axis])
            patterns.append(here)
    if not groups:
        groups, patterns = [[*range(rank)]], [("move",) * len(values)]
    strides: list[list[Expr] | None] = []
    for column, value in enumerate(values):
        moves = [p[column] for p in patterns]
        if all(m == "move" for m in moves):
            strides.append(None)
            continue
        steps: list[Expr] = []
        for group, move in zip(groups, moves, strict=True):
            last = group[-1] - rank + value.rank
            if move == "stay":
                steps.append(lit(0))
            elif move == "move" and all(value.always_one(a) for a in range(last + 1, value.rank)):
                steps.append(lit(1))
            else:
                steps.append(arg(0 if move == "ask" and value.shape[last] == 1 else value.stride(last)))
        strides.append(steps)
    return tuple(tuple(g) for g in groups), strides
