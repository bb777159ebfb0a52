"""Formulas with hints, made by hand, and how a test runs one through its tuned kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.compiler.plan import BufferSpec, Compute, Plan
from engine.kernels.evaluate import evaluate
from engine.kernels.expr import FLAT, Expr, acc, arg, cast, index, lit, load, maximum, reduce, unary
from engine.kernels.hint import Hint
from engine.kernels.kernel import kernel_call
from engine.kernels.value import Value
from tests.engine.backends import steps
from tests.engine.backends.steps import F32

Epilogue = Callable[[Value], Expr]


class Case:
    """A formula and the arrays that it reads."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.arrays: dict[str, np.ndarray] = {}
        self.compute: Compute | None = None

    def value(self, name: str, shape: Sequence[int], known: bool = False, scale: float = 1.0) -> Value:
        """A tensor of random numbers."""
        array = (self.rng.standard_normal(tuple(shape)) * scale).astype(np.float32)
        self.arrays[name] = array
        return Value(name, shape, F32, None, array if known else None)

    def finish(
        self, shape: Sequence[int], body: Expr, hint: Hint, epilogue: str | None, dtype: np.dtype = F32
    ) -> Case:
        """Set the formula, with one of the epilogues by name."""
        output = Value("y", shape, dtype)
        tail = None if epilogue is None else self.epilogue(epilogue, shape)
        self.compute = Compute(output, tuple(shape), body, "layer", hint.kind, hint, tail)
        return self

    def epilogue(self, name: str, shape: Sequence[int]) -> Expr:
        """bias: per channel, and relu. residual: the same tensor shape. position: per spatial position, as
        int8. all: an activation with a run-time argument on top of a sum.
        """
        last = len(shape) - 1
        bias_axis = last if name.startswith("column") else 1
        bias = self.value("bias", (shape[bias_axis],), known=True)
        if name.endswith("bias"):
            return maximum(acc("float32") + load(bias, index(bias_axis)), 0.0)
        if name == "residual":
            other = self.value("other", shape)
            return unary("tanh", acc("float32") * arg(0.5, "float32") + other.at(FLAT))
        assert name == "position"
        place = self.value("place", shape[2:])
        where = [index(axis) for axis in range(2, len(shape))]
        return cast((acc("float32") + place[tuple(where)]) * 3.0, "int32")

    def expected(self) -> np.ndarray:
        """What NumPy makes of the formula."""
        assert self.compute is not None
        kernel, values, inputs = kernel_call(
            self.compute.formula(), len(self.compute.space), self.compute.output.dtype
        )
        return evaluate(kernel, self.compute.space, values, [self.arrays[v.name] for v in inputs])


def tuned_plan(backend: CPUBackend, case: Case) -> Plan:
    """The plan that the backend's rule emits; fails if there is no rule for the case."""
    compute = case.compute
    assert compute is not None
    plan = steps.tuned_plan(backend, compute)
    assert all(isinstance(step.kernel, NativeKernel) for step in plan.steps)
    for name, array in case.arrays.items():
        plan.buffers[name] = BufferSpec(name, array.size, array.dtype, "input")
    output = compute.output
    plan.buffers["y"] = BufferSpec("y", output.size, output.dtype, "output")
    return plan


def run_tuned(backend: CPUBackend, case: Case) -> np.ndarray:
    """The output of the tuned kernels, 1-D. The output buffer starts as garbage, and its end is watched."""
    plan = tuned_plan(backend, case)
    arrays = {**case.arrays, **plan.constants}
    buffers: dict[str, Any] = {n: backend.create(a.size, a.dtype, a) for n, a in arrays.items()}
    assert case.compute is not None
    output = case.compute.output
    watched = backend.create(output.size + 64, output.dtype, np.full(output.size + 64, 77))
    buffers["y"] = watched
    backend.run(backend.record(plan, buffers))
    readback = backend.readback(watched)
    readback.wait()
    result = readback.array()
    np.testing.assert_array_equal(result[output.size :], np.full(64, 77, output.dtype))
    return result[: output.size]


def check(backend: CPUBackend, case: Case, tolerance: float = 1e-5) -> None:
    """Tuned and evaluated results agree; integers may differ by one where a float lies on the edge."""
    got, expected = run_tuned(backend, case).astype(np.float64), case.expected().astype(np.float64)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected))
    np.testing.assert_array_equal(got[~np.isfinite(got)], expected[~np.isfinite(got)])
    got, expected = got[np.isfinite(got)], expected[np.isfinite(expected)]
    assert case.compute is not None
    edge = 1.0 if case.compute.output.dtype.kind == "i" else 0.0
    error = np.abs(got - expected)
    scale = max(1.0, float(np.abs(expected).max()))
    assert error.max() <= tolerance * scale + edge, (
        f"off by {error.max()} at {error.argmax()} of {error.size}"
    )
    assert (error > tolerance * scale).mean() < 0.01


def matmul_case(
    seed: int, batch: int, m: int, n: int, k: int, *, known: bool, a_shared: bool = False,
    b_shared: bool = False, trans_a: bool = False, trans_b: bool = False, epilogue: str | None = None,
) -> Case:  # fmt: skip
    """A (batched) product, either side transposed in memory or shared by the batch."""
    case = Case(seed)
    a = case.value("a", (1 if a_shared else batch, *((k, m) if trans_a else (m, k))))
    b = case.value("b", (1 if b_shared else batch, *((n, k) if trans_b else (k, n))), known, 1 / np.sqrt(k))
    a_strides = (0 if a_shared else m * k, *((1, m) if trans_a else (k, 1)))
    b_strides = (0 if b_shared else k * n, *((1, k) if trans_b else (n, 1)))
    row = index(0) * arg(a_strides[0]) + index(1) * arg(a_strides[1])
    column = index(0) * arg(b_strides[0]) + index(2) * arg(b_strides[2])
    body = reduce(
        "sum", k, lambda r: load(a, row + r * arg(a_strides[2])) * load(b, column + r * arg(b_strides[1]))
    )
    attributes = {"m": m, "n": n, "k": k, "batch": batch, "a_strides": a_strides, "b_strides": b_strides}
    dtype = np.dtype(np.int8) if epilogue == "position" else F32
    return case.finish((batch, m, n), body, Hint("matmul", (a, b), attributes), epilogue, dtype)


