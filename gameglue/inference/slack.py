"""`FrameSlack`: measures the time that a frame leaves until the next one is due."""

from __future__ import annotations

from collections import deque

_KEPT = 30
_LATE = 1.1
_AT_FIRST = 0.5


class FrameSlack:
    """Estimates how many milliseconds of the present frame are left, from what frames take.

    What comes behind the spending (presenting, the loop's own work) is taken as the longest of the latest
    frames. A safety margin is kept, which grows by a quarter of a frame's length at once when a frame comes
    late, and shrinks slowly to a twentieth: so what cannot be measured here, such as a GPU that is behind, is
    found by its effect. Moments are in seconds.
    """

    def __init__(self, *, waits_behind: bool = False, least_ms: float = 0.25) -> None:
        """Create an estimator that has no measurements yet.

        waits_behind: presenting waits for the display, so that what comes behind the spending is taken as
            the shortest of the latest frames, the one that waited least.
        least_ms: may be spent even if no time is left, so that work continues in a game that is late.
        """
        self.least_ms = least_ms
        self._of_latest = min if waits_behind else max
        self._behind: deque[float] = deque(maxlen=_KEPT)
        self._caution = _AT_FIRST
        self._frame_ms = 0.0
        self._start: float | None = None
        self._spent: float | None = None

    def begin_frame(self, now: float, frame_ms: float) -> None:
        """Start a frame that should last `frame_ms`."""
        if self._start is not None:
            is_late = 1e3 * (now - self._start) > _LATE * frame_ms
            self._caution = min(self._caution + 0.25, 0.75) if is_late else 0.97 * self._caution
        self._start, self._frame_ms, self._spent = now, frame_ms, None

    def budget_ms(self, now: float) -> float:
        """The milliseconds that may be spent now."""
        passed = 1e3 * (now - (now if self._start is None else self._start))
        behind = self._of_latest(self._behind) if self._behind else 0.0
        margin = self._frame_ms * (0.05 + self._caution)
        return max(self._frame_ms - passed - behind - margin, self.least_ms)

    def end_spending(self, now: float) -> None:
        """End this frame's spending."""
        self._spent = now

    def end_frame(self, now: float) -> None:
        """The frame's work is done; the loop may pause."""
        if self._spent is not None:
            self._behind.append(1e3 * (now - self._spent))
