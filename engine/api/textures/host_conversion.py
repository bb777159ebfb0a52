"""Conversion of pixels in host memory to tensors of any backend and back: one kernel in its stream.

The pixels go into a buffer of the backend and are converted there, by the same formula that textures are. The
last few conversions stay recorded.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from engine.api.textures.conversion_kernels import (
    Conversion,
    ConversionKernel,
    stitch_recipe,
    to_image_kernel,
    to_tensor_kernel,
)
from engine.backends.base import Backend, DeviceBuffer, Program
from engine.compiler.plan import BufferSpec, Plan, Role, Step

# A recorded conversion keeps its buffers.
_KEPT = 8


@dataclass
class _Recorded:
    """A conversion that can be run again: buffers by name, and what runs over them."""

    program: Program
    buffers: dict[str, DeviceBuffer]
    outside: DeviceBuffer
    """The tensor's own buffer, which is not to be released."""

    def release(self) -> None:
        self.program.release()
        for buffer in self.buffers.values():
            if buffer is not self.outside:
                buffer.release()


@dataclass
class HostConversions:
    """The conversions of one backend's stream."""

    _recorded: OrderedDict[Hashable, _Recorded] = field(default_factory=OrderedDict)

    @staticmethod
    def of(backend: Backend) -> HostConversions:
        """The conversions of a backend, created on first use."""
        return _conversions.setdefault(backend, HostConversions())

    def to_tensor(
        self, backend: Backend, pixels: np.ndarray, conversion: Conversion, buffer: DeviceBuffer
    ) -> None:
        """Fill a tensor's buffer with all images of a grid, or an image of it with one."""
        grid, transform, shape, slot = conversion
        key = ("in", conversion, id(buffer))

        def record() -> _Recorded:
            given = {"texels": backend.create(grid.size, grid.storage), "tensor": buffer}
            if slot is None:
                return _record(backend, [(to_tensor_kernel(grid, transform, shape), "tensor")], given)
            part = buffer.elements // shape[0]
            convert = to_tensor_kernel(grid, transform, (1, *shape[1:]))
            stitch = stitch_recipe(buffer.elements, slot * part, (slot + 1) * part, buffer.dtype.name)
            return _record(backend, [(convert, "new"), (stitch, "stitched")], given)

        recorded = self._find(key, buffer, record)
        with backend.entered():
            backend.upload(recorded.buffers["texels"], pixels)
            backend.run(recorded.program)
            if slot is not None:
                backend.copy(recorded.buffers["stitched"], buffer)
            backend.flush()

    def to_pixels(self, backend: Backend, buffer: DeviceBuffer, conversion: Conversion) -> DeviceBuffer:
        """An image of a tensor as pixels, in a buffer that the next such call overwrites."""
        key = ("out", conversion, id(buffer))

        def record() -> _Recorded:
            recipe = to_image_kernel(conversion, buffer.dtype.name)
            return _record(backend, [(recipe, "pixels")], {"tensor": buffer})

        recorded = self._find(key, buffer, record)
        with backend.entered():
            backend.run(recorded.program)
        return recorded.buffers["pixels"]

    def _find(self, key: Hashable, outside: DeviceBuffer, record: Callable[[], _Recorded]) -> _Recorded:
        recorded = self._recorded.get(key)
        if recorded is not None and recorded.outside is outside:
            self._recorded.move_to_end(key)
            return recorded
        made = self._recorded[key] = record()
        while len(self._recorded) > _KEPT:
            self._recorded.popitem(last=False)[1].release()
        return made


_conversions: weakref.WeakKeyDictionary[Backend, HostConversions] = weakref.WeakKeyDictionary()


def _record(
    backend: Backend, steps: Sequence[tuple[ConversionKernel, str]], given: dict[str, DeviceBuffer]
) -> _Recorded:
    """Record steps (recipe, name of the output) over buffers `given` by name; creates their outputs.

    An output that a later step reads is a temporary.
    """
    plan, buffers = Plan(), dict(given)
    for name, buffer in given.items():
        plan.buffers[name] = BufferSpec(name, buffer.elements, buffer.dtype, "input")
    for number, (recipe, output) in enumerate(steps):
        kernel, values, inputs = recipe.call
        names = tuple(value.name for value in inputs)
        plan.steps.append(Step("texture", "Texture", kernel, recipe.space, values, names, output))
        is_read = any(v.name == output for later, _ in steps[number + 1 :] for v in later.call.inputs)
        role: Role = "temporary" if is_read else "output"
        elements, dtype = prod(recipe.space), np.dtype(kernel.dtype)
        plan.buffers[output] = BufferSpec(output, elements, dtype, role)
        if not is_read and output not in given:
            buffers[output] = backend.create(elements, dtype)
    return _Recorded(backend.record(plan, buffers), buffers, given["tensor"])
