"""`Painter`: an image effect made by a network, from texture to texture."""

from __future__ import annotations

import time
from collections.abc import Mapping

from gameglue import MonoBehaviour, RenderTarget, Schedule, Tensor, TextureConverter, TextureTransform, Worker

BUDGET_MS, SLOW_BUDGET_MS = 8.0, 24.0
"""Of a frame for the network; a machine that is slower takes several frames for a picture. The second is for
where the processor draws: there a frame takes long anyway."""
_KEPT = 60
_MIX = """
#version 330 core
in vec2 uv;
uniform sampler2D source, painting;
uniform float strength;
out vec4 color;
void main() {
    color = vec4(mix(texture(source, uv).rgb, texture(painting, uv).rgb, strength), 1.0);
}
"""


class Painter(MonoBehaviour):
    """Shows the scene as a network paints it.

    Nothing is waited for: the newest finished painting is mixed into every frame. On a graphics card it is
    made within the frame that it shows, and never leaves the GPU.
    """

    workers: Mapping[str, Worker]
    """By the style's name."""
    style: str = ""
    strength: float = 1.0
    scale: float = 0.5
    """Of the painting, in pixels of the window's."""

    def awake(self) -> None:
        """Nothing is painted yet."""
        self.style = self.style or next(iter(self.workers))
        self.painting: RenderTarget | None = None
        self.scene_picture: RenderTarget | None = None
        """The latest frame as it was before painting."""
        self.pictures = 0
        self.finished_at: list[float] = []
        self.waits: list[tuple[int, float]] = []
        """Of the latest paintings: frames from the scene to the painting of it, and milliseconds."""
        self._effect = self.app.graphics.effect(_MIX)
        self._canvas: RenderTarget | None = None
        self._tensor: Tensor | None = None
        self._schedule: Schedule | None = None
        self._is_arriving = False
        self._began = (0, 0.0)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of a painting: the networks want multiples of 8."""
        width, height = (max(8 * round(side * self.scale / 8), 16) for side in self.app.size)
        return width, height

    def update(self) -> None:
        """Go on with what an earlier frame has begun."""
        self._work()

    def on_render_image(self, source: RenderTarget, destination: RenderTarget) -> None:
        """Begin the next painting if there is none on its way, and mix the latest one into the picture."""
        self.scene_picture = source
        if self._schedule is None and not self._is_arriving:
            self._begin(source)
            # A driver that draws on the processor would have it wait for the scene: there, in the next frame.
            if not self.app.graphics.is_software:
                self._work()
        painting = self.painting or source
        assert painting.texture is not None
        painting.texture.use(1)
        shown = self.strength if self.painting is not None else 0.0
        self._effect.apply(source, destination, {"painting": 1, "strength": shown})

    def _work(self) -> None:
        """Enqueue what fits into a frame, and take the painting when it is there."""
        if self._schedule is not None:
            budget = SLOW_BUDGET_MS if self.app.graphics.is_software else BUDGET_MS
            self._schedule.advance(budget, force=True)
            if self._schedule.is_done:
                TextureConverter.render_to_texture(self._schedule.output(), self._canvas)
                self._schedule, self._is_arriving = None, True
        if self._is_arriving and TextureConverter.poll() == 0:
            self._is_arriving = False
            self._finish()

    def _begin(self, source: RenderTarget) -> None:
        """From texture to tensor on the GPU; for other backends a copy that nobody waits for."""
        width, height = self.size
        if self._canvas is None or self._canvas.size != self.size:
            if self._canvas is not None:
                self._canvas.release()
            self._canvas, self._tensor = self.app.graphics.render_target(self.size), None
        how = TextureTransform(width=width, height=height, resampling="area")
        worker = self.workers[self.style]
        self._tensor = TextureConverter.to_tensor(source, how, self._tensor, on=worker)
        self._schedule = worker.schedule_iterable(self._tensor)
        self._began = self.time.frame_count, time.perf_counter()

    def _finish(self) -> None:
        now = time.perf_counter()
        frame, began = self._began
        self.waits = [*self.waits, (self.time.frame_count - frame, 1e3 * (now - began))][-_KEPT:]
        self.finished_at = [*self.finished_at, now][-_KEPT:]
        self.pictures += 1
        self.painting, self._canvas = self._canvas, self.painting

    @property
    def pictures_per_second(self) -> float:
        """How many paintings are finished, lately."""
        times = self.finished_at
        return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0

    def on_destroy(self) -> None:
        """Free what the workers hold."""
        for worker in self.workers.values():
            worker.dispose()
