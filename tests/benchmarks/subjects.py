"""The networks that are measured, by name, each with inputs to which it responds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from gameglue.host.resources import Resources
from tests.field.feeds import read_feeds
from tests.graphs import mlp
from tests.half_networks import halved, halved_inputs
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
from tests.quantized_networks import Form, quantised
from tests.vision_networks import video_network

POLICY_SIZES = (8, 128, 128, 2)
POLICIES = {"policy": 1, "policy_32": 32, "policy_1024": 1024}
"""The batch of each."""

HALVES = {
    "encoder_float16": "encoder", "decoder_float16": "decoder", "squeezenet1.1_float16": "squeezenet1.1_fp32",
    "yunet_float16": "yunet_n_320",
}  # fmt: skip
"""Networks in half precision, with those that they are made of."""

QUANTISED: dict[str, tuple[str, Form]] = {
    "mobilenet_v2_qoperator": ("mobilenet_v2", "qoperator"),
    "mobilenet_v2_qdq": ("mobilenet_v2", "qdq"),
    "encoder_qdq": ("encoder", "qdq"),
    "encoder_dynamic": ("encoder", "dynamic"),
}
"""Networks in int8, with those that they are made of, and the form in which the quantiser writes them."""

VIDEO = "video_network"
"""Convolutions over three axes."""

OWN = ("digits", *POLICIES)
NAMES = (*OWN, *MADE, VIDEO, *TRAINED_NAMES, *HALVES, *QUANTISED, *(f"light_{name}" for name in LIGHT_NAMES))
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
    if name in HALVES:
        plain = subject(HALVES[name])
        return Subject(name, halved(plain.source), [halved_inputs(call) for call in plain.calls])
    if name in QUANTISED:
        plain = subject(QUANTISED[name][0])
        return Subject(name, quantised(plain.source, plain.calls, QUANTISED[name][1]), plain.calls)
    if name == VIDEO:
        return Subject(name, video_network(), [{"x": smooth((1, 3, 8, 56, 56), 0)}])
    if name in MADE:
        return Subject(name, MADE[name](), made_calls(name))
    if name in TRAINED_NAMES:
        return Subject(name, str(trained_path(name)), [trained_inputs(name)])
    source = light_network(name.removeprefix("light_"))
    return Subject(name, source, [light_inputs(onnx.load_from_string(source))])


def in_folder(folder: Path) -> list[Subject]:
    """The models of a folder that have inputs beside them, as those of `tests.field`; one call of each."""
    found = [(path, read_feeds(path)) for path in sorted(folder.glob("*.onnx"))]
    return [Subject(path.stem, str(path), feeds[:1]) for path, feeds in found if feeds]


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
    sources = {name: HALVES.get(name, name) for name in names}
    return [
        n for n, source in sources.items() if source not in TRAINED_NAMES or trained_path(source).exists()
    ]
