"""Builders: turn an operator's formulas into shapes, known elements or steps of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from engine.base.dtypes import INT64, TEXT, arithmetic_type
from engine.base.memory.out_of_memory import MOST_BYTES, out_of_memory
from engine.compiler.fusion import fuse_elementwise
from engine.compiler.plan import Compute
from engine.compiler.plan_memo import PlanMemo
from engine.compiler.repeated_steps import align_up, repeat_of, with_numbers_of_runs
from engine.graph.model import Layer
from engine.kernels.evaluate import TooLongError, evaluate
from engine.kernels.evaluate_sizes import evaluate_few, evaluate_sizes, holds_sizes
from engine.kernels.expr import (
    FLOATS,
    LOOPS,
    UNARY,
    Expr,
    IterationNumber,
    cast,
    index,
    iteration_number,
    nodes,
)
from engine.kernels.hint import Hint
from engine.kernels.kernel import kernel_call
from engine.kernels.size import has_sizes, numbers_in
from engine.kernels.value import HostTable, Signature, Value
from engine.operators.builder import FAN_IN, Builder, Formula, Groups, Part, Repeated

FOLD_LIMIT = 1 << 22
"""Largest tensor, in elements, evaluated ahead of time; a shape has a few, a weight up to millions."""

FOLD_WORK = 1 << 27
"""Turns of a formula's loops, times elements, that are evaluated ahead of time: about a second."""

ROUNDED = (UNARY | {"div", "rem", "pow"}) - set("neg abs floor ceil round trunc sign not bitnot".split())
"""Operations on floats whose last digits differ between kernels and NumPy."""

MOST_AXES = 64
"""Axes of a tensor: NumPy's arrays, in which results arrive, have no more."""

MOST_MADE = 1 << 16
"""The most tensors that layers make in one plan.

Loops and recurrent layers make some for each of their steps, and a file or an input may ask for any number of
these: planning ends here, after seconds and some hundred MB.
"""

MOST_KNOWN = 1 << 28
"""Bytes that the host works out while it plans the runs of loops, all of which may be needed at once."""

ADVICE = "give a smaller trip count, or shorter sequences"
"""What helps where a plan is too long."""

Shapes = list[tuple[int, ...]]
"""The shapes of everything that one layer makes, in order."""


def space_of(shape: Sequence[int], groups: Groups | None) -> tuple[int, ...]:
    """The index space of an output: its shape, or the products over its groups of axes; never empty."""
    if groups is not None:
        return tuple(prod(shape[a] for a in group) for group in groups) or (1,)
    return tuple(shape) or (1,)


def extents_of(value: Value, groups: Groups | None) -> Signature | None:
    """The signature of an output's index space."""
    if value.signature is None:
        return None
    runs = groups if groups is not None else tuple((a,) for a in range(value.rank))
    signature = value.signature
    return tuple(
        signature[run[0]]
        if len(run) == 1
        else tuple(map(prod, zip(*(signature[a] for a in run), strict=True)))
        for run in runs
    )


