"""Networks that learn in NumPy: the engine computes the same, slopes are true, what is tried gets better."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from gameglue import BackendType, DenseNetwork, EvolutionStrategy, GameError, ModelLoader, Worker

NETWORK = DenseNetwork(5, 12, 7, 2)


def examples(random: np.random.Generator, count: int) -> np.ndarray:
    return random.uniform(-1.0, 1.0, (count, 5))


def test_layers_are_what_the_sizes_say() -> None:
    shapes = {"weight_1": (5, 12), "bias_1": (12,), "weight_2": (12, 7), "bias_2": (7,)}
    assert NETWORK.shapes == {**shapes, "weight_3": (7, 2), "bias_3": (2,)}
    assert NETWORK.count == 5 * 12 + 12 + 12 * 7 + 7 + 7 * 2 + 2
    weights = np.arange(float(NETWORK.count))
    parts = NETWORK.parts(weights)
    np.testing.assert_array_equal(np.concatenate([part.ravel() for part in parts.values()]), weights)
    init_weights = NETWORK.init_weights(np.random.default_rng(0))
    assert NETWORK.parts(init_weights)["weight_1"].std() == pytest.approx(5**-0.5, rel=0.3)
    assert not NETWORK.parts(init_weights)["bias_2"].any()


@pytest.mark.parametrize("sizes", [(), (3,), (3, 0), (-1, 2)])
def test_what_is_no_network_is_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(GameError, match="two sizes or more"):
        DenseNetwork(*sizes)


def test_a_worker_answers_with_the_weights_it_is_given() -> None:
    random = np.random.default_rng(1)
    x = examples(random, 9)
    model = ModelLoader.load(NETWORK.to_onnx("guard", input_name="senses", output_name="move"))
    with Worker(model, BackendType.CPU) as worker:
        for _ in range(3):
            weights = NETWORK.init_weights(random)
            worker.schedule(senses=x.astype(np.float32), **NETWORK.inputs(weights))
            answer = worker.peek_output("move").download_to_array()
            np.testing.assert_allclose(answer, NETWORK.forward(weights, x), atol=1e-5)


def test_many_networks_answer_at_once() -> None:
    random = np.random.default_rng(2)
    weights = np.stack([NETWORK.init_weights(random) for _ in range(4)])
    x = random.uniform(-1.0, 1.0, (4, 6, 5))
    answer = NETWORK.forward(weights, x)
    assert answer.shape == (4, 6, 2)
    for one, questions, found in zip(weights, x, answer, strict=True):
        np.testing.assert_allclose(found, NETWORK.forward(one, questions), atol=1e-12)


def test_slopes_are_those_of_small_differences() -> None:
    random = np.random.default_rng(3)
    weights, x, wanted = NETWORK.init_weights(random), examples(random, 30), random.uniform(-1, 1, (30, 2))
    loss_and_gradient, slopes = NETWORK.loss_and_gradient(weights, x, wanted)
    distance = NETWORK.forward(weights, x) - wanted
    assert loss_and_gradient == pytest.approx(np.square(distance).sum() / 60)
    for i in random.choice(NETWORK.count, 25, replace=False):
        step = np.eye(NETWORK.count)[i] * 1e-6
        above, below = (NETWORK.loss_and_gradient(weights + sign * step, x, wanted)[0] for sign in (1, -1))
        assert slopes[i] == pytest.approx((above - below) / 2e-6, abs=1e-7)


def test_imitation_comes_to_do_what_was_done() -> None:
    random = np.random.default_rng(4)
    x = examples(random, 300)
    done = np.clip(2 * x[:, :2] - x[:, 2:4], -0.9, 0.9)
    init_weights = NETWORK.init_weights(random)
    weights = next(islice(NETWORK.fit(init_weights, x, done, random), 400, None))
    unseen = examples(random, 100)
    wanted = np.clip(2 * unseen[:, :2] - unseen[:, 2:4], -0.9, 0.9)
    assert (
        NETWORK.loss_and_gradient(weights, unseen, wanted)[0]
        < 0.05 * NETWORK.loss_and_gradient(init_weights, unseen, wanted)[0]
    )


def test_evolution_climbs_a_hill_that_has_no_slope() -> None:
    goal = np.random.default_rng(5).uniform(-1.0, 1.0, 20)
    evolution = EvolutionStrategy(np.zeros(20), np.random.default_rng(6), pairs=10, rate=0.05, decay=0.0)
    for _ in range(150):
        variants = evolution.sample()
        assert variants.shape == (21, 20)
        np.testing.assert_array_equal(variants[0], evolution.weights)
        np.testing.assert_allclose((variants[1:11] + variants[11:]) / 2, [evolution.weights] * 10, atol=1e-12)
        # In steps: only which variant is better counts, not by how much.
        evolution.update(-np.floor(100 * np.square(variants - goal).sum(1)))
    assert evolution.generation == 150
    np.testing.assert_allclose(evolution.weights, goal, atol=0.15)


def test_weights_decay_and_the_rate_may_be_changed() -> None:
    evolution = EvolutionStrategy(np.ones(4), np.random.default_rng(7), rate=0.0, decay=0.1)
    evolution.update(evolution.sample()[:, 0])
    np.testing.assert_allclose(evolution.weights, 0.9)
    evolution.rate = 0.5
    evolution.update(evolution.sample()[:, 0])
    assert evolution.weights[0] > 1.2


def test_fitness_without_variants_is_refused() -> None:
    evolution = EvolutionStrategy(np.zeros(3), np.random.default_rng(8), pairs=2)
    with pytest.raises(GameError, match=r"variants\(\) comes before"):
        evolution.update(np.zeros(5))
    evolution.sample()
    with pytest.raises(GameError, match=r"got 4, 1 \+ 2 \* 2"):
        evolution.update(np.zeros(4))
    evolution.update(np.zeros(5))
    with pytest.raises(GameError, match="comes before"):
        evolution.update(np.zeros(5))
