"""The fast path of a schedule: inputs of known shapes and types, for a plan with one program."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np

from engine.backends.gpu.integers import beyond_32_bits
from engine.backends.plan_template import FilledSizes
from engine.backends.program_runner import ProgramRunner
from engine.backends.tensor_data import CPUTensorData, changes
from engine.base.dtypes import TEXT
from engine.base.errors import OutOfMemoryError
from engine.base.memory.out_of_memory import out_of_memory
from engine.base.memory.results import LEAST
from engine.compiler.trace import SCHEDULE_COUNT
from engine.compiler.walk import Elements
from engine.kernels.value import EncodedValue, Value
from engine.runtime.binding import Feed, bind_all, can_bind, enqueue
from engine.runtime.device_tensor_data import BufferTensorData
from engine.runtime.inputs import Named, Positional
from engine.runtime.outputs import ObjectsOutput, RunOutput
from engine.runtime.plans.recorded_plan import Location, RecordedPlan, SizedLocation
from engine.runtime.plans.session import Session
from engine.runtime.plans.size_substitution import shown_in
from engine.runtime.plans.specialized_plan import SpecializedPlan
from engine.runtime.plans.symbolic_values import digest
from engine.runtime.run import Run
from engine.runtime.tensor import Tensor

Found: TypeAlias = "tuple[type[RunOutput], str, np.dtype, Location]"
"""How an output is read: the storage's class, the output's name, the type of its elements, its location."""


class FastPath(Run):
    """Schedules of a one-program plan for inputs of fixed shapes and types, with lookups cached.

    Everything that can be looked up is looked up once, as a small network takes no longer than that. It is
    also the run of the schedules that take it: all their work is enqueued at once, and `turn` counts them.

    Attributes:
        outputs: What `output` has found.
        backend: The backend of the program.
        program: The program.
        targets: The buffers of the inputs; None for an input that nothing reads.
        shapes: The shapes of the inputs.
        dtypes: Their types.
        runner: What runs the program with new inputs.
        form: The type of the collection that the last inputs came in; None if they cannot come again.
    """

    # Outputs, by their buffers, that stay there, and the turn in which others do not. Defaults of the class:
    # Python takes longer to look into objects of 30 attributes.
    _fixed: Collection[str] = ()
    _own_turn = -1
    started = finished = True
    # The checked tensors of the last schedule: storage keeps its shape and type.
    _tensors: Sequence[CPUTensorData | None] = ()
    # If the last schedule was given tensors only: each one's position or name, its storage and elements.
    _same: Sequence[tuple[int | str, Tensor, CPUTensorData, np.ndarray]] = ()
    _arrays: Sequence[np.ndarray] = ()
    form: type | None = None
    filled: FilledSizes | None = None
    """What `SymbolicFastPath` fills in again for other sizes."""
    # `changes.latest` when the inputs of `set_input` were last checked.
    _checked: object = None
    # The outputs' names, and whether their elements are worth taking over.
    _takeable: Sequence[tuple[str, bool]] = ()

    def __init__(
        self,
        session: Session,
        recorded: RecordedPlan,
        names: tuple[str, ...],
        shapes: tuple[tuple[int, ...], ...],
        dtypes: Sequence[np.dtype],
        in_place: Sequence[bool],
        known: Elements | None = None,
        count: np.ndarray | None = None,
        runner: ProgramRunner | None = None,
    ) -> None:
        """`in_place` says of each input, and of `count` at last, whether no output consists of it.

        `runner` is what runs the program, if it is there already.
        """
        super().__init__(session, recorded, {})
        (submission,) = recorded.submissions
        self.backend, self.program = session.backends[submission.place], submission.program
        self.shapes, self.dtypes, self._names = shapes, dtypes, names
        # Elements of inputs on which the plan depends.
        self._decided = [(names.index(name), digest(array)) for name, array in known.items()] if known else ()
        is_narrow = not session.backends["native"].keeps_int64
        # Inputs whose elements have to fit 32 bits.
        self._wide = [k for k, d in enumerate(dtypes) if is_narrow and d.kind in "iu" and d.itemsize == 8]
        self._count = count
        taken = names
        if count is not None:
            taken = (*names, SCHEDULE_COUNT)
        found = [recorded.inputs.get(name) for name in taken]
        self.targets = [places[0][1] if places else None for places in found]
        self.runner = runner or self.backend.program_runner(self.program, self.targets, in_place)
        self._values: dict[str | int | None, tuple[str, Value]] = {}
        self._objects: dict[str | int | None, tuple[str, Value]] = {}
        self.outputs: dict[str | int | None, Found] = {}

    def resize(self, shapes: tuple[tuple[int, ...], ...]) -> None:
        """Follow the plan and its buffers to inputs of other shapes, for which a schedule comes next."""
        self.shapes = shapes
        self.runner.resize()
        if self._fixed:
            self._fixed = ()
        if self._values or self._objects:
            self._values, self._objects, self._takeable = {}, {}, ()
        if self._tensors:
            self._forget_inputs()

    @classmethod
    def of(
        cls,
        session: Session,
        recorded: RecordedPlan,
        names: Sequence[str],
        known: Elements,
        count: np.ndarray | None = None,
    ) -> FastPath | None:
        """The fast path of a plan, or None if the plan is more than one program over arrays.

        Args:
            session: The session of the plan.
            recorded: The plan.
            names: Names of the inputs.
            known: Elements of inputs on which the plan depends.
            count: The number of schedules before the next one, for layers that draw random numbers.
        """
        trace, submissions = recorded.lowered.trace, recorded.submissions
        if trace.stop is not None or len(submissions) != 1 or submissions[0].transfers:
            return None
        if any(place != submissions[0].place for places in recorded.inputs.values() for place, _ in places):
            return None
        inputs: list[Value] = []
        for name in names:
            value = trace.values[name]
            if not isinstance(value, Value):
                return None
            inputs.append(value)
        shown = shown_in(trace, session.source)
        taken = names if count is None else (*names, SCHEDULE_COUNT)
        in_place = [name not in shown for name in taken]
        shapes, dtypes = tuple([value.shape for value in inputs]), [value.dtype for value in inputs]
        return cls(session, recorded, tuple(names), shapes, dtypes, in_place, known, count)

    def output(self, name: str | int | None) -> Found | None:
        """An output, given by name, by number, or as None for the first.

        None for those that are no tensors of a size that is known, nor objects that stand for the elements of
        one.
        """
        known, kind, dtype = self._named(name), RunOutput, None
        if known is None:
            known, kind, dtype = self._objects.get(name), ObjectsOutput, TEXT
        if known is None:
            return None
        location = self.locate(known[1])
        if kind is ObjectsOutput and isinstance(entry := self.recorded.lowered.entry(known[0]), EncodedValue):
            location = location.of(entry.objects)
        is_lasting = not self._has_own(known[1])
        if is_lasting and isinstance(lowered := self.recorded.lowered, SpecializedPlan) and self.filled:
            # The sizes become others.
            is_lasting = kind is RunOutput and location.buffer is not None
            if location.backend is not None and location.buffer is not None and is_lasting:
                location = SizedLocation(lowered, known[0], location.backend, location.buffer)
        found = kind, known[0], dtype or known[1].dtype, location
        if is_lasting:
            self.outputs[name] = found
        return found

    def fix_outputs(self) -> None:
        """Keep outputs in the program's buffers from the next schedule on: recorded commands use these."""
        self._fixed = self.runner.outputs

    def fixed_output(self, name: str | int | None) -> Location | None:
        """The location of an output after `fix_outputs`; it differs from the current one while `has_own`."""
        known = self._named(name)
        return None if known is None else super().locate(known[1])

    def _named(self, name: str | int | None) -> tuple[str, Value] | None:
        """The name and the value of an output that is a plain tensor."""
        if name not in self._values and (known := self.session.output_names.get(name)) is not None:
            entry, values = self.recorded.lowered.entry(known), self._values
            # In this order, as it takes longer to find that something is of an abstract class.
            if not isinstance(entry, Value) and isinstance(entry, EncodedValue):
                entry, values = entry.items[0], self._objects
            if isinstance(entry, Value) and entry.bound is None:
                values[name] = known, entry
        return self._values.get(name)

    @property
    def has_own(self) -> bool:
        """Whether the outputs of the latest schedule are in memory of their own."""
        return self._own_turn == self.turn

    def _has_own(self, value: Value) -> bool:
        return self._own_turn == self.turn and value.root.name in self.runner.own

    def locate(self, value: Value) -> Location:
        """The location of a tensor of the latest schedule."""
        own = self.runner.own_output(value.root.name) if self._has_own(value) else None
        if own is None:
            return super().locate(value)
        # Peeking at an output ends its use by copies that take over its memory.
        self._fixed = {*self._fixed, value.root.name}
        return Location(value, self.backend, own)

    def detach_output(self, name: str | int | None) -> CPUTensorData | None:
        """Transfer an output's memory to the caller; None if it has to be copied instead."""
        known = self._values.get(name) or self._named(name)
        if known is None:
            return None
        root = known[1].root.name
        if root not in self.runner.outputs or root in self._fixed:
            return None
        value = known[1]
        return self.runner.detach_output(root, value.shape, value.size, self._own_turn == self.turn)

    def take_outputs(self) -> dict[str, np.ndarray] | None:
        """The elements of all outputs, by name, which the caller owns; None if not all are plain arrays."""
        taken = dict[str, np.ndarray]()
        self.runner.note_taken()
        for name, is_large in self._takeable or self._find_takeable():
            data = self.detach_output(name) if is_large else None
            if data is not None:
                taken[name] = data.release()
                continue
            found = self.outputs.get(name) or self.output(name)
            assert found is not None
            location = found[3]
            try:
                taken[name] = location.read(None)
            except (MemoryError, OutOfMemoryError) as error:
                raise out_of_memory(name, location.value.shape, found[2], "the CPU", error) from error
        if not taken:
            return None
        has_own = self.has_own
        self.note_taken()
        if has_own:
            # They are not in the program's buffers, where recorded commands would look for them.
            self._own_turn = self.turn
        return taken

    def _find_takeable(self) -> Sequence[tuple[str, bool]]:
        """The names of all outputs, and which are large; nothing if one is not an array of a known size."""
        found = list[tuple[str, bool]]()
        for item in self.session.source.outputs:
            if (known := self._named(item.name)) is None:
                return ()
            found.append((item.name, known[1].size * known[1].dtype.itemsize >= LEAST))
        self._takeable = found
        return found

    def let_go(self) -> None:
        """Release the plan, and inputs and outputs: a schedule of another plan follows."""
        super().let_go()
        if self._tensors:
            self._forget_inputs()
        self.runner.let_go()

    def _forget_inputs(self) -> None:
        self.form = self._checked = None
        self._tensors = self._arrays = self._same = ()

    @property
    def is_released(self) -> bool:
        """Whether its plan is: the cache has dropped it."""
        return self.recorded.fast_path is not self

    @property
    def is_plain(self) -> bool:
        """Whether inputs only have to match in shape and type."""
        return not self._decided and self._count is None and not self._wide

    def try_repeat(self, given: Named | Positional, is_kept: bool = False) -> bool:
        """Schedule if the inputs are last time's tensors with unchanged storage; returns whether it did.

        Most checks of `try_schedule` are not needed then. A network's work evicts Python's data from the
        caches, so every function called here costs the calling thread microseconds.

        Args:
            given: The inputs.
            is_kept: Whether they are those of `set_input`: while no tensor and none of them changes, nothing
                has to be checked.

        Returns:
            Whether it was scheduled.
        """
        if not is_kept or self._checked is not changes.latest:
            if type(given) is not self.form or len(given) != len(self._same):
                return False
            mark = changes.latest
            try:
                for key, tensor, storage, elements in self._same:
                    if given[key] is not tensor or tensor.elements_on_cpu is not storage:  # type: ignore[index]
                        return False
                    if storage.elements is not elements or storage.writer is not None:
                        return False
            except KeyError:
                return False
            if is_kept:
                self._checked = mark
        repeat, tensors = self.runner, self._tensors
        if not (repeat.again(tensors) or repeat.run(self._arrays, tensors)):
            self._run(self._arrays, tensors)
        return True

    def try_schedule(self, inputs: Positional, given: Named | Positional | None = None) -> bool:
        """Schedule if the inputs match the plan's shapes and types; returns whether it did.

        Args:
            inputs: The inputs in order.
            given: The collection that the caller gave, if it may come again.

        Returns:
            Whether it was scheduled.
        """
        if len(inputs) != len(self.shapes):
            return False
        dtypes = self.dtypes
        for number, shape in enumerate(self.shapes):
            array = inputs[number]  # takes half the time of a strict zip
            if type(array) is not np.ndarray:
                return self._try_schedule_tensors(inputs, given)
            if array.shape != shape or array.dtype != dtypes[number]:
                return False
        if self._wide and not self._are_narrow(inputs):
            return False
        if self._decided and not self._are_as_decided(inputs):
            return False
        arrays: Any = inputs if self._count is None else (*inputs, self._count)
        if not self.runner.run(arrays):
            self._run(arrays)
        return True

    def _run(self, feeds: Sequence[Any], tensors: Sequence[CPUTensorData | None] = ()) -> None:
        """Bind inputs and enqueue the program, with memory of their own for outputs that were copied."""
        if not self.runner.run_apart(feeds, tensors, self._fixed):
            self._submit(feeds)
            return
        self._own_turn, own = self.turn + 1, self.runner.own
        for key, (_, _, _, location) in [*self.outputs.items()]:
            if location.value.root.name in own:
                del self.outputs[key]

    def _submit(self, feeds: Sequence[Feed]) -> None:
        """Bind inputs, and enqueue the program."""
        backend = self.backend
        with backend.entered():
            bind_all(feeds, backend, self.targets)
            enqueue(backend, backend.run, self.program)
            backend.flush()

    def _try_schedule_tensors(self, inputs: Positional, given: Named | Positional | None) -> bool:
        """`try_schedule`, where some inputs are tensors, on the CPU or on the backend itself."""
        tensors: list[CPUTensorData | None] = []
        feeds: list[Any] = []
        known, is_awaited = self._tensors, False
        for number, (shape, dtype) in enumerate(zip(self.shapes, self.dtypes, strict=True)):
            item = inputs[number]
            tensor = item.elements_on_cpu if type(item) is Tensor else None
            feed: Any = item if tensor is None else tensor.elements
            if tensor is None and type(item) is Tensor:
                feed = item.available_data
                is_there = isinstance(feed, BufferTensorData | CPUTensorData)
                if not is_there or item.sizes != shape or feed.dtype != dtype:
                    return False
                if not can_bind(feed, self.backend):
                    return False
                is_awaited = True
            elif tensor is None or number >= len(known) or tensor is not known[number]:
                if type(feed) is not np.ndarray or feed.shape != shape or feed.dtype != dtype:
                    return False
            if tensor is not None and tensor.writer is not None and tensor.fence is not None:
                # An input that nothing reads has no buffer to wait with.
                if None in self.targets or not can_bind(tensor, self.backend):
                    return False
                is_awaited, feed = True, tensor
            tensors.append(tensor)
            feeds.append(feed)
        if self._wide and not self._are_narrow(feeds):
            return False
        if self._decided and (is_awaited or not self._are_as_decided(feeds)):
            return False
        is_of_tensors = None not in tensors and not self._decided and not self._wide
        if self._count is not None:
            tensors.append(None)
            feeds.append(self._count)
        self.form = self._checked = None
        if is_awaited:
            self._tensors = self._arrays = ()
            self._submit(feeds)
            return True
        self._tensors, self._arrays = tensors, feeds
        if not self.runner.run(feeds, tensors):
            self._run(feeds, tensors)
        if given is not None and is_of_tensors:
            keys = self._names if type(given) is dict else range(len(inputs))
            self.form = type(given)
            # The number of schedules may come last.
            self._same = list(zip(keys, inputs, tensors, feeds, strict=False))  # type: ignore[arg-type]
        return True

    def _are_narrow(self, feeds: Sequence[object]) -> bool:
        """Whether no integer is beyond 32 bits; not of tensors that are still being computed on the CPU."""
        found = [feeds[number] for number in self._wide]
        if CPUTensorData in map(type, found):
            return False
        return all(type(feed) is not np.ndarray or beyond_32_bits(feed) is None for feed in found)

    def _are_as_decided(self, arrays: Sequence[object]) -> bool:
        """Whether inputs on whose elements the plan depends have the same elements as when it was made."""
        return all(digest(arrays[number]) == wanted for number, wanted in self._decided)  # type: ignore[arg-type]
