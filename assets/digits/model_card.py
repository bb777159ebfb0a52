"""Measure `digits.onnx` with onnxruntime and write the model card: no figure in it is typed by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assets.digits.data import Labels, Pictures
from assets.measuring import open_session

REQUIRED_ACCURACY = 0.97


@dataclass(frozen=True)
class Figures:
    """What the card states.

    Counts of real digits: train, validation, held out; of drawings: train, held out.
    Labels and answers: (n,).
    """

    weights: int
    opset: int
    real_counts: tuple[int, int, int]
    drawing_counts: tuple[int, int]
    real_labels: Labels
    real_answers: Labels
    drawing_labels: Labels
    drawing_answers: Labels


def read_with(path: Path, pictures: Pictures) -> Labels:
    """The digit that the model at `path` reads in each of (n, 1, 28, 28) pictures: (n,) int64."""
    session = open_session(path)
    (probabilities,) = session.run(["probabilities"], {"image": pictures})
    return np.asarray(np.argmax(probabilities, axis=1), dtype=np.int64)


def measure(answers: Labels, labels: Labels) -> float:
    """The share of right answers, from 0 to 1."""
    return float((answers == labels).mean())


def _table(answers: Labels, labels: Labels) -> str:
    """One row per digit: how many, how many read rightly, and what the others were taken for."""
    rows = []
    for digit in range(10):
        given = answers[labels == digit]
        wrong = given[given != digit]
        taken = ", ".join(f"{int(other)} ({int((wrong == other).sum())})" for other in np.unique(wrong))
        right = len(given) - len(wrong)
        rows.append(f"| {digit} | {len(given)} | {right / len(given):.2%} | {taken or 'none'} |")
    head = "| digit | held out | read rightly | taken for |\n| --- | --- | --- | --- |\n"
    return head + "\n".join(rows)


CARD = """\
# digits: reads a digit drawn with the mouse

Written by `train_digits.py` in this folder; do not edit it by hand.

| measured on | pictures | accuracy |
| --- | --- | --- |
| held-out real digits | {real_held_out} | {real_accuracy:.2%} |
| held-out drawings | {drawings_held_out} | {drawing_accuracy:.2%} |

Both were measured on `digits.onnx` with onnxruntime. A test repeats the first one.

## Input and output

| name | type and shape | meaning |
| --- | --- | --- |
| `image` (input) | float32 (batch, 1, 28, 28) | 0 is background, 1 is ink |
| `probabilities` (output) | float32 (batch, 10) | one probability per digit, 0 to 9; their sum is 1 |

The digit's longer side measures 20 pixels and its ink is balanced on the middle; `prepare` in
`demos/digits/preprocess.py` makes such a picture from a drawing of any size. `batch` is a named dynamic
dimension. One file without external data, opset {opset}.

## Network

Three blocks of convolution (3 x 3, with 16, 32 and 64 channels), batch-norm, ReLU and max-pool (2 x 2),
then a dense layer of 64 with ReLU, a dense layer of 10, and softmax. {weights:,} weights. The batch-norms
are left in the file on purpose: folding them is the engine's work.

## Data

- **Real digits**: scikit-learn's `load_digits`, which is the test part of *Optical Recognition of
  Handwritten Digits* (E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, doi
  10.24432/C50P49): 1,797 digits of 8 x 8 pixels by 13 writers. Enlarged and centred by the game's own
  `prepare`.
- **Split**: of each class, in the data set's order, the first 65 % train ({real_train} digits in all),
  the next 10 % are for choosing settings ({real_validation}), and the last 25 % are held out
  ({real_held_out}): never trained on, distorted, or used to choose anything. The order runs in blocks of
  about 130 digits, by all appearance a writer each, so that most held-out digits come from hands that
  training has not seen.
- **Drawings**: {drawings_train:,} for training and {drawings_held_out:,} held out (another seed), made by
  `drawings.py` from the pen strokes in `templates.py`: several ways to write each digit, moved, slanted,
  bent and shaken, drawn with a round brush of varying width on the game's canvas. Held-out drawings share
  the ways of writing with the training ones, so that figure says how steady the network is, not how it
  does with a hand it has never seen.
- In training, every picture is turned, slanted, stretched, moved, bent and changed in contrast at random.

## Held-out real digits, by class

{real_table}

## Held-out drawings, by class

{drawing_table}

## Make it again

From the root of the repository:

    pip install -e .[train,test]
    python -m assets.digits.train_digits

It takes about two minutes on two cores, needs no network once installed, and replaces `digits.onnx` and
this file. Seeds are fixed; another machine or library version may still differ in the last decimals.

## Use and limits

Meant for the `digits` demo: one digit at a time, written with a mouse, pen or finger. It always answers
with one of ten digits, also for a letter or a scribble, and its probabilities are no measure of whether a
digit is there at all. It has seen 13 real writers and no other scripts. Do not use it where a wrong
reading matters.

## Licence

The model and its scripts are under the project's MIT licence. The UCI data are under [CC BY
4.0](https://creativecommons.org/licenses/by/4.0/); source:
<https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits>. None of them is in
this folder.
"""


def write_card(path: Path, figures: Figures) -> None:
    """Write the model card. Raises RuntimeError when the model misses the required accuracy."""
    real_accuracy = measure(figures.real_answers, figures.real_labels)
    if real_accuracy < REQUIRED_ACCURACY:
        raise RuntimeError(
            f"{real_accuracy:.2%} of held-out real digits are read rightly; required: {REQUIRED_ACCURACY:.0%}"
        )
    text = CARD.format(
        real_accuracy=real_accuracy,
        drawing_accuracy=measure(figures.drawing_answers, figures.drawing_labels),
        real_train=figures.real_counts[0],
        real_validation=figures.real_counts[1],
        real_held_out=figures.real_counts[2],
        drawings_train=figures.drawing_counts[0],
        drawings_held_out=figures.drawing_counts[1],
        weights=figures.weights,
        opset=figures.opset,
        real_table=_table(figures.real_answers, figures.real_labels),
        drawing_table=_table(figures.drawing_answers, figures.drawing_labels),
    )
    path.write_text(text, encoding="utf-8")
