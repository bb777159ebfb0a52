"""`Backend`: holds buffers, runs plans in order, and reads back, all without waiting.

All operations of one backend object form one ordered stream: a readback sees the value as it is at
that point of the stream, regardless of later schedules. Nothing here waits except `Readback.wait`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from enum import Enum, EnumType
from math import prod
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from engine.backends.growable_memory import GrowableMemory
from engine.backends.partial_dispatch import PartialDispatch
from engine.backends.plan_codec import PlanCodec
from engine.backends.plan_template import PlanTemplate, Template
from engine.backends.program_runner import ProgramRunner
from engine.backends.readback import PendingRead, Readback, ShapedRead, check_out
from engine.backends.tensor_data import CPUTensorData
from engine.base.dtypes import STORAGE_TYPES
from engine.base.generators import SmallSteps
from engine.base.spelling import SpellingType
from engine.compiler.loop_splitting import Temporary
from engine.compiler.passes import Pass, fold_weights
from engine.compiler.plan import AnyKernel, Compute, Plan, RepeatedSteps, Step, Tuner

Progress = Callable[[int, int], None]
"""Called with (kernels ready, kernels wanted)."""

Storage = Literal["memory", "buffer", "texture", "other"]
"""How users reach a tensor on a backend: as memory of the process, as a GPU buffer, as a texture, or not."""

Precision = Literal["float32", "bf16", "int8"]
"""How exactly the CPU backend computes matrix products and convolutions; all else it computes in float32."""


class _SpellingEnumType(SpellingType, EnumType):
    """Metaclass of `BackendType`: errors for unknown members suggest the likely one."""


class BackendType(Enum, metaclass=_SpellingEnumType):
    """Where a worker runs its model."""

    CPU = "cpu"
    """Native jobs on the processor's cores."""
    GPU_COMPUTE = "gpu_compute"
    """GL compute shaders on the game's context, or OpenCL."""
    GPU_PIXEL = "gpu_pixel"
    """GL fragment shaders; needs OpenGL 3.3 only."""
    GPU_COMMAND_BUFFER = "gpu_compute"
    """Another name of GPU_COMPUTE, for those who come from the 1.x interface."""


Read = Callable[[np.ndarray | None], np.ndarray]
"""Waits for a tensor and returns it, as an array of its own or written into the one that is given."""

_NOTHING: AbstractContextManager[Any] = nullcontext()


class DeviceBuffer(ABC):
    """Memory of a backend: `elements` values that the user sees as `dtype`."""

    elements: int
    dtype: np.dtype

    def memory_bytes(self) -> int:
        """Size in bytes on the device."""
        return self.elements * self.dtype.itemsize

    def block(self) -> tuple[int, int]:
        """The memory block: a number that buffers over the same memory share, and its bytes."""
        return id(self), self.memory_bytes()

    @abstractmethod
    def release(self) -> None:
        """Release the memory once the work enqueued so far is done with it. May be called twice."""


class Program(ABC):
    """A plan recorded as a flat command list, ready to be replayed by `Backend.run`."""

    @abstractmethod
    def release(self) -> None:
        """Free the temporaries and the recorded commands."""

    def temporaries(self) -> Mapping[int, int]:
        """Bytes of its temporaries by memory identifier; programs may share memory."""
        return {}


class PendingCompilation(Protocol):
    """A background compilation of kernels."""

    def done(self) -> bool:
        """Whether nothing is left to wait for."""
        ...

    @property
    def missing(self) -> int:
        """How many kernels are not ready."""
        ...

    def result(self) -> object:
        """Wait for the rest. Raises the error of a rejected kernel."""
        ...


class DeviceLimit(str):
    """A refusal because of the sizes of a step; the device may run it at smaller sizes."""

    __slots__ = ()


