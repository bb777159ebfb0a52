"""First launch of a built game: compiles and caches the kernels of its models, with progress."""

from __future__ import annotations

import hashlib
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from engine import Worker
from engine.base.cache import cache_file
from engine.base.errors import EngineError
from engine.device.native import machine_identity
from gameglue.graphics.colors import Palette
from gameglue.host.app import App
from gameglue.inference.backend_choice import BackendChoice
from gameglue.input import QuitRequested

_log = logging.getLogger("gameglue")

PICTURE_SECONDS = 0.1
"""The least time between two images of the progress."""

PATIENCE_MS = 10.0
"""How long to work on a load, and how long to leave it alone then, in turns."""


def compile_kernels(app: App, choice: BackendChoice, models: Sequence[Path], build: str) -> bool:
    """Compile the kernels that `models` need, unless done before; returns whether it compiled.

    build: identifies one build of a game. A mark in the cache of compiled kernels remembers it,
    so that both go together. A model that this backend cannot run is left to the game.
    """
    mark = _mark(choice, build)
    if (mark is not None and mark.exists()) or not models:
        return False
    print("first launch: compiling kernels, which are cached for later launches", file=sys.stderr, flush=True)
    for number, path in enumerate(models):
        _load(app, choice, path, (number, len(models)))
    try:
        if mark is not None:
            mark.touch()
    except OSError as error:
        _log.warning("cannot write %s: %s", mark, error)
    return True


def _load(app: App, choice: BackendChoice, path: Path, place: tuple[int, int]) -> None:
    """Compile a model's kernels by creating a worker and disposing it; they stay in the cache."""
    number, count = place
    due = 0.0
    try:
        loading = Worker.load_async(path, choice.backend, device=choice.device, precision=choice.precision)
        while not loading.is_done():
            began = time.perf_counter()
            if began >= due:
                _show(app, loading.stage, (number + loading.progress) / count)
                # Where the processor draws, an image takes it from what compiles.
                due = began + max(PICTURE_SECONDS, 20 * (time.perf_counter() - began))
            loading.advance(PATIENCE_MS)
            # Other processes compile meanwhile: one that only asked would take a core from them.
            time.sleep(PATIENCE_MS / 1e3)
        loading.result().dispose()
    except EngineError as error:
        _log.warning("%s: %s", path.name, error)


def _show(app: App, stage: str, done: float) -> None:
    """An image of how far it is; the window answers meanwhile, and closing it ends the program."""
    app.graphics.make_current()
    # From the window itself: what is recorded or replayed begins with the game.
    if any(isinstance(event, QuitRequested) for event in app.graphics.surface.events(0.0)):
        raise SystemExit(0)
    gui = app.gui
    x, y, width = gui.width * 0.25, gui.height / 2, gui.width * 0.5
    gui.rect(0, 0, gui.width, gui.height, Palette.BACKGROUND)
    gui.text("Getting ready, once", x, y - 44, size=22)
    gui.progress_bar(x, y, width, 12, done)
    gui.text(f"{stage} {done:.0%}", x, y + 24, size=14, color=Palette.MUTED)
    app.graphics.draw_gui()
    app.graphics.present()


def _mark(choice: BackendChoice, build: str) -> Path | None:
    here = hashlib.sha256(machine_identity().encode()).hexdigest()[:16]
    return cache_file("games", f"{build}-{choice.label.replace(' ', '')}-{here}")