class ShapeBuilder(Builder):
    """Computes shapes, and elements if every input of the layer is known. Creates no kernels."""

    fold_limit = FOLD_LIMIT
    phase = ""
    """Which step of the layer it is for."""

    def __init__(
        self,
        layer: Layer,
        foldable: bool,
        wanted: Sequence[bool],
        fan_in: int = FAN_IN,
        path: str = "",
        look_up: Callable[[Value], np.ndarray | None] | None = None,
        count: Value | None = None,
    ) -> None:
        """`path` distinguishes the layer's repetitions, `look_up` knows what was learned of tensors since
        they were made, `count` is what `schedule_count` gives.
        """
        self.layer = layer
        self.path = path
        self.foldable = foldable
        self.wanted = wanted
        self.fan_in = fan_in
        self.look_up = look_up
        self.count = count
        self.shapes: Shapes = []
        self.most = MOST_MADE
        """How many tensors the layer may make."""
        self.most_known: int | None = None
        """How many bytes the host may work out for the layer; None where it is no part of a loop."""
        self.known_bytes = 0
        self.yields_nothing = False
        self.runs: list[int] = []
        """How many runs the layer has, where it has any."""

    def made(self, shape: tuple[int, ...]) -> None:
        """Record the shape of a tensor that the layer creates."""
        if len(shape) > MOST_AXES:
            self.error(f"its output would have {len(shape):,} axes; a tensor has {MOST_AXES} at most")
        self.shapes.append(shape)
        if len(self.shapes) > self.most:
            self.error(
                f"the plan needs more than {MOST_MADE:,} tensors, as each run of a loop and each step of"
                f" a recurrent layer makes some; {ADVICE}"
            )

    def steps(self, count: int) -> Iterator[int]:
        before = len(self.shapes)
        for step in range(count):
            yield step
            if not step and (made := len(self.shapes) - before) * count > self.most - before:
                self.error(
                    f"its {count:,} steps need more than {MOST_MADE:,} tensors in the plan, as each makes"
                    f" {made}; {ADVICE}"
                )

    def varies(self, runs: int) -> bool:
        self.runs.append(runs)
        return False

    def before_iterations(self, states: Sequence[Value]) -> tuple[Value, ...] | None:
        return tuple([self._own(s) for s in states]) if "loop" in self.whole_layers else None

    def _own(self, state: Value) -> Value:
        """A tensor that only the runs of a repeat write."""
        self.made(state.shape)
        name = f"{self.layer.name}{self.path} #{len(self.shapes)} before"
        return self.tensor(name, state.shape, state.dtype)

    def repeated(
        self,
        count: int,
        first: Sequence[Value],
        before: Sequence[Value],
        after: Sequence[Value],
        kept: Sequence[Value],
    ) -> Repeated | None:
        fits = all(a.size == b.size and a.dtype == b.dtype for a, b in zip(before, after, strict=True))
        if not fits or any(v.known is not None for v in after) or not all(v.size for v in (*after, *kept)):
            return None
        ends: dict[np.dtype, int] = {}

        def place(value: Value, times: int) -> int:
            start = ends.get(value.dtype, 0)
            ends[value.dtype] = start + times * align_up(value.size)
            return start

        starts = [place(v, count) for v in kept], [place(v, 1) for v in before]
        outputs: dict[np.dtype, Value] = {}
        for dtype, end in ends.items():
            kind = arithmetic_type(dtype)
            outputs[dtype] = self.compute((end,), dtype, lambda i, kind=kind: cast(iteration_number(), kind))
        made = Repeated(
            tuple(Part(outputs[v.dtype], s, align_up(v.size)) for v, s in zip(kept, starts[0], strict=True)),
            tuple(Part(outputs[v.dtype], s) for v, s in zip(before, starts[1], strict=True)),
        )
        states = list(zip(before, after, strict=True))
        return made if self.repeats(made, [*outputs.values()], count, first, states, kept) else None

    def repeats(
        self,
        made: Repeated,
        outputs: Sequence[Value],
        count: int,
        first: Sequence[Value],
        states: Sequence[tuple[Value, Value]],
        kept: Sequence[Value],
    ) -> bool:
        """Let an iteration's formulas compute `outputs`, whose parts are in `made`; False if impossible."""
        return True

    def _know(self, nbytes: int) -> bool:
        """Count bytes of known elements; returns False beyond the plan's limit."""
        self.known_bytes += nbytes
        return self.most_known is None or self.known_bytes <= self.most_known

    def compute(
        self,
        shape: Sequence[int],
        dtype: np.dtype,
        formula: Formula,
        *,
        hint: object = None,
        groups: Groups | None = None,
        elementwise: bool = False,
    ) -> Value:
        value = self.tensor(f"{self.layer.name}{self.path} #{len(self.shapes)}", tuple(shape), dtype)
        if any(n < 0 for n in value.shape):
            self.error(f"its output would have the shape {value.shape}; the input is too small for it")
        if value.size * value.dtype.itemsize > MOST_BYTES:
            reason = "no computer has as much"
            raise out_of_memory(value.name, value.shape, value.dtype, "this computer", reason)
        self.made(value.shape)
        is_text = value.dtype == object
        # As many elements as a dynamic dimension says are computed by a kernel.
        if is_text or (self.foldable and not has_sizes(value.shape) and value.size <= self.fold_limit):
            self.fold(value, formula, groups)
        if is_text and value.known is None:
            self.error("its strings depend on numbers that are computed; strings live on the host")
        return value

    def tensor(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> Value:
        """Create a tensor."""
        return Value(name, shape, dtype)

    def fold(self, value: Value, formula: Formula, groups: Groups | None) -> None:
        """Evaluate now, if the formula reads nothing unknown."""
        space = space_of(value.shape, groups)
        body = formula(*(index(a) for a in range(len(groups if groups is not None else value.shape))))
        few = evaluate_few(body, space, value)
        if few is None and self.is_for_kernels(value, body):
            return
        if not self._know(value.size * value.dtype.itemsize):
            return
        if few is not None:
            value.known = few
            return
        kernel, values, inputs = kernel_call(body, len(space), value.dtype)
        if any(isinstance(x, IterationNumber) for x in values):
            return
        if all(v.known is not None for v in inputs):
            arrays = [v.known for v in inputs if v.known is not None]
            if has_sizes(values) or any(map(holds_sizes, inputs)):
                value.known = evaluate_sizes(kernel, space, values, arrays, value.shape)
                return
            try:
                value.known = evaluate(kernel, space, values, arrays, FOLD_WORK).reshape(value.shape)
            except TooLongError:
                pass  # a kernel computes it

    def is_for_kernels(self, value: Value, body: Expr) -> bool:
        """Whether a kernel computes a tensor even if all its inputs are known."""
        return False

    def alias(self, x: Value, shape: Sequence[int]) -> Value:
        self.made(tuple(shape))
        if prod(shape) != x.size:
            self.error(f"cannot view {list(x.shape)} as {list(shape)}", [x.size], [prod(shape)])
        return x.view(shape)

    def constant(self, array: np.ndarray) -> Value:
        self.made(array.shape)
        if not self._know(array.nbytes):
            self.error(
                f"the host would hold more than {MOST_KNOWN >> 20:,} MiB for the runs of loops; {ADVICE}"
            )
        name = f"{self.layer.name}{self.path} #{len(self.shapes)} known"
        dtype = INT64 if array.dtype == object and has_sizes(array.flat) else array.dtype
        return Value(name, array.shape, dtype, None, array)

    def table(self, count: int, dtype: np.dtype, function: Callable[..., np.ndarray], *args: Any) -> Value:
        if not has_sizes(numbers_in(args)):
            return self.constant(np.asarray(function(*args), dtype))
        self.made((count,))
        value = Value(f"{self.layer.name}{self.path} #{len(self.shapes)} table", (count,), dtype)
        value.table = HostTable(function, args)
        return value

    def schedule_count(self) -> Value:
        assert self.count is not None, f"{self.layer} draws numbers without being declared random"
        return self.count

    def elements(self, x: Value) -> np.ndarray | None:
        return x.known if x.known is not None or self.look_up is None else self.look_up(x)

    def absent(self) -> None:
        self.yields_nothing = True

    def wants(self, position: int) -> bool:
        return self.wanted[position] if position < len(self.wanted) else False


class PlanBuilder(ShapeBuilder):
    """Infers shapes and records formulas."""

    recorded: Sequence[Shapes] | None = None
    """What this layer made in each of the model's samples; None where the samples say nothing."""

    has_varying_runs = False
    """Whether the layer has not as many runs in all of the model's samples."""

    memo: PlanMemo | None = None
    """Where the tensors of earlier plans are, if the layer may make the same ones."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.computes: list[Compute] = []
        self.of_run: list[Compute] = []
        """What the layers of a body have made in a run that is to be repeated."""
        self._first = 0

    def varies(self, runs: int) -> bool:
        return self.has_varying_runs

    def before_iterations(self, states: Sequence[Value]) -> tuple[Value, ...] | None:
        self._first = len(self.computes)
        return super().before_iterations(states)

    def _own(self, state: Value) -> Value:
        value = super()._own(state)
        # Samples of few runs have made none, but what comes before the first run.
        value.signature = state.signature
        return value

    def repeats(
        self,
        made: Repeated,
        outputs: Sequence[Value],
        count: int,
        first: Sequence[Value],
        states: Sequence[tuple[Value, Value]],
        kept: Sequence[Value],
    ) -> bool:
        end = len(self.computes) - len(outputs)
        others, (whole, *besides) = self.computes[: self._first], self.computes[end:]
        self.computes = [*self.of_run, *self.computes[self._first : end]]
        states = self._own_states(states)
        wanted = [*(after for _, after in states), *kept]
        body = with_numbers_of_runs(fuse_elementwise(self.computes, wanted, self.fan_in), wanted)
        layer = self.layer.name, self.layer.op_type
        repeat = repeat_of(layer, outputs, count, first, states, body, kept, made)
        # Random numbers are drawn again in each run.
        if self.count is not None and any(self.count in c.reads for c in body):
            # Beyond what the samples have made: nothing is known of the tensors that follow.
            self.computes, self.recorded = others, None
            return False
        one = replace(whole, hint=Hint("loop", repeat.operands, {"repeat": repeat}))
        more = [replace(c, hint=Hint("loop_output", (whole.output,), {})) for c in besides]
        self.computes = [*others, one, *more]
        return True

    def _own_states(self, states: Sequence[tuple[Value, Value]]) -> list[tuple[Value, Value]]:
        """The states, each after a run in a tensor of its own that the run makes."""
        made = {c.output for c in self.computes}
        found = []
        for before, after in states:
            root = after.root
            if root in made:
                made.remove(root)
            else:
                root = self.compute(after.shape, after.dtype, lambda *i, after=after: after[i])
            found.append((before, root))
        return found

    def tensor(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> Value:
        if self.memo is None or self.foldable or np.dtype(dtype).kind == "O":
            return super().tensor(name, shape, dtype)
        return self.memo.tensor(name, shape, dtype)

    @property
    def is_sampled(self) -> bool:
        return self.recorded is not None

    def signature(self, shape: Sequence[int]) -> Signature | None:
        """The samples' shapes of the tensor being created, followed by its present shape."""
        if self.recorded is None:
            return None
        position = len(self.shapes) - 1
        if any(len(r) <= position or len(r[position]) != len(shape) for r in self.recorded):
            return None
        return tuple((*(r[position][axis] for r in self.recorded), size) for axis, size in enumerate(shape))

    def is_for_kernels(self, value: Value, body: Expr) -> bool:
        """Whether a kernel computes a tensor because its size varies and NumPy would round differently."""
        signature = self.signature(value.shape)
        varies = signature is None or any(size != sizes[0] for sizes in signature for size in sizes)
        return varies and any(
            node.dtype in FLOATS and (node.op in ROUNDED or node.op in LOOPS or node.op == "result")
            for node in nodes(body)
        )

    def compute(
        self,
        shape: Sequence[int],
        dtype: np.dtype,
        formula: Formula,
        *,
        hint: object = None,
        groups: Groups | None = None,
        elementwise: bool = False,
    ) -> Value:
        value = super().compute(shape, dtype, formula, groups=groups)
        value.signature = self.signature(value.shape)
        if value.known is not None or value.size == 0:
            return value
        space = space_of(value.shape, groups)
        body = formula(*(index(a) for a in range(len(groups if groups is not None else value.shape))))
        expected = arithmetic_type(value.dtype)
        if body.dtype != expected and not (expected == "int32" and body.dtype == "index"):
            raise TypeError(f"the formula yields {body.dtype}, its output needs {expected}: cast it")
        found = hint() if callable(hint) else None
        assert found is None or isinstance(found, Hint)
        compute = Compute(value, space, body, self.layer.name, self.layer.op_type, found)
        if any(v.dtype == TEXT for v in compute.reads):
            self.error("it computes with text; kernels take numbers")
        compute.extents = extents_of(value, groups)
        compute.elementwise = elementwise
        self.computes.append(compute)
        return value

    def alias(self, x: Value, shape: Sequence[int]) -> Value:
        view = super().alias(x, shape)
        view.signature = self.signature(view.shape)
        return view

    def constant(self, array: np.ndarray) -> Value:
        value = super().constant(array)
        value.signature = self.signature(value.shape)
        return value
