"""A camera's pictures beside the frames, with a camera made up by the test, and without any."""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gameglue import App, TextureConverter, WebCamError, WebCamTexture
from tests.cameras import FakeCamera

MakeApp = Callable[..., App]
HERE = threading.current_thread().name


def picture(seed: int, width: int = 32, height: int = 24) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def until(condition: Callable[[], object]) -> None:
    """Wait for what another thread does."""
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not happen")


@pytest.fixture
def camera(monkeypatch: pytest.MonkeyPatch) -> FakeCamera:
    fake = FakeCamera()
    fake.plug_in(monkeypatch)
    return fake


def test_pictures_come_once_each_and_the_newest_counts(app: App, camera: FakeCamera) -> None:
    webcam = WebCamTexture(app, size=(32, 24))
    assert not webcam.update()
    webcam.play()
    assert webcam.is_playing
    camera.show(picture(1))
    camera.show(picture(2))
    assert webcam.update()
    np.testing.assert_array_equal(webcam.pixels, picture(2))
    assert not webcam.update()
    assert webcam.count == 1
    assert camera.asked == [("front", (32, 24), "RGB")]


def test_no_frame_waits_for_the_device(app: App, camera: FakeCamera, monkeypatch: pytest.MonkeyPatch) -> None:
    may_open = threading.Event()
    monkeypatch.setattr(camera, "start", lambda: may_open.wait(5.0))
    webcam = WebCamTexture(app)
    webcam.play()
    began = time.perf_counter()
    assert not any(webcam.update() for _ in range(100))
    assert not may_open.is_set(), f"waited {time.perf_counter() - began:.1f} s"
    may_open.set()
    camera.show(picture(1))
    assert webcam.update()
    assert camera.threads
    assert HERE not in camera.threads


def test_a_camera_of_another_size_has_its_own(app: App, camera: FakeCamera) -> None:
    webcam = WebCamTexture(app, "back", (640, 480))
    webcam.play()
    camera.show(picture(1, 40, 30))
    assert webcam.size == (640, 480)
    assert webcam.update()
    assert webcam.size == (40, 30)
    assert webcam.pixels.shape == (30, 40, 3)
    assert camera.asked == [("back", (640, 480), "RGB")]
    app.dispose()
    assert not camera.is_open


@pytest.mark.gl
def test_it_is_a_texture(make_drawing_app: MakeApp, camera: FakeCamera) -> None:
    app = make_drawing_app()
    before = app.graphics.device.live_objects
    webcam = WebCamTexture(app, size=(8, 8))
    webcam.play()
    for seen in (picture(3), picture(4), picture(5, 20, 10)):
        camera.show(seen)
        assert webcam.update()
        tensor = TextureConverter.to_tensor(webcam)
        expected = seen.transpose(2, 0, 1)[None] / 255.0
        np.testing.assert_allclose(tensor.download_to_array()[:, :3], expected, atol=1e-3)
        tensor.dispose()
    webcam.release()
    assert app.graphics.device.live_objects == before
    assert not camera.is_open


def test_stopped_it_keeps_its_picture_and_plays_again(app: App, camera: FakeCamera) -> None:
    webcam = WebCamTexture(app)
    webcam.play()
    camera.show(picture(1))
    webcam.update()
    webcam.stop()
    assert not webcam.is_playing
    assert not webcam.update()
    np.testing.assert_array_equal(webcam.pixels, picture(1))
    webcam.play()  # at once: the device is not opened before it was given back
    camera.show(picture(2))
    assert webcam.update()
    assert len(camera.asked) == 2
    webcam.stop()
    until(lambda: not camera.is_open)


def test_the_end_of_an_app_gives_the_camera_back(make_app: MakeApp, camera: FakeCamera) -> None:
    app = make_app()
    WebCamTexture(app).play()
    until(lambda: camera.is_open)
    app.dispose()
    assert not camera.is_open


def test_what_opens_or_stops_a_camera_is_told_once(app: App, camera: FakeCamera) -> None:
    webcam = WebCamTexture(app)
    camera.fault = SystemError("device busy")
    webcam.play()
    with pytest.raises(WebCamError, match=r"'front' cannot be opened: device busy"):
        until(webcam.update)
    assert not webcam.is_playing
    assert not webcam.update()
    camera.fault = None
    webcam.play()
    camera.show(picture(1))
    camera.fault = OSError("unplugged")
    assert webcam.update(), "what came before counts"
    with pytest.raises(WebCamError, match=r"'front' has stopped: unplugged"):
        until(webcam.update)


def test_cameras_are_listed_by_name(monkeypatch: pytest.MonkeyPatch, app: App) -> None:
    FakeCamera().plug_in(monkeypatch, names=(0, 1))
    assert WebCamTexture.devices() == ("0", "1")
    with pytest.raises(WebCamError, match=r"no camera 'side'; one of: '0', '1'"):
        WebCamTexture(app, "side").play()


def test_no_camera_is_no_list_and_a_clear_error(monkeypatch: pytest.MonkeyPatch, app: App) -> None:
    FakeCamera().plug_in(monkeypatch, names=())
    assert WebCamTexture.devices() == ()
    with pytest.raises(WebCamError, match="no camera was found"):
        WebCamTexture(app).play()


def test_a_pygame_without_cameras_is_told(
    monkeypatch: pytest.MonkeyPatch, app: App, capfd: pytest.CaptureFixture[str]
) -> None:
    imports = builtins.__import__

    def refuse(name: str, *rest: Any, **named: Any) -> Any:
        if name == "pygame" and rest and len(rest) > 2 and "camera" in (rest[2] or ()):
            raise ImportError("this build has no camera")
        return imports(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert WebCamTexture.devices() == ()
    with pytest.raises(WebCamError, match="this build has no camera"):
        WebCamTexture(app).play()
    assert capfd.readouterr() == ("", "")
