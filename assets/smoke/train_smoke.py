"""Train the pressure network of the `smoke` demo, and write `smoke.onnx` and its model card.

    python -m assets.smoke.train_smoke

from the root of the repository. It needs the extras `train` and `test` (`pip install -e .[train,test]`), no
network and no GPU; about two minutes on one core. There are no solutions to learn from: fluids flow, the
network gives the pressure, and the loss is the divergence that this pressure leaves.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from assets.exporting import export
from assets.smoke.model_card import write_card
from assets.smoke.pool import Pool, stacked
from demos.smoke.fluid import COLUMNS, ROWS

HERE = Path(__file__).parent
STEPS = 1100
POOL, BATCH = 48, 6
RATE = 3e-3
SEED = 1

CROSS = torch.tensor([[[[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]]])


def beside(field: Tensor) -> Tensor:
    """The sum over the four neighbours, (n, 1, h, w); 0 outside."""
    return functional.conv2d(field, CROSS, padding=1)


class Level(nn.Module):
    """One size of picture: a look around, what the next smaller size says, and another look around."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        here, *smaller = widths
        self.before = nn.Conv2d(here, here, 3, padding=1)
        self.after = nn.Conv2d(here, here, 3, padding=1)
        self.inner: Level | None = None
        if smaller:
            self.down = nn.Conv2d(here, smaller[0], 2, stride=2)
            self.up = nn.ConvTranspose2d(smaller[0], here, 2, stride=2)
            self.inner = Level(smaller)

    def forward(self, x: Tensor) -> Tensor:
        x = x + functional.relu(self.before(x))
        if self.inner is not None:
            x = x + self.up(self.inner(functional.relu(self.down(x))))
        return x + functional.relu(self.after(x))


class Cycle(nn.Module):
    """A first guess of the pressure for a divergence of size 1, (n, 1, h, w), by a U-net on 2 x 2 cells."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, 16, 3, padding=1)
        self.levels = Level([16, 20, 24, 28])
        self.last = nn.Conv2d(16, 4, 3, padding=1)
        with torch.no_grad():
            self.last.weight *= 0.1

    def forward(self, source: Tensor, solid: Tensor) -> Tensor:
        packed = functional.pixel_unshuffle(torch.cat((source, solid), dim=1), 2)
        return functional.pixel_shuffle(self.last(self.levels(functional.relu(self.first(packed)))), 2)


class PressureNetwork(nn.Module):
    """divergence and solid (n, 1, h, w) -> pressure (n, 1, h, w), in two rounds of the same network.

    The second round sees the divergence that the first one leaves, brought to size 1 again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cycle = Cycle()

    def forward(self, divergence: Tensor, solid: Tensor) -> Tensor:
        return self.rounds(divergence, solid)[-1]

    def rounds(self, divergence: Tensor, solid: Tensor) -> list[Tensor]:
        fluid = 1.0 - solid
        degree = 4.0 - beside(solid)
        pressure = torch.zeros_like(divergence)
        left, found = divergence, []
        for _ in range(2):
            size = (left * left).mean(dim=(2, 3), keepdim=True).sqrt() + 1e-6
            pressure = pressure + self.cycle(left / size, solid) * size * fluid
            left = (divergence + degree * pressure - beside(pressure)) * fluid
            found.append(pressure)
        return found


def remaining(divergence: Tensor, solid: Tensor, pressure: Tensor) -> Tensor:
    """The divergence that a pressure leaves, (n, 1, h, w)."""
    return (divergence + (4.0 - beside(solid)) * pressure - beside(pressure)) * (1.0 - solid)


def loss_of(divergence: Tensor, solid: Tensor, pressure: Tensor) -> Tensor:
    """The divergence left, relative to what there was, near and far: also of blocks of 2, 4, ... 16 cells.

    Without the blocks, wide errors hardly count: their divergence is small, the flow they spoil is not.
    """
    left = remaining(divergence, solid, pressure)
    size = (divergence * divergence).mean(dim=(1, 2, 3), keepdim=True) + 1e-10
    total = (left * left / size).mean(dim=(1, 2, 3))
    for level in range(1, 5):
        left = functional.avg_pool2d(left, 2)
        total = total + 3.0**level * (left * left / size).mean(dim=(1, 2, 3))
    return (total + 1e-4).log().mean()


def train(network: PressureNetwork, steps: int) -> None:
    """Let fluids flow and the network learn from the divergence that it leaves."""
    pool = Pool(SEED, POOL)
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=RATE, total_steps=steps, pct_start=0.1)
    total = 0.0
    for step in range(steps):
        fluids = pool.step(BATCH)
        divergence, solid = (torch.from_numpy(array) for array in stacked(fluids))
        first, second = network.rounds(divergence, solid)
        loss = loss_of(divergence, solid, second) + 0.3 * loss_of(divergence, solid, first)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        for fluid, pressure in zip(fluids, second.detach().numpy(), strict=True):
            fluid.project(pressure)
        left = remaining(divergence, solid, second.detach())
        total += float((left.square().mean() / divergence.square().mean()).sqrt())
        if (step + 1) % 100 == 0:
            print(f"step {step + 1} of {steps}: {total / 100:.2%} of the divergence is left", flush=True)
            total = 0.0


def main() -> None:
    """Train, export, measure the exported file and write the card."""
    parser = argparse.ArgumentParser(
        description="Train the pressure network; write smoke.onnx and README.md."
    )
    parser.add_argument("--output", type=Path, default=HERE, help="folder (default: beside the script)")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--card", action="store_true", help="measure the model that is there; do not train")
    arguments = parser.parse_args()
    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.card:
        print(write_card(folder))
        return
    started = time.perf_counter()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    network = PressureNetwork()
    weights = sum(parameter.numel() for parameter in network.parameters())
    print(f"{weights} weights", flush=True)
    train(network, arguments.steps)
    example = torch.zeros(2, 1, ROWS, COLUMNS), torch.zeros(2, 1, ROWS, COLUMNS)
    export(network, example, folder / "smoke.onnx", ["divergence", "solid"], ["pressure"])
    print(write_card(folder))
    print(f"{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
