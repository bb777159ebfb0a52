"""`Shader`: a fragment shader with the properties that a recorder needs; tuned kernels are such shaders."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from engine.base.dtypes import ArithmeticType


@dataclass(frozen=True)
class Shader:
    """One draw: every fragment computes one texel of the output, or with `layers` one of each layer.

    params: types of a step's values. buffers: storage types of the inputs; `layered` tells which of them are
    arrays that a shader with `layers` wrote. output: storage type of the result. rank: of the index space
    that a step's `space` is; None where `space` is (texels,). rounds: positions of the values whose product
    tells how often a fragment's loop runs, each round taking about round_ns nanoseconds of one processor.
    """

    source: str
    params: tuple[ArithmeticType, ...]
    buffers: tuple[str, ...]
    output: str
    layered: tuple[bool, ...] = ()
    layers: int = 0
    rank: int | None = None
    rounds: tuple[int, ...] = ()
    round_ns: float = 1.0

    @cached_property
    def key(self) -> str:
        """Digest of the text."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:24]

    @property
    def inputs(self) -> tuple[tuple[str, bool], ...]:
        """Per input: its storage type and whether it is layered."""
        layered = self.layered or (False,) * len(self.buffers)
        return tuple(zip(self.buffers, layered, strict=True))
