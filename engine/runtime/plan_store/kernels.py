"""Kernels of stored plans as data."""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

from engine.backends.plan_codec import PlanCodec
from engine.compiler.plan import AnyKernel, StoredKernel
from engine.runtime.plan_store.codec import FLAG, NAME, Tuples
from engine.runtime.plan_store.streams import Column

_KEY = re.compile("[0-9a-f]{64}")


class FlatKernel(NamedTuple):
    """A kernel: the fields of a `StoredKernel`, or its text, with a digest of that."""

    key: str
    name: str
    is_tuned: bool
    text: str
    digest: str


KERNEL: Column[Any] = Tuples(FlatKernel, key=NAME, name=NAME, is_tuned=FLAG, text=NAME, digest=NAME)


def flat_kernel(kernel: AnyKernel, codec: PlanCodec) -> FlatKernel:
    """A kernel as data."""
    text = codec.text(kernel)
    if isinstance(kernel, StoredKernel):
        return FlatKernel(kernel.key, kernel.name, kernel.is_tuned, text, "")
    return FlatKernel(codec.key(kernel), "", False, text, _digest(text))


def restored_kernel(flat: FlatKernel, codec: PlanCodec) -> AnyKernel:
    """Inverse of `flat_kernel`. Raises `ValueError` for what is none."""
    if flat.text:
        if _digest(flat.text) != flat.digest:
            raise ValueError("a kernel is not the one that was stored")
        return codec.kernel(flat.text)
    if not _KEY.fullmatch(flat.key):
        raise ValueError("a kernel's key is none")  # it becomes the name of a file
    return StoredKernel(flat.key, flat.name, flat.is_tuned, 0.0)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
