"""Train the network of the `gesture` demo, and write `gesture.onnx` and its model card.

    python -m assets.gesture.train_gesture

from the root of the repository. It needs the extras `train` and `test` (`pip install -e .[train,test]`), no
network and no GPU. Seeds are fixed: on the same machine with the same library versions the result is the
same.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

from assets.exporting import Probabilities, export, strip
from assets.gesture.hands import Hand
from assets.gesture.model_card import answers_of, write_card
from demos.gesture.strokes import GESTURES
from demos.gesture.trail import STEPS, features

HERE = Path(__file__).parent
HANDS, HELD_OUT_HANDS = 600, 150
STROKES, HELD_OUT_STROKES = 18_000, 3_000
CONVOLUTIONS, MEMORY = 24, 40
EPOCHS, BATCH = 8, 96
SEED = 5


class GestureNetwork(nn.Module):
    """A convolution over time and an LSTM: (n, 48, 3) -> (n, 6) logits."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(3, CONVOLUTIONS, 5, stride=2, padding=2)
        self.memory = nn.LSTM(CONVOLUTIONS, MEMORY, batch_first=True)
        self.scores = nn.Linear(MEMORY, len(GESTURES))

    def forward(self, movement: Tensor) -> Tensor:
        seen = functional.relu(self.convolution(movement.transpose(1, 2)))
        _, (last, _) = self.memory(seen.transpose(1, 2))
        return self.scores(last[-1])


def draw_many(count: int, hands: range, seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Movements (count, 48, 3) and labels (count,) drawn by `hands`, of all sizes, places and moments."""
    random = np.random.default_rng(seed)
    people = [Hand(number) for number in hands]
    movements = np.zeros((count, STEPS, 3), np.float32)
    labels = np.arange(count) % len(GESTURES)
    for row, label in enumerate(labels):
        gesture = GESTURES[label]
        stroke = people[int(random.integers(len(people)))].draw(gesture, random)
        size = random.uniform(90.0, 420.0)
        if gesture == "none" and random.random() < 0.2:
            movements[row] = _unfinished(people, random, size)
            continue
        points = stroke * (1.0, size, size)
        # As a mouse reports them: whole pixels, and not every one of them.
        points[:, 1:] = np.rint(points[:, 1:])
        points = points[:: int(random.integers(1, 3))]
        movements[row] = features(points, points[-1, 0] + random.uniform(0.0, 0.06))
    return movements, labels


def _unfinished(people: list[Hand], random: np.random.Generator, size: float) -> npt.NDArray[np.float32]:
    """The start of a circle, triangle or zigzag; a click; or a hand that rests."""
    kind = int(random.integers(4))
    if kind == 3:
        points = np.column_stack((np.linspace(0.0, 0.3, 12), np.rint(random.normal(0.0, 2.0, (12, 2)))))
        return features(points[: int(random.integers(1, 13))], 0.3)
    gesture, least, most = (("circle", 0.3, 0.6), ("triangle", 0.5, 0.66), ("zigzag", 0.42, 0.5))[kind]
    stroke = people[int(random.integers(len(people)))].draw(gesture, random) * (1.0, size, size)
    part = stroke[: max(int(len(stroke) * random.uniform(least, most)), 3)]
    return features(part, part[-1, 0])


def train(network: GestureNetwork, movements: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> None:
    """Fit `network`, printing the loss of each epoch."""
    generator = torch.Generator().manual_seed(SEED)
    inputs, targets = torch.from_numpy(movements), torch.from_numpy(labels)
    steps = len(targets) // BATCH
    optimiser = torch.optim.AdamW(network.parameters(), lr=5e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=5e-3, total_steps=EPOCHS * steps)
    network.train()
    for epoch in range(EPOCHS):
        order = torch.randperm(len(targets), generator=generator)
        total = 0.0
        for rows in order[: steps * BATCH].split(BATCH):
            loss = functional.cross_entropy(network(inputs[rows]), targets[rows], label_smoothing=0.02)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {total / steps:.4f}", flush=True)
    network.eval()


def begin_with_nothing(path: Path) -> None:
    """Leave out the LSTM's first state, which is what ONNX takes by default: zeros, made by 15 layers."""
    model = onnx.load(path)
    (lstm,) = [node for node in model.graph.node if node.op_type == "LSTM"]
    del lstm.input[4:]
    strip(model, path.stem)
    onnx.checker.check_model(model, full_check=True)
    onnx.save_model(model, path)


def main() -> None:
    """Train, export, measure the exported file and write the card."""
    parser = argparse.ArgumentParser(
        description="Train the gesture network; write gesture.onnx and README.md."
    )
    parser.add_argument("--output", type=Path, default=HERE, help="folder (default: beside the script)")
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)

    movements, labels = draw_many(STROKES, range(HANDS), SEED)
    print(f"{len(labels)} strokes after {time.perf_counter() - started:.0f} s", flush=True)
    network = GestureNetwork()
    train(network, movements, labels)
    path = folder / "gesture.onnx"
    export(Probabilities(network), (torch.zeros(2, STEPS, 3),), path, ["movement"], ["probabilities"])
    begin_with_nothing(path)
    weights = sum(parameter.numel() for parameter in network.parameters())
    held_out, truth = draw_many(HELD_OUT_STROKES, range(HANDS, HANDS + HELD_OUT_HANDS), SEED + 1)
    answers = answers_of(path, held_out)
    write_card(
        folder / "README.md", truth, answers, weights=weights, strokes=STROKES, hands=HANDS,
        held_out_hands=HELD_OUT_HANDS, convolutions=CONVOLUTIONS, memory=MEMORY,
    )  # fmt: skip
    print(f"held out {float((answers == truth).mean()):.2%}, {time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
