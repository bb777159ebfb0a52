"""`Audio`: an app's sound device, which may be missing."""

from __future__ import annotations

import logging
from typing import Any

from gameglue.audio.clip import AudioClip
from gameglue.audio.mixer import close_mixer, open_mixer
from gameglue.errors import GameError
from gameglue.host.pygame_ce import import_pygame
from gameglue.scene.transform import Transform

_log = logging.getLogger("gameglue")

_KEPT = 64
"""How many clips are kept ready in the mixer's format."""


def _check_clip(clip: object) -> None:
    if not isinstance(clip, AudioClip):
        hint = f"; load it with resources.load({clip!r})" if isinstance(clip, str) else ""
        raise GameError(f"play needs an AudioClip, got {type(clip).__name__}{hint}")


class Voice:
    """A playing sound; methods do nothing without a device, or once it has ended."""

    def __init__(self, audio: Audio, channel: Any = None, sound: Any = None) -> None:
        self._audio = audio
        self._channel = channel
        self._sound = sound
        self._volumes = (-1.0, -1.0)

    def set_volume(self, volume: float, pan: float = 0.0) -> None:
        """volume: from 0 to 1, times the app's. pan: from -1, left only, to 1, right only."""
        loud = min(max(volume * self._audio.volume, 0.0), 1.0)
        volumes = (loud * min(1.0, 1.0 - pan), loud * min(1.0, 1.0 + pan))
        if volumes != self._volumes and self._is_mine():
            self._volumes = volumes
            self._channel.set_volume(*volumes)

    def pause(self) -> None:
        """Pause it."""
        if self._is_mine():
            self._channel.pause()

    def unpause(self) -> None:
        """Continue after `pause`."""
        if self._is_mine():
            self._channel.unpause()

    def stop(self) -> None:
        """Stop it."""
        if self._is_mine():
            self._channel.stop()
        self._channel = self._sound = None

    def _is_mine(self) -> bool:
        # A channel that has ended is given to others, and all end with the mixer.
        return self._channel is not None and self._audio.is_open and self._channel.get_sound() is self._sound


class Audio:
    """Plays clips on the process's sound device, which is opened when the first one is played.

    Where there is none, that is said once, and everything may be called all the same.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.volume = 1.0
        """Of everything, from 0 to 1; sources follow it while they play."""
        self.listeners: list[Transform] = []
        """Where sound is heard from; the last one counts."""
        self._enabled = enabled
        self._opened = False
        self._frequency = 0
        self._sounds: dict[tuple[int, float], tuple[AudioClip, Any]] = {}

    @property
    def is_open(self) -> bool:
        """Whether a device is in use."""
        return self._opened and import_pygame().mixer.get_init() is not None

    def play(
        self,
        clip: AudioClip,
        *,
        volume: float = 1.0,
        pan: float = 0.0,
        pitch: float = 1.0,
        loop: bool = False,
    ) -> Voice:
        """Play `clip` together with all other sounds.

        volume, pan: see `Voice.set_volume`. pitch: 2 is an octave higher.

        Where more than 32 are to be heard at once, the further ones are left out.
        """
        _check_clip(clip)
        if not pitch > 0.0:
            raise GameError(f"pitch must be above 0, got {pitch}")
        if not self._open():
            return Voice(self)
        sound = self._sound_of(clip, pitch)
        channel = sound.play(-1 if loop else 0)
        voice = Voice(self, channel, sound)
        voice.set_volume(volume, pan)
        return voice

    def _open(self) -> bool:
        """Have a device; False where there is none."""
        if not self._enabled:
            return False
        if not self.is_open:
            self._sounds.clear()
            reason = open_mixer()
            if reason:
                self._enabled = False
                _log.warning("no sound (%s): the game plays on in silence", reason)
                return False
            self._opened = True
            self._frequency = int(import_pygame().mixer.get_init()[0])
        return True

    def _sound_of(self, clip: AudioClip, pitch: float) -> Any:
        """The clip as the mixer wants it."""
        key = id(clip), round(pitch, 3)
        known = self._sounds.pop(key, None)
        if known is None:
            samples = clip.resampled(self._frequency, pitch)
            known = (clip, import_pygame().mixer.Sound(buffer=samples))
            if len(self._sounds) >= _KEPT:
                del self._sounds[next(iter(self._sounds))]
        self._sounds[key] = known
        return known[1]

    def close(self) -> None:
        """Stop everything and let the device go; called by the host."""
        if self.is_open:
            close_mixer()
        self._sounds.clear()
        self._opened = self._enabled = False
