"""Write the model card of the upscaler: no figure in it is typed by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Score:
    """Mean PSNR in dB of both ways to enlarge, and by how much the network wins where it wins least."""

    bilinear: float
    network: float
    least_gain: float


@dataclass(frozen=True)
class Figures:
    """What the card states."""

    weights: int
    opset: int
    frames: int
    cities: int
    held_frames: int
    held_cities: int
    steps: int
    score: Score


CARD = """\
# upscale: a frame with four times the pixels

Written by `train_upscale.py` in this folder; do not edit it by hand.

| enlarged by | mean PSNR against the native frame |
| --- | --- |
| bilinear interpolation | {bilinear:.2f} dB |
| `upscale.onnx` | {network:.2f} dB |

Measured on `upscale.onnx` with onnxruntime, over {held_frames} frames of {held_cities} cities that were not
trained on; where the network gains least, it gains {least_gain:.2f} dB. A test repeats this on some of them.

## Inputs and outputs

| file | name | type and shape | meaning |
| --- | --- | --- | --- |
| `upscale.onnx` | `small` (input) | float32 (1, 3, rows, columns) | red, green, blue from 0 to 1 |
| | `large` (output) | float32 (1, 3, 2 rows, 2 columns) | enlarged |
| `compare.onnx` | `native`, `bilinear`, `network` (inputs) | float32 (1, 3, rows, columns) | one frame |
| | `errors` (output) | float32 (2) | mean square error of the second and third |

`compare.onnx` has no weights; with it the demo measures on whichever backend the pictures are. Its rows and
columns divide by 16. One file each without external data, opset {opset}.

## Network

A sub-pixel network (W. Shi et al., 2016): convolutions of 5 x 5 to 16 channels, of 3 x 3 to 16 and of 3 x 3
to 12, then depth to space. A linear 3 x 3 layer beside all that begins as bilinear interpolation. {weights:,}
weights, 5,600 multiplications for each pixel of the small picture.

## Data

The game's own frames, drawn by `frames.py` without a window at 320 x 240 and at 640 x 480: {frames} random
moments in {cities} cities for training, {held_frames} in {held_cities} others held out. {steps:,} steps of 16
crops each.

## Make it again

From the root of the repository, with OpenGL (a software renderer will do):

    pip install -e .[train,test]
    python -m assets.upscale.train_upscale

It takes about three minutes on two cores, needs no network once installed, and replaces the files and this
one. Seeds are fixed; another machine, driver or library version may still differ in the last decimals.

## Use and limits

Meant for the `upscale` demo. It knows this game's shapes and letters, and is of little use for photographs.

## Licence

The model and its scripts are under the project's MIT licence; no data of others are in it.
"""


def write_card(path: Path, figures: Figures) -> None:
    """Write the model card. Raises RuntimeError when the network does not win."""
    score = figures.score
    if score.least_gain <= 0.0:
        raise RuntimeError(
            f"the network loses to bilinear interpolation on a frame, by {-score.least_gain:.2f} dB"
        )
    path.write_text(CARD.format(**vars(figures), **vars(score)), encoding="utf-8")
