"""`@job`: compiles a Python function, which job threads run over a range without the GIL.

    @job
    def fill(begin, end, out, x, scale):
        for i in range(begin, end):
            out[i] = x[i] * scale

    handle = fill.schedule(out_tensor, x_tensor, 2.0, count=1000)

`schedule` returns at once. What the tensors wait for (jobs that write or read them, a worker's schedules on
the CPU), the job waits for natively; what is scheduled later over them waits for the job in turn. So chains
of jobs and workers run without the main thread in between.

The code is compiled by numba for the types of its arguments, in a child process, at the first `schedule` or
ahead by `prepare`; object code is stored under the text of the function and of what it calls, so a warm start
needs no numba. Compiled code cannot raise, makes no arrays, and checks no index: one outside its array reads
or writes other memory, or ends the process. Called like any function, a job runs as plain Python: for tests.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from engine.api.job_arguments import NUMBA_NAMES, BoundArguments, JobArgument, argument_type, bind
from engine.backends.tensor_data import JobMemory
from engine.base.errors import InputError, KernelCompileError
from engine.device import native
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.source import Function, FunctionText, source_text, where
from engine.device.jobs.system import JobHandle, JobSystem, shared_job_system
from engine.device.native import NativeSource, PendingLoad
from engine.device.native.prelude import PRELUDE, written_out

Dependencies = JobHandle | None | Sequence[JobHandle | None]
"""A job, several, or none: what is None was done before anybody asked."""

_HEAD = """
from numba import carray as _carray


def _make_pointer(kind):
    @_intrinsic
    def pointer(typing_context, address):
        def generate(context, builder, signature, args):
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return _types.CPointer(kind)(_types.int64), generate

    return pointer


# A user's function may be called as anything above is.
_gameglue_helper, _gameglue_types = helper, _types
_gameglue_i64, _gameglue_f64, _gameglue_array = arg_i64, arg_f64, _carray
_gameglue_make_pointer = _make_pointer


