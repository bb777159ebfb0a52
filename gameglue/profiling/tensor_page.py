"""The overlay's page of one tensor as a heat map: a given input or a read-back output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gameglue.graphics.colors import Palette
from gameglue.graphics.device import Texture
from gameglue.profiling.overlay_pages import Panel
from gameglue.profiling.recording import ProfileRecording
from gameglue.profiling.tensor_watches import as_image, heat_map

if TYPE_CHECKING:
    from gameglue.host.app import App

_PICTURE = 182.0


class TensorPage:
    """The latest elements of a tensor; nothing is read back for it."""

    title = "tensor"

    def __init__(self) -> None:
        self._texture: Texture | None = None
        self._shown: tuple[object, int] = (None, -1)
        self._summary = ""

    def choose(self, recording: ProfileRecording) -> None:
        """The next tensor."""
        recording.tensors.choose_next()

    def draw(self, app: App, recording: ProfileRecording, panel: Panel) -> None:
        """Draw it."""
        watch, gui = recording.tensors, panel.gui
        if watch.chosen is None:
            watch.choose_next()
        if watch.chosen is None or watch.array is None:
            panel.note(0, "no tensor has been read back yet")
            return
        worker, name = watch.chosen
        place = f"{watch.names.index(watch.chosen) + 1} of {len(watch.names)}"
        shape = " x ".join(map(str, watch.shape)) or "a number"
        gui.text(gui.truncated(name, 150, 13, keeps_end=True), panel.x, panel.y, size=13, color=Palette.TEXT)
        gui.text(f"{shape}   {place}", panel.right, panel.y, size=12, color=Palette.MUTED, align="right")
        if self._shown != (watch.chosen, watch.version):
            self._shown = (watch.chosen, watch.version)
            self._show(app, watch.array)
        if self._texture is not None:
            width, height = self._texture.size
            scale = min(panel.width / width, _PICTURE / height)
            gui.image(self._texture, panel.x, panel.y + 24, width * scale, height * scale)
        gui.text(self._summary, panel.x, panel.y + 24 + _PICTURE + 8, size=12, color=Palette.TEXT)
        panel.note(panel.height - 22, f"{worker}, at its last turn")

    def _show(self, app: App, array: np.ndarray) -> None:
        pixels = heat_map(as_image(array))
        size = (pixels.shape[1], pixels.shape[0])
        if self._texture is None or self._texture.size != size:
            if self._texture is not None:
                self._texture.release()
            self._texture = app.graphics.texture(size=size, smooth=False)
        self._texture.write(pixels)
        finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
        if finite.size:
            low, high, mean = finite.min(), finite.max(), finite.mean(dtype=np.float64)
            self._summary = f"least {low:.4g}   greatest {high:.4g}   mean {mean:.4g}"
        else:
            self._summary = "no finite elements"
