"""A worker that follows its model's file: replaced between frames, never by something broken."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gameglue import (
    App,
    BackendType,
    InputError,
    ModelImportError,
    ModelLoader,
    MonoBehaviour,
    ReloadableWorker,
    ResourceError,
    Worker,
)
from gameglue.reloading import worker as reloading_worker
from tests.graphs import mlp, node, proto

MakeApp = Callable[..., App]
X = np.linspace(-1.0, 1.0, 6, dtype=np.float32).reshape(1, 6)


class Clock:
    """The time that the watches see."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(mlp((6, 8, 3)))
    return path


@pytest.fixture
def app(make_app: MakeApp, net: Path) -> App:
    app = make_app(on_error="raise", folder=net.parent)
    app.hot_reload._clock = Clock()
    return app


def frame(app: App) -> None:
    clock: Any = app.hot_reload._clock
    clock.now += 0.11
    app.step()
    time.sleep(0.001)


def play_until(app: App, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        frame(app)


def answer(worker: Worker, x: np.ndarray = X) -> np.ndarray:
    worker.schedule(x)
    found: np.ndarray = worker.peek_output().download_to_array()
    return found


def expected(data: bytes) -> np.ndarray:
    with Worker(ModelLoader.load(data)) as worker:
        return answer(worker)


def test_it_is_replaced_each_time_that_the_file_changes(app: App, net: Path) -> None:
    told: list[Worker] = []
    watched = app.hot_reload.worker("net.onnx", on_reload=told.append)
    play_until(app, watched.is_done)
    np.testing.assert_array_equal(answer(watched.worker), expected(mlp((6, 8, 3))))
    for number in range(1, 5):
        data = mlp((6, 8 + number, 3), seed=number)
        net.write_bytes(data)
        play_until(app, lambda n=number: watched.reloads == n)  # type: ignore[misc]
        np.testing.assert_array_equal(answer(watched.worker), expected(data))
        assert told[-1] is watched.worker
    assert watched.error is None
    assert len(told) == 4


def test_a_broken_file_is_reported_once_and_the_old_worker_stays(
    app: App, net: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = app.hot_reload.worker("net.onnx")
    play_until(app, watched.is_done)
    before = watched.worker
    good = mlp((6, 9, 3), seed=5)
    with caplog.at_level(logging.ERROR, "gameglue"):
        net.write_bytes(good[: len(good) // 2])
        play_until(app, lambda: watched.error is not None)
        for _ in range(30):
            frame(app)
    assert isinstance(watched.error, ModelImportError)
    assert len([r for r in caplog.records if "cannot be used" in r.getMessage()]) == 1
    assert watched.worker is before
    np.testing.assert_array_equal(answer(before), expected(mlp((6, 8, 3))))
    net.write_bytes(good)
    play_until(app, lambda: watched.reloads == 1 and watched.error is None)
    np.testing.assert_array_equal(answer(watched.worker), expected(good))


def test_a_model_with_other_inputs_is_refused(app: App, net: Path) -> None:
    watched = app.hot_reload.worker("net.onnx")
    play_until(app, watched.is_done)
    before = watched.worker
    shape: tuple[str, list[Any]] = ("float32", ["batch", 6])
    net.write_bytes(proto([node("Relu", ["state"], ["y"])], {"state": shape}, {"y": ("float32", None)}, {}))
    play_until(app, lambda: watched.error is not None)
    assert isinstance(watched.error, InputError)
    assert "the inputs of net.onnx are now called 'state'; the model in use has 'x'" in str(watched.error)
    net.write_bytes(proto([node("Relu", ["x"], ["y"])], {"x": ("int32", [1])}, {"y": ("int32", None)}, {}))
    play_until(app, lambda: "the input 'x' of net.onnx is now tensor int32" in str(watched.error))
    assert watched.worker is before
    answer(before)


def test_inputs_that_were_set_are_kept(app: App, net: Path) -> None:
    watched = app.hot_reload.worker("net.onnx")
    play_until(app, watched.is_done)
    watched.worker.set_input("x", X)
    data = mlp((6, 5, 3), seed=9)
    net.write_bytes(data)
    play_until(app, lambda: watched.reloads == 1)
    watched.worker.schedule()
    np.testing.assert_array_equal(watched.worker.peek_output().download_to_array(), expected(data))


def test_an_answer_on_its_way_outlives_the_replacement(
    app: App, net: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = app.hot_reload.worker("net.onnx")
    play_until(app, watched.is_done)
    before = watched.worker
    before.schedule(X)
    pending = before.peek_output()
    pending.readback_request()
    net.write_bytes(mlp((6, 5, 3), seed=1))
    play_until(app, lambda: watched.reloads == 1)
    play_until(app, pending.is_readback_request_done)
    np.testing.assert_array_equal(pending.download_to_array(), expected(mlp((6, 8, 3))))
    assert not before.is_disposed
    monkeypatch.setattr(reloading_worker, "GRACE", 0.0)
    play_until(app, lambda: before.is_disposed)


def test_a_file_that_is_broken_at_first_is_loaded_when_it_is_mended(app: App, net: Path) -> None:
    net.write_bytes(b"nothing")
    watched = app.hot_reload.worker("net.onnx")
    with pytest.raises(ResourceError, match="still being loaded"):
        _ = watched.worker
    play_until(app, watched.is_done)
    with pytest.raises(ModelImportError):
        watched.result()
    with pytest.raises(ResourceError, match=r"net\.onnx cannot be used"):
        _ = watched.worker
    net.write_bytes(mlp((6, 8, 3)))
    play_until(app, lambda: watched.error is None)
    answer(watched.worker)
    assert watched.reloads == 0


def test_a_change_while_it_is_being_loaded_wins(app: App, net: Path) -> None:
    watched = app.hot_reload.worker("net.onnx")
    play_until(app, watched.is_done)
    for seed in (1, 2, 3):
        net.write_bytes(mlp((6, 30 + seed, 3), seed=seed))
        frame(app)
        frame(app)
    last = expected(mlp((6, 33, 3), seed=3))
    play_until(app, lambda: watched._loading is None and np.array_equal(answer(watched.worker), last))


def test_a_component_awaits_it(app: App, net: Path) -> None:
    class Reader(MonoBehaviour):
        found: Any = None

        async def start(self) -> None:
            self.net = await self.app.hot_reload.worker("net.onnx", BackendType.CPU)
            self.found = answer(self.net.worker)

    reader = app.scene.create("r").add_component(Reader)
    play_until(app, lambda: reader.found is not None)
    assert isinstance(reader.net, ReloadableWorker)


def test_an_app_that_ends_frees_its_workers(make_app: MakeApp, net: Path) -> None:
    app = make_app(folder=net.parent)
    app.hot_reload._clock = Clock()
    watched = app.hot_reload.worker("net.onnx")
    play_until(app, watched.is_done)
    worker = watched.worker
    other = app.hot_reload.worker("net.onnx")
    app.dispose()
    assert worker.is_disposed
    assert other._loading is None


def test_any_file_can_be_watched(app: App, net: Path, caplog: pytest.LogCaptureFixture) -> None:
    level = net.parent / "level.json"
    level.write_text("{}")
    told: list[Path] = []
    app.hot_reload.file("level.json", told.append)
    app.hot_reload.file("level.json", lambda path: 1 // 0)
    level.write_text('{"a": 1}')
    play_until(app, lambda: bool(told))
    frame(app)
    assert told == [level]
    assert "level.json has failed" in caplog.text
    with pytest.raises(ResourceError):
        app.hot_reload.file("nowhere.json", told.append)
