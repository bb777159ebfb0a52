"""Steps built by hand, plans made of them, and what NumPy says that they yield."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from engine.backends.opencl import OpenCLBackend
from engine.backends.opencl.backend import CLProgram
from engine.backends.opencl.memory import CLBuffer
from engine.compiler.plan import BufferSpec, Compute, Plan, Tuner
from engine.kernels.expr import Expr, arg, index, lit, load, reduce
from engine.kernels.hint import Hint
from engine.kernels.value import Value

FLOAT32 = np.dtype(np.float32)


def tensor(name: str, array: np.ndarray, known: bool = False) -> Value:
    return Value(name, array.shape, array.dtype, known=array if known else None)


def conv_step(
    x: Value,
    w: Value,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    ends: Sequence[int],
    group: int,
) -> Compute:
    """A convolution as its operator writes it; `pads` and `ends` are the padding before and after."""
    rank = x.rank - 2
    out = tuple(
        (n + p + e - (k - 1) * d - 1) // s + 1
        for n, k, s, d, p, e in zip(x.shape[2:], w.shape[2:], strides, dilations, pads, ends, strict=True)
    )
    per_group = w.shape[0] // group

    def tap(indices: list[Expr]) -> Expr:
        channel, *found = indices
        if len(found) < rank:
            extent = w.shape[2 + len(found)]
            return reduce("sum", extent, lambda r: tap([*indices, r]))
        sources = [index(2 + i) * strides[i] + found[i] * dilations[i] - pads[i] for i in range(rank)]
        inside = lit(True, "bool")
        for i, source in enumerate(sources):
            inside = inside & (source >= lit(0)) & (source < arg(x.shape[2 + i]))
        first = (index(1) // arg(per_group)) * arg(w.shape[1])
        return x.load_where(inside, (index(0), first + channel, *sources)) * w[(index(1), channel, *found)]

    body = reduce("sum", w.shape[1], lambda c: tap([c]))
    shape = (x.shape[0], w.shape[0], *out)
    facts = {"strides": tuple(strides), "dilations": tuple(dilations), "pads": tuple(pads), "group": group}
    return Compute(Value("y", shape, FLOAT32), shape, body, "conv", "Conv", Hint("conv", (x, w), facts))


def matmul_step(
    a: Value,
    b: Value,
    sizes: tuple[int, int, int, int],
    a_strides: tuple[int, int, int],
    b_strides: tuple[int, int, int],
) -> Compute:
    """A strided product of `sizes` (batch, m, n, k)."""
    batch, m, n, depth = sizes

    def term(r: Expr) -> Expr:
        left = index(0) * arg(a_strides[0]) + index(1) * arg(a_strides[1]) + r * arg(a_strides[2])
        right = index(0) * arg(b_strides[0]) + r * arg(b_strides[1]) + index(2) * arg(b_strides[2])
        return load(a, left) * load(b, right)

    facts = {"m": m, "n": n, "k": depth, "batch": batch, "a_strides": a_strides, "b_strides": b_strides}
    shape = (batch, m, n)
    return Compute(
        Value("y", shape, FLOAT32),
        shape,
        reduce("sum", depth, term),
        "product",
        "MatMul",
        Hint("matmul", (a, b), facts),
    )


def pool_step(
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
    facts = {
        "kind": kind, "kernel": tuple(kernel), "strides": tuple(strides), "dilations": tuple(dilations),
        "pads": tuple(pads), "ends": tuple(ends), "include_pad": include_pad,
    }  # fmt: skip
    shape = (*x.shape[:2], *out)
    body = lit(0.0, "float32")
    return Compute(Value("y", shape, FLOAT32), shape, body, "pool", "Pool", Hint("pool", (x,), facts))


def plan_of(
    backend: OpenCLBackend, computes: Sequence[Compute], inputs: Mapping[str, Value], tuned: bool
) -> Plan:
    """A plan whose outputs are what no step reads."""
    plan = Plan()

    def constant(name: str, make: Any) -> str:
        array = make()
        plan.constants[name] = array
        plan.buffers[name] = BufferSpec(name, array.size, array.dtype, "constant")
        return name

    def temporary(elements: int, dtype: np.dtype) -> str:
        name = f"scratch{len(plan.buffers)}"
        plan.buffers[name] = BufferSpec(name, elements, np.dtype(dtype), "temporary")
        return name

    for value in inputs.values():
        plan.buffers[value.name] = BufferSpec(value.name, value.size, value.dtype, "input")
    for compute in computes:
        tuner = Tuner(compute, constant, temporary)
        if tuned:
            assert backend.tune(compute, tuner), "no tuned kernel"
            plan.steps.extend(tuner.steps)
        else:
            plan.steps.append(compute.numbered())
        output = compute.output
        plan.buffers[output.name] = BufferSpec(output.name, output.size, output.dtype, "temporary")
    read = {name for step in plan.steps for name in step.inputs}
    for name, spec in plan.buffers.items():
        if spec.role == "temporary" and name not in read:
            plan.buffers[name] = BufferSpec(name, spec.elements, spec.dtype, "output")
    return plan


class Recorded:
    """A plan recorded on a backend, with its buffers."""

    def __init__(self, backend: OpenCLBackend, plan: Plan, arrays: Mapping[str, np.ndarray]) -> None:
        self.backend = backend
        self.buffers: dict[str, CLBuffer] = {}
        for name, spec in plan.buffers.items():
            if spec.role != "temporary":
                data = plan.constants.get(name, arrays.get(name))
                self.buffers[name] = backend.create(spec.elements, spec.dtype, data)
        self.compiled = backend.prepare(step.kernel for step in plan.steps)
        self.program: CLProgram = backend.record(plan, self.buffers)

    def run(self, output: str = "y") -> np.ndarray:
        self.backend.run(self.program)
        result = self.backend.readback(self.buffers[output])
        result.wait()
        return result.array()


def run_steps(
    backend: OpenCLBackend,
    computes: Sequence[Compute],
    arrays: Mapping[str, np.ndarray],
    tuned: bool,
) -> np.ndarray:
    """Run once and read `y`."""
    inputs = {name: Value(name, a.shape, a.dtype) for name, a in arrays.items()}
    recorded = Recorded(backend, plan_of(backend, computes, inputs, tuned), arrays)
    result = recorded.run()
    recorded.program.release()
    return result


def pool_by_numpy(
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


def conv_by_numpy(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    ends: Sequence[int],
    group: int,
) -> np.ndarray:
    """The same convolution as one matrix product per tap, in float64."""
    padding = [(0, 0), (0, 0), *zip(pads, ends, strict=True)]
    wide = np.pad(x.astype(np.float64), padding)
    out = tuple(
        (n - (k - 1) * d - 1) // s + 1
        for n, k, s, d in zip(wide.shape[2:], w.shape[2:], strides, dilations, strict=True)
    )
    per_group, channels = w.shape[0] // group, w.shape[1]
    y = np.zeros((x.shape[0], w.shape[0], prod(out)))
    for tap in np.ndindex(*w.shape[2:]):
        window = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip(tap, dilations, out, strides, strict=True)
        )
        seen = wide[(slice(None), slice(None), *window)].reshape(x.shape[0], x.shape[1], -1)
        for g in range(group):
            rows = slice(g * per_group, (g + 1) * per_group)
            weights = w[(rows, slice(None), *tap)].astype(np.float64)
            y[:, rows] += weights @ seen[:, g * channels : (g + 1) * channels]
    return y.reshape(x.shape[0], w.shape[0], *out)
