"""The painter's networks keep what their card promises."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.peer import open_session

FOLDER = Path(__file__).parents[2] / "assets" / "painter"
STYLES = ("comic", "gouache", "etching")

# In a process of its own: Mesa and torch each bring an LLVM.
PAINT = """
import numpy as np, torch
from assets.painter.painters import PAINTERS
from assets.painter.scenes import pictures
given = pictures(10, 2)
painted = {name: paint(torch.from_numpy(given)).numpy() for name, paint in PAINTERS.items()}
np.savez(PATH, given=given, **painted)
"""


def stated(style: str) -> tuple[float, float]:
    """What the card says of a style: dB of the network, and of the unpainted picture."""
    card = (FOLDER / "README.md").read_text("utf-8")
    found = re.search(rf"^\| `{style}.onnx` \| ([\d.]+) dB \| ([\d.]+) dB \|$", card, re.MULTILINE)
    assert found is not None, f"the card has no row for {style}"
    return float(found[1]), float(found[2])


@pytest.mark.long
def test_networks_paint_as_the_card_says(run_child: Callable[..., str], tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the painters are written with it")
    path = tmp_path / "painted.npz"
    run_child(f"PATH = {str(path)!r}\n{PAINT}")
    pictures = np.load(path)
    for style in STYLES:
        session = open_session(FOLDER / f"{style}.onnx")
        decibels = []
        for given, wanted in zip(pictures["given"], pictures[style], strict=True):
            (painting,) = session.run(None, {"picture": given[None]})
            decibels.append(-10 * np.log10(((painting[0] - wanted) ** 2).mean()))
        network, unpainted = stated(style)
        # A quarter of the pictures that the card's figures are means of.
        assert np.mean(decibels) == pytest.approx(network, abs=1.0)
        assert network > unpainted + 2.5


@pytest.mark.parametrize("style", STYLES)
def test_files_are_what_the_card_describes(style: str) -> None:
    model = onnx.load(FOLDER / f"{style}.onnx", load_external_data=False)
    (given,), (painting,) = model.graph.input, model.graph.output
    for value, name in ((given, "picture"), (painting, "painting")):
        assert value.name == name
        shape = [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        assert shape == [1, 3, "rows", "columns"]
    things = [model, model.graph, *model.graph.node, *model.graph.input, *model.graph.initializer]
    assert not any(thing.doc_string or len(thing.metadata_props) for thing in things)
