"""The documentation tells the truth: everything that a page shows as code runs, each page in a process."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from zlib import crc32

import pytest

from tests.conftest import ROOT, RunChild
from tests.docs.pages import PageError, Step, steps_of
from tests.scripts import run_script

PAGES = ROOT / "docs" / "pages"
NAMES = sorted(path.relative_to(PAGES).as_posix() for path in PAGES.rglob("*.md"))
MODELS = sorted((ROOT / "assets").glob("*/*.onnx"))


def play(name: str, folder: Path, *frames: int, is_fresh: bool = False) -> None:
    """Take a page's steps in a process of its own, once for each limit of its games' frames; 0 is none."""
    page = PAGES / name
    for model in MODELS:
        shutil.copy(model, folder)
    # Without a display, and with Mesa's software renderer in the calls (see tests/conftest.py).
    variables = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    variables["LP_NUM_THREADS"] = "0"
    program = Path(__file__).with_name("pages.py")
    done = run_script(
        program, str(page), *map(str, frames), folder=folder, environment=variables, is_fresh=is_fresh
    )
    told = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, told
    # Components' errors end no game, they are printed.
    assert "Traceback" not in done.stderr, told


def steps(name: str) -> list[Step]:
    """The steps of a page."""
    return steps_of((PAGES / name).read_text(encoding="utf-8"))


ELSEWHERE = ("start/first-game.md",)
"""Pages that a test of their own plays (it trains a network, which takes a while)."""


EARLY = (1, 2, 10)
"""Frames after which games are ended, which may be any number."""

PLAYED = [name for name in NAMES if steps(name) and name not in ELSEWHERE]


def has_games(name: str) -> bool:
    """Whether a page runs games."""
    return any(step.kind == "command" or ".run(" in step.text for step in steps(name))


def limits(name: str) -> tuple[int, ...]:
    """0 for a page to its end; for one in four with games one of `EARLY`, too. The long suite takes all."""
    turn, rest = divmod(crc32(name.encode()), 4)
    return (0, EARLY[turn % len(EARLY)]) if has_games(name) and not rest else (0,)


@pytest.mark.parametrize("name", PLAYED)
def test_a_page_runs_and_its_games_may_end_early(name: str, tmp_path: Path) -> None:
    play(name, tmp_path, *limits(name))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NAMES if has_games(name)])
def test_the_games_of_a_page_may_end_after_any_frame(name: str, tmp_path: Path) -> None:
    play(name, tmp_path, *EARLY, is_fresh=True)


WINDOWS = [(name, step) for name in NAMES for step in steps(name) if step.opens_window]

CLOSES = """
import atexit
import pygame
import pyglet
import gameglue

answers, disposed, flips, asked, closing = [], [], [], [], []

def is_enough():
    return len(flips) >= 40 and len(answers) >= 5

def closing_after_answers(flip, close):
    def counted(*arguments):
        flip(*arguments)
        flips.append(0)
        if is_enough() and not asked:
            asked.append(0)
            close(*arguments)
    return counted

def submit(queue, *inputs, callback, **options):
    def counted(request):
        answers.append(request.result())
        callback(request)
    return submitted(queue, *inputs, callback=counted, **options)

def dispose(worker):
    disposed.append(worker)
    worker_dispose(worker)

pygame.display.flip = closing_after_answers(
    pygame.display.flip, lambda: pygame.event.post(pygame.event.Event(pygame.QUIT))
)
# Not from within the drawing: pyglet's loop closes it by its clock, other loops as they take events.
pyglet.window.Window.flip = closing_after_answers(
    pyglet.window.Window.flip, lambda window: pyglet.clock.schedule_once(lambda seconds: close(window), 0)
)
dispatch_events = pyglet.window.Window.dispatch_events

def close(window):
    closing.append(window)
    window.dispatch_event("on_close")

def dispatch_or_close(window):
    if is_enough() and not closing:
        close(window)
    else:
        dispatch_events(window)

