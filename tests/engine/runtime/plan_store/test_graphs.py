"""Graphs on disk: what is read back is what was read from the model's file, and nothing stale ever is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from engine import BackendType, Model, ModelLoader, Worker
from engine.api import asset
from engine.api.custom_operators import operator, remove_operator
from engine.base.errors import ModelImportError
from engine.graph.model import Input, Layer, Output
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.runtime.plan_store import files, graphs
from tests.graphs import node, proto
from tests.networks import LIGHT_NAMES, TRAINED_NAMES, light_network, reference, trained_path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Graphs of any size are stored, in a folder of the test's own."""
    kept = tmp_path / "stored"
    kept.mkdir()
    monkeypatch.setenv("GAMEGLUE_STORED_PLANS", "on")
    monkeypatch.setattr(files, "folder", lambda: kept)
    monkeypatch.setattr(graphs, "LEAST_LAYERS", 1)
    return kept


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files whose graphs were read in full."""
    found: list[str] = []
    read = asset._read

    def noted(data: bytes, folder: Path | None, name: str, dims: Any) -> Model:
        found.append(name)
        return read(data, folder, name, dims)

    monkeypatch.setattr(asset, "_read", noted)
    return found


def network(scale: float = 1.0, batch: int | str = "n") -> bytes:
    """Weights that are large and small, folded from others, and transposed; attributes of every kind."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (scale * rng.normal(size=shape)).astype(np.float32)

    known = {"w": normal(32, 3, 5, 5), "v": normal(32, 8, 3, 3), "p": normal(8 * 8 * 8, 7), "few": normal(7)}
    for part, size in (("a", 32), ("b", 16)):
        known |= {f"{part}.{n}": normal(size) for n in ("scale", "shift", "mean")}
        known |= {f"{part}.var": 1.0 + rng.random(size).astype(np.float32)}
    nodes = [
        node("Conv", ["x", "w"], ["1"], pads=[2] * 4),
        node("BatchNormalization", ["1", "a.scale", "a.shift", "a.mean", "a.var"], ["2"]),
        node("Relu", ["2"], ["3"]),
        node("ConvTranspose", ["3", "v"], ["4"], pads=[1] * 4, group=2),
        node("BatchNormalization", ["4", "b.scale", "b.shift", "b.mean", "b.var"], ["5"]),
        node("MaxPool", ["5"], ["6"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Slice", ["6", "from", "to", "axes"], ["7"]),
        node("Flatten", ["7"], ["8"]),
        node("MatMul", ["8", "p"], ["9"]),
        node("Add", ["9", "few"], ["y"]),
    ]
    known |= {"from": np.array([0]), "to": np.array([8]), "axes": np.array([1])}
    shape = [batch, 3, 16, 16]
    return proto(nodes, {"x": ("float32", shape)}, {"y": ("float32", [batch, 7])}, known)


def branches() -> bytes:
    """A layer that holds two graphs, which use names of the one around them."""

    def body(op_type: str) -> onnx.GraphProto:
        known = [numpy_helper.from_array(np.full(4, 2.0, np.float32), "two")]
        out = onnx.helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, [4])
        return onnx.helper.make_graph([node(op_type, ["x", "two"], ["r"])], "body", [], [out], known)

    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=body("Mul"), else_branch=body("Sub")),
    ]
    known = {"zero": np.array(0.0, np.float32)}
    return proto(nodes, {"x": ("float32", [4])}, {"y": ("float32", [4])}, known)


FIELDS: dict[type, str] = {
    Model: "name inputs outputs layers constants opsets producer source metadata identity",
    Layer: "op_type name inputs outputs attributes domain version subgraphs",
    Input: "name dtype shape kind",
    Output: "name dtype shape kind",
}


def same(one: Any, other: Any) -> bool:
    """Whether two models, or parts of them, are alike in all that they hold."""
    if type(one) is not type(other):
        return False
    if type(one) in FIELDS:
        return all(same(getattr(one, name), getattr(other, name)) for name in FIELDS[type(one)].split())
    if isinstance(one, np.ndarray):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and one.flags.writeable == other.flags.writeable and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("source", [network(), branches()], ids=["network", "branches"])
