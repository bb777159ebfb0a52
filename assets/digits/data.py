"""The real digits behind the model, and which of them are held out.

scikit-learn's `load_digits` is the test part of "Optical Recognition of Handwritten Digits" (UCI Machine
Learning Repository): 1,797 digits of 8 x 8 pixels, written by 13 people.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from demos.digits.preprocess import prepare

HELD_OUT_PART = 0.25
VALIDATION_PART = 0.10

Pictures = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RealDigits:
    """Pictures (n, 1, 28, 28) float32 from 0 to 1 with their labels (n,) int64, in three disjoint parts."""

    train: tuple[Pictures, Labels]
    validation: tuple[Pictures, Labels]
    held_out: tuple[Pictures, Labels]


def load_real_digits() -> RealDigits:
    """Read the digits and split each class in the data set's own order: 65 % train, 10 % validation, and the
    last 25 % held out.

    The order runs in blocks of about 130 digits, by all appearance a writer each: most held-out digits come
    from hands that training never saw. A random split would mix the hands and flatter the figure.
    """
    digits = load_digits()
    pictures = np.concatenate([prepare(image / 16.0) for image in digits.images])
    labels = digits.target.astype(np.int64)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for digit in range(10):
        members = np.flatnonzero(labels == digit).tolist()
        held_out = len(members) - round(len(members) * HELD_OUT_PART)
        validation = held_out - round(len(members) * VALIDATION_PART)
        for part, chosen in zip(
            parts, (members[:validation], members[validation:held_out], members[held_out:]), strict=True
        ):
            part.extend(chosen)
    train, checked, kept = ((pictures[sorted(part)], labels[sorted(part)]) for part in parts)
    return RealDigits(train, checked, kept)
