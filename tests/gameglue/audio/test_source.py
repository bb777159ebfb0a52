"""Sources: when they play, what the device is given (SDL writes it to a file), and silence without one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gameglue import App, AudioClip, AudioListener, AudioSource, GameError

RunChild = Callable[..., str]


@pytest.fixture
def half_second() -> AudioClip:
    return AudioClip(np.zeros(22050))


def test_a_source_plays_for_as_long_as_its_clip(app: App, half_second: AudioClip) -> None:
    source = app.scene.create("a").add_component(AudioSource, clip=half_second)
    app.step(0.1)
    assert plays(source)
    app.step(0.3)
    assert source.position == pytest.approx(0.3)
    app.step(0.3)
    assert not plays(source)
    source.play()
    assert plays(source)
    source.stop()
    assert not plays(source)


def test_pitch_loops_and_pauses(app: App, half_second: AudioClip) -> None:
    source = app.scene.create("a").add_component(
        AudioSource, clip=half_second, play_on_awake=False, pitch=2.0
    )
    app.step(0.1)
    assert not plays(source)
    source.play()
    app.step(0.2)
    assert plays(source)
    source.pause()
    app.step(5.0)
    assert not plays(source)
    source.unpause()
    assert plays(source)
    assert source.position == pytest.approx(0.2)
    app.step(0.1)
    assert not plays(source)
    source.loop = True
    source.play()
    app.step(100.1)
    assert plays(source)
    assert source.position == pytest.approx(0.1)
    source.enabled = False
    assert not plays(source)


def test_a_source_without_a_clip_says_so(app: App) -> None:
    source = app.scene.create("a").add_component(AudioSource)
    app.step()
    with pytest.raises(GameError, match="has no clip to play"):
        source.play()
    with pytest.raises(GameError, match="pitch must be above 0"):
        app.audio.play(AudioClip(np.zeros(4)), pitch=0.0)


def test_distance_and_side_are_the_listeners(app: App, half_second: AudioClip) -> None:
    ears = app.scene.create("ears", AudioListener, position=(10, 0), rotation=90.0)
    source = app.scene.create("a", position=(10, 3)).add_component(
        AudioSource, clip=half_second, spatial_blend=1.0, min_distance=1.0, max_distance=5.0, volume=0.8
    )
    app.step()
    # Turned by 90 degrees, the ears' x axis points at the source.
    volume, pan = source._loudness()
    assert (volume, pan) == (pytest.approx(0.8 * 0.5), pytest.approx(1.0))
    source.transform.position = (10, -9)
    assert source._loudness() == (pytest.approx(0.0), pytest.approx(-1.0))
    source.transform.position = (11, 0)
    volume, pan = source._loudness()
    assert (volume, pan) == (pytest.approx(0.8), pytest.approx(0.0, abs=1e-9))
    ears.destroy()
    app.step()
    assert source._loudness() == (0.8, 0.0)


def test_without_a_window_no_device_is_opened(
    app: App, half_second: AudioClip, caplog: pytest.LogCaptureFixture
) -> None:
    app.scene.create("a").add_component(AudioSource, clip=half_second)
    with caplog.at_level(logging.WARNING):
        app.step()
    assert not app.audio.is_open
    assert not caplog.records


def plays(source: AudioSource) -> bool:
    return source.is_playing


DISK = """
import os, time
import numpy as np
from gameglue import App, AudioClip, AudioListener, AudioSource

tone = lambda hertz, seconds: AudioClip(
    0.5 * np.sin(2 * np.pi * hertz * np.arange(seconds * 44100) / 44100))

def frames_written():
    return os.path.getsize(os.environ["SDL_DISKAUDIOFILE"]) // 4

def until_written(frames):
    end = time.monotonic() + 60
    while frames_written() < frames and time.monotonic() < end:
        time.sleep(0.01)

with App("disk", headless=True, audio=True, on_error="raise") as app:
    app.scene.create("ears", AudioListener)
    left = app.scene.create("left", position=(-3, 0)).add_component(
        AudioSource, clip=tone(440.0, 0.5), pitch=2.0, loop=True, spatial_blend=1.0, max_distance=5.0)
    app.audio.volume = 0.5  # before anything sounds: the device plays on by its own clock
    app.step(0.01)
    assert app.audio.is_open
    left.play_one_shot(tone(300.0, 2), 0.5)
    app.step(0.01)
    until_written(frames_written() + 20480)
    heard = frames_written()
    left.destroy()
    app.step(0.01)
    until_written(heard + 65536)
print(left.is_playing, heard)
"""


def test_the_device_gets_what_the_sources_say(run_child: RunChild, tmp_path: Path) -> None:
    written = tmp_path / "heard.raw"
    environment = {"SDL_AUDIODRIVER": "disk", "SDL_DISKAUDIOFILE": str(written), "GAMEGLUE_NO_OPENGL": "1"}
    playing, end = run_child(DISK, **environment).strip().splitlines()[-1].split()
    assert playing == "False"
    heard = np.fromfile(written, np.int16).reshape(-1, 2).astype(float)
    assert np.abs(heard[:, 1]).max() == 0.0
    # Both tones, the one an octave higher than its clip, the other as high as `pitch` makes it.
    piece = heard[int(end) - 16384 : int(end), 0]
    spectrum = np.abs(np.fft.rfft(piece * np.hanning(len(piece))))
    hertz = np.fft.rfftfreq(len(piece), 1 / 44100)
    strong = hertz[spectrum > 0.2 * spectrum.max()]
    assert {round(h, -2) for h in strong} == {600.0, 900.0}
    # (1 - (3 - 1) / (5 - 1)) * 0.5 of the app, of half the full range, and half of that again.
    loudest = 32767 * 0.5 * 0.5 * 0.5
    assert np.abs(heard[:, 0]).max() == pytest.approx(loudest * 1.5, rel=0.1)
    # Destroying the source ended its sound; the one-shot had two seconds at twice the pitch.
    assert np.abs(heard[-512:]).max() == 0.0


SILENT = """
import logging, sys
import numpy as np
from gameglue import App, AudioClip, AudioSource
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
with App("silent", headless=True, audio=True, on_error="raise") as app:
    for _ in range(3):
        source = app.scene.create("a").add_component(AudioSource, clip=AudioClip(np.zeros(400)), loop=True)
    app.run(frames=3)
    assert source.is_playing
    assert not app.audio.is_open
"""


def test_without_a_device_there_is_one_warning(run_child: RunChild) -> None:
    printed = run_child(SILENT, SDL_AUDIODRIVER="nothing of that name", GAMEGLUE_NO_OPENGL="1")
    assert printed.count("no sound (") == 1
    assert "the game plays on in silence" in printed
