"""`Plan`: steps over named buffers for one set of input shapes, from compiler to backend.

First come `Compute` steps, whose formulas still hold live values: fusion rewrites them, and backends
may replace those that carry a `Hint` by tuned kernels. Then every formula becomes a `Step`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from engine.base.memory.paged import let_go_of_sources
from engine.base.name_registry import NameRegistry
from engine.kernels.expr import Expr, IterationNumber, nodes, substitute
from engine.kernels.hint import Hint, HintKind
from engine.kernels.kernel import Kernel, kernel_call
from engine.kernels.size import Number
from engine.kernels.value import HostTable, Signature, Value


@dataclass(slots=True, eq=False)
class Compute:
    """One kernel as a formula: `output`, in row-major order over `space`, becomes `body`.

    `epilogue`, if any, is the stored value as a formula over `acc` (what `body` yields, in the arithmetic
    type of the formula), loads at `FLAT` and loads by index over the same space. `extents` is the signature
    of the space, None where it is unknown; `elementwise` marks formulas without loops or moved elements.
    """

    output: Value
    space: tuple[int, ...]
    body: Expr
    layer: str
    op_type: str
    hint: Hint | None = None
    epilogue: Expr | None = None
    extents: Signature | None = None
    elementwise: bool = False
    reads: tuple[Value, ...] = field(default=(), init=False, repr=False)
    """The tensors that body and epilogue load or that the hint is about, each once; they never change."""

    def __post_init__(self) -> None:
        formulas = (self.body,) if self.epilogue is None else (self.epilogue, self.body)
        loaded = [node.attr for node in nodes(*formulas) if node.op == "load"]
        operands = [v.root for v in self.hint.operands] if self.hint is not None else []
        self.reads = tuple(dict.fromkeys([*loaded, *operands]))

    @property
    def kind(self) -> HintKind | None:
        """The hint's kind; None without a hint."""
        return None if self.hint is None else self.hint.kind

    @property
    def operands(self) -> tuple[Value, ...]:
        """The tensors that the hint refers to."""
        assert self.hint is not None
        return self.hint.operands

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The hint's attributes."""
        assert self.hint is not None
        return self.hint.attributes

    @property
    def is_float32(self) -> bool:
        """Whether the hint's tensors are float32, and `body` is computed so."""
        return self.body.dtype == "float32" and all(v.dtype == np.float32 for v in self.operands)

    def formula(self) -> Expr:
        """Body and epilogue as one formula."""
        if self.epilogue is None:
            return self.body
        return substitute(self.epilogue, lambda x: self.body if x.op == "acc" else None)

    def as_step(self) -> Step:
        """The generic step: any backend can run it."""
        assert self.hint is None or not self.hint.is_bound, f"{self.layer} has no formula of its own"
        kernel, values, inputs = kernel_call(self.formula(), len(self.space), self.output.dtype)
        names = tuple(v.name for v in inputs)
        return Step(self.layer, self.op_type, kernel, self.space, values, names, self.output.name)


class AnyKernel(Protocol):
    """A generic `Kernel`, or a tuned one that only its backend understands."""

    @property
    def key(self) -> str:
        """The cache key of compiled code: a content hash of what defines the kernel."""
        ...


class StoredKernel(NamedTuple):
    """A kernel of a plan read from disk: its metadata without its formula.

    `key` is that of its compiled code. `nanoseconds` is what its step is estimated to take on one thread.
    """

    key: str
    name: str
    is_tuned: bool
    nanoseconds: float


class IterationWindow(NamedTuple):
    """The elements that a repeated step computes in an iteration: those from `start + run * stride` on."""

    start: int
    stride: int
    elements: int


