"""ONNX's own operator cases, made runnable: the independent answer for every operator on every backend.

`all_cases` holds what the installed `onnx` generates, `stored_cases` the models that lie inside the package.
Both are cached in pytest's folder, as every process of a run collects them: generating takes 10 s.
A value is an array (of str objects for strings), a list of values for a sequence, None for an empty optional.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf import __version__ as protobuf_version
from onnx import numpy_helper, version_converter
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.loader import load_model_tests

from engine.graph.importers.onnx_importer import OLDEST_OPSET, read_onnx
from engine.graph.model import Model
from engine.operators import OPERATORS

CACHE = Path(__file__).resolve().parent.parent / ".pytest_cache" / "d" / "onnx-cases"

Feeds = dict[str, Any]
"""Values by the names of inputs."""

STORED_KINDS = ("simple", "pytorch-converted", "pytorch-operator")
"""The folders of cases inside the `onnx` package; what else lies there has to be downloaded."""


@dataclass(frozen=True, eq=False)
class Case:
    """One case: a model, and sets of (inputs by name, expected outputs in order)."""

    name: str
    proto: onnx.ModelProto
    data_sets: tuple[tuple[Feeds, tuple[Any, ...]], ...]
    rtol: float
    atol: float

    def model(self) -> Model:
        """The case's model, imported."""
        return read_onnx(self.proto.SerializeToString())

    @property
    def operators(self) -> set[tuple[str, str, int]]:
        """Domain, name and opset version of each operator in the model's graph and its subgraphs."""
        versions = {_domain(o.domain): o.version for o in self.proto.opset_import}
        functions = {(_domain(f.domain), f.name) for f in self.proto.functions}
        return {
            (_domain(node.domain), node.op_type, versions.get(_domain(node.domain), 1))
            for node in nodes_of(self.proto.graph)
            if (_domain(node.domain), node.op_type) not in functions
        } - {("", "Constant", versions.get("", 1))}

    @cached_property
    def missing(self) -> list[str]:
        """Operators of the model that the engine does not have."""
        return sorted(f"{d}.{n}" if d else n for d, n, v in self.operators if OPERATORS.find(d, n, v) is None)

    @cached_property
    def types(self) -> set[str]:
        """Names of the element types of inputs and outputs; "sequence" and "optional" where they occur."""
        found: set[str] = set()
        for feeds, outputs in self.data_sets:
            for value in (*feeds.values(), *outputs):
                found |= set(types_of(value))
        return found


def types_of(value: Any) -> Iterator[str]:
    """The element types inside one value."""
    if value is None:
        yield "optional"
    elif isinstance(value, list):
        yield "sequence"
        for item in value:
            yield from types_of(item)
    else:
        yield "string" if value.dtype == object else value.dtype.name


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of the subgraphs that they hold."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from nodes_of(body)


def kept(make: Callable[[], tuple[Case, ...]]) -> tuple[Case, ...]:
    """Cases as an earlier process with the same packages and the same code of this module made them."""
    path = CACHE / f"{make.__name__}.pickle"
    code = Path(__file__).read_bytes()
    versions = (onnx.__version__, np.__version__, protobuf_version, OLDEST_OPSET)
    key = hashlib.sha256(code + repr(versions).encode()).digest()
    if path.exists():
        with path.open("rb") as file:
            if file.read(len(key)) == key:
                return tuple(pickle.load(file))
    cases = make()
    # A folder that cannot be written, or on Windows a file that another process reads.
    with suppress(OSError):
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=CACHE, delete=False) as made:
            made.write(key)
            pickle.dump(cases, made, pickle.HIGHEST_PROTOCOL)
        os.replace(made.name, path)
    return cases


@cache
def all_cases() -> tuple[Case, ...]:
    """Every node case that the installed onnx generates, functions written out included."""
    return kept(generated)


@cache
def stored_cases() -> tuple[Case, ...]:
    """The cases that lie in files of the `onnx` package; opsets too old for the engine are converted."""
    return kept(read)


