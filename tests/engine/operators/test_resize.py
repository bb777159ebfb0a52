"""Resize against ONNX's reference evaluator and onnxruntime, whose formulas are their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from engine.base.errors import ShapeError
from engine.compiler.trace import Tracer
from engine.kernels.expr import nodes
from tests.engine.operators.single import one_layer, run
from tests.onnx_cases import disagreement
from tests.peer import open_session

Arrays = Sequence[np.ndarray | None]
SCALES = [(1.0, 1.0, 2.0, 3.0), (1.0, 1.0, 0.5, 0.7), (1.0, 1.0, 1.7, 2.3)]
COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners")


@pytest.fixture
def image(rng: np.random.Generator) -> np.ndarray:
    """Two channels of 7x9 random numbers."""
    return rng.random((1, 2, 7, 9)).astype(np.float32)


def proto(op_type: str, opset: int, arrays: Arrays, attributes: dict[str, Any]) -> onnx.ModelProto:
    """The layer as an ONNX model; all inputs but the first are constants."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    kind = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)  # type: ignore[union-attr]
    known = [
        numpy_helper.from_array(a, n) for a, n in zip(arrays[1:], names[1:], strict=True) if a is not None
    ]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **attributes)],
        "one",
        [helper.make_tensor_value_info("x0", kind, arrays[0].shape)],  # type: ignore[union-attr]
        [helper.make_tensor_value_info("y", kind, None)],
        known,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def reference(op_type: str, opset: int, arrays: Arrays, attributes: dict[str, Any]) -> np.ndarray:
    """What ONNX's own evaluator says."""
    evaluator = ReferenceEvaluator(proto(op_type, opset, arrays, attributes))
    return np.asarray(evaluator.run(None, {"x0": arrays[0]})[0])  # type: ignore[index]


def by_onnxruntime(op_type: str, opset: int, arrays: Arrays, attributes: dict[str, Any]) -> np.ndarray:
    """What onnxruntime says."""
    session = open_session(proto(op_type, opset, arrays, attributes).SerializeToString())
    return np.asarray(session.run(None, {"x0": arrays[0]})[0])


@pytest.mark.parametrize("scales", SCALES, ids=str)
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize(
    "attributes",
    [{"mode": "linear"}, {"mode": "cubic"}, {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
     {"mode": "linear", "antialias": 1}, {"mode": "cubic", "antialias": 1}],
    ids=str,
)  # fmt: skip
def test_blending(
    attributes: dict[str, Any], coordinates: str, scales: Sequence[float], image: np.ndarray
) -> None:
    attributes = attributes | {"coordinate_transformation_mode": coordinates}
    arrays = [image, None, np.array(scales, np.float32)]
    # The evaluator loses a whole index to rounding where a symmetric coordinate falls on an element.
    truth = by_onnxruntime if coordinates == "half_pixel_symmetric" else reference
    assert disagreement(run("Resize", arrays, attributes)[0], truth("Resize", 19, arrays, attributes)) < 1e-5


@pytest.mark.parametrize("scales", [(2.0, 2.5, 1.0, 1.0), (1.0, 0.5, 1.2, 3.0)], ids=str)
def test_any_axis_may_be_resized(scales: Sequence[float], image: np.ndarray) -> None:
    arrays = [image, None, np.array(scales, np.float32)]
    expected = reference("Resize", 19, arrays, {"mode": "linear"})
    assert disagreement(run("Resize", arrays, {"mode": "linear"})[0], expected) < 1e-5


@pytest.mark.parametrize("sizes", [(1, 2, 14, 9), (1, 2, 3, 20), (1, 2, 7, 1)], ids=str)
@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_nearest(coordinates: str, nearest: str, sizes: Sequence[int], image: np.ndarray) -> None:
    attributes = {"coordinate_transformation_mode": coordinates, "nearest_mode": nearest}
    arrays = [image, np.array([], np.float32), np.array([], np.float32), np.array(sizes)]
    expected = by_onnxruntime("Resize", 13, arrays, attributes)
    np.testing.assert_array_equal(run("Resize", arrays, attributes, opset=13)[0], expected)


def test_half_pixels_of_tensorflow(image: np.ndarray) -> None:
    attributes = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    arrays = [image, np.array([], np.float32), np.array([1, 1, 1.7, 0.6], np.float32)]
    expected = by_onnxruntime("Resize", 11, arrays, attributes)
    np.testing.assert_array_equal(run("Resize", arrays, attributes, opset=11)[0], expected)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop(mode: str, image: np.ndarray) -> None:
    roi = np.array([0, 0, 0.1, -0.2, 1, 1, 0.8, 1.2], np.float32)
    arrays = [image, roi, None, np.array([1, 2, 5, 11])]
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 4.5,
    }
    expected = reference("Resize", 19, arrays, attributes)
    assert (expected == 4.5).any()
    assert disagreement(run("Resize", arrays, attributes)[0], expected) < 1e-5


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop_by_scales(mode: str, image: np.ndarray) -> None:
    roi = np.array([0, 0, 0.13, -0.27, 1, 1, 0.77, 0.61], np.float32)
    arrays = [image, roi, np.array([1, 1, 1.7, 0.6], np.float32)]
    attributes = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize"}
    expected = by_onnxruntime("Resize", 19, arrays, attributes)
    assert disagreement(run("Resize", arrays, attributes)[0], expected) < 1e-5


