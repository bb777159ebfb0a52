"""Train the network of the `othello` demo, and write `othello.onnx` and its model card.

    python -m assets.othello.train_othello

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
import torch
from torch import Tensor, nn
from torch.nn import functional

from assets.exporting import export
from assets.othello.matches import measure_all, write_card
from assets.othello.teacher import play_games

HERE = Path(__file__).parent
GAMES, DEPTH, WARMTH = 2_000, 4, 60.0
EPOCHS = 3
TEMPERATURE = 90.0  # how much worse a move's score is when the policy gives it 1/e of the best one's part
VALUE_SCALE = 1_500.0  # the teacher's score at which the network is to be fairly sure of winning
CHANNELS, BLOCKS = 32, 3
BATCH = 256
SEED = 7


class Block(nn.Module):
    """Two convolutions around which the input is carried on."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(x + self.second_norm(self.second(inner)))


class OthelloNetwork(nn.Module):
    """(n, 3, 8, 8) planes -> policy (n, 64) over the legal squares, and value (n, 1) from -1 to 1."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, CHANNELS, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(CHANNELS)
        self.blocks = nn.Sequential(*[Block(CHANNELS) for _ in range(BLOCKS)])
        self.squares = nn.Conv2d(CHANNELS, 1, 3, padding=1)
        self.judge = nn.Conv2d(CHANNELS, 4, 1)
        self.hidden = nn.Linear(4 * 64, 32)
        self.verdict = nn.Linear(32, 1)

    def scores(self, planes: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (n, 64), about -30 where a move is illegal, and values (n, 1)."""
        features = self.blocks(functional.relu(self.stem_norm(self.stem(planes))))
        illegal = (planes[:, 2:3] - 1.0) * 30.0
        logits = (self.squares(features) + illegal).reshape(-1, 64)
        hidden = functional.relu(self.hidden(functional.relu(self.judge(features)).reshape(-1, 256)))
        return logits, torch.tanh(self.verdict(hidden))

    def forward(self, planes: Tensor) -> tuple[Tensor, Tensor]:
        logits, value = self.scores(planes)
        return torch.softmax(logits, dim=1), value


class Positions:
    """What is learned: planes, policies and values of many positions, and their mirror images."""

    def __init__(
        self, boards: npt.NDArray[np.uint64], scores: npt.NDArray[np.float32], won_by: npt.NDArray[np.float32]
    ) -> None:
        """boards: (n, 2) sets; scores: (n, 64), -inf where illegal; won_by: (n,) discs."""
        bits = np.unpackbits(boards.view(np.uint8).reshape(-1, 16), axis=1, bitorder="little")
        self.discs = torch.from_numpy(bits.reshape(-1, 2, 64))
        moves = torch.from_numpy(scores)
        self.legal = torch.isfinite(moves).to(torch.uint8)
        self.policy = torch.softmax(moves / TEMPERATURE, dim=1)
        best = moves.max(dim=1).values
        # Half what the teacher sees, which has little noise; half how the game ended, which sees further.
        self.value = 0.5 * torch.tanh(best / VALUE_SCALE) + 0.5 * torch.tanh(torch.from_numpy(won_by) / 12.0)
        grid = torch.arange(64).reshape(8, 8)
        turns = [torch.rot90(grid, k) for k in range(4)]
        self.symmetries = [g.reshape(-1) for turn in turns for g in (turn, turn.flip(0))]

    def __len__(self) -> int:
        return len(self.value)

    def batch(self, rows: Tensor, symmetry: int) -> tuple[Tensor, Tensor, Tensor]:
        """Planes (n, 3, 8, 8), policies (n, 64) and values (n, 1) of some rows, turned or mirrored."""
        order = self.symmetries[symmetry]
        planes = torch.cat([self.discs[rows], self.legal[rows, None]], dim=1)[:, :, order].float()
        return planes.reshape(-1, 3, 8, 8), self.policy[rows][:, order], self.value[rows, None]


def make_positions(games: int, seed: int) -> Positions:
    """Positions of games that the teacher plays against itself."""
    boards, scores, results = play_games(games, DEPTH, seed, WARMTH)
    used = boards.any(axis=2)
    return Positions(boards[used], scores[used], results[used])


def train(network: OthelloNetwork, positions: Positions, epochs: int) -> None:
    """Fit `network`, printing the losses of each epoch."""
    generator = torch.Generator().manual_seed(SEED)
    steps = len(positions) // BATCH
    optimiser = torch.optim.AdamW(network.parameters(), lr=4e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=4e-3, total_steps=epochs * steps)
    # Half as wide numbers in this layout take a third of the time on processors that multiply them natively.
    network.train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for epoch in range(epochs):
        order = torch.randperm(len(positions), generator=generator)
        totals = np.zeros(2)
        for rows in order[: steps * BATCH].split(BATCH):
            symmetry = int(torch.randint(8, (), generator=generator))
            planes, policy, value = positions.batch(rows, symmetry)
            with torch.autocast("cpu", torch.bfloat16):
                logits, judged = network.scores(planes.to(memory_format=torch.channels_last))
            policy_loss = functional.cross_entropy(logits.float(), policy)
            value_loss = functional.mse_loss(judged.float(), value)
            optimiser.zero_grad()
            (policy_loss + 1.5 * value_loss).backward()
            optimiser.step()
            schedule.step()
            totals += policy_loss.item(), value_loss.item()
        policy_mean, value_mean = totals / steps
        print(f"epoch {epoch + 1} of {epochs}: policy {policy_mean:.4f}, value {value_mean:.4f}", flush=True)
    network.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def main() -> None:
    """Train, export, measure the exported file and write the card."""
    parser = argparse.ArgumentParser(
        description="Train the othello network; write othello.onnx and README.md."
    )
    parser.add_argument("--output", type=Path, default=HERE, help="folder (default: beside the script)")
    parser.add_argument("--measure", action="store_true", help="only measure the network that is there")
    arguments = parser.parse_args()
    folder: Path = arguments.output
    path = folder / "othello.onnx"
    if not arguments.measure:
        make(path)
    write_card(
        folder / "README.md", measure_all(path), games=GAMES, depth=DEPTH, channels=CHANNELS, blocks=BLOCKS
    )


def make(path: Path) -> None:
    """Let the teacher play, train on its games, and write the network to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    # One thread: the layers are small, and two would wait for each other more than they gain.
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    positions = make_positions(GAMES, SEED)
    print(f"{len(positions)} positions after {time.perf_counter() - started:.0f} s", flush=True)
    network = OthelloNetwork()
    train(network, positions, EPOCHS)
    export(network, (torch.zeros(2, 3, 8, 8),), path, ["planes"], ["policy", "value"])
    print(f"trained after {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
