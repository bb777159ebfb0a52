"""`Upscaler`: draws the game small, has the network enlarge it, and measures what came out."""

from __future__ import annotations

import time

import numpy as np

from gameglue import (
    App,
    Camera2D,
    InferenceRequest,
    MonoBehaviour,
    Schedule,
    Tensor,
    TextureConverter,
    TextureTransform,
    Worker,
)

SIZE = (640, 480)
HALF = (320, 240)
BUDGET_MS, SLOW_BUDGET_MS = 8.0, 24.0
"""Of a frame for the network; a machine that is slower takes several frames for a picture. The second is for
where the processor draws: there a frame takes long anyway."""
_MEASURE_EVERY = 0.5  # seconds
_KEPT = 60


class Shot:
    """One moment of the game: drawn small, drawn whole (only to measure by), and enlarged by the network."""

    def __init__(self, app: App) -> None:
        self.low = app.graphics.render_target(HALF)
        self.native = app.graphics.render_target(SIZE)
        self.large = app.graphics.render_target(SIZE)


class Upscaler(MonoBehaviour):
    """Two shots take turns: one is shown while the network works on the other.

    Nothing is waited for. The next moment is drawn when the network has done with the one before, which on a
    graphics card is in the same frame.
    """

    worker: Worker
    judge: Worker
    """`compare.onnx`, on the same backend."""
    small_camera: Camera2D
    large_camera: Camera2D

    def awake(self) -> None:
        """Nothing is drawn yet."""
        self.shown, self.next = Shot(self.app), Shot(self.app)
        self.pictures = 0
        self.finished_at: list[float] = []
        self.waits: list[tuple[int, float]] = []
        """Of the latest pictures: frames from being drawn to being shown, and milliseconds."""
        self.measured: list[tuple[float, float]] = []
        """PSNR in dB of bilinear interpolation and of the network, against the native picture."""
        self._tensor: Tensor | None = None
        self._schedule: Schedule | None = None
        self._is_arriving = self._is_judging = False
        self._began = (0, 0.0)
        self._measured_at = -1.0
        self._aim()

    def _aim(self) -> None:
        self.small_camera.target, self.large_camera.target = self.next.low, self.next.native

    def update(self) -> None:
        """Go on with what an earlier frame has begun; have the cameras draw where nothing is left of that."""
        self._work()
        is_free = self._schedule is None and not self._is_arriving
        self.small_camera.enabled = self.large_camera.enabled = is_free
        if is_free:
            self._began = self.time.frame_count, time.perf_counter()

    def on_gui(self) -> None:
        """Begin with what the cameras have drawn."""
        if self.app.ctx is None or not self.small_camera.enabled:
            return
        # From texture to tensor to texture on the GPU; for other backends copies that nobody waits for.
        self._tensor = TextureConverter.to_tensor(self.next.low, tensor=self._tensor, on=self.worker)
        self._schedule = self.worker.schedule_iterable(self._tensor)
        # A driver that draws on the processor would have it wait for the pictures: there, in the next frame.
        if not self.app.graphics.is_software:
            self._work()

    def _work(self) -> None:
        """Enqueue what fits into a frame, and take the picture when it is there."""
        if self._schedule is not None:
            budget = SLOW_BUDGET_MS if self.app.graphics.is_software else BUDGET_MS
            self._schedule.advance(budget, force=True)
            if self._schedule.is_done:
                TextureConverter.render_to_texture(self._schedule.output(), self.next.large)
                self._schedule, self._is_arriving = None, True
        if self._is_arriving and TextureConverter.poll() == 0:
            self._is_arriving = False
            self._finish()

    def _finish(self) -> None:
        now = time.perf_counter()
        frame, began = self._began
        self.waits = [*self.waits, (self.time.frame_count - frame, 1e3 * (now - began))][-_KEPT:]
        self.finished_at = [*self.finished_at, now][-_KEPT:]
        self.pictures += 1
        self.shown, self.next = self.next, self.shown
        self._aim()
        if not self._is_judging and self.time.unscaled_time - self._measured_at >= _MEASURE_EVERY:
            self._measured_at = self.time.unscaled_time
            self._measure(self.shown)

    def _measure(self, shot: Shot) -> None:
        """Compare both pictures with the native one, on the backend, and read two numbers back later."""
        whole = TextureTransform(width=SIZE[0], height=SIZE[1])
        native, bilinear, network = (
            TextureConverter.to_tensor(picture, whole, on=self.judge)
            for picture in (shot.native, shot.low, shot.large)
        )
        self.judge.schedule(native, bilinear, network)
        self._is_judging = True
        self.app.inference.result(self.judge.peek_output(), self._judged)

    def _judged(self, request: InferenceRequest) -> None:
        self._is_judging = False
        decibels = -10.0 * np.log10(np.maximum(request.result(), 1e-9))
        self.measured.append((float(decibels[0]), float(decibels[1])))

    @property
    def pictures_per_second(self) -> float:
        """How many the network finishes, lately."""
        times = self.finished_at
        return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0

    def on_destroy(self) -> None:
        """Free what the workers hold."""
        self.worker.dispose()
        self.judge.dispose()
