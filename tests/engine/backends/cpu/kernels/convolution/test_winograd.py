"""Winograd convolutions against sums in float64: sizes, padding, batches, channels, epilogues and cuts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.codegen.task_partition import row_tiles
from engine.backends.cpu.codegen.tiles import AVX2, AVX512, NEON, PORTABLE, Tile, host_tile
from engine.backends.cpu.kernels.convolution import winograd, winograd_partition
from engine.backends.cpu.kernels.convolution.winograd_partition import (
    TILES,
    ConvChoice,
    WinogradPartition,
    choose_algorithm,
    row_choices,
    scratch_bytes,
)
from engine.backends.cpu.kernels.convolution.winograd_weights import filter_matrix, pack_weights
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import FLAT, acc, cast, index, lit, load, maximum
from engine.kernels.hint import Hint
from tests.engine.backends.cpu.hinted import Case, out_size, run_tuned, tuned_plan
from tests.engine.backends.steps import conv_expected

BOUNDS = {2: 1e-6, 4: 4e-6}
"""Largest errors, relative to the largest result."""


def winograd_case(
    x_shape: Sequence[int], m: int, begins: Sequence[int] = (1, 1), ends: Sequence[int] = (1, 1),
    epilogue: str = "bias", scale: float = 1.0, **attributes: Any,
) -> tuple[Case, np.ndarray]:  # fmt: skip
    """x_shape is (N, H, W, C); also what float64 makes of it."""
    case = Case(prod(x_shape) + m)
    channels = x_shape[3]
    x = case.value("x", x_shape, scale=scale)
    w = case.value("w", (m, channels, 3, 3), known=True, scale=np.sqrt(2 / (9 * channels)))
    out = [out_size(n, 3, 1, 1, p, e) for n, p, e in zip(x_shape[1:3], begins, ends, strict=True)]
    space = (x_shape[0], *out, m)
    given = {"strides": (1, 1), "dilations": (1, 1), "pads": tuple(begins), "group": 1, "channels_last": True}
    dtype = np.dtype(np.int8 if epilogue == "position" else np.float32)
    case.finish(space, lit(0.0, "float32"), Hint("conv", (x, w), {**given, **attributes}), None, dtype)
    assert case.compute is not None
    first = np.moveaxis(case.arrays["x"], 3, 1)
    sums = np.moveaxis(conv_expected(first, case.arrays["w"], (1, 1), (1, 1), begins, ends, 1), 1, 3)
    if epilogue == "bias":
        bias = case.value("bias", (m,), known=True)
        case.compute.epilogue = maximum(acc("float32") + load(bias, index(3)), 0.0)
        return case, np.maximum(sums + case.arrays["bias"], 0)
    if epilogue == "residual":
        other = case.value("other", space)
        case.compute.epilogue = acc("float32") + other.at(FLAT)
        return case, sums + case.arrays["other"]
    if epilogue == "position":
        place = case.value("place", out)
        case.compute.epilogue = cast((acc("float32") + place[index(1), index(2)]) * 3.0, "int32")
        return case, np.trunc((sums + case.arrays["place"][None, :, :, None]) * 3)
    assert epilogue == "all indices"
    total = index(0) * 1000 + index(1) * 100 + index(2) * 10 + index(3)
    case.compute.epilogue = acc("float32") + cast(total, "float32")
    i = np.indices(space)
    return case, sums + (i[0] * 1000 + i[1] * 100 + i[2] * 10 + i[3])


def check(backend: CPUBackend, case: Case, expected: np.ndarray, bound: float) -> None:
    got = run_tuned(backend, case).reshape(expected.shape).astype(np.float64)
    # Integers may differ by one where a float lies on the edge.
    edge = 1.0 if case.compute is not None and case.compute.output.dtype.kind == "i" else 0.0
    error = np.abs(got - expected)
    assert error.max() <= bound * max(1.0, np.abs(expected).max()) + edge
    assert (error > 0.5).mean() < 0.01


@pytest.fixture(params=[2, 4])
def results(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def forced(
    monkeypatch: pytest.MonkeyPatch, results: int, share: int = 25, tiles: int = 11, panels: int = 2
) -> None:
    """Cut every convolution like this, whatever it costs; tasks take `panels` panels of channels."""
    width = host_tile().width
    take(
        monkeypatch, WinogradPartition(results, share, tiles, width, panels * width), row_choices(host_tile())
    )


def take(monkeypatch: pytest.MonkeyPatch, partition: WinogradPartition, choices: Sequence[int]) -> None:
    """Cut every convolution like this."""
    most, middle, *least = choices
    rows = row_tiles(partition.tiles, most, middle, *(least or [0]))

    def choice(space: Sequence[int], *_: object) -> ConvChoice:
        return ConvChoice(
            partition, 1000.0, rows, (0, *(space[0] * (results == partition.results) for results in TILES))
        )

    monkeypatch.setattr(winograd, "choose_algorithm", choice)


SHAPES: dict[str, tuple[tuple[int, ...], int, tuple[int, int], tuple[int, int]]] = {
    "same": ((1, 12, 16, 32), 32, (1, 1), (1, 1)),
    "valid": ((1, 12, 17, 16), 16, (0, 0), (0, 0)),
    "one pixel": ((1, 1, 1, 16), 16, (1, 1), (1, 1)),
    "two rows of three": ((1, 2, 3, 8), 40, (1, 1), (1, 1)),
    "odd": ((1, 5, 7, 17), 33, (1, 1), (1, 1)),
    "padded at the end": ((1, 9, 6, 3), 5, (0, 1), (2, 1)),
    "wide padding": ((1, 4, 3, 5), 7, (4, 5), (3, 2)),
    "one channel": ((2, 8, 9, 1), 1, (1, 1), (1, 1)),
    "batch": ((3, 7, 7, 24), 70, (1, 1), (1, 1)),
    "many channels": ((1, 5, 5, 1040), 16, (1, 1), (1, 1)),
    "several blocks": ((1, 37, 41, 20), 97, (1, 1), (1, 1)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(backend: CPUBackend, monkeypatch: pytest.MonkeyPatch, results: int, name: str) -> None:
    tiles = 1 if name == "many channels" else 11
    forced(monkeypatch, results, tiles=tiles)
    x_shape, m, begins, ends = SHAPES[name]
    check(backend, *winograd_case(x_shape, m, begins, ends), BOUNDS[results])


@pytest.mark.long
@pytest.mark.parametrize("epilogue", ["residual", "position", "all indices"])
def test_epilogues(backend: CPUBackend, monkeypatch: pytest.MonkeyPatch, results: int, epilogue: str) -> None:
    forced(monkeypatch, results)
    check(backend, *winograd_case((2, 9, 11, 17), 40, epilogue=epilogue), BOUNDS[results])


def test_every_number_of_rows(backend: CPUBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    for tiles in range(1, 19):
        forced(monkeypatch, 2, share=tiles, tiles=tiles)
        check(backend, *winograd_case((1, 2, 2 * tiles, 5), 20), BOUNDS[2])


@pytest.mark.parametrize("tile", [AVX2, NEON])
def test_narrower_vectors(backend: CPUBackend, monkeypatch: pytest.MonkeyPatch, tile: Tile) -> None:
    monkeypatch.setattr(winograd, "host_tile", lambda: tile)
    for tiles in (1, 5, 14):
        take(
            monkeypatch, WinogradPartition(4, 2 * tiles, tiles, tile.width, 2 * tile.width), row_choices(tile)
        )
        check(backend, *winograd_case((1, 18, 19, 21), 45), BOUNDS[4])


def test_random_shapes(backend: CPUBackend) -> None:
    rng = np.random.default_rng(3)
    taken = 0
    while taken < 12:
        x_shape = (
            int(rng.integers(1, 3)),
            *(int(n) for n in rng.integers(1, 40, 2)),
            int(rng.integers(1, 80)),
        )
        begins, ends = ((int(p) for p in rng.integers(0, 3, 2)) for _ in range(2))
        pads, after = tuple(begins), tuple(ends)
        if min(map(out_size, x_shape[1:3], (3, 3), (1, 1), (1, 1), pads, after)) < 1:
            continue
        case, expected = winograd_case(x_shape, int(rng.integers(20, 160)), pads, after)
        assert case.compute is not None
        if not results_of(case.compute.space, x_shape[3], host_tile(), backend.jobs.thread_count):
            continue
        (step,) = tuned_plan(backend, case).steps
        assert getattr(step.kernel, "name", "") == "winograd"
        check(backend, case, expected, BOUNDS[4])
        taken += 1


@pytest.mark.parametrize("channels", [64, 256])
def test_rounding_errors_stay_small(
    backend: CPUBackend, monkeypatch: pytest.MonkeyPatch, results: int, channels: int
) -> None:
    """What comes out of an activation has a mean, so errors do not cancel as they do for plain noise."""
    forced(monkeypatch, results, tiles=8)
    case, expected = winograd_case((1, 26, 26, channels), 64, epilogue="residual", scale=3.0)
    x = np.abs(case.arrays["x"])
    case.arrays["x"][:] = x
    expected = np.moveaxis(
        conv_expected(np.moveaxis(x, 3, 1), case.arrays["w"], (1, 1), (1, 1), (1, 1), (1, 1), 1), 1, 3
    )
    got = run_tuned(backend, case).reshape(expected.shape) - case.arrays["other"].astype(np.float64)
    error = np.abs(got - expected) / np.abs(expected).max()
    assert error.max() < BOUNDS[results]
    assert np.sqrt((error**2).mean()) < BOUNDS[results] / 8


@pytest.mark.parametrize("width", [8, 32])
def test_weights_are_transformed_in_float64(results: int, width: int) -> None:
    w = np.random.default_rng(1).standard_normal((37, 11, 3, 3)).astype(np.float32)
    size = results + 2
    g = filter_matrix(results)
    expected = np.einsum("ia,mcab,jb->mijc", g, w.astype(np.float64), g).reshape(37, size * size, 11)
    packed = pack_weights(w, results, width).reshape(-1, size * size, 11, width)
    unpacked = packed.transpose(0, 3, 1, 2).reshape(-1, size * size, 11)
    np.testing.assert_allclose(unpacked[:37], expected, rtol=1e-7, atol=1e-9)
    assert not unpacked[37:].any()


@pytest.mark.parametrize("changes", [
    {"strides": (2, 2)}, {"dilations": (2, 2)}, {"group": 2}, {"x_first": True}, {"channels_last": False},
])  # fmt: skip
def test_other_convolutions_are_left_alone(backend: CPUBackend, changes: dict[str, Any]) -> None:
    case, _ = winograd_case((1, 28, 28, 64), 64, **changes)
    assert case.compute is not None
    tuner = Tuner(case.compute, lambda name, make: name, lambda count, dtype: "scratch")
    left: list[Compute] = []

    def direct(compute: Compute, *_: object) -> bool:
        left.append(compute)
        return True

    assert winograd.tune_winograd(case.compute, tuner, 2, direct)
    assert left == [case.compute]
    assert not tuner.steps


def results_of(space: tuple[int, ...], channels: int, tile: Tile, threads: int) -> int:
    """The size of tiles that are chosen, 0 for the direct way."""
    return choose_algorithm(space, channels, tile, threads).partition.results


def test_few_channels_or_pixels_are_left_to_the_direct_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd_partition, "_FLOPS_PER_NS", 11.5)  # whatever processor this is
    assert not results_of((1, 224, 224, 64), 3, AVX512, 2)
    assert not results_of((1, 1, 1, 512), 512, AVX512, 2)


@pytest.mark.parametrize("tile", [AVX512, AVX2, NEON, PORTABLE])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_cuts_are_within_their_limits(tile: Tile, threads: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        channels, m = (int(n) for n in rng.integers(1, 1200, 2))
        space = (int(rng.integers(1, 4)), *(int(n) for n in rng.integers(1, 120, 2)), m)
        choice = choose_algorithm(space, channels, tile, threads)
        partition = choice.partition
        if not partition.results:
            continue
        deep = -(-channels // tile.lanes) * tile.lanes
        rows = (partition.tiles | 1) * deep + partition.tiles * partition.columns + tile.lanes
        assert 4 * (partition.results + 2) ** 2 * rows <= scratch_bytes(tile)
        assert 0 < partition.tiles <= partition.share
        assert partition.columns <= 128
        assert partition.columns % tile.width == 0
        assert partition.group_columns % tile.width == 0
        assert choice.task_ns > 0


def test_the_switch_limits_the_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    space = (1, 56, 56, 64)

    def chosen() -> int:
        return results_of(space, 64, AVX512, 2)

    assert chosen() == 4
    monkeypatch.setattr(winograd_partition, "LARGEST", 2)
    assert chosen() == 2
    monkeypatch.setattr(winograd_partition, "LARGEST", 0)
    assert chosen() == 0


def test_the_switch_is_an_environment_variable() -> None:
    text = "from engine.backends.cpu.kernels.convolution.winograd_partition import LARGEST; print(LARGEST)"
    environment = {**os.environ, "GAMEGLUE_WINOGRAD": "2"}
    run = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True)
    assert run.stdout.strip() == "2", run.stderr
