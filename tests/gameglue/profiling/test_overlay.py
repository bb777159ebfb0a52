"""The overlay: keys, what its pages say, and that it leaves nothing behind when it is hidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine import BackendType, ModelLoader, Worker
from engine.base import instrumentation
from gameglue import App, InputScript, MonoBehaviour
from gameglue.profiling.layer_page import layers_of
from gameglue.profiling.workers import WorkerTimes
from tests.gameglue.profiling.test_recording import DIGITS, Reader
from tests.graphs import node, proto

MakeApp = Callable[..., App]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that is drawn."""
    texts: list[str] = []
    from gameglue.graphics.canvas import Canvas

    before = Canvas.text

    def text(self: Canvas, text: str, *arguments: Any, **options: Any) -> float:
        texts.append(text)
        return before(self, text, *arguments, **options)

    monkeypatch.setattr(Canvas, "text", text)
    return texts


def shown(app: App, said: list[str], page: str) -> str:
    """What a page says, in one frame."""
    app.overlay.show(app)
    app.overlay.page = [p.title for p in app.overlay.pages].index(page)
    app.step()
    said.clear()
    app.step()
    return "\n".join(said)


def test_keys_show_it_turn_its_pages_and_hide_it(make_app: MakeApp) -> None:
    script = InputScript()
    for key, at in (("f3", 0.05), ("f4", 0.1), ("f4", 0.15), ("f5", 0.2), ("f4", 0.25), ("f4", 0.3)):
        script = script.press(key, at=at)
    app = make_app(input_source=script.press("f3", at=0.4), on_error="raise")
    app.scene.create("reader", Reader)
    seen = []
    for _ in range(30):
        app.step()
        recording = app.profiler.recording is not None
        assert recording == app.overlay.visible
        seen.append((app.overlay.visible, app.overlay.page))
    pages = [page for visible, page in seen if visible]
    assert sorted(set(pages)) == [0, 1, 2, 3]
    assert seen[-1] == (False, 0)
    assert instrumentation.installed == 0


def test_hidden_it_records_nothing_and_a_games_own_recording_goes_on(app: App) -> None:
    app.step()
    assert instrumentation.installed == 0
    own = app.profiler.record()
    app.overlay.show(app)
    assert app.profiler.recording is own
    app.overlay.show(app, False)
    assert app.profiler.recording is own


def test_the_pages_say_what_happens(app: App, said: list[str]) -> None:
    app.scene.create("reader", Reader)
    for _ in range(4):
        app.step()
    text = shown(app, said, "frame")
    assert "16.7" in text
    assert "inference budget" in text
    assert "Reader.update" in text
    text = shown(app, said, "workers")
    assert "digits on cpu" in text
    assert "schedules" in text
    assert "3.1 KB up" in text
    text = shown(app, said, "layers")
    assert "conv_0  Con...lu+MaxPool" in text
    assert "ms in 7 layers" in text
    text = shown(app, said, "tensor")
    assert "image" in text or "probabilities" in text
    assert "least" in text


def test_without_a_worker_the_pages_say_so(app: App, said: list[str]) -> None:
    app.step()
    for page in ("workers", "layers"):
        assert "no worker was scheduled since this was opened" in shown(app, said, page)
    assert "no tensor has been read back yet" in shown(app, said, "tensor")


class Spoiler(MonoBehaviour):
    """Runs a network that yields NaN: the logarithm of -1."""

    def start(self) -> None:
        made = proto([node("Log", ["x"], ["y"])], {"x": ("float32", [4])}, {"y": ("float32", [4])})
        self.worker = Worker(ModelLoader.load(made), BackendType.CPU)

    def update(self) -> None:
        self.worker.schedule(np.array([1, -1, 2, -3], np.float32))
        self.app.inference.result(self.worker.peek_output())

    def on_destroy(self) -> None:
        self.worker.dispose()


def test_nan_raises_the_alarm_on_every_page(app: App, said: list[str]) -> None:
    app.scene.create("spoiler", Spoiler)
    for _ in range(3):
        app.step()
    for page in ("frame", "tensor"):
        assert "y has 2 NaN of 4" in shown(app, said, page)


def test_layers_are_those_of_the_model_with_their_costs() -> None:
    with Worker(ModelLoader.load(DIGITS), BackendType.CPU) as worker:
        for _ in range(8):
            for _ in worker.schedule_iterable(np.zeros((1, 1, 28, 28), np.float32)):
                pass
            worker.peek_output().download_to_array()
        layers = layers_of(WorkerTimes(worker, "digits"))
        assert len(layers) == 7
        assert all(item.ms > 0.0 for item in layers)
        assert sum(item.ms for item in layers) == pytest.approx(
            sum(step.ms for step in worker.costs), rel=0.2
        )
        assert layers[0].op_type == "Conv+Relu+MaxPool"
