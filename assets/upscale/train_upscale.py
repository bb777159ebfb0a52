"""Train the network of the `upscale` demo: write `upscale.onnx`, `compare.onnx` and the model card.

    python -m assets.upscale.train_upscale

from the root of the repository. It needs the extras `train` and `test` (`pip install -e .[train,test]`), and
OpenGL to draw the game's frames (a software renderer will do); about four minutes on two cores. Seeds are
fixed: on the same machine with the same library versions the result is the same.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

from assets.exporting import OPSET
from assets.pictures import decibels, export_pictures, fit, run_pictures
from assets.upscale.card import Figures, Score, write_card
from assets.upscale.frames import frames

HERE = Path(__file__).parent
CITIES, HELD_OUT, EACH = range(1, 31), range(1001, 1011), 6
STEPS, BATCH, CROP = 1500, 16, 40
TRAINING_SEED = 5

COMPARE = """<ir_version: 9, opset_import: ["": 18]>
compare (float[1, 3, h, w] native, float[1, 3, h, w] bilinear, float[1, 3, h, w] network)
    => (float[2] errors) {
    far = Sub (bilinear, native)
    near = Sub (network, native)
    both = Concat <axis = 0> (far, near)
    squares = Mul (both, both)
    tiles = AveragePool <kernel_shape = [16, 16], strides = [16, 16]> (squares)
    axes = Constant <value_ints = [1, 2, 3]> ()
    errors = ReduceMean <keepdims = 0> (tiles, axes)
}"""
"""The mean square errors of both pictures: what the game measures itself by. First those of tiles, as adding
up a whole picture in one shader call takes more rounds than some drivers allow.
"""


class Upscaler(nn.Module):
    """(1, 3, rows, columns) -> (1, 3, 2 rows, 2 columns), both from 0 to 1; a sub-pixel network.

    All of it at the small size, four output pixels from each place at the end (Shi et al., 2016). One layer
    goes past the others, and begins as bilinear interpolation: they learn what that lacks.
    """

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.look = nn.Conv2d(3, channels, 5, padding=2)
        self.think = nn.Conv2d(channels, channels, 3, padding=1)
        self.rest = nn.Conv2d(channels, 12, 3, padding=1)
        self.smooth = nn.Conv2d(3, 12, 3, padding=1, bias=False)
        nn.init.zeros_(self.smooth.weight)
        sides = torch.tensor([[0.25, 0.75, 0.0], [0.0, 0.75, 0.25]])
        with torch.no_grad():
            for out in range(12):
                color, row, column = out // 4, out // 2 % 2, out % 2
                self.smooth.weight[out, color] = torch.outer(sides[row], sides[column])

    def forward(self, small: Tensor) -> Tensor:
        x = functional.relu(self.think(functional.relu(self.look(small))))
        return functional.pixel_shuffle(self.rest(x) + self.smooth(small), 2)


def drawn(seeds: range, each: int) -> tuple[np.ndarray, np.ndarray]:
    """`frames` in another process: Mesa and torch each bring an LLVM, and one of them crashes."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(frames, seeds, each).result()


def train(network: Upscaler, low: np.ndarray, high: np.ndarray, steps: int) -> None:
    """Fit `network` on crops of frames, uint8 (n, 3, rows, columns) and twice that."""
    rng = np.random.default_rng(TRAINING_SEED)
    count, _, rows, columns = low.shape

    def loss_of_batch() -> Tensor:
        small, large = [], []
        for _ in range(BATCH):
            # Of three places the one with most to see: half of a frame is sky.
            places = [
                (rng.integers(count), rng.integers(rows - CROP), rng.integers(columns - CROP))
                for _ in range(3)
            ]
            n, y, x = max(places, key=lambda p: low[p[0], :, p[1] : p[1] + CROP, p[2] : p[2] + CROP].std())
            small.append(low[n, :, y : y + CROP, x : x + CROP])
            large.append(high[n, :, 2 * y : 2 * (y + CROP), 2 * x : 2 * (x + CROP)])
        given, wanted = (torch.from_numpy(np.stack(many)).float() / 255 for many in (small, large))
        made: Tensor = network(given.contiguous(memory_format=torch.channels_last))
        # Along the edge of a crop, zeros stand for what is there in a frame.
        return ((made - wanted)[..., 8:-8, 8:-8] ** 2).mean()

    def told(loss: float) -> str:
        return f"{-10 * np.log10(loss):.2f} dB on crops"

    fit(network, loss_of_batch, steps, rate=5e-3, warm_up=0.1, told=told)


def measure(path: Path, low: np.ndarray, high: np.ndarray) -> Score:
    """Mean PSNR (dB) over frames of bilinear interpolation and of the file's network, and its least gain."""
    given, wanted = (np.float32(pixels / 255) for pixels in (low, high))
    table = []
    for small, large, made in zip(given, wanted, run_pictures(path, given), strict=True):
        stretched = functional.interpolate(torch.from_numpy(small[None]), scale_factor=2, mode="bilinear")
        table.append([decibels(picture, large) for picture in (stretched[0].numpy(), made)])
    bilinear, network = np.transpose(table)
    return Score(float(bilinear.mean()), float(network.mean()), float((network - bilinear).min()))


def main() -> None:
    """Train, export, measure the exported file and write the card."""
    parser = argparse.ArgumentParser(description="Train the upscaler; write *.onnx and README.md.")
    parser.add_argument("--output", type=Path, default=HERE, help="folder (default: beside the script)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of training (default: {STEPS})")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    # On layers this small, two threads wait for one another.
    torch.set_num_threads(1)
    torch.manual_seed(TRAINING_SEED)
    torch.use_deterministic_algorithms(True)
    (low, high), kept = drawn(CITIES, EACH), drawn(HELD_OUT, EACH)
    print(f"{len(low) + len(kept[0])} frames after {time.perf_counter() - started:.0f} s", flush=True)
    network = Upscaler()
    train(network, low, high, arguments.steps)
    path = arguments.output / "upscale.onnx"
    export_pictures(network, path, "small", "large", least=8)
    onnx.save_model(onnx.parser.parse_model(COMPARE), arguments.output / "compare.onnx")
    score = measure(path, *kept)
    print(
        f"held out: bilinear {score.bilinear:.2f} dB, network {score.network:.2f} dB, won by at least "
        f"{score.least_gain:.2f} dB; {time.perf_counter() - started:.0f} s in all"
    )
    weights = sum(parameter.numel() for parameter in network.parameters())
    figures = Figures(
        weights, OPSET, len(low), len(CITIES), len(kept[0]), len(HELD_OUT), arguments.steps, score
    )
    write_card(arguments.output / "README.md", figures)


if __name__ == "__main__":
    main()
