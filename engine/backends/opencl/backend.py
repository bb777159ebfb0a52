"""`OpenCLBackend`: one in-order queue, kernels with preset arguments, non-blocking transfers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from time import perf_counter
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from engine.backends.base import Backend, DeviceBuffer, DeviceLimit, Program, Progress, Readback, Storage
from engine.backends.cost import formula_ns
from engine.backends.gpu.integers import check_integers
from engine.backends.gpu.repeated_kernel import is_small, neighbours, repeated_kernel
from engine.backends.opencl.codegen.repeated_kernel import print_merged, print_repeated, work_alone
from engine.backends.opencl.codegen.row_kernel import fits, row_step
from engine.backends.opencl.codegen.storage import WORDS, device_dtype, to_device
from engine.backends.opencl.codegen.tuned_kernel import TunedKernel
from engine.backends.opencl.execution.dispatches import (
    CLProgram,
    Command,
    Repetition,
    command_count,
    dispatches,
    each,
)
from engine.backends.opencl.execution.memory import CLBuffer, CLReadback, TemporaryBuffer, Transfers
from engine.backends.opencl.execution.partial_dispatch import CLPartialDispatch
from engine.backends.opencl.execution.programs import ProgramStore
from engine.backends.opencl.execution.repeated_steps import Repeater
from engine.backends.opencl.execution.template import CLTemplate
from engine.backends.opencl.execution.timing import ObservedEvents
from engine.backends.opencl.tuning import TUNED_KINDS, tune
from engine.backends.plan_codec import PlanCodec
from engine.backends.plan_template import PlanTemplate, Template
from engine.base import instrumentation
from engine.base.cache import cache_dir
from engine.base.errors import InputError, OutOfMemoryError
from engine.base.generators import Offload, SmallSteps, finish
from engine.compiler.loop_splitting import Temporary
from engine.compiler.memory_planner import assign_slots
from engine.compiler.plan import AnyKernel, Compute, Plan, RepeatedSteps, Step, Tuner
from engine.compiler.split_reduction import GRAPHICS, SplitThresholds, split_reductions
from engine.device.cl.device import CLDevice
from engine.kernels.expr import nodes
from engine.kernels.kernel import Kernel

# Estimates: what starting a group takes, and a multiplication in a tuned kernel.
_GROUP_NS = 100.0
_PRODUCT_NS = 0.05
# Work-items that go through repeated steps, and the loop rounds of a run up to which one group does so.
# A processor runs the work-items of a group one after another, and PoCL loses stores between barriers.
_GROUP_SIZES = {"cpu": 1, "gpu": 256}
_MOST_WORK = {"cpu": 1 << 13, "gpu": 1 << 17}
_MOST_TOGETHER = 1 << 12
# OpenCL promises room for 1024 bytes of arguments, and a pointer takes 8.
_FAN_IN = 32

SOFTWARE = SplitThresholds(threads=256, terms=1024, work=1 << 16, with_open_spaces=False)
"""What is worth spreading on a processor: it runs a group of work-items on each core."""

# One queue serves all workers: OpenCL contexts cost time and memory, and streams of one queue are ordered.
_devices: WeakValueDictionary[str, CLDevice] = WeakValueDictionary()


class OpenCLBackend(Backend):
    """Runs plans on an OpenCL device.

    form: "cpu" or "gpu", which family of tuned kernels to use; by the device's kind if None. pinned: whether
    transfers go through pinned memory; by the device's kind if None.
    """

    name: ClassVar[str] = "opencl"
    storage: ClassVar[Storage] = "buffer"
    shares: ClassVar[bool] = True
    fan_in = _FAN_IN
    whole_layers = frozenset({"loop"})
    keeps_int64: ClassVar[bool] = False
    storage_types: ClassVar[Sequence[str]] = tuple(WORDS)

    def __init__(self, device: CLDevice, *, form: str | None = None, pinned: bool | None = None) -> None:
        device.check()
        self.device = device
        self.form = form or ("gpu" if device.info.is_gpu else "cpu")
        self.tuned_kinds = TUNED_KINDS
        if device.info.is_gpu:
            self.initial_cost_scale = 0.02
        self.programs = ProgramStore.of(device, cache_dir("opencl"))
        is_apart = device.info.is_gpu and not device.device.host_unified_memory
        self._transfers = Transfers.of(device, is_apart if pinned is None else pinned)
        # Temporaries of all programs of templates.
        self._slots: list[TemporaryBuffer] = []

    @classmethod
    def device_for(cls, device: CLDevice | None) -> CLDevice:
        """The device given, or the preferred one."""
        if device is not None:
            return device
        found = _devices.get("default")
        if found is None or found.is_disposed:
            found = _devices["default"] = CLDevice()
        return found

    def refusal(self, compute: Compute) -> str | None:
        """Why this device cannot run a step, or None."""
        formula = compute.formula()
        values = {node.attr for node in nodes(formula) if node.op == "load"} | {compute.output}
        if not self.device.info.has_double:
            types = {node.dtype for node in nodes(formula)} | {v.dtype.name for v in values}
            if "float64" in types:
                return f"{self.device.info.name} has no float64"
        if any(node.op == "bits" and "int64" in (node.dtype, node.args[0].dtype) for node in nodes(formula)):
            return "64-bit integers have 32 bits here, too few for the bits of a float64"
        for value in values:
            if value.dtype.name not in WORDS:
                return f"OpenCL kernels have no {value.dtype.name}"
            size = value.size * device_dtype(value.dtype).itemsize
            if size > self.device.limits.max_allocation:
                limit = self.device.limits.max_allocation
                name = self.device.info.name
                return DeviceLimit(f"{value} takes {size} bytes; a buffer of {name} holds {limit}")
            if value.size >= 1 << 31:
                return DeviceLimit(f"{value} has 2^31 elements or more, beyond 32-bit indices")
        if len(values) - 1 > _FAN_IN:
            return f"it reads {len(values) - 1} tensors; a kernel reads {_FAN_IN} at most"
        return None

    def element_dtype(self, dtype: np.dtype) -> np.dtype:
        """32-bit integers for 64-bit ones; bytes for bool and smaller types."""
        return device_dtype(dtype)

    def tune(self, compute: Compute, tuner: Tuner) -> bool:
        """Replace the step by tuned kernels through `tuner`; False leaves it to the generic kernel."""
        limits = self.device.limits
        if self.form == "gpu" and (limits.max_work_group_size < 256 or limits.local_memory < 16384):
            return False
        return tune(compute, tuner, self.form)

    def merge_repeat(self, steps: Callable[[], Sequence[Step]]) -> tuple[Step, int] | None:
        """Merge small iterations into one single-group kernel."""
        *before, step = steps()
        repeated = repeated_kernel(before, step)
        if repeated is None:
            return None
        kernel, values = print_repeated(repeated, step, _GROUP_SIZES[self.form])
        work = repeated.work if self.form == "gpu" else sum(map(work_alone, repeated.repeated.body))
        return repeated.as_step(step, kernel, values), is_small(work, _MOST_WORK[self.form])

    def merge_steps(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Merge small adjacent steps into one single-group kernel."""
        parts = neighbours(steps, _MOST_TOGETHER)
        size = _GROUP_SIZES[self.form]
        return [part[0] if len(part) == 1 else print_merged(part, size) for part in parts]

    def split(self, compute: Compute, temporary: Temporary) -> Sequence[Compute]:
        """Long reductions to few elements become several kernels."""
        return split_reductions(compute, GRAPHICS if self.form == "gpu" else SOFTWARE, self.fan_in, temporary)

    def generic(self, compute: Compute) -> Step:
        """Processors compute formulas over long rows row by row."""
        by_rows = self.form == "cpu" and fits(self.device.limits)
        return row_step(compute) if by_rows else compute.as_step()

    def prepare(self, kernels: Iterable[AnyKernel], progress: Progress | None = None) -> int:
        """Compile missing kernels and return their number. Blocks: for loading only."""
        wanted = {k.key: k for k in kernels if not self.programs.is_ready(k)}
        compiled = 0
        for position, kernel in enumerate(wanted.values(), 1):
            compiled += self.programs.load(kernel)
            if progress is not None:
                progress(position, len(wanted))
        return compiled

    def plan_codec(self) -> PlanCodec:
        """Kernels as formulas or programs, for this device."""
        info = self.device.info
        setting = f"{info} {sorted(info.extensions)} {self.device.limits} {self.form}"
        return PlanCodec(setting, TunedKernel)

    def create(self, elements: int, dtype: np.dtype, data: np.ndarray | None = None) -> CLBuffer:
        """A new buffer, filled with `data` if given."""
        nbytes = elements * device_dtype(dtype).itemsize
        if data is None or np.size(data) != elements or nbytes < 16 or self._transfers.is_pinned:
            buffer = CLBuffer(self._allocate(nbytes), elements, dtype)
            if data is not None:
                self.upload(buffer, data)
            return buffer
        # Where host and device share their memory, staging would only be a second copy.
        return CLBuffer(self._allocate(nbytes, self._checked(data, np.dtype(dtype))), elements, dtype)

    def share(self, buffer: DeviceBuffer, elements: int) -> CLBuffer | None:
        """A buffer over the first elements of another."""
        return _own(buffer).part(elements)

    def let_go(self, buffers: Sequence[DeviceBuffer]) -> None:
        """Do nothing: OpenCL frees dropped buffers on any thread."""

    def upload(self, buffer: DeviceBuffer, data: np.ndarray) -> None:
        """Set a buffer's value, in stream order. `data` is copied before this returns.

        Raises `InputError` for integers beyond 32 bits.
        """
        target = _own(buffer)
        if np.size(data) != target.elements:
            raise InputError(f"{np.size(data)} values do not fill a buffer of {target.elements}")
        self._transfers.write(target.mem, self._checked(data, target.dtype))

    @staticmethod
    def _checked(data: np.ndarray, dtype: np.dtype) -> np.ndarray:
        if dtype.kind in "iu":
            check_integers(data)
        return to_device(data, dtype)

    def copy(self, source: DeviceBuffer, target: DeviceBuffer) -> None:
        """Copy a whole buffer on the device, in stream order."""
        a, b = _own(source), _own(target)
        if a.nbytes:
            with self.device.guarded("to copy a buffer"):
                self.device.cl.enqueue_copy(self.device.queue, b.mem, a.mem, byte_count=a.nbytes)

    def record(self, plan: Plan, buffers: Mapping[str, DeviceBuffer]) -> CLProgram:
        """Record a plan as a command list. `buffers` binds inputs, outputs and constants by name."""
        return finish(self.recording(plan, buffers))

    def recording(self, plan: Plan, buffers: Mapping[str, DeviceBuffer]) -> SmallSteps[CLProgram]:
        """`record`, a step of the plan at a time."""
        placed = Offload(lambda: self._allocate_temporaries(plan))
        yield placed
        memory, temporaries = placed.result()
        bound = {name: _own(buffer).mem for name, buffer in buffers.items()} | temporaries
        commands: list[Command | Repetition] = []
        in_buffers: list[Any] = []
        for step in plan.steps:
            if prod(step.space) == 0:
                continue
            yield None
            if isinstance(step.kernel, RepeatedSteps):
                commands.append(Repeater(self.programs, bound, self.numbers_in_buffer).repetition(step))
                continue
            operands = [bound[name] for name in (*step.inputs, step.output)]
            compiled = self.programs.get(step.kernel)
            for values, size in dispatches(compiled, step):
                numbers: list[Any] = list(compiled.source.signature.numbers(values))
                if compiled.source.signature.in_buffer:
                    numbers = [self.numbers_in_buffer(numbers[0])]
                    in_buffers += numbers
                commands.append((compiled.new_kernel(operands, numbers), size, compiled.source.local))
        return CLProgram(commands, memory, in_buffers)

    def template(self, plan: Plan, constants: Mapping[str, DeviceBuffer]) -> Template:
        """Record a plan with symbolic sizes."""
        if plan.repeats:
            return PlanTemplate(self, plan, constants)
        return CLTemplate(self, plan, constants)

    def slot(self, number: int) -> TemporaryBuffer:
        """A buffer for temporaries, shared by all template programs."""
        if number == len(self._slots):
            self._slots.append(TemporaryBuffer(self.device.limits.max_allocation, self._allocate))
        return self._slots[number]

    def shared_temporaries(self) -> Sequence[TemporaryBuffer]:
        """The buffers of templates."""
        return self._slots

    def numbers_in_buffer(self, numbers: np.ndarray) -> Any:
        """Create a buffer with a kernel's scalar arguments."""
        block = self._allocate(numbers.nbytes)
        self._transfers.write(block, numbers)
        return block

    def run(self, program: Program) -> None:
        """Enqueue a recorded plan."""
        assert isinstance(program, CLProgram)
        enqueue, queue = self.device.cl.enqueue_nd_range_kernel, self.device.queue
        try:
            program.activate()
            if instrumentation.installed and self.device.keeps_times and program.commands:
                started = perf_counter()
                events = [enqueue(queue, *command) for command in each(program.commands)]
                instrumentation.later(ObservedEvents(self.device, events, started))
                return
            program.enqueue(self.device)
        except self.device.cl.Error as error:
            raise self.device.failed("to take a command", error) from error

    def time_steps(self, program: Program, plan: Plan) -> list[float]:
        """Run a recorded plan to its end; seconds of each step, from the device's own clock."""
        assert isinstance(program, CLProgram)
        cl, commands = self.device.cl, iter(program.commands)
        program.activate()
        self.device.finish()
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        queue = cl.CommandQueue(self.device.context, self.device.device, properties=profiling)
        events = []
        for step in plan.steps:
            own = [next(commands) for _ in range(command_count(self.programs, step))]
            events.append([cl.enqueue_nd_range_kernel(queue, *command) for command in each(own)])
        queue.finish()
        return [sum(e.profile.end - e.profile.start for e in step) * 1e-9 for step in events]

    def clear_temporaries(self, program: Program) -> None:
        """Enqueue filling the temporaries with zeros."""
        assert isinstance(program, CLProgram)
        with self.device.guarded("to clear a buffer"):
            for mem in program.memory:
                self.device.cl.enqueue_fill_buffer(self.device.queue, mem, np.uint8(0), 0, mem.size)

    def partial_dispatch(self, program: Program, plan: Plan) -> CLPartialDispatch:
        """The plan's kernels, to be enqueued over some of their groups."""
        assert isinstance(program, CLProgram)
        return CLPartialDispatch(self, program, plan)

    def estimate(self, step: Step) -> float:
        """Nanoseconds on one core of a processor."""
        kernel = step.kernel
        if isinstance(kernel, RepeatedSteps):
            return self.estimate_repeated(step)
        if isinstance(kernel, TunedKernel):
            return _GROUP_NS * prod(step.space) + _PRODUCT_NS * kernel.multiplications(
                step.space, step.values
            )
        assert isinstance(kernel, Kernel)
        return prod(step.space) * (formula_ns(kernel.body, step.values) + 1.0)

    def readback(self, buffer: DeviceBuffer, elements: int | None = None) -> Readback:
        """Start a copy of the buffer's first `elements`, or all, as of now in the stream, to the CPU."""
        source = _own(buffer)
        count = source.elements if elements is None else elements
        nbytes = count * device_dtype(source.dtype).itemsize
        transfer = self._transfers.read(source.mem, nbytes) if nbytes else None
        return CLReadback(self._transfers, transfer, count, source.dtype)

    def flush(self) -> None:
        """Ensure that enqueued work runs without further calls."""
        try:
            self.device.queue.flush()
        except self.device.cl.Error as error:
            raise self.device.failed("to take commands", error) from error

    def synchronize(self) -> None:
        """Block until everything enqueued has run. For tests and disposal, never in a frame."""
        self.device.finish()

    def dispose(self) -> None:
        """Let go of the memory for temporaries; programs and transfers stay with the device."""
        self._slots.clear()

    def _allocate(self, nbytes: int, data: np.ndarray | None = None) -> Any:
        """Device memory; a copy of `data` if given."""
        if data is not None:
            self.device.counters.uploads += 1
            self.device.counters.bytes_up += nbytes
        try:
            return self.device.allocate(max(16, nbytes), data)
        except self.device.cl.Error as error:
            raise OutOfMemoryError(
                f"{self.device.info.name} cannot allocate {nbytes} bytes: {error}"
            ) from error

    def _allocate_temporaries(self, plan: Plan) -> tuple[list[Any], dict[str, Any]]:
        """Memory for a plan's temporaries: what to release in the end, and a buffer for each name."""
        lifetimes = plan.lifetimes()
        sizes = {}
        for name in lifetimes:
            spec = plan.buffers[name]
            sizes[name] = spec.elements * device_dtype(spec.dtype).itemsize
        # Not parts of one buffer: where these overlap, NVIDIA's driver crashes when they are released.
        slots, slot_sizes = assign_slots(sizes, lifetimes)
        memory = [self._allocate(n) for n in slot_sizes]
        return memory, {name: memory[slot] for name, slot in slots.items()}


def _own(buffer: DeviceBuffer) -> CLBuffer:
    assert isinstance(buffer, CLBuffer), f"{type(buffer).__name__} belongs to another backend"
    return buffer
