"""DeformConv, Col2Im, MaxUnpool and AffineGrid against ONNX's reference or plain loops, on every backend."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import floor, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.independent import by_reference
from tests.engine.operators.single import one_layer, run
from tests.onnx_cases import disagreement

Ints = Sequence[int]


def sampled(plane: np.ndarray, place: Sequence[float]) -> float:
    """Linear interpolation with zeros outside."""
    total = 0.0
    for corner in product((0, 1), repeat=plane.ndim):
        at = [floor(p) + c for p, c in zip(place, corner, strict=True)]
        if all(0 <= i < n for i, n in zip(at, plane.shape, strict=True)):
            total += prod(1 - abs(p - i) for p, i in zip(place, at, strict=True)) * plane[tuple(at)]
    return total


def deform_conv(
    x: np.ndarray, w: np.ndarray, offset: np.ndarray, b: np.ndarray, mask: np.ndarray, strides: Ints,
    dilations: Ints, pads: Ints, group: int, sets: int,
) -> np.ndarray:  # fmt: skip
    """The specification's formula, one product at a time."""
    out, kernel, axes = offset.shape[2:], w.shape[2:], x.ndim - 2
    offset = offset.reshape(len(x), sets, *kernel, axes, *out)
    mask = mask.reshape(len(x), sets, *kernel, *out)
    y = np.zeros((len(x), len(w), *out))
    for n, m, *at in np.ndindex(y.shape):
        y[(n, m, *at)] = b[m]
        for own, *tap in np.ndindex(w.shape[1:]):
            c = m // (len(w) // group) * w.shape[1] + own
            where = (n, c // (x.shape[1] // sets), *tap)
            place = [
                at[a] * strides[a] - pads[a] + tap[a] * dilations[a] + offset[(*where, a, *at)]
                for a in range(axes)
            ]
            y[(n, m, *at)] += w[(m, own, *tap)] * mask[(*where, *at)] * sampled(x[n, c], place)
    return y


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("size", [(5, 6), (7,), (3, 4, 3)])
def test_deform_conv(size: tuple[int, ...], group: int, rng: np.random.Generator) -> None:
    axes = len(size)
    strides, dilations, pads = (1, 2, 1)[:axes], (2, 1, 1)[:axes], (1, 0, 1)[:axes] * 2
    out = [(s + 2 * p - d - 1) // t + 1 for s, p, d, t in zip(size, pads, dilations, strides, strict=False)]
    x = rng.normal(size=(2, 4, *size)).astype(np.float32)
    w = rng.normal(size=(6, 4 // group, *(2,) * axes)).astype(np.float32)
    offset = (rng.normal(size=(2, 2 * 2**axes * axes, *out)) * 2).astype(np.float32)
    mask = rng.uniform(size=(2, 2 * 2**axes, *out)).astype(np.float32)
    b = rng.normal(size=6).astype(np.float32)
    attributes = {
        "strides": strides, "dilations": dilations, "pads": pads, "group": group, "offset_group": 2,
    }  # fmt: skip
    expected = deform_conv(x, w, offset, b, mask, strides, dilations, pads, group, 2)
    assert disagreement(run("DeformConv", [x, w, offset, b, mask], attributes)[0], expected) < 1e-5


def test_no_offset_reads_outside() -> None:
    x, w = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 1, 1), np.float32)
    offset = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e10, 0, -1, 2.5] * 2, np.float32)
    (found,) = run("DeformConv", [x, w, offset.reshape(1, 2, 3, 3)])
    np.testing.assert_array_equal(found.reshape(-1)[[3, 4, 5]], 0)
    assert found[0, 0, 2, 0] == 1


