"""GPU time of each phase of the frame, by timer queries in the game's context."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.device.gl.functions import GLFunctions
from engine.device.gl.limits import GLInfo
from engine.device.gl.timer_queries import GLTimer

if TYPE_CHECKING:
    from gameglue.graphics.graphics import Graphics

DRAWING = ("draw", "render_image", "gui", "present")
"""The phases that draw, in order."""

Report = Callable[[str, float, float], object]
"""Called with a phase's name, and when the GPU began and ended it, in seconds of `time.perf_counter`."""


class GPUPhases:
    """Writes a timestamp before each phase that draws and after the last; `report` receives them."""

    def __init__(self, gl: GLFunctions, report: Report) -> None:
        self._timer = GLTimer(gl)
        self._report = report
        self._names: list[str] = []
        self._stamps: list[int] = []
        self._is_drawing = False

    @classmethod
    def of(cls, graphics: Graphics, report: Report) -> GPUPhases | None:
        """Create one for a game's current context; `None` without one or with a software renderer."""
        loader = getattr(graphics.ctx.mglo, "_context", None) if graphics.ctx is not None else None
        is_software = GLInfo(graphics.renderer, "", "", 0, frozenset()).is_software
        return None if loader is None or is_software else cls(GLFunctions(loader), report)

    def begin(self, phase: str) -> None:
        """Mark the start of a phase."""
        draws = phase in DRAWING
        if draws or self._is_drawing:
            self._names.append(phase if draws else "")
            self._stamps.append(self._timer.stamp())
        self._is_drawing = draws

    def end_frame(self) -> None:
        """End the frame: report the results of earlier ones that have arrived."""
        if self._is_drawing:
            self.begin("")
        if self._names:
            names, stamps = self._names, self._stamps
            self._timer.request(stamps, lambda times: self._report_all(names, times))
        self._names, self._stamps = [], []
        self._timer.collect()

    def release(self) -> None:
        """Delete the queries; the context is current."""
        self._timer.release()

    def _report_all(self, names: list[str], times: list[float]) -> None:
        for name, start, end in zip(names, times, times[1:], strict=False):
            if name:
                self._report(name, start, end)
