"""GridSample against onnxruntime and ONNX's reference, well beyond the borders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from engine.base.errors import ShapeError
from tests.engine.operators.independent import by_reference
from tests.engine.operators.single import run
from tests.onnx_cases import disagreement
from tests.peer import open_session


def by_onnxruntime(x: np.ndarray, grid: np.ndarray, attributes: Mapping[str, Any], opset: int) -> np.ndarray:
    """What onnxruntime says."""
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in (("x", x), ("g", grid))]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("GridSample", ["x", "g"], ["y"], **attributes)
    graph = helper.make_graph([node], "one", infos, [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = open_session(model.SerializeToString())
    return np.asarray(session.run(None, {"x": x, "g": grid})[0])


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_planes(mode: str, padding: str, align_corners: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 3, 5, 4)).astype(np.float32)
    grid = rng.uniform(-3.5, 3.5, (2, 9, 8, 2)).astype(np.float32)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
    expected = by_onnxruntime(x, grid, attributes, 16)
    assert disagreement(run("GridSample", [x, grid], attributes, opset=16)[0], expected) < 2e-5


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_volumes(mode: str, padding: str, rng: np.random.Generator) -> None:
    x = rng.normal(size=(1, 2, 3, 4, 2)).astype(np.float32)
    grid = rng.uniform(-2, 2, (1, 3, 3, 4, 3)).astype(np.float32)
    attributes = {"mode": mode, "padding_mode": padding}
    expected = by_onnxruntime(x, grid, attributes, 20)
    assert disagreement(run("GridSample", [x, grid], attributes, opset=20)[0], expected) < 2e-5


@pytest.mark.parametrize("padding", ["zeros", "reflection"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_cubic_volumes(padding: str, align_corners: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(1, 2, 4, 5, 3)).astype(np.float32)
    grid = rng.uniform(-1.3, 1.3, (1, 3, 3, 2, 3)).astype(np.float32)
    attributes = {"mode": "cubic", "padding_mode": padding, "align_corners": align_corners}
    (expected,) = by_reference("GridSample", [x, grid], attributes)
    assert disagreement(run("GridSample", [x, grid], attributes)[0], expected) < 2e-5


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_no_coordinate_reads_outside(mode: str, padding: str) -> None:
    x = np.ones((1, 1, 3, 3), np.float32)
    grid = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e10], np.float32).reshape(1, 1, 3, 2)
    (found,) = run("GridSample", [x, grid], {"mode": mode, "padding_mode": padding})
    assert found.shape == (1, 1, 1, 3)


def test_errors_name_the_layer() -> None:
    x, grid = np.zeros((1, 1, 3, 3), np.float32), np.zeros((1, 2, 2, 2), np.float32)
    for arrays, attributes, message in (
        ([x, grid[..., :1]], {}, "takes x"),
        ([x, grid], {"mode": "area"}, "mode 'area'"),
        ([x, grid], {"padding_mode": "wrap"}, "'wrap'"),
        ([x[:, :, :0], grid], {}, "it has no elements"),
    ):
        with pytest.raises(ShapeError, match=f"layer 'it' \\(GridSample\\): .*{message}"):
            run("GridSample", arrays, attributes)
