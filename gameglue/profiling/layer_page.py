"""The overlay's page of a worker's layers and their measured costs."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from gameglue.graphics.colors import Palette
from gameglue.profiling.overlay_pages import Panel
from gameglue.profiling.recording import ProfileRecording
from gameglue.profiling.workers import WorkerTimes

if TYPE_CHECKING:
    from gameglue.host.app import App

_SHOWN = 10
_ROW = 18.0
_REFRESHED = 20  # Frames: reading the costs of a large network takes a part of a millisecond.


class LayerPage:
    """The most expensive layers of a worker, from its `costs`."""

    title = "layers"

    def __init__(self) -> None:
        self._chosen = 0
        self._layers: list[LayerCost] = []
        self._of: tuple[WorkerTimes | None, int] = (None, 0)

    def choose(self, recording: ProfileRecording) -> None:
        """The next worker."""
        self._chosen += 1

    def draw(self, app: App, recording: ProfileRecording, panel: Panel) -> None:
        """Draw it."""
        workers = [times for times in recording.workers if times.worker is not None]
        if not workers:
            panel.note(0, "no worker was scheduled since this was opened")
            return
        times = workers[self._chosen % len(workers)]
        gui = panel.gui
        gui.text(
            gui.truncated(times.label, 200, 13, keeps_end=True), panel.x, panel.y, size=13, color=Palette.TEXT
        )
        now = (times, app.time.frame_count // _REFRESHED)
        if now != self._of:
            self._of, self._layers = now, layers_of(times)
        layers = self._layers
        measured = sum(item.measured for item in layers)
        text = f"{sum(item.ms for item in layers):.3f} ms in {len(layers)} layers"
        gui.text(text, panel.right, panel.y, size=12, color=Palette.TEXT, align="right")
        dearest = sorted(layers, key=lambda item: -item.ms)[:_SHOWN]
        for i, item in enumerate(dearest):
            name = f"{item.name}  {item.op_type}"
            panel.bar_row(24 + i * _ROW, name, item.ms, dearest[0].ms, f"{item.ms:.3f}")
        note = f"{measured} of {len(layers)} measured, the others estimated"
        panel.note(panel.height - 16, note if measured < len(layers) else "all of them measured")


class LayerCost:
    """One layer's milliseconds, of all its steps together, and whether all of them were measured."""

    __slots__ = ("measured", "ms", "name", "op_type")

    def __init__(self, name: str) -> None:
        self.name = name
        self.op_type = ""
        self.ms = 0.0
        self.measured = True

    def covers(self, op_type: str) -> None:
        """Note the operators of one of its kernels, such as "Conv+Relu"; the longest name is kept."""
        names = "+".join(name for name, _ in groupby(op_type.split("+")))
        self.op_type = max(self.op_type, names, key=len)


def layers_of(times: WorkerTimes) -> list[LayerCost]:
    """The known costs of a worker's layers, in execution order."""
    found: dict[str, LayerCost] = {}
    worker = times.worker
    for step in worker.costs if worker is not None else ():
        cost = found.setdefault(step.layer, LayerCost(step.layer))
        cost.covers(step.op_type)
        cost.ms += step.ms
        cost.measured &= step.measurements > 0
    return list(found.values())
