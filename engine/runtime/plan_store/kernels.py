"""Serialization of the kernels of stored plans: keys, formulas, and fields of tuned kernels."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from engine.backends.plan_codec import PlanCodec
from engine.compiler.plan import AnyKernel, StoredKernel
from engine.kernels.expr import Expr
from engine.kernels.kernel import Kernel
from engine.kernels.serialization import deserialize, serialize
from engine.runtime.plan_store.codec import (
    FLAG,
    NAME,
    SIZE,
    Converted,
    Many,
    OneOf,
    Records,
    Trees,
    Tuples,
    column_of,
)
from engine.runtime.plan_store.streams import Column

_KEY = re.compile("[0-9a-f]{64}")


class _Kernel(NamedTuple):
    key: str
    kernel: AnyKernel


class _Node(NamedTuple):
    """A row of a formula, see `serialize`."""

    op: str
    dtype: str
    operands: tuple[int, ...]
    attribute: Any


def kernel_column(codec: PlanCodec) -> Column[AnyKernel]:
    """The column of a backend's kernels."""
    kernels = OneOf(
        (StoredKernel, Records(_stored, key=NAME, name=NAME, is_tuned=FLAG)),
        (Kernel, Records(Kernel, body=_FORMULA)),
        *((record, column_of(record)) for record in codec.records),
    )

    def keyed(kernel: AnyKernel) -> _Kernel:
        return _Kernel(codec.key(kernel), kernel)

    def checked(flat: _Kernel) -> AnyKernel:
        if codec.key(flat.kernel) != flat.key:
            raise ValueError("a kernel is not the one that was stored")
        return flat.kernel

    return Converted(Records(_Kernel, kernel=kernels), keyed, checked)


def _stored(key: str, name: str, is_tuned: bool) -> StoredKernel:
    if not _KEY.fullmatch(key):
        raise ValueError("a kernel's key is none")  # it becomes the name of a file
    return StoredKernel(key, name, is_tuned, 0.0)


def _nodes(formula: Expr) -> list[_Node]:
    return [_Node(*row) for row in serialize(formula)]


_FORMULA = Converted(Many(Tuples(_Node, operands=Many(SIZE), attribute=Trees())), _nodes, deserialize)
