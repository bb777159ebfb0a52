"""The overlay's pages about frames and workers, and the base of all pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gameglue.graphics.colors import Palette
from gameglue.graphics.gui import Gui
from gameglue.profiling.recording import ProfileRecording
from gameglue.profiling.report import Spread
from gameglue.profiling.workers import WorkerTimes

if TYPE_CHECKING:
    from gameglue.host.app import App

_FRAMES = 180
_LATEST = 60
_ROW = 18.0
_STATES = {"idle": Palette.MUTED, "in flight": Palette.GOOD, "pending": Palette.WARN, "disposed": Palette.BAD}


@dataclass(frozen=True)
class Panel:
    """Room to draw in, in pixels."""

    gui: Gui
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The right edge."""
        return self.x + self.width

    def bar_row(self, row: float, name: str, value: float, most: float, text: str) -> None:
        """A name, a bar as long as `value` is of `most`, and a number."""
        gui, y = self.gui, self.y + row
        gui.text(gui.truncated(name, 148, 12, keeps_end=True), self.x, y, size=12, color=Palette.MUTED)
        room = self.width - 156 - 52
        share = min(max(value / most, 0.0), 1.0) if most > 0.0 else 0.0
        gui.rect(self.x + 156, y + 4, max(room * share, 2), 8, Palette.ACCENT, radius=3)
        gui.text(text, self.right, y, size=12, color=Palette.TEXT, align="right")

    def note(self, row: float, text: str) -> None:
        """A line that explains."""
        self.gui.text(text, self.x, self.y + row, size=12, color=Palette.MUTED)


class OverlayPage(Protocol):
    """One page of the overlay."""

    title: str

    def draw(self, app: App, recording: ProfileRecording, panel: Panel) -> None:
        """Draw the page."""
        ...

    def choose(self, recording: ProfileRecording) -> None:
        """Show the next item, if the page has several."""
        ...


class FramePage:
    """Frame times, the inference budget, and the most expensive phases and hooks."""

    title = "frame"

    def choose(self, recording: ProfileRecording) -> None:
        """Do nothing: there are no items."""

    def draw(self, app: App, recording: ProfileRecording, panel: Panel) -> None:
        """Draw it."""
        gui, target = panel.gui, 1e3 / app.target_frame_rate
        work = app.profiler.work.latest(_FRAMES) * 1e3
        spread = Spread.of(work / 1e3)
        gui.text(f"{spread.median:.2f} ms", panel.x, panel.y, size=16, color=Palette.TEXT)
        text = f"p99 {spread.p99:.2f}   longest {spread.max:.2f}"
        gui.text(text, panel.right, panel.y + 3, size=12, color=Palette.MUTED, align="right")
        plot_y, tall = panel.y + 26, 66.0
        top = max(target * 1.25, spread.p99 * 1.1)
        gui.plot(panel.x, plot_y, panel.width, tall, work, low=0.0, high=top, color=Palette.ACCENT)
        line = plot_y + tall * (1 - target / top)
        gui.line(panel.x, line, panel.right, line, (*Palette.WARN_RGB, 0.7), width=1)
        gui.text(f"{target:.1f}", panel.right, line + 2, size=11, color=Palette.WARN, align="right")
        self._budget(app, panel, 102)
        self._dearest(recording, panel, 130)

    def _budget(self, app: App, panel: Panel, row: float) -> None:
        stats, gui, y = app.inference.stats, panel.gui, panel.y + row
        gui.text("inference budget", panel.x, y, size=12, color=Palette.MUTED)
        over = stats.budget_use > 1.0
        color = Palette.WARN if over else Palette.GOOD
        gui.progress_bar(panel.x + 112, y + 4, panel.width - 112 - 108, 8, stats.budget_use, color)
        text = f"{stats.spent_ms:.2f} of {stats.budget_ms:.2f} ms"
        gui.text(text, panel.right, y, size=12, color=Palette.TEXT, align="right")

    def _dearest(self, recording: ProfileRecording, panel: Panel, row: float) -> None:
        frames = list(recording.frames)[-_LATEST:]
        if not frames:
            return
        sums: dict[str, float] = {}
        for frame in frames:
            for name, seconds in (*frame.phases.items(), *frame.hooks.items()):
                sums[name] = sums.get(name, 0.0) + seconds
        dearest = sorted(sums.items(), key=lambda item: -item[1])[:7]
        for i, (name, seconds) in enumerate(dearest):
            mean = seconds * 1e3 / len(frames)
            panel.bar_row(row + i * _ROW, name, seconds, dearest[0][1], f"{mean:.3f}")


class WorkersPage:
    """Each worker's state, the game thread's time per schedule, and that of its jobs or the GPU."""

    title = "workers"

    def choose(self, recording: ProfileRecording) -> None:
        """Do nothing: there are no items."""

    def draw(self, app: App, recording: ProfileRecording, panel: Panel) -> None:
        """Draw it."""
        workers = [times for times in recording.workers if times.state != "disposed"]
        if not workers:
            panel.note(0, "no worker was scheduled since this was opened")
        for i, times in enumerate(workers[:4]):
            self._worker(panel, i * 50.0, times)
        if len(workers) > 4:
            panel.note(200, f"and {len(workers) - 4} more")
        stats = app.inference.stats
        queue = f"queue: {stats.waiting} waiting, {stats.running} running, {stats.reading} reading"
        panel.note(panel.height - 58, queue)
        frame = recording.frames[-1] if recording.frames else None
        counts = {} if frame is None else frame.counts
        moved = f"last frame: {_kilobytes(counts, 'bytes up')} up, {_kilobytes(counts, 'bytes down')} down"
        panel.note(panel.height - 40, moved)
        waits = recording.totals["blocking calls"] + recording.totals["waits for jobs"]
        panel.note(panel.height - 22, f"waits for the GPU or jobs since this was opened: {waits}")

    def _worker(self, panel: Panel, row: float, times: WorkerTimes) -> None:
        gui, y = panel.gui, panel.y + row
        state = times.state
        gui.circle(panel.x + 5, y + 9, 4, _STATES[state])
        gui.text(
            gui.truncated(times.label, 200, 13, keeps_end=True), panel.x + 16, y, size=13, color=Palette.TEXT
        )
        text = state if not times.waiting else f"{state}, {times.waiting} waiting"
        gui.text(text, panel.right, y, size=12, color=Palette.MUTED, align="right")
        parts = [f"{times.schedules} schedules"]
        for name, value in (
            ("this thread", times.calling_ms),
            ("jobs", times.per_schedule_ms("job")),
            ("GPU", times.per_schedule_ms("commands")),
            ("answer", times.mean_ms("readback", _LATEST)),
        ):
            if value is not None:
                parts.append(f"{name} {value:.2f}" if value < 10.0 else f"{name} {value:.0f}")
        text = "   ".join(parts) + " ms"
        gui.text(text, panel.x + 16, y + 20, size=11, color=Palette.MUTED)


def _kilobytes(counts: dict[str, float], name: str) -> str:
    return f"{counts.get(name, 0.0) / 1e3:.1f} KB"
