"""Train the network of the `rival` demo by self-play; write `rival.onnx`, `rival.npy` and the model card.

    python -m assets.rival.train_rival

from the root of the repository; about a minute on one core. It needs nothing but NumPy and onnx (the card
needs the extra `test`), and learns by `demos.rival.brain.Evolution`, as the game goes on doing. Seeds are
fixed: on the same machine with the same library versions the result is the same.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import onnx

from assets.rival.model_card import OPSET, measure_all, write_card
from demos.rival.brain import COUNT, SHAPES, Evolution, newborn
from demos.rival.court import SENSES, Floats

HERE = Path(__file__).parent
SEED = 11
GENERATIONS, STEPS, RATE = 400, 300, 0.03
STUDENT = 10  # the generation of the middle strength, which has much to learn from its player
MEMORY = 60  # how many of its former selves it plays against


def train(generations: int) -> Floats:
    """Play against former selves; returns the three strengths, (3, COUNT)."""
    random = np.random.default_rng(SEED)
    evolution = Evolution(newborn(random), random, pairs=24, rate=RATE)
    former = [evolution.weights]
    strengths = [evolution.weights]
    for turn in range(1, generations + 1):
        recent = former[-MEMORY:]
        chosen = [recent[i] for i in random.integers(len(recent), size=6)]
        for _ in evolution.live(np.stack([evolution.weights, evolution.weights, *chosen]), STEPS):
            pass
        evolution.adam.rate = RATE * (1.0 - 0.9 * turn / generations)
        if turn % 5 == 0:
            former.append(evolution.weights)
        if turn == STUDENT:
            strengths.append(evolution.weights)
        if turn % 50 == 0:
            won, lost = evolution.points[:, 2:].sum(axis=1).astype(int)
            print(f"generation {turn} of {generations}: {won} to {lost} against former selves", flush=True)
    strengths.append(evolution.weights)
    return np.stack(strengths)


def export(path: Path) -> None:
    """Write the network, whose weights are inputs, as ONNX."""
    nodes, value = [], "senses"
    for i in (1, 2, 3):
        names = [value, f"weight_{i}", f"bias_{i}"]
        nodes.append(onnx.helper.make_node("Gemm", names, [f"sum_{i}"], f"layer_{i}"))
        value = "move" if i == 3 else f"hidden_{i}"
        nodes.append(onnx.helper.make_node("Tanh", [f"sum_{i}"], [value], f"tanh_{i}"))

    def kind(name: str, shape: tuple[int | str, ...]) -> onnx.ValueInfoProto:
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    inputs = [kind("senses", ("batch", SENSES)), *(kind(name, shape) for name, shape in SHAPES.items())]
    graph = onnx.helper.make_graph(nodes, "rival", inputs, [kind("move", ("batch", 1))])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    onnx.save_model(model, path)


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
    export(folder / "rival.onnx")
    duels, lessons = measure_all(folder / "rival.onnx", strengths)
    for line in (*duels, *lessons):
        print(*line)
    write_card(folder / "README.md", duels, lessons, COUNT, STUDENT, arguments.generations)
    print(f"{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
