"""An asynchronous readback from OpenGL, converted to the tensor's type."""

from __future__ import annotations

import numpy as np

from engine.backends.base import Readback
from engine.backends.gl.storage import from_memory
from engine.base.errors import ValuePending
from engine.device.gl.staging_readback import StagingReadback


class GLReadback(Readback):
    """A readback through a staging buffer; None if there is nothing to read, or before it starts."""

    def __init__(self, elements: int, dtype: np.dtype, staging: StagingReadback | None) -> None:
        self._elements = elements
        self._dtype = dtype
        self._staging = staging
        self._value = None if elements else np.empty(0, dtype)

    def done(self) -> bool:
        """Whether the elements have arrived."""
        return self._value is not None or (self._staging is not None and self._staging.done())

    def wait(self) -> None:
        """Block until they have."""
        if self._value is None and self._staging is not None:
            self._staging.wait()

    def array(self) -> np.ndarray:
        """The value, 1-D. Raises `ValuePending` before `done`."""
        if self._value is None:
            if not self.done() or self._staging is None:
                raise ValuePending("the readback has not arrived yet; poll done(), or wait()")
            self._value = from_memory(self._staging.array()[: self._elements], self._dtype)
        return self._value

    def into(self, out: np.ndarray) -> None:
        """Write the value's first elements into an array, without a copy in between if types agree."""
        if self._value is None and self.done() and self._staging is not None:
            view = self._staging.view()
            if view.dtype == out.dtype:
                np.copyto(out, view[: out.size].reshape(out.shape))
                return
        super().into(out)
