"""Measure `swarm.onnx` with onnxruntime, and write the model card: no figure in it is typed by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from assets.swarm import reward as rules
from assets.swarm.reward import OTHERS_AHEAD, reward
from demos.swarm.world import SENSES, Floats, Sea

DT = 1 / 30
FISH, SECONDS, SEEDS = 1024, 30, range(101, 113)
SCARE = 0.35  # how near a shark must be for the rules to flee, from 0 (at the edge of sight) to 1
SHARK_NEAR = 11  # which of the senses tells how near a shark is
Steering = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Score:
    """How fish fared: reward a second, share of appetite that was stilled, how far they swim as their
    neighbours do (-1 to 1), how much denser than evenly spread they are, deaths of 100 fish a minute.
    """

    reward: float
    eaten: float
    aligned: float
    crowd: float
    deaths: float

    def __str__(self) -> str:
        together = f"aligned {self.aligned:.2f}, {self.crowd:.1f} times as dense as evenly spread"
        fared = f"reward {self.reward:.3f}, fed {self.eaten:.0%}"
        return f"{fared}, {together}, caught {self.deaths:.1f} of 100 a minute"


def network(path: Path) -> Steering:
    """What the network does, by onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # so small a network is slower on several
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda senses: np.asarray(session.run(None, {"senses": senses})[0], np.float32)


def scripted(senses: Floats, scare: float = SCARE) -> Floats:
    """Rules by hand: away from a shark that is near, else up the scent, aside where it is crowded. `scare` is
    how near it must be, as the sense `SHARK_NEAR` tells it.
    """
    ahead, left = (senses[:, i] - 0.3 * senses[:, i + 1] for i in (0, 4))
    flees = senses[:, SHARK_NEAR] > scare
    ahead, left = np.where(flees, -senses[:, 3], ahead), np.where(flees, -senses[:, 7], left)
    turn = np.clip(np.arctan2(left, ahead) * 1.5, -1.0, 1.0)
    push = np.where(flees, 1.0, np.where(senses[:, 8] > 0.2, -0.8, 0.3))
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
    fared, before = [], 0
    for i in range(int((settling + seconds) / DT)):
        senses = sea.observe()
        is_caught = sea.step(steering(senses), DT)
        if i == int(settling / DT):
            before = sea.caught
        if i >= int(settling / DT):
            pleasure = float(reward(sea, senses, is_caught, DT).mean()) / DT
            crowd = float(sea.crowd.ravel()[sea.cells].mean())
            fared.append((pleasure, float(sea.eating.mean()), float(senses[:, OTHERS_AHEAD].mean()), crowd))
    deaths = (sea.caught - before) / fish * 100 * 60 / seconds
    pleasure, eaten, aligned, crowd = np.mean(fared, axis=0).tolist()
    return Score(pleasure, eaten, aligned, crowd, deaths)


def mean_score(scores: Iterable[Score]) -> Score:
    """Of several seas."""
    return Score(*np.mean([astuple(score) for score in scores], axis=0).tolist())


def measure_all(path: Path) -> dict[str, Score]:
    """The network beside the rules and chance, each in the same seas."""
    policies: dict[str, Callable[[int], Steering]] = {
        "network": lambda _: network(path),
        "scripted": lambda _: scripted,
        "random": at_random,
    }
    scores = {}
    for name, make in policies.items():
        scores[name] = mean_score(measure(make(seed), seed) for seed in SEEDS)
    return scores


CARD = """\
# swarm: steers a fish among thousands

Written by `train_swarm.py` in this folder; do not edit it by hand.

| policy | reward a second | fed | aligned | crowd | caught, of 100 fish a minute |
| --- | --- | --- | --- | --- | --- |
{rows}

Measured on `swarm.onnx` with onnxruntime: {fish} fish, {seas} seas of {seconds} seconds after ten in which
the sea settles, seeds that training did not use. "Fed" is the share of its appetite that a fish stills;
"aligned" is how far its neighbours swim the same way (1 would be all of them, at full speed); "crowd" is how
much denser it is around a fish than if they were spread evenly. The scripted policy flees from a shark that
is near, climbs the scent of food and leaves crowds (`scripted` in `model_card.py`). A test repeats the
measurement, shorter.

## Input and output

| name | type and shape | meaning |
| --- | --- | --- |
| `senses` (input) | float32 (batch, {senses}) | see `Sea.observe` in `demos/swarm/world.py` |
| `steering` (output) | float32 (batch, 2) | from -1 to 1: turn (left is positive), slow down or speed up |

`batch` is a named dynamic dimension: the number of fish. One file, opset {opset}, {size:,} bytes.

## Network

Two dense layers of {hidden} with ReLU, and one of 2 with tanh.

## Training

{samples:,} steps of single fish; there are no data. In the first {school:.0%} of the rounds the network
learns to do what the scripted policy would, wherever it gets itself; these rules flee from a shark that is
as close as {timid:g} (from 0 at the edge of sight to 1), those of the table at {scare:g}. Moments with a
shark near count more. Then proximal policy optimisation goes on from there, and the network is kept that
fares best in trials in seas apart from these.
Each fish is rewarded for eating ({rules.EATING:g} a second at most) and for swimming as its neighbours do
({rules.ALIGNED:g}), and pays for effort ({rules.EFFORT:g} at full speed), for crowds, for a shark's nearness
({rules.FEAR:g} at most) and for being caught ({rules.CAUGHT:g}), see `reward.py`. Seas begin anew every
{life:.0f} seconds, because in a young one, with fish everywhere, sharks are the hardest to get away from.

    pip install -e .[train,test]
    python -m assets.swarm.train_swarm

About {minutes:.0f} minutes on one core, no network, no GPU. Seeds are fixed; another machine or library
version may differ in the last decimals.

## Use and limits

Meant for the `swarm` demo. It knows nothing but what one fish senses; whatever shoals do together comes of
that.

## Licence

The model and its scripts are under the project's MIT licence.
"""


def write_card(path: Path, scores: dict[str, Score], **facts: float) -> None:
    """Write the card.

    facts: `size` of the file in bytes and its `opset`; how many are `hidden` in a layer; `samples` of
    training, the share of them that was `school`, how `timid` its rules were, the `life` of a sea in seconds,
    and the `minutes` that all of it took.
    """
    rows = "\n".join(
        f"| {name} | {score.reward:.3f} | {score.eaten:.0%} | {score.aligned:.2f} | {score.crowd:.1f} "
        f"| {score.deaths:.1f} |"
        for name, score in scores.items()
    )
    card = CARD.format(
        rows=rows,
        fish=f"{FISH:,}",
        seas=len(SEEDS),
        seconds=SECONDS,
        senses=SENSES,
        rules=rules,
        scare=SCARE,
        **facts,
    )
    path.write_text(card, encoding="utf-8")
