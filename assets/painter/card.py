"""Write the model card of the painter's networks: no figure in it is typed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figures:
    """What the card states. scores: by style, PSNR in dB of the network and of the unpainted picture."""

    weights: int
    opset: int
    pictures: int
    held_out: int
    steps: int
    scores: Mapping[str, tuple[float, float]]


CARD = """\
# painter: pictures as a painter would make them

Written by `train_painter.py` in this folder; do not edit it by hand.

| file | PSNR against the hand-written painter | of the unpainted picture |
| --- | --- | --- |
{table}

Means over {held_out} held-out pictures, measured on the exported files with onnxruntime. A test repeats them.

## Input and output

| name | type and shape | meaning |
| --- | --- | --- |
| `picture` (input) | float32 (1, 3, rows, columns) | red, green, blue from 0 to 1 |
| `painting` (output) | float32 (1, 3, rows, columns) | the same, painted |

Rows and columns are open, and divide by 8. One file a style, without external data, opset {opset}.

## Network

Strided convolutions to a half (24 channels), a quarter (32) and an eighth (32) of the size, depthwise and
pointwise convolutions there, and back by depth to space, with the same size's features added; a linear layer
goes past all that, and begins as the picture itself. {weights:,} weights, 3,700 multiplications a pixel.
The biases before depth to space tell where a pixel lies on a lattice of 8 pixels, so that the network can
place dots and hatching.

## Data

`scenes.py` casts rays at spheres, boxes and pillars on a ground: {pictures} pictures of 240 x 160 to train
with and {held_out} held out (another seed). `painters.py` paints each in three styles, by a Kuwahara filter,
bands of tone, differences of Gaussians for outlines, dots and hatching; a network learns it in one pass.
{steps:,} steps of 4 crops each.

## Make it again

From the root of the repository:

    pip install -e .[train,test]
    python -m assets.painter.train_painter

It takes about five minutes on two cores, needs no network once installed, and replaces the files and this
one. Seeds are fixed; another machine or library version may still differ in the last decimals.

## Use and limits

Meant for the `painter` demo: pictures of simple lit things. It has seen no photograph. Lines and dots are a
few pixels wide whatever the picture's size, and stay with the screen while things move.

## Licence

The models and their scripts are under the project's MIT licence; no data of others are in them.
"""


def write_card(path: Path, figures: Figures) -> None:
    """Write the model card."""
    rows = [
        f"| `{name}.onnx` | {here:.2f} dB | {before:.2f} dB |"
        for name, (here, before) in figures.scores.items()
    ]
    text = CARD.format(table="\n".join(rows), **{k: v for k, v in vars(figures).items() if k != "scores"})
    path.write_text(text, encoding="utf-8")