class Backend(ABC):
    """One ordered stream of work on one device."""

    name: ClassVar[str]
    """As in `engine.backends.table`: "cpu", "gl_compute", "gl_pixel", "opencl"."""

    is_host: ClassVar[bool] = False
    """Whether its work is jobs on memory of the process; then it is a `HostBackend`."""

    storage: ClassVar[Storage] = "other"
    """What its tensors are to users; see `engine.runtime.device_tensor_data`."""

    shares: ClassVar[bool] = False
    """Whether `share` gives buffers over a part of others."""

    plans_for_all_sizes: ClassVar[bool] = True
    """Whether models are planned once with symbolic sizes, see `template`."""

    chooses_by_size: ClassVar[bool] = False
    """Whether `tune` takes other kernels for other sizes, so that more sizes are planned while loading."""

    fan_in: int = 7
    """How many tensors one kernel may read here."""

    whole_layers: frozenset[str] = frozenset()
    """Kinds of hints that `tune` always takes, so that a definition may omit their formula."""

    has_byte_tables: bool = False
    """Whether looking bytes up in a table takes less time here than functions of floats."""

    tuned_kinds: frozenset[str] | None = None
    """Kinds of hints for which `tune` has rules, where kernels take less time that also compute their
    operands (`engine.compiler.operand_fusion`); else None.
    """

    initial_cost_scale: float = 1.0
    """What `estimate` is multiplied by as long as nothing was measured."""

    passes: ClassVar[tuple[Pass, ...]] = (fold_weights,)
    """What rewrites a model for this backend, after the passes that all have in common."""

    keeps_int64: ClassVar[bool] = True
    """Whether 64-bit integers have 64 bits here; else inputs and constants are checked for 32."""

    storage_types: ClassVar[Sequence[str]] = STORAGE_TYPES
    """The element types that tensors may have here; the CPU takes steps over others."""

    @classmethod
    def device_for(cls, device: Any) -> Any:
        """Return the device to run on: the given one, or the default for None.

        Raises `DeviceError` where there is none on which kernels run. A backend without devices has one for
        all workers, the class itself.
        """
        return cls if device is None else device

    @classmethod
    def on(cls, device: Any) -> Backend:
        """A new stream of work on a device that `device_for` has returned."""
        make: Callable[[Any], Backend] = cls
        return make(device)

    @classmethod
    def preload(cls) -> None:
        """Initialise what the first instance would otherwise wait for; any thread may call this."""

    @property
    def owner(self) -> Any:
        """The `GLDevice`, `CLDevice` or `JobSystem` that does the work."""
        return getattr(self, "device", None) or getattr(self, "jobs", None)

    @abstractmethod
    def refusal(self, compute: Compute) -> str | None:
        """Why this backend cannot run a step: its types, or, as a `DeviceLimit`, its sizes; or None."""

    def holds(self, dtype: np.dtype) -> bool:
        """Whether the backend can store tensors of a type."""
        return True

    def element_dtype(self, dtype: np.dtype) -> np.dtype:
        """The NumPy type in which elements are stored, for supported types."""
        return dtype

    @abstractmethod
    def tune(self, compute: Compute, tuner: Tuner) -> bool:
        """Replace the step by tuned kernels through `tuner`; False leaves it to the generic kernel.

        The choice may depend on the hint's attributes, dtypes, `Value.signature` and known operands, not on
        sizes that vary with the input shapes: a new input shape must not need a new kernel.
        """

    def restrict_to_window(self, step: Step) -> Step:
        """A generic step that computes only its window: see `engine.compiler.repeated_steps`."""
        return step

    def merge_repeat(self, steps: Callable[[], Sequence[Step]]) -> tuple[Step, int] | None:
        """Merge generic steps and the repeat after them into a single step; None if impossible.

        `steps` makes them. With the step comes 1 where it takes less time than they do, else 0: a number that
        may be open, as sizes are.
        """
        return None

    def merge_steps(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Merge small adjacent steps of an iteration. Their sizes are fixed."""
        return steps

    def split(self, compute: Compute, temporary: Temporary) -> Sequence[Compute]:
        """The generic kernels of a step that `tune` did not replace: several if one would run too long.

        Or where several have more work at once.
        """
        return [compute]

    def generic(self, compute: Compute) -> Step:
        """The generic step of a formula, or this backend's variant of it."""
        return compute.as_step()

    @abstractmethod
    def prepare(self, kernels: Iterable[AnyKernel], progress: Progress | None = None) -> int:
        """Compile missing kernels and return their number. Blocks: for loading only."""

    def prepare_async(self, kernels: Iterable[AnyKernel]) -> PendingCompilation | None:
        """Start compiling missing kernels in the background; None if none are missing.

        A backend that cannot do so compiles now. `prepare` has to follow once the rest is done.
        """
        self.prepare(kernels)
        return None

    def prepare_cached(self, words: Mapping[str, int]) -> bool:
        """Load cached kernels by their keys; False if one is no longer cached.

        Args:
            words: by key, how many words of arguments a kernel is called with; 0 where that is not known.
        """
        return False

    def plan_codec(self) -> PlanCodec | None:
        """The codec for the plan store; None if plans of this backend are not stored."""
        return None

    @abstractmethod
    def create(self, elements: int, dtype: np.dtype, data: np.ndarray | None = None) -> DeviceBuffer:
        """A new buffer, filled with `data` (any shape, row-major) if given."""

    def create_unset(self, elements: int, dtype: np.dtype) -> DeviceBuffer:
        """Create an uninitialized buffer, which is written before it is read."""
        return self.create(elements, dtype)

    def share(self, buffer: DeviceBuffer, elements: int) -> DeviceBuffer | None:
        """A buffer over the first elements of another; None if that has too few or cannot be shared.

        Only for what the stream uses in turn.
        """
        return None

    def preallocate_transfers(self, elements: int, dtype: np.dtype, upload: bool) -> None:
        """Allocate resources for a coming upload or readback; on any thread, as `create`."""

    def shared_temporaries(self) -> Sequence[GrowableMemory[Any, Any]]:
        """The memory for temporaries shared by all template programs."""
        return ()

    def check_memory(self) -> None:
        """Raise `OutOfMemoryError` if the driver ran out of memory for a buffer. May wait."""

    def constant(self, array: np.ndarray) -> DeviceBuffer:
        """A buffer with the elements of `array` that nothing will write. It may be the array's own memory."""
        return self.create(array.size, array.dtype, array)

    def let_go(self, buffers: Sequence[DeviceBuffer]) -> None:
        """Release all buffers of a disposed worker in bounded time."""
        for buffer in buffers:
            buffer.release()

    @abstractmethod
    def upload(self, buffer: DeviceBuffer, data: np.ndarray) -> None:
        """Set a buffer's value, in stream order. `data` is copied before this returns."""

    def upload_all(self, uploads: Sequence[tuple[DeviceBuffer, np.ndarray]]) -> None:
        """`upload` for several buffers."""
        for buffer, data in uploads:
            self.upload(buffer, data)

    @abstractmethod
    def copy(self, source: DeviceBuffer, target: DeviceBuffer) -> None:
        """Copy a whole buffer on the device, in stream order."""

    def copied(self, source: DeviceBuffer) -> DeviceBuffer:
        """A new buffer with the value of another, copied in stream order."""
        target = self.create_unset(source.elements, source.dtype)
        self.copy(source, target)
        return target

    @abstractmethod
    def record(self, plan: Plan, buffers: Mapping[str, DeviceBuffer]) -> Program:
        """Record a plan as a command list. `buffers` binds inputs, outputs and constants by name."""

    def recording(self, plan: Plan, buffers: Mapping[str, DeviceBuffer]) -> SmallSteps[Program]:
        """`record` in small parts, between which the caller may do something else."""
        yield None
        return self.record(plan, buffers)

    def template(self, plan: Plan, constants: Mapping[str, DeviceBuffer]) -> Template:
        """Record a plan with symbolic sizes; its kernels are compiled.

        Within `background_compilation`, another thread may call this.
        """
        return PlanTemplate(self, plan, constants)

    def background_compilation(self) -> AbstractContextManager[Callable[[], AbstractContextManager[Any]]]:
        """Context manager for calling `prepare` on another thread: yields one to enter there."""
        return nullcontext(nullcontext)

    def background_opening(self) -> Callable[[], None] | None:
        """What to call on another thread so that `background_compilation` opens without delay; or None."""
        return None

    @abstractmethod
    def run(self, program: Program) -> None:
        """Enqueue a recorded plan."""

    def clear_temporaries(self, program: Program) -> None:
        """Fill a program's temporaries with zeros, in stream order."""

    @abstractmethod
    def partial_dispatch(self, program: Program, plan: Plan) -> PartialDispatch:
        """Prepare a recorded plan to be enqueued in parts; cheap, records nothing yet."""

    @abstractmethod
    def estimate(self, step: Step) -> float:
        """Estimated nanoseconds of a step, meaningful relative to other steps of this backend."""

    def estimate_repeated(self, step: Step) -> float:
        """`estimate` of a step that repeats others."""
        assert isinstance(step.kernel, RepeatedSteps)

        def sizes(inner: Step) -> Step:
            return (
                inner if inner.window is None else replace(inner, space=(inner.window.elements,), window=None)
            )

        runs = prod(step.space)
        return sum(
            self.estimate(sizes(inner)) * times
            for steps, times in ((step.kernel.body, runs), (step.kernel.last, 1))
            for inner in steps
        )

    @abstractmethod
    def time_steps(self, program: Program, plan: Plan) -> list[float]:
        """Run a recorded plan to its end and return the seconds of each step.

        Steps without elements take none. Blocks: for measuring tools only.
        """

    @abstractmethod
    def readback(self, buffer: DeviceBuffer, elements: int | None = None) -> Readback:
        """Start a copy of the buffer's first `elements`, or all, as of now in the stream, to the CPU."""

    def program_runner(
        self,
        program: Program,
        targets: Sequence[DeviceBuffer | None],
        in_place: Sequence[bool],
    ) -> ProgramRunner:
        """Return a faster way to run the program for arrays of the same shapes, written into `targets`.

        An array without a target is dropped. Where an array is that of a tensor and `in_place` allows it, the
        program may read it there: then nothing else reads that target.
        """
        return ProgramRunner()

    def reader(self, buffer: DeviceBuffer, shape: tuple[int, ...]) -> Read:
        """Return a function that waits for the buffer's current value and returns it in a shape."""

        def read(out: np.ndarray | None = None) -> np.ndarray:
            with self.entered():
                readback = self.readback(buffer, prod(shape))
                self.flush()
            if out is not None:
                check_out(out, shape, buffer.dtype)
            readback.wait()
            if out is None:
                return readback.array().reshape(shape)
            readback.into(out)
            return out

        return read

    def sized_reader(self, buffer: DeviceBuffer, shape: Callable[[], tuple[int, ...]]) -> Read:
        """As `reader`, with a shape that is computed when the returned function is called."""
        return lambda out: self.reader(buffer, shape())(out)

    def requester(self, buffer: DeviceBuffer, shape: tuple[int, ...]) -> Callable[[], PendingRead]:
        """Return a reusable function that starts a readback of the buffer in a shape."""

        def request() -> PendingRead:
            with self.entered():
                readback = self.readback(buffer, prod(shape))
                self.flush()
            return ShapedRead(readback, shape)

        return request

    def join(self, programs: Sequence[Program]) -> Callable[[], None]:
        """Return a reusable function that runs programs one after another."""

        def run() -> None:
            for program in programs:
                self.run(program)

        return run

    @abstractmethod
    def flush(self) -> None:
        """Ensure that enqueued work runs without further calls."""

    def entered(self) -> AbstractContextManager[Any]:
        """Context manager: several calls share one change of GL context."""
        return _NOTHING

    def fence(self) -> Any:
        """A fence in this stream, for another stream's `after`; None if the device has one stream."""
        return None

    def can_wait_for(self, mark: Any) -> bool:
        """Whether enqueued work can wait for a job; see `upload_after`."""
        return False

    def upload_after(self, buffer: DeviceBuffer, data: CPUTensorData) -> None:
        """Set a buffer's value, in stream order, to elements that a job is still writing.

        Where the stream cannot wait for that job (`can_wait_for`), this blocks until it is done.
        """
        self.upload(buffer, data.elements if data.fence is None else data.download())

    def after(self, mark: Any) -> None:
        """Make later work wait for `mark`, a fence of another stream."""

    def synchronize(self) -> None:
        """Block until everything enqueued has run. For tests and disposal, never in a frame."""

    @abstractmethod
    def dispose(self) -> None:
        """Free everything that this backend object still owns."""
