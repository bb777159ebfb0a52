"""Train the networks of the `painter` demo, one a style, and write `*.onnx` and their card.

    python -m assets.painter.train_painter

from the root of the repository. It needs the extras `train` and `test` (`pip install -e .[train,test]`), no
network and no GPU; about five minutes on two cores. Seeds are fixed: on the same machine with the same
library versions the result is the same.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from assets.exporting import OPSET
from assets.painter.card import Figures, write_card
from assets.painter.painters import LATTICE, PAINTERS
from assets.painter.scenes import HEIGHT, WIDTH, pictures
from assets.pictures import decibels, export_pictures, fit, run_pictures

HERE = Path(__file__).parent
PICTURES, HELD_OUT, STEPS, BATCH, CROP = 240, 40, 800, 4, 96
PICTURES_SEED, HELD_OUT_SEED, TRAINING_SEED = 1, 2, 3


class Rise(nn.Module):
    """Twice the rows and columns, by depth to space. Its biases tell the layers after it where a pixel lies
    on the lattice, without which they could not draw dots and hatching.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(inputs, 4 * outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.pixel_shuffle(self.mix(x), 2)


def _apart(channels: int) -> nn.Module:
    """A 5 x 5 convolution of each channel by itself, and one that mixes them."""
    return nn.Sequential(
        nn.Conv2d(channels, channels, 5, padding=2, groups=channels),
        nn.Conv2d(channels, channels, 1),
        nn.ReLU(),
    )


class PainterNetwork(nn.Module):
    """(n, 3, rows, columns) from 0 to 1, in and out; rows and columns divide by 8.

    Three halvings and as many doublings; a linear layer goes past all that and begins as the picture itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.to_half = nn.Sequential(nn.Conv2d(3, 24, 6, stride=2, padding=2), nn.ReLU())
        self.to_quarter = nn.Sequential(nn.Conv2d(24, 32, 3, stride=2, padding=1), nn.ReLU(), _apart(32))
        self.to_eighth = nn.Sequential(nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.ReLU(), _apart(32))
        self.back_to_quarter, self.back_to_half = Rise(32, 32), Rise(32, 24)
        self.at_quarter = nn.Sequential(nn.ReLU(), _apart(32))
        self.at_half = nn.Sequential(nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU())
        self.paint = nn.Conv2d(24, 12, 3, padding=1)
        self.straight = nn.Conv2d(3, 12, 2, stride=2)
        with torch.no_grad():
            self.straight.weight.zero_()
            for out in range(12):
                self.straight.weight[out, out // 4, out // 2 % 2, out % 2] = 1.0

    def forward(self, picture: Tensor) -> Tensor:
        half = self.to_half(picture)
        quarter = self.to_quarter(half)
        quarter = self.at_quarter(self.back_to_quarter(self.to_eighth(quarter)) + quarter)
        half = self.at_half(self.back_to_half(quarter) + half)
        return functional.pixel_shuffle(self.paint(half) + self.straight(picture), 2)


def loss_of(painted: Tensor, wanted: Tensor) -> Tensor:
    """The mean error, and that of differences between neighbours, which keeps lines sharp."""
    across, down = painted.diff(dim=3) - wanted.diff(dim=3), painted.diff(dim=2) - wanted.diff(dim=2)
    return (painted - wanted).abs().mean() + 0.5 * (across.abs().mean() + down.abs().mean())


def train(network: PainterNetwork, given: Tensor, wanted: Tensor, steps: int) -> None:
    """Fit `network` on crops of pictures (n, 3, HEIGHT, WIDTH) and what the painter made of them."""
    rng = np.random.default_rng(TRAINING_SEED)

    def loss_of_batch() -> Tensor:
        # Crops begin on the lattice, as the painter's dots do.
        places = [
            (
                n,
                LATTICE * rng.integers((HEIGHT - CROP) // 8 + 1),
                LATTICE * rng.integers((WIDTH - CROP) // 8 + 1),
            )
            for n in rng.integers(len(given), size=BATCH)
        ]
        x, y = (
            torch.stack([many[n, :, row : row + CROP, column : column + CROP] for n, row, column in places])
            for many in (given, wanted)
        )
        return loss_of(network(x.contiguous(memory_format=torch.channels_last)), y)

    fit(network, loss_of_batch, steps, rate=4e-3, warm_up=0.15, told=lambda loss: f"loss {loss:.4f}")


def measure(path: Path, given: np.ndarray, wanted: np.ndarray) -> float:
    """The mean PSNR (dB) of what the file's network makes of pictures, against the painter's own."""
    painted = run_pictures(path, given)
    return float(np.mean([decibels(x, y) for x, y in zip(painted, wanted, strict=True)]))


def paint_all(name: str, given: Tensor) -> Tensor:
    """What the painter called `name` makes of each picture."""
    return torch.cat([PAINTERS[name](part) for part in given.split(20)])


def main() -> None:
    """Train, export and measure each style, and write the card."""
    parser = argparse.ArgumentParser(description="Train the painter's networks; write *.onnx and README.md.")
    parser.add_argument("--output", type=Path, default=HERE, help="folder (default: beside the script)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"for each style (default: {STEPS})")
    parser.add_argument(
        "--only", choices=list(PAINTERS), help="train one style, and measure the others as they are"
    )
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    # On layers this small, two threads wait for one another.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    given, kept = (
        torch.from_numpy(pictures(n, s)) for n, s in ((PICTURES, PICTURES_SEED), (HELD_OUT, HELD_OUT_SEED))
    )
    print(f"{PICTURES + HELD_OUT} pictures after {time.perf_counter() - started:.0f} s", flush=True)
    scores: dict[str, tuple[float, float]] = {}
    weights = 0
    for name in PAINTERS:
        path = arguments.output / f"{name}.onnx"
        if arguments.only in (None, name):
            torch.manual_seed(TRAINING_SEED)
            network = PainterNetwork()
            weights = sum(parameter.numel() for parameter in network.parameters())
            train(network, given, paint_all(name, given), arguments.steps)
            export_pictures(network, path, "picture", "painting", least=16, multiple=8)
        wanted = paint_all(name, kept).numpy()
        unpainted = float(
            -10.0 * torch.log10(((kept - torch.from_numpy(wanted)) ** 2).mean((1, 2, 3))).mean()
        )
        scores[name] = measure(path, kept.numpy(), wanted), unpainted
        print(f"{name}: {scores[name][0]:.2f} dB held out; {time.perf_counter() - started:.0f} s", flush=True)
    write_card(
        arguments.output / "README.md", Figures(weights, OPSET, PICTURES, HELD_OUT, arguments.steps, scores)
    )


if __name__ == "__main__":
    main()
