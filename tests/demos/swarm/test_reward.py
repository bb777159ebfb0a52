"""What fish are rewarded for in training."""

from __future__ import annotations

import numpy as np

from assets.swarm import reward as rules
from assets.swarm.reward import reward
from demos.swarm.world import Sea

DT = 1 / 30


def test_the_caught_pay_and_others_get_what_the_rules_say() -> None:
    sea = Sea(300, np.random.default_rng(4))
    sea.place[5] = sea.shark_place[0]
    senses = sea.observe()
    is_caught = sea.step(np.zeros((300, 2), np.float32), DT)
    earned = reward(sea, senses, is_caught, DT)
    assert earned.shape == (300,)
    assert earned[5] < -rules.CAUGHT + 0.1
    assert earned[~is_caught].min() > -0.1
    quiet = ~is_caught & (sea.fear == 0.0) & (sea.crowd.ravel()[sea.cells] < 3.0)
    assert quiet.sum() > 10
    expected = (
        rules.EATING * sea.eating + rules.ALIGNED * senses[:, 2] - rules.EFFORT * (sea.speed / 0.3) ** 2
    )
    np.testing.assert_allclose(earned[quiet], expected[quiet] * DT, atol=1e-6)


def test_the_sense_that_is_rewarded_tells_how_far_others_swim_the_same_way() -> None:
    sea = Sea(6000, np.random.default_rng(4))
    sea.heading[:] = 0.7
    together = sea.observe()[:, rules.OTHERS_AHEAD]
    sea.heading[::2] += np.pi
    apart = sea.observe()[:, rules.OTHERS_AHEAD]
    assert together.min() > 0.1
    assert apart.mean() < 0.5 * together.mean()
