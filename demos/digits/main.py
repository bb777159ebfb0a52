"""Draw a digit with the mouse; a network reads it in every frame."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from demos.digits.panels import Bars, Frame, SeenPicture, Times
from demos.digits.pens import AutoPen, MousePen
from demos.digits.reader import DigitReader, load_worker
from demos.digits.sheet import Sheet
from gameglue import App, Facts, ModelLoader, PlayOptions, default_choice


def build(app: App, options: PlayOptions) -> Facts:
    """Load the network and fill the scene."""
    choice = options.choice or default_choice(app.ctx is not None)[0]
    model = ModelLoader.load(app.resources.find("digits/digits.onnx"))
    worker = load_worker(model, choice, options.progress)

    game = app.scene.create("digits")
    sheet = game.add_component(Sheet)
    reader = game.add_component(DigitReader, sheet=sheet, model=model, worker=worker, choice=choice)
    game.add_component(MousePen, sheet=sheet)
    if options.autoplay:
        digits = range(10) if options.seed is None else app.random.permutation(10).tolist()
        game.add_component(AutoPen, sheet=sheet, reader=reader, digits=tuple(digits))
    game.add_component(Bars, reader=reader, sheet=sheet)
    game.add_component(SeenPicture, reader=reader)
    game.add_component(Times, reader=reader)
    game.add_component(Frame, reader=reader)
    return lambda: _facts(reader)


def _facts(reader: DigitReader) -> Mapping[str, object]:
    """What the report tells about the network."""
    facts: dict[str, object] = {
        "backend": f"{reader.choice.label} on {reader.device}",
        "readings": reader.answered,
    }
    if reader.waits:
        frames, milliseconds = np.median(reader.waits, axis=0)
        facts["answer after"] = f"{frames:.0f} frame(s), {milliseconds:.2f} ms (median)"
    if reader.read:
        facts["digits written"] = " ".join(str(written) for written, _ in reader.read)
        facts["digits read"] = " ".join(str(read) for _, read in reader.read)
    return facts
