"""`Upscaler`: renders the game at half resolution, upscales it with the network and measures the PSNR."""

from __future__ import annotations

import numpy as np

from gameglue import (
    App,
    Camera2D,
    ImageNetwork,
    InferenceRequest,
    MonoBehaviour,
    RenderTarget,
    TextureConverter,
    TextureTransform,
    Worker,
)

_MEASURE_EVERY = 0.5  # seconds


class Shot:
    """One frame of the game: at half resolution, at native resolution (for measuring), and upscaled."""

    def __init__(self, app: App, size: tuple[int, int]) -> None:
        self.low = app.graphics.render_target((size[0] // 2, size[1] // 2))
        self.native = app.graphics.render_target(size)
        self.large: RenderTarget = self.low  # until the network's output is there


class Upscaler(MonoBehaviour):
    """Double buffering: one shot is shown while the network works on the other.

    No frame waits for the network. The next shot is drawn when the network has finished the previous one; on
    a GPU that is in the same frame.
    """

    worker: Worker
    judge: Worker
    """`compare.onnx`, on the same backend."""
    small_camera: Camera2D
    large_camera: Camera2D
    size: tuple[int, int] = (640, 480)
    """Width and height of the upscaled image in pixels; multiples of 16."""

    def awake(self) -> None:
        """Create the render targets."""
        self.shown, self.next = Shot(self.app, self.size), Shot(self.app, self.size)
        self.network = ImageNetwork(self.app, self.worker, self.next.low.size, self.size)
        self.images = 0
        self.measured: list[tuple[float, float]] = []
        """PSNR in dB of bilinear interpolation and of the network, against native resolution."""
        self._is_judging = False
        self._measured_at = -1.0

    def late_update(self) -> None:
        """Enable the cameras if the network has finished the previous image."""
        self._take()
        self.small_camera.target, self.large_camera.target = self.next.low, self.next.native
        self.small_camera.enabled = self.large_camera.enabled = not self.network.is_busy

    def on_gui(self) -> None:
        """Submit what the cameras have drawn."""
        if self.small_camera.enabled:
            self.network.update(self.next.low)
            self._take()
        else:  # a second look in this frame: an image takes fewer frames
            self.network.advance()

    def _take(self) -> None:
        """Show the shot whose image is finished, and measure now and then."""
        if self.network.picture is None or self.network.count == self.images:
            return
        self.images = self.network.count
        self.next.large = self.network.picture
        self.shown, self.next = self.next, self.shown
        if not self._is_judging and self.time.unscaled_time - self._measured_at >= _MEASURE_EVERY:
            self._measured_at = self.time.unscaled_time
            self._measure(self.shown)

    def _measure(self, shot: Shot) -> None:
        """Compute both mean square errors on the backend; an asynchronous readback delivers them."""
        whole = TextureTransform(width=self.size[0], height=self.size[1])
        images = (shot.native, shot.low, shot.large)
        self.judge.schedule(*(TextureConverter.to_tensor(p, whole, on=self.judge) for p in images))
        self._is_judging = True
        self.app.inference.result(self.judge.peek_output(), self._judged)

    def _judged(self, request: InferenceRequest) -> None:
        self._is_judging = False
        decibels = -10.0 * np.log10(np.maximum(request.result(), 1e-9))
        self.measured.append((float(decibels[0]), float(decibels[1])))

    def on_destroy(self) -> None:
        """Release the textures and dispose the workers."""
        self.network.release()
        self.worker.dispose()
        self.judge.dispose()
