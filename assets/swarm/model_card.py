"""Measure `swarm.onnx` with onnxruntime, and write the model card: no figure in it is typed by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from demos.swarm.world import Floats, Sea

OPSET = 18
DT = 1 / 30
FISH, SECONDS, SEEDS = 1024, 30, (101, 102, 103)
Steering = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Score:
    """How fish fared: reward a second, share of appetite that was stilled, deaths of 100 fish a minute."""

    reward: float
    eaten: float
    deaths: float

    def __str__(self) -> str:
        return f"reward {self.reward:.3f}, fed {self.eaten:.0%}, caught {self.deaths:.1f} of 100 a minute"


def network(path: Path) -> Steering:
    """What the network does, by onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # so small a network is slower on several
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda senses: np.asarray(session.run(None, {"senses": senses})[0], np.float32)


def scripted(senses: Floats) -> Floats:
    """Rules by hand: away from a shark that is near, else up the scent, aside where it is crowded."""
    ahead = senses[:, 0] - 0.3 * senses[:, 8]
    left = senses[:, 1] - 0.3 * senses[:, 9]
    flees = senses[:, 6] > 0.35
    ahead, left = np.where(flees, -senses[:, 4], ahead), np.where(flees, -senses[:, 5], left)
    turn = np.clip(np.arctan2(left, ahead) * 1.5, -1.0, 1.0)
    push = np.where(flees, 1.0, np.where(senses[:, 2] > 0.2, -0.8, 0.3))
    return np.stack((turn, push), axis=1).astype(np.float32)


def at_random(seed: int) -> Steering:
    """Any steering."""
    random = np.random.default_rng(seed)
    return lambda senses: random.uniform(-1.0, 1.0, (len(senses), 2)).astype(np.float32)


def measure(
    steering: Steering, seed: int, seconds: float = SECONDS, fish: int = FISH, settling: float = 10
) -> Score:
    """Let fish live for a while, after `settling` seconds in which the sea settles."""
    sea = Sea(fish, np.random.default_rng(seed))
    rewards, fed, before = [], [], 0
    for i in range(int((settling + seconds) / DT)):
        reward = sea.step(steering(sea.observe()), DT)
        if i == int(settling / DT):
            before = sea.caught
        if i >= int(settling / DT):
            rewards.append(float(reward.mean()) / DT)
            fed.append(float(sea.eating.mean()))
    deaths = (sea.caught - before) / fish * 100 * 60 / seconds
    return Score(float(np.mean(rewards)), float(np.mean(fed)), deaths)


def measure_all(path: Path) -> dict[str, Score]:
    """The network beside the rules and chance, each in the same seas."""
    policies: dict[str, Callable[[int], Steering]] = {
        "network": lambda _: network(path),
        "scripted": lambda _: scripted,
        "random": at_random,
    }
    scores = {}
    for name, make in policies.items():
        each = [measure(make(seed), seed) for seed in SEEDS]
        scores[name] = Score(
            *(float(np.mean([getattr(s, key) for s in each])) for key in Score.__annotations__)
        )
    return scores


CARD = """\
# swarm: steers a fish among thousands

Written by `train_swarm.py` in this folder; do not edit it by hand.

| policy | reward a second | fed | caught, of 100 fish a minute |
| --- | --- | --- | --- |
{rows}

Measured on `swarm.onnx` with onnxruntime: {fish} fish, {seas} seas of {seconds} seconds after ten in which
the sea settles, seeds that training did not use. "Fed" is the share of its appetite that a fish stills. The
scripted policy flees from a shark that is near, climbs the scent of food and leaves crowds (`scripted` in
`model_card.py`). A test repeats the measurement, shorter.

## Input and output

| name | type and shape | meaning |
| --- | --- | --- |
| `senses` (input) | float32 (batch, 14) | what a fish senses, see `Sea.observe` in `demos/swarm/world.py` |
| `steering` (output) | float32 (batch, 2) | from -1 to 1: turn (left is positive), slow down or speed up |

`batch` is a named dynamic dimension: the number of fish. One file, opset {opset}, {size} bytes.

## Network

Two dense layers of 32 with ReLU, and one of 2 with tanh.

## Training

Proximal policy optimisation from {samples:,} steps of single fish; there are no data. Each fish is
rewarded for eating (1 a second at most) and for swimming as its neighbours do (0.15), and pays for effort
(0.15 at full speed), for crowds, for a shark's nearness (0.5 at most) and for being caught (8).

    pip install -e .[train,test]
    python -m assets.swarm.train_swarm

About two minutes on one core, no network, no GPU. Seeds are fixed; another machine or library version may
differ in the last decimals.

## Use and limits

Meant for the `swarm` demo. It knows nothing but what one fish senses; whatever shoals do together comes of
that.

## Licence

The model and its scripts are under the project's MIT licence.
"""


def write_card(path: Path, scores: dict[str, Score], size: int, samples: int) -> None:
    """Write the card."""
    rows = "\n".join(
        f"| {name} | {score.reward:.3f} | {score.eaten:.0%} | {score.deaths:.1f} |"
        for name, score in scores.items()
    )
    card = CARD.format(
        rows=rows,
        fish=f"{FISH:,}",
        seas=len(SEEDS),
        seconds=SECONDS,
        opset=OPSET,
        size=f"{size:,}",
        samples=samples,
    )
    path.write_text(card, encoding="utf-8")
