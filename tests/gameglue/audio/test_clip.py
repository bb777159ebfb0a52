"""Sounds in memory: from arrays and files, and at another pitch."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from gameglue import App, AudioClip, AudioSource, GameError, ResourceError


def tone(hertz: float, seconds: float = 0.5, frequency: int = 44100) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * frequency)) / frequency)


def pitch_of(samples: np.ndarray, frequency: int) -> float:
    """The strongest frequency in Hz, by Fourier transform."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum)) * frequency / len(samples)


def write_wave(path: Path, samples: np.ndarray, frequency: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(frequency)
        file.writeframes(samples.astype("<i2").tobytes())


def test_floats_become_samples_of_16_bits() -> None:
    clip = AudioClip(np.array([0.0, 1.0, -1.0, 2.0, np.nan, 0.5]), 6)
    assert clip.samples[:, 0].tolist() == [0, 32767, -32767, 32767, 0, 16384]
    assert clip.length == 1.0
    stereo = AudioClip(np.array([[1, -2], [3, -4]], np.int16))
    assert stereo.samples.tolist() == [[1, -2], [3, -4]]


@pytest.mark.parametrize(
    ("samples", "frequency"),
    [
        (np.zeros((2, 3)), 44100),
        (np.zeros(0), 44100),
        (np.zeros(4, np.int32), 44100),
        (np.zeros(4), 0),
    ],
)
def test_what_is_no_sound_is_refused(samples: np.ndarray, frequency: int) -> None:
    with pytest.raises(GameError, match="sound's"):
        AudioClip(samples, frequency)


def test_a_note_has_its_pitch_and_fades() -> None:
    clip = AudioClip.tone(660.0, 0.4, 0.5)
    samples = clip.samples[:, 0] / 32767
    assert clip.length == pytest.approx(0.4)
    assert pitch_of(samples, clip.frequency) == pytest.approx(660.0, abs=3.0)
    thirds = [np.abs(part).max() for part in np.array_split(samples, 3)]
    assert 0.5 >= thirds[0] > 5 * thirds[1] > 25 * thirds[2] > 0.0
    with pytest.raises(GameError, match="sound's"):
        AudioClip.tone(660.0, 0.0)


@pytest.mark.parametrize(("pitch", "expected"), [(1.0, 440.0), (2.0, 880.0), (0.5, 220.0)])
def test_pitch_and_frequency_are_those_of_the_device(pitch: float, expected: float) -> None:
    clip = AudioClip(tone(440.0, frequency=22050), 22050)
    samples = clip.resampled(44100, pitch)
    assert samples.shape == (round(0.5 * 44100 / pitch), 2)
    assert np.array_equal(samples[:, 0], samples[:, 1])
    assert pitch_of(samples[:, 0], 44100) == pytest.approx(expected, abs=2.5)


def test_a_file_without_a_device(tmp_path: Path) -> None:
    samples = np.stack([tone(300.0), tone(600.0)], axis=1) * 20000
    write_wave(tmp_path / "two.wav", samples, 44100)
    clip = AudioClip.load(tmp_path / "two.wav")
    assert clip.name == "two.wav"
    assert clip.length == pytest.approx(0.5)
    np.testing.assert_array_equal(clip.samples, samples.astype(np.int16))


def test_a_file_at_another_rate_keeps_its_pitch(tmp_path: Path) -> None:
    write_wave(tmp_path / "slow.wav", (tone(300.0, frequency=11025) * 20000)[:, None], 11025)
    clip = AudioClip.load(tmp_path / "slow.wav")
    assert clip.length == pytest.approx(0.5, abs=0.01)
    assert pitch_of(clip.samples[:, 0], clip.frequency) == pytest.approx(300.0, abs=3.0)


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "no.wav").write_bytes(b"nothing")
    with pytest.raises(ResourceError, match=r"no\.wav is not a sound"):
        AudioClip.load(tmp_path / "no.wav")


def test_a_component_takes_a_sound_by_its_files_name(app: App, tmp_path: Path) -> None:
    write_wave(tmp_path / "beep.wav", (tone(300.0) * 20000)[:, None], 44100)
    app.resources.roots.insert(0, tmp_path)
    source = app.scene.create("source").add_component(AudioSource, clip="beep.wav")
    assert isinstance(source.clip, AudioClip)
    assert isinstance(app.resources.load("beep.wav"), AudioClip)
