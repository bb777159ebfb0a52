"""Workers made beside the frames, and warmed up, on every backend: same answers, nothing left to compile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from engine import BackendType, InputError, Loading, ModelImportError, ModelLoader, Worker
from engine.base.errors import DeviceError, DisposedError
from engine.runtime.loading.workers import shapes_of
from engine.runtime.plans.session import Session
from tests.engine.conftest import MakeWorker
from tests.graphs import mlp, model, node

SIZES = (6, 16, 16, 3)


def x_of(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, SIZES[0])).astype(np.float32)


def polled(loading: Loading[Any]) -> Any:
    end = time.monotonic() + 60
    while not loading.is_done():
        assert time.monotonic() < end
        time.sleep(0.0005)
    return loading.result()


@pytest.fixture
def load(request: pytest.FixtureRequest) -> Iterator[Callable[..., Loading[Worker]]]:
    """`load(model, channel, **options)`: a worker on its way, disposed in the end."""
    made: list[Loading[Worker]] = []

    def begin(model: Any, channel: str, **options: Any) -> Loading[Worker]:
        kind = {"cpu": BackendType.CPU, "gl_pixel": BackendType.GPU_PIXEL}.get(
            channel, BackendType.GPU_COMPUTE
        )
        if channel == "opencl":
            options["device"] = request.getfixturevalue("cl_device")
        elif channel != "cpu":
            options["device"] = request.getfixturevalue("gl_device")
        made.append(Worker.load_async(model, kind, **options))
        return made[-1]

    yield begin
    for loading in made:
        if not loading.is_done() or loading.error is None:
            loading.wait().dispose()


def forbid_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on nothing is planned, recorded or compiled."""

    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("something was left to do")

    for name in ("lower", "compile", "record", "recording"):
        monkeypatch.setattr(Session, name, refuse)


