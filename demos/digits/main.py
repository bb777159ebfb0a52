"""Draw a digit with the mouse; a network classifies it in every frame."""

from __future__ import annotations

from collections.abc import Mapping

from demos.digits.canvas import Canvas
from demos.digits.panels import Panels
from demos.digits.pens import AutoPen, MousePen
from demos.digits.reader import DigitReader
from demos.digits.sheet import Sheet
from gameglue import App, PlayOptions, ReportCallback


def build(app: App, options: PlayOptions) -> ReportCallback:
    """Load the network and create the scene."""
    game = app.scene.create("digits")
    sheet = game.add_component(Sheet)
    reader = DigitReader.open(game, "digits/digits.onnx", options, sheet=sheet)
    # A first run in slices compiles the kernels and measures their costs before the first frame.
    for _ in reader.worker.schedule_iterable(Canvas().to_input()):
        pass
    reader.worker.peek_output().download_to_array()
    game.add_component(MousePen, sheet=sheet)
    if options.autoplay:
        digits = range(10) if options.seed is None else app.random.permutation(10).tolist()
        game.add_component(AutoPen, sheet=sheet, reader=reader, digits=tuple(digits))
    game.add_component(Panels, reader=reader)
    return lambda: _facts(reader)


def _facts(reader: DigitReader) -> Mapping[str, object]:
    """Figures for the report."""
    report = {**reader.statistics, "readings": reader.result_count}
    if reader.read:
        written, read = zip(*reader.read.values(), strict=True)
        report |= {"digits written": " ".join(map(str, written)), "digits read": " ".join(map(str, read))}
    return report
