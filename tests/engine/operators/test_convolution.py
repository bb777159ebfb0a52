"""Convolutions, plain and transposed, of uneven geometry: padding at one end, kernels of 1, leftovers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import ModelLoader
from engine.compiler.trace import Tracer
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.independent import hold_by_onnxruntime
from tests.engine.operators.single import one_layer, run
from tests.graphs import node, proto
from tests.networks import error
from tests.peer import open_session

PADS = [(0, 0, 1, 2), (1, 2, 0, 0), (0, 1, 0, 0), (3, 0, 1, 1)]
STRIDES = [(1, 1), (2, 1), (2, 3)]


def many_convolutions(kernel: tuple[int, int], group: int) -> bytes:
    """One convolution for every padding, stride and dilation, each an output."""
    rng = np.random.default_rng(sum(kernel) + group)
    nodes, constants = [], {}
    for i, (pads, strides, dilations) in enumerate(itertools.product(PADS, STRIDES, [(1, 1), (1, 2)])):
        constants[f"w{i}"] = rng.normal(0, 0.3, (9 if group == 1 else 8, 4 // group, *kernel)).astype(
            np.float32
        )
        nodes.append(
            node(
                "Conv",
                ["x", f"w{i}"],
                [f"y{i}"],
                pads=pads,
                strides=strides,
                dilations=dilations,
                group=group,
            )
        )
    outputs = {f"y{i}": ("float32", None) for i in range(len(nodes))}
    return proto(nodes, {"x": ("float32", ["n", 4, "h", "w"])}, outputs, constants)


@pytest.mark.spread
@pytest.mark.parametrize("kernel", [(1, 1), (2, 3)])
@pytest.mark.parametrize("group", [1, 4])
def test_uneven_geometry(kernel: tuple[int, int], group: int, channel: str, make_worker: MakeWorker) -> None:
    hold_by_onnxruntime(many_convolutions(kernel, group), ((1, 4, 5, 6), (2, 4, 3, 17)), channel, make_worker)


ODD_WINDOWS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 40, 40), (8, 3, 40, 40), {}),
    ((1, 1, 50, 60), (5, 1, 50, 60), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
    ((1, 4, 40, 44), (6, 2, 36, 33), {"pads": (1, 0, 2, 3), "group": 2}),
    ((1, 20, 20, 70), (24, 20, 33, 33), {"pads": (16, 16, 16, 16)}),
    ((1, 2, 1, 3000), (4, 2, 1, 1100), {"pads": (0, 40, 0, 0)}),
    ((1, 2, 3000, 1), (4, 2, 1100, 1), {"strides": (300, 1)}),
    ((2, 1, 6000), (34, 1, 1200), {"strides": (400,), "pads": (600, 600)}),
    ((1, 32, 1, 1), (32, 32, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 8, 2, 7), (16, 8, 5, 3), {"pads": (2, 1, 2, 1)}),
    ((1, 3, 4, 1), (6, 3, 7, 7), {"pads": (9, 3, 9, 3), "strides": (7, 1)}),
    ((1, 8, 4, 4), (8, 1, 7, 7), {"pads": (3, 3, 3, 3), "group": 8}),
    ((1, 3, 9, 9), (6, 3, 7, 7), {"pads": (6, 6, 6, 6), "dilations": (2, 3), "strides": (2, 1)}),
]
"""Windows as large as the picture, and such that some of their rows meet padding only."""


@pytest.mark.spread
@pytest.mark.parametrize("is_open", [False, True])
def test_windows_as_large_as_the_picture(is_open: bool, channel: str, make_worker: MakeWorker) -> None:
    rng = np.random.default_rng(0)
    for shape, weights, attributes in ODD_WINDOWS:
        w = rng.normal(0, 1 / np.sqrt(np.prod(weights[1:])), weights).astype(np.float32)
        names: list[int | str | None] = ["n", shape[1], "h", "w"]
        sizes = names[: len(shape)] if is_open else [*shape]
        layer = node("Conv", ["x", "w"], ["y"], **attributes)
        source = proto([layer], {"x": ("float32", sizes)}, {"y": ("float32", None)}, {"w": w})
        x = rng.normal(size=shape).astype(np.float32)
        (expected,) = open_session(source).run(None, {"x": x})
        worker = make_worker(ModelLoader.load(source), channel)
        assert error(answers(worker, x)[0], expected) < 1e-5, (shape, weights)


TRANSPOSED: list[tuple[tuple[int, int], dict[str, Any]]] = [
    ((2, 2), {"strides": (2, 2)}),
    ((4, 4), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1), "output_padding": (1, 1)}),
    ((3, 5), {"strides": (2, 3), "pads": (1, 0, 0, 4), "output_padding": (0, 2)}),
    ((1, 2), {"strides": (3, 4), "output_padding": (2, 3)}),
    ((3, 3), {"pads": (1, 2, 0, 1)}),
    ((3, 2), {"strides": (1, 2), "dilations": (2, 1), "pads": (1, 0, 4, 0)}),
    ((3, 2), {"strides": (2, 1), "dilations": (2, 3), "pads": (1, 0, 0, 2)}),
    ((3, 3), {"strides": (2, 2), "auto_pad": "SAME_UPPER"}),
    ((4, 3), {"strides": (3, 1), "auto_pad": "SAME_LOWER"}),
    ((3, 3), {"strides": (2, 2), "output_shape": (12, 9)}),
]
"""Kernels and attributes of transposed convolutions; inputs have 3 rows or more, and 2 columns."""


@pytest.mark.spread
@pytest.mark.parametrize("group", [1, pytest.param(2, marks=pytest.mark.long), 4])
def test_transposed_convolution(group: int, channel: str, make_worker: MakeWorker) -> None:
    """Known weights, whose outputs are made by phases, against onnxruntime, with a bias and activation."""
    rng = np.random.default_rng(group)
    constants = {"b": rng.normal(size=4).astype(np.float32)}
    nodes = []
    for i, (kernel, attributes) in enumerate(TRANSPOSED):
        constants[f"w{i}"] = rng.normal(0, 0.3, (4, 4 // group, *kernel)).astype(np.float32)
        inputs = ["x", f"w{i}", "b"]
        nodes.append(node("ConvTranspose", inputs, [f"t{i}"], group=group, **attributes))
        nodes.append(node("Relu", [f"t{i}"], [f"y{i}"]))
    outputs = {f"y{i}": ("float32", None) for i in range(len(TRANSPOSED))}
    source = proto(nodes, {"x": ("float32", ["n", 4, "h", "w"])}, outputs, constants)
    hold_by_onnxruntime(source, ((1, 4, 5, 4), (3, 4, 6, 5)), channel, make_worker)


@given(st.data())
@settings(max_examples=150)
def test_phases_are_the_formula(data: st.DataObject) -> None:
    """Weights that are known, and the same ones as an input, whose outputs ask every tap."""
    draw = data.draw
    spatial, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))

    def each(low: int, high: int, count: int = spatial) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(count))

    kernel, strides = each(1, 5), each(1, 4)
    attributes: dict[str, Any] = {"group": group, "strides": strides, "dilations": each(1, 2)}
    extents = [(n - 1) * d + 1 for n, d in zip(kernel, attributes["dilations"], strict=True)]
    sizes = each(1, 4)
    full = [(n - 1) * s + e for n, s, e in zip(sizes, strides, extents, strict=True)]
    match draw(st.sampled_from(["pads", "none", "SAME_UPPER", "SAME_LOWER", "VALID", "shape"])):
        case "pads":
            attributes["output_padding"] = tuple(draw(st.integers(0, s - 1)) for s in strides)
            begins = [draw(st.integers(0, n - 1)) for n in full]
            attributes["pads"] = (
                *begins,
                *(draw(st.integers(0, n - 1 - p)) for n, p in zip(full, begins, strict=True)),
            )
        case "shape":
            attributes["output_shape"] = tuple(draw(st.integers(1, n + 3)) for n in full)
        case "none":
            pass
        case mode:
            attributes["auto_pad"] = mode
    rng = np.random.default_rng(0)
    x = rng.normal(size=(draw(st.integers(1, 2)), 2 * group, *sizes))
    w, b = rng.normal(size=(2 * group, draw(st.integers(1, 2)), *kernel)), None
    if draw(st.booleans()):
        b = rng.normal(size=w.shape[1] * group)
    (by_phases,) = run("ConvTranspose", [x, w, b], attributes, known=(1,))
    (by_taps,) = run("ConvTranspose", [x, w, b], attributes)
    np.testing.assert_allclose(by_phases, by_taps, atol=1e-12)


def test_transposed_convolution_of_half_precision() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 3, 4, 5)).astype(np.float16)
    w = rng.normal(size=(3, 2, 4, 4)).astype(np.float16)
    attributes = {"strides": (2, 2), "pads": (1, 1, 1, 1)}
    (actual,) = run("ConvTranspose", [x, w], attributes, known=(1,))
    (expected,) = run("ConvTranspose", [x.astype(np.float64), w.astype(np.float64)], attributes)
    assert actual.dtype == np.float16
    assert error(actual, expected) < 2e-3


def test_transposed_convolution_of_no_images() -> None:
    x, w = np.zeros((0, 3, 4, 5), np.float32), np.zeros((3, 2, 4, 4), np.float32)
    (y,) = run("ConvTranspose", [x, w], {"strides": (2, 2)}, known=(1,))
    assert y.shape == (0, 2, 10, 12)


@pytest.mark.parametrize(("kernel", "strides"), [((4, 4), (2, 2)), ((2, 2), (2, 2)), ((3, 3), (1, 1))])
def test_known_weights_make_it_a_convolution(kernel: tuple[int, int], strides: tuple[int, int]) -> None:
    x, w = np.zeros((2, 3, 4, 5), np.float32), np.zeros((3, 2, *kernel), np.float32)
    model = one_layer("ConvTranspose", [x, w], {"strides": strides}, known=(1,))
    trace = Tracer(model).trace({"x0": x.shape})
    assert [c.hint.kind for c in trace.computes if c.hint is not None] == ["conv"]
    assert len(trace.computes) == (1 if strides == (1, 1) else 2)


TOUCHED: list[dict[str, tuple[int, ...]]] = [
    {"strides": (2, 2)},
    {"strides": (3, 4), "pads": (1, 0, 2, 1)},
    {"strides": (2, 1), "output_padding": (1, 0)},
    {"dilations": (2, 3)},
    {"strides": (3, 2), "dilations": (2, 2)},
]


@pytest.mark.spread("known")
@pytest.mark.parametrize("known", [True, False])
def test_nan_reaches_what_it_touches(make_worker: MakeWorker, channel: str, known: bool) -> None:
    rng = np.random.default_rng(7)
    x, w = rng.normal(size=(1, 3, 4, 5)).astype(np.float32), rng.normal(size=(3, 5, 3, 3)).astype(np.float32)
    x[0, 1, 2, 3] = np.nan
    for attributes in TOUCHED if known else TOUCHED[:1]:
        layer = node("ConvTranspose", ["x", "w"], ["y"], **attributes)
        feeds = {"x": x} if known else {"x": x, "w": w}
        declared = {name: ("float32", list(a.shape)) for name, a in feeds.items()}
        made = proto([layer], declared, {"y": ("float32", None)}, {"w": w} if known else {})
        (expected,) = open_session(made).run(None, feeds)
        (found,) = answers(make_worker(ModelLoader.load(made), channel), feeds)
        assert 0 < np.isnan(expected).sum() < expected.size
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=str(attributes))


@pytest.mark.spread
def test_integers_with_any_number_of_results(channel: str, make_worker: MakeWorker) -> None:
    """Planes of a few results and of many, with one worker."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.integers(-128, 127, (40, 36, 3, 3)).astype(np.int8), "z": np.array(7, np.uint8)}
    nodes = [node("ConvInteger", ["x", "w", "z"], ["y"], strides=(2, 2), pads=(1,) * 4)]
    source = proto(nodes, {"x": ("uint8", ["n", 36, "h", "w"])}, {"y": ("int32", None)}, weights)
    worker = make_worker(ModelLoader.load(source), channel)
    for shape in ((1, 36, 4, 4), (2, 36, 9, 8), (1, 36, 1, 1), (3, 36, 6, 2), (1, 36, 7, 7)):
        x = rng.integers(0, 255, shape, endpoint=True).astype(np.uint8)
        (expected,) = open_session(source).run(None, {"x": x})
        np.testing.assert_array_equal(answers(worker, x)[0], expected)