def test_what_is_read_back_is_what_was_read(source: bytes, folder: Path, parsed: list[str]) -> None:
    first, second = ModelLoader.load(source), ModelLoader.load(source)
    assert parsed == ["<bytes>"]
    assert [path.suffix for path in folder.iterdir()] == [".graph"]
    assert same(first, second)
    assert not first.constant_factories
    assert not second.constant_factories
    assert first.identity


@pytest.mark.parametrize("name", TRAINED_NAMES)
def test_trained_networks_are_read_back(name: str, parsed: list[str]) -> None:
    path = trained_path(name)
    if not path.exists():
        pytest.skip("the folder of trained networks is not here")
    models = [ModelLoader.load(path) for _ in range(2)]
    assert len(parsed) == 1
    assert same(*models)


@pytest.mark.long
@pytest.mark.parametrize("name", LIGHT_NAMES)
def test_large_networks_are_read_back(name: str, parsed: list[str]) -> None:
    source = light_network(name)
    models = [ModelLoader.load(source) for _ in range(2)]
    assert len(parsed) == (1 if len(source) <= graphs.LARGEST_FILE else 2)
    assert same(*models)


def test_a_graph_that_was_read_back_runs_like_the_one_that_was_read(folder: Path) -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, 16, 16)).astype(np.float32)
    wanted = reference(network(), {"x": x})["y"]
    found = []
    for _ in range(3):
        with Worker(ModelLoader.load(network()), BackendType.CPU) as worker:
            worker.schedule(x)
            found.append(worker.peek_output().readback_and_clone().download_to_array())
    np.testing.assert_allclose(found[0], wanted, rtol=1e-3, atol=1e-3)
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
    assert sorted(path.suffix for path in folder.iterdir()) == [".graph", ".plan"]


def test_weights_are_not_stored_a_second_time(folder: Path) -> None:
    ModelLoader.load(network())
    (path,) = folder.iterdir()
    assert path.stat().st_size < len(network()) / 2


def test_constants_do_not_hold_the_file(parsed: list[str]) -> None:
    source = network()
    whole = np.frombuffer(source, np.uint8)
    for _ in range(2):
        for array in ModelLoader.load(source).constants.values():
            assert not np.shares_memory(array, whole)
            assert not array.flags.writeable
    assert len(parsed) == 1


def test_another_file_is_read_anew(parsed: list[str]) -> None:
    for source in (network(), network(2.0), network(batch=1)):
        ModelLoader.load(source)
    assert len(parsed) == 3


def test_dimensions_made_static_are_part_of_what_is_stored(parsed: list[str]) -> None:
    shapes = [ModelLoader.load(network(), dims=dims).inputs[0].shape for dims in ({"n": 2}, {"n": 3}, None)]
    again = [ModelLoader.load(network(), dims=dims).inputs[0].shape for dims in ({"n": 2}, {"n": 3}, None)]
    assert shapes == again == [(2, 3, 16, 16), (3, 3, 16, 16), ("n", 3, 16, 16)]
    assert len(parsed) == 3


def test_a_file_under_another_name_is_called_by_that(tmp_path: Path, parsed: list[str]) -> None:
    for name in ("a", "b", "a"):
        path = tmp_path / name / "net.onnx"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(branches())
        model = ModelLoader.load(path)
        assert model.source == str(path)
        assert model.layers[-1].subgraphs[0].source == str(path)
    assert len(parsed) == 1


def test_a_model_with_weight_files_is_read_anew(tmp_path: Path, folder: Path) -> None:
    """The file's bytes say nothing of what lies beside it."""
    path = tmp_path / "model.onnx"
    for scale in (1.0, 2.0):
        made = onnx.load_from_string(network(scale))
        onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=16)
        model = ModelLoader.load(path)
        assert model.has_weight_files
        assert not model.identity
        assert list(folder.iterdir()) == []
        expected = ModelLoader.load(network(scale)).constants
        assert same(dict(model.constants), dict(expected))
        for stored in folder.iterdir():
            stored.unlink()


