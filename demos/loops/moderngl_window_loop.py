"""A moderngl-window program: a network reads in every frame what a pen writes.

    python -m demos.loops.moderngl_window_loop [--type gpu_pixel] [--frames N] [--screenshot FILE]

Needs `pip install "gameglue[loops]"`; takes moderngl-window's own options too, such as `--window glfw`. Left
is the 28 x 28 picture that the network sees, right its ten probabilities, from 0 at the top.
"""

from __future__ import annotations

import argparse
from typing import Any

import moderngl
import moderngl_window
from moderngl_window import geometry
from PIL import Image

from demos.digits.canvas import Canvas
from demos.loops.pen import TURN, pen_lines
from gameglue import BackendType, InferenceQueue, InferenceRequest, ModelLoader, Resources, Worker

VERTEX_SHADER = """#version 330
in vec3 in_position; in vec2 in_texcoord_0; out vec2 at;
void main() { at = in_texcoord_0; gl_Position = vec4(in_position, 1.0); }"""
FRAGMENT_SHADER = """#version 330
uniform sampler2D seen; uniform float scores[10]; in vec2 at; out vec4 color;
void main() {
    float row = 10.0 * (1.0 - at.y), along = (at.x - 0.68) / 0.3;
    bool in_bar = along > 0.0 && along < scores[int(row)] + 0.01 && fract(row) > 0.2;
    vec4 bars = in_bar ? vec4(1.0, 0.6, 0.1, 1.0) : vec4(0.1, 0.1, 0.12, 1.0);
    color = at.x < 0.667 ? vec4(texture(seen, vec2(at.x * 1.5, 1.0 - at.y)).rrr, 1.0) : bars;
}"""


class DigitReader(moderngl_window.WindowConfig):
    """The program; moderngl-window makes the window and calls `on_render`."""

    gl_version = (3, 3)
    window_size = (480, 320)
    aspect_ratio = 1.5
    title = "gameglue in moderngl-window"
    argv: argparse.Namespace
    answers = 0

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Options of this program."""
        parser.add_argument("--type", choices=[t.value for t in BackendType], default="gpu_pixel")
        parser.add_argument("--frames", type=int, default=0)
        parser.add_argument("--screenshot")

    def __init__(self, **window: Any) -> None:
        super().__init__(**window)
        self.program = self.ctx.program(vertex_shader=VERTEX_SHADER, fragment_shader=FRAGMENT_SHADER)
        self.screen = geometry.quad_fs()
        self.seen = self.ctx.texture((28, 28), 1, dtype="f4")
        self.seen.filter = moderngl.NEAREST, moderngl.NEAREST
        model = ModelLoader.load(Resources().find("digits/digits.onnx"))
        self.worker = Worker(model, BackendType(self.argv.type))
        self.queue, self.sheet, self.frame = InferenceQueue(), Canvas(), 0

    def on_render(self, time: float, frame_time: float) -> None:
        """One frame."""
        self.queue.poll()
        if self.frame % TURN == 0:
            self.sheet.clear()
        for start, end in pen_lines(self.frame):
            self.sheet.stroke(start, end)
        if not self.queue.pending:
            picture = self.sheet.to_input()
            self.seen.write(picture)
            self.worker.schedule(picture)
            self.queue.result(self.worker.peek_output(), self.answered)
        self.seen.use()
        self.screen.render(self.program)
        self.queue.pump(2.0)
        self.frame += 1
        if self.frame == self.argv.frames:
            if self.argv.screenshot:
                pixels = Image.frombytes("RGB", self.wnd.buffer_size, self.wnd.fbo.read())
                pixels.transpose(Image.Transpose.FLIP_TOP_BOTTOM).save(self.argv.screenshot)
            self.wnd.close()

    def answered(self, result: InferenceRequest) -> None:
        """Show the probabilities."""
        self.program["scores"] = result.result()[0].tolist()
        DigitReader.answers += 1

    def on_close(self) -> None:
        """Dispose while the context is there."""
        self.worker.dispose()


if __name__ == "__main__":
    DigitReader.run()
    print(f"{DigitReader.answers} answers")