"""
_CHUNKS_PER_THREAD = 4


class Job:
    """A function that job threads run; made by `job`.

    Attributes:
        py_func: The Python function.
    """

    def __init__(self, function: Function) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self._kernels: dict[tuple[JobArgument, ...], int] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Run as plain Python, on this thread."""
        return self.py_func(*arguments)

    def __repr__(self) -> str:
        return f"<job {self.py_func.__name__}>"

    def prepare(self, *arguments: Any) -> PendingLoad:
        """Start compiling for these argument types in the background; poll `done()` on the result."""
        self._check_number(arguments)
        kinds = tuple(map(argument_type, arguments, self._titles))
        return native.process_store().prepare_async([self._source(kinds)])

    def schedule(
        self,
        *arguments: Any,
        count: int | None = None,
        grain: int | None = None,
        depends_on: Dependencies = None,
        jobs: JobSystem | None = None,
    ) -> JobHandle:
        """Queue the function over `range(count)` and return; it is called as `function(begin, end, ...)`.

        On the thread of the workers whose outputs it takes, or that take its tensors.

        Args:
            arguments: what comes after begin and end. Tensors on the CPU, outputs of a worker on the CPU
                (`worker.peek_output()`), row-major arrays (nobody else may change those until the job is
                done), numbers; tensors and arrays of 1 to 4 axes, of integers, bool, float32 or float64.
            count: how many indices there are; by default the first array's first size.
            grain: how many of them one call does at least; by default a few calls for each thread.
            depends_on: jobs to wait for, in addition to what the tensors themselves wait for.
            jobs: where to run; by default where its tensors and dependencies are, else the shared system.

        The first call for new types compiles, which takes a second or two unless it was stored or prepared.

        Raises:
            InputError: An argument cannot be taken, or a dependency belongs to another job system.
            DisposedError: A tensor was disposed.
            ValuePending: The schedule of an output still waits for data of its own.
            KernelCompileError: The function cannot be compiled.
        """
        return self.over(self.bound(arguments), count, grain, depends_on, jobs)

    def run(self, *arguments: Any, count: int | None = None) -> None:
        """Run the function and return when it is done; on this thread if nothing is pending."""
        bound = self.bound(arguments)
        self.over(bound, count, None, None, None, inline=True).complete()

    def bound(self, arguments: Sequence[Any]) -> BoundArguments:
        """Arguments as the compiled code takes them. Raises as `schedule` does."""
        expected = self._check_number(arguments)
        return bind(arguments, self._titles, self._text.written, expected)

    def _check_number(self, arguments: Sequence[Any]) -> tuple[str, ...]:
        """Check the number of arguments; returns the names of the parameters after begin and end."""
        expected = self._text.parameters[2:]
        if len(arguments) != len(expected):
            raise InputError(
                f"job '{self.py_func.__name__}' takes {len(expected)} argument(s) after begin and end "
                f"({', '.join(expected) or 'none'}), got {len(arguments)}"
            )
        return expected

    def over(
        self,
        bound: BoundArguments,
        count: int | None,
        grain: int | None,
        depends_on: Dependencies,
        jobs: JobSystem | None,
        inline: bool = False,
    ) -> JobHandle:
        """`schedule` for arguments that were bound."""
        given = (depends_on,) if isinstance(depends_on, JobHandle) else depends_on or ()
        handles = [h for h in given if h is not None]
        before = [r for m in bound.memories for r in m.before if isinstance(r, JobHandle)]
        system = self._system(jobs, handles, bound.memories, before)
        commands = self.commands(bound, count, grain, system.thread_count)
        unfinished = list(dict.fromkeys(h for h in (*handles, *before) if not h.is_completed))
        handle = system.submit(commands, unfinished, inline=inline, keep_alive=bound.memories)
        for memory in bound.memories:
            memory.after(handle)
        return handle

    def commands(
        self, bound: BoundArguments, count: int | None, grain: int | None, threads: int
    ) -> CommandList:
        """A command list with this job's single command."""
        total = bound.first_size if count is None else count
        if total is None:
            raise InputError(
                f"job '{self.py_func.__name__}' has no array argument: give count=, the number of indices"
            )
        if total < 0 or (grain is not None and grain < 1):
            raise InputError(f"job '{self.py_func.__name__}' needs a count from 0 and a grain from 1")
        step = grain if grain is not None else max(1, -(-total // (threads * _CHUNKS_PER_THREAD)))
        function = self._kernels.get(bound.kinds) or self._kernel(bound.kinds)
        return CommandList.single(function, bound.words, total, step, bound.memories)

    # Compiling

    @functools.cached_property
    def _text(self) -> FunctionText:
        return source_text(self.py_func)

    @functools.cached_property
    def _titles(self) -> tuple[str, ...]:
        return tuple(
            f"argument '{name}' of job '{self.py_func.__name__}'" for name in self._text.parameters[2:]
        )

    def _system(
        self,
        jobs: JobSystem | None,
        handles: Sequence[JobHandle],
        memories: Sequence[JobMemory],
        before: Sequence[JobHandle],
    ) -> JobSystem:
        """The one job system of all arguments and dependencies. Raises `InputError` if they have several."""
        found = [m.jobs for m in memories if m.jobs is not None] + [h.system for h in (*handles, *before)]
        chosen: JobSystem = jobs if jobs is not None else found[0] if found else shared_job_system()
        if any(other is not chosen for other in found):
            raise InputError(
                f"job '{self.py_func.__name__}' would wait for jobs of another JobSystem: a job and all that "
                "it depends on (handles, tensors in use, workers) belong to one; pass jobs= to all or to none"
            )
        return chosen

    def _kernel(self, kinds: tuple[JobArgument, ...]) -> int:
        address = self._kernels.get(kinds)
        if address is None:
            source = self._source(kinds)
            try:
                address = self._kernels[kinds] = native.process_store().address(source)
            except KernelCompileError as error:
                raise KernelCompileError(self._explained(error)) from None
        return address

    def _source(self, kinds: tuple[JobArgument, ...]) -> NativeSource:
        pointers: list[str] = []
        values: list[str] = []
        word = 0
        for number, kind in enumerate(kinds):
            values.append(kind.text(f"_gameglue_pointer_{number}", word))
            word += kind.words
            if kind.rank:
                pointer = f"_gameglue_pointer_{number} = _gameglue_make_pointer"
                pointers.append(f"{pointer}(_gameglue_types.{NUMBA_NAMES[kind.dtype]})\n")
        call = f"    {self.py_func.__name__}({', '.join(['begin', 'end', *values])})\n"
        entry = "def _gameglue_entry(args, begin, end):\n" + call
        text = PRELUDE + _HEAD + self._text.text + "\n" + "".join(pointers) + entry
        return NativeSource(f"job {self.py_func.__name__}", text, "_gameglue_entry")

    def _explained(self, error: KernelCompileError) -> str:
        """What a compiler's message says, in a few lines, with places in the user's own files."""
        skipped = written_out(PRELUDE + _HEAD).count("\n")
        message = str(error.__cause__ or error)
        title = f"job '{self.py_func.__name__}' ({where(self.py_func)}) cannot be compiled"
        if "needs Python at run time" in message:
            makes = "NRT_MemInfo_alloc" in message or "NRT_Allocate" in message
            what = (
                "it makes an array (such as numpy.zeros, or arithmetic on slices)"
                if makes
                else ("it may raise (raise, assert, print, setting a slice to another)")
            )
            return f"{title}: {what}, which job threads cannot; work element by element in loops"
        places = [
            place
            for found in re.findall(r'File "<kernel [^>]*>", line (\d+)', message)
            if (place := self._text.place(int(found) - skipped)) is not None
        ]
        lines = [
            line.strip()
            for line in message.split("\nFile ")[0].splitlines()
            if line.strip() and "Failed in nopython mode pipeline" not in line
        ]
        said = " ".join(lines[:4])[:500] or message.splitlines()[0]
        return f"{title}: {said}" + (f" (at {places[0]})" if places else "")


def job(function: Callable[..., object]) -> Job:
    """Decorator that makes `def name(begin, end, ...)` a job; see `engine.api.jobs`."""
    if not isinstance(function, Function):
        raise InputError(f"@job goes before a function, not a {type(function).__name__}")
    return Job(function)
