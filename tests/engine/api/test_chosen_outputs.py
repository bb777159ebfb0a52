"""`Worker(outputs=[...])`: any value of a model can be asked for, and only what it needs is computed."""

from __future__ import annotations

import numpy as np
import pytest

from engine import InputError, Loading, ModelLoader, Worker
from tests.engine.conftest import MakeWorker
from tests.graphs import model, node, proto
from tests.networks import reference

W = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
NODES = [
    node("MatMul", ["x", "w"], ["hidden"]),
    node("Tanh", ["hidden"], ["left"]),
    node("Exp", ["hidden"], ["right"]),
    node("Add", ["left", "right"], ["y"]),
]
SOURCE = proto(NODES, {"x": ("float32", [2, 4])}, {"y": ("float32", [2, 4])}, {"w": W})
X = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)


@pytest.fixture
def expected() -> dict[str, np.ndarray]:
    """All values, by onnxruntime."""
    names = ("hidden", "left", "right", "y")
    every = proto(NODES, {"x": ("float32", [2, 4])}, {n: ("float32", [2, 4]) for n in names}, {"w": W})
    return reference(every, {"x": X})


@pytest.mark.spread
@pytest.mark.parametrize("names", [["left"], ["hidden", "y"], ["right", "left"], ["y"]])
def test_values_of_layers_are_computed(
    names: list[str], make_worker: MakeWorker, channel: str, expected: dict[str, np.ndarray]
) -> None:
    with make_worker(ModelLoader.load(SOURCE), channel, outputs=names) as worker:
        assert [item.name for item in worker.model.outputs] == names
        worker.schedule(X)
        for name in names:
            found = worker.peek_output(name).download_to_array()
            np.testing.assert_allclose(found, expected[name], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(
            worker.peek_output().download_to_array(), worker.peek_output(names[0]).download_to_array()
        )


def test_only_what_is_asked_for_is_computed() -> None:
    with Worker(ModelLoader.load(SOURCE), outputs=["left"]) as worker:
        assert [layer.op_type for layer in worker.model.layers] == ["MatMul", "Tanh"]
        assert worker.plan_report().layers == 2
    with Worker(ModelLoader.load(SOURCE), outputs=["right"]) as worker:
        assert "Tanh" not in [layer.op_type for layer in worker.model.layers]


def test_a_worker_loaded_beside_the_frames_takes_outputs_too(expected: dict[str, np.ndarray]) -> None:
    loading: Loading[Worker] = Worker.load_async(ModelLoader.load(SOURCE), outputs=["left"])
    with loading.wait() as worker:
        worker.schedule(X)
        found = worker.peek_output("left").download_to_array()
        np.testing.assert_allclose(found, expected["left"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [(["lft"], "has no value 'lft'; did you mean 'left'"), ([], "needs the names"), ("left", "as a list")],
)
def test_unknown_names_are_told(outputs: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Worker(ModelLoader.load(SOURCE), outputs=outputs)
    found = model(NODES[:1], {"x": ("float32", [2, 4])}, {"hidden": ("float32", [2, 4])}, {"w": W})
    with Worker(found, outputs=["hidden"]) as worker:
        assert worker.model.outputs == found.outputs
