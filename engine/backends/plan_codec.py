"""What the plan store needs of a backend whose plans it stores."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any

from engine.compiler.plan import AnyKernel, Step
from engine.kernels.formula_rows import formula_of, rows_of
from engine.kernels.kernel import Kernel


class PlanCodec:
    """Describes a backend's kernels and steps as data: kernels are stored whole, as JSON.

    Where compiled code is found by a kernel's key, a subclass stores plans without formulas.

    Args:
        setting: All that the backend's plans depend on apart from the model and the engine's sources.
        records: The dataclasses that tuned kernels consist of: of numbers, texts, tuples and such records.
    """

    def __init__(self, setting: str, *records: type) -> None:
        self.setting = setting
        self._records = {record.__name__: record for record in records}

    def key(self, kernel: AnyKernel) -> str:
        """The key of a kernel: of its compiled code, where `Backend.prepare_cached` finds that by it."""
        return kernel.key

    def stored(self, kernel: AnyKernel, nanoseconds: float) -> AnyKernel:
        """What stands for the kernel of a step in a plan that is read back."""
        return kernel

    def nanoseconds(self, step: Step) -> float:
        """What a step is estimated to take, if it has no formula to estimate from when it is read back."""
        return 0.0

    def words(self, step: Step) -> int:
        """How many words of arguments the step calls its kernel with, where kernels are found by keys."""
        return 0

    def text(self, kernel: AnyKernel) -> str:
        """The formula of a generic kernel, or the fields of a tuned one; '' where plans have no formulas.

        Raises `TypeError` for a kernel that cannot be stored.
        """
        return json.dumps(self._plain(kernel), separators=(",", ":"))

    def _plain(self, x: Any) -> Any:
        if isinstance(x, Kernel):
            return {"": [x.rank, rows_of(x.body), x.dtype, x.buffers, x.params]}
        if is_dataclass(x) and self._records.get(type(x).__name__) is type(x):
            return {type(x).__name__: [self._plain(getattr(x, item.name)) for item in fields(x)]}
        if isinstance(x, tuple):
            return [self._plain(item) for item in x]
        if x is None or isinstance(x, bool | int | float | str):
            return x
        raise TypeError(f"{type(x).__name__} is no part of a kernel that can be stored")

    def kernel(self, text: str) -> AnyKernel:
        """Inverse of `text`. Raises `ValueError` or `LookupError` for other texts."""
        found: AnyKernel = self._live(json.loads(text))
        return found

    def _live(self, x: Any) -> Any:
        if isinstance(x, list):
            return tuple([self._live(item) for item in x])
        if not isinstance(x, dict):
            return x
        ((name, given),) = x.items()
        if name:
            return self._records[name](*map(self._live, given))
        rank, rows, dtype, buffers, params = given
        return Kernel(rank, formula_of(rows), dtype, tuple(buffers), tuple(params))
