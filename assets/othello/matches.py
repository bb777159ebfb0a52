"""Measure `othello.onnx` with onnxruntime in games against scripted players, and write the model card."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import onnx

from assets.measuring import open_session
from assets.othello.teacher import score_moves
from demos.othello.match import STRENGTHS, Strength
from demos.othello.rules import Position, opening, planes, squares, turned_by
from demos.othello.search import Search

Player = Callable[[Position, np.random.Generator], int]
Network = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
BATCH = 8
RANDOM_PLIES = 4  # at the start of every game, so that no two are alike
SEED = 11
REQUIRED = 0.9


@dataclass(frozen=True)
class Score:
    """Games won, drawn and lost."""

    won: int
    drawn: int
    lost: int

    @property
    def games(self) -> int:
        return self.won + self.drawn + self.lost

    @property
    def rate(self) -> float:
        """The share of points: a draw is half a win."""
        return (self.won + 0.5 * self.drawn) / self.games


def load(path: Path) -> Network:
    """The network at `path` as a function of planes (n, 3, 8, 8)."""
    session = open_session(path, threads=1)
    return lambda x: tuple(session.run(["policy", "value"], {"planes": x}))


def minimax(depth: int) -> Player:
    """The scripted player with the teacher's judgement, `depth` moves ahead; equals are drawn by lot."""

    def play(position: Position, random: np.random.Generator) -> int:
        scores = np.zeros(64, np.float32)
        score_moves(np.uint64(position.own), np.uint64(position.other), depth, scores)
        return int(random.choice(np.flatnonzero(scores >= scores.max() - 1e-3)))

    return play


def at_random(position: Position, random: np.random.Generator) -> int:
    """Any legal move."""
    return int(random.choice(squares(position.moves)))


def greedy(position: Position, random: np.random.Generator) -> int:
    """Turn over as many discs as possible."""
    own, other = position.own, position.other
    return max(squares(position.moves), key=lambda square: turned_by(own, other, square).bit_count())


def first_thought(network: Network) -> Player:
    """The likeliest move of the policy, without a search."""

    def play(position: Position, random: np.random.Generator) -> int:
        policy, _ = network(planes([position], 1))
        moves = squares(position.moves)
        return moves[int(policy[0, moves].argmax())]

    return play


def searching(network: Network, strength: Strength) -> Player:
    """The network as the demo plays it at a strength, in batches of `BATCH` leaves."""

    def play(position: Position, random: np.random.Generator) -> int:
        search = Search(position)
        while search.done < strength.simulations:
            leaves = search.gather(BATCH)
            if leaves:
                search.receive(leaves, *network(planes([node.position for _, node in leaves], BATCH)))
        return search.choose(strength.temperature, random)

    return play