@pytest.mark.parametrize("antialias", [0, 1])
@pytest.mark.parametrize("exclude_outside", [0, 1])
def test_cubic_volumes(antialias: int, exclude_outside: int, rng: np.random.Generator) -> None:
    volume = rng.random((1, 2, 5, 6, 4)).astype(np.float32)
    arrays = [volume, None, None, np.array([7, 4, 3])]
    attributes = {
        "mode": "cubic", "axes": (2, 3, 4), "antialias": antialias, "exclude_outside": exclude_outside,
    }  # fmt: skip
    expected = reference("Resize", 19, arrays, attributes)
    assert disagreement(run("Resize", arrays, attributes)[0], expected) < 1e-5


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(
    ("op_type", "opset", "scales"),
    [("Resize", 10, (1, 1, 0.6, 0.5)), ("Resize", 10, (1, 1, 1.5, 3.7)), ("Upsample", 9, (1, 1, 2, 3)),
     ("Upsample", 9, (1, 1, 1.5, 3.7)), ("Upsample", 7, (1, 1, 2, 2.6))],
)  # fmt: skip
def test_predecessors(
    op_type: str, opset: int, scales: Sequence[float], mode: str, image: np.ndarray
) -> None:
    attributes: dict[str, Any] = {"mode": mode}
    arrays: list[np.ndarray | None] = [image]
    if opset == 7:
        attributes["scales"] = [float(s) for s in scales]
    else:
        arrays.append(np.array(scales, np.float32))
    expected = by_onnxruntime(op_type, opset, arrays, attributes)
    assert disagreement(run(op_type, arrays, attributes, opset=opset)[0], expected) < 1e-5


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "float64"])
def test_types_are_picked_unchanged(dtype: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 127, (1, 1, 6, 6)).astype(dtype)
    arrays = [x, None, np.array([1, 1, 2, 3], np.float32)]
    np.testing.assert_array_equal(run("Resize", arrays)[0], x.repeat(2, 2).repeat(3, 3))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "float16", "float64"])
def test_types_are_blended_within_their_range(dtype: str, rng: np.random.Generator) -> None:
    low, high = (0.0, 255.0) if dtype == "uint8" else (-128.0, 127.0)
    x = rng.choice([low, high, 3.0], (1, 1, 6, 6)).astype(dtype)
    arrays = [x, None, np.array([1, 1, 1.7, 2.3], np.float32)]
    found, expected = (
        run("Resize", arrays, {"mode": "cubic"})[0],
        reference("Resize", 19, arrays, {"mode": "cubic"}),
    )
    assert found.dtype == expected.dtype
    if x.dtype.kind in "iu":
        # Where a blend of whole numbers ends near a half, float32 and float64 round it apart.
        assert np.abs(found.astype(np.float64) - expected.astype(np.float64)).max() <= 1
    else:
        assert disagreement(found, expected) < (2e-3 if dtype == "float16" else 1e-6)


def test_axes_that_keep_their_size_are_left_alone(image: np.ndarray) -> None:
    scales = np.array([1, 1, 2, 2], np.float32)
    model = one_layer("Resize", [image, None, scales], {"mode": "nearest"}, known=[2])
    (compute,) = Tracer(model).trace({"x0": image.shape}).computes
    assert compute.space == (2, 14, 18)
    assert sum(node.op == "load" for node in nodes(compute.body)) == 3


@pytest.mark.parametrize(
    ("arrays", "attributes", "message"),
    [
        ([None, None], {}, "either scales or sizes"),
        ([np.ones(4, np.float32), np.ones(4, np.int64)], {}, "either scales or sizes"),
        ([np.ones(3, np.float32), None], {}, "one scale above 0"),
        ([-np.ones(4, np.float32), None], {}, "one scale above 0"),
        ([None, np.array([1, 2, 0, 3])], {}, "one size above 0"),
        ([np.ones(4, np.float32), None], {"mode": "lanczos"}, "mode is 'lanczos'"),
        ([np.ones(4, np.float32), None], {"nearest_mode": "up"}, "nearest_mode is 'up'"),
        (
            [np.ones(4, np.float32), None],
            {"coordinate_transformation_mode": "x"},
            "coordinate_transformation_mode is",
        ),
        (
            [np.ones(4, np.float32), None],
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            "a roi of 8",
        ),
        ([None, np.ones(4, np.int64)], {"keep_aspect_ratio_policy": "x"}, "keep_aspect_ratio_policy is"),
        ([np.ones(4, np.float32), None], {"antialias": 1}, "antialias needs"),
    ],
)
def test_errors_name_the_layer(
    arrays: Arrays, attributes: dict[str, Any], message: str, image: np.ndarray
) -> None:
    with pytest.raises(ShapeError, match=f"layer 'it' \\(Resize\\): .*{message}"):
        run("Resize", [image, None, *arrays], attributes)
