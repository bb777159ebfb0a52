"""Every exception that the engine raises on bad input, bad state or a missing capability.

All derive from `EngineError`, so a game can catch one class. Each message names the subject (file,
layer, tensor), what was expected, what was received, and the way out.
"""

from __future__ import annotations


class EngineError(Exception):
    """Base class of every exception that the engine and the game side raise on purpose.

    Catch it to handle all of them; the message says what to do.
    """


class ModelImportError(EngineError):
    """A model file is missing, damaged or unsafe, or uses operators that the engine lacks.

    The message names the file and every layer concerned. Export the model again as it says (opset, types),
    or supply a missing operator with `numpy_operator`.
    """


class UnsupportedLayerError(EngineError):
    """A layer has no implementation on the requested backend, and fallback is not allowed.

    Leave `allow_fallback` at `True`, which runs such layers on the CPU, or choose another backend.
    """


class InputError(EngineError, ValueError):
    """An argument or an input of a worker or tensor has the wrong name, shape, dtype or range.

    The message names the input and what it expects; `gameglue inspect MODEL` lists a model's inputs.
    """


class ShapeError(EngineError, ValueError):
    """Shapes or attributes of a layer do not fit each other; the message names the layer.

    Check the sizes of the inputs that were given: a model may work for some sizes only.
    """

    size_conflicts: tuple[tuple[int, int], ...] = ()
    """Sizes that do not fit, each with one that would, where the layer can tell."""


class KernelCompileError(EngineError):
    """A compiler refused a kernel's source; the error carries the source with line numbers.

    In a job of your own, write the line as arithmetic on numbers and arrays. Otherwise try another backend,
    update the driver, and see `gameglue doctor` for known faults.
    """


class DeviceError(EngineError):
    """An OpenGL context or OpenCL device is missing, too old, or lost.

    Run `gameglue doctor`, which says what to install, or choose another backend.
    """


class OutOfMemoryError(DeviceError):
    """A tensor does not fit into the memory of the device, or of the computer.

    Use smaller inputs or a smaller batch, or dispose workers and tensors that are no longer needed.
    """


class ThreadError(DeviceError):
    """A worker, tensor or device was used on another thread than its own.

    Use it on the thread that created it, and pass arrays between threads.
    """


class DisposedError(EngineError):
    """A worker, tensor or device was used after `dispose()`.

    Keep the owner until the last use; `copy_output` gives a tensor that outlives its worker.
    """


class StaleTensorError(EngineError):
    """A tensor from `peek_output` was used after a newer `schedule` or `take_outputs` ended its validity.

    Call `peek_output` again, request the readback before the next `schedule`, or use `copy_output`. Outputs
    that were taken are the caller's; the worker has some again after its next `schedule`.
    """


class ShapePending(EngineError):
    """The shape depends on data that is still being computed.

    Poll `shape_or_none`, which does not raise, or await a readback.
    """


class ValuePending(EngineError):
    """The value has not arrived from the backend yet.

    Await a readback, poll `is_readback_request_done()`, or call a method that waits for it.
    """


class CancelledError(EngineError):
    """An inference or a load was cancelled before it was complete.

    Expected after `cancel()` or `dispose()`; catch it where the result is awaited.
    """
