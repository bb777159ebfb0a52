"""Collect what every frame asks for in a command buffer, and execute it as one."""

import numpy as np
from onnx.parser import parse_model

from gameglue import App, CommandBuffer, Graphics, ModelLoader, MonoBehaviour, Tensor, Worker


class Recorded(MonoBehaviour):
    """Schedules two workers in each frame with one call; the second reads what the first has computed."""

    softener: Worker
    reader: Worker

    def start(self) -> None:
        """Record once. The picture's elements are read whenever the buffer is executed."""
        self.picture = Tensor(np.zeros((1, 1, 28, 28), np.float32))
        self.commands = CommandBuffer()
        self.commands.schedule_worker(self.softener, {"picture": self.picture})
        self.commands.schedule_worker(self.reader, {"image": self.commands.output(self.softener)})
        self.replayed: list[int] = []

    def update(self) -> None:
        """Another picture, the same commands."""
        self.picture.upload(np.full((1, 1, 28, 28), self.time.frame_count / 10, np.float32))
        Graphics.execute_command_buffer(self.commands)
        self.replayed.append(self.commands.replayed_count)

    def read(self) -> None:
        """What the last frame's picture was taken for."""
        self.answer = self.reader.peek_output().download_to_array()
        print(f"reads {self.answer.argmax()}; commands replayed by frame: {self.replayed}")


SOFTEN = """
<ir_version: 9, opset_import: ["": 18]>
soften (float[1, 1, 28, 28] picture) => (float[1, 1, 28, 28] soft) {
    soft = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (picture)
}"""


def main() -> Recorded:
    """Five frames."""
    with App("command buffer", headless=True) as app:
        digits = ModelLoader.load(app.resources.find("digits/digits.onnx"))
        soften = ModelLoader.load(parse_model(SOFTEN).SerializeToString())
        with Worker(soften) as softener, Worker(digits) as reader:
            for worker, name in ((softener, "picture"), (reader, "image")):
                worker.warm_up({name: (1, 1, 28, 28)}).wait()  # else the first frames' results come later
            made = app.scene.create("recorded").add_component(Recorded, softener=softener, reader=reader)
            app.run(frames=5)
            made.read()
    return made


if __name__ == "__main__":
    main()
