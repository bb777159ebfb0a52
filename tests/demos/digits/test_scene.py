"""The demo as it is played: scripted mouse, keys, a slow network, and a real window under Xvfb."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import TypeVar

import numpy as np
import pytest

from demos.digits import reader as reader_module
from demos.digits.layout import Layout
from demos.digits.main import build
from demos.digits.pens import AutoPen
from demos.digits.reader import DigitReader
from demos.digits.sheet import Sheet
from gameglue import App, BackendType, DeviceError, MonoBehaviour, Rect, Worker
from gameglue.choices import BackendChoice
from gameglue.input import InputScript
from gameglue.playing import PlayOptions

SIZE = (960, 640)
CPU = BackendChoice(BackendType.CPU)
Play = Callable[..., App]
Part = TypeVar("Part", bound=MonoBehaviour)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """`play(script, **options)`: the demo on the CPU, without OpenGL, in which no component may raise."""
    monkeypatch.setenv("GAMEGLUE_NO_OPENGL", "1")
    apps: list[App] = []

    def start(script: InputScript | None = None, **options: object) -> App:
        app = App("test", size=SIZE, headless=True, input_source=script, on_error="raise")
        apps.append(app)
        build(app, PlayOptions(choice=CPU, **options))  # type: ignore[arg-type]
        return app

    yield start
    for app in apps:
        app.dispose()


def part(app: App, kind: type[Part]) -> Part:
    """The demo's component of a class."""
    found = app.scene.find_component(kind)
    assert found is not None
    return found