@pytest.mark.parametrize(
    ("image", "block", "attributes"),
    [
        ((5, 5), (2, 3), {}),
        ((6, 5), (2, 2), {"strides": (2, 1), "pads": (1, 0, 0, 2)}),
        ((7, 6), (3, 2), {"dilations": (2, 3), "strides": (1, 2), "pads": (1, 1, 1, 1)}),
        ((4, 5, 3), (2, 2, 1), {"strides": (1, 2, 1), "pads": (1, 0, 0, 0, 1, 0)}),
        ((9,), (3,), {"strides": (2,)}),
    ],
)
def test_col2im(image: Ints, block: Ints, attributes: dict[str, Any], rng: np.random.Generator) -> None:
    axes = len(image)
    pads, steps = attributes.get("pads", (0,) * 2 * axes), attributes.get("strides", (1,) * axes)
    spread = attributes.get("dilations", (1,) * axes)
    counts = [
        (image[a] + pads[a] + pads[a + axes] - spread[a] * (block[a] - 1) - 1) // steps[a] + 1
        for a in range(axes)
    ]
    x = rng.normal(size=(2, 3 * prod(block), prod(counts))).astype(np.float32)
    arrays = [x, np.array(image), np.array(block)]
    expected = by_reference("Col2Im", arrays, attributes)[0]
    assert disagreement(run("Col2Im", arrays, attributes)[0], expected) < 1e-6
    found = run("Col2Im", [x > 1, *arrays[1:]], attributes)[0]
    np.testing.assert_array_equal(found, by_reference("Col2Im", [x > 1, *arrays[1:]], attributes)[0])


def pooled(shape: Ints, rng: np.random.Generator, attributes: dict[str, Any]) -> list[np.ndarray]:
    """What MaxPool yields: the largest elements and where they were."""
    x = rng.normal(size=tuple(shape)).astype(np.float32)
    return run("MaxPool", [x], attributes, outputs=2)


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((2, 3, 8, 6), {"kernel_shape": (2, 2), "strides": (2, 2)}),
        ((2, 2, 7, 7), {"kernel_shape": (3, 3), "strides": (2, 2)}),
        ((1, 2, 6, 5), {"kernel_shape": (3, 2), "strides": (1, 1), "pads": (1, 0, 1, 1)}),
        ((2, 2, 8), {"kernel_shape": (2,), "strides": (3,)}),
        ((1, 2, 4, 4, 4), {"kernel_shape": (2, 2, 2), "strides": (2, 2, 2)}),
    ],
)
def test_max_unpool(shape: Ints, attributes: dict[str, Any], rng: np.random.Generator) -> None:
    arrays = pooled(shape, rng, attributes)
    expected = by_reference("MaxUnpool", arrays, attributes)[0]
    np.testing.assert_array_equal(run("MaxUnpool", arrays, attributes)[0], expected)
    larger = np.array([*expected.shape[:2], *(n + 2 for n in expected.shape[2:])])
    expected = by_reference("MaxUnpool", [*arrays, larger], attributes)[0]
    np.testing.assert_array_equal(run("MaxUnpool", [*arrays, larger], attributes)[0], expected)


def test_max_unpool_takes_positions_that_no_window_covers(rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 3, 4, 4)).astype(np.float32)
    indices = rng.integers(0, 2 * 3 * 8 * 8, x.shape)
    attributes = {"kernel_shape": (2, 2), "strides": (2, 2)}
    expected = by_reference("MaxUnpool", [x, indices], attributes)[0]
    np.testing.assert_array_equal(run("MaxUnpool", [x, indices], attributes)[0], expected)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 2, 3, 4)])
def test_affine_grid(size: Ints, align_corners: int, rng: np.random.Generator) -> None:
    axes = len(size) - 2
    theta = rng.normal(size=(2, axes, axes + 1)).astype(np.float32)
    attributes = {"align_corners": align_corners}
    expected = by_reference("AffineGrid", [theta, np.array(size)], attributes)[0]
    assert disagreement(run("AffineGrid", [theta, np.array(size)], attributes)[0], expected) < 1e-6


def test_the_only_element_of_an_aligned_axis_is_in_the_middle() -> None:
    theta = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    (found,) = run("AffineGrid", [theta, np.array([1, 1, 1, 3])], {"align_corners": 1})
    np.testing.assert_array_equal(found, [[[[-1, 0], [0, 0], [1, 0]]]])


