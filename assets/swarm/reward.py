"""What a fish is rewarded for: training and the model card's figures go by it, the game does not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from demos.swarm.world import FASTEST, Floats, Sea

EATING, ALIGNED = 1.0, 0.3  # a second, at most
CROWDED, EFFORT, FEAR = 0.1, 0.05, 0.5  # what is paid for them, the same way
CAUGHT = 20.0  # what being caught costs, once
OTHERS_AHEAD = 2  # which of the senses tells how far others swim the fish's own way


def reward(sea: Sea, senses: Floats, is_caught: npt.NDArray[np.bool_], dt: float) -> Floats:
    """Of each fish, (count,), for a step of `dt` seconds from where it had `senses`; `is_caught` is what
    `Sea.step` returned.
    """
    crowded = np.clip((sea.crowd.ravel()[sea.cells] - 3.0) / 8.0, 0.0, 2.0)
    pleasure = EATING * sea.eating + ALIGNED * senses[:, OTHERS_AHEAD]
    pain = CROWDED * crowded + EFFORT * (sea.speed / FASTEST) ** 2 + FEAR * sea.fear
    return np.asarray((pleasure - pain) * dt - CAUGHT * is_caught, np.float32)
