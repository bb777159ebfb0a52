"""The gesture model reads as its card says, and the same on every backend."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import moderngl
import numpy as np
import onnx
import pytest

from demos.gesture.strokes import GESTURES, SIGNS
from demos.gesture.trail import features
from gameglue import BACKEND_CHOICES, BackendChoice, DeviceError, ModelLoader, open_worker
from tests.peer import open_session

FOLDER = Path(__file__).parents[2] / "assets" / "gesture"
MODEL = FOLDER / "gesture.onnx"


@pytest.fixture(scope="module")
def session() -> Any:
    return open_session(MODEL)


def test_held_out_hands_are_read_as_the_card_says(session: Any) -> None:
    """Some strokes of the hands that the card was measured with."""
    pytest.importorskip("torch", reason="the training script draws the strokes")
    train = pytest.importorskip("assets.gesture.train_gesture")
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^\| held-out hands \| (\d+) \| ([\d.]+)% \|$", card, re.MULTILINE)
    assert found is not None
    expected = float(found[2]) / 100
    hands = range(train.HANDS, train.HANDS + train.HELD_OUT_HANDS)
    movements, labels = train.draw_many(900, hands, 77)
    (probabilities,) = session.run(None, {"movement": movements})
    accuracy = float(np.mean(probabilities.argmax(axis=1) == labels))
    assert accuracy == pytest.approx(expected, abs=0.03)
    assert expected >= 0.95


def ideal_movements() -> np.ndarray:
    """The signs as they are in the spell book, each drawn at an even pace: (5, 48, 3)."""
    movements = []
    for path in SIGNS.values():
        far = np.r_[0.0, np.cumsum(np.hypot(*np.diff(path, axis=0).T))]
        times = far * (0.3 + 0.22 * far[-1]) / far[-1]
        movements.append(features(np.column_stack((times, path * 200)), times[-1]))
    return np.stack(movements)


def test_the_signs_of_the_spell_book_are_read(session: Any) -> None:
    (probabilities,) = session.run(None, {"movement": ideal_movements()})
    assert [GESTURES[i] for i in probabilities.argmax(axis=1)] == list(SIGNS)
    assert probabilities.max(axis=1).min() > 0.8


@pytest.mark.long
@pytest.mark.gl
@pytest.mark.parametrize("choice", BACKEND_CHOICES, ids=lambda choice: choice.label)
def test_every_backend_gives_the_same_answer(
    session: Any, choice: BackendChoice, game: moderngl.Context
) -> None:
    movements = ideal_movements()
    (expected,) = session.run(None, {"movement": movements})
    try:
        worker = open_worker(ModelLoader.load(MODEL), choice)
    except DeviceError as error:
        pytest.skip(str(error))
    try:
        worker.schedule(movements)
        np.testing.assert_allclose(worker.peek_output().download_to_array(), expected, atol=1e-4)
    finally:
        worker.dispose()


def test_file_is_small_and_says_nothing_about_the_machine_that_made_it() -> None:
    assert MODEL.stat().st_size < 100_000
    model = onnx.load(MODEL, load_external_data=False)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("LSTM") == kinds.count("Conv") == 1
    (x,) = model.graph.input
    assert [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim] == ["batch", 48, 3]
    things = [model, model.graph, *model.graph.node, *model.graph.input, *model.graph.initializer]
    assert not any(thing.doc_string or len(thing.metadata_props) for thing in things)
