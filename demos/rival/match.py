"""The match: paddles, score, and the recording of your moves for training."""

from __future__ import annotations

from collections import deque

import numpy as np

from demos.rival.court import DT, PADDLE_SPEED, Court, Floats
from demos.rival.school import NETWORK, School
from gameglue import AudioClip, AudioSource, Brain, InferenceRequest, MonoBehaviour

GOAL = 11  # points that win a match
_PAUSE, _REST = 0.7, 4.0  # seconds before a serve, before the next match
_HIT = AudioClip.tone(660, 0.12), AudioClip.tone(440, 0.12)
_POINT = AudioClip.tone(990, 0.5), AudioClip.tone(165, 0.5)


class Match(MonoBehaviour):
    """You play on the left, the rival on the right. `double`: a court in which your double plays for you."""

    brain: Brain
    school: School
    sound: AudioSource
    plays_itself: bool

    def awake(self) -> None:
        """Start the first match."""
        self.court, self.double = Court(1, self.app.random), Court(1, self.app.random)
        self.flash, self.trail = np.zeros(2), deque[Floats](maxlen=14)
        self.begin()
        self.aim: float | None = None
        """The height that the pointer asks for; `None` while keys move the paddle."""
        self.answer = 0.0
        """The network's latest answer: the rival's move, from -1 to 1."""
        self._moments: list[Floats] = []
        self._due, self._is_new_rally = 0.0, True

    def begin(self) -> None:
        """Start a match at 0 to 0."""
        self.score, self._pause = [0, 0], _PAUSE

    def update(self) -> None:
        """Ask the network for a move, and advance the ball."""
        dt, court = min(self.time.delta_time, DT), self.court
        weights = NETWORK.inputs(self.school.evolution.weights)
        senses = court.senses(1).astype(np.float32)
        self.brain.request(senses=senses, **weights, latest_only=True, callback=self._take)
        moves = np.array([[self._own_move(dt), self.answer]])
        self.flash *= 0.9
        self._pause -= dt
        if self._pause <= 0.0 and GOAL in self.score:
            self.begin()
        if self._pause > 0.0:
            court.swing(moves, dt)
            return
        self.trail.append(court.ball[0].copy())
        seen, before = court.senses(0)[0], court.paddles[0, 0]
        point = int(court.step(moves, dt)[0])
        self._watch(seen, (court.paddles[0, 0] - before) / (PADDLE_SPEED * dt), dt)
        for side in np.flatnonzero(court.hits[0]):
            self.flash[side] = 1.0
            self.sound.play_one_shot(_HIT[side])
        if point or court.hits[0, 0]:
            self._tell_school()
        if point:
            self._score(int(point > 0))

    def _take(self, request: InferenceRequest) -> None:
        self.answer = float(request.result()[0, 0])

    def _own_move(self, dt: float) -> float:
        if self.input.mouse_path:
            self.plays_itself = False
        if self.plays_itself:
            # A good player with a habit: it returns to the middle while the ball moves away.
            seen = self.court.senses(0)[0]
            return float(np.clip(3.0 * seen[4] if seen[5] > 0.0 else -1.5 * seen[6], -0.9, 0.9))
        keys = self.input.get_axis("down", "up")
        if keys or self.aim is None:
            self.aim = None
            return keys
        return float(np.clip((self.aim - self.court.paddles[0, 0]) / (PADDLE_SPEED * dt), -1.0, 1.0))

    def _watch(self, seen: Floats, moved: float, dt: float) -> None:
        """Record your move once a court step, and move the double as the network predicts."""
        self.double.ball, self.double.velocity = self.court.ball, self.court.velocity
        self.double.paddles[0, 1] = self.court.paddles[0, 1]
        would = NETWORK.forward(self.school.double, self.double.senses(0))[0, 0]
        self.double.swing(np.array([[would, 0.0]]), dt)
        self._due -= dt
        if self._due <= 0.0:
            self._due += DT
            self._moments.append(np.append(seen, np.clip(moved, -1.0, 1.0)))

    def _tell_school(self) -> None:
        """Add the moments that led to a hit or a miss to the training data."""
        if self._is_new_rally:
            self.school.rallies.append([])
        self.school.rallies[-1] += self._moments
        self._moments, self._is_new_rally = [], False

    def _score(self, side: int) -> None:
        self.score[side] += 1
        self.sound.play_one_shot(_POINT[side])
        self._moments, self._due, self._is_new_rally = [], 0.0, True
        self._pause = _REST if GOAL in self.score else _PAUSE
        self.trail.clear()
