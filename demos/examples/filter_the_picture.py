"""An image effect by a network: the frame becomes a tensor, runs through a model and is drawn again."""

from onnx.parser import parse_model

import gameglue as gg

BLUR = """<ir_version: 9, opset_import: ["": 18]>
blur (float[1, 3, h, w] x) => (float[1, 3, h, w] y) {
    y = AveragePool <kernel_shape = [9, 9], pads = [4, 4, 4, 4]> (x)
}"""


class Blur(gg.MonoBehaviour):
    """Runs the network over the finished frame. No pixel leaves the GPU."""

    worker: gg.Worker
    tensor: gg.Tensor | None = None

    def on_render_image(self, source: gg.RenderTarget, destination: gg.RenderTarget) -> None:
        """Three calls that enqueue and return."""
        self.tensor = gg.TextureConverter.to_tensor(source, tensor=self.tensor, on=self.worker)
        self.worker.schedule(self.tensor)
        gg.TextureConverter.render_to_texture(self.worker.peek_output(), destination)


def main() -> None:
    """A blurred village; without OpenGL there is no picture."""
    model = gg.ModelLoader.load(parse_model(BLUR).SerializeToString())
    with gg.App("blur", size=(480, 320), headless=True) as app:
        village = app.scene.create("village")
        village.add_component(gg.SpriteRenderer, texture="chatter/village.png", width=15.0)
        with gg.Worker(model, gg.BackendType.CPU if app.ctx is None else gg.BackendType.GPU_PIXEL) as worker:
            app.scene.create("effect").add_component(Blur, worker=worker)
            app.run(frames=3)
            print("layers:", [layer.op_type for layer in model.layers])


if __name__ == "__main__":
    main()
