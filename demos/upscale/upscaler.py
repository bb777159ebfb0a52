"""`Upscaler`: draws the game small, has the network enlarge it, and measures what came out."""

from __future__ import annotations

import numpy as np

from gameglue import (
    App,
    Camera2D,
    InferenceRequest,
    MonoBehaviour,
    PictureNetwork,
    RenderTarget,
    TextureConverter,
    TextureTransform,
    Worker,
)

SIZE = (640, 480)
HALF = (320, 240)
_MEASURE_EVERY = 0.5  # seconds


class Shot:
    """One moment of the game: drawn small, drawn whole (only to measure by), and enlarged by the network."""

    def __init__(self, app: App) -> None:
        self.low = app.graphics.render_target(HALF)
        self.native = app.graphics.render_target(SIZE)
        self.large: RenderTarget = self.low  # until it is there


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
        self.network = PictureNetwork(self.app, self.worker, HALF, SIZE)
        self.pictures = 0
        self.measured: list[tuple[float, float]] = []
        """PSNR in dB of bilinear interpolation and of the network, against the native picture."""
        self._is_judging = False
        self._measured_at = -1.0

    def late_update(self) -> None:
        """Have the cameras draw the next moment if the network has done with the one before."""
        self._take()
        self.small_camera.target, self.large_camera.target = self.next.low, self.next.native
        self.small_camera.enabled = self.large_camera.enabled = not self.network.is_busy

    def on_gui(self) -> None:
        """Begin with what the cameras have drawn."""
        if self.small_camera.enabled:
            self.network.update(self.next.low)
            self._take()

    def _take(self) -> None:
        """Show the moment whose picture has come, and measure now and then."""
        if self.network.picture is None or self.network.count == self.pictures:
            return
        self.pictures = self.network.count
        self.next.large = self.network.picture
        self.shown, self.next = self.next, self.shown
        if not self._is_judging and self.time.unscaled_time - self._measured_at >= _MEASURE_EVERY:
            self._measured_at = self.time.unscaled_time
            self._measure(self.shown)

    def _measure(self, shot: Shot) -> None:
        """Compare both pictures with the native one, on the backend, and read two numbers back later."""
        whole = TextureTransform(width=SIZE[0], height=SIZE[1])
        pictures = (shot.native, shot.low, shot.large)
        self.judge.schedule(*(TextureConverter.to_tensor(p, whole, on=self.judge) for p in pictures))
        self._is_judging = True
        self.app.inference.result(self.judge.peek_output(), self._judged)

    def _judged(self, request: InferenceRequest) -> None:
        self._is_judging = False
        decibels = -10.0 * np.log10(np.maximum(request.result(), 1e-9))
        self.measured.append((float(decibels[0]), float(decibels[1])))

    @property
    def pictures_per_second(self) -> float:
        """How many the network finishes, lately."""
        return self.network.pictures_per_second

    @property
    def waits(self) -> list[tuple[float, float]]:
        """Frames from a small picture to the large one, and milliseconds: the medians, once there are any."""
        network = self.network
        return [(network.latency_frames, network.latency_ms)] if network.count else []

    def on_destroy(self) -> None:
        """Free what the network holds, and the workers."""
        self.network.release()
        self.worker.dispose()
        self.judge.dispose()
