"""What was recorded plays again: the same events, frame lengths, random numbers and answers, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gameglue import App, GameError, InputRecording, InputScript, ModelLoader, MonoBehaviour, Worker
from gameglue.input import GamepadAxis, KeyEvent, Resized, TextEvent
from tests.graphs import mlp

MakeApp = Callable[..., App]


class Wanderer(MonoBehaviour):
    """Moves by input, chance and time; keeps all places it was at."""

    def awake(self) -> None:
        self.path: list[tuple[float, float]] = []

    def update(self) -> None:
        step = self.input.get_axis("horizontal") * self.time.delta_time
        if self.input.get_action_down("fire"):
            step += float(self.app.random.random())
        self.transform.translate((step, self.app.python_random.random() * self.time.delta_time))
        self.path.append((self.transform.position.x, self.input.mouse_position[0]))


def test_a_recording_plays_the_same_game_again(make_app: MakeApp, tmp_path: Path) -> None:
    script = InputScript().drag([(0, 0), (100, 50), (20, 80)], at=0.05, duration=0.3)
    script.press("d", at=0.1, hold=0.2).pad_tilt("left_x", -0.7, at=0.4).quit(at=0.9)
    first = make_app(input_source=script)
    one = first.scene.create("one").add_component(Wanderer)
    recording = first.record_input(level=3)
    lengths = np.random.default_rng(5).uniform(0.001, 0.05, 200)
    while not first.is_quitting:
        first.step(float(lengths[first.time.frame_count]))
    recording.save(tmp_path / "run.jsonl")

    loaded = InputRecording.load(tmp_path / "run.jsonl")
    assert loaded == recording
    assert loaded.metadata == {"level": 3}
    assert loaded.seed == first.seed
    noise = InputScript().press("a", at=0.0, hold=9.0)
    second = make_app(replay=loaded, input_source=noise, seed=first.seed + 1)
    two = second.scene.create("two").add_component(Wanderer)
    second.run()
    assert two.path == one.path
    assert len(two.path) == len(recording.frames) > 20
    assert second.time.unscaled_time == first.time.unscaled_time == pytest.approx(recording.duration)
    assert second.is_quitting


def test_a_replay_ends_with_its_last_frame(make_app: MakeApp) -> None:
    recording = InputRecording(frame_rate=50.0)
    for _ in range(7):
        recording.add_frame(0.02, [KeyEvent("a", True)])
    app = make_app(replay=recording)
    app.run()
    assert app.time.frame_count == 7
    assert app.time.time == pytest.approx(0.14)
    app.step()
    assert app.time.delta_time == 0.02
    assert app.input.events == []


class Asker(MonoBehaviour):
    """Asks a network every frame; keeps in which frame which answer came."""

    worker: Worker

    def awake(self) -> None:
        self.answers: list[tuple[int, bytes]] = []

    def update(self) -> None:
        question = self.app.random.random((1, 6), np.float32)
        self.app.inference.submit(self.worker, question, callback=self.take)

    def take(self, request: object) -> None:
        result: np.ndarray = request.result()  # type: ignore[attr-defined]
        self.answers.append((self.time.frame_count, result.tobytes()))


def test_the_answers_of_networks_come_in_the_same_frames(make_app: MakeApp) -> None:
    model = ModelLoader.load(mlp((6, 8, 3)))

    def play(app: App) -> list[tuple[int, bytes]]:
        with Worker(model) as worker:
            asker = app.scene.create("asker").add_component(Asker, worker=worker)
            app.run(frames=30)
            return asker.answers

    first = make_app(deterministic=True, latency_frames=3, seed=11)
    recording = first.record_input()
    answers = play(first)
    assert len(answers) > 20
    second = make_app(replay=recording)
    assert play(second) == answers


def test_without_a_window_a_replay_follows_the_recorded_size(make_app: MakeApp) -> None:
    recording = InputRecording()
    recording.add_frame(0.02)
    recording.add_frame(0.02, [Resized(200, 100)])
    app = make_app(replay=recording)
    app.step()
    assert app.size == (320, 240)
    app.step()
    assert app.size == (200, 100)


def test_events_of_every_kind_survive_a_file(tmp_path: Path) -> None:
    recording = InputRecording(size=(3, 4), metadata={"name": "ü"})
    recording.add_frame(1 / 3, [TextEvent("é\n"), GamepadAxis(1, "left_x", 0.1)])
    recording.add_frame(0.1)
    recording.save(tmp_path / "run.jsonl")
    assert InputRecording.load(tmp_path / "run.jsonl") == recording


@pytest.mark.parametrize(
    "content", ["", "no json", "[1]", '{"gameglue input": 99}', '{"gameglue input": 1, "x": 1}']
)
def test_something_else_is_not_a_recording(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.jsonl").write_text(content)
    with pytest.raises(GameError, match="is not a recording of input"):
        InputRecording.load(tmp_path / "run.jsonl")
    with pytest.raises(GameError, match="cannot read the recording"):
        InputRecording.load(tmp_path / "none.jsonl")
