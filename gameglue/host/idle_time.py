"""`IdleTime`: spends the idle time between frames on loading and inference."""

from __future__ import annotations

from collections.abc import Callable

from engine import advance_loads
from gameglue.inference import InferenceQueue

MOST_IN_FLIGHT = 2
"""Pictures that are enqueued and not drawn, the next one included: as many as a window's swap chain has."""
_MARGIN = 0.001
"""Seconds before the next frame that stay free."""
_LOAD_SLICE = 0.002
_NAP = 0.0005
_LATE, _MANY = 0.001, 0.1
"""The shortest wait for images that counts, in seconds; the share of such frames that `limit` reports."""
_LEAST_FOR_INFERENCE = 0.003
"""Seconds without which nothing is enqueued: what was may take some milliseconds more than expected."""
_FRUITLESS, _PATIENCE = 40, 6
"""Times in a row that nothing could be enqueued, after which nothing is tried any more; and frames whose rest
went by without inference that waits, after which every rest has some, and a rest in which images are still
being drawn now and then, behind them."""


class IdleTime:
    """Runs loading, and on some machines inference, between two frames.

    Where a driver draws on the processor, what is enqueued within a frame waits for the frame's image, or
    the image for it. There inference is left to the rest. It also keeps the frames from running ahead of
    the device, which nothing else does without a window.
    """

    def __init__(
        self,
        queue: InferenceQueue,
        *,
        infers: Callable[[], bool],
        pending: Callable[[], int] = lambda: 0,
        mark: Callable[[], None] = lambda: None,
        time_source: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        """Create it for a queue; nothing runs before `spend`.

        Args:
            queue: Whose tasks it runs.
            infers: Whether inference may run in idle time.
            pending: The number of images and other fences that the device has not reached.
            mark: Inserts a fence.
            time_source: The time in seconds.
            sleep: Sleeps for so many seconds.
        """
        self._queue = queue
        self._infers = infers
        self._pending = pending
        self._mark = mark
        self._time_source = time_source
        self._sleep = sleep
        self.takes_inference = False
        """Whether the latest frame had a rest that inference was left to."""
        self.late = 0.0
        """By how many seconds the latest rest went on beyond its end, until images were drawn."""
        self._rests = 0
        self._waits = 0
        self._waited = 0.0
        self._has_inferred = False
        self._frames_without = 0

    @property
    def limit(self) -> str:
        """A note that frames waited for the renderer; empty if few did."""
        share = self._waits / max(self._rests, 1)
        if share < _MANY:
            return ""
        each = self._waited / self._waits * 1e3
        return f"the renderer: {share:.0%} of the frames waited for it, {each:.1f} ms each"

    def took_inference(self) -> bool:
        """Whether this frame's inference runs in its idle time too."""
        took, self.takes_inference = self.takes_inference, False
        return took

    def spend(self, seconds: float, *, loading: float | None = None) -> None:
        """Work for up to `seconds`; returns early if nothing is left to do.

        It takes longer while more than `MOST_IN_FLIGHT` images would be in flight with the next one.

        Args:
            seconds: For inference and loading together.
            loading: The most of them for loading; None for all.
        """
        end = self._time_source() + seconds
        self._use(seconds, seconds if loading is None else loading)
        before = self._time_source()
        while self._pending() >= MOST_IN_FLIGHT:
            if not self._load(_LOAD_SLICE):
                self._sleep(_NAP)
        now = self._time_source()
        self.late = max(0.0, now - end)
        self._rests += 1
        if now - before > _LATE:
            self._waits += 1
            self._waited += now - before

    def _use(self, seconds: float, loading: float) -> None:
        now = self._time_source()
        end, loading_end = now + seconds - _MARGIN, now + loading - _MARGIN
        is_long = seconds >= _LEAST_FOR_INFERENCE
        self.takes_inference = self._infers()
        fruitless = 0 if is_long and self.takes_inference else _FRUITLESS
        self._has_inferred = False
        while (left := end - (now := self._time_source())) > 0.0:
            is_loading = loading_end > now and self._load(min(left, loading_end - now))
            if fruitless < _FRUITLESS and left > _LEAST_FOR_INFERENCE and self._queue._wants_turn:
                fruitless = 0 if self._infer(left) else fruitless + 1
            elif not is_loading:
                break
        if self._has_inferred or not self.takes_inference or not self._queue._wants_turn:
            self._frames_without = 0
            return
        self._frames_without += 1
        if self._frames_without <= _PATIENCE:
            return
        is_behind = self._queue._wants_gpu and self._pending() > 0
        if is_behind and self._frames_without % (_PATIENCE + 1):
            return
        # Pictures leave no time for it. Within a frame it would wait for them all the same.
        while self._queue._wants_gpu and self._pending():
            self._sleep(_NAP)
        self._infer(_LEAST_FOR_INFERENCE)

    def _load(self, seconds: float) -> bool:
        """Continue loading; False if nothing is being loaded."""
        before = self._time_source()
        on_their_way = advance_loads(min(seconds, _LOAD_SLICE) * 1e3)
        if on_their_way and self._time_source() - before < _NAP:
            # It waits itself, for a compiler.
            self._sleep(min(seconds, _NAP))
        return on_their_way > 0

    def _infer(self, seconds: float) -> bool:
        """Continue inference; False if nothing could be enqueued."""
        uses_gpu = self._queue._wants_gpu
        if uses_gpu and self._pending():
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