def on_sheet(shares: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Positions on the sheet, from 0 to 1, as pixels of the window."""
    box = Layout.of(SIZE).sheet
    return [(box.x + x * box.width, box.y + y * box.height) for x, y in shares]


SEVEN = on_sheet([(0.34, 0.23), (0.5, 0.22), (0.66, 0.2), (0.6, 0.35), (0.53, 0.52), (0.47, 0.8)])


def test_a_digit_drawn_with_the_mouse_is_read(play: Play) -> None:
    app = play(InputScript().drag(SEVEN, at=0.1, duration=0.4))
    app.run(frames=45)
    answer = part(app, DigitReader).answer
    assert answer is not None
    assert answer.digit == 7
    assert answer.probabilities[7] > 0.9
    assert not answer.is_blank
    assert answer.frames >= 1


def test_every_frame_asks_and_none_waits(play: Play) -> None:
    app = play()
    for _ in range(30):
        app.step()
        time.sleep(0.004)  # A frame without drawing is over before the job threads have begun.
    reader = part(app, DigitReader)
    assert reader.asked == 30
    assert app.inference.pending <= 3
    assert reader.answered >= 27 - app.inference.stats.cancelled
    assert np.median(reader.waits, axis=0)[0] == 1


@pytest.mark.parametrize("how", ["c", "space", "right button"])
def test_the_sheet_is_wiped(play: Play, how: str) -> None:
    script = InputScript().drag(SEVEN, at=0.1, duration=0.2)
    if how == "right button":
        script.click(10, 10, at=0.5, button=1)
    else:
        script.press(how, at=0.5)
    app = play(script)
    app.run(frames=25)
    assert not part(app, Sheet).ink.is_empty
    app.run(frames=15)
    assert part(app, Sheet).ink.is_empty
    assert part(app, Sheet).drawing == 1
    answer = part(app, DigitReader).answer
    assert answer is not None
    assert answer.is_blank


def test_the_mouse_draws_only_while_held_and_from_the_sheet_on(play: Play) -> None:
    outside = Layout.of(SIZE).bars.center
    script = InputScript().drag([outside, *SEVEN], at=0.1, duration=0.2)
    app = play(script)
    app.run(frames=20)
    assert part(app, Sheet).ink.is_empty


def test_escape_leaves(play: Play) -> None:
    app = play(InputScript().press("escape", at=0.2))
    app.run()
    assert app.is_quitting
    assert app.time.frame_count < 20


def test_b_goes_on_past_backends_that_are_missing(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = reader_module.load_worker

    def load(model: object, choice: BackendChoice) -> Worker:
        asked.append(choice.label)
        if choice.backend is not BackendType.CPU:
            raise DeviceError("not in this test\nsecond line")
        return real(model, choice)  # type: ignore[arg-type]

    script = InputScript()
    for press in range(4):
        script.press("b", at=0.1 + 0.2 * press)
    app = play(script)
    monkeypatch.setattr(reader_module, "load_worker", load)
    reader = part(app, DigitReader)
    app.run(frames=10)
    first = reader.worker
    assert reader.message == "no gpu_compute (gl): not in this test"
    app.run(frames=50)
    assert asked == ["gpu_compute (gl)", "gpu_compute (opencl)", "gpu_pixel", "cpu"]
    assert reader.worker is not first
    assert reader.message == ""
    before = reader.answered
    app.run(frames=10)
    assert reader.answered > before


def test_the_script_waits_for_a_slow_network(play: Play) -> None:
    app = play(autoplay=True)
    app.run(frames=60)
    app.inference.paused = True
    app.run(frames=300)
    sheet, reader = part(app, Sheet), part(app, DigitReader)
    # Only the first digit, and it stays; the loop goes on, with only the latest question waiting.
    assert (sheet.drawing, sheet.written) == (0, 0)
    assert reader.read == []
    assert app.time.frame_count == 360
    assert app.inference.pending == 1


def test_a_digit_that_is_wiped_under_the_pen_does_not_count(play: Play) -> None:
    app = play(InputScript().press("c", at=0.5), autoplay=True)
    app.run(frames=190)
    assert part(app, Sheet).drawing == 2
    assert part(app, DigitReader).read == [(1, 1)]


def test_the_player_takes_over(play: Play) -> None:
    app = play(InputScript().drag(SEVEN, at=1.0, duration=0.3), autoplay=True)
    app.run(frames=100)
    assert not part(app, AutoPen).enabled
    answer = part(app, DigitReader).answer
    assert answer is not None
    assert answer.digit == 7


def inside(inner: Rect, outer: Rect) -> bool:
    return (
        inner.x >= outer.x
        and inner.y >= outer.y
        and inner.right <= outer.right
        and inner.bottom <= outer.bottom
    )


@pytest.mark.parametrize("size", [(320, 240), (640, 480), (960, 640), (1280, 720), (1920, 1080), (600, 900)])
def test_everything_has_its_place_at_every_size(size: tuple[int, int]) -> None:
    layout = Layout.of(size)
    boxes = [layout.sheet, layout.answer, layout.seen, layout.bars, layout.times]
    window = Rect(0, 0, *size)
    assert all(inside(box, window) for box in boxes)
    assert all(box.width > 20 and box.height > 20 for box in boxes)
    assert layout.sheet.width == layout.sheet.height
    for one, other in combinations(boxes, 2):
        apart_x = one.right <= other.x + 1e-6 or other.right <= one.x + 1e-6
        apart_y = one.bottom <= other.y + 1e-6 or other.bottom <= one.y + 1e-6
        assert apart_x or apart_y


WINDOW = """
import numpy as np
import pygame
from demos.digits.layout import Layout
from demos.digits.main import build
from demos.digits.reader import DigitReader
from gameglue import App
from gameglue.playing import PlayOptions

def post(kind, **values):
    pygame.event.post(pygame.event.Event(kind, **values))

with App("digits", size=(640, 480), headless=False, on_error="raise", target_frame_rate=1000) as app:
    tell = build(app, PlayOptions())
    reader = app.scene.find_component(DigitReader)
    app.run(frames=3)
    pygame.event.clear()
    box = Layout.of(app.size).sheet
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
        if reader.answer is not None and reader.answer.digit == 7 and not reader.answer.is_blank:
            break
        app.step()
    drawn = app.graphics.read_pixels()[sheet].astype(int)
    ink = np.abs(drawn - empty).max(axis=2) > 100
    print("ink", round(float(ink.mean()), 3))
    for x, y in path:
        assert ink[y - int(box.y) - 20, x - int(box.x) - 20], (x, y)
    print("digit", reader.answer.digit)
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
