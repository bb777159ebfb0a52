"""Networks with random weights, exported by both of PyTorch's exporters, sizes open where they can.

    python -m tests.field.sources.exported FOLDER [--only PATTERN...]

Needs the extra `field`. A model that neither exporter can make leaves NAME.failed with the reason.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from tests.field.feeds import Feed, write_feeds
from tests.field.sources.architectures import Architecture, Sizes
from tests.field.sources.exported_networks import architectures

EXPORTERS = ("dynamo", "script")

OLDER = {
    7: ("resnet18", "densenet", "squeezenet"),
    9: ("mobilenet_v3", "shufflenet", "efficientnet", "lstm", "gru", "rnn"),
    11: ("regnet", "lraspp", "lstm", "gru"),
}
"""Opsets of models that were published long ago, and networks that the older exporter writes for them."""


class Plain(torch.nn.Module):
    """A network from tensors by position to a tuple of its first few outputs."""

    def __init__(self, of: Architecture) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.network = of.make().eval()
        self.names = tuple(of.open)
        self.count = of.outputs

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs, flattened."""
        if len(tensors) > 1 or self.names[0] not in ("x", "input"):
            result = self.network(**dict(zip(self.names, tensors, strict=True)))
        else:
            result = self.network(*tensors)
        return tuple(flattened(result)[: self.count])


def flattened(value: Any) -> list[torch.Tensor]:
    """All tensors of nested tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if hasattr(value, "values") else value if isinstance(value, (tuple, list)) else ()
    return [tensor for item in items for tensor in flattened(item)]


def tensors_for(of: Architecture, number: int, sizes: Sizes) -> dict[str, torch.Tensor]:
    """The inputs of one set of sizes."""
    made = of.inputs(np.random.default_rng(number), sizes)
    return {name: made[name] for name in of.open}


def export(of: Architecture, exporter: str, target: Path, is_open: bool) -> None:
    """Write the model. Raises what the exporter raises."""
    network = Plain(of)
    tensors = tensors_for(of, 0, of.sizes[0])
    arguments: dict[str, Any] = {"input_names": list(tensors), "verbose": False}
    if exporter.startswith("script"):
        arguments["dynamo"] = False
        if exporter != "script":
            arguments["opset_version"] = int(exporter.removeprefix("script"))
        if is_open:
            arguments["dynamic_axes"] = {name: dict(axes) for name, axes in of.open.items()}
    else:
        arguments |= {"dynamo": True, "external_data": False}
        if is_open:
            # An axis that the network holds to one size is closed rather than refused.
            axes = tuple(dict.fromkeys(of.open[name], torch.export.Dim.AUTO) for name in tensors)
            arguments["dynamic_shapes"] = {"tensors": axes}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, tuple(tensors.values()), str(target), **arguments)


def runnable(of: Architecture, target: Path) -> list[Feed]:
    """The sets of inputs that onnxruntime takes; exporters bake sizes in. Raises if it refuses the first."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(target), options, providers=["CPUExecutionProvider"])
    known = {item.name for item in session.get_inputs()}
    feeds = []
    for number, sizes in enumerate(of.sizes):
        arrays = {name: t.numpy() for name, t in tensors_for(of, number, sizes).items() if name in known}
        try:
            session.run(None, arrays)
        except Exception:
            if number == 0:
                raise
            continue
        feeds.append(arrays)
    return feeds


def write(of: Architecture, exporter: str, folder: Path) -> None:
    """Write a model with symbolic sizes, or else with fixed ones, or else why there is none."""
    target = folder / f"{exporter}-{of.name}.onnx"
    reasons = []
    for is_open in (True, False):
        try:
            export(of, exporter, target, is_open)
            write_feeds(target, runnable(of, target))
            return
        except Exception as error:  # noqa: BLE001 - exporters raise anything
            reasons.append(f"{type(error).__name__}: {str(error).strip()[:400]}")
            target.unlink(missing_ok=True)
    target.with_suffix(".failed").write_text("\nwith fixed sizes: ".join(reasons), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> None:
    """Export what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.field.sources.exported", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="of EXPORTER-NAME")
    options = parser.parse_args(argv)
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    # The fused layer of inference has no counterpart in ONNX.
    torch.backends.mha.set_fastpath_enabled(False)
    for of in architectures():
        older = (f"script{opset}" for opset, names in OLDER.items() if of.name in names)
        for exporter in (*EXPORTERS, *older):
            if any(fnmatch.fnmatch(f"{exporter}-{of.name}", pattern) for pattern in options.only):
                print(f"{exporter}-{of.name}", file=sys.stderr, flush=True)
                write(of, exporter, options.folder)


if __name__ == "__main__":
    main()
