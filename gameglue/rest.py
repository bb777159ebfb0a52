"""`Rest`: what a frame leaves over until the next is due, and what it is spent on."""

from __future__ import annotations

from collections.abc import Callable

from engine import advance_loads
from gameglue.inference import InferenceQueue

_MARGIN = 0.001
"""Seconds before the next frame that stay free."""
_LOAD_SLICE = 0.002
_NAP = 0.0005
_LEAST_FOR_INFERENCE = 0.003
"""Seconds without which nothing is enqueued: what was may take some milliseconds more than expected."""
_FRUITLESS, _PATIENCE = 40, 6
"""Times in a row that nothing could be enqueued, after which nothing is tried any more; and frames whose rest
went by without inference that waits, after which the next frame has some within it."""


class Rest:
    """Gives what is being loaded, and on some machines inference, the time between two frames.

    Where a driver draws on the processor, what is enqueued within a frame waits for the frame's picture, or
    the picture for it. There inference is left to the rest, as long as frames have one.
    """

    def __init__(
        self,
        queue: InferenceQueue,
        *,
        infers: Callable[[], bool],
        is_done: Callable[[], bool] = lambda: True,
        mark: Callable[[], None] = lambda: None,
        time_source: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        """infers: whether inference may be left to it. is_done: whether the device has done what was enqueued
        up to the latest `mark`, the frame's picture included. time_source, sleep: in seconds.
        """
        self._queue = queue
        self._infers = infers
        self._is_done = is_done
        self._mark = mark
        self._time_source = time_source
        self._sleep = sleep
        self.takes_inference = False
        """Whether the latest frame had a rest that inference was left to."""
        self._has_inferred = False
        self._frames_without = 0
        self._frames_short = 0

    def took_inference(self) -> bool:
        """Whether this frame leaves inference to its rest too; where none follows, the next one does not."""
        took, self.takes_inference = self.takes_inference, False
        return took

    def spend(self, seconds: float, *, loads: bool = True) -> None:
        """Use up to so many seconds; returns early where nothing is left to do. loads: also for loading."""
        end = self._time_source() + seconds - _MARGIN
        is_long = seconds >= _LEAST_FOR_INFERENCE
        # A late frame among others is not made later.
        self._frames_short = 0 if is_long else self._frames_short + 1
        self.takes_inference = self._frames_short <= _PATIENCE and self._infers()
        fruitless = 0 if is_long and self.takes_inference else _FRUITLESS
        self._has_inferred = False
        while (left := end - self._time_source()) > 0.0:
            is_loading = loads and self._load(left)
            if fruitless < _FRUITLESS and left > _LEAST_FOR_INFERENCE and self._queue.wants_turn:
                fruitless = 0 if self._infer(left) else fruitless + 1
            elif not is_loading:
                break
        if not is_long:
            return
        self._frames_without = (
            0 if self._has_inferred or not self._queue.wants_turn else self._frames_without + 1
        )
        if self._frames_without > _PATIENCE:
            # Pictures leave no time for it: then a part in a frame.
            self.takes_inference, self._frames_without = False, 0

    def _load(self, seconds: float) -> bool:
        """Let what is being loaded go on; False if nothing is."""
        before = self._time_source()
        on_their_way = advance_loads(min(seconds, _LOAD_SLICE) * 1e3)
        if on_their_way and self._time_source() - before < _NAP:
            # It waits itself, for a compiler.
            self._sleep(min(seconds, _NAP))
        return on_their_way > 0

    def _infer(self, seconds: float) -> bool:
        """Let inference go on; False if nothing could be enqueued."""
        uses_gpu = self._queue.wants_gpu
        if uses_gpu and not self._is_done():
            # Behind what is not done, what is enqueued would end nobody knows when: maybe in the next frame.
            self._sleep(min(seconds, _NAP))
            return True
        # Calls may take longer than expected: half of what is left, then half of that.
        if self._queue.pump(0.5e3 * seconds) > 0.05:
            self._has_inferred = True
            if uses_gpu:
                self._mark()
            return True
        self._sleep(min(seconds, _NAP))
        return False
