"""The CPU backend: one ordered stream of native command lists on a job system.

Work runs in the order in which it is enqueued. When nothing is in flight, copies and plans that
take less time than waking a thread are done at once, behind the same interface.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from math import prod
from typing import Any, ClassVar

import numpy as np

from engine.backends.base import DeviceBuffer, Precision, Program, Progress, Read, Storage
from engine.backends.cpu.codegen.cost import DETERMINISTIC_THREADS, step_ns
from engine.backends.cpu.codegen.native_kernel import source_of
from engine.backends.cpu.execution.fast_path import CPUProgramRunner
from engine.backends.cpu.execution.joined_programs import join_parts
from engine.backends.cpu.execution.memory import CPUBuffer, native_type
from engine.backends.cpu.execution.partial_dispatch import CPUPartialDispatch
from engine.backends.cpu.execution.program import CPUProgram, MeasuredRate, released
from engine.backends.cpu.execution.stream import (
    LEAST_SHARED,
    LEAST_SHARED_ASLEEP,
    CPUReadback,
    JobStream,
)
from engine.backends.cpu.execution.template import CommandLayout, CPUTemplate
from engine.backends.cpu.execution.template_source import missing_of_sizes
from engine.backends.cpu.execution.timing import time_commands
from engine.backends.cpu.kernels.matmul.precision import arithmetics_for
from engine.backends.cpu.plan_codec import CPUPlanCodec
from engine.backends.cpu.precompile import precompile_kernels
from engine.backends.host import HostBackend, HostPart, JoinedJob
from engine.backends.program_runner import ProgramRunner
from engine.backends.readback import ArrivedRead, PendingRead, ShapedRead, check_out, delivered
from engine.backends.tensor_data import CPUTensorData
from engine.base import instrumentation
from engine.base.dtypes import STORAGE_TYPES
from engine.base.errors import DisposedError
from engine.base.memory.aligned import allocate, is_readable_in_place, reserve
from engine.base.memory.results import LEAST
from engine.compiler.passes import (
    channels_last,
    fuse_qdq,
    remove_dead_layers,
    sink_dequantize,
    unpack_weights,
)
from engine.compiler.plan import AnyKernel, Compute, Plan, Step, Tuner
from engine.device import native
from engine.device.jobs.builtin_commands import COPY_GRAIN
from engine.device.jobs.system import (
    CommandList,
    JobHandle,
    JobSystem,
    shared_job_system,
    shared_thread_count,
)


class CPUBackend(HostBackend):
    """Runs plans on native job threads (`jobs`, by default the process's own).

    `precision` is that of products and convolutions; raises `DeviceError` where the processor lacks it.
    `deterministic` cuts work alike for any number of threads: where a sum is cut decides how it rounds.
    One object is one stream and belongs to one thread. `arena` is the memory of `arena_of`.
    """

    name: ClassVar[str] = "cpu"
    storage: ClassVar[Storage] = "memory"
    shares: ClassVar[bool] = True
    chooses_by_size: ClassVar[bool] = True
    fan_in = 16
    whole_layers = frozenset({"recurrence", "loop", "non_max_suppression"})
    has_byte_tables = True
    passes = (sink_dequantize, fuse_qdq, remove_dead_layers, unpack_weights, channels_last)

    def __init__(
        self, jobs: JobSystem | None = None, precision: Precision = "float32", deterministic: bool = False
    ) -> None:
        self.arithmetics = arithmetics_for(precision)
        precompile_kernels(is_certain=True)
        self._given_jobs = jobs
        self._creating = threading.RLock()
        threads = jobs.thread_count if jobs is not None else shared_thread_count()
        self.planned_threads = DETERMINISTIC_THREADS if deterministic else threads
        self._functions: dict[str, int] = {}
        self.arena = allocate(0)
        # By the addresses of a plan's kernels.
        self._paces: dict[tuple[int, ...], MeasuredRate] = {}

    @classmethod
    def on_jobs(cls, jobs: JobSystem | None, precision: Precision, deterministic: bool) -> CPUBackend:
        """A new stream of work."""
        return cls(jobs, precision, deterministic)

    @cached_property
    def jobs(self) -> JobSystem:
        """The job threads, created on first use, which takes longer than planning."""
        with self._creating:
            made: JobSystem | None = self.__dict__.get("jobs", self._given_jobs)
            # Stored before the lock is released: background loading may ask for it at the same time.
            self.__dict__["jobs"] = made = shared_job_system() if made is None else made
            return made

    @cached_property
    def stream(self) -> JobStream:
        """The queue of this backend's jobs, which run in order; created before the first schedule."""
        with self._creating:
            made: JobStream | None = self.__dict__.get("stream")
            self.__dict__["stream"] = made = JobStream(self.jobs) if made is None else made
            return made

    # Kernels

    def refusal(self, compute: Compute) -> str | None:
        """Only element types that no kernel knows are refused."""
        name = compute.output.dtype.name
        return None if name in STORAGE_TYPES else f"kernels cannot hold elements of type {name}"

    def tune(self, compute: Compute, tuner: Tuner) -> bool:
        """Use this backend's own kernel for the step, if there is one."""
        # Imported on use: half of the backend's modules, which stored plans do without.
        from engine.backends.cpu.tuning import tune

        return tune(compute, tuner, self.planned_threads, self.arithmetics)

    def prepare(self, kernels: Iterable[AnyKernel], progress: Progress | None = None) -> int:
        """Compile or load missing kernels and return their number."""
        missing = self._missing(kernels)
        if missing:
            addresses = native.process_store().load([*missing.values(), *missing_of_sizes()], progress)
            self._functions |= {key: addresses[source.key] for key, source in missing.items()}
            _ = self.stream  # now, and not in the first schedule
        return len(missing)

    def _missing(self, kernels: Iterable[AnyKernel]) -> dict[str, native.NativeSource]:
        """The sources of kernels that this backend has not loaded, by key."""
        return {k.key: source_of(k) for k in kernels if k.key not in self._functions}

    def prepare_async(self, kernels: Iterable[AnyKernel]) -> native.PendingLoad | None:
        """Let child processes compile missing kernels."""
        load = native.process_store().prepare_async([*self._missing(kernels).values(), *missing_of_sizes()])
        return None if load.done() else load

    def prepare_cached(self, words: Mapping[str, int]) -> bool:
        """Load kernels that were compiled before."""
        addresses = native.process_store().load_stored(words)
        if addresses is None:
            return False
        self._functions |= addresses
        _ = self.stream
        return True

    def plan_codec(self) -> CPUPlanCodec:
        """The codec for plans with this backend's number of threads."""
        return CPUPlanCodec(self.planned_threads, self.arithmetics)

    # Buffers

    def create(self, elements: int, dtype: np.dtype, data: np.ndarray | None = None) -> CPUBuffer:
        """A new buffer, zeroed or filled with `data`."""
        if data is None:
            return CPUBuffer(elements, dtype)
        buffer = self.create_unset(elements, dtype)
        buffer.array[:] = np.asarray(data, buffer.dtype).reshape(-1)
        return buffer

    def create_unset(self, elements: int, dtype: np.dtype) -> CPUBuffer:
        """Create an uninitialized buffer with zeroed slack."""
        held = native_type(dtype)
        return CPUBuffer(elements, held, reserve(elements * held.itemsize).view(held))

    def share(self, buffer: DeviceBuffer, elements: int) -> CPUBuffer | None:
        """A buffer over the first elements of another."""
        assert isinstance(buffer, CPUBuffer)
        if elements > buffer.elements:
            return None
        return buffer.first(elements)

    def constant(self, array: np.ndarray) -> CPUBuffer:
        """A read-only buffer: the array's own memory if kernels can read it."""
        if is_readable_in_place(array):
            return CPUBuffer(array.size, array.dtype, array.reshape(-1))
        return self.create(array.size, array.dtype, array)

    def upload(self, buffer: DeviceBuffer, data: np.ndarray) -> None:
        """Set a buffer's value in stream order; `data` may change once this returns."""
        assert isinstance(buffer, CPUBuffer)
        if self.stream.is_idle():
            self.stream.copy_input(data.reshape(-1), buffer.array)
            return
        self.stream.upload(buffer, data)

    def copy(self, source: DeviceBuffer, target: DeviceBuffer) -> None:
        """Copy a whole buffer in stream order."""
        assert isinstance(source, CPUBuffer)
        assert isinstance(target, CPUBuffer)
        self.stream.transfer(source.array, target.array)

    def readback(self, buffer: DeviceBuffer, elements: int | None = None) -> CPUReadback:
        """A copy of the buffer's first `elements`, or all, as of now in the stream."""
        assert isinstance(buffer, CPUBuffer)
        return self.stream.readback(buffer.array[:elements])

    def reader(self, buffer: DeviceBuffer, shape: tuple[int, ...]) -> Read:
        """Wait for pending jobs and copy once; large copies use all threads."""
        # An assertion would take as long as the rest: the class is an abstract one's.
        view: np.ndarray = buffer.view(shape)  # type: ignore[attr-defined]
        stream, is_small = self.stream, view.nbytes < LEAST

        def read(out: np.ndarray | None = None) -> np.ndarray:
            # Saves a small network's caller a tenth of its time.
            if is_small and out is None and stream.last is None and not stream.marks:
                return view.copy()
            return self._read(view, out)

        return read

    def sized_reader(self, buffer: DeviceBuffer, shape: Callable[[], tuple[int, ...]]) -> Read:
        stream, at, view = self.stream, None, np.empty(0)

        def read(out: np.ndarray | None = None) -> np.ndarray:
            nonlocal at, view
            if (now := shape()) != at:
                at, view = now, buffer.view(now)  # type: ignore[attr-defined]
            if out is None and stream.last is None and not stream.marks and view.nbytes < LEAST:
                return view.copy()
            return self._read(view, out)

        return read

    def _read(self, view: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        stream = self.stream
        if stream.last is not None or stream.marks:
            stream.synchronize()
        if view.nbytes < (LEAST_SHARED if stream.jobs.is_awake else LEAST_SHARED_ASLEEP):
            return stream.results.copy(view) if out is None else delivered(view, out)
        target = stream.results.array(view.shape, view.dtype) if out is None else out
        check_out(target, view.shape, view.dtype)
        stream.copy_now(view, target)
        return target

    def requester(self, buffer: DeviceBuffer, shape: tuple[int, ...]) -> Callable[[], PendingRead]:
        """Request a copy, made at once if nothing is in flight."""
        assert isinstance(buffer, CPUBuffer)
        view, stream = buffer.view(shape), self.stream

        def request() -> PendingRead:
            is_busy = (stream.last is not None or stream.marks) and not stream.is_idle()
            if is_busy or view.nbytes > COPY_GRAIN:
                return ShapedRead(stream.readback(buffer.array), shape)
            return ArrivedRead(stream.results.copy(view))

        return request

    # Plans

    def record(self, plan: Plan, buffers: Mapping[str, DeviceBuffer]) -> CPUProgram:
        """Lay out the plan, and fill in its addresses."""
        constants = {n: buffer for n, buffer in buffers.items() if plan.buffers[n].role == "constant"}
        return self.template(plan, constants).fill((), buffers)

    def template(self, plan: Plan, constants: Mapping[str, DeviceBuffer]) -> CPUTemplate:
        """Record every step's argument block, with placeholders for sizes and addresses."""
        self.prepare(plan.kernels)
        layout = plan.shared.get(CommandLayout)
        if layout is None:
            layout = CommandLayout(plan, self._functions, self.planned_threads)
            plan.shared[CommandLayout] = layout
        return CPUTemplate(self, layout, constants, self._paces)

    def run(self, program: Program) -> None:
        """Enqueue a recorded plan; a short one runs at once when nothing is in flight."""
        assert isinstance(program, CPUProgram)
        if program.is_short and self.stream.is_idle():
            program.run_here()
            return
        if program.is_new:
            program.mark_enqueued()
        if program.commands is None:
            released()
        elif instrumentation.installed:
            self.stream.submit_observed(program.commands, None)
        else:
            self.stream.submit(program.commands, None)

    def partial_dispatch(self, program: Program, plan: Plan) -> CPUPartialDispatch:
        """The plan's commands, to be run over parts of their ranges."""
        assert isinstance(program, CPUProgram)
        return CPUPartialDispatch(program, plan, partial(self.stream.submit, keep_alive=None), self._run_here)

    def _run_here(self, program: CPUProgram) -> bool:
        """Run a short program on this thread, if nothing is in flight; whether it did."""
        if self.stream.is_idle():
            program.run_here()
            return True
        return False

    def estimate(self, step: Step) -> float:
        """Nanoseconds on one thread, shared out among the threads."""
        return step_ns(step) / self.jobs.thread_count

    def program_runner(
        self,
        program: Program,
        targets: Sequence[DeviceBuffer | None],
        in_place: Sequence[bool],
    ) -> ProgramRunner:
        """Zero-copy runs while nothing is in flight: kernels access inputs and outputs in place."""
        assert isinstance(program, CPUProgram)
        inputs = [target for target in targets if isinstance(target, CPUBuffer)]
        if len(inputs) < len(targets):
            return super().program_runner(program, targets, in_place)
        return CPUProgramRunner(self.stream, program, inputs, in_place)

    def join_parts(self, parts: Sequence[HostPart | CommandList]) -> JoinedJob:
        """Short programs that need nothing of each other run side by side, each on one thread."""
        return join_parts(self.jobs, parts)

    def time_steps(self, program: Program, plan: Plan) -> list[float]:
        """Run a recorded plan to its end, with the clock read between its commands; seconds of each step."""
        assert isinstance(program, CPUProgram)
        if program.commands is None:
            raise DisposedError("this program was released")
        self.synchronize()

        def run(commands: CommandList) -> None:
            if program.is_short:
                self.jobs.run_inline(commands)
            else:
                self.stream.submit(commands, None).complete()

        # Steps without elements have no commands.
        has_command = [prod(step.space) > 0 for step in plan.steps]
        times = iter(time_commands(program.commands, run) if any(has_command) else ())
        return [next(times) if has else 0.0 for has in has_command]

    def flush(self) -> None:
        """Nothing to do: submitted jobs run by themselves."""

    def fence(self) -> JobHandle | None:
        """The last job of this stream; None when nothing is in flight."""
        return self.stream.fence()

    def can_wait_for(self, mark: Any) -> bool:
        """Whether a mark is a job of this job system."""
        return isinstance(mark, JobHandle) and mark.system is self.jobs

    def upload_after(self, buffer: DeviceBuffer, data: CPUTensorData) -> None:
        """Copy elements by a job, once the job that writes them is done."""
        assert isinstance(buffer, CPUBuffer)
        fence = data.fence
        if fence is None:
            self.upload(buffer, data.elements)
            return
        self.after(fence)
        data.add_reader(self.stream.copy(data.elements, buffer.array))

    def after(self, mark: Any) -> None:
        """Let later work start after a job of the same job system."""
        if isinstance(mark, JobHandle):
            self.stream.wait_for(mark)

    def synchronize(self) -> None:
        """Block until everything enqueued has run."""
        self.stream.synchronize()

    def dispose(self) -> None:
        """Release everything without waiting; jobs in flight keep their memory."""
        if "stream" in self.__dict__:
            self.stream.dispose()

    def arena_of(self, size: int) -> np.ndarray:
        """Memory for a program's temporaries, shared by all programs of a stream."""
        if len(self.arena) < size:
            # Plans made before keep the arena that their commands know.
            self.arena = reserve(size if not len(self.arena) else size + size // 4)
        return self.arena
