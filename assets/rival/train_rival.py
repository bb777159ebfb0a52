"""Train the network of the `rival` demo by self-play; write `rival.onnx`, `rival.npy` and the model card.

    python -m assets.rival.train_rival

from the root of the repository; about a minute on one core. It needs nothing but gameglue (the card needs
the extra `test`), and learns as the game goes on doing, by `gameglue.EvolutionStrategy`. Seeds are fixed: on
the same machine with the same library versions the result is the same.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from assets.rival.model_card import measure_all, write_card
from demos.rival.court import Floats
from demos.rival.school import NETWORK, live
from gameglue import EvolutionStrategy

HERE = Path(__file__).parent
SEED = 11
GENERATIONS, STEPS, RATE = 400, 300, 0.03
STUDENT = 10  # the generation of the middle strength, which has much to learn from its player
MEMORY = 60  # how many of its former selves it plays against


def train(generations: int) -> Floats:
    """Play against former selves; returns the three strengths, (3, COUNT)."""
    random = np.random.default_rng(SEED)
    evolution = EvolutionStrategy(NETWORK.init_weights(random), random, pairs=24, rate=RATE)
    former = [evolution.weights]
    strengths = [evolution.weights]
    for turn in range(1, generations + 1):
        recent = former[-MEMORY:]
        chosen = [recent[i] for i in random.integers(len(recent), size=6)]
        *_, points = live(evolution, np.stack([evolution.weights, evolution.weights, *chosen]), STEPS)
        evolution.rate = RATE * (1.0 - 0.9 * turn / generations)
        if turn % 5 == 0:
            former.append(evolution.weights)
        if turn == STUDENT:
            strengths.append(evolution.weights)
        if turn % 50 == 0:
            won, lost = points[:, 2:].sum(axis=1).astype(int)
            print(f"generation {turn} of {generations}: {won} to {lost} against former selves", flush=True)
    strengths.append(evolution.weights)
    return np.stack(strengths)


def main() -> None:
    """Train, export, measure and write the card."""
    parser = argparse.ArgumentParser(
        description="Train the rival; write rival.onnx, rival.npy and README.md."
    )
    parser.add_argument("--output", type=Path, default=HERE, help="folder (default: beside the script)")
    parser.add_argument("--generations", type=int, default=GENERATIONS, help="fewer for a quick try")
    arguments = parser.parse_args()
    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    strengths = train(arguments.generations).astype(np.float32)
    np.save(folder / "rival.npy", strengths)
    (folder / "rival.onnx").write_bytes(NETWORK.to_onnx("rival", input_name="senses", output_name="move"))
    duels, lessons = measure_all(folder / "rival.onnx", strengths)
    for line in (*duels, *lessons):
        print(*line)
    write_card(folder / "README.md", duels, lessons, NETWORK.count, STUDENT, arguments.generations)
    print(f"{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
