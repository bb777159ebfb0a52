"""`Inputs`: checks the inputs of a schedule against the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from engine.backends.gpu.integers import check_integers
from engine.backends.tensor_data import CPUTensorData, TensorData, changes
from engine.base.errors import InputError
from engine.compiler.trace import InputShape, SequenceShape, leaf_names
from engine.graph.model import Input, Model
from engine.runtime.integer_checks import check_computed_integers
from engine.runtime.plans.session import HOST_INPUT_LIMIT, Session
from engine.runtime.tensor import Tensor

TensorLike = Tensor | ArrayLike
InputValue = TensorLike | Sequence[TensorLike] | Mapping[Any, Any] | None
"""A tensor or array; a list of them for an input that is a sequence; None for an optional left empty; a dict
for a map."""

Positional = tuple[InputValue | Mapping[str, InputValue], ...]
Named = Mapping[str, InputValue]


def check_kinds(model: Model) -> None:
    """Raise `InputError` for inputs that no worker takes."""
    for item in model.inputs:
        if item.kind not in ("tensor", "sequence", "optional", "map"):
            raise InputError(
                f"input '{item.name}' is a {item.kind}; workers take tensors, sequences, optionals and maps"
            )


class CheckedInputs(NamedTuple):
    """Checked inputs: shapes, the elements on which the plan depends, and tensors."""

    shapes: dict[str, InputShape]
    known: dict[str, np.ndarray]
    tensors: dict[str, TensorData | np.ndarray]

    @property
    def in_order(self) -> tuple[Any, ...]:
        """The tensors in the model's order, if all inputs are tensors."""
        return tuple(self.tensors[name] for name in self.shapes)


