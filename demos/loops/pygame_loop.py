"""A plain pygame + moderngl loop: a network reads in every frame what a pen writes.

    python -m demos.loops.pygame_loop [--type cpu|gpu_compute|gpu_pixel] [--frames N] [--screenshot FILE]

It shows what any loop needs: a worker beside the context that is current, a question in each frame that has
none under way, and answers that are called back by `queue.poll()` once they are there. Nothing waits.
"""

from __future__ import annotations

import argparse

import moderngl
import numpy as np
import pygame

from demos.digits.canvas import Canvas
from demos.loops.pen import TURN, pen_lines
from gameglue import BackendType, InferenceQueue, InferenceRequest, ModelLoader, Resources, Worker

SIZE = (480, 320)
VERTEX_SHADER = """#version 330
out vec2 at;
void main() {
    at = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2.0;
    gl_Position = vec4(at * 2.0 - 1.0, 0.0, 1.0);
}"""
FRAGMENT_SHADER = """#version 330
uniform sampler2D picture; in vec2 at; out vec4 color;
void main() { color = texture(picture, vec2(at.x, 1.0 - at.y)); }"""


def paint(surface: pygame.Surface, ink: np.ndarray, scores: np.ndarray) -> None:
    """Draw what the pen wrote, (side, side) from 0 to 1, and the ten probabilities beside it."""
    surface.fill("#18181f")
    gray = pygame.surfarray.make_surface(np.repeat(ink.T[:, :, None] * 255, 3, axis=2).astype(np.uint8))
    surface.blit(pygame.transform.smoothscale(gray, (320, 320)), (0, 0))
    for digit, score in enumerate(scores):
        color = "#ff9920" if digit == scores.argmax() else "#705030"
        pygame.draw.rect(surface, color, (350, 12 + 30 * digit, 2 + round(120 * float(score)), 24))
        surface.blit(pygame.font.Font(None, 26).render(str(digit), True, "white"), (330, 15 + 30 * digit))


def main(arguments: list[str] | None = None) -> int:
    """Run until the window is closed, or for so many frames; returns how many answers came."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--type", choices=[t.value for t in BackendType], default="gpu_pixel")
    parser.add_argument("--frames", type=int, default=0)
    parser.add_argument("--screenshot")
    options = parser.parse_args(arguments)

    pygame.display.init()
    pygame.font.init()
    for attribute, value in (("MAJOR_VERSION", 3), ("MINOR_VERSION", 3), ("PROFILE_MASK", 1)):
        pygame.display.gl_set_attribute(getattr(pygame, f"GL_CONTEXT_{attribute}"), value)
    pygame.display.set_mode(SIZE, pygame.OPENGL | pygame.DOUBLEBUF)
    ctx = moderngl.create_context()
    program = ctx.program(vertex_shader=VERTEX_SHADER, fragment_shader=FRAGMENT_SHADER)
    screen, surface, texture = ctx.vertex_array(program, []), pygame.Surface(SIZE), ctx.texture(SIZE, 4)

    worker = Worker(ModelLoader.load(Resources().find("digits/digits.onnx")), BackendType(options.type))
    queue, sheet, clock = InferenceQueue(), Canvas(), pygame.time.Clock()
    scores, answers, frame = np.zeros(10), 0, 0

    def answered(result: InferenceRequest) -> None:
        nonlocal scores, answers
        scores, answers = result.result()[0], answers + 1

    while not pygame.event.get(pygame.QUIT) and frame != (options.frames or -1):
        queue.poll()
        if frame % TURN == 0:
            sheet.clear()
        for start, end in pen_lines(frame):
            sheet.stroke(start, end)
        if not queue.pending:
            worker.schedule(sheet.to_input())
            queue.result(worker.peek_output(), answered)
        paint(surface, sheet.ink, scores)
        texture.write(pygame.image.tobytes(surface, "RGBA"))
        texture.use()
        screen.render(moderngl.TRIANGLES, vertices=3)
        queue.pump(2.0)
        pygame.display.flip()
        clock.tick(60)
        frame += 1
    if options.screenshot:
        pygame.image.save(surface, options.screenshot)
    worker.dispose()
    pygame.quit()
    return answers


if __name__ == "__main__":
    print(f"{main()} answers")
