"""Convolutions that pool their results, against onnxruntime: windows, channels, epilogues, other pools."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import ModelLoader
from engine.backends.cpu.codegen.tiles import AVX2, AVX512, NEON, Tile
from engine.backends.cpu.kernels.convolution import (
    first_layer_conv,
    nhwc_conv,
    pooled_conv,
    winograd,
    winograd_partition,
)
from gameglue.profiling.step_times import RepeatedSchedule
from tests.engine.conftest import MakeWorker, answers
from tests.graphs import node, proto
from tests.networks import error, reference
from tests.open_sizes import check_sizes, plan_statically

POOL: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}


@pytest.fixture(autouse=True)
def any_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Join convolutions whatever this processor's vectors are."""
    monkeypatch.setattr(pooled_conv, "_WORTH", 0.0)


def network(
    rng: np.random.Generator, channels: tuple[int, ...], sides: tuple[int, ...], *, behind: bool = False,
    pool: dict[str, Any] = POOL, shape: tuple[int | str, ...] = ("n", "h", "w"), **attributes: Any,
) -> bytes:  # fmt: skip
    """Convolutions with windows of these sides, each with a bias, bounded before its pool or behind it."""
    nodes, last = [], "x"
    constants: dict[str, np.ndarray] = {}
    for k, side in enumerate(sides):
        few, many = channels[k : k + 2]
        weights = rng.normal(size=(many, few, side, side)) / np.sqrt(few * side * side)
        constants |= {f"w{k}": weights.astype(np.float32), f"b{k}": rng.normal(size=many).astype(np.float32)}
        order = [("MaxPool", pool), ("Relu", {})] if behind else [("Relu", {}), ("MaxPool", pool)]
        nodes.append(node("Conv", [last, f"w{k}", f"b{k}"], [f"c{k}"], **attributes))
        for op_type, given in order:
            last = nodes[-1].output[0]
            nodes.append(node(op_type, [last], [f"{op_type}{k}"], **given))
        last = nodes[-1].output[0]
    declared = [shape[0], channels[0], *shape[1:]]
    return proto(nodes, {"x": ("float32", declared)}, {last: ("float32", None)}, constants)


def kernels(worker: Any) -> list[str]:
    """The kernels that the latest schedule ran, where they had anything to do."""
    steps = [planned.step for planned in RepeatedSchedule(worker).steps]
    return [getattr(step.kernel, "name", "") for step in steps if step.space != (0,)]


def check(
    make_worker: MakeWorker, source: bytes, *shapes: tuple[int, ...], bound: float = 4e-6, scale: float = 1.0
) -> list[str]:
    """Compare with onnxruntime at some shapes of the input; the kernels of the last."""
    worker = make_worker(ModelLoader.load(source), "cpu")
    for shape in shapes:
        x = (scale * np.random.default_rng(1).normal(size=shape)).astype(np.float32)
        (expected,) = reference(source, {"x": x}).values()
        assert error(answers(worker, x)[0], expected) < bound, shape
    return kernels(worker)


SIZES = [(1, 2, 2), (2, 28, 28), (3, 9, 7), (1, 3, 33), (5, 12, 5), (1, 61, 64)]


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("channels", [(1, 16), (3, 33), (24, 16), (40, 70)], ids=str)
def test_windows_of_three(make_worker: MakeWorker, channels: tuple[int, ...], behind: bool) -> None:
    source = network(np.random.default_rng(0), channels, (3,), behind=behind, pads=[1, 1, 1, 1])
    found = check(make_worker, source, *((n, channels[0], h, w) for n, h, w in SIZES))
    assert "nhwc_pool_max" not in found


@pytest.mark.parametrize("results", [0, 2, 4])
def test_each_algorithm(make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch, results: int) -> None:
    monkeypatch.setattr(winograd_partition, "LARGEST", results)
    monkeypatch.setattr(winograd_partition, "_WORTH", {2: 100.0, 4: 100.0})
    source = network(np.random.default_rng(0), (20, 40), (3,), pads=[1, 1, 1, 1])
    found = check(make_worker, source, *((n, 20, h, w) for n, h, w in SIZES))
    assert found.count("winograd" if results else "nhwc_conv") == 1
    assert "nhwc_pool_max" not in found


@pytest.mark.parametrize("tile", [AVX512, AVX2, NEON], ids=str)
def test_vectors_of_other_processors(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch, tile: Tile
) -> None:
    for module in (first_layer_conv, nhwc_conv, winograd):
        monkeypatch.setattr(module, "host_tile", lambda: tile)
    source = network(np.random.default_rng(0), (1, 16, 40, 48), (5, 3, 4), pads=[1, 1, 1, 1])
    assert "nhwc_pool_max" not in check(make_worker, source, (2, 1, 33, 47), (3, 1, 28, 28))


