"""The networks that are measured, by name, each with inputs to which it responds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from gameglue.resources import Resources
from tests.graphs import mlp
from tests.networks import (
    LIGHT_NAMES,
    MADE,
    TRAINED_NAMES,
    Inputs,
    light_inputs,
    light_network,
    made_calls,
    smooth,
    trained_inputs,
    trained_path,
)

POLICY_SIZES = (8, 128, 128, 2)
POLICIES = {"policy": 1, "policy_32": 32, "policy_1024": 1024}
"""The batch of each."""

OWN = ("digits", *POLICIES)
NAMES = (*OWN, *MADE, *TRAINED_NAMES, *(f"light_{name}" for name in LIGHT_NAMES))
"""All of them, small ones first."""

OPTIONAL = ("light_bvlc_alexnet", "light_zfnet512")
"""Not in the set that is measured by default: other networks of it are like them."""

LARGE = ("light_inception_v1", "light_inception_v2", "light_densenet121", "light_vgg19")
"""Left out where there is little time: each takes long to make."""


@dataclass(frozen=True)
class Subject:
    """A network as a file's path or bytes.

    calls: what it is asked, one after the other; several where every call has other shapes.
    """

    name: str
    source: str | bytes
    calls: Sequence[Inputs]

    @property
    def inputs(self) -> Inputs:
        """The first call's."""
        return self.calls[0]

    def file(self, folder: Path) -> Path:
        """The network as a file, written into `folder` if it is none yet."""
        if isinstance(self.source, str):
            return Path(self.source)
        path = folder / f"{self.name}.onnx"
        if not path.exists():
            path.write_bytes(self.source)
        return path


def policy_inputs(batch: int) -> Inputs:
    """What a policy network sees, for `batch` agents."""
    return {"x": np.random.default_rng(batch).normal(size=(batch, POLICY_SIZES[0])).astype(np.float32)}


def subject(name: str) -> Subject:
    """A network by its name in `NAMES`."""
    if name == "digits":
        path = str(Resources().find("digits/digits.onnx"))
        (item,) = onnx.load(path).graph.input
        return Subject(name, path, [{item.name: smooth((1, 1, 28, 28), 0)}])
    if name in POLICIES:
        return Subject(name, mlp(POLICY_SIZES), [policy_inputs(POLICIES[name])])
    if name in MADE:
        return Subject(name, MADE[name](), made_calls(name))
    if name in TRAINED_NAMES:
        return Subject(name, str(trained_path(name)), [trained_inputs(name)])
    source = light_network(name.removeprefix("light_"))
    return Subject(name, source, [light_inputs(onnx.load_from_string(source))])


def add_model_option(parser: argparse.ArgumentParser, default: Sequence[str]) -> None:
    """Add `--models`."""
    parser.add_argument(
        "--models",
        nargs="+",
        choices=NAMES,
        metavar="NAME",
        default=default,
        help=f"some of {', '.join(NAMES)}. Default: {', '.join(default)}",
    )


def present(names: Sequence[str]) -> list[str]:
    """The names whose files are here; trained networks may not be."""
    return [name for name in names if name not in TRAINED_NAMES or trained_path(name).exists()]