def test_a_worker_that_was_loaded_answers_like_any_other(
    load: Callable[..., Loading[Worker]], make_worker: MakeWorker, channel: str, tmp_path: Any
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(mlp(SIZES))
    worker = polled(load(path, channel))
    other = make_worker(ModelLoader.load(path), channel)
    for seed, rows in enumerate((2, 5)):
        worker.schedule(x_of(rows, seed))
        other.schedule(x_of(rows, seed))
        expected = other.peek_output().download_to_array()
        np.testing.assert_array_equal(worker.peek_output().download_to_array(), expected)


def test_with_shapes_nothing_is_left_for_the_first_schedule(
    load: Callable[..., Loading[Worker]], channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dims = ModelLoader.load(mlp(SIZES)).dim_names
    worker = polled(load(mlp(SIZES), channel, shapes=[{dims[0]: 2}, {dims[0]: 3}]))
    forbid_plans(monkeypatch)
    for rows in (2, 3):
        worker.schedule(x_of(rows))
        assert worker.peek_output().download_to_array().shape == (rows, SIZES[-1])
    monkeypatch.undo()


def test_warming_up_leaves_nothing_for_the_first_schedule(
    make_worker: MakeWorker, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = ModelLoader.load(mlp(SIZES))
    worker, other = make_worker(net, channel), make_worker(net, channel)
    polled(worker.warm_up({net.inputs[0].name: (4, SIZES[0])}))
    other.schedule(x_of(4))
    expected = other.peek_output().download_to_array()
    forbid_plans(monkeypatch)
    worker.schedule(x_of(4))
    np.testing.assert_array_equal(worker.peek_output().download_to_array(), expected)
    monkeypatch.undo()


def test_warming_up_leaves_results_alone(make_worker: MakeWorker, channel: str) -> None:
    worker = make_worker(ModelLoader.load(mlp(SIZES)), channel)
    worker.schedule(x_of(3))
    before = worker.peek_output()
    expected = before.readback_and_clone().download_to_array()
    worker.warm_up({worker.model.inputs[0].name: (3, SIZES[0])}).wait()
    worker.warm_up({worker.model.inputs[0].name: (7, SIZES[0])}).wait()
    np.testing.assert_array_equal(before.readback_and_clone().download_to_array(), expected)


def test_a_worker_may_be_used_while_it_warms_up(make_worker: MakeWorker, channel: str) -> None:
    worker = make_worker(ModelLoader.load(mlp(SIZES)), channel)
    other = make_worker(ModelLoader.load(mlp(SIZES)), channel)
    loading = worker.warm_up([{worker.model.inputs[0].name: (n, SIZES[0])} for n in (2, 4, 6)])
    rows, end = 0, time.monotonic() + 60
    while not loading.is_done() or rows < 8:
        rows += 1
        for each in (worker, other):
            each.schedule(x_of(rows % 8 + 1, rows))
        expected = other.peek_output().download_to_array()
        np.testing.assert_array_equal(worker.peek_output().download_to_array(), expected)
        assert time.monotonic() < end
    loading.result()


def test_random_numbers_do_not_know_of_warm_ups(make_worker: MakeWorker, channel: str) -> None:
    shape = ("float32", [4])
    net = model([node("RandomUniformLike", ["x"], ["y"], seed=3.0)], {"x": shape}, {"y": shape})
    x = np.zeros(4, np.float32)
    worker, other = make_worker(net, channel), make_worker(net, channel)
    worker.warm_up().wait()
    for each in (worker, other):
        each.schedule(x)
    expected = other.peek_output().download_to_array()
    np.testing.assert_array_equal(worker.peek_output().download_to_array(), expected)


def test_a_worker_disposed_while_it_warms_up(make_worker: MakeWorker, channel: str) -> None:
    worker = make_worker(ModelLoader.load(mlp(SIZES)), channel)
    loading = worker.warm_up({worker.model.inputs[0].name: (9, SIZES[0])})
    loading.advance(0.5)
    worker.dispose()
    assert loading.is_done()
    while not loading.is_over:
        loading.advance(1.0)
    with pytest.raises(DisposedError):
        worker.warm_up()


def test_a_platform_without_a_further_context_compiles_in_place(
    load: Callable[..., Loading[Worker]], gl_device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise DeviceError("no more contexts")

    monkeypatch.setattr(gl_device, "borrow_shared", refuse)
    worker = polled(load(mlp(SIZES), "gl_pixel"))
    worker.schedule(x_of(1))
    assert np.isfinite(worker.peek_output().download_to_array()).all()


def test_programs_compile_in_a_context_of_their_thread(
    load: Callable[..., Loading[Worker]], gl_device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    borrowed = []
    borrow = gl_device.borrow_shared

    def borrowing() -> Any:
        borrowed.append(borrow())
        return borrowed[-1]

    monkeypatch.setattr(gl_device, "borrow_shared", borrowing)
    polled(load(mlp((6, 11, 3)), "gl_compute"))
    polled(load(mlp((6, 11, 3)), "gl_pixel"))
    assert len(borrowed) == 2
    assert borrowed[0] is borrowed[1]


def test_what_is_wrong_is_told_by_the_result(load: Callable[..., Loading[Worker]]) -> None:
    with pytest.raises(ModelImportError, match=r"nowhere\.onnx"):
        polled(load("nowhere.onnx", "cpu"))
    with pytest.raises(InputError, match="has no input or dimension 'rows'"):
        polled(load(mlp(SIZES), "cpu", shapes={"rows": 1}))


def test_shapes_come_from_sizes_and_shapes() -> None:
    net = model(
        [node("Add", ["a", "b"], ["y"])],
        {"a": ("float32", ["n", 3]), "b": ("float32", ["n", None])},
        {"y": ("float32", None)},
    )
    shapes, known = shapes_of(net, frozenset(), {"n": 2, "b": (2, 3)})
    assert shapes == {"a": (2, 3), "b": (2, 3)}
    assert not known
    shapes, known = shapes_of(net, frozenset({"b"}), {"n": 2, "b": np.ones((2, 1), np.float32)})
    assert shapes["b"] == (2, 1)
    assert known["b"].shape == (2, 1)
    with pytest.raises(InputError, match=r"input 'b' has the shape .*give sizes"):
        shapes_of(net, frozenset(), {"n": 2})
    with pytest.raises(InputError, match="input 'a' needs the shape"):
        shapes_of(net, frozenset(), {"a": (2, 4), "b": (2, 4)})
    with pytest.raises(InputError, match="elements of input 'b' decide the plan"):
        shapes_of(net, frozenset({"b"}), {"n": 2, "b": (2, 3)})
