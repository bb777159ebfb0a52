"""`ShaderKernel`: a tuned kernel as a compute shader, with its arguments and how it reads its inputs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from engine.base.dtypes import ArithmeticType


@dataclass(frozen=True)
class ShaderKernel:
    """A compute shader over storage buffer 0 (the output) and inputs.

    A step's `space` is its grid of groups and its `values` are the arguments `A`; with all of them 0 the
    shader must write nothing. buffers: storage types of the inputs. widths: how many of its elements one
    load of an input yields, 1 or 4. first_group: position of three arguments, the group where a dispatch
    begins along each axis; with `is_folded`, the grid's rows are one long row, and the first of them counts
    along that. rounds: positions of the values whose product is how often a group's loop runs, each round
    taking about group_ns nanoseconds of one processor. is_alone: whether every group is a dispatch of its
    own, because it continues where the previous one ended; such a shader writes what it reads.
    """

    source: str
    params: tuple[ArithmeticType, ...]
    buffers: tuple[str, ...]
    widths: tuple[int, ...]
    first_group: int
    is_folded: bool = False
    rounds: tuple[int, ...] = ()
    group_ns: float = 1.0
    is_alone: bool = False

    @cached_property
    def key(self) -> str:
        """Digest of the text."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:24]
