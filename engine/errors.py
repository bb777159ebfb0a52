"""Every exception that the engine raises on bad input, bad state or a missing capability.

All derive from `EngineError`, so a game can catch one class. Each message names the subject (file,
layer, tensor), what was expected, what was received, and the way out.
"""

from __future__ import annotations


class EngineError(Exception):
    """Base class of every exception that the engine raises on purpose."""


class ModelImportError(EngineError):
    """A model file cannot be read: missing, damaged, unsafe, or it uses what the engine lacks."""


class UnsupportedLayerError(EngineError):
    """A layer has no implementation on the requested backend, and fallback is not allowed."""


class InputError(EngineError, ValueError):
    """An input handed to a worker or tensor has the wrong name, shape, dtype or range."""


class ShapeError(EngineError, ValueError):
    """Shapes or attributes of a layer contradict each other; the message names the layer."""

    misfits: tuple[tuple[int, int], ...] = ()
    """Sizes that do not fit, each with one that would, where the layer can tell."""


class KernelCompileError(EngineError):
    """A printed kernel was refused by its compiler; carries the numbered source."""


class DeviceError(EngineError):
    """A device (GL context, OpenCL platform) is absent, too old, or lost."""


class OutOfMemoryError(DeviceError):
    """A tensor does not fit into the memory of the device, or of the computer."""


class ThreadError(DeviceError):
    """A worker, tensor or device was used on another thread than its own."""


class DisposedError(EngineError):
    """A worker, tensor or device was used after `dispose()`."""


class StaleTensorError(EngineError):
    """A tensor peeked from a worker was used after a newer `schedule` replaced its value."""


class ShapePending(EngineError):
    """The shape depends on data that is still being computed; `shape_or_none` does not raise."""


class ValuePending(EngineError):
    """The value is still on its way from the backend; request a readback or download it first."""


class CancelledError(EngineError):
    """An inference was cancelled before all of its work was enqueued, or a load before its end."""
