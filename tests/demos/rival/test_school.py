"""Generations learn to play, a double to do as its player, and the engine computes what NumPy does."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from demos.rival.court import SENSES, Court
from demos.rival.school import NETWORK, live
from gameglue import EvolutionStrategy, ModelLoader, Worker

FOLDER = Path(__file__).parents[3] / "assets" / "rival"


def examples(count: int) -> np.ndarray:
    court = Court(count, np.random.default_rng(8))
    court.paddles = court.random.uniform(0.1, 0.9, (count, 2))
    return court.senses(1)


def test_weights_are_inputs_of_the_engine() -> None:
    random = np.random.default_rng(1)
    senses = examples(20)
    with Worker(ModelLoader.load(FOLDER / "rival.onnx")) as worker:
        for _ in range(3):
            weights = NETWORK.init_weights(random)
            worker.schedule(senses=senses.astype(np.float32), **NETWORK.inputs(weights))
            answer = worker.peek_output().download_to_array()
            np.testing.assert_allclose(answer, NETWORK.forward(weights, senses), atol=1e-5)


def test_a_double_comes_to_do_what_was_done() -> None:
    random = np.random.default_rng(3)
    senses, init_weights = examples(300), NETWORK.init_weights(random)
    done = np.clip(3 * senses[:, 1:2], -1, 1)
    double = next(islice(NETWORK.fit(init_weights, senses, done, random), 400, None))
    assert (
        NETWORK.loss_and_gradient(double, senses, done)[0]
        < 0.05 * NETWORK.loss_and_gradient(init_weights, senses, done)[0]
    )


def test_generations_learn_to_return_the_ball() -> None:
    strengths = np.load(FOLDER / "rival.npy").astype(float)
    student, champion = strengths[1:]
    evolution = EvolutionStrategy(student, np.random.default_rng(4))
    for _ in range(8):
        assert sum(1 for _ in live(evolution, np.stack([champion] * 4), 150)) == 150
    assert evolution.generation == 8
    assert returned(evolution.weights) > returned(student) + 0.15


def returned(weights: np.ndarray) -> float:
    """The share of balls that come and are returned, against the champion."""
    court, champion = Court(150, np.random.default_rng(9)), np.load(FOLDER / "rival.npy")[2].astype(float)
    hits = lost = 0
    moves = np.zeros((150, 2))
    for _ in range(200):
        sides = (champion, court.senses(0)), (weights, court.senses(1))
        points = court.step(moves, 1 / 30)
        moves = np.stack([NETWORK.forward(w, seen)[:, 0] for w, seen in sides], axis=1)
        hits, lost = hits + int(court.hits[:, 1].sum()), lost + int((points < 0).sum())
    return hits / (hits + lost)


def test_what_lies_beside_the_network_fits_it() -> None:
    strengths = np.load(FOLDER / "rival.npy")
    assert strengths.shape == (3, NETWORK.count)
    assert NETWORK.parts(strengths)["weight_1"].shape == (3, SENSES, 16)
    assert (FOLDER / "rival.onnx").read_bytes() == NETWORK.to_onnx(
        "rival", input_name="senses", output_name="move"
    )
    newborn_, student, champion = (returned(weights.astype(float)) for weights in strengths)
    assert champion > 0.8
    assert champion >= student > newborn_


def test_the_champion_beats_bots_as_its_card_says() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime measures independently of the engine")
    from assets.rival.model_card import at_random, duel, follower, network, share

    champion = network(FOLDER / "rival.onnx", np.load(FOLDER / "rival.npy")[2])
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name, bot in (("follower", follower), ("random", at_random(1))):
        stated = float(card.split(f"| champion | {name} |")[1].split("|")[2].strip(" %")) / 100
        assert share(duel(bot, champion, 5, games=60, seconds=30.0)) == pytest.approx(stated, abs=0.12)
