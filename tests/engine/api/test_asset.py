"""Models from every kind of source, and references to them."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine.api.asset import ModelAsset, ModelLoader
from engine.base.errors import InputError, ModelImportError


def proto(op_type: str = "Relu", external: bool = False) -> onnx.ModelProto:
    """y = op(x + w) for x: (batch, time, 3)."""
    weights = numpy_helper.from_array(np.ones(3, np.float32), "w")
    if external:
        weights.ClearField("raw_data")
        weights.data_location = TensorProto.EXTERNAL
        weights.external_data.add(key="location", value="weights.bin")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["t"]), helper.make_node(op_type, ["t"], ["y"], name="last")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "time", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "time", 3])],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


DATA = proto().SerializeToString()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(DATA)
    return path


SOURCES: dict[str, Callable[[Path], Any]] = {
    "path": lambda path: path,
    "text": str,
    "bytes": lambda path: path.read_bytes(),
    "memory": lambda path: io.BytesIO(path.read_bytes()),
    "asset": ModelAsset,
    "asset of bytes": lambda path: ModelAsset(path.read_bytes()),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("how", [ModelLoader.load, ModelLoader.read])
def test_every_kind_of_source_loads(path: Path, kind: str, how: Any) -> None:
    model = how(SOURCES[kind](path))
    assert [item.shape for item in model.inputs] == [("batch", "time", 3)]
    assert [item.name for item in model.outputs] == ["y"]
    assert model.source == (str(path) if kind in ("path", "text", "asset") else model.source)


def test_an_open_file_finds_its_weights(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(proto(external=True).SerializeToString())
    (tmp_path / "weights.bin").write_bytes(np.full(3, 5, np.float32).tobytes())
    with path.open("rb") as file:
        from_file = ModelLoader.read(file)
    for model in (from_file, ModelLoader.read(path), ModelLoader.read(ModelAsset(path))):
        np.testing.assert_array_equal(model.constants["w"], [5, 5, 5])
    with pytest.raises(ModelImportError, match="'w'.*by its path"):
        ModelLoader.read(path.read_bytes())


def test_read_leaves_the_layers_as_they_are(path: Path) -> None:
    assert [layer.op_type for layer in ModelLoader.read(path).layers] == ["Add", "Relu"]


@pytest.mark.parametrize("how", [ModelLoader.load, ModelLoader.read])
def test_dimensions_are_fixed_on_request(path: Path, how: Any) -> None:
    model = how(path, dims={"batch": np.int64(2)})
    assert model.inputs[0].shape == (2, "time", 3)
    assert model.outputs[0].shape == (2, "time", 3)
    assert how(ModelAsset(path), dims={"batch": 1, "time": 4}).inputs[0].shape.is_static


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        ({"batsh": 1}, "'batsh'; its named dimensions are 'batch', 'time'"),
        ({"batch": 0}, "'batch'.*at least 1"),
        ({"batch": 1.5}, "'batch'.*integer"),
        ({"batch": "1"}, "'batch'.*integer"),
    ],
)
def test_wrong_dimensions_are_refused(path: Path, dims: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ModelLoader.load(path, dims=dims)


def test_a_model_without_named_dimensions_says_so(path: Path) -> None:
    static = proto()
    for dim in static.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_value = 3
    with pytest.raises(InputError, match="none of its dimensions has a name"):
        ModelLoader.load(static.SerializeToString(), dims={"batch": 1})


@pytest.mark.parametrize(
    "source", [None, 5, ["net.onnx"], io.StringIO("text")], ids=["none", "number", "list", "text file"]
)
def test_what_is_no_source_is_refused(source: Any) -> None:
    with pytest.raises(InputError):
        ModelLoader.load(source)


def test_a_closed_file_is_refused(path: Path) -> None:
    with path.open("rb") as file:
        pass
    with pytest.raises(ModelImportError, match="cannot read"):
        ModelLoader.load(file)


def test_unsupported_operators_and_attributes_are_told_together() -> None:
    model = proto("NoSuchOperator")
    model.graph.node[0].attribute.append(helper.make_attribute("surprise", 1))
    with pytest.raises(ModelImportError) as caught:
        ModelLoader.load(model.SerializeToString())
    assert "NoSuchOperator (opset 17) x1" in str(caught.value)
    assert "surprise" in str(caught.value)
    assert "2 of the 2 layers" in str(caught.value)


def test_an_asset_reads_nothing_until_asked(tmp_path: Path) -> None:
    path = tmp_path / "later.onnx"
    asset = ModelAsset(path)
    with pytest.raises(ModelImportError, match="no file"):
        asset.load()
    path.write_bytes(DATA)
    model = asset.load()
    assert asset.load() is model
    assert ModelLoader.load(asset) is model
    asset.unload()
    assert asset.load() is not model


def test_assets_of_one_file_are_equal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    assets = [ModelAsset(path), ModelAsset(str(path)), ModelAsset("net.onnx"), ModelAsset("./net.onnx")]
    assert len(set(assets)) == 1
    assert ModelAsset("other.onnx") not in assets
    assert ModelAsset(DATA) == ModelAsset(bytes(DATA)) != ModelAsset(path)
    monkeypatch.chdir(os.sep)
    assert assets[2].load()


def test_an_asset_describes_itself(path: Path) -> None:
    asset = ModelAsset(path)
    assert (asset.name, asset.path) == ("net", path)
    assert repr(asset) == f"ModelAsset({str(path)!r})"
    assert repr(ModelAsset(b"12345")) == "ModelAsset(5 bytes)"
    assert ModelAsset(b"").path is None
    copy = pickle.loads(pickle.dumps(asset))
    assert copy == asset
    with pytest.raises(InputError, match="path or bytes"):
        ModelAsset(5)  # type: ignore[arg-type]