def test_a_changed_copy_is_not_told_by_the_file_any_more() -> None:
    model = ModelLoader.load(network())
    assert model.identity
    assert not model.replace(layers=model.layers[:-1]).identity
    assert not model.with_dims({"n": 3}).identity


def test_operators_of_a_games_own_are_not_stored(folder: Path) -> None:
    @operator("Halve", domain="game.test")
    def halve(k: Builder, x: Value) -> Value:
        return k.elementwise(lambda v: v * 0.5, x)

    try:
        made = onnx.load_from_string(
            proto([node("Relu", ["x"], ["y"])], {"x": ("float32", [4])}, {"y": ("float32", [4])})
        )
        made.graph.node[0].op_type, made.graph.node[0].domain = "Halve", "game.test"
        made.opset_import.append(onnx.helper.make_opsetid("game.test", 1))
        ModelLoader.load(made.SerializeToString())
        assert list(folder.iterdir()) == []
    finally:
        remove_operator("Halve", domain="game.test")
    with pytest.raises(ModelImportError, match="Halve"):
        ModelLoader.load(made.SerializeToString())


def test_operators_of_a_games_own_that_are_folded_away_are_not_stored(folder: Path) -> None:
    """What they gave is a constant by then, and the file's bytes do not say how it came about."""
    source = proto(
        [node("Relu", ["c"], ["h"]), node("Add", ["x", "h"], ["y"])],
        {"x": ("float32", [4])},
        {"y": ("float32", [4])},
        {"c": np.ones(4, np.float32)},
    )
    made = onnx.load_from_string(source)
    made.graph.node[0].op_type, made.graph.node[0].domain = "Scale", "game.test"
    made.opset_import.append(onnx.helper.make_opsetid("game.test", 1))
    for factor in (0.5, 0.25):

        @operator("Scale", domain="game.test")
        def scale(k: Builder, x: Value) -> Value:
            return k.elementwise(lambda v: v * factor, x)  # noqa: B023 - it is gone before the next

        try:
            model = ModelLoader.load(made.SerializeToString())
            assert not model.identity
            with Worker(model, BackendType.CPU) as worker:
                worker.schedule(np.zeros(4, np.float32))
                np.testing.assert_array_equal(worker.peek_output().download_to_array(), [factor] * 4)
        finally:
            remove_operator("Scale", domain="game.test")
    assert not list(folder.glob("*.graph"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:60] + b"?" + path.read_bytes()[61:]),
        lambda path: files.write(path, graphs._FORM, b"no pickle"),
        lambda path: files.write(path, graphs._FORM, b"\x80\x05N."),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=["cut short", "empty", "a byte", "other content", "nothing", "a folder"],
)
def test_a_damaged_file_is_not_read(folder: Path, parsed: list[str], spoil: Callable[[Path], object]) -> None:
    model = ModelLoader.load(network())
    (path,) = folder.iterdir()
    spoil(path)
    assert same(ModelLoader.load(network()), model)
    assert len(parsed) == 2


def test_it_can_be_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAMEGLUE_STORED_PLANS", "off")
    assert not ModelLoader.load(network()).identity
    assert list(folder.iterdir()) == []


def test_small_graphs_without_a_file_and_large_ones_are_read_as_they_are(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "LEAST_LAYERS", 100)
    ModelLoader.load(network())
    assert list(folder.iterdir()) == []
    path = tmp_path / "small.onnx"
    path.write_bytes(network())
    ModelLoader.load(path)
    [stored] = folder.iterdir()
    stored.unlink()
    monkeypatch.setattr(graphs, "LEAST_LAYERS", 1)
    monkeypatch.setattr(graphs, "LARGEST_FILE", 1000)
    ModelLoader.load(network())
    assert list(folder.iterdir()) == []