pyglet.window.Window.dispatch_events = dispatch_or_close
submitted, gameglue.InferenceQueue.submit = gameglue.InferenceQueue.submit, submit
worker_dispose, gameglue.Worker.dispose = gameglue.Worker.dispose, dispose
atexit.register(lambda: print(len(answers), len(disposed), len(flips)))
"""


@pytest.mark.gl
@pytest.mark.window
@pytest.mark.parametrize(("name", "step"), WINDOWS, ids=[f"{name}:{step.line}" for name, step in WINDOWS])
def test_a_program_with_a_window_gets_answers_until_it_is_closed(
    name: str, step: Step, display: str, run_child: RunChild, tmp_path: Path
) -> None:
    for module in ("arcade", "moderngl_window"):
        if f"import {module}" in step.text:
            pytest.importorskip(module)
    pytest.importorskip("pyglet")
    code = step.text.replace('"digits.onnx"', repr(str(ROOT / "assets" / "digits" / "digits.onnx")))
    printed = run_child(CLOSES + code, DISPLAY=display, SDL_VIDEODRIVER="x11")
    answers, disposed, frames = map(int, printed.splitlines()[-1].split())
    assert answers >= 5
    assert disposed >= 1
    assert frames >= 40


def test_programs_with_windows_are_found() -> None:
    assert [name for name, _ in WINDOWS] == ["start/existing-program.md"] * 4


CONVENTION = """\
Text, and `python main.py`.

```python
a = 1
```

```yaml title="scenes/level.scene" hl_lines="1"
name: level
```

=== "Linux"

    ```python
    if a:
        a = 2
    ```

<!-- run: python main.py --headless --frames 30 -->

<!-- hidden: python
assert a == 2
-->

<!-- skip: needs a camera -->

```python
raise SystemExit
```

````text
```python
raise SystemExit
```
````

```sh
false
```
"""


def test_the_convention() -> None:
    assert [(step.kind, step.text, step.line, step.file) for step in steps_of(CONVENTION)] == [
        ("code", "a = 1\n", 4, ""),
        ("file", "name: level\n", 8, "scenes/level.scene"),
        ("code", "if a:\n    a = 2\n", 14, ""),
        ("command", "python main.py --headless --frames 30", 18, ""),
        ("code", "assert a == 2\n", 21, ""),
    ]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```python\n1\n", "line 1: is never closed"),
        ("text\n```py\n1\n```\n", "line 2: write ```python"),
        ("<!-- skip: needs a camera -->\n\ntext\n", "line 1: nothing follows"),
    ],
)
def test_mistakes_of_a_page(page: str, message: str) -> None:
    with pytest.raises(PageError, match=message):
        steps_of(page)


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "main.py").write_text(
        "import sys; sys.exit(sys.argv[1:] != ['--x', 'a b'])", encoding="utf-8"
    )
    (tmp_path / "page.md").write_text("<!-- run: python main.py --x 'a b' -->", encoding="utf-8")
    monkeypatch.setattr(sys.modules[__name__], "PAGES", tmp_path)
    play("page.md", tmp_path, 0)
    (tmp_path / "page.md").write_text("<!-- run: rm -r . -->", encoding="utf-8")
    with pytest.raises(AssertionError, match="begins with neither"):
        play("page.md", tmp_path, 0)


FAILS_EARLY = """\
```python
from gameglue import App, MonoBehaviour

class Late(MonoBehaviour):
    seen = None

    def late_update(self):
        if self.time.frame_count > 5:
            self.seen = []

    def on_destroy(self):
        self.seen.append(1)

with App("late", headless=True) as app:
    app.scene.create("late", Late)
    app.run(frames=20)
```
"""


def test_a_game_that_fails_when_it_ends_early_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page.md").write_text(FAILS_EARLY, encoding="utf-8")
    monkeypatch.setattr(sys.modules[__name__], "PAGES", tmp_path)
    play("page.md", tmp_path, 0)
    with pytest.raises(AssertionError, match="raised in on_destroy"):
        play("page.md", tmp_path, *EARLY)
