"""What networks from picture to picture share: how they are fitted, written to ONNX, run and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from assets.exporting import export

_TOLD = 250


class Clipped(nn.Module):
    """A network as it is exported: its colours are cut to 0 to 1."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, picture: Tensor) -> Tensor:
        return torch.clamp(self.network(picture), 0.0, 1.0)


def fit(
    network: nn.Module,
    loss_of_batch: Callable[[], Tensor],
    steps: int,
    *,
    rate: float,
    warm_up: float,
    told: Callable[[float], str],
) -> None:
    """Fit by Adam, whose rate rises to `rate` during the share `warm_up` of all steps, and falls to nearly 0.

    loss_of_batch: draws the next batch, and gives its loss. told: what to print of the mean of some losses.
    """
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(network.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=rate, total_steps=steps, pct_start=warm_up
    )
    total = 0.0
    for step in range(1, steps + 1):
        loss = loss_of_batch()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        total += loss.item()
        if step % _TOLD == 0:
            print(f"  step {step} of {steps}: {told(total / _TOLD)}", flush=True)
            total = 0.0


def export_pictures(
    network: nn.Module, path: Path, taken: str, made: str, *, least: int, multiple: int = 1
) -> None:
    """Write one ONNX file with open rows and columns, named so, that clips what it makes.

    taken, made: the names of input and output. least, multiple: what rows and columns are at least, and what
    they divide by.
    """
    names = [axis if multiple == 1 else f"{axis}_by_{multiple}" for axis in ("rows", "columns")]
    sizes = [torch.export.Dim(name, min=least // multiple) for name in names]
    rows, columns = sizes if multiple == 1 else [multiple * size for size in sizes]
    example = torch.zeros(1, 3, 6 * least, 8 * least)
    dynamic = ({2: rows, 3: columns},)
    export(Clipped(network), (example,), path, [taken], [made], dynamic=dynamic, optimizes=True)
    if multiple > 1:
        model = onnx.load(path)
        for value in (model.graph.input[0], model.graph.output[0]):
            for dim, symbol in zip(value.type.tensor_type.shape.dim[2:], ("rows", "columns"), strict=True):
                dim.dim_param = symbol
        onnx.save_model(model, path)


def run_pictures(path: Path, pictures: np.ndarray) -> Iterator[np.ndarray]:
    """What a file's network makes of each picture (3, rows, columns), by onnxruntime."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    for picture in pictures:
        yield session.run(None, {name: picture[None]})[0][0]


def decibels(picture: np.ndarray, wanted: np.ndarray) -> float:
    """PSNR in dB of a picture from 0 to 1."""
    return float(-10.0 * np.log10(float(((picture - wanted) ** 2).mean())))
