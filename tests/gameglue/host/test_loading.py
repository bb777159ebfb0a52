"""Models and workers that are loaded while an app plays: awaited by components, within the frame's budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.device.native import child_processes
from gameglue import (
    App,
    BackendChoice,
    BackendType,
    Loading,
    ModelImportError,
    ModelLoader,
    MonoBehaviour,
    Worker,
)
from tests.graphs import mlp

MakeApp = Callable[..., App]


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(mlp((6, 8, 3)))
    return path


def play_until(app: App, condition: Callable[[], bool]) -> int:
    frames, end = 0, time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        app.step()
        time.sleep(0.001)
        frames += 1
    return frames


class Awaiter(MonoBehaviour):
    """Awaits a worker, and asks it."""

    file: str = ""
    answer: Any = None

    async def start(self) -> None:
        worker = await self.app.load_worker(self.file, shapes={"batch": 1})
        worker.schedule(np.ones((1, 6), np.float32))
        scores = await worker.peek_output().readback_and_clone_async()
        self.answer = scores.download_to_array()
        worker.dispose()


class Yielder(MonoBehaviour):
    """The same as a generator."""

    file: str = ""
    worker: Any = None

    def start(self) -> Generator[Any, Any, None]:
        self.worker = yield self.app.load_worker(self.file)


def test_a_component_awaits_its_worker(make_app: MakeApp, net: Path) -> None:
    app = make_app(on_error="raise", folder=net.parent)
    component = app.scene.create("a").add_component(Awaiter, file="net.onnx")
    assert play_until(app, lambda: component.answer is not None) > 1
    with Worker(ModelLoader.load(net)) as worker:
        worker.schedule(np.ones((1, 6), np.float32))
        np.testing.assert_array_equal(component.answer, worker.peek_output().download_to_array())


def test_a_coroutine_yields_for_its_worker(make_app: MakeApp, net: Path) -> None:
    app = make_app(on_error="raise", folder=net.parent)
    component = app.scene.create("a").add_component(Yielder, file="net.onnx")
    play_until(app, lambda: component.worker is not None)
    assert isinstance(component.worker, Worker)
    component.worker.dispose()


def test_a_choice_tells_device_and_precision(
    make_app: MakeApp, net: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    real = Worker.load_async

    def load(model: Any, backend: BackendType, **options: Any) -> Loading[Worker]:
        asked.append((backend, options))
        # Not every processor computes in bf16.
        return real(model, backend, **options | {"precision": "float32"})

    monkeypatch.setattr(Worker, "load_async", load)
    app = make_app(folder=net.parent)
    loading = app.load_worker(
        "net.onnx", BackendChoice(BackendType.CPU, precision="bf16"), shapes={"batch": 1}
    )
    play_until(app, lambda: loading.is_over)
    assert asked == [(BackendType.CPU, {"device": None, "precision": "bf16", "shapes": {"batch": 1}})]
    worker = loading.result()
    assert worker.backend_type is BackendType.CPU
    worker.dispose()


def test_an_app_makes_loads_go_on_that_nobody_asks_about(make_app: MakeApp, net: Path) -> None:
    app = make_app()
    loading = ModelLoader.load_async(net)
    play_until(app, lambda: loading.is_over)
    assert loading.result().inputs[0].name == "x"


def test_what_is_wrong_is_raised_where_it_is_awaited(make_app: MakeApp, net: Path) -> None:
    net.write_bytes(b"no model")
    app = make_app(folder=net.parent)
    component = app.scene.create("a").add_component(Awaiter, file="net.onnx")
    play_until(app, lambda: bool(app.errors))
    assert isinstance(app.errors[0].error, ModelImportError)
    assert app.errors[0].component is component


def test_time_that_a_frame_has_left_over_goes_to_loads(make_app: MakeApp) -> None:
    slices = []

    def steps() -> Generator[None, None, str]:
        for _ in range(40):
            end = time.perf_counter() + 0.0005
            while time.perf_counter() < end:
                pass
            slices.append(app.time.frame_count)
            yield None
        return "loaded"

    app = make_app(real_time=True, target_frame_rate=20.0, loading_budget_ms=0.1)
    loading = Loading(steps())
    app.run(frames=4)
    assert loading.is_over
    # Without what frames leave over, each of them would have had one slice.
    assert len(slices) == 40


class Recorder(MonoBehaviour):
    """Writes down that it was called, and may raise."""

    calls: Any = None
    raises: bool = False

    def update(self) -> None:
        self.calls.append("update")
        if self.raises:
            raise ValueError("on purpose")


@pytest.mark.parametrize("raises", [False, True])
def test_what_compiles_beside_the_game_stands_still_while_a_frame_works(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(child_processes, "hold", lambda: calls.append("hold"))
    monkeypatch.setattr(child_processes, "let_go", lambda: calls.append("let go"))
    app = make_app(on_error="raise")
    app.scene.create("recorder").add_component(Recorder, calls=calls, raises=raises)
    for _ in range(2):
        if raises:
            with pytest.raises(ValueError, match="on purpose"):
                app.step()
            break
        app.step()
    assert calls == ["hold", "update", "let go"] * (1 if raises else 2)


def test_what_compiles_goes_on_while_a_picture_waits_for_the_display(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(child_processes, "let_go", lambda: calls.append("let go"))
    monkeypatch.setattr(app.graphics, "present", lambda: calls.append("present"))
    app._waits_for_display = True
    app.step()
    assert calls == ["let go", "present", "let go"]
