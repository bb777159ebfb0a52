"""The trained network does better than chance, as its card says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime measures independently of the engine")

from assets.swarm.model_card import at_random, measure, network
from demos.swarm.world import Sea
from gameglue import ModelLoader, Worker

FOLDER = Path(__file__).parents[3] / "assets" / "swarm"


def test_the_network_fares_as_its_card_says() -> None:
    learned, random = (
        measure(policy, 31, seconds=12, fish=512) for policy in (network(FOLDER / "swarm.onnx"), at_random(3))
    )
    assert learned.reward > random.reward + 0.15
    assert learned.eaten > 1.5 * random.eaten
    assert learned.deaths < 0.05 * random.deaths
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    stated = float(card.split("| network |")[1].split("|")[0])
    assert learned.reward == pytest.approx(stated, abs=0.15)


def test_the_engine_answers_as_onnxruntime_does() -> None:
    senses = Sea(500, np.random.default_rng(2)).observe()
    with Worker(ModelLoader.load(FOLDER / "swarm.onnx")) as worker:
        worker.schedule(senses)
        answer = worker.peek_output().download_to_array()
    np.testing.assert_allclose(answer, network(FOLDER / "swarm.onnx")(senses), atol=1e-5)