def test_low_tiles_are_left_alone(make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooled_conv, "_WORTH", 0.8)
    for module in (nhwc_conv, pooled_conv, winograd):
        monkeypatch.setattr(module, "host_tile", lambda: AVX2)
    source = network(np.random.default_rng(0), (16, 40), (5,), pads=[1, 1, 1, 1])
    assert "nhwc_pool_max" in check(make_worker, source, (2, 16, 33, 47))


@pytest.mark.long
def test_random_windows(make_worker: MakeWorker) -> None:
    rng = np.random.default_rng(7)
    for _ in range(24):
        sides = tuple(int(side) for side in rng.integers(1, 6, int(rng.integers(1, 3))))
        channels = (int(rng.choice([1, 3, 5, 17, 32])), *(int(m) for m in rng.integers(16, 80, len(sides))))
        pads, stride = [int(pad) for pad in rng.integers(0, 3, 4)], int(rng.integers(1, 3))
        source = network(
            rng, channels, sides, behind=bool(rng.integers(2)), pads=pads, strides=[stride, stride]
        )
        shape = (int(rng.integers(1, 5)), channels[0], *(int(n) for n in rng.integers(44, 70, 2)))
        assert "nhwc_pool_max" not in check(make_worker, source, shape)


def test_any_size_is_as_if_planned_for_it(make_worker: MakeWorker) -> None:
    source = network(np.random.default_rng(0), (1, 16, 32, 64), (3, 3, 3), pads=[1, 1, 1, 1])
    worker, apart = (make_worker(ModelLoader.load(source), "cpu") for _ in range(2))
    x = np.random.default_rng(1).normal(size=(3, 1, 28, 30)).astype(np.float32)
    assert check_sizes(worker, plan_statically(apart), {"x": x}, 12, 0) > 6


def test_a_nan_stays(make_worker: MakeWorker) -> None:
    source = network(np.random.default_rng(0), (20, 32), (3,), pads=[1, 1, 1, 1])
    x = np.random.default_rng(1).normal(size=(1, 20, 12, 12)).astype(np.float32)
    x[0, 4, 5, 6] = np.nan
    (found,) = answers(make_worker(ModelLoader.load(source), "cpu"), x)
    assert np.isnan(found[0, :, 2:4, 2:4]).all()
    assert np.isfinite(found[0, :, 4:]).all()


@pytest.mark.parametrize("pool", [
    {"kernel_shape": [3, 3], "strides": [2, 2]}, {"kernel_shape": [2, 2]}, {**POOL, "ceil_mode": 1},
    {**POOL, "pads": [1, 0, 0, 1]}, {**POOL, "kernel_shape": [2, 3]},
], ids=str)  # fmt: skip
def test_other_pools_are_left_alone(make_worker: MakeWorker, pool: dict[str, Any]) -> None:
    source = network(np.random.default_rng(0), (3, 32), (3,), pool=pool, shape=(2, 13, 15))
    assert "nhwc_pool_max" in check(make_worker, source, (2, 3, 13, 15))


@pytest.mark.parametrize("kind", ["two readers", "residual", "output", "few channels", "groups"])
def test_other_convolutions_are_left_alone(make_worker: MakeWorker, kind: str) -> None:
    rng = np.random.default_rng(0)
    m = 4 if kind == "few channels" else 32
    groups = 2 if kind == "groups" else 1
    weights = (rng.normal(size=(m, 32 // groups, 3, 3)) / 20).astype(np.float32)
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], group=groups),
        node("Add", ["c", "x"], ["a"]) if kind == "residual" else node("Relu", ["c"], ["a"]),
        node("MaxPool", ["a"], ["y"], **POOL),
    ]
    outputs: dict[str, Any] = {"y": ("float32", None)}
    if kind == "two readers":
        nodes.append(node("GlobalAveragePool", ["a"], ["z"]))
        outputs["z"] = ("float32", None)
    if kind == "output":
        outputs["a"] = ("float32", None)
    source = proto(nodes, {"x": ("float32", [2, 32, 11, 14])}, outputs, {"w": weights})
    worker = make_worker(ModelLoader.load(source), "cpu")
    x = rng.normal(size=(2, 32, 11, 14)).astype(np.float32)
    expected = reference(source, {"x": x})
    for name, found in zip(expected, answers(worker, x), strict=True):
        assert error(found, expected[name]) < 4e-6
    assert "nhwc_pool_max" in kernels(worker)
