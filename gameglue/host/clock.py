"""The real, game and fixed clocks, and `Time`, which components read as `self.time`.

No clock reads the computer's time: the host passes seconds in, so a test, a replay or a video capture owns
time completely.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from engine.base.spelling import answers_spelling

Quantity = TypeVar("Quantity", float, np.ndarray)

# Sums of steps such as 0.02 fall short of a multiple by a few ulps; without this a step comes a frame late.
_ROUNDING = 1e-9


_SMOOTHING = 0.2
"""How much of the newest frame's length goes into the smoothed one, so that about ten frames count."""


class RealClock:
    """Real time in seconds, never paused or capped."""

    def __init__(self) -> None:
        self.time = 0.0
        self.delta = 0.0

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self.delta = seconds
        self.time += seconds


class GameClock:
    """Seconds of the game world: scaled, paused, and never more than `max_delta` in one frame.

    The cap keeps a long hitch (a breakpoint, a dragged window) from moving everything through walls.
    """

    def __init__(self, max_delta: float) -> None:
        self.time = 0.0
        self.delta = 0.0
        self.scale = 1.0
        self.paused = False
        self.max_delta = max_delta
        self._smooth: float | None = None

    def advance(self, seconds: float) -> None:
        """Let `seconds` of real time pass."""
        capped = min(seconds, self.max_delta)
        self.delta = 0.0 if self.paused else capped * self.scale
        self.time += self.delta
        self._smooth = capped if self._smooth is None else self._smooth + _SMOOTHING * (capped - self._smooth)

    @property
    def smooth_delta(self) -> float:
        """`delta`, smoothed over recent frames."""
        return 0.0 if self.paused or self._smooth is None else self._smooth * self.scale


class FixedClock:
    """Fixed steps of game time, at most `max_steps` per frame.

    What goes past the cap is dropped (`dropped`, in seconds): were it kept, steps that take longer than
    the time they stand for would make every later frame longer still.
    """

    def __init__(self, delta: float, max_steps: int) -> None:
        if delta <= 0.0:
            raise ValueError(f"fixed_delta_time must be above 0 seconds, got {delta}")
        if max_steps < 1:
            raise ValueError(f"max_fixed_steps must be at least 1, got {max_steps}")
        self.time = 0.0
        self.delta = delta
        self.max_steps = max_steps
        self.dropped = 0.0
        self._owed = 0.0

    def steps_due(self, game_seconds: float) -> int:
        """Add game time and return how many steps to run now."""
        self._owed += game_seconds
        due = int(self._owed / self.delta + _ROUNDING)
        self._owed = max(self._owed - due * self.delta, 0.0)
        if due > self.max_steps:
            self.dropped += (due - self.max_steps) * self.delta
            due = self.max_steps
        return due

    def advance(self) -> None:
        """Start one step."""
        self.time += self.delta


@answers_spelling
class Time:
    """The game's clocks: `self.time`. All times are in seconds.

    Attributes:
        frame_count: Number of the frame; 1 is the first.
        in_fixed_step: Whether `fixed_update` is being called.
    """

    def __init__(
        self, *, fixed_delta_time: float = 1 / 50, max_delta_time: float = 0.25, max_fixed_steps: int = 10
    ) -> None:
        self.real = RealClock()
        self.game = GameClock(max_delta_time)
        self.fixed = FixedClock(fixed_delta_time, max_fixed_steps)
        self.frame_count = 0
        self.in_fixed_step = False

    def begin_frame(self, seconds: float) -> None:
        """Start a frame `seconds` after the previous one; called by the host."""
        if seconds < 0.0:
            raise ValueError(f"a frame cannot take {seconds} seconds")
        self.real.advance(seconds)
        self.game.advance(seconds)
        self.frame_count += 1

    def hold(self) -> None:
        """Start a frame in which no time passes and which is not counted; called by the host."""
        self.real.delta = self.game.delta = 0.0

    @property
    def time(self) -> float:
        """Game time since the start; inside `fixed_update`, the time of the fixed step."""
        return self.fixed.time if self.in_fixed_step else self.game.time

    @property
    def delta_time(self) -> float:
        """Game time since the last frame; inside `fixed_update`, `fixed_delta_time`."""
        return self.fixed.delta if self.in_fixed_step else self.game.delta

    @property
    def smooth_delta_time(self) -> float:
        """`delta_time`, smoothed over about ten frames: for motion that should not jump after a long frame.

        Its sum drifts from `time`, so move with `delta_time` what has to be somewhere at a time.
        """
        return self.fixed.delta if self.in_fixed_step else self.game.smooth_delta

    @property
    def unscaled_time(self) -> float:
        """Real time since the start: runs on while the game is paused."""
        return self.real.time

    @property
    def unscaled_delta_time(self) -> float:
        """Real time since the last frame."""
        return self.real.delta

    def damp(self, value: Quantity, goal: Quantity, seconds: float) -> Quantity:
        """Move `value` smoothly towards `goal` and return it: exponential smoothing for bars and cameras.

        In `seconds` of real time it covers 1 - 1/e of the way, about two thirds, at any frame rate.
        """
        return value + (goal - value) * (1.0 - math.exp(-self.unscaled_delta_time / seconds))

    @property
    def fixed_time(self) -> float:
        """Game time of the latest fixed step."""
        return self.fixed.time

    @property
    def fixed_delta_time(self) -> float:
        """Length of a fixed step."""
        return self.fixed.delta

    @property
    def time_scale(self) -> float:
        """Speed of game time: 1 is real time, 0.5 half speed."""
        return self.game.scale

    @time_scale.setter
    def time_scale(self, scale: float) -> None:
        if scale < 0.0:
            raise ValueError(f"time_scale must be 0 or more, got {scale}; game time does not run backwards")
        self.game.scale = scale

    @property
    def paused(self) -> bool:
        """True while game time stands still; frames are still drawn."""
        return self.game.paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self.game.paused = paused
