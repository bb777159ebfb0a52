"""The report's figures against numbers computed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gameglue import App, FrameReport, InputScript, MonoBehaviour, Profiler
from gameglue.profiling.ring_buffer import Ring


def test_a_ring_keeps_the_latest() -> None:
    ring = Ring(4)
    assert ring.latest().tolist() == []
    for i in range(6):
        ring.append(i)
    assert ring.latest().tolist() == [2, 3, 4, 5]
    assert ring.latest(2).tolist() == [4, 5]
    assert ring.latest(9).tolist() == [2, 3, 4, 5]


def filled(times_ms: list[float]) -> Profiler:
    profiler = Profiler(capacity=200)
    now = 0.0
    for ms in times_ms:
        profiler._begin_frame(now)
        profiler.add_phase("update", ms * 0.25e-3)
        profiler._end_frame(ms * 1e-3)
        now += 0.016
    return profiler


def test_a_frames_time_is_that_of_most_frames_lately() -> None:
    assert Profiler().frame_ms == 0.0
    assert filled([500.0] * 60 + [4.0] * 31 + [90.0] * 29).frame_ms == pytest.approx(4.0)


def test_the_spread_of_frame_times() -> None:
    times = [float(i) for i in range(1, 102)]
    report = FrameReport.of(filled(times), "game")
    assert report.frames == 101
    assert report.work.mean == pytest.approx(51)
    assert report.work.median == pytest.approx(51)
    assert report.work.p95 == pytest.approx(96)
    assert report.work.p99 == pytest.approx(100)
    assert report.work.max == pytest.approx(101)
    assert report.interval.median == pytest.approx(16)
    assert report.phases["update"].max == pytest.approx(25.25)
    assert report.first_frame_ms == pytest.approx(1)


def test_frames_that_left_the_ring_are_still_counted() -> None:
    report = FrameReport.of(filled([1.0] * 300), "game")
    assert (report.frames, report.measured) == (300, 200)


def test_a_report_of_no_frames() -> None:
    report = FrameReport.of(Profiler(), "game")
    assert report.work.max == 0.0
    assert "0 frames" in report.as_text()


def test_samples_add_up_within_a_frame() -> None:
    profiler = Profiler()
    profiler.add_sample("path finding", 0.002)
    profiler.add_sample("path finding", 0.003)
    profiler._end_frame(0.01)
    profiler._end_frame(0.01)
    assert profiler.samples["path finding"].latest() == pytest.approx([0.005])
    assert profiler.sample_calls["path finding"] == 2


class Sampler(MonoBehaviour):
    """Marks a block."""

    def update(self) -> None:
        with self.app.profiler.sample("thinking"):
            np.linalg.inv(np.identity(8))


def test_the_report_of_an_app_as_json_and_as_text(app: App, tmp_path: Path) -> None:
    app.scene.create("a", Sampler)
    for _ in range(5):
        app.step()
    path = app.report(backend="cpu").write(tmp_path / "deep" / "report.json")
    data = json.loads(path.read_text())
    assert data["frames"] == 5
    assert data["metadata"]["backend"] == "cpu"
    assert data["metadata"]["renderer"] == "none"
    assert data["metadata"]["component errors"] == 0
    assert set(data["phases"]) == set(app.frame.names)
    assert data["sample_calls"] == {"thinking": 5}
    parts = sum(spread["mean"] for spread in data["phases"].values())
    assert parts == pytest.approx(data["work"]["mean"], rel=0.05)
    text = app.report().write(tmp_path / "report.txt").read_text()
    assert text.startswith("test: 5 frames")
    assert "late_update" in text
    assert "thinking" in text
    assert "5 calls" in text


def test_f3_shows_and_hides_the_overlay(make_app: Callable[..., App]) -> None:
    app = make_app(input_source=InputScript().press("f3", at=0.04).press("f3", at=0.2), on_error="raise")
    seen = []
    for _ in range(20):
        app.step()
        seen.append(app.overlay.visible)
    assert seen[0] is False
    assert seen[5] is True
    assert seen[-1] is False
