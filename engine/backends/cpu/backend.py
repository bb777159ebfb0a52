"""The CPU backend: one ordered stream of native command lists on a job system.

Whatever is enqueued runs after what was enqueued before. When nothing is in flight, copies and plans that
take less time than waking a thread are done at once, behind the same interface.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, ClassVar

import numpy as np

from engine import native, observing
from engine.backends.base import Backend, DeviceBuffer, Precision, Program, Progress, Read, Readback, Repeat
from engine.backends.cpu.arguments import argument_words, generic_units, generic_words
from engine.backends.cpu.cost import DETERMINISTIC_THREADS, grain, row_blocks, step_ns
from engine.backends.cpu.memory import CPUBuffer, native_type
from engine.backends.cpu.native_kernel import source_of
from engine.backends.cpu.pieces import CPUPieces
from engine.backends.cpu.precision import arithmetics_for
from engine.backends.cpu.program import CPUProgram, InPlace, released
from engine.backends.cpu.timing import ObservedJob, Stamped, time_commands
from engine.backends.cpu.tuned import tune
from engine.compiler.memory import place
from engine.compiler.passes import channels_last, unpack_weights
from engine.compiler.plan import AnyKernel, Compute, Plan, Step, Tuner
from engine.dtypes import STORAGE_TYPES
from engine.errors import DisposedError
from engine.jobs.stock import stock_functions
from engine.jobs.system import CommandList, JobHandle, JobSystem, shared_job_system
from engine.memory.aligned import ALIGNMENT, address_of, allocate, is_readable_in_place, reserve
from engine.reads import ArrivedRead, PendingRead, ShapedRead, delivered
from engine.tensor import CPUTensorData

_COPY_GRAIN = 1 << 18
_NOTHING = CommandList(np.zeros((0, 4), np.int64))


class CPUReadback(Readback):
    """A copy of a value as of one point of the stream.

    It is made when that point has been reached and somebody looks, or before the stream goes on.
    """

    __slots__ = ("_array", "_handle", "_source")

    def __init__(self, source: np.ndarray, handle: JobHandle | None) -> None:
        self._source = source
        self._handle = handle
        self._array: np.ndarray | None = source.copy() if handle is None else None

    def done(self) -> bool:
        """Whether the copy can be had at once."""
        return self._handle is None or self._handle.is_completed

    def array(self) -> np.ndarray:
        """The copy, 1-D; the caller may keep it."""
        if self._array is None:
            self._array = self._source.copy()
            self._handle = None
        return self._array

    def seen(self) -> np.ndarray | None:
        """What is still to be copied."""
        return self._source if self._array is None else None

    def wait(self) -> None:
        """Block until the copy can be had."""
        if self._handle is not None:
            _wait_for(self._handle)

    @property
    def is_owed(self) -> bool:
        """Whether the value has still to be copied."""
        return self._array is None

    def comes_into(self, array: np.ndarray, handle: JobHandle) -> None:
        """The copy is made into this array by a job."""
        self._array, self._handle = array, handle


class _Copy:
    """A copy command that is used again and again, and its own staging memory if it is an upload."""

    __slots__ = ("commands", "handle", "staging", "words")

    def __init__(self, function: int, staging_bytes: int = 0) -> None:
        self.words = np.zeros(6, np.int64)
        self.words[2:] = function, self.words.ctypes.data, 0, _COPY_GRAIN
        self.staging = allocate(staging_bytes)
        self.commands = CommandList(self.words[2:].reshape(1, 4), (self.words, self.staging))
        self.handle: JobHandle | None = None

    def aim(self, target: int, source: int, size: int) -> CommandList:
        self.words[0] = target
        self.words[1] = source
        self.words[4] = size
        return self.commands


def _wait_for(handle: JobHandle) -> None:
    if observing.installed and not handle.is_completed:
        observing.count("waits for jobs", 1)
    handle.complete()


def _seen(buffer: DeviceBuffer, shape: tuple[int, ...]) -> np.ndarray:
    """A buffer's first elements in a shape."""
    assert isinstance(buffer, CPUBuffer)
    return buffer.array[: prod(shape)].reshape(shape)


