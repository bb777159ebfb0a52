"""Steps and plans made by hand, and the independent arithmetic that they are held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from engine.backends.base import Backend
from engine.compiler.plan import BufferSpec, Compute, Plan, Role, Tuner
from engine.kernels.expr import Expr, acc, arg, index, lit, load, maximum, nodes, reduce
from engine.kernels.hint import Hint
from engine.kernels.value import Value

F32 = np.dtype(np.float32)
Arrays = Mapping[str, np.ndarray]


def value(name: str, array: np.ndarray, known: bool = False, static: bool = True) -> Value:
    """A tensor whose dimensions are the same for every input shape, or none of them."""
    signature = tuple((n, n if static else n + 1) for n in array.shape)
    return Value(name, array.shape, array.dtype, signature, array if known else None)


def biased(bias: Value, axis: int) -> Expr:
    """Bias and rectifier."""
    return maximum(acc("float32") + bias[index(axis)], lit(0.0, "float32"))


def conv_compute(
    x: Value,
    w: Value,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    ends: Sequence[int],
    group: int,
    bias: Value | None = None,
) -> Compute:
    """A convolution as its operator writes it."""
    rank = x.rank - 2
    out = tuple(
        (n + p + e - (k - 1) * d - 1) // s + 1
        for n, k, s, d, p, e in zip(x.shape[2:], w.shape[2:], strides, dilations, pads, ends, strict=True)
    )
    per_group = w.shape[0] // group

    def taps(found: list[Expr], channel: Expr) -> Expr:
        if len(found) < rank:
            return reduce("sum", w.shape[2 + len(found)], lambda r: taps([*found, r], channel))
        at = [index(2 + k) * strides[k] + found[k] * dilations[k] - pads[k] for k in range(rank)]
        inside = lit(True, "bool")
        for k, position in enumerate(at):
            inside = inside & (position >= lit(0)) & (position < x.dim(2 + k))
        first = (index(1) // arg(per_group)) * w.shape[1]
        return x.load_where(inside, (index(0), first + channel, *at)) * w[(index(1), channel, *found)]

    body = reduce("sum", w.shape[1], lambda c: taps([], c))
    shape = (x.shape[0], w.shape[0], *out)
    attributes = {
        "strides": tuple(strides),
        "dilations": tuple(dilations),
        "pads": tuple(pads),
        "group": group,
    }
    epilogue = None if bias is None else biased(bias, 1)
    hint = Hint("conv", (x, w), attributes)
    return Compute(Value("y", shape, F32), shape, body, "layer", "Conv", hint, epilogue)


def conv_expected(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    ends: Sequence[int],
    group: int,
) -> np.ndarray:
    """The same in float64, by sliding windows over a padded array."""
    rank = x.ndim - 2
    axes = tuple(range(2, 2 + rank))
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(pads, ends, strict=True)])
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    windows = sliding_window_view(padded, spans, axes)
    steps = (slice(None), slice(None), *(slice(None, None, s) for s in strides))
    windows = windows[(*steps, *(slice(None, None, d) for d in dilations))]
    n, m = x.shape[0], w.shape[0]
    out = windows.shape[2 : 2 + rank]
    taps = windows.reshape(n, group, w.shape[1], *out, *w.shape[2:])
    weights = w.astype(np.float64).reshape(group, m // group, *w.shape[1:])
    letters = "yxz"[:rank]
    kernel = "uvw"[:rank]
    sums = np.einsum(f"ngc{letters}{kernel},gmc{kernel}->ngm{letters}", taps, weights)
    return sums.reshape(n, m, *out)


def matmul_compute(
    a: Value,
    b: Value,
    sizes: tuple[int, int, int, int],
    a_strides: tuple[int, int, int],
    b_strides: tuple[int, int, int],
    bias: Value | None = None,
) -> Compute:
    """A strided product of `sizes` (batch, m, n, k)."""
    batch, m, n, k = sizes

    def term(r: Expr) -> Expr:
        left = index(0) * arg(a_strides[0]) + index(1) * arg(a_strides[1]) + r * arg(a_strides[2])
        right = index(0) * arg(b_strides[0]) + r * arg(b_strides[1]) + index(2) * arg(b_strides[2])
        return load(a, left) * load(b, right)

    attributes = {"m": m, "n": n, "k": k, "batch": batch, "a_strides": a_strides, "b_strides": b_strides}
    epilogue = None if bias is None else biased(bias, 2)
    shape = (batch, m, n)
    hint = Hint("matmul", (a, b), attributes)
    body = reduce("sum", k, term)
    return Compute(Value("y", shape, F32), shape, body, "layer", "MatMul", hint, epilogue)


def pool_compute(
    x: Value,
    kind: str,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    ends: Sequence[int],
    out: Sequence[int],
    include_pad: bool = False,
) -> Compute:
    """Pooling with `out` windows along each axis; only its hint matters, the formula is left empty."""
    attributes = {
        "kind": kind, "kernel": tuple(kernel), "strides": tuple(strides), "dilations": tuple(dilations),
        "pads": tuple(pads), "ends": tuple(ends), "include_pad": include_pad,
    }  # fmt: skip
    shape = (*x.shape[:2], *out)
    body = lit(0.0, "float32")
    return Compute(Value("y", shape, F32), shape, body, "pool", "Pool", Hint("pool", (x,), attributes))


def pool_expected(
    x: np.ndarray,
    kind: str,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    ends: Sequence[int],
    out: Sequence[int],
    include_pad: bool = False,
) -> np.ndarray:
    """Pooling window by window."""
    y = np.zeros((*x.shape[:2], *out))
    sizes = x.shape[2:]
    for at in np.ndindex(*out):
        values, counted = [], 0
        for tap in np.ndindex(*kernel):
            i = [a * s + t * d - p for a, s, t, d, p in zip(at, strides, tap, dilations, pads, strict=True)]
            margins = [(p, e) if include_pad else (0, 0) for p, e in zip(pads, ends, strict=True)]
            counted += all(-p <= k < n + e for k, n, (p, e) in zip(i, sizes, margins, strict=True))
            if all(0 <= k < n for k, n in zip(i, sizes, strict=True)):
                values.append(x[(slice(None), slice(None), *i)])
        y[(slice(None), slice(None), *at)] = (
            np.max(values, 0) if kind == "max" else np.sum(values, 0) / counted
        )
    return y


def step(name: str, source: Value, formula: Expr, size: int | None = None) -> Compute:
    """One generic step over `size` elements, by default as many as the source has."""
    n = source.size if size is None else size
    return Compute(Value(name, (n,), F32), (n,), formula, name, "Test")


def chain(source: Value, length: int) -> list[Compute]:
    """y = 2 * (... 2 * (x + 1) + 1 ...), one step at a time."""
    computes: list[Compute] = []
    for k in range(length):
        previous = computes[-1].output if computes else source
        name = "y" if k == length - 1 else f"t{k}"
        computes.append(step(name, previous, (previous[index(0)] + 1.0) * 2.0))
    return computes


def chain_expected(x: np.ndarray, length: int) -> np.ndarray:
    for _ in range(length):
        x = (x + 1) * 2
    return x


def tuned_plan(backend: Backend, compute: Compute, producer: Compute | None = None) -> Plan:
    """The plan that the backend's rule emits; fails if there is no rule for the step.

    producer: what computes the tensor that the step alone reads.
    """
    plan = Plan()

    def constant(name: str, make: Callable[[], np.ndarray]) -> str:
        array = make()
        plan.constants[name] = array
        plan.buffers[name] = BufferSpec(name, array.size, array.dtype, "constant")
        return name

    def temporary(elements: int, dtype: np.dtype) -> str:
        name = f"scratch{len(plan.buffers)}"
        plan.buffers[name] = BufferSpec(name, elements, np.dtype(dtype), "temporary")
        return name

    tuner = Tuner(compute, constant, temporary, producer=producer)
    assert backend.tune(compute, tuner), "no rule took the step"
    plan.steps = tuner.steps
    return plan


def chain_plan(computes: Sequence[Compute], outputs: Sequence[str] = ("y",)) -> Plan:
    """Generic steps in order; what no step makes is an input, what is not in `outputs` a temporary."""
    plan = Plan([c.as_step() for c in computes])
    made: set[str] = set()
    for compute in computes:
        for source in {node.attr for node in nodes(compute.formula()) if node.op == "load"}:
            if source.name not in made:
                plan.buffers[source.name] = BufferSpec(source.name, source.size, source.dtype, "input")
        out = compute.output
        role: Role = "output" if out.name in outputs else "temporary"
        plan.buffers[out.name] = BufferSpec(out.name, out.size, out.dtype, role)
        made.add(out.name)
    return plan


class Bound:
    """A recorded plan with its buffers."""

    def __init__(self, backend: Backend, plan: Plan, arrays: Arrays, outputs: Mapping[str, Value]) -> None:
        self.backend = backend
        arrays = {**arrays, **plan.constants}
        used = {name for step in plan.steps for name in step.inputs} & set(arrays)
        for name in used - set(plan.buffers):
            plan.buffers[name] = BufferSpec(name, arrays[name].size, arrays[name].dtype, "input")
        self.buffers: dict[str, Any] = {}
        for name in used:
            self.buffers[name] = backend.create(arrays[name].size, arrays[name].dtype, arrays[name])
        for name, v in outputs.items():
            plan.buffers[name] = BufferSpec(name, v.size, v.dtype, "output")
            # Garbage at first: what a kernel forgets to write shows.
            fill = np.full(v.size, 77).astype(v.dtype)
            self.buffers[name] = backend.create(v.size, v.dtype, fill)
        # A program of the backend's own kind: tests look into it.
        self.program: Any = backend.record(plan, self.buffers)

    def run(self) -> None:
        self.backend.run(self.program)

    def result(self, name: str = "y") -> np.ndarray:
        readback = self.backend.readback(self.buffers[name])
        readback.wait()
        return readback.array()

    def release(self) -> None:
        self.program.release()
        for buffer in self.buffers.values():
            buffer.release()


def result_of(backend: Backend, plan: Plan, arrays: Arrays, output: Value) -> np.ndarray:
    """Run once and read the output, in its shape."""
    bound = Bound(backend, plan, arrays, {output.name: output})
    bound.run()
    result = bound.result(output.name).reshape(output.shape)
    bound.release()
    return result


def bound_chain(backend: Backend, n: int, length: int) -> tuple[np.ndarray, Bound]:
    """A chain of so many steps over 0..n-1, and its input."""
    x = np.arange(n, dtype=np.float32)
    computes = chain(value("x", x), length)
    return x, Bound(backend, chain_plan(computes), {"x": x}, {"y": computes[-1].output})
