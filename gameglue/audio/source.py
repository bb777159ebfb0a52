"""`AudioSource` and `AudioListener`: sound as components."""

from __future__ import annotations

from gameglue.audio.clip import AudioClip
from gameglue.audio.device import Voice
from gameglue.behaviour import MonoBehaviour
from gameglue.errors import GameError


class AudioListener(MonoBehaviour):
    """The ears: sources with a `spatial_blend` are heard from where this one is, which way it looks.

    Of several, the one that was enabled last counts.
    """

    def on_enable(self) -> None:
        """Listen."""
        self.app.audio.listeners.append(self.transform)

    def on_disable(self) -> None:
        """Listen no more."""
        self.app.audio.listeners.remove(self.transform)


class AudioSource(MonoBehaviour):
    """Plays a sound.

        bang = self.game_object.add_component(AudioSource, clip="bang.ogg", play_on_awake=False)
        bang.play()

    `volume` is from 0 to 1; `pitch` 2 is twice as fast and an octave higher, and counts from the next `play`.
    With `spatial_blend` above 0 it fades from `min_distance` to silence at `max_distance`, and comes from
    the side where it is, as heard by the `AudioListener`. What `is_playing` and `position` say is counted in
    the game's real time, so that it is the same with and without a device.
    """

    clip: AudioClip | None = None
    volume: float = 1.0
    pitch: float = 1.0
    loop: bool = False
    mute: bool = False
    play_on_awake: bool = True
    spatial_blend: float = 0.0
    min_distance: float = 1.0
    max_distance: float = 50.0

    _voice: Voice | None = None
    _started: float = 0.0
    _paused_at: float | None = None
    _length: float = 0.0
    _loops: bool = False

    def start(self) -> None:
        """Begin by itself, if it is to."""
        if self.play_on_awake and self.clip is not None and self._voice is None:
            self.play()

    def late_update(self) -> None:
        """Follow what has changed: volume, place, the end."""
        if self._voice is None:
            return
        if not self.is_playing and self._paused_at is None:
            self.stop()
        else:
            self._voice.set_volume(*self._loudness())

    def on_disable(self) -> None:
        """Be silent."""
        self.stop()

    # -- playing --------------------------------------------------------------------------------

    def play(self) -> None:
        """Play the clip from its beginning. Raises `GameError` without one."""
        clip = self.clip
        if clip is None:
            raise GameError(f"{self!r} has no clip to play; set its field `clip`")
        self.stop()
        volume, pan = self._loudness()
        self._voice = self.app.audio.play(clip, volume=volume, pan=pan, pitch=self.pitch, loop=self.loop)
        self._started, self._paused_at = self.app.time.unscaled_time, None
        self._length, self._loops = clip.length / self.pitch, self.loop

    def play_one_shot(self, clip: AudioClip, volume: float = 1.0) -> None:
        """Play `clip` once beside whatever this source plays, which goes on."""
        loud, pan = self._loudness()
        self.app.audio.play(clip, volume=loud * volume, pan=pan, pitch=self.pitch)

    def stop(self) -> None:
        """Play no more."""
        if self._voice is not None:
            self._voice.stop()
        self._voice = self._paused_at = None

    def pause(self) -> None:
        """Hold the sound where it is."""
        if self._voice is not None and self.is_playing:
            self._voice.pause()
            self._paused_at = self.app.time.unscaled_time

    def unpause(self) -> None:
        """Go on where it was held."""
        if self._voice is not None and self._paused_at is not None:
            self._started += self.app.time.unscaled_time - self._paused_at
            self._paused_at = None
            self._voice.unpause()

    @property
    def is_playing(self) -> bool:
        """True from `play` to the end of the clip, for ever if it loops; False while it is held."""
        if self._voice is None or self._paused_at is not None:
            return False
        return self._loops or self.app.time.unscaled_time - self._started < self._length

    @property
    def position(self) -> float:
        """Seconds since its beginning, of what is being played."""
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
