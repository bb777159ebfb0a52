"""The frame loop: runs and paces frames until the game quits."""

from __future__ import annotations

import logging
import threading
import time as clock
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, cast

from engine import background_planning
from engine.device.native import child_processes
from gameglue.errors import FrameError
from gameglue.host.clock import Time
from gameglue.host.frame import Frame
from gameglue.host.garbage_collection import freeze_garbage_collector
from gameglue.host.idle_time import IdleTime
from gameglue.host.interrupts import Interrupts
from gameglue.host.watchdog import Watchdog
from gameglue.inference import FrameSlack
from gameglue.input import InputState
from gameglue.profiling import Profiler
from gameglue.profiling.gpu_phases import GPUPhases

if TYPE_CHECKING:
    from gameglue.graphics.graphics import Graphics
    from gameglue.host.app import App
    from gameglue.host.component_error import ComponentError

_log = logging.getLogger("gameglue")


_UNPACED_REST = 0.1
"""Seconds that inference may have of a frame which nobody waits for, where the processor draws."""


_FEW_FRAMES = 60
"""Runs of fewer frames begin without a full garbage collection, which may take longer than they do."""


class FrameLoop(ABC):
    """Runs an app's frames. `App` inherits it and creates the objects that a frame uses."""

    runner: ClassVar[Callable[[App, int | None], None] | None] = None
    """What `run` calls instead of running: how a tool takes over the frames of a script's app."""

    target_frame_rate: float
    real_time: bool
    deterministic: bool
    errors: list[ComponentError]
    frame: Frame
    time: Time
    input: InputState
    graphics: Graphics
    profiler: Profiler
    _gpu_phases: GPUPhases | None
    _idle_time: IdleTime
    _slack: FrameSlack
    _watchdog: Watchdog | None

    def __init__(self, time_source: Callable[[], float], sleep: Callable[[float], object]) -> None:
        """Create the loop; no frame runs before `run` or `step`.

        Args:
            time_source: The clock in seconds.
            sleep: How to wait for so many seconds.
        """
        self._time_source = time_source
        self._sleep = sleep
        self._thread = threading.get_ident()
        self._last_frame: float | None = None
        self._in_frame = False
        self.halted = False
        """Whether the game stands still: frames are drawn, but no time passes, and of the game's own code
        only what draws is called. `single_step()` runs one frame all the same. See also `time.paused`.
        """
        self._single_steps = 0
        self._stands_still = False
        """Whether this frame is one in which the game stands still."""
        self._player_time = 0.0
        """Seconds that the player has had, those with a halted game included."""
        self.was_interrupted = False
        """Whether Ctrl-C ended `run`."""
        self._quitting = False
        self._ended = False
        self._disposed = False

    @abstractmethod
    def _change_scenes(self) -> None:
        """Load and unload the requested scenes, unless within a frame."""

    @abstractmethod
    def _end(self) -> None:
        """Call the hooks of the end, once."""

    @property
    def is_quitting(self) -> bool:
        """True once `quit()` was called."""
        return self._quitting

    def run(self, frames: int | None = None) -> None:
        """Run frames until `quit()` is called or the window is closed, or until `frames` of them have run.

        On quitting the hooks run: `on_application_quit`, `on_disable`, `on_destroy`. The last image and the
        report stay available until `dispose()`. Ctrl-C quits too, and sets `was_interrupted`.
        """
        self._check_usable()
        runner = type(self).runner
        if runner is not None:
            runner(cast("App", self), frames)
            return
        done = 0
        is_long = frames is None or frames >= _FEW_FRAMES
        with freeze_garbage_collector(collects=is_long), Interrupts(self.quit) as interrupts:
            try:
                while not self._quitting and not self._is_finished(done, frames):
                    self.step()
                    done += 1
                    self._pace()
            except KeyboardInterrupt:
                interrupts.is_asked = True
            finally:
                self._stop_watching()
        if interrupts.is_asked:
            _log.warning("interrupted in frame %d", self.time.frame_count)
            self.was_interrupted = True
            self.quit()
        if self._quitting:
            self._end()

    @property
    def exit_code(self) -> int:
        """0, 1 if a component raised, 130 if Ctrl-C ended the game: `raise SystemExit(app.exit_code)`."""
        return 130 if self.was_interrupted else 1 if self.errors else 0

    def _is_finished(self, done: int, frames: int | None) -> bool:
        """Whether all requested frames have run, or the replay has ended."""
        replay = self.input.replay
        return (frames is not None and done >= frames) or (replay is not None and replay.is_over)

    def step(self, dt: float | None = None) -> None:
        """Run one frame of `dt` seconds; by default, the time since the last one.

        The first frame stands for 1 / target_frame_rate seconds, and so does every frame without `real_time`
        and where the app is deterministic.
        """
        self._check_usable()
        now = self._time_source()
        self._stands_still = self.halted and self._single_steps == 0
        if self.halted and not self._stands_still:
            self._single_steps -= 1
            dt = 1.0 / self.target_frame_rate if dt is None else dt
        if self.input.replay is not None and not self._stands_still:
            recorded = self.input.replay.begin_frame()
            dt = recorded if dt is None else dt
        if dt is None:
            known = self.real_time and not self.deterministic and self._last_frame is not None
            dt = now - (self._last_frame or 0.0) if known else 1.0 / self.target_frame_rate
        self._last_frame = now
        self.graphics.make_current()
        self._player_time += dt
        if self._stands_still:
            self.time.hold()
        else:
            self.time.begin_frame(dt)
        profiler, tick = self.profiler, clock.perf_counter
        self._in_frame = True
        start = before = tick()
        profiler._begin_frame(start, self.time.frame_count)
        self._slack.begin_frame(start, 1e3 / self.target_frame_rate)
        child_processes.hold()
        try:
            with background_planning():
                for phase in self.frame:
                    if self._stands_still and not phase.runs_while_halted:
                        continue
                    if self._gpu_phases is not None:
                        self._gpu_phases.begin(phase.name)
                    phase.run(cast("App", self))
                    after = tick()
                    profiler.add_phase(phase.name, after - before, before)
                    before = after
        finally:
            child_processes.let_go()
            self._in_frame = False
            if self._gpu_phases is not None:
                self._gpu_phases.end_frame()
            profiler._end_frame(before - start, start)
            self._slack.end_frame(before)
            if self._watchdog is not None:
                self._watchdog.frame_ended(before)
        with background_planning():
            self._change_scenes()

    def quit(self) -> None:
        """End the game after this frame."""
        self._quitting = True

    def single_step(self) -> None:
        """Run one frame of 1 / target_frame_rate seconds while the game is halted (`app.halted`)."""
        if self.halted:
            self._single_steps += 1

    def _pace(self) -> None:
        if not self.real_time:
            # Nobody waits for the next frame: inference continues as it would with a faster device, and what
            # is loaded or planned takes no more frames than in real time.
            self._idle_time.spend(_UNPACED_REST, loading=1.0 / self.target_frame_rate)
        elif self._last_frame is not None and not self._quitting:
            end = self._last_frame + 1.0 / self.target_frame_rate
            self._idle_time.spend(end - self._time_source())
            left = end - self._time_source()
            if left > 0.0:
                self._sleep(left)

    def _stop_watching(self) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()

    def _check_not_over(self) -> None:
        """Raise `FrameError` once the app has ended."""
        if self._disposed or self._ended:
            raise FrameError("this app has ended; make a new App to play again")

    def _check_usable(self) -> None:
        self._check_not_over()
        if self._in_frame:
            raise FrameError("step() was called from within a frame; use a coroutine to wait for frames")
        self._check_thread()

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise FrameError("an App is used on the thread that made it: its OpenGL context lives there")