class CPUBackend(Backend):
    """Runs plans on native job threads (`jobs`, by default the process's own).

    `precision` is that of products and convolutions; raises `DeviceError` where the processor lacks it.
    `deterministic` cuts work alike for any number of threads: where a sum is cut decides how it rounds.
    One object is one stream and belongs to one thread.
    """

    name: ClassVar[str] = "cpu"
    shares: ClassVar[bool] = True
    fan_in = 16
    whole = frozenset({"recurrence"})
    passes = (unpack_weights, channels_last)

    def __init__(
        self,
        jobs: JobSystem | None = None,
        precision: Precision = "float32",
        deterministic: bool = False,
    ) -> None:
        self.arithmetics = arithmetics_for(precision)
        self.jobs = jobs if jobs is not None else shared_job_system()
        self.planned_threads = DETERMINISTIC_THREADS if deterministic else self.jobs.thread_count
        self._copy_function = stock_functions()["copy"]
        self._functions: dict[str, int] = {}
        self._last: JobHandle | None = None
        self._marks: list[JobHandle] = []
        self._copies: list[_Copy] = []
        # Readbacks of the value as it is behind `_last`, which have not been copied yet.
        self._owed: list[tuple[weakref.ref[CPUReadback], np.ndarray]] = []
        self._arena = allocate(0)
        self._verdicts: dict[bytes, bool] = {}
        self._disposed = False

    # Kernels

    def refusal(self, compute: Compute) -> str | None:
        """Only element types that no kernel knows are refused."""
        name = compute.output.dtype.name
        return None if name in STORAGE_TYPES else f"kernels cannot hold elements of type {name}"

    def tune(self, compute: Compute, tuner: Tuner) -> bool:
        """Use this backend's own kernel for the step, if there is one."""
        return tune(compute, tuner, self.planned_threads, self.arithmetics)

    def prepare(self, kernels: Iterable[AnyKernel], progress: Progress | None = None) -> int:
        """Compile or load what this backend has not yet; returns how many kernels that were."""
        missing = {}
        for kernel in kernels:
            if kernel.key not in self._functions:
                missing[kernel.key] = source_of(kernel)
        if missing:
            addresses = native.load(list(missing.values()), progress)
            self._functions |= {key: addresses[source.key] for key, source in missing.items()}
        return len(missing)

    def prepare_stored(self, keys: Sequence[str]) -> bool:
        """Load kernels that were compiled before."""
        addresses = native.load_stored(keys)
        self._functions |= addresses or {}
        return addresses is not None

    # Buffers

    def create(self, elements: int, dtype: np.dtype, data: np.ndarray | None = None) -> CPUBuffer:
        """A new buffer, zeroed or filled with `data`."""
        if data is None:
            return CPUBuffer(elements, dtype)
        held = native_type(dtype)
        buffer = CPUBuffer(elements, held, reserve(elements * held.itemsize).view(held))
        buffer.array[:] = np.asarray(data, held).reshape(-1)
        return buffer

    def share(self, room: DeviceBuffer, elements: int) -> CPUBuffer | None:
        """A buffer over the first elements of another."""
        assert isinstance(room, CPUBuffer)
        return CPUBuffer(elements, room.dtype, room.array[:elements]) if elements <= room.elements else None

    def constant(self, array: np.ndarray) -> CPUBuffer:
        """A buffer that nothing writes: the array's own memory, where kernels can read that."""
        if is_readable_in_place(array):
            return CPUBuffer(array.size, array.dtype, array.reshape(-1))
        return self.create(array.size, array.dtype, array)

    def upload(self, buffer: DeviceBuffer, data: np.ndarray) -> None:
        """Set a buffer's value in stream order; `data` may change once this returns."""
        assert isinstance(buffer, CPUBuffer)
        if self._idle():
            np.copyto(buffer.array, data.reshape(-1))
            return
        size = buffer.array.nbytes
        copy = self._free_copy(size)
        np.copyto(copy.staging[:size].view(buffer.dtype), data.reshape(-1))
        copy.handle = self._submit(copy.aim(buffer.address, copy.staging.ctypes.data, size), buffer.array)

    def copy(self, source: DeviceBuffer, target: DeviceBuffer) -> None:
        """Copy a whole buffer in stream order."""
        assert isinstance(source, CPUBuffer)
        assert isinstance(target, CPUBuffer)
        if self._idle() and source.array.nbytes <= _COPY_GRAIN:
            np.copyto(target.array, source.array)
            return
        copy = self._free_copy(0)
        commands = copy.aim(target.address, source.address, source.array.nbytes)
        copy.handle = self._submit(commands, (source.array, target.array))

    def readback(self, buffer: DeviceBuffer) -> CPUReadback:
        """A copy of the buffer's value as of now in the stream."""
        assert isinstance(buffer, CPUBuffer)
        is_small = buffer.array.nbytes <= _COPY_GRAIN
        if self._idle() and is_small:
            return CPUReadback(buffer.array, None)
        assert self._last is not None or self._marks or not is_small
        read = CPUReadback(buffer.array, self._last)
        if not is_small or self._marks:
            self._copy_out(read, buffer.array)
        else:
            self._owed.append((weakref.ref(read), buffer.array))
        return read

    def _copy_out(self, read: CPUReadback, source: np.ndarray) -> None:
        """Make a readback's copy by a job."""
        array = np.empty(source.shape, source.dtype)
        copy = self._free_copy(0)
        commands = copy.aim(array.ctypes.data, source.ctypes.data, array.nbytes)
        copy.handle = self._enqueue(commands, (array, source))
        read.comes_into(array, copy.handle)

    def reader(self, buffer: DeviceBuffer, shape: tuple[int, ...]) -> Read:
        """Waits for what is in flight, and copies once."""
        view = _seen(buffer, shape)

        def read(out: np.ndarray | None = None) -> np.ndarray:
            if self._last is not None or self._marks:
                self.synchronize()
            return view.copy() if out is None else delivered(view, out)

        return read

    def requester(self, buffer: DeviceBuffer, shape: tuple[int, ...]) -> Callable[[], PendingRead]:
        """Where nothing is in flight, the copy is made at once."""
        view = _seen(buffer, shape)

        def request() -> PendingRead:
            if (self._last is not None or self._marks) and not self._idle() or view.nbytes > _COPY_GRAIN:
                return ShapedRead(self.readback(buffer), shape)
            return ArrivedRead(view.copy())

        return request

    # Plans

    def record(self, plan: Plan, buffers: Mapping[str, DeviceBuffer]) -> CPUProgram:
        """Place the temporaries, fill every step's args block, and list the commands."""
        self.prepare(step.kernel for step in plan.steps)
        sizes = {
            name: max(b.elements * b.dtype.itemsize, 1)
            for name, b in plan.buffers.items()
            if b.role == "temporary"
        }
        lifetimes = plan.lifetimes()
        offsets, total = place({n: s for n, s in sizes.items() if n in lifetimes}, lifetimes, ALIGNMENT)
        arena = self._arena_of(total)
        start = address_of(arena)
        addresses = {name: start + offset for name, offset in offsets.items()}
        held = [arena]
        for name, buffer in buffers.items():
            assert isinstance(buffer, CPUBuffer)
            addresses[name] = buffer.address
            held.append(buffer.array)
        threads = self.planned_threads
        words: list[int] = []
        rows: list[tuple[int, int, int, int]] = []
        starts: list[int] = []
        places: dict[int, list[int]] = {
            addresses[name]: [] for name in buffers if plan.buffers[name].role == "input"
        }
        nanoseconds = 0.0
        for step in plan.steps:
            cost = step_ns(step)
            pointers = [addresses[n] for n in (step.output, *step.inputs)]
            if not step.is_generic:
                count = step.space[0]
                block_words = argument_words(step.space, step.values, pointers)
            else:
                blocks = row_blocks(step.space, cost, threads)
                count = generic_units(step.space, blocks)
                block_words = generic_words(step.space, step.values, pointers, blocks)
            if count == 0:
                continue
            nanoseconds += cost
            starts.append(len(words))
            words += block_words
            for behind, pointer in enumerate(reversed(pointers)):
                if pointer in places:
                    places[pointer].append(len(words) - 1 - behind)
            rows.append((self._functions[step.kernel.key], 0, count, grain(count, cost, threads)))
        block = np.array(words, np.int64)
        table = np.array(rows, np.int64).reshape(-1, 4)
        table[:, 1] = np.array(starts, np.int64) * 8 + block.ctypes.data
        return CPUProgram(CommandList(table, (block, held)), nanoseconds, self.jobs, places, self._verdicts)

    def run(self, program: Program) -> None:
        """Enqueue a recorded plan; a short one runs at once when nothing is in flight."""
        assert isinstance(program, CPUProgram)
        if program.is_short and self._idle():
            program.run_here()
        elif program.commands is None:
            released()
        elif observing.installed:
            self._submit_observed(program.commands, None)
        else:
            self._submit(program.commands, None)

    def pieces(self, program: Program, plan: Plan) -> CPUPieces:
        """The plan's commands, to be run over parts of their ranges."""
        assert isinstance(program, CPUProgram)
        return CPUPieces(program, plan, partial(self._submit, keep_alive=None), self._run_here)

    def _run_here(self, program: CPUProgram) -> bool:
        """Run a short program on this thread, if nothing is in flight; whether it did."""
        if self._idle():
            program.run_here()
            return True
        return False

    def estimate(self, step: Step) -> float:
        """Nanoseconds on one thread, shared out among the threads."""
        return step_ns(step) / self.jobs.thread_count

    def repeater(
        self,
        program: Program,
        targets: Sequence[DeviceBuffer | None],
        shapes: Sequence[tuple[int, ...]],
        in_place: Sequence[bool],
    ) -> Repeat:
        """Where nothing is in flight, arrays go straight to where kernels read them, and tensors not even
        there.
        """
        assert isinstance(program, CPUProgram)
        in_line = super().repeater(program, targets, shapes, in_place)
        views = [_seen(b, shape) for b, shape in zip(targets, shapes, strict=True) if b is not None]
        if len(views) < len(targets):
            return in_line
        inputs = [target for target in targets if isinstance(target, CPUBuffer)]
        elsewhere: list[InPlace] = []

        def repeat(
            arrays: Sequence[np.ndarray],
            tensors: Sequence[CPUTensorData | None] = (),
            is_awaited: bool = False,
        ) -> None:
            if is_awaited:
                for target, array, tensor in zip(inputs, arrays, tensors, strict=True):
                    if tensor is None:
                        self.upload(target, array)
                    else:
                        self.upload_behind(target, tensor)
                self.run(program)
                return
            is_watched = observing.installed != 0
            if (is_watched and not tensors) or (self._last is not None or self._marks) and not self._idle():
                in_line(arrays)
                return
            if tensors and not program.is_short:
                if not elsewhere:
                    elsewhere.append(InPlace(program, inputs, in_place))
                here = elsewhere[0]
                # The same list is the same tensors, whose elements are where they were.
                if tensors is not here.tensors and not here.is_aimed_at(arrays, tensors):
                    here.aim(arrays, tensors)
                for number in here.copied:
                    views[number][...] = arrays[number]
                if is_watched:
                    here.job, job = None, self._submit_observed(here.commands, here.taken)
                else:
                    here.job = job = self._submit_again(here.job, here.commands, here.taken)
                for _, tensor, _ in here.taken:
                    tensor.is_read_by(job)
                return
            for number, view in enumerate(views):
                view[...] = arrays[number]
            if program.is_short:
                program.run_here()
            elif program.commands is None:
                released()
            else:
                program.job = self._submit_again(program.job, program.commands, None)

        return repeat

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
                self._submit(commands, None).complete()

        # Steps without elements have no commands.
        has_command = [prod(step.space) > 0 for step in plan.steps]
        times = iter(time_commands(program.commands, run) if any(has_command) else ())
        return [next(times) if has else 0.0 for has in has_command]

    def flush(self) -> None:
        """Nothing to do: what is submitted runs."""

    def fence(self) -> JobHandle | None:
        """The last job of this stream; None when nothing is in flight."""
        if self._idle():
            return None
        return self._enqueue(_NOTHING, None) if self._marks else self._last

    def before_joining(self, done: JobHandle | None) -> Sequence[JobHandle]:
        """What a job has to wait for that joins this stream from outside; see `joined`.

        `done` is a job that is known to be done.
        """
        if not (self._marks or self._owed) and (self._last is None or self._last is done):
            return ()
        if self._idle():
            return ()
        if self._owed:
            self._settle()
        return [*self._marks, *(() if self._last is None else (self._last,))]

    def joined(self, job: JobHandle) -> None:
        """A job that waits for all that this stream had in flight is its last one now."""
        self._last, self._marks = job, []

    def waits_for(self, mark: Any) -> bool:
        """Whether a mark is a job of this job system."""
        return isinstance(mark, JobHandle) and mark.system is self.jobs

    def upload_behind(self, buffer: DeviceBuffer, data: CPUTensorData) -> None:
        """Copy elements by a job, once the job that writes them is done."""
        assert isinstance(buffer, CPUBuffer)
        fence = data.fence
        if fence is None:
            self.upload(buffer, data.elements)
            return
        self.after(fence)
        source = data.elements
        copy = self._free_copy(0)
        commands = copy.aim(buffer.address, source.ctypes.data, source.nbytes)
        copy.handle = self._submit(commands, (source, buffer.array))
        data.is_read_by(copy.handle)

    def after(self, mark: Any) -> None:
        """Let what is enqueued from now on start after a job (of the same job system)."""
        if isinstance(mark, JobHandle):
            self._marks.append(mark)

    def synchronize(self) -> None:
        """Block until everything enqueued has run."""
        for handle in (self._last, *self._marks):
            if handle is not None:
                _wait_for(handle)
        self._idle()

    def dispose(self) -> None:
        """Let go of everything without waiting: jobs in flight hold what they use until they are done."""
        self._copies.clear()
        self._disposed = True

    # The stream

    def _arena_of(self, size: int) -> np.ndarray:
        """Memory for a program's temporaries; all programs of a stream share it, as they run in turn."""
        if len(self._arena) < size:
            # Plans made before keep the arena that their commands know.
            self._arena = reserve(size if not len(self._arena) else size + size // 4)
        return self._arena

    def _idle(self) -> bool:
        if self._marks:
            self._marks = [m for m in self._marks if not m.is_completed]
        if self._last is not None:
            if not self._last.is_completed:
                return False
            self._last = None
            self._settle()
        return not self._marks

    def _submit(self, commands: CommandList, keep_alive: object) -> JobHandle:
        """Let a job join the stream, behind the copies of the values that readbacks still owe."""
        if self._owed:
            self._settle()
        return self._enqueue(commands, keep_alive)

    def _submit_observed(self, commands: CommandList, keep_alive: object) -> JobHandle:
        """The same, with the times told to observers when it has run."""
        stamped = Stamped(commands)
        handle = self._submit(stamped.commands, keep_alive)
        observing.later(ObservedJob(stamped, handle))
        return handle

    def _submit_again(self, before: JobHandle | None, commands: CommandList, keep_alive: object) -> JobHandle:
        """Let commands join the empty stream; `before` is the last job of these commands, if it kept the same
        alive.
        """
        job = self.jobs.again(before) if before is not None else None
        if job is None:
            return self._submit(commands, keep_alive)
        self._last = job
        return job

    def _settle(self) -> None:
        owed, self._owed = self._owed, []
        for reference, source in owed:
            read = reference()
            if read is not None and read.is_owed:
                if read.done():
                    read.array()
                else:
                    self._copy_out(read, source)

    def _enqueue(self, commands: CommandList, keep_alive: object) -> JobHandle:
        if self._disposed:
            raise DisposedError("this backend was disposed")
        depends: list[JobHandle] = self._marks
        self._marks = []
        if self._last is not None and not self._last.is_completed:
            depends = [*depends, self._last]
        self._last = self.jobs.submit(commands, depends, keep_alive=keep_alive)
        return self._last

    def _free_copy(self, staging_bytes: int) -> _Copy:
        """A copy command that is not in flight, with at least so much staging memory.

        What readbacks still owe comes first: their copies take such commands too.
        """
        if self._owed:
            self._settle()
        best: _Copy | None = None
        for copy in self._copies:
            if len(copy.staging) >= staging_bytes and (copy.handle is None or copy.handle.is_completed):
                if best is None or len(copy.staging) < len(best.staging):
                    best = copy
        if best is None:
            best = _Copy(self._copy_function, staging_bytes)
            self._copies.append(best)
        return best
