"""`AudioSource` and `AudioListener`: sound as components."""

from __future__ import annotations

from math import inf
from typing import Annotated

from engine.base.spelling import explains_arguments
from gameglue.audio.clip import AudioClip
from gameglue.audio.device import Voice
from gameglue.errors import GameError
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.fields import Range


class AudioListener(MonoBehaviour):
    """The place and direction from which sources with a `spatial_blend` are heard.

    Of several, the one that was enabled last counts.
    """

    def on_enable(self) -> None:
        """Register as a listener."""
        self.app.audio.listeners.append(self.transform)

    def on_disable(self) -> None:
        """Unregister as a listener."""
        self.app.audio.listeners.remove(self.transform)


class AudioSource(MonoBehaviour):
    """Plays a sound.

        bang = self.game_object.add_component(AudioSource, clip="bang.ogg", play_on_awake=False)
        bang.play()

    `is_playing` and `position` follow the game's real time, so they are the same with and without a device.
    """

    clip: AudioClip | None = None
    """The sound; scene files and `add_component` take a file name, too."""
    volume: Annotated[float, Range(0.0, 1.0)] = 1.0
    """Loudness, times `app.audio.volume`."""
    pitch: Annotated[float, Range(0.01, 100.0)] = 1.0
    """Speed: 2 is twice as fast and an octave higher. Counts from the next `play`."""
    loop: bool = False
    """Begin again at the end."""
    mute: bool = False
    """Play without being heard."""
    play_on_awake: bool = True
    """Play when the component starts."""
    spatial_blend: Annotated[float, Range(0.0, 1.0)] = 0.0
    """How much the sound depends on where the `AudioListener` is: 0 not at all, 1 fully."""
    min_distance: Annotated[float, Range(0.0, inf, "units")] = 1.0
    """Up to this distance a spatial sound has its full volume."""
    max_distance: Annotated[float, Range(0.0, inf, "units")] = 50.0
    """From this distance on a spatial sound is silent."""

    _voice: Voice | None = None
    _started: float = 0.0
    _paused_at: float | None = None
    _length: float = 0.0
    _loops: bool = False

    def start(self) -> None:
        """Play the clip if `play_on_awake` is set."""
        if self.play_on_awake and self.clip is not None and self._voice is None:
            self.play()

    def late_update(self) -> None:
        """Update volume and position, and notice the end of the clip."""
        if self._voice is None:
            return
        if not self.is_playing and self._paused_at is None:
            self.stop()
        else:
            self._voice.set_volume(*self._loudness())

    def on_disable(self) -> None:
        """Stop the sound."""
        self.stop()

    # -- playing --------------------------------------------------------------------------------

    @explains_arguments(
        GameError,
        "it plays the field `clip`; play_one_shot(self.app.resources.load(name)) plays another sound",
    )
    def play(self) -> None:
        """Play the clip from its beginning.

        Raises:
            GameError: There is no clip.
        """
        clip = self.clip
        if clip is None:
            raise GameError(f"{self!r} has no clip to play; set its field `clip`")
        self.stop()
        volume, pan = self._loudness()
        self._voice = self.app.audio.play(clip, volume=volume, pan=pan, pitch=self.pitch, loop=self.loop)
        self._started, self._paused_at = self.app.time.unscaled_time, None
        self._length, self._loops = clip.length / self.pitch, self.loop

    def play_one_shot(self, clip: AudioClip, volume: float = 1.0) -> None:
        """Play `clip` once; what this source plays continues."""
        loud, pan = self._loudness()
        self.app.audio.play(clip, volume=loud * volume, pan=pan, pitch=self.pitch)

    def stop(self) -> None:
        """Stop playing."""
        if self._voice is not None:
            self._voice.stop()
        self._voice = self._paused_at = None

    def pause(self) -> None:
        """Pause the sound."""
        if self._voice is not None and self.is_playing:
            self._voice.pause()
            self._paused_at = self.app.time.unscaled_time

    def unpause(self) -> None:
        """Continue where `pause` stopped it."""
        if self._voice is not None and self._paused_at is not None:
            self._started += self.app.time.unscaled_time - self._paused_at
            self._paused_at = None
            self._voice.unpause()

    @property
    def is_playing(self) -> bool:
        """True from `play` to the end of the clip, without end if it loops; False while it is paused."""
        if self._voice is None or self._paused_at is not None:
            return False
        return self._loops or self.app.time.unscaled_time - self._started < self._length

    @property
    def position(self) -> float:
        """Playback position in seconds."""
        if self._voice is None:
            return 0.0
        now = self.app.time.unscaled_time if self._paused_at is None else self._paused_at
        since = now - self._started
        return since % self._length if self._loops else min(since, self._length)

    def _loudness(self) -> tuple[float, float]:
        """Volume and pan where the source is now."""
        volume = 0.0 if self.mute else self.volume
        listeners = self.app.audio.listeners
        if self.spatial_blend <= 0.0 or not listeners:
            return volume, 0.0
        ears = listeners[-1]
        offset = ears.rotation.inverse().rotate(self.transform.position - ears.position)
        distance = offset.length()
        span = max(self.max_distance - self.min_distance, 1e-6)
        near = 1.0 - min(max((distance - self.min_distance) / span, 0.0), 1.0)
        side = offset.x / distance if distance > 0.0 else 0.0
        return volume * (1.0 + self.spatial_blend * (near - 1.0)), self.spatial_blend * side
