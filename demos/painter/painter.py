"""`Painter`: an image effect made by a network, from texture to texture."""

from __future__ import annotations

from collections.abc import Mapping

from gameglue import Camera3D, ImageNetwork, MonoBehaviour, RenderTarget, Worker

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
    """Image effect: shows the scene as the network paints it.

    No frame waits for the network: each frame shows the newest finished painting. On a GPU that is the
    painting of the same frame, and it stays on the GPU.
    """

    workers: Mapping[str, Worker]
    """By name of the style."""
    camera: Camera3D
    style: str = ""
    strength: float = 1.0
    scale: float = 0.5
    """Resolution of the painting, relative to the window."""
    detail: float = 1.0
    """Resolution of the scene, relative to the window."""

    def awake(self) -> None:
        """Create the network's textures and the shader."""
        self.style = self.style or next(iter(self.workers))
        self.scene_picture: RenderTarget | None = None
        """The latest frame before painting."""
        self._target: RenderTarget | None = None
        self.network = ImageNetwork(self.app, self.workers[self.style], self.size)
        self._effect = self.app.graphics.effect(_MIX)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the painting; the networks take multiples of 8."""
        width, height = (max(8 * round(side * self.scale / 8), 16) for side in self.app.size)
        return width, height

    def late_update(self) -> None:
        """Have the camera draw into a texture of its own if the scene has fewer pixels than the window."""
        if self.detail >= 1.0:
            self.camera.target = None
            return
        size = round(self.app.size[0] * self.detail), round(self.app.size[1] * self.detail)
        if self._target is None or self._target.size != size:
            self._target = self.app.graphics.render_target(size)
        self.camera.target = self._target

    def on_render_image(self, source: RenderTarget, destination: RenderTarget) -> None:
        """Submit the scene if the network is idle, and mix the newest painting into the frame."""
        self.scene_picture = source = self.camera.target or source
        self.network.worker = self.workers[self.style]
        self.network.resize(self.size)
        self.network.update(source)
        painting = self.painting
        if painting is None or self.strength <= 0.0:
            self.app.graphics.copy(source, destination)
        elif self.strength >= 1.0:
            self.app.graphics.copy(painting, destination)
        else:
            self._effect.apply(source, destination, {"painting": painting, "strength": self.strength})

    @property
    def painting(self) -> RenderTarget | None:
        """The newest finished painting."""
        return self.network.picture

    @property
    def pictures(self) -> int:
        """Number of finished paintings."""
        return self.network.count

    def on_destroy(self) -> None:
        """Release the textures and dispose the workers."""
        self.network.release()
        for worker in self.workers.values():
            worker.dispose()
