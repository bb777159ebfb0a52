"""A picture on the GPU becomes a tensor, goes through a network and becomes a picture, without leaving it."""

import numpy as np
from onnx.parser import parse_model

from gameglue import (
    App,
    BackendType,
    ModelLoader,
    MonoBehaviour,
    RenderTarget,
    Tensor,
    TextureConverter,
    TextureTransform,
    Worker,
)

# The picture's colours, turned round. Sizes stay open.
NEGATIVE = """
<ir_version: 9, opset_import: ["": 18]>
negative (float[1, 3, height, width] picture) => (float[1, 3, height, width] out)
<float one = {1.0}> {
    out = Sub (one, picture)
}"""


class Negative(MonoBehaviour):
    """An image effect made by a network."""

    worker: Worker
    tensor: Tensor | None = None  # kept, so that no frame allocates

    def on_gui(self) -> None:
        """Something to see the effect beside; drawn after it."""
        self.app.gui.text("negative", 8, 8, size=14, color="#000000")

    def on_render_image(self, source: RenderTarget, destination: RenderTarget) -> None:
        """Picture to tensor, network, tensor to picture: three calls that enqueue and return."""
        self.tensor = TextureConverter.to_tensor(source, tensor=self.tensor, on=self.worker)
        self.worker.schedule(self.tensor)
        TextureConverter.render_to_texture(self.worker.peek_output(), destination)


def small_grey(pixels: np.ndarray) -> np.ndarray:
    """A picture from the host's memory as a network wants it: 8 x 8, one channel, -1 to 1, (1, 8, 8, 1)."""
    wanted = TextureTransform().set_dimensions(8, 8, 1).set_tensor_layout("NHWC").set_normalization(0.5, 0.5)
    return TextureConverter.to_tensor(pixels, wanted).download_to_array()


def main() -> np.ndarray | None:
    """The middle pixel of a frame through the effect, red, green, blue; None where there is no OpenGL."""
    with App("textures", size=(64, 48), headless=True) as app:
        if app.ctx is None:
            print("no OpenGL here")
            return None
        model = ModelLoader.load(parse_model(NEGATIVE).SerializeToString())
        with Worker(model, BackendType.GPU_PIXEL) as worker:
            app.scene.create("effect").add_component(Negative, worker=worker)
            app.run(frames=3)
            print(TextureConverter.counters)
            pixels = TextureConverter.to_tensor(app.graphics.picture).download_to_array()
    return pixels[0, :, 24, 32]


if __name__ == "__main__":
    print(main())
    print(small_grey(np.full((16, 16), 255, np.uint8))[0, 0, 0])
