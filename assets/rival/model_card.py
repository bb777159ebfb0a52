"""Measure the rival with onnxruntime, and write its model card: no figure in it is typed by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np

from assets.measuring import open_session
from demos.rival.court import DT, Court, Floats
from demos.rival.school import NETWORK, live
from gameglue import EvolutionStrategy

STRENGTHS = ("init_weights", "student", "champion")
Player = Callable[[Floats], Floats]


def network(path: Path, weights: Floats) -> Player:
    """The network with some weights, by onnxruntime."""
    session = open_session(path, threads=1)  # so small a network is slower on several
    inputs = NETWORK.inputs(weights)
    return lambda senses: session.run(None, {"senses": senses.astype(np.float32), **inputs})[0][:, 0]


def follower(senses: Floats) -> Floats:
    """Keeps its paddle at the ball's height."""
    return np.asarray(np.clip(senses[:, 1] * 8, -1.0, 1.0))


def foreteller(senses: Floats) -> Floats:
    """Goes to where the ball will arrive, and to the middle meanwhile: it misses only what is too far."""
    return np.asarray(np.clip(np.where(senses[:, 5] > 0.0, senses[:, 4] * 4, -senses[:, 6] * 4), -1.0, 1.0))


def at_random(seed: int) -> Player:
    """Moves anyhow."""
    random = np.random.default_rng(seed)
    return lambda senses: random.uniform(-1.0, 1.0, len(senses))


def duel(left: Player, right: Player, seed: int, games: int = 100, seconds: float = 60.0) -> tuple[int, int]:
    """Points that `right` won and lost in so many games; decisions come a step late, as in the game."""
    court = Court(games, np.random.default_rng(seed))
    moves: Floats = np.zeros((games, 2))
    won = lost = 0
    for _ in range(int(seconds / DT)):
        decided = np.stack((left(court.senses(0)), right(court.senses(1))), axis=1)
        points = court.step(moves, DT)
        moves = decided
        won, lost = won + int((points > 0).sum()), lost + int((points < 0).sum())
    return won, lost


def lesson(
    path: Path, student: Floats, player: Player, seed: int, generations: int = 40
) -> tuple[float, float]:
    """What the game does with a player: imitate a minute of play, then learn against the imitation.

    Returns the share of points that the student won before and after, against the player itself.
    """
    random = np.random.default_rng(seed)
    court, rival = Court(1, random), network(path, student)
    moves: Floats = np.zeros((1, 2))
    seen, done = [], []
    for _ in range(int(60.0 / DT)):
        senses = court.senses(0)
        decided = np.stack((player(senses), rival(court.senses(1))), axis=1)
        court.step(moves, DT)
        seen.append(senses[0])
        done.append(decided[0, :1])
        moves = decided
    fits = NETWORK.fit(NETWORK.init_weights(random), np.array(seen), np.array(done), random)
    double = next(islice(fits, 600, None))
    evolution = EvolutionStrategy(student, random)
    for _ in range(generations):
        for _ in live(evolution, np.stack([double] * 6 + [student] * 2), 240):
            pass
    return share(duel(player, rival, seed)), share(duel(player, network(path, evolution.weights), seed))


def share(points: tuple[int, int]) -> float:
    """Of the points, those that were won."""
    return points[0] / max(sum(points), 1)


def measure_all(
    path: Path, strengths: Floats
) -> tuple[list[tuple[str, str, int, int]], list[tuple[str, Floats]]]:
    """Duels of each strength with each bot, and what lessons against the bots do for the student."""
    bots: dict[str, Player] = {"follower": follower, "foreteller": foreteller, "random": at_random(7)}
    duels = [
        (name, bot, *duel(bots[bot], network(path, weights), 100))
        for name, weights in zip(STRENGTHS, strengths, strict=True)
        for bot in bots
    ]
    student = network(path, strengths[1])
    duels.append(("champion", "student", *duel(student, network(path, strengths[2]), 100)))
    lessons = []
    for bot in ("follower", "foreteller"):
        each = [lesson(path, strengths[1].astype(np.float64), bots[bot], seed) for seed in (1, 2, 3)]
        lessons.append((bot, np.mean(each, axis=0)))
    return duels, lessons


CARD = """\
# rival: plays a duel with paddles, and goes on learning

Written by `train_rival.py` in this folder; do not edit it by hand.

| rival | against | points won | points lost | won |
| --- | --- | --- | --- | --- |
{duels}

Each row is 100 games of a minute, with `rival.onnx` run by onnxruntime and seeds that training did not use.
The *follower* keeps its paddle at the ball's height; the *foreteller* knows where the ball will arrive, and
misses only what it cannot reach; *random* moves anyhow. A test repeats the first ones, shorter.

What it learns while it is played: the student meets a bot for a minute, fits a network to what the bot did
(its "double"), and lives 40 generations against the double, about a minute of the game. Mean of three:

| student against | share of points before | after |
| --- | --- | --- |
{lessons}

## Files

`rival.onnx` is the network *without* weights: they are inputs, so that other weights are as cheap as
another question. `rival.npy`, float32 (3, {count}), holds three sets of them: newborn, student (generation
{student}) and champion (generation {generations}).

| name | type and shape | meaning |
| --- | --- | --- |
| `senses` (input) | float32 (batch, 8) | what a side sees, see `Court.senses` in `demos/rival/court.py` |
| `weight_1`, `bias_1`, ... (inputs) | float32 (8, 16), (16), (16, 16), (16), (16, 1), (1) | the weights |
| `move` (output) | float32 (batch, 1) | from -1 to 1: how fast the paddle moves |

## Network

Two dense layers of 16 and one of 1, all with tanh: {count} weights.

## Training

Evolution strategies with antithetic pairs, ranked fitness and Adam (`gameglue.EvolutionStrategy`, with
`live` in `demos/rival/school.py`; NumPy alone), by self-play: 49 variants, each against itself and six
former selves for ten seconds a generation. There are no data.

    pip install -e .[train,test]
    python -m assets.rival.train_rival

About a minute on one core. Seeds are fixed; another machine or library version may differ in the last
decimals.

## Use and limits

Meant for the `rival` demo. It knows this court only. What it learns from a player is gone when the game ends.

## Licence

The model and its scripts are under the project's MIT licence.
"""


def write_card(
    path: Path,
    duels: list[tuple[str, str, int, int]],
    lessons: list[tuple[str, Floats]],
    count: int,
    student: int,
    generations: int,
) -> None:
    """Write the card."""
    rows = "\n".join(
        f"| {a} | {b} | {won:,} | {lost:,} | {share((won, lost)):.0%} |" for a, b, won, lost in duels
    )
    taught = "\n".join(f"| {bot} | {before:.0%} | {after:.0%} |" for bot, (before, after) in lessons)
    card = CARD.format(duels=rows, lessons=taught, count=count, student=student, generations=generations)
    path.write_text(card, encoding="utf-8")
