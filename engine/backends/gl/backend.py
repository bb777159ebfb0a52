"""`GLBackend`: the common base of the compute and fragment shader backends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import pairwise
from time import perf_counter
from typing import Any, ClassVar, Protocol

import numpy as np

from engine.backends.base import Backend, DeviceBuffer, DeviceLimit, Program
from engine.backends.gl.commands import CallList, Replayer
from engine.backends.gl.memory import GLBuffer
from engine.backends.gl.programs import ProgramStore
from engine.backends.gl.record import GLProgram
from engine.backends.gl.storage import STORAGE_FORMATS, memory_dtype, to_memory, type_refusal
from engine.backends.gl.timing import ObservedCommands
from engine.backends.gpu.integers import check_integers
from engine.backends.plan_template import Template
from engine.base import instrumentation
from engine.base.errors import InputError, OutOfMemoryError
from engine.base.generators import SmallSteps, finish, within
from engine.compiler.loop_splitting import Temporary, split
from engine.compiler.plan import Compute, Plan
from engine.compiler.split_reduction import GRAPHICS, SplitThresholds, split_reductions
from engine.device.gl.device import GLDevice
from engine.device.gl.fence import Fence
from engine.device.gl.limits import UNLIMITED
from engine.kernels.expr import Expr, nodes
from engine.kernels.value import Value

# The time of a graphics card as a fraction of the estimate for one processor core.
_HARDWARE_RATE = 0.02

SOFTWARE = SplitThresholds(threads=32, terms=1024, work=1 << 16, with_open_spaces=False)
"""What is worth spreading where the processor draws: it has a few vectors of elements at once."""


class PlanRecorder(Protocol):
    """Records the steps of one plan as GL calls."""

    def recording(self, plan: Plan, buffers: Mapping[str, DeviceBuffer]) -> SmallSteps[GLProgram]:
        """Record the plan, one step at a time; `buffers` holds every tensor that is not temporary."""
        ...


class GLBackend(Backend):
    """One stream of work on a `GLDevice`, whose thread it belongs to."""

    whole_layers = frozenset({"loop"})
    keeps_int64: ClassVar[bool] = False
    storage_types: ClassVar[Sequence[str]] = tuple(STORAGE_FORMATS)

    def __init__(self, device: GLDevice, fan_in: int) -> None:
        self.device = device
        self.fan_in = fan_in
        self.replayer = Replayer()
        if not device.info.is_software:
            self.initial_cost_scale = _HARDWARE_RATE

    @property
    def setting(self) -> str:
        """The device properties on which plans depend."""
        info = self.device.info
        return f"{info} {info.is_software} {self.device.limits} {self.fan_in}"

    @classmethod
    def preload(cls) -> None:
        """The native code that replays command lists."""
        Replayer().wait()

    @abstractmethod
    def elements_per_invocation(self, dtype: np.dtype) -> int:
        """Elements that one shader invocation of a generic kernel computes."""

    @abstractmethod
    def size_refusal(self, compute: Compute, formula: Sequence[Expr], values: Sequence[Value]) -> str | None:
        """Which of the device's limits a step exceeds, or None.

        formula: its nodes. values: its output, then the tensors that it reads.
        """

    def refusal(self, compute: Compute) -> str | None:
        """Refuse types that GLSL lacks, too many inputs, and sizes beyond the device's limits."""
        reason = self._refusal(compute)
        if reason is not None or (compute.hint is not None and compute.hint.is_bound):
            return reason
        parts = self._parts(compute, partial(Value, "a part of it"))
        if parts is None:
            most, name = self.device.limits.max_loop_rounds, self.device.info.renderer
            return DeviceLimit(f"one of its loops cannot be split, and {name} ends loops after {most} rounds")
        return next(filter(None, (self._refusal(part) for part in parts if part is not compute)), None)

    def _refusal(self, compute: Compute) -> str | None:
        tail = () if compute.epilogue is None else (compute.epilogue,)
        formula = list(nodes(compute.body, *tail))
        inputs = {node.attr for node in formula if node.op == "load"}
        reason = type_refusal([compute.output.dtype, *(v.dtype for v in inputs)])
        if reason is not None:
            return reason
        if any(node.dtype == "float64" for node in formula):
            return "GLSL kernels do not compute in float64"
        if len(inputs) > self.fan_in:
            return f"it reads {len(inputs)} tensors at once; a shader here can bind {self.fan_in}"
        return self.size_refusal(compute, formula, (compute.output, *inputs))

    def split(self, compute: Compute, temporary: Temporary) -> Sequence[Compute]:
        """Long reductions to few elements become several kernels, as do loops too long for the driver."""
        width = SOFTWARE if self.device.info.is_software else GRAPHICS
        found: list[Compute] = []
        for part in split_reductions(compute, width, self.fan_in, temporary):
            parts = self._parts(part, temporary)
            assert parts is not None, f"{compute.layer} was refused"
            found += parts
        return found

    def _parts(self, compute: Compute, temporary: Temporary) -> Sequence[Compute] | None:
        most = self.device.limits.max_loop_rounds
        if most >= UNLIMITED:
            return [compute]
        count = self.elements_per_invocation(compute.output.dtype)
        # A shader that yields several elements has one loop more, over them.
        return split(compute, most if count == 1 else most // count - 2, temporary)

    def holds(self, dtype: np.dtype) -> bool:
        """Return whether a type can be stored: all but float64 and non-numbers."""
        return type_refusal([dtype]) is None

    def element_dtype(self, dtype: np.dtype) -> np.dtype:
        """32-bit integers for 64-bit ones; bytes for bool and smaller types."""
        return memory_dtype(dtype)

    @property
    @abstractmethod
    def programs(self) -> ProgramStore[Any]:
        """The compiled programs."""

    def background_opening(self) -> Callable[[], None] | None:
        """Return a function that creates a shared context, if any thread may do so."""
        return self.device.shared_maker()

    @contextmanager
    def background_compilation(self) -> Iterator[Callable[[], AbstractContextManager[Any]]]:
        """Context manager: a shared context for the compiling thread."""
        shared = self.device.borrow_shared()
        try:
            yield lambda: self.programs.compiled_in(shared)
        finally:
            self.device.give_back_shared(shared)

    @abstractmethod
    def write(self, buffer: DeviceBuffer, elements: np.ndarray) -> None:
        """Set a buffer's value to elements in storage format (`to_memory`), in stream order."""

    @abstractmethod
    def move(self, source: DeviceBuffer, target: DeviceBuffer, elements: int) -> None:
        """Copy the first elements on the device, in stream order."""

    def upload(self, buffer: DeviceBuffer, data: np.ndarray) -> None:
        """Set a buffer's value, in stream order. Raises `InputError` for integers beyond 32 bits."""
        given = checked_elements(data, buffer.dtype, buffer.elements)
        if given.nbytes:
            self.write(buffer, given)

    def copy(self, source: DeviceBuffer, target: DeviceBuffer) -> None:
        """Copy on the device."""
        if source.elements:
            self.move(source, target, min(source.elements, target.elements))

    def preallocate_transfers(self, elements: int, dtype: np.dtype, upload: bool) -> None:
        """Create staging buffers."""
        self.device.staging.create_ahead(
            elements * memory_dtype(dtype).itemsize, upload, self.programs.context
        )

    def share(self, buffer: DeviceBuffer, elements: int) -> DeviceBuffer | None:
        """A buffer over the first elements of another."""
        assert isinstance(buffer, GLBuffer), "a buffer of another backend"
        return buffer.part(elements)

    def check_memory(self) -> None:
        """Check for OpenGL's out-of-memory error, which does not stop later calls."""
        try:
            self.programs.context.check_errors("making room for a tensor")
        except OutOfMemoryError:
            # Memory that templates share may be what failed to allocate: the next program gets other memory.
            for memory in self.shared_temporaries():
                memory.drop()
            raise

    @abstractmethod
    def recorder(self) -> PlanRecorder:
        """A recorder of one plan."""

    @abstractmethod
    def open_template(self, plan: Plan, constants: Mapping[str, DeviceBuffer]) -> Template:
        """Record a plan with symbolic sizes and without repeated steps."""

    def fits_template(self, plan: Plan) -> bool:
        """Whether a plan with symbolic sizes can be recorded once: if it repeats no steps."""
        return not plan.repeats

    def template(self, plan: Plan, constants: Mapping[str, DeviceBuffer]) -> Template:
        """Record a plan with symbolic sizes; compiles what `prepare` has not compiled."""
        self.prepare(plan.kernels)
        if not self.fits_template(plan):
            return super().template(plan, constants)
        with self.programs.context.current():
            return self.open_template(plan, constants)

    def record(self, plan: Plan, buffers: Mapping[str, DeviceBuffer]) -> GLProgram:
        """Record a plan as a command list; compiles programs that `prepare` did not."""
        with self.device.current():
            return finish(self.recording(plan, buffers))

    def recording(self, plan: Plan, buffers: Mapping[str, DeviceBuffer]) -> SmallSteps[GLProgram]:
        """`record`, a step of the plan at a time."""
        self.prepare(plan.kernels)
        yield None
        return (yield from within(self.device.current, self.recorder().recording(plan, buffers)))

    def run(self, program: Program) -> None:
        """Issue a recorded plan."""
        assert isinstance(program, GLProgram)
        program.check()
        with self.device.current():
            self.device.staging.fence_uploads()
            watched = ObservedCommands(self.device, self.name) if instrumentation.installed else None
            self.replayer.run(program.commands)
            if watched is not None:
                watched.end()

    def time_steps(self, program: Program, plan: Plan) -> list[float]:
        """Run a recorded plan step by step, the device idle before and after each; seconds of each step.

        That includes the waiting, some microseconds. (Timer queries would not, but where the processor draws
        they tell when work was queued.)
        """
        assert isinstance(program, GLProgram)
        program.check()
        starts = program.commands.steps
        times = []
        with self.device.current():
            self.replayer.run(program.commands, 0, starts[0] if starts else 0)
            for first, end in pairwise([*starts, len(program.commands)]):
                self.synchronize()
                before = perf_counter()
                self.replayer.run(program.commands, first, end)
                if end > first:
                    self.synchronize()
                times.append(perf_counter() - before if end > first else 0.0)
        assert len(times) == len(plan.steps)
        return times

    def join(self, programs: Sequence[Program]) -> Callable[[], None]:
        """All their calls in one replay."""
        own = [program for program in programs if isinstance(program, GLProgram)]
        one_by_one = super().join(programs)
        joined = CallList.joined([program.commands for program in own])

        def run() -> None:
            if instrumentation.installed:
                one_by_one()
                return
            for program in own:
                program.check()
            with self.device.current():
                self.replayer.run(joined)

        return run

    def entered(self) -> AbstractContextManager[Any]:
        """Context manager: keeps the context current."""
        return self.device.current()

    def flush(self) -> None:
        """Flush issued commands to the driver."""
        with self.device.current():
            self.device.gl.glFlush()

    def synchronize(self) -> None:
        """Block until the device is idle."""
        with self.device.current():
            Fence(self.device).wait()

    def let_go(self, buffers: Sequence[DeviceBuffer]) -> None:
        """Leave buffers to the device, which deletes a few each time that it is entered."""
        for buffer in buffers:
            self.device.call_later(buffer.release)

    def dispose(self) -> None:
        """Start freeing released resources; programs stay with the device for other workers."""
        if not self.device.is_disposed:
            with self.device.current(flush=False):
                pass


def checked_elements(data: np.ndarray, dtype: np.dtype, elements: int) -> np.ndarray:
    """Convert a value to storage format; raises `InputError` for invalid values and large integers."""
    if data.dtype != dtype or data.size != elements:
        raise InputError(f"expected {elements} elements of {dtype}, got {data.size} of {data.dtype}")
    check_integers(data)
    return to_memory(data)
