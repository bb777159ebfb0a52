"""Architectures for export: a module, and inputs by its sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tests.images import smooth

Sizes = Mapping[str, int]


Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Architecture:
    """How to make a network and its inputs.

    inputs: makes them for sizes by name. open: of each input, the axes whose size has a name. outputs: how
    many of its outputs are exported.
    """

    name: str
    make: Callable[[], torch.nn.Module]
    inputs: Callable[[np.random.Generator, Sizes], Tensors]
    open: Mapping[str, Mapping[int, str]]
    sizes: Sequence[Sizes]
    outputs: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)


def images(
    name: str,
    make: Callable[[], torch.nn.Module],
    *,
    side: int = 64,
    channels: int = 3,
    argument: str = "x",
    is_side_open: bool = True,
    outputs: int = 1,
    **options: Any,
) -> Architecture:
    """A network over images; its sides stay fixed where it is made for one size."""

    def inputs(rng: np.random.Generator, sizes: Sizes) -> Tensors:
        shape = (sizes["batch"], channels, sizes["height"], sizes["width"])
        return {argument: torch.from_numpy(smooth(shape, int(rng.integers(1000)), -2, 2))}

    sides = {2: "height", 3: "width"} if is_side_open else {}
    others: list[Sizes] = [{"batch": 1, "height": side, "width": side}]
    if is_side_open:
        others.append({"batch": 1, "height": side, "width": side + 32})
    first = {"batch": 2, "height": side, "width": side}
    return Architecture(
        name, make, inputs, {argument: {0: "batch", **sides}}, [first, *others], outputs, options
    )


def waves(
    name: str,
    make: Callable[[], torch.nn.Module],
    *,
    length: int = 4000,
    argument: str = "input_values",
    shape: Sequence[int] = (),
    **options: Any,
) -> Architecture:
    """A network over sound; `shape` is that of a sample's axes before the last."""

    def inputs(rng: np.random.Generator, sizes: Sizes) -> Tensors:
        made = rng.normal(0, 0.3, (sizes["batch"], *shape, sizes["length"])).astype(np.float32)
        return {argument: torch.from_numpy(made)}

    axes = {argument: {0: "batch", 1 + len(shape): "length"}}
    all_sizes = [{"batch": b, "length": n} for b, n in ((2, length), (1, length), (1, length + 1600))]
    return Architecture(name, make, inputs, axes, all_sizes, **options)
