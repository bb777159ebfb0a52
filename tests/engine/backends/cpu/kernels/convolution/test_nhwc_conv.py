"""Convolutions with channels last against sliding windows in float64, over shapes, pads and epilogues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.tiles import AVX2, AVX512, NEON, PORTABLE, Tile
from engine.backends.cpu.kernels.convolution import first_layer_conv, nhwc_conv, small_output_conv
from engine.backends.cpu.kernels.convolution.first_layer_conv import tune_first_layer_conv
from engine.backends.cpu.kernels.convolution.nhwc_conv import tune_nhwc_conv
from engine.backends.cpu.kernels.convolution.small_output_conv import tune_small_output_conv
from engine.compiler.plan import BufferSpec, Compute, Plan, Tuner
from engine.kernels.expr import FLAT, Expr, acc, arg, cast, index, lit, maximum, select
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.steps import F32, conv_expected

Tail = Callable[[Expr, "Case"], Expr]


class Case:
    """A convolution of random numbers, x (N, C, *spatial) and w (M, C / group, *kernel)."""

    def __init__(
        self, x: Sequence[int], w: Sequence[int], *, strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None,
        ends: Sequence[int] | None = None, group: int = 1, tail: str = "bias", x_first: bool = False,
        seed: int = 0,
    ) -> None:  # fmt: skip
        rank = len(x) - 2
        ones, zeros = (1,) * rank, (0,) * rank
        self.rng = np.random.default_rng(seed)
        self.arrays: dict[str, np.ndarray] = {}
        pads = pads or zeros
        sizes = (strides or ones, dilations or ones, pads, ends or pads)
        first = self.rng.standard_normal(tuple(x)).astype(np.float32)
        weights = (self.rng.standard_normal(tuple(w)) / np.sqrt(np.prod(w[1:]))).astype(np.float32)
        sums = np.moveaxis(conv_expected(first, weights, *sizes, group), 1, -1)
        self.shape = sums.shape
        self.x_first = x_first
        self.arrays["x"] = first if x_first else np.ascontiguousarray(np.moveaxis(first, 1, -1))
        self.arrays["w"] = weights
        attributes: dict[str, Any] = {
            "strides": sizes[0], "dilations": sizes[1], "pads": sizes[2], "group": group,
            "channels_last": True, "x_first": x_first,
        }  # fmt: skip
        read = Value("x", self.arrays["x"].shape, F32)
        hint = Hint("conv", (read, Value("w", w, F32, None, weights)), attributes)
        epilogue, self.expected = self.tail(tail, sums)
        dtype = F32 if self.expected.dtype.kind == "f" else self.expected.dtype
        self.output = Value("y", self.shape, dtype)
        body = lit(0.0, "float32")
        self.compute = Compute(self.output, self.shape, body, "layer", "Conv", hint, epilogue)

    def tail(self, name: str, sums: np.ndarray) -> tuple[Expr | None, np.ndarray]:
        """An epilogue by name, and what it makes of the sums."""
        if name == "none":
            return None, sums.astype(np.float32)
        if name == "bias":
            bias, values = self.operand("bias", self.shape[-1:])
            rank = len(self.shape)
            return maximum(acc("float32") + bias[index(rank - 1)], 0.0), np.maximum(sums + values, 0.0)
        if name == "residual":
            other, values = self.operand("other", self.shape)
            return acc("float32") * arg(0.5, "float32") + other.at(FLAT), sums * 0.5 + values
        if name == "slope":
            slope, values = self.operand("slope", self.shape[-1:])
            total = acc("float32")
            leaky = select(total < 0.0, total * slope[index(len(self.shape) - 1)], total)
            return leaky, np.where(sums < 0.0, sums * values, sums)
        assert name == "position"
        place, values = self.operand("place", self.shape[:-1])
        where = tuple(index(axis) for axis in range(len(self.shape) - 1))
        scaled = (acc("float32") + place[where]) * 3.0
        return cast(scaled, "int32"), np.trunc((sums + values[..., None]) * 3.0).astype(np.int8)

    def operand(self, name: str, shape: Sequence[int]) -> tuple[Value, np.ndarray]:
        """A tensor that an epilogue reads."""
        self.arrays[name] = self.rng.standard_normal(tuple(shape)).astype(np.float32)
        return Value(name, shape, F32), self.arrays[name]


def emitted(backend: CPUBackend, case: Case) -> tuple[Plan, bool]:
    """The plan that the rule makes, and whether it takes the case."""
    plan = Plan()

    def constant(name: str, make: Callable[[], np.ndarray]) -> str:
        array = make()
        plan.constants[name] = array
        plan.buffers[name] = BufferSpec(name, array.size, array.dtype, "constant")
        return name

    def temporary(count: int, dtype: np.dtype) -> str:
        name = f"scratch{len(plan.buffers)}"
        plan.buffers[name] = BufferSpec(name, count, dtype, "temporary")
        return name

    tuner = Tuner(case.compute, constant, temporary)
    rules = (tune_first_layer_conv, tune_small_output_conv, tune_nhwc_conv)
    taken = any(rule(case.compute, tuner, backend.jobs.thread_count) for rule in rules)
    plan.steps = tuner.steps
    for name, array in case.arrays.items():
        plan.buffers[name] = BufferSpec(name, array.size, array.dtype, "input")
    plan.buffers["y"] = BufferSpec("y", case.output.size, case.output.dtype, "output")
    return plan, taken


def check(backend: CPUBackend, case: Case) -> None:
    """The kernels' output agrees, and nothing behind it is written; integers may differ by one at an edge."""
    plan, taken = emitted(backend, case)
    assert taken
    assert all(isinstance(step.kernel, NativeKernel) for step in plan.steps)
    arrays = {**case.arrays, **plan.constants}
    buffers: dict[str, Any] = {n: backend.create(a.size, a.dtype, a) for n, a in arrays.items()}
    watched = backend.create(case.output.size + 64, case.output.dtype, np.full(case.output.size + 64, 77))
    backend.run(backend.record(plan, {**buffers, "y": watched}))
    readback = backend.readback(watched)
    readback.wait()
    result = readback.array()
    np.testing.assert_array_equal(result[case.output.size :], np.full(64, 77, case.output.dtype))
    got = result[: case.output.size].reshape(case.shape).astype(np.float64)
    error = np.abs(got - case.expected)
    scale = max(1.0, float(np.abs(case.expected).max()))
    edge = 1.0 if case.output.dtype.kind == "i" else 0.0
    assert error.max() <= 1e-5 * scale + edge, f"off by {error.max()} at {error.argmax()} of {error.size}"
    assert (error > 1e-5 * scale).mean() < 0.01


