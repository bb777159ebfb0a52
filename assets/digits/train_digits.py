"""Train the network of the `digits` demo, and write `digits.onnx` and its model card.

    python -m assets.digits.train_digits

from the root of the repository. It needs the extras `train` and `test` (`pip install -e .[train,test]`), no
network and no GPU; about two minutes on two cores. Seeds are fixed: on the same machine with the same library
versions the result is the same.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from assets.digits.data import Labels, Pictures, load_real_digits
from assets.digits.drawings import draw_many
from assets.digits.model_card import Figures, measure, read_with, write_card
from assets.exporting import OPSET, Probabilities, export

HERE = Path(__file__).parent
DRAWINGS = 14_000
HELD_OUT_DRAWINGS = 2_000
REAL_COPIES = 6  # each real digit is seen this often per epoch, differently distorted each time
EPOCHS = 9
BATCH = 128
TRAINING_SEED, DRAWINGS_SEED, HELD_OUT_DRAWINGS_SEED = 2, 3, 4


class DigitNetwork(nn.Module):
    """Three convolutions and two dense layers: (n, 1, 28, 28) from 0 to 1 -> (n, 10) logits."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(*self._block(1, 16), *self._block(16, 32), *self._block(32, 64))
        self.hidden = nn.Linear(64 * 3 * 3, 64)
        self.scores = nn.Linear(64, 10)

    @staticmethod
    def _block(inputs: int, outputs: int) -> list[nn.Module]:
        # The bias does nothing before a batch-norm; without it the exporter adds layers that make a zero one.
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    def forward(self, image: Tensor) -> Tensor:
        features = self.features(image).reshape(-1, 64 * 3 * 3)
        hidden = functional.dropout(functional.relu(self.hidden(features)), 0.3, self.training)
        return self.scores(hidden)


def distort(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Turn, slant, stretch, move and bend each picture, change its contrast: (n, 1, 28, 28) in and out."""
    n = pictures.shape[0]

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator)

    angle = uniform(-0.2, 0.2, n)
    stretch_x, stretch_y, slant = uniform(0.88, 1.14, n), uniform(0.88, 1.14, n), uniform(-0.2, 0.2, n)
    cos, sin = torch.cos(angle), torch.sin(angle)
    matrix = torch.stack(
        [
            torch.stack([cos * stretch_x, -sin + slant, uniform(-0.1, 0.1, n)], dim=1),
            torch.stack([sin, cos * stretch_y, uniform(-0.1, 0.1, n)], dim=1),
        ],
        dim=1,
    )
    grid = functional.affine_grid(matrix, list(pictures.shape), align_corners=False)
    # A coarse random field, smoothly enlarged, moves ink by up to about 1.5 pixels.
    coarse = torch.randn(n, 2, 5, 5, generator=generator) * uniform(0.0, 0.06, n, 1, 1, 1)
    field = functional.interpolate(coarse, size=pictures.shape[2:], mode="bicubic", align_corners=False)
    moved = functional.grid_sample(pictures, grid + field.permute(0, 2, 3, 1), align_corners=False)
    # The real digits are soft, the drawn ones sharp: gain and threshold move each towards the other.
    gain, threshold = uniform(0.8, 2.2, n, 1, 1, 1), uniform(-0.05, 0.25, n, 1, 1, 1)
    return ((moved - threshold) * gain).clamp(0.0, 1.0)


def train(network: DigitNetwork, pictures: Pictures, labels: Labels, seed: int) -> None:
    """Fit `network` to pictures (n, 1, 28, 28) and labels (n,), printing the loss of each epoch."""
    generator = torch.Generator().manual_seed(seed)
    inputs, targets = torch.from_numpy(pictures), torch.from_numpy(labels)
    steps = EPOCHS * (len(targets) // BATCH)
    optimiser = torch.optim.AdamW(network.parameters(), lr=4e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=4e-3, total_steps=steps)
    network.train()
    for epoch in range(EPOCHS):
        order = torch.randperm(len(targets), generator=generator)
        total = 0.0
        batches = order[: len(order) // BATCH * BATCH].split(BATCH)
        for batch in batches:
            logits = network(distort(inputs[batch], generator))
            loss = functional.cross_entropy(logits, targets[batch], label_smoothing=0.02)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {total / len(batches):.4f}", flush=True)
    network.eval()


def main() -> None:
    """Train, export, measure the exported file and write the card."""
    parser = argparse.ArgumentParser(description="Train the digits network; write digits.onnx and README.md.")
    parser.add_argument("--output", type=Path, default=HERE, help="folder (default: beside the script)")
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    torch.set_num_threads(2)
    torch.manual_seed(TRAINING_SEED)
    torch.use_deterministic_algorithms(True)

    real = load_real_digits()
    drawn, drawn_labels = draw_many(DRAWINGS, DRAWINGS_SEED)
    print(f"{DRAWINGS} drawings made after {time.perf_counter() - started:.0f} s", flush=True)
    pictures = np.concatenate([drawn, *[real.train[0]] * REAL_COPIES])
    labels = np.concatenate([drawn_labels, *[real.train[1]] * REAL_COPIES])
    network = DigitNetwork()
    train(network, pictures, labels, TRAINING_SEED)

    path = folder / "digits.onnx"
    export(Probabilities(network), (torch.zeros(2, 1, 28, 28),), path, ["image"], ["probabilities"])
    weights = sum(parameter.numel() for parameter in network.parameters())
    validation = measure(read_with(path, real.validation[0]), real.validation[1])
    print(f"{weights} weights; validation {validation:.2%}")
    kept_drawings, kept_labels = draw_many(HELD_OUT_DRAWINGS, HELD_OUT_DRAWINGS_SEED)
    figures = Figures(
        weights=weights,
        opset=OPSET,
        real_counts=(len(real.train[1]), len(real.validation[1]), len(real.held_out[1])),
        drawing_counts=(DRAWINGS, HELD_OUT_DRAWINGS),
        real_labels=real.held_out[1],
        real_answers=read_with(path, real.held_out[0]),
        drawing_labels=kept_labels,
        drawing_answers=read_with(path, kept_drawings),
    )
    write_card(folder / "README.md", figures)
    print(
        f"held-out real digits {measure(figures.real_answers, figures.real_labels):.2%}, "
        f"held-out drawings {measure(figures.drawing_answers, figures.drawing_labels):.2%}, "
        f"{time.perf_counter() - started:.0f} s in all"
    )


if __name__ == "__main__":
    main()
