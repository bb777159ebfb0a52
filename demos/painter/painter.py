"""`Painter`: an image effect made by a network, from texture to texture."""

from __future__ import annotations

from collections.abc import Mapping

from gameglue import MonoBehaviour, PictureNetwork, RenderTarget, Worker

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
        self.scene_picture: RenderTarget | None = None
        """The latest frame as it was before painting."""
        self.network = PictureNetwork(self.app, self.workers[self.style], self.size)
        self._effect = self.app.graphics.effect(_MIX)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of a painting: the networks want multiples of 8."""
        width, height = (max(8 * round(side * self.scale / 8), 16) for side in self.app.size)
        return width, height

    def on_render_image(self, source: RenderTarget, destination: RenderTarget) -> None:
        """Begin the next painting if there is none on its way, and mix the latest one into the picture."""
        self.scene_picture = source
        self.network.worker = self.workers[self.style]
        self.network.resize(self.size)
        self.network.update(source)
        painting = self.painting or source
        shown = self.strength if self.painting is not None else 0.0
        self._effect.apply(source, destination, {"painting": painting, "strength": shown})

    @property
    def painting(self) -> RenderTarget | None:
        """The newest finished one."""
        return self.network.picture

    @property
    def pictures(self) -> int:
        """How many paintings were finished."""
        return self.network.count

    @property
    def waits(self) -> list[tuple[float, float]]:
        """Frames from the scene to the painting of it, and milliseconds: the medians, once there are any."""
        network = self.network
        return [(network.latency_frames, network.latency_ms)] if network.count else []

    @property
    def pictures_per_second(self) -> float:
        """How many paintings are finished, lately."""
        return self.network.pictures_per_second

    def on_destroy(self) -> None:
        """Free what the network holds, and the workers."""
        self.network.release()
        for worker in self.workers.values():
            worker.dispose()
