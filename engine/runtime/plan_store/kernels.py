"""Kernels of stored plans as data."""

from __future__ import annotations

import hashlib
import re
from functools import partial
from typing import NamedTuple

from engine.backends.plan_codec import PlanCodec
from engine.compiler.plan import AnyKernel, StoredKernel
from engine.runtime.plan_store.codec import Converted, Rows
from engine.runtime.plan_store.streams import Column

_KEY = re.compile("[0-9a-f]{64}")


class _Kernel(NamedTuple):
    """A kernel: the fields of a `StoredKernel`, or its text, with a digest of that."""

    key: str
    name: str
    is_tuned: bool
    text: str
    digest: str


def kernel_column(codec: PlanCodec) -> Column[AnyKernel]:
    """The column of a backend's kernels."""
    return Converted(Rows(_Kernel), partial(_flat, codec), partial(_restored, codec))


def _flat(codec: PlanCodec, kernel: AnyKernel) -> _Kernel:
    text = codec.text(kernel)
    if isinstance(kernel, StoredKernel):
        return _Kernel(kernel.key, kernel.name, kernel.is_tuned, text, "")
    return _Kernel(codec.key(kernel), "", False, text, _digest(text))


def _restored(codec: PlanCodec, flat: _Kernel) -> AnyKernel:
    if flat.text:
        if _digest(flat.text) != flat.digest:
            raise ValueError("a kernel is not the one that was stored")
        return codec.kernel(flat.text)
    if not _KEY.fullmatch(flat.key):
        raise ValueError("a kernel's key is none")  # it becomes the name of a file
    return StoredKernel(flat.key, flat.name, flat.is_tuned, 0.0)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
