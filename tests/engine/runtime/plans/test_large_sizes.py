"""Sizes that memory or integers cannot hold end in an error of the engine, and the next size is answered."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine import EngineError, InputError, Model, OutOfMemoryError, Worker
from engine.base.memory import aligned
from tests.engine.conftest import MakeWorker, answers
from tests.graphs import model, node

FIRST = (3, 4, 5)
"""Sizes after which a model has plans with symbolic sizes."""


def fourth_powers() -> Model:
    """y = (sum of x) ** 4, by way of a tensor of n ** 4 elements."""
    nodes = [
        node("Reshape", ["x", "column"], ["c"]),
        node("Reshape", ["x", "row"], ["r"]),
        node("MatMul", ["c", "r"], ["squares"]),
        node("Reshape", ["squares", "column"], ["c2"]),
        node("Reshape", ["squares", "row"], ["r2"]),
        node("MatMul", ["c2", "r2"], ["powers"]),
        node("ReduceSum", ["powers"], ["y"], keepdims=0),
    ]
    shapes = {"column": np.array([-1, 1], np.int64), "row": np.array([1, -1], np.int64)}
    return model(nodes, {"x": ("float32", ["n"])}, {"y": ("float32", None)}, shapes)


def powers_of_sizes(squarings: int) -> Model:
    """y = x + n ** (2 ** squarings), computed in integers."""
    nodes = [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "zero"], ["p0"], axis=0)]
    nodes += [node("Mul", [f"p{k}", f"p{k}"], [f"p{k + 1}"]) for k in range(squarings)]
    nodes += [node("Add", ["x", f"p{squarings}"], ["y"])]
    inputs = {"x": ("int64", ["n"])}
    return model(nodes, inputs, {"y": ("int64", None)}, {"zero": np.array(0, np.int64)})


def check_fourth_power(worker: Worker, n: int) -> None:
    x = np.arange(n, dtype=np.float32)
    np.testing.assert_allclose(answers(worker, x)[0], x.sum() ** 4, rtol=1e-6)


def prepared(make_worker: MakeWorker, channel: str) -> Worker:
    """A worker of `fourth_powers` with plans with symbolic sizes."""
    worker = make_worker(fourth_powers(), channel)
    for n in FIRST:
        check_fourth_power(worker, n)
    assert worker._session.symbolic_plans.ready
    return worker


def without_planning(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have any attempt to plan fail."""
    monkeypatch.setattr(worker._session.planner, "lower", None)
    monkeypatch.setattr(worker._session.planner, "lower_symbolic", None)


def reserving_at_most(limit: int) -> Callable[[int], np.ndarray]:
    """`reserve` of a computer with so many bytes."""

    def reserve(size: int) -> np.ndarray:
        if size > limit:
            raise MemoryError(f"{size} bytes")
        return aligned.reserve(size)

    return reserve


def test_temporaries_too_large_for_the_computer(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = prepared(make_worker, "cpu")
    without_planning(worker, monkeypatch)
    monkeypatch.setattr("engine.backends.cpu.backend.reserve", reserving_at_most(1 << 24))
    for n in (64, 90):
        with pytest.raises(OutOfMemoryError, match=f"powers_layer.*{n**4:,} elements of float32"):
            worker.schedule(np.ones(n, np.float32))
        check_fourth_power(worker, n // 10)


@pytest.mark.parametrize("channel", ["gl_compute", "gl_pixel", "opencl"], indirect=True)
def test_temporaries_too_large_for_the_device(
    channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drivers may report only when they are asked that they had no memory."""
    worker = prepared(make_worker, channel)
    plans = [*worker._session.symbolic_plans.ready]

    def refuse() -> None:
        raise OutOfMemoryError("the driver says so")

    with monkeypatch.context() as patch:
        patch.setattr("engine.runtime.plans.shared_memory.LARGE", 12**4 * 4)
        patch.setattr(worker._session.backends["native"], "check_memory", refuse)
        with pytest.raises(OutOfMemoryError, match=r"powers_layer.*20,736 elements.*the driver says so"):
            worker.schedule(np.ones(12, np.float32))
    check_fourth_power(worker, 6)
    check_fourth_power(worker, 12)
    assert set(plans) <= {*worker._session.symbolic_plans.ready}


@pytest.mark.parametrize("n", [1 << 13, 1 << 16, 1 << 20, 1 << 21])
def test_sizes_beyond_any_computer(n: int, channel: str, make_worker: MakeWorker) -> None:
    """Their products exceed 47, 63 and 79 bits."""
    worker = prepared(make_worker, channel)
    with pytest.raises(OutOfMemoryError, match="powers_layer"):
        worker.schedule(np.ones(n, np.float32))
    check_fourth_power(worker, 7)


@pytest.mark.parametrize("channel", ["gl_compute", "gl_pixel", "opencl"], indirect=True)
def test_sizes_beyond_the_device(channel: str, make_worker: MakeWorker) -> None:
    worker = prepared(make_worker, channel)
    with pytest.raises(EngineError, match="powers_layer"):
        worker.schedule(np.ones(512, np.float32))
    check_fourth_power(worker, 7)


@pytest.mark.parametrize("squarings", [1, 2, 3])
def test_integers_beyond_an_argument(squarings: int, channel: str, make_worker: MakeWorker) -> None:
    """64-bit integers wrap as NumPy's do; a device of 32 bits refuses them."""
    worker = make_worker(powers_of_sizes(squarings), channel)
    for n in (*FIRST, 40, 300, 50_000, 70_000):
        x = np.arange(n, dtype=np.int64)
        exact = n ** (2**squarings)
        if channel != "cpu" and exact >= 2**31:
            with pytest.raises(InputError, match="32-bit integers"):
                worker.schedule(x)
            continue
        power = np.array([n], np.int64)
        for _ in range(squarings):
            power = power * power
        np.testing.assert_array_equal(answers(worker, x)[0], x + power)
    assert worker._session.symbolic_plans.ready
