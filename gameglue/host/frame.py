"""The frame: its phases as a list, in order.

`FRAME` is the list that an app starts with. A game inserts phases of its own with
`app.frame.insert(Phase("physics", "...", run), after="fixed_update")`. The order of the hooks within a phase
is each component's `execution_order`.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from engine import advance_loads
from engine.device.native import child_processes
from gameglue.errors import FrameError
from gameglue.input import FocusChanged, QuitRequested, Resized
from gameglue.scripting.coroutines import ResumePoint

if TYPE_CHECKING:
    from gameglue.host.app import App


@dataclass(frozen=True)
class Phase:
    """One named part of the frame.

    Attributes:
        name: Name of the phase.
        doc: What the phase does.
        run: The function that is called with the app each frame.
        runs_while_halted: Whether it also runs while the app is halted (`app.halted`).
    """

    name: str
    doc: str
    run: Callable[[App], None]
    runs_while_halted: bool = False


def _input(app: App) -> None:
    app.input.begin_frame(app._player_time, app.time.unscaled_delta_time, records=not app._stands_still)
    if app.input.replay is not None and app.headless:
        for event in app.input.events:
            if isinstance(event, Resized):
                app.graphics.surface.size = (event.width, event.height)
    app.graphics.follow_window_size()
    if any(isinstance(event, QuitRequested) for event in app.input.events):
        app.quit()
    for event in app.input.events:
        if isinstance(event, FocusChanged):
            app._lifecycle.notify_all("on_application_focus", event.focused)
    app._lifecycle.follow_pause()


def _poll(app: App) -> None:
    advance_loads(app.loading_budget_ms)
    app.hot_reload.poll()
    if app._stands_still:
        return
    app.inference.poll()
    app._coroutines.step(ResumePoint.RESULTS)


def _wake(app: App) -> None:
    app._lifecycle.wake_new()


def _fixed_update(app: App) -> None:
    time = app.time
    steps = time.fixed.steps_due(time.game.delta)
    time.in_fixed_step = True
    try:
        for _ in range(steps):
            time.fixed.advance()
            app._lifecycle.hooks["fixed_update"].run()
            app._coroutines.step(ResumePoint.FIXED)
    finally:
        time.in_fixed_step = False


def _update(app: App) -> None:
    app._lifecycle.hooks["update"].run()


def _coroutines(app: App) -> None:
    app._coroutines.step(ResumePoint.FRAME)
    app._lifecycle.timers.run()


def _late_update(app: App) -> None:
    app._lifecycle.hooks["late_update"].run()


def _draw(app: App) -> None:
    app.graphics.draw_cameras()


def _render_image(app: App) -> None:
    app.graphics.apply_image_effects(app._lifecycle.hooks["on_render_image"])


def _gui(app: App) -> None:
    app._lifecycle.hooks["on_gui"].run()
    app.overlay.draw(app)
    app.graphics.draw_gui()
    app.inspector.draw(app)


def _inference(app: App) -> None:
    if app._idle_time.took_inference():
        return
    budget, slack = app.frame_budget_ms, app._slack
    app.inference.pump(slack.budget_ms(clock.perf_counter()) if budget == "slack" else budget)
    slack.end_spending(clock.perf_counter())


def _present(app: App) -> None:
    if app._waits_for_display:
        # Most of the frame may pass in there, without any work.
        child_processes.let_go()
    app.graphics.present()


def _end_of_frame(app: App) -> None:
    if not app._stands_still:
        app._coroutines.step(ResumePoint.END)
    app._lifecycle.sweep()


FRAME: Final[tuple[Phase, ...]] = (
    Phase(
        "input",
        "The window's and the script's events become this frame's `self.input`.",
        _input,
        runs_while_halted=True,
    ),
    Phase(
        "poll",
        "Loading continues, within `app.loading_budget_ms`, and what changed on disk is taken "
        "up. Readbacks that have come are delivered: callbacks, and code that awaits them. It is early, so "
        "that a result is used in the frame that finds it.",
        _poll,
        runs_while_halted=True,
    ),
    Phase(
        "wake",
        "`awake` and `on_enable` of what is new, then `start`, so that a start finds its neighbours awake.",
        _wake,
    ),
    Phase(
        "fixed_update",
        "None, one or several steps of equal length, as game time has passed; capped, the rest is dropped.",
        _fixed_update,
    ),
    Phase("update", "The game's own logic, once a frame.", _update),
    Phase(
        "coroutines",
        "Waiting generators and `async def` whose condition holds continue; then what `invoke` and "
        "`invoke_repeating` have due is called.",
        _coroutines,
    ),
    Phase("late_update", "What follows something else: cameras, labels. All else has moved.", _late_update),
    Phase(
        "draw",
        "Each camera clears if it has a background, and draws the scene's renderers.",
        _draw,
        runs_while_halted=True,
    ),
    Phase(
        "render_image",
        "`on_render_image(source, destination)`: image effects, each reads what the previous one wrote.",
        _render_image,
        runs_while_halted=True,
    ),
    Phase(
        "gui",
        "`on_gui`: text, plots and panels in pixels, untouched by image effects.",
        _gui,
        runs_while_halted=True,
    ),
    Phase(
        "inference",
        "Requests and registered work submit their next slices, within `app.frame_budget_ms`. It stands "
        "behind the drawing, so that the GPU has the frame's picture first; where the processor draws, "
        "before it, as all that is enqueued behind a picture would wait there for the picture.",
        _inference,
    ),
    Phase(
        "present",
        "The picture goes to the window. Requested screenshots are taken.",
        _present,
        runs_while_halted=True,
    ),
    Phase(
        "end_of_frame",
        "Coroutines that wait for it; then what was destroyed goes.",
        _end_of_frame,
        runs_while_halted=True,
    ),
)


class Frame:
    """The phases of one app, in order; may be changed between frames."""

    def __init__(self, phases: tuple[Phase, ...] = FRAME) -> None:
        self._phases = list(phases)

    def __iter__(self) -> Iterator[Phase]:
        return iter(tuple(self._phases))

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(phase.name for phase in self._phases)

    def insert(self, phase: Phase, *, before: str | None = None, after: str | None = None) -> None:
        """Put `phase` before or after the one of that name."""
        if (before is None) == (after is None):
            raise FrameError(f"say where {phase.name!r} goes: either before=... or after=...")
        if phase.name in self.names:
            raise FrameError(f"the frame already has a phase {phase.name!r}")
        position = self._position(before if before is not None else after)
        self._phases.insert(position + (before is None), phase)

    def remove(self, name: str) -> Phase:
        """Remove the phase of that name, and return it."""
        return self._phases.pop(self._position(name))

    def describe(self) -> str:
        """Describe the phases, one line each."""
        return "\n".join(f"{phase.name}: {phase.doc}" for phase in self._phases)

    def _position(self, name: str | None) -> int:
        for position, phase in enumerate(self._phases):
            if phase.name == name:
                return position
        raise FrameError(f"the frame has no phase {name!r}; its phases: {', '.join(self.names)}")
