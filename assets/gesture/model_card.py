"""Measure `gesture.onnx` with onnxruntime and write the model card: no figure in it is typed by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from assets.measuring import open_session
from demos.gesture.strokes import GESTURES

REQUIRED_ACCURACY = 0.95
Labels = npt.NDArray[np.int64]


def answers_of(path: Path, movements: npt.NDArray[np.float32]) -> Labels:
    """The number of the gesture that the model at `path` takes each of (n, 48, 3) movements for: (n,)."""
    session = open_session(path)
    (probabilities,) = session.run(["probabilities"], {"movement": movements})
    return np.asarray(probabilities.argmax(axis=1), np.int64)


CARD = """\
# gesture: which spell a pointer draws

Written by `train_gesture.py` in this folder; do not edit it by hand.

| measured on | strokes | accuracy |
| --- | --- | --- |
| held-out hands | {held_out} | {accuracy:.2%} |

Measured on `gesture.onnx` with onnxruntime, on strokes of {held_out_hands} hands that training has not
seen. A test repeats it.

## Input and output

| name | type and shape | meaning |
| --- | --- | --- |
| `movement` (input) | float32 (batch, 48, 3) | steps of 1/32 s, the latest last: dx, dy, drawing |
| `probabilities` (output) | float32 (batch, 6) | {names}; their sum is 1 |

A step is how far the pointer went in x and y, in tenths of the whole movement's size, and 1 while it drew;
all steps together are the last 1.5 seconds. `features` in `demos/gesture/trail.py` makes them from a
pointer's positions. `batch` is a named dynamic dimension. One file without external data, {size:,} bytes.

## Network

A convolution over time (5 steps wide, every second step, {convolutions} channels) with ReLU, an LSTM with a
memory of {memory}, a dense layer on what it remembers at the end, and softmax. {weights:,} weights.

## Data

{strokes:,} strokes, as many of each class, made by `hands.py`: {hands} hands, each with a pace, slant,
tremor, roundness of corners, proportions and preferred direction of its own, draw each gesture from several
starting points, in several sizes, on whole pixels. "none" is arcs, corners, boxes, eights and wanders, the
unfinished starts of other gestures, clicks and rest. Nothing is downloaded. No person drew any of them, so
the figure says how well the network knows these hands, and yours may differ.

## Held-out strokes, by class

{table}

## Make it again

From the root of the repository:

    pip install -e .[train,test]
    python -m assets.gesture.train_gesture

It takes about a minute on two idle cores, needs no network once installed, and replaces `gesture.onnx` and
this file. Seeds are fixed; another machine or library version may still differ in the last decimals.

## Licence

Model, scripts and data are under the project's MIT licence.
"""


def _table(truth: Labels, answers: Labels) -> str:
    """One row per class: how many, how many read rightly, and what the others were taken for."""
    rows = ["| gesture | held out | read rightly | taken for |", "| --- | --- | --- | --- |"]
    for label, gesture in enumerate(GESTURES):
        given = answers[truth == label]
        wrong = given[given != label]
        taken = ", ".join(f"{GESTURES[other]} ({int((wrong == other).sum())})" for other in np.unique(wrong))
        right = 1.0 - len(wrong) / len(given)
        rows.append(f"| {gesture} | {len(given)} | {right:.2%} | {taken or 'none of them'} |")
    return "\n".join(rows)


def write_card(path: Path, truth: Labels, answers: Labels, **facts: int) -> None:
    """Write the model card. Raises RuntimeError when the model misses the required accuracy."""
    accuracy = float((answers == truth).mean())
    if accuracy < REQUIRED_ACCURACY:
        raise RuntimeError(f"{accuracy:.2%} of held-out strokes are read; required: {REQUIRED_ACCURACY:.0%}")
    card = CARD.format(
        accuracy=accuracy, held_out=len(truth), names=", ".join(GESTURES), table=_table(truth, answers),
        size=path.with_name("gesture.onnx").stat().st_size, **facts,
    )  # fmt: skip
    path.write_text(card, encoding="utf-8")