def play_match(player: Player, opponent: Player, games: int, seed: int) -> Score:
    """Let two players play, black and white in turns, each pair of games from the same random opening."""
    points = []
    for game in range(games):
        random = np.random.default_rng([seed, game // 2])
        position, black = opening(), game % 2 == 0
        for _ in range(RANDOM_PLIES):
            position = position.play(at_random(position, random))
        while position.moves:
            mover = player if position.black_moves == black else opponent
            position = position.play(mover(position, random))
        lead = position.black.bit_count() - position.white.bit_count()
        points.append(np.sign(lead if black else -lead))
    return Score(points.count(1), points.count(0), points.count(-1))


OPPONENTS: dict[str, Player] = {
    "random moves": at_random,
    "greedy (most discs)": greedy,
    "minimax, 2 moves ahead": minimax(2),
    "minimax, 4 moves ahead": minimax(4),
}


def measure(path: Path, number: int) -> dict[tuple[str, str], Score]:
    """The score of one player against each opponent: 0 is the policy alone, 1 and more are the strengths."""
    network = load(path)
    name, player, games = "policy alone", first_thought(network), 200
    if number:
        strength = STRENGTHS[number - 1]
        name, player = f"{strength.name} ({strength.simulations} simulations)", searching(network, strength)
        games = min(60, max(10, 1600 // strength.simulations))
    figures = {}
    for rival, opponent in OPPONENTS.items():
        score = figures[name, rival] = play_match(player, opponent, games, SEED)
        print(f"{name} against {rival}: {score.rate:.1%} of {games} games", flush=True)
    return figures


def measure_all(path: Path) -> dict[tuple[str, str], Score]:
    """The score of the policy alone and of each strength against each opponent."""
    figures = {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        # The longest first, so that both processes end at about the same time.
        players = range(len(STRENGTHS), -1, -1)
        for found in reversed(list(pool.map(measure, repeat(path), players))):
            figures.update(found)
    return figures


CARD = """\
# othello: policy and value of an Othello position

Written by `train_othello.py` in this folder; do not edit it by hand.

Share of points (a draw is half a win), with won-drawn-lost games, half of them as black, each from an
opening of {plies} random moves:

{table}

Measured on `othello.onnx` with onnxruntime, with the demo's own rules and search, in batches of {batch}
leaves. A test repeats a part of it. The strengths differ in simulations and in how much chance there is in
the choice of a move. The minimax players judge positions as the teacher does (below), and play the last
8 moves exactly.

## Input and output

| name | type and shape | meaning |
| --- | --- | --- |
| `planes` (input) | float32 (batch, 3, 8, 8) | 1 where the mover, where the other has a disc, where to play |
| `policy` (output) | float32 (batch, 64) | one part per square; their sum is 1, illegal ones get nothing |
| `value` (output) | float32 (batch, 1) | what the mover may expect: -1 a loss, 1 a win |

Row 0 is the top of the board. There is no output for a pass: who cannot move is passed over by the rules.
`batch` is a named dynamic dimension. One file without external data, {size:,} bytes.

## Network

A convolution (3 x 3, {channels} channels), {blocks} residual blocks of two such convolutions with
batch-norm and ReLU; from there one convolution to the 64 squares and softmax (policy), and a convolution (1
x 1, 4 channels), a dense layer of 32 and one of 1 with tanh (value). {weights:,} weights.

## Data

The positions of {games:,} games (about 49 of each) that a scripted player, alpha-beta {depth} moves ahead
over mobility, corners and frontier discs, exact for the last 8 moves, plays against itself after 2 to 19
random moves (`teacher.py`, compiled with numba). The policy learns the scores of all moves, the value half
the teacher's score, half the game's end. In training every batch is turned or mirrored at random. Nothing
is downloaded.

## Make it again

From the root of the repository:

    pip install -e .[train,test]
    python -m assets.othello.train_othello

It takes about three minutes on two idle cores, a third of it for the games it is measured by, needs no
network once installed, and replaces `othello.onnx` and this file. Seeds are fixed; another machine or library
version may still differ in the last decimals.

## Use and limits

Meant for the `othello` demo. It plays well for its size and far from perfectly: it has learned from a
teacher with a simple judgement, and never from strong human games.

## Licence

Model, scripts and data are under the project's MIT licence.
"""


def _table(figures: dict[tuple[str, str], Score]) -> str:
    players = list(dict.fromkeys(player for player, _ in figures))
    rivals = list(dict.fromkeys(rival for _, rival in figures))
    rows = ["| player | " + " | ".join(rivals) + " |", "| --- |" + " --- |" * len(rivals)]
    for player in players:
        cells = []
        for rival in rivals:
            score = figures[player, rival]
            cells.append(f"{score.rate:.1%} ({score.won}-{score.drawn}-{score.lost})")
        rows.append(f"| {player} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def write_card(
    path: Path,
    figures: dict[tuple[str, str], Score],
    *,
    games: int,
    depth: int,
    channels: int,
    blocks: int,
) -> None:
    """Write the model card. Raises RuntimeError when the policy alone misses what is required of it."""
    rate = figures["policy alone", "random moves"].rate
    if rate < REQUIRED:
        raise RuntimeError(f"{rate:.1%} of points against random moves; required: {REQUIRED:.0%}")
    model = path.with_name("othello.onnx")
    weights = sum(int(np.prod(tensor.dims)) for tensor in onnx.load(model).graph.initializer)
    path.write_text(
        CARD.format(
            plies=RANDOM_PLIES, table=_table(figures), batch=BATCH, size=model.stat().st_size,
            weights=weights, games=games, depth=depth, channels=channels, blocks=blocks,
        ),
        encoding="utf-8",
    )  # fmt: skip