@dataclass(frozen=True, slots=True)
class Step:
    """One dispatch: kernel, index space, run-time arguments, and the names of the buffers it touches."""

    layer: str
    op_type: str
    kernel: AnyKernel
    space: tuple[int, ...]
    values: tuple[int | float, ...]
    inputs: tuple[str, ...]
    output: str
    window: IterationWindow | None = None
    """Which of its elements it computes, None for all."""

    @property
    def parts(self) -> tuple[Step, ...]:
        """The steps that it repeats, recursively; itself if it repeats none."""
        if not isinstance(self.kernel, RepeatedSteps):
            return (self,)
        return tuple([part for step in self.kernel.steps for part in step.parts])

    def numbers(self) -> list[Number]:
        """Its sizes and arguments, and the estimated cost of a kernel without a formula."""
        numbers: list[Number] = [*self.space, *(x for x in self.values if type(x) is not IterationNumber)]
        if isinstance(self.kernel, StoredKernel):
            numbers.append(self.kernel.nanoseconds)
        if isinstance(self.kernel, RepeatedSteps):
            numbers += [number for step in self.kernel.steps for number in step.numbers()]
        return [*numbers, *(self.window or ())]

    def filled(self, supply: Iterator[Any]) -> Step:
        """The step with other numbers, in the order of `numbers`."""
        space = tuple(next(supply) for _ in self.space)
        values = tuple(x if type(x) is IterationNumber else next(supply) for x in self.values)
        kernel = self.kernel
        if isinstance(kernel, StoredKernel):
            kernel = kernel._replace(nanoseconds=next(supply))
        if isinstance(kernel, RepeatedSteps):
            kernel = kernel.filled(supply)
        window = None if self.window is None else IterationWindow(*(next(supply) for _ in self.window))
        return replace(self, kernel=kernel, space=space, values=values, window=window)

    def renamed(self, names: Mapping[str, str]) -> Step:
        """Return the step with other tensors and names."""
        kernel = self.kernel
        if isinstance(kernel, RepeatedSteps):
            kernel = kernel.renamed(names)
        inputs = tuple([names.get(name, name) for name in self.inputs])
        return replace(self, kernel=kernel, inputs=inputs, output=names.get(self.output, self.output))

    @property
    def is_generic(self) -> bool:
        """Whether any backend could run this step."""
        kernel = self.kernel
        return isinstance(kernel, Kernel) or (isinstance(kernel, StoredKernel) and not kernel.is_tuned)


@dataclass(frozen=True)
class RepeatedSteps:
    """The kernel of a step that repeats others; `space` holds the number of iterations.

    body: what a run with an even number consists of. last: what follows the last run, with the number of runs
    as its own. swapped: which tensors stand for which in runs with an odd number: a state before and after.
    """

    body: tuple[Step, ...]
    last: tuple[Step, ...]
    swapped: Mapping[str, str]

    @property
    def steps(self) -> tuple[Step, ...]:
        """All repeated steps, each once."""
        return self.body + self.last

    @cached_property
    def key(self) -> str:
        """The keys of all its kernels."""
        return hashlib.sha256(" ".join(step.kernel.key for step in self.steps).encode()).hexdigest()[:24]

    def in_iteration(self, steps: Sequence[Step], number: int) -> list[Step]:
        """The steps of iteration `number`; in odd iterations, swapped tensors change places."""
        if number % 2 == 0:
            return list(steps)

        return [step.renamed(self.swapped) for step in steps]

    def renamed(self, names: Mapping[str, str]) -> RepeatedSteps:
        """Return the kernel with other tensors and names."""
        body = tuple([step.renamed(names) for step in self.body])
        last = tuple([step.renamed(names) for step in self.last])
        return RepeatedSteps(body, last, self.swapped)

    def of_run(self) -> dict[str, tuple[int, int]]:
        """First and last step of an iteration that touch each tensor local to it."""
        made: dict[str, tuple[int, int]] = {}
        lasting = set(self.swapped)
        for position, step in enumerate(self.body):
            lasting.update(name for name in step.inputs if name not in made)
            if step.window is not None:
                lasting.add(step.output)
            for name in (*step.inputs, step.output):
                made[name] = (made.get(name, (position,))[0], position)
        return {name: span for name, span in made.items() if name not in lasting}

    def filled(self, supply: Iterator[Any]) -> RepeatedSteps:
        """The same with other numbers."""
        body = tuple([step.filled(supply) for step in self.body])
        return RepeatedSteps(body, tuple([step.filled(supply) for step in self.last]), self.swapped)


STORABLE = NameRegistry()
"""What stored plans may call to pack weights, by name."""

R = TypeVar("R", bound=Callable[..., Any])


def storable(made: R) -> R:
    """Let stored plans call a function with arguments of the annotated types.

    Such a call is `functools.partial(function, ...)` of arrays, numbers, texts, tuples, dataclasses of these
    and further such calls.
    """
    STORABLE.add(made)
    return made


class Packed:
    """A constant derived from the model's, such as packed weights, held until it is in a buffer.

    `make` needs nothing but the model, so the elements can be made again when they are needed once more.
    Where it is the call of a `storable` function, the plan can be stored.
    """

    __slots__ = ("_array", "dtype", "make", "size")

    def __init__(
        self, make: Callable[[], np.ndarray], size: int | None = None, dtype: np.dtype | None = None
    ) -> None:
        """Compute it at once, unless `size` and `dtype` are given."""
        self.make = make
        self._array: np.ndarray | None = None
        if size is None or dtype is None:
            array = self._array = self._made()
            size, dtype = array.size, array.dtype
        self.size = size
        self.dtype = dtype

    def elements(self) -> np.ndarray:
        """The array, read-only; packed again if it was released."""
        return self._made() if self._array is None else self._array

    def _made(self) -> np.ndarray:
        array = self.make()
        array.flags.writeable = False  # so a backend may use it without a copy
        let_go_of_sources(self.make, array)
        return array

    def drop(self) -> None:
        """Release the array."""
        self._array = None