NAMED: dict[str, Case] = {
    "pointwise": Case((2, 7, 9, 11), (13, 7, 1, 1)),
    "pointwise with a stride": Case((1, 5, 9, 11), (8, 5, 1, 1), strides=(2, 2)),
    "3x3 same": Case((2, 16, 8, 40), (32, 16, 3, 3), pads=(1, 1)),
    "3x3 on small pictures": Case((1, 24, 7, 7), (72, 24, 3, 3), pads=(1, 1)),
    "3x3 on tiny pictures": Case((3, 3, 2, 2), (17, 3, 3, 3), pads=(1, 1)),
    "one pixel": Case((1, 3, 3, 3), (40, 3, 3, 3)),
    "one channel each": Case((1, 1, 5, 6), (1, 1, 2, 2)),
    "stride 2, padded at the end only": Case((1, 3, 16, 18), (48, 3, 3, 3), strides=(2, 2), ends=(1, 1)),
    "dilated": Case((1, 3, 15, 21), (33, 3, 3, 3), pads=(2, 3), dilations=(2, 3)),
    "taps outside for whole rows": Case((1, 5, 30, 9), (49, 5, 3, 3), pads=(12, 4), dilations=(12, 4)),
    "a row": Case((1, 6, 4, 50), (31, 6, 1, 7), pads=(0, 3)),
    "more padding than input": Case((1, 2, 2, 3), (3, 2, 3, 3), pads=(4, 5), ends=(5, 4)),
    "groups": Case((2, 12, 9, 9), (80, 3, 3, 3), pads=(1, 1), group=4),
    "groups of one output": Case((1, 12, 9, 9), (4, 3, 3, 3), pads=(1, 1), group=4),
    "many taps": Case((1, 2, 30, 30), (16, 2, 15, 15), pads=(7, 7)),
    "deep": Case((1, 300, 6, 9), (49, 300, 3, 3), pads=(1, 1)),
    "one axis": Case((2, 6, 41), (37, 6, 3), pads=(1,), strides=(2,)),
    "wide panels": Case((2, 20, 9, 7), (128, 20, 1, 1)),
    "a wide panel, not filled": Case((1, 9, 8, 13), (59, 9, 3, 3), pads=(1, 1)),
    "wide panels of groups": Case((1, 12, 7, 9), (128, 6, 3, 3), strides=(2, 2), group=2),
    "pixels that evict each other": Case((2, 1024, 5, 7), (260, 1024, 1, 1)),
    "every second one of them": Case((1, 1024, 9, 7), (260, 1024, 1, 1), strides=(2, 2), pads=(1, 0)),
    "every second one evicts another": Case((1, 512, 9, 15), (260, 512, 3, 3), strides=(2, 2), pads=(1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_named_shapes(backend: CPUBackend, name: str) -> None:
    check(backend, NAMED[name])


FIRST: dict[str, Case] = {
    "3x3 same": Case((2, 3, 9, 40), (32, 3, 3, 3), pads=(1, 1), x_first=True),
    "7x7 stride 2": Case((1, 3, 30, 33), (50, 3, 7, 7), pads=(3, 3), strides=(2, 2), x_first=True),
    "valid, with a stride": Case((2, 3, 17, 19), (12, 3, 3, 3), strides=(2, 2), x_first=True),
    "padded at the end only": Case((1, 3, 16, 18), (8, 3, 3, 3), strides=(2, 2), ends=(1, 1), x_first=True),
    "pointwise": Case((1, 20, 6, 7), (40, 20, 1, 1), x_first=True),
    "wide panels": Case((1, 3, 13, 17), (121, 3, 3, 3), pads=(1, 1), strides=(2, 2), x_first=True),
    "long rows": Case((1, 4, 6, 2500), (3, 4, 3, 3), pads=(1, 1), x_first=True),
    "dilated": Case((1, 2, 15, 21), (17, 2, 3, 3), pads=(2, 3), dilations=(2, 3), x_first=True),
    "more padding than input": Case((1, 2, 2, 3), (3, 2, 3, 3), pads=(4, 5), ends=(5, 4), x_first=True),
    "one axis": Case((2, 3, 41), (37, 3, 5), pads=(2,), strides=(2,), x_first=True),
    "one channel": Case((2, 1, 20, 21), (1, 1, 3, 3), pads=(1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST)
def test_from_planes(backend: CPUBackend, name: str) -> None:
    check(backend, FIRST[name])


FEW: dict[str, Case] = {
    "one output": Case((1, 64, 10, 9), (1, 64, 1, 1)),
    "two outputs": Case((2, 21, 9, 11), (2, 21, 3, 3), pads=(1, 1)),
    "three outputs": Case((1, 32, 20, 20), (3, 32, 9, 9), pads=(4, 4)),
    "eleven outputs": Case((1, 48, 9, 11), (11, 48, 3, 3), pads=(1, 1), strides=(2, 2)),
    "nine outputs": Case((1, 250, 13, 7), (9, 250, 1, 1)),
    "one pixel": Case((1, 100, 1, 1), (41, 100, 1, 1)),
    "one pixel with a window": Case((1, 16, 3, 3), (9, 16, 3, 3)),
    "one axis": Case((2, 16, 41), (5, 16, 3), pads=(1,), strides=(2,)),
}  # fmt: skip


@pytest.mark.parametrize("name", FEW)
def test_few_outputs(backend: CPUBackend, name: str) -> None:
    plan, _ = emitted(backend, FEW[name])
    assert isinstance(plan.steps[0].kernel, NativeKernel)
    assert plan.steps[0].kernel.name == "small_output_conv"
    check(backend, FEW[name])


@pytest.mark.long
@pytest.mark.parametrize("tail", ["none", "residual", "slope", "position"])
def test_epilogues(backend: CPUBackend, tail: str) -> None:
    check(backend, Case((2, 6, 10, 23), (70, 6, 3, 3), pads=(1, 1), tail=tail))
    check(backend, Case((2, 6, 10, 23), (64, 6, 3, 3), pads=(1, 1), tail=tail))
    check(backend, Case((2, 6, 10, 23), (7, 6, 3, 3), pads=(1, 1), tail=tail))
    check(backend, Case((2, 3, 10, 23), (70, 3, 3, 3), pads=(1, 1), tail=tail, x_first=True))


@pytest.mark.long
@pytest.mark.parametrize("tile", [AVX512, AVX2, NEON, PORTABLE])
def test_other_processors(backend: CPUBackend, tile: Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (first_layer_conv, small_output_conv, nhwc_conv):
        monkeypatch.setattr(module, "host_tile", lambda: tile)
    check(backend, Case((1, 16, 8, 13), (43, 16, 3, 3), pads=(1, 1)))
    check(backend, Case((1, 16, 8, 13), (64, 16, 3, 3), pads=(1, 1)))
    check(backend, Case((1, 16, 20, 13), (43, 16, 3, 3), pads=(8, 8), dilations=(8, 8)))
    check(backend, Case((1, 3, 9, 13), (21, 3, 3, 3), pads=(1, 1), x_first=True))
    check(backend, Case((1, 20, 9, 13), (3, 20, 3, 3), pads=(1, 1)))


def test_large_layers_are_cut_for_all_threads(backend: CPUBackend) -> None:
    for case in (
        Case((1, 64, 28, 28), (64, 64, 3, 3), pads=(1, 1)),
        Case((1, 512, 7, 7), (512, 512, 1, 1)),
        Case((1, 3, 64, 64), (64, 3, 3, 3), x_first=True),
        Case((1, 64, 40, 40), (3, 64, 3, 3), pads=(1, 1)),
        Case((1, 1, 3001), (70, 1, 10), strides=(5,), x_first=True),
    ):
        plan, _ = emitted(backend, case)
        assert plan.steps[-1].space[0] % backend.jobs.thread_count == 0
        check(backend, case)


def test_pixels_that_evict_each_other_are_laid_further_apart(backend: CPUBackend) -> None:
    plan, _ = emitted(backend, NAMED["pixels that evict each other"])
    first, second = plan.steps
    assert first.output in second.inputs
    assert plan.buffers[first.output].elements > 2 * 35 * 1024


def test_what_has_no_kernel_of_these_is_left_alone(backend: CPUBackend) -> None:
    three = Case((1, 2, 4, 4, 4), (3, 2, 2, 2, 2))
    unknown = Case((1, 2, 4, 4), (3, 2, 3, 3))
    assert unknown.compute.hint is not None
    unknown.compute.hint.operands[1].known = None
    for case in (three, unknown):
        plan, taken = emitted(backend, case)
        assert not taken
        assert not plan.steps
