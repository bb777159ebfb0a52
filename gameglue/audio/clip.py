"""`AudioClip`: a sound in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np

from gameglue.audio.mixer import FREQUENCY, decode
from gameglue.errors import GameError


class AudioClip:
    """A sound, from an array or a file (`AudioClip.load`, `resources.load("bang.ogg")`).

    Args:
        samples: (n,) or (n, 1) for one channel, (n, 2) for left and right; int16, or floats from -1 to 1.
        frequency: Samples per second.
        name: Name for messages.

    Raises:
        GameError: Samples of another shape or type.

    >>> AudioClip(np.zeros(22050), frequency=44100).length
    0.5

    Attributes:
        name: Name for messages.
        frequency: Samples per second.
        samples: The samples, (n, 1) or (n, 2) int16, read-only.
    """

    def __init__(self, samples: np.ndarray, frequency: int = FREQUENCY, *, name: str = "") -> None:
        samples = np.asarray(samples)
        if samples.ndim == 1:
            samples = samples[:, None]
        if samples.ndim != 2 or samples.shape[1] not in (1, 2) or samples.shape[0] == 0:
            raise GameError(f"a sound's samples are (n,), (n, 1) or (n, 2), n above 0; got {samples.shape}")
        if np.issubdtype(samples.dtype, np.floating):
            samples = np.rint(np.clip(np.nan_to_num(samples), -1.0, 1.0) * 32767.0).astype(np.int16)
        elif samples.dtype != np.int16:
            raise GameError(f"a sound's samples are int16, or floats from -1 to 1; got {samples.dtype}")
        if frequency <= 0:
            raise GameError(f"a sound's frequency must be above 0 samples a second, got {frequency}")
        self.name = name
        self.frequency = int(frequency)
        self.samples = np.array(samples)
        self.samples.flags.writeable = False

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The sound in a file: WAV, OGG, MP3, FLAC.

        Raises:
            ResourceError: The file cannot be read.
        """
        samples, frequency = decode(Path(path))
        return cls(samples, frequency, name=Path(path).name)

    @classmethod
    def tone(cls, pitch: float, seconds: float, volume: float = 0.3) -> Self:
        """A fading tone.

        Args:
            pitch: Frequency in hertz.
            seconds: Length.
            volume: Loudness, 0 to 1.

        Raises:
            GameError: The length is not positive.

        >>> AudioClip.tone(880.0, 0.5).length
        0.5
        """
        time = np.arange(int(FREQUENCY * seconds)) / FREQUENCY
        fading = np.exp(-6.0 * time / max(seconds, 1e-9))
        return cls(volume * np.sin(2 * np.pi * pitch * time) * fading, name=f"{pitch:g} Hz")

    @property
    def length(self) -> float:
        """Length in seconds."""
        return len(self.samples) / self.frequency

    def resampled(self, frequency: int, pitch: float = 1.0) -> np.ndarray:
        """The samples at the rate of a device, (n, 2) int16, `pitch` times as fast and as high."""
        step = self.frequency * pitch / frequency
        samples = self.samples
        if abs(step - 1.0) > 1e-6:
            count = max(1, round(len(samples) / step))
            at, every = np.arange(count) * step, np.arange(len(samples))
            samples = np.stack([np.interp(at, every, s) for s in samples.T], axis=1)
            samples = np.rint(samples).astype(np.int16)
        return np.ascontiguousarray(np.broadcast_to(samples, (len(samples), 2)))

    def __repr__(self) -> str:
        return f"<AudioClip {self.name!r}, {self.length:.2f} s>"
