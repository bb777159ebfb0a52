"""An arcade window: a network reads in every frame what a pen writes.

    python -m demos.loops.arcade_loop [--type cpu|gpu_compute|gpu_pixel] [--frames N] [--screenshot FILE]

Needs `pip install "gameglue[loops]"`. arcade draws through OpenGL wrappers of its own, not through moderngl:
the worker finds the context all the same, as it is the one that is current.
"""

from __future__ import annotations

import argparse

import arcade
import numpy as np

from demos.digits.canvas import Canvas, Point
from demos.loops.pen import TURN, pen_lines
from gameglue import BackendType, InferenceQueue, InferenceRequest, ModelLoader, Resources, Worker

SIDE = 320  # pixels of the sheet


class DigitReader(arcade.Window):
    """The window and what happens in it."""

    def __init__(self, backend: BackendType, frames: int, screenshot: str | None) -> None:
        super().__init__(480, SIDE, "gameglue in arcade", gl_version=(3, 3))
        self.worker = Worker(ModelLoader.load(Resources().find("digits/digits.onnx")), backend)
        self.queue, self.sheet = InferenceQueue(), Canvas()
        self.dots: list[Point] = []
        self.scores = np.zeros(10)
        self.labels = [arcade.Text(str(digit), 332, 291 - 31 * digit, font_size=14) for digit in range(10)]
        self.frame = self.answers = 0
        self.frames, self.screenshot = frames, screenshot

    def on_update(self, delta_time: float) -> None:
        """Move the pen, and ask about what is on the sheet now."""
        self.queue.poll()
        if self.frame % TURN == 0:
            self.dots.clear()
            self.sheet.clear()
        for start, end in pen_lines(self.frame):
            self.dots.append(end)
            self.sheet.stroke(start, end)
        if not self.queue.pending:
            self.worker.schedule(self.sheet.to_input())
            self.queue.result(self.worker.peek_output(), self.answered)
        self.queue.pump(2.0)

    def on_draw(self) -> None:
        """Draw the pen's strokes, and the ten probabilities."""
        self.clear(arcade.color.BLACK)
        for x, y in self.dots:
            arcade.draw_circle_filled(SIDE * x, SIDE * (1 - y), 10, arcade.color.WHITE)
        for digit, (label, score) in enumerate(zip(self.labels, self.scores, strict=True)):
            color = arcade.color.ORANGE if digit == self.scores.argmax() else arcade.color.DIM_GRAY
            arcade.draw_lbwh_rectangle_filled(350, 287 - 31 * digit, 2 + 120 * float(score), 22, color)
            label.draw()
        self.frame += 1
        if self.frame == self.frames:
            if self.screenshot:
                arcade.get_image().save(self.screenshot)
            self.close()

    def answered(self, result: InferenceRequest) -> None:
        """Keep the probabilities for the next drawing."""
        self.scores = result.result()[0]
        self.answers += 1

    def close(self) -> None:
        """The context goes with the window, so the worker goes first."""
        self.worker.dispose()
        super().close()


def main(arguments: list[str] | None = None) -> int:
    """Run until the window is closed, or for so many frames; returns how many answers came."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--type", choices=[t.value for t in BackendType], default="gpu_pixel")
    parser.add_argument("--frames", type=int, default=0)
    parser.add_argument("--screenshot")
    options = parser.parse_args(arguments)
    window = DigitReader(BackendType(options.type), options.frames, options.screenshot)
    window.run()
    return window.answers


if __name__ == "__main__":
    print(f"{main()} answers")
