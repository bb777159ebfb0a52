"""The duel itself: who moves how, the score, and what the rival is told about you."""

from __future__ import annotations

from collections import deque

import numpy as np

from demos.rival.brain import decide
from demos.rival.court import DT, PADDLE_SPEED, Court
from demos.rival.school import Mind, School
from gameglue import AudioClip, AudioSource, MonoBehaviour

_PAUSE = 0.7  # seconds before a serve


def tone(pitch: float, seconds: float) -> AudioClip:
    """A note that fades, `pitch` in hertz."""
    time = np.arange(int(44100 * seconds)) / 44100
    return AudioClip(0.3 * np.sin(2 * np.pi * pitch * time) * np.exp(-6 * time / seconds), 44100)


_HIT = (tone(660, 0.12), tone(440, 0.12))
_POINT = (tone(990, 0.5), tone(165, 0.5))


class Match(MonoBehaviour):
    """You on the left, the rival on the right. `double`: where your double would have its paddle."""

    mind: Mind
    school: School
    sound: AudioSource
    plays_itself: bool

    def awake(self) -> None:
        """Nil to nil."""
        self.court = Court(1, self.app.random)
        self.double = Court(1, self.app.random)
        self.score = [0, 0]
        self.flash = np.zeros(2)
        self.trail: deque[tuple[float, float]] = deque(maxlen=14)
        self.aim: float | None = None
        """The height that the pointer asks for; a key takes its place."""
        self._pause = _PAUSE
        self._rally: list[tuple[np.ndarray, float]] = []
        self._due = 0.0

    def update(self) -> None:
        """Play on."""
        dt = min(self.time.delta_time, DT)
        court = self.court
        before = float(court.paddles[0, 0])
        moves = np.array([[self._own_move(dt), self.mind.move]])
        self.mind.ask(court.senses(1))
        self.flash *= 0.9
        self._pause -= dt
        if self._pause > 0.0:
            court.swing(moves, dt)
            return
        self.trail.append((float(court.ball[0, 0]), float(court.ball[0, 1])))
        seen = court.senses(0)[0]
        point = int(court.step(moves, dt)[0])
        self._watch(seen, (float(court.paddles[0, 0]) - before) / (PADDLE_SPEED * dt), dt)
        for side in np.flatnonzero(court.hits[0]):
            self.flash[side] = 1.0
            self.sound.play_one_shot(_HIT[side])
        if point or court.hits[0, 0]:
            senses, swings = zip(*self._rally, strict=True)
            self.school.remember(np.array(senses), np.array(swings), bool(point))
        if point:
            self._score(int(point > 0))

    def _own_move(self, dt: float) -> float:
        paddle = float(self.court.paddles[0, 0])
        if self.input.mouse_path:
            self.plays_itself = False
        if self.plays_itself:
            # A good player with a habit: while the ball goes away, it waits in the middle.
            seen = self.court.senses(0)[0]
            return float(np.clip(3.0 * seen[4] if seen[5] > 0.0 else -1.5 * seen[6], -0.9, 0.9))
        keys = self.input.get_axis("down", "up")
        if keys:
            self.aim = None
            return keys
        wanted = paddle if self.aim is None else self.aim
        return float(np.clip((wanted - paddle) / (PADDLE_SPEED * dt), -1.0, 1.0))

    def _watch(self, seen: np.ndarray, moved: float, dt: float) -> None:
        """Note what you did, as often as a court has steps, and let the double do as it would."""
        self.double.ball, self.double.velocity = self.court.ball, self.court.velocity
        self.double.paddles[0, 1] = self.court.paddles[0, 1]
        would = decide(self.school.double[None], self.double.senses(0)[None])
        self.double.swing(np.array([[would[0, 0], 0.0]]), dt)
        self._due -= dt
        if self._due <= 0.0:
            self._due += DT
            self._rally.append((seen, float(np.clip(moved, -1.0, 1.0))))

    def _score(self, side: int) -> None:
        self.score[side] += 1
        self.sound.play_one_shot(_POINT[side])
        self._rally, self._due, self._pause = [], 0.0, _PAUSE
        self.trail.clear()