@pytest.mark.spread
@settings(max_examples=8)
@given(
    name=st.sampled_from(("DeformConv", "Col2Im", "MaxUnpool", "AffineGrid")),
    images=st.sampled_from((0, 1, 2)),
    size=st.sampled_from((2, 5)),
)
def test_every_backend_agrees(
    channel: str, make_worker: MakeWorker, name: str, images: int, size: int
) -> None:
    rng = np.random.default_rng(size)
    attributes: dict[str, Any] = {}
    known: tuple[int, ...] = ()
    if name == "DeformConv":
        arrays = [
            rng.normal(size=shape).astype(np.float32)
            for shape in ((images, 2, size, 6), (4, 1, 2, 2), (images, 8, size - 1, 5))
        ]
        attributes, known = {"group": 2}, (1,)
    elif name == "Col2Im":
        arrays = [rng.normal(size=(images, 12, (size - 1) * 4)).astype(np.float32)]
        arrays, known = [*arrays, np.array([size, 5]), np.array([2, 2])], (1, 2)
    elif name == "MaxUnpool":
        attributes = {"kernel_shape": (2, 2), "strides": (2, 2)}
        arrays = pooled((images, 3, 2 * size, 4), rng, attributes)
    else:
        arrays = [rng.normal(size=(images, 2, 3)).astype(np.float32), np.array([images, 1, size, 3])]
        known = (1,)
    expected = run(name, arrays, attributes)[0]
    worker = make_worker(one_layer(name, arrays, attributes, known=known), channel)
    (found,) = answers(worker, {f"x{i}": a for i, a in enumerate(arrays) if i not in known})
    assert disagreement(found, expected) < (1e-5 if channel == "cpu" else 1e-4)


def test_errors_name_the_layer() -> None:
    x, w, one = np.zeros((1, 2, 4, 4), np.float32), np.zeros((2, 2, 3, 3), np.float32), np.ones(2, np.int64)
    offset = np.zeros((1, 18, 2, 2), np.float32)
    cases: tuple[tuple[str, list[np.ndarray], dict[str, Any], str], ...] = (
        ("DeformConv", [x[0], w, offset], {}, "takes x \\(N, C, ...\\)"),
        ("DeformConv", [x, w, offset[:, :9]], {}, "its offset is .* need \\[1, 18, 2, 2\\]"),
        ("DeformConv", [x, w, offset, one, offset], {}, "its mask is .* need \\[1, 9, 2, 2\\]"),
        ("DeformConv", [x, w, offset], {"group": 2}, "2 input channels do not fit"),
        ("DeformConv", [x, w, offset], {"offset_group": 3}, "cannot divide"),
        ("Col2Im", [x[0], one * 4, one * 2], {}, "takes \\(N, C \\* 4, 9\\)"),
        ("MaxUnpool", [x, x[0].astype(np.int64)], {"kernel_shape": (2, 2)}, "takes x"),
        ("MaxUnpool", [x, x.astype(np.int64)], {"kernel_shape": (2, 2), "strides": (1,)}, "do not fit 2"),
        ("MaxUnpool", [x, x.astype(np.int64), np.array(x.shape)], {"kernel_shape": (2, 2)}, "windows span"),
        ("AffineGrid", [x[0], np.array([1, 1, 2, 2])], {}, "takes theta \\(N, 2, 3\\)"),
    )
    for name, arrays, attributes, message in cases:
        with pytest.raises(ShapeError, match=f"layer 'it' \\({name}\\): .*{message}"):
            run(name, arrays, attributes)


@pytest.mark.spread
@pytest.mark.parametrize("sets", [1, 2, 3])
def test_masks_and_groups_of_offsets_on_every_backend(
    channel: str, make_worker: MakeWorker, sets: int, rng: np.random.Generator
) -> None:
    shapes = ((2, 24, 9, 11), (5, 24, 3, 3), (2, 18 * sets, 9, 11), (5,), (2, 9 * sets, 9, 11))
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    attributes = {"pads": (1, 1, 1, 1), "offset_group": sets}
    expected = run("DeformConv", arrays, attributes)[0]
    worker = make_worker(one_layer("DeformConv", arrays, attributes, known=(1, 3)), channel)
    np.testing.assert_allclose(answers(worker, *arrays[::2])[0], expected, atol=1e-4)