def generated() -> tuple[Case, ...]:
    """The node cases of the installed onnx."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    cases = []
    for case in found:
        assert case.model is not None, case.name
        assert case.data_sets is not None, case.name
        names = [item.name for item in case.model.graph.input]
        sets = [(_named(names, inputs), tuple(map(as_value, outputs))) for inputs, outputs in case.data_sets]
        cases.append(Case(case.name, case.model, tuple(sets), case.rtol, case.atol))
    return tuple(cases)


def read() -> tuple[Case, ...]:
    """The cases in the files of the package."""
    cases = []
    for kind in STORED_KINDS:
        for case in sorted(load_model_tests(kind=kind), key=lambda c: c.name):
            folder = Path(str(case.model_dir))
            model = onnx.load(folder / "model.onnx")
            constants = {tensor.name for tensor in model.graph.initializer}
            inputs = [item for item in model.graph.input if item.name not in constants]
            sets = []
            for data in sorted(folder.glob("test_data_set_*")):
                given = [_read(data, "input", n, item.type) for n, item in enumerate(inputs)]
                feeds = _named([item.name for item in inputs], given)
                outputs = [_read(data, "output", n, o.type) for n, o in enumerate(model.graph.output)]
                sets.append((feeds, tuple(outputs)))
            cases.append(Case(case.name, _newer(model), tuple(sets), case.rtol, case.atol))
    return tuple(cases)


def _newer(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model of an opset that the engine reads."""
    if any(not o.domain and o.version < OLDEST_OPSET for o in model.opset_import):
        return version_converter.convert_version(model, OLDEST_OPSET)
    return model


def _read(folder: Path, role: str, number: int, declared: onnx.TypeProto) -> Any:
    """One value of a stored case."""
    data = (folder / f"{role}_{number}.pb").read_bytes()
    if declared.HasField("sequence_type"):
        return as_value(numpy_helper.to_list(onnx.SequenceProto.FromString(data)))
    return as_value(onnx.TensorProto.FromString(data))


def _named(names: Sequence[str], values: Sequence[Any]) -> Feeds:
    return {name: as_value(value) for name, value in zip(names, values, strict=True)}


def as_value(value: Any) -> Any:
    """What a case holds, as an array, a list of values or None; strings as an object array of str."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [as_value(item) for item in value]
    array = numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
    if array.dtype.kind not in "OSU":
        return array
    texts = [item.decode() if isinstance(item, bytes) else str(item) for item in array.reshape(-1)]
    return np.array(texts, object).reshape(array.shape)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def disagreement(actual: np.ndarray, expected: np.ndarray) -> float:
    """How far arrays are apart; infinite where shapes, NaNs or infinities differ, or any string.

    Floats: max |a - b| / max(1, max |b|). Integers and truth values: max |a - b|.
    """
    if actual.shape != expected.shape:
        return float("inf")
    if expected.dtype.kind in "OSU":
        return 0.0 if np.array_equal(actual, expected) else float("inf")
    if not expected.size:
        return 0.0
    if is_integer(expected.dtype):
        # As Python's integers: neither float64 nor int64 holds every uint64.
        pairs = zip(actual.reshape(-1).tolist(), expected.reshape(-1).tolist(), strict=True)
        return float(max(abs(int(a) - int(b)) for a, b in pairs))
    complex_or_real = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, b = actual.astype(complex_or_real), expected.astype(complex_or_real)
    finite = np.isfinite(b)
    if not np.array_equal(np.isnan(a), np.isnan(b)) or not np.array_equal(a[np.isinf(b)], b[np.isinf(b)]):
        return float("inf")
    if not np.isfinite(a[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.max(np.abs(a[finite] - b[finite])) / max(1.0, np.max(np.abs(b[finite]))))


def is_integer(dtype: np.dtype) -> bool:
    """Whether elements are integers or truth values, those of 2 and 4 bits included."""
    return dtype.kind in "iub" or dtype.name in ("int2", "uint2", "int4", "uint4")


def compare(actual: Any, expected: Any, bound: float) -> None:
    """Assert that two values agree: kind, number of items, element type, shape, and elements to `bound`."""
    if expected is None:
        assert actual is None
    elif isinstance(expected, list):
        assert isinstance(actual, list), f"expected a sequence, got {type(actual).__name__}"
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            compare(one, other, bound)
    else:
        assert isinstance(actual, np.ndarray), f"expected an array, got {type(actual).__name__}"
        assert actual.dtype == expected.dtype
        error = disagreement(actual, expected)
        assert error <= tolerance(expected.dtype, bound), f"max error {error:.3g}"


def tolerance(dtype: np.dtype, bound: float) -> float:
    """The bound for outputs of a type: that of 32-bit floats is given."""
    if dtype.name == "bfloat16":
        return 2.0**-7  # the distance between neighbours at 1
    return 2e-3 if dtype.itemsize < 4 and not is_integer(dtype) else bound