class Inputs:
    """A session's inputs, and the values that `set_input` keeps for later schedules.

    Args:
        session: The session.
        check_integers: Whether to check that computed integers fit 32 bits, on a backend without 64-bit
            integers.
    """

    def __init__(self, session: Session, check_integers: bool = False) -> None:
        self._session = session
        native = session.backends["native"]
        self._backend = native.name
        self._is_narrow = not native.keeps_int64
        self._checks_integers = check_integers and self._is_narrow
        self._items: dict[str, Input] = {item.name: item for item in session.source.inputs}
        dims = [{d for d in item.shape or () if isinstance(d, str)} for item in self._items.values()]
        self._has_shared_dims = len(set().union(*dims)) < sum(map(len, dims))
        self._count, self._first = len(self._items), next(iter(self._items), "")
        self._pick: Callable[[Any], tuple[Any, ...]] = itemgetter(*(tuple(self._items) or ("",)))
        # The last valid shape of each input: the next one is usually the same.
        self._fitting: dict[str, tuple[int, ...]] = {}
        self.kept: dict[str, InputValue] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs' names in the model's order."""
        return tuple(self._items)

    def keep(self, name: str, value: InputValue) -> None:
        """Use a value for an input in every schedule that does not give one."""
        if name not in self._items:
            raise InputError(self._unknown(name))
        self.kept[name] = value
        changes.add()

    def in_order(self, given: Named) -> tuple[Any, ...]:
        """Given or kept values in the model's order; empty if they need the full check."""
        if len(given) != self._count:
            if not self.kept or not given.keys() <= self._items.keys():
                return ()
            given = {**self.kept, **given}
        try:
            return self._pick(given) if self._count > 1 else (given[self._first],)
        except KeyError:
            return ()

    def completed(self, given: Named) -> list[InputValue] | None:
        """Given or kept values in the model's order; None if one is missing."""
        try:
            return [given[name] if name in given else self.kept[name] for name in self._items]
        except KeyError:
            return None

    def collect(self, inputs: Positional, named: Named) -> dict[str, InputValue]:
        """The value of each input: given by position, as a dict or by name, or kept."""
        feeds: dict[str, InputValue] = dict(self.kept)
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            feeds.update(inputs[0])
        else:
            if len(inputs) > len(self._items):
                name = self._session.source.name
                raise InputError(f"model '{name}' takes {len(self._items)} input(s), got {len(inputs)}")
            feeds.update(zip(self._items, inputs, strict=False))
        feeds.update(named)
        for name, item in self._items.items():
            if item.kind == "optional":
                feeds.setdefault(name, None)
        if feeds.keys() != self._items.keys():
            for name in feeds:
                if name not in self._items:
                    raise InputError(self._unknown(name))
            missing = next(name for name in self._items if name not in feeds)
            raise InputError(f"schedule needs the input '{missing}': {_described(self._items[missing])}")
        return feeds

    def check(self, inputs: Positional, named: Named) -> CheckedInputs:
        """Check the inputs of a run. Raises `InputError` with the name of the wrong one."""
        feeds = self.collect(inputs, named)
        given = CheckedInputs({}, {}, {})
        shapes, known, prepared = given
        for name, item in self._items.items():
            if item.kind == "tensor":
                prepared[name], shapes[name] = self._feed(item, feeds[name])  # type: ignore[arg-type]
            else:
                shapes[name] = self._collection(item, feeds[name], prepared)
        # Elements on a device are not waited for here: the plan stops where it needs them.
        for name in self._session.host_inputs:
            for leaf, shape in leaf_names(name, shapes[name]):
                feed = prepared[leaf]
                if not isinstance(feed, np.ndarray):
                    continue
                decides = self._items[name].kind != "map" and feed.size <= HOST_INPUT_LIMIT
                if decides or feed.dtype == object:
                    known[leaf] = feed.reshape(shape)
        if self._has_shared_dims:
            self._check_dims(shapes)
        if self._checks_integers:
            self._check_computed(shapes, prepared)
        return given

    def _unknown(self, name: str) -> str:
        if name in self._session.source.constants:
            return (
                f"'{name}' is a constant of model '{self._session.source.name}'; to make it an input, remove "
                "its initializer from the file"
            )
        known = ", ".join(f"'{n}'" for n in self._items) or "none"
        return f"model '{self._session.source.name}' has no input '{name}'; its inputs: {known}"

    def _collection(
        self, item: Input, value: InputValue, prepared: dict[str, TensorData | np.ndarray]
    ) -> InputShape:
        """Check a sequence, optional or map and add its tensors to `prepared`; returns their shapes."""
        if item.kind == "map":
            if not isinstance(value, Mapping):
                raise InputError(f"input '{item.name}' is a map to {_type_name(item.dtype)}: give a dict")
            keys = np.empty(len(value), object)
            keys[:] = [*value]
            prepared[f"{item.name}[0]"] = keys
            values = self._array(item, [*value.values()])
            prepared[f"{item.name}[1]"] = values
            return SequenceShape((keys.shape, values.shape))
        if item.kind == "optional" and not isinstance(value, list | tuple):
            if value is None:
                return None
            prepared[item.name], shape = self._feed(item, value)  # type: ignore[arg-type]
            return shape
        if not isinstance(value, list | tuple):
            raise InputError(f"input '{item.name}' is a sequence of {_described(item)}: give a list of them")
        shapes = []
        for position, element in enumerate(value):
            leaf = item.replace(name=f"{item.name}[{position}]")
            prepared[leaf.name], shape = self._feed(leaf, element)
            shapes.append(shape)
        return SequenceShape(shapes)

    def _feed(self, item: Input, value: TensorLike) -> tuple[TensorData | np.ndarray, tuple[int, ...]]:
        """Check one tensor; returns its storage on a backend or an array, and its shape."""
        feed: TensorData | np.ndarray
        shape: tuple[int, ...]
        if isinstance(value, Tensor):
            shape = tuple(value.shape)
            data = value.available_data
            feed = data.elements if type(data) is CPUTensorData and data.fence is None else data
            dtype = value.dtype
        else:
            feed = self._array(item, value)
            shape, dtype = feed.shape, feed.dtype
        if dtype != item.dtype:
            as_type = "str" if item.dtype == object else f"numpy.{item.dtype.name}"
            raise InputError(
                f"input '{item.name}' needs {_described(item)}, got {dtype.name}; convert it with "
                f".astype({as_type})"
            )
        if shape != self._fitting.get(item.name):
            if item.shape is not None and not item.shape.matches(shape):
                raise InputError(f"input '{item.name}' needs {_described(item)}, got shape {tuple(shape)}")
            self._fitting[item.name] = shape
        if self._is_narrow and isinstance(feed, np.ndarray):
            check_integers(feed, f"input '{item.name}'", self._backend)
        return feed, shape

    def _array(self, item: Input, value: ArrayLike) -> np.ndarray:
        """A value as an array: arrays keep their dtype, lists and numbers take the input's."""
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
        elif value is None:
            raise InputError(
                f"input '{item.name}' needs {_described(item)}, got None; only an optional may be empty"
            )
        else:
            try:
                array = np.asarray(value, item.dtype)
            except (TypeError, ValueError, OverflowError) as error:
                raise InputError(
                    f"input '{item.name}' needs {_described(item)}, got a {type(value).__name__} that is "
                    f"no array of them: {error}"
                ) from None
        if item.dtype != object:
            return array
        if array.dtype.kind in "UT":
            return array.astype(object)
        if array.dtype == object:
            others = {type(x).__name__ for x in array.flat if not isinstance(x, str)}
            if others:
                raise InputError(
                    f"input '{item.name}' needs {_described(item)}, got elements of type "
                    f"{', '.join(sorted(others))}; every one has to be a str"
                )
        return array

    def _check_dims(self, shapes: Mapping[str, InputShape]) -> None:
        """Check that a named dimension has the same size in all inputs."""
        sizes: dict[str, tuple[int, str]] = {}
        for name, shape in shapes.items():
            if shape is None or isinstance(shape, SequenceShape):
                continue
            for dim, size in zip(self._items[name].shape or (), shape, strict=False):
                if isinstance(dim, str):
                    known, first = sizes.setdefault(dim, (size, name))
                    if known != size:
                        raise InputError(
                            f"dimension '{dim}' is {known} in input '{first}' and {size} in input '{name}'"
                        )

    def _check_computed(
        self, shapes: Mapping[str, InputShape], prepared: Mapping[str, TensorData | np.ndarray]
    ) -> None:
        """Compute the model with NumPy and raise `InputError` for integers that do not fit 32 bits."""

        def array(name: str, shape: tuple[int, ...]) -> np.ndarray:
            feed = prepared[name]
            return (feed.download() if isinstance(feed, TensorData) else feed).reshape(shape)

        feeds: dict[str, Any] = {}
        for name, shape in shapes.items():
            items = [array(*leaf) for leaf in leaf_names(name, shape)]
            feeds[name] = items if isinstance(shape, SequenceShape) else (items[0] if items else None)
        check_computed_integers(self._session.planner.tracer, feeds, self._backend)


def _described(item: Input) -> str:
    return f"{_type_name(item.dtype)}{'' if item.shape is None else ' ' + str(item.shape)}"


def _type_name(dtype: np.dtype) -> str:
    return "text" if dtype.kind == "O" else dtype.name
