"""The demo as it is played: scripted mouse, keys, a slow network, and a real window under Xvfb."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations

import pytest

from demos.digits.main import build
from demos.digits.pens import HOLD, AutoPen
from demos.digits.reader import DigitReader
from demos.digits.sheet import Desk, Sheet
from demos.digits.strokes import pen_strokes
from gameglue import App, BackendType, DeviceError, Rect
from gameglue.inference.backend_choice import BackendChoice
from gameglue.input import InputScript
from tests.demos.playing import Play, part, until

SIZE = (960, 640)  # so that places on the page are the window's pixels
SHEET = Rect(22, 54, 540, 540)


@pytest.fixture
def play(play_undrawn: Play) -> Play:
    """`play(script, **options)`: the demo, whose digits come in their order without a seed."""
    return partial(play_undrawn, build, size=SIZE, seed=None)


def on_sheet(shares: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Positions on the sheet, from 0 to 1, as pixels of the window."""
    return [SHEET.normalized_to_point(x, y) for x, y in shares]


SEVEN = on_sheet([(0.34, 0.23), (0.5, 0.22), (0.66, 0.2), (0.6, 0.35), (0.53, 0.52), (0.47, 0.8)])


def run_slowly(app: App, frames: int) -> None:
    """A frame without drawing is over before the job threads have begun."""
    for _ in range(frames):
        app.step()
        time.sleep(0.016)


def test_a_digit_drawn_with_the_mouse_is_read(play: Play) -> None:
    app = play(InputScript().drag(SEVEN, at=0.1, duration=0.4))
    app.run(frames=45)
    reader = part(app, DigitReader)
    until(app, lambda: reader.probabilities[7] > 0.9)
    assert reader.drawing == 0
    assert reader.latency_frames >= 1


def test_every_frame_asks_and_none_waits(play: Play) -> None:
    app = play()
    run_slowly(app, 30)
    reader = part(app, DigitReader)
    assert app.inference.stats.done + app.inference.stats.cancelled + app.inference.pending == 30
    assert app.inference.pending <= 3
    assert reader.result_count >= 27 - app.inference.stats.cancelled
    assert reader.latency_frames == 1


@pytest.mark.parametrize("how", ["c", "space", "right button"])
def test_the_sheet_is_wiped(play: Play, how: str) -> None:
    script = InputScript().drag(SEVEN, at=0.1, duration=0.2)
    if how == "right button":
        script.click(10, 10, at=0.5, button=1)
    else:
        script.press(how, at=0.5)
    app = play(script)
    run_slowly(app, 25)
    sheet, reader = part(app, Sheet), part(app, DigitReader)
    assert sheet.ink.ink.any()
    assert reader.probabilities.any()
    app.run(frames=15)
    assert not sheet.ink.ink.any()
    until(app, lambda: sheet.drawing == reader.drawing == 1)
    assert not reader.probabilities.any()


def test_the_mouse_draws_only_while_held_and_from_the_sheet_on(play: Play) -> None:
    beside = (700.0, 300.0)
    script = InputScript().drag([beside, *SEVEN], at=0.1, duration=0.2)
    app = play(script)
    app.run(frames=20)
    assert not part(app, Sheet).ink.ink.any()


def test_escape_leaves(play: Play) -> None:
    app = play(InputScript().press("escape", at=0.2))
    app.run()
    assert app.is_quitting
    assert app.time.frame_count < 20