def window_sources(
    at: Sequence[Expr], taps: Sequence[Expr], attributes: dict[str, Any], sizes: Sequence[int]
) -> tuple[list[Expr], Expr]:
    """Where a tap of a window reads, and whether that is inside."""
    sources = [
        i * arg(s) + t * arg(d) - arg(p)
        for i, t, s, d, p in zip(
            at, taps, attributes["strides"], attributes["dilations"], attributes["pads"], strict=True
        )
    ]
    inside: Expr = lit(True, "bool")
    for source, size in zip(sources, sizes, strict=True):
        inside = inside & (source >= lit(0)) & (source < arg(size))
    return sources, inside


def pool_case(
    seed: int, kind: str, x_shape: Sequence[int], kernel: Sequence[int], *, strides: Sequence[int],
    dilations: Sequence[int], pads: Sequence[int], ends: Sequence[int], include_pad: bool = False,
    overhang: int = 0, epilogue: str | None = None,
) -> Case:  # fmt: skip
    """A pooling; `overhang` rows and columns of windows reach beyond the declared padding (ceil mode)."""
    case = Case(seed)
    x = case.value("x", x_shape)
    attributes: dict[str, Any] = {
        "kind": kind, "kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads,
        "ends": ends, "include_pad": include_pad,
    }  # fmt: skip
    sizes = x_shape[2:]
    out = tuple(n + overhang for n in map(out_size, sizes, kernel, strides, dilations, pads, ends))
    at = [index(2 + axis) for axis in range(len(kernel))]

    def split(r: Expr) -> list[Expr]:
        taps: list[Expr] = []
        for size in reversed(kernel):
            taps.insert(0, r % arg(size))
            r = r // arg(size)
        return taps

    def tap(r: Expr) -> Expr:
        sources, inside = window_sources(at, split(r), attributes, sizes)
        other = float("-inf") if kind == "max" else 0.0
        return x.load_where(inside, (index(0), index(1), *sources), other)

    def counts(r: Expr) -> Expr:
        sources, inside = window_sources(at, split(r), attributes, sizes)
        if include_pad:
            inside = lit(True, "bool")
            for source, size, begin, end in zip(sources, sizes, pads, ends, strict=True):
                inside = inside & (source >= arg(-begin)) & (source < arg(size + end))
        return cast(inside, "index")

    body = reduce("max" if kind == "max" else "sum", prod(kernel), tap)
    if kind == "average":
        body = body / cast(reduce("sum", prod(kernel), counts), "float32")
    dtype = np.dtype(np.int8) if epilogue == "position" else F32
    return case.finish((*x_shape[:2], *out), body, Hint("pool", (x,), attributes), epilogue, dtype)


def out_size(size: int, kernel: int, stride: int, dilation: int, begin: int, end: int) -> int:
    """How many windows fit."""
    return (size + begin + end - (kernel - 1) * dilation - 1) // stride + 1


def random_windows(
    rng: np.random.Generator, longest: int, padding: int = 2
) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Sizes below `longest`, a kernel, and attributes, of which at least one window fits."""
    while True:
        kernel, strides, dilations, pads, ends = (
            tuple(int(v) for v in rng.integers(low, high, 2))
            for low, high in ((1, 6), (1, 4), (1, 3), (0, padding + 1), (0, padding + 1))
        )
        size = tuple(int(v) for v in rng.integers(1, longest, 2))
        if min(map(out_size, size, kernel, strides, dilations, pads, ends)) >= 1:
            return size, kernel, {"strides": strides, "dilations": dilations, "pads": pads, "ends": ends}


def conv_case(
    seed: int, x_shape: Sequence[int], w_shape: Sequence[int], *,
    strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int], ends: Sequence[int],
    group: int, epilogue: str | None,
) -> Case:  # fmt: skip
    """A convolution over any number of axes."""
    case = Case(seed)
    x = case.value("x", x_shape)
    w = case.value("w", w_shape, known=True, scale=1 / np.sqrt(prod(w_shape[1:])))
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads, "group": group}
    kernel = w_shape[2:]
    out = tuple(map(out_size, x_shape[2:], kernel, strides, dilations, pads, ends))
    per_group = w_shape[0] // group
    n, m = index(0), index(1)
    at = [index(2 + axis) for axis in range(len(kernel))]
    first = (m // arg(per_group)) * arg(w_shape[1])

    def tap(r: Expr) -> Expr:
        taps: list[Expr] = []
        rest = r
        for size in reversed(kernel):
            taps.insert(0, rest % arg(size))
            rest = rest // arg(size)
        sources, inside = window_sources(at, taps, attributes, x_shape[2:])
        return x.load_where(inside, (n, first + rest, *sources)) * w[(m, rest, *taps)]

    body = reduce("sum", prod(w_shape[1:]), tap)
    dtype = np.dtype(np.int8) if epilogue == "position" else F32
    return case.finish(
        (x_shape[0], w_shape[0], *out), body, Hint("conv", (x, w), attributes), epilogue, dtype
    )