Role = Literal["constant", "input", "output", "temporary", "table"]


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """A buffer of a plan: how many elements of which type, and who provides it."""

    name: str
    elements: int
    dtype: np.dtype
    role: Role


@dataclass(slots=True)
class Plan:
    """Steps in execution order and the buffers they use. Views share their source's buffer.

    `packed` are constants that plans have in common, in addition to those in `constants`; `tables` are what
    the host computes of sizes that are open. `shared` is what a backend has made of the steps and buffers, by
    its type: copies with constants of their own have it in common.
    """

    steps: list[Step] = field(default_factory=list)
    buffers: dict[str, BufferSpec] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    packed: dict[str, Packed] = field(default_factory=dict)
    tables: dict[str, HostTable] = field(default_factory=dict)
    shared: dict[type, Any] = field(default_factory=dict, compare=False, repr=False)

    def numbers(self) -> list[Number]:
        """All sizes, arguments and stored costs; in a symbolic plan they may be symbolic."""
        numbers = [number for step in self.steps for number in step.numbers()]
        return numbers + [spec.elements for spec in self.buffers.values()]

    def filled(self, numbers: Iterable[Any]) -> Plan:
        """The plan with other sizes and arguments, in the order of `numbers`; without constants."""
        supply = iter(numbers)
        steps = [step.filled(supply) for step in self.steps]
        buffers = {
            name: BufferSpec(name, next(supply), spec.dtype, spec.role) for name, spec in self.buffers.items()
        }
        return Plan(steps, buffers)

    @property
    def kernels(self) -> list[AnyKernel]:
        """The kernels of all steps, including repeated ones."""
        return [part.kernel for step in self.steps for part in step.parts]

    @property
    def repeats(self) -> bool:
        """Whether any step repeats others."""
        return any(isinstance(step.kernel, RepeatedSteps) for step in self.steps)

    def given(self, constants: Container[str]) -> list[str]:
        """The buffers from outside, without constants: inputs, outputs and tables."""
        return [n for n, spec in self.buffers.items() if spec.role != "temporary" and n not in constants]

    def lifetimes(self) -> dict[str, tuple[int, int]]:
        """First and last step that touches each temporary buffer; repeated steps count one by one.

        What a run does not make before it reads it lives as long as all runs.
        """
        spans: dict[str, tuple[int, int]] = {}
        end = 0
        for step in self.steps:
            begin, end = end, end + len(step.parts)
            of_run = step.kernel.of_run() if isinstance(step.kernel, RepeatedSteps) else {}
            for name in (*step.inputs, step.output):
                if self.buffers[name].role == "temporary":
                    first, last = of_run.get(name, (0, end - begin - 1))
                    spans[name] = (spans.get(name, (begin + first,))[0], begin + last)
        return spans


class Tuner:
    """Interface for a backend's tuning rule while it replaces a `Compute` step.

    `emit` adds a step; `constant` registers an array derived from known operands (packed weights), made
    once per model and reused by every plan; `temporary` allocates scratch memory. `weight_bytes` is what all
    constants of the model take: whether those of one step stay in a cache until the next run. `generic` makes
    the backend's step of a formula. `producer` computes the tensor that a pool alone reads.
    """

    def __init__(
        self,
        compute: Compute,
        constant: Callable[[str, Callable[[], np.ndarray]], str],
        temporary: Callable[[int, np.dtype], str],
        weight_bytes: int = 0,
        generic: Callable[[Compute], Step] = Compute.as_step,
        producer: Compute | None = None,
    ) -> None:
        self.compute = compute
        self.generic = generic
        self.producer = producer
        self.constant = constant
        self.temporary = temporary
        self.weight_bytes = weight_bytes
        self.steps: list[Step] = []

    def emit(
        self,
        kernel: AnyKernel,
        space: tuple[int, ...],
        values: tuple[int | float, ...],
        inputs: tuple[str, ...],
        output: str,
    ) -> None:
        """Add a step of this backend's own kernel."""
        c = self.compute
        self.steps.append(Step(c.layer, c.op_type, kernel, space, values, inputs, output))
