"""A kernel: a formula whose tensors and run-time arguments are numbered slots, so that it can be cached.

`kernel_call` turns a formula over live values into a `Kernel` (structure only) and what fills its slots.
Two layers of any sizes that compute the same way share one `Kernel`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from engine.base.dtypes import ArithmeticType
from engine.kernels.expr import Expr, made_of, rebuild
from engine.kernels.serialization import serialize
from engine.kernels.value import Value


@dataclass(frozen=True)
class Kernel:
    """The value of each output index as a formula.

    rank: dimensions of the index space. body: the formula; `param` and `load` nodes carry slot numbers.
    dtype: storage type of the output. buffers: storage types of the tensors read, by slot.
    params: types of the run-time arguments, by slot.
    """

    rank: int
    body: Expr
    dtype: str
    buffers: tuple[str, ...]
    params: tuple[ArithmeticType, ...]

    @cached_property
    def key(self) -> str:
        """A digest of the structure: equal for kernels that compute the same way."""
        lines = [f"{self.rank} {self.dtype} {self.buffers} {self.params}"]
        lines += [f"{op} {dtype} {args} {attr!r}" for op, dtype, args, attr in serialize(self.body)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:24]


class KernelCall(NamedTuple):
    """A kernel with the arguments and tensors of one call."""

    kernel: Kernel
    values: tuple[int | float, ...]
    inputs: tuple[Value, ...]


def kernel_call(body: Expr, rank: int, dtype: np.dtype) -> KernelCall:
    """A formula as a kernel and its arguments: slots are numbered in order of first use."""
    values: list[int | float] = []
    types: list[ArithmeticType] = []
    inputs: dict[Value, int] = {}
    loops: dict[str, str] = {}
    memo: dict[Expr, Expr] = {}

    def rename(name: str) -> str:
        return loops.setdefault(name, f"v{len(loops)}")

    def visit(node: Expr) -> Expr:
        if node not in memo:
            memo[node] = with_slots(node)
        return memo[node]

    def with_slots(node: Expr) -> Expr:
        if node.op == "param":
            values.append(node.attr.value)
            types.append(node.dtype)
            return Expr("param", node.dtype, attr=len(values) - 1)
        if node.op in ("loopvar", "carried"):
            return made_of(node.op, node.dtype, (), rename(node.attr))
        args = tuple(visit(a) for a in node.args)
        if node.op == "load":
            return Expr("load", node.dtype, args, inputs.setdefault(node.attr, len(inputs)))
        if node.op == "reduce":
            kind, var = node.attr
            return made_of("reduce", node.dtype, args, (kind, rename(var)))
        if node.op == "fold":
            var, carried = node.attr
            return made_of("fold", node.dtype, args, (rename(var), tuple(map(rename, carried))))
        return rebuild(node, args) if args else node

    numbered_body = visit(body)
    kernel = Kernel(
        rank, numbered_body, np.dtype(dtype).name, tuple(v.dtype.name for v in inputs), tuple(types)
    )
    return KernelCall(kernel, tuple(values), tuple(inputs))