def test_b_goes_on_past_backends_that_are_missing(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    script = InputScript()
    for press in range(4):
        script.press("b", at=0.1 + 0.2 * press)
    app = play(script)
    real = app.load_worker

    def load(model: object, choice: BackendChoice, **options: object) -> object:
        asked.append(choice.label)
        if choice.backend is not BackendType.CPU:
            raise DeviceError("not in this test\nsecond line")
        return real(model, choice, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(app, "load_worker", load)
    reader = part(app, DigitReader)
    first = reader.worker
    app.run(frames=10)
    assert reader.message == "no gpu_compute (gl): not in this test"
    assert reader.worker is first
    app.run(frames=50)
    assert asked == ["gpu_compute (gl)", "gpu_compute (opencl)", "gpu_pixel", "cpu"]
    until(app, lambda: reader.worker is not first)
    assert reader.message == ""
    before = reader.result_count
    app.run(frames=10)
    assert reader.result_count > before


def test_the_script_waits_for_a_slow_network(play: Play) -> None:
    app = play(autoplay=True)
    app.run(frames=60)
    app.inference.paused = True
    app.run(frames=300)
    sheet, reader = part(app, Sheet), part(app, DigitReader)
    # Only the first digit, and it stays; the loop goes on, with only the latest question waiting.
    assert (sheet.drawing, sheet.written) == (0, 0)
    assert reader.read == {}
    assert app.time.frame_count == 360
    assert app.inference.pending == 1


def test_a_digit_that_is_wiped_under_the_pen_does_not_count(play: Play) -> None:
    app = play(InputScript().press("c", at=0.5), autoplay=True)
    app.run(frames=190)
    assert part(app, Sheet).drawing == 2
    assert list(part(app, DigitReader).read.values()) == [(1, 1)]


def test_digits_follow_each_other_for_ever(play: Play) -> None:
    app = play(autoplay=True)
    pen, sheet, reader = part(app, AutoPen), part(app, Sheet), part(app, DigitReader)
    pen.digits = (3, 1)
    seconds = [pen_strokes(digit)[-1].end + HOLD for digit in (3, 1, 3, 1)]
    app.run(frames=int(60 * (sum(seconds[:1]) - 0.1)))
    assert (sheet.drawing, sheet.written, sheet.pen) == (0, 3, None)
    app.run(frames=int(60 * (sum(seconds[1:]) + 0.5)))
    assert sheet.drawing == 4
    assert sheet.pen is not None
    assert list(reader.read.values()) == [(3, 3), (1, 1), (3, 3), (1, 1)]


def test_the_player_takes_over(play: Play) -> None:
    app = play(InputScript().drag(SEVEN, at=1.0, duration=0.3), autoplay=True)
    app.run(frames=100)
    assert not part(app, AutoPen).enabled
    assert part(app, DigitReader).probabilities.argmax() == 7


def inside(inner: Rect, outer: Rect) -> bool:
    return (
        inner.x >= outer.x
        and inner.y >= outer.y
        and inner.right <= outer.right
        and inner.bottom <= outer.bottom
    )


@pytest.mark.parametrize("size", [(320, 240), (640, 480), (960, 640), (1280, 720), (1920, 1080), (600, 900)])
def test_everything_has_its_place_at_every_size(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    monkeypatch.setenv("GAMEGLUE_NO_OPENGL", "1")
    with App("test", size=size, headless=True) as app:
        desk = Desk(app.gui)
    boxes = [desk.sheet, desk.answer, desk.seen, desk.chances, desk.times]
    assert (desk.width * desk.unit, desk.height * desk.unit) == pytest.approx(size)
    assert all(inside(box, Rect(0, 0, desk.width, desk.height)) for box in boxes)
    assert all(box.width * desk.unit > 20 and box.height * desk.unit > 20 for box in boxes)
    assert desk.sheet.width == desk.sheet.height
    for one, other in combinations(boxes, 2):
        apart_x = one.right <= other.x + 1e-6 or other.right <= one.x + 1e-6
        apart_y = one.bottom <= other.y + 1e-6 or other.bottom <= one.y + 1e-6
        assert apart_x or apart_y


WINDOW = """
import numpy as np
import pygame
from demos.digits.main import build
from demos.digits.reader import DigitReader
from demos.digits.sheet import Desk
from gameglue import App, Rect
from gameglue.host.play_options import PlayOptions

def post(kind, **values):
    pygame.event.post(pygame.event.Event(kind, **values))

with App("digits", size=(640, 480), headless=False, on_error="raise", target_frame_rate=1000) as app:
    tell = build(app, PlayOptions())
    reader = app.scene.find_component(DigitReader)
    app.run(frames=3)
    pygame.event.clear()
    desk = Desk(app.gui)
    corners = desk.to_window([(desk.sheet.x, desk.sheet.y), (desk.sheet.right, desk.sheet.bottom)])
    box = Rect(*corners[0], *(corners[1] - corners[0]))
    path = [(.34, .23), (.5, .22), (.66, .2), (.6, .35), (.53, .52), (.47, .8)]
    path = [(round(box.x + x * box.width), round(box.y + y * box.height)) for x, y in path]
    sheet = (slice(int(box.y) + 20, int(box.bottom) - 20), slice(int(box.x) + 20, int(box.right) - 20))
    empty = app.graphics.read_pixels()[sheet].astype(int)
    post(pygame.MOUSEBUTTONDOWN, pos=path[0], button=1)
    for x, y in path[1:]:
        app.run(frames=3)
        post(pygame.MOUSEMOTION, pos=(x, y), rel=(0, 0), buttons=(1, 0, 0))
    post(pygame.MOUSEBUTTONUP, pos=path[-1], button=1)
    app.run(frames=12)
    for _ in range(200):
        if reader.probabilities[7] > 0.9:
            break
        app.step()
    drawn = app.graphics.read_pixels()[sheet].astype(int)
    ink = np.abs(drawn - empty).max(axis=2) > 100
    print("ink", round(float(ink.mean()), 3))
    for x, y in path:
        assert ink[y - int(box.y) - 20, x - int(box.x) - 20], (x, y)
    print("digit", reader.probabilities.argmax())
    post(pygame.KEYDOWN, key=pygame.K_ESCAPE)
    app.run(frames=50)
    assert app.is_quitting
    print("backend", tell()["backend"])
"""


@pytest.mark.window
@pytest.mark.gl
def test_the_demo_in_a_real_window(display: str, run_child: Callable[..., str]) -> None:
    ink, digit, backend = run_child(WINDOW, DISPLAY=display).strip().splitlines()
    # A line 0.07 of the sheet's side wide and about 1 long.
    assert 0.04 < float(ink.split()[1]) < 0.12
    assert digit == "digit 7"
    assert backend.startswith("backend ")
