"""The digits model keeps what its card promises."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from demos.digits.preprocess import prepare
from tests.peer import open_session

FOLDER = Path(__file__).parents[2] / "assets" / "digits"
MODEL = FOLDER / "digits.onnx"


def stated(row: str) -> tuple[int, float]:
    """Count and accuracy from the card's table, as (pictures, share from 0 to 1)."""
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| {row} \| (\d+) \| ([\d.]+)% \|$", card, re.MULTILINE)
    assert found is not None, f"the card has no row {row!r}"
    return int(found[1]), float(found[2]) / 100


@pytest.fixture(scope="module")
def session() -> Any:
    return open_session(MODEL)


def test_held_out_real_digits_are_read_as_the_card_says(session: Any) -> None:
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn holds the real digits")
    digits = datasets.load_digits()
    # The last quarter of each class in the data set's order, found here without the training script's code.
    held_out = []
    for digit in range(10):
        members = [index for index, label in enumerate(digits.target) if label == digit]
        held_out += members[len(members) - round(len(members) / 4) :]
    pictures = np.concatenate([prepare(digits.images[index] / 16) for index in held_out])
    (probabilities,) = session.run(["probabilities"], {"image": pictures})
    accuracy = float(np.mean(probabilities.argmax(axis=1) == digits.target[held_out]))

    count, expected = stated("held-out real digits")
    assert count == len(held_out) >= 0.2 * len(digits.target)
    assert accuracy == pytest.approx(expected, abs=0.002)
    assert accuracy >= 0.97


def test_card_states_the_held_out_drawings() -> None:
    count, accuracy = stated("held-out drawings")
    assert count >= 1000
    assert accuracy >= 0.97


def test_probabilities_for_any_batch(session: Any) -> None:
    for batch in (1, 7):
        pictures = np.random.default_rng(batch).random((batch, 1, 28, 28), dtype=np.float32)
        (probabilities,) = session.run(None, {"image": pictures})
        assert probabilities.shape == (batch, 10)
        assert probabilities.dtype == np.float32
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-5)


def test_file_is_what_the_card_describes() -> None:
    model = onnx.load(MODEL, load_external_data=False)
    (image,), (probabilities,) = model.graph.input, model.graph.output
    assert image.name == "image"
    assert [d.dim_param or d.dim_value for d in image.type.tensor_type.shape.dim] == ["batch", 1, 28, 28]
    assert probabilities.name == "probabilities"
    assert [d.dim_param or d.dim_value for d in probabilities.type.tensor_type.shape.dim] == ["batch", 10]
    kinds = [node.op_type for node in model.graph.node]
    block = ["Conv", "BatchNormalization", "Relu", "MaxPool"]
    assert kinds == [*block * 3, "Reshape", "Gemm", "Relu", "Gemm", "Softmax"]
    weights = sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer)
    assert weights < 200_000


def test_file_says_nothing_about_the_machine_that_made_it() -> None:
    model = onnx.load(MODEL, load_external_data=False)
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    things = [model, model.graph, *model.graph.node, *model.graph.input, *model.graph.initializer]
    assert not any(thing.doc_string or len(thing.metadata_props) for thing in things)
    for tensor in model.graph.initializer:
        tensor.ClearField("raw_data")
    assert re.findall(rb"[\w.]*/[\w./]+|\\\\\w+|\.py\b", model.SerializeToString()) == []
