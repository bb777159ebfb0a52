"""Files of plans and graphs as data: what is written is read back, and nothing else is."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from engine import BackendType, Model, ModelLoader, Worker
from engine.backends import table
from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.codegen.tiles import AVX2
from engine.backends.cpu.kernels.convolution.nhwc_tiles import pack_weights
from engine.backends.cpu.kernels.matmul.packing import given
from engine.base.shapes import DynamicTensorShape
from engine.compiler.plan import STORABLE
from engine.runtime.plan_store import files, graphs, plans
from engine.runtime.plan_store.codec import (
    ARRAY,
    BYTES,
    CALL,
    DTYPE,
    FLAG,
    INTEGER,
    NAME,
    NUMBER,
    REAL,
    SIZE,
    Many,
    Maybe,
    Records,
    Trees,
    _arguments,
    column_of,
)
from engine.runtime.plan_store.streams import (
    DEEPEST,
    UNREADABLE,
    Column,
    NotStorableError,
    StreamReader,
    StreamWriter,
)
from engine.runtime.plan_store.symbolic_plans import restored
from tests.engine.conftest import MakeWorker
from tests.engine.runtime.plan_store.test_graphs import branches, network, same
from tests.engine.runtime.plans.test_symbolic_continuations import HALVES, parsed
from tests.networks import TRAINED_NAMES, trained_path
from tests.random_graphs import RandomGraph

DEMOS = sorted((Path(__file__).parents[4] / "assets").glob("*/*.onnx"))


class Record(NamedTuple):
    name: str
    sizes: tuple[int, ...]


class Other(NamedTuple):
    name: str
    places: tuple[int, ...]


def there_and_back(column: Column[Any], value: Any, owners: dict[str, np.ndarray] | None = None) -> Any:
    return StreamReader(StreamWriter(owners or {}).body(column, value), owners or {}).value(column)


TREE = Trees((np.ndarray, ARRAY), (bytes, BYTES))
VALUES: list[tuple[Column[Any], Any]] = [
    (INTEGER, -(1 << 63)), (INTEGER, (1 << 63) - 1), (INTEGER, -(1 << 15)), (INTEGER, (1 << 15) - 1),
    (SIZE, 0), (REAL, 0.1), (REAL, float("-inf")), (FLAG, True), (NAME, ""), (NAME, "ä\0\ud800\U0001f600"),
    (Many(NUMBER), (1, 2.0, -3, 1 << 40, 0.5)), (Many(NUMBER), ()),
    (column_of(DynamicTensorShape), DynamicTensorShape((3, "n", None, 0, "n"))),
    (Many(Maybe(NAME)), ("a", None, "b")), (Many(Many(INTEGER)), ((), (1,), (2, 3))),
    (Many(Records(Record, name=NAME, sizes=Many(SIZE))), (Record("a", (1, 2)), Record("b", ()))),
    (Many(TREE), (None, True, 1, 2.5, "x", (1, 2), (), ("a", (1.0, None)), b"bytes", b"")),
    (DTYPE, np.dtype(np.float32)), (DTYPE, np.dtype(object)),
]  # fmt: skip


@pytest.mark.parametrize(("column", "value"), VALUES)
def test_values_are_read_back_with_their_types(column: Column[Any], value: Any) -> None:
    assert same(there_and_back(column, value), value)


def test_floats_keep_their_bits() -> None:
    bits = [0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000, 1]
    values = tuple(np.array(bits, np.uint64).view(np.float64).tolist())
    found = there_and_back(Many(NUMBER), values)
    assert np.array(found, np.float64).view(np.uint64).tolist() == bits


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (INTEGER, 1 << 63), (INTEGER, 1.5), (INTEGER, "1"), (NAME, b"a"), (TREE, object()), (TREE, {}),
        (TREE, np.float32), (DTYPE, np.dtype(">f4")), (DTYPE, np.dtype("i4,f8")), (CALL, partial(given)),
        (CALL, partial(print, 1)), (CALL, lambda: 1), (CALL, partial(given, elements=np.ones(2))),
        (CALL, partial(pack_weights, np.ones(2), 1.5, AVX2, True, 0)),  # type: ignore[arg-type]
        (CALL, partial(AVX2.rows_for, 1)),
    ],
)  # fmt: skip
def test_what_a_file_cannot_hold_is_refused(column: Column[Any], value: Any) -> None:
    with pytest.raises(NotStorableError):
        StreamWriter({}).body(column, value)


def test_values_are_not_nested_without_end() -> None:
    value: Any = "deep"
    for _ in range(DEEPEST - 1):
        value = (value,)
    assert there_and_back(TREE, value) == value
    with pytest.raises(NotStorableError):
        StreamWriter({}).body(TREE, (value,))


def arrays() -> dict[str, np.ndarray]:
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    return {
        "whole": base, "part": base[1], "transposed": base.T, "steps": base[:, ::2, 1:],
        "other type": base.view(np.int32)[0], "own": np.arange(5, dtype=np.int8), "none": np.empty((0, 3)),
        "one": np.array(7.0), "flags": np.array([True, False]), "text": np.array([["a", "ö"]], object),
        "backwards": base[::-1], "repeated": np.broadcast_to(base[0, 0, :1], (1000, 40)),
        "columns": np.asfortranarray(np.ones((3, 5)) * 3),
    }  # fmt: skip


@pytest.mark.parametrize("name", arrays())
def test_arrays_are_read_back_and_those_of_the_reader_are_referred_to(name: str) -> None:
    made = arrays()
    array, owners = made[name], {"base": made["whole"], "other": made["columns"]}
    body = StreamWriter(owners).body(ARRAY, array)
    found: np.ndarray = StreamReader(body, owners).value(ARRAY)
    assert (found.dtype, found.shape, found.tolist()) == (array.dtype, array.shape, array.tolist())
    referred = name in ("whole", "part", "transposed", "steps", "other type", "columns")
    assert any(np.shares_memory(found, owner) for owner in owners.values()) is referred
    assert (found is owners["base"]) is (name == "whole")
    assert (found is owners["other"]) is (name == "columns")
    if name not in ("whole", "columns", "text"):
        assert not found.flags.writeable
    assert there_and_back(Many(ARRAY), [*made.values()], owners)[0] is owners["base"]


def test_arrays_outside_their_owner_are_not_read() -> None:
    owners = {"base": np.arange(24, dtype=np.float32)}
    small = {"base": np.arange(8, dtype=np.float32)}
    base = owners["base"]
    for array in (base[4:20], base.reshape(4, 6)[:, :2], base[3:9].reshape(2, 3).T):
        body = StreamWriter(owners).body(ARRAY, array)
        with pytest.raises(UNREADABLE):
            StreamReader(body, small).value(ARRAY)
        with pytest.raises(UNREADABLE):
            StreamReader(body, {}).value(ARRAY)
        with pytest.raises(UNREADABLE):
            StreamReader(body, {"base": base[::-1]}).value(ARRAY)


def test_many_elements_inline_are_refused() -> None:
    with pytest.raises(NotStorableError, match="weights"):
        StreamWriter({}).body(ARRAY, np.zeros((1 << 23) + 1, np.int8))


def test_calls_are_read_back_as_calls() -> None:
    weights = np.random.default_rng(0).normal(size=(16, 3, 3, 3)).astype(np.float32)
    call = partial(pack_weights, weights, 1, AVX2, True, 3)
    found = there_and_back(CALL, call, {"w": weights})
    assert found.func is pack_weights
    assert found.args[0] is weights
    assert found.args[1:] == call.args[1:]
    np.testing.assert_array_equal(found(), call())


def test_every_storable_function_has_arguments_that_a_file_can_hold() -> None:
    for entry in table.BACKENDS:
        assert entry.load()
    for name in STORABLE:
        assert _arguments(name), name


def test_only_storable_functions_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    call: Callable[[], Any] = partial(given, np.ones(3))
    body = StreamWriter({}).body(CALL, call)
    monkeypatch.delitem(STORABLE, f"{given.__module__}.{given.__qualname__}")
    with pytest.raises(UNREADABLE):
        StreamReader(body, {}).value(CALL)


def test_a_record_with_other_fields_is_not_read() -> None:
    body = StreamWriter({}).body(Records(Record), Record("a", (1,)))
    with pytest.raises(ValueError, match="fields"):
        StreamReader(body, {}).value(Records(Other))


class Planted:
    """Unpickled, it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything is stored, in a folder of the test's own."""
    monkeypatch.setenv("GAMEGLUE_STORED_PLANS", "on")
    monkeypatch.setattr(files, "folder", lambda: tmp_path)
    monkeypatch.setattr(graphs, "LEAST_LAYERS", 1)
    return tmp_path


def worker_of(source: Any) -> Worker:
    return Worker(ModelLoader.load(source), BackendType.CPU)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_are_never_executed(folder: Path, protocol: int) -> None:
    worker_of(network()).dispose()
    stored = [path for path in folder.iterdir() if path.suffix in (".plan", ".graph")]
    assert len(stored) == 2
    mark = folder / "executed"
    planted = pickle.dumps(Planted(mark), protocol)
    for path in stored:
        form = plans._FORM if path.suffix == ".plan" else graphs._FORM
        for body in (planted, bytes(16) + planted, path.read_bytes()[len(form) + 32 :] + planted):
            files.write(path, form, body)
            with worker_of(network()) as worker:
                assert worker.plan_report()
            assert not mark.exists()
    pickle.loads(planted)
    assert mark.exists(), "such a pickle does what the test means"


def bodies(
    folder: Path, source: Any, channel: str, make_worker: MakeWorker
) -> list[tuple[bytes, Callable[[bytes], Any]]]:
    """What is stored of a model, graph and plan, and how each is read."""
    model = ModelLoader.load(source)
    codec = make_worker(model, channel)._session.backends["native"].plan_codec()
    assert codec is not None
    data = np.frombuffer(source if isinstance(source, bytes) else Path(source).read_bytes(), np.uint8)
    name = "<bytes>" if isinstance(source, bytes) else str(source)

    def read_graph(body: bytes) -> Any:
        return StreamReader(body, {"file": data}).value(graphs._Models(name))

    def read_plan(body: bytes) -> Any:
        found = StreamReader(body, model.constants).value(plans._file_column(model, codec)).stored
        return [restored(stored) for stored in found.symbolic_plans]

    found: list[tuple[bytes, Callable[[bytes], Any]]] = []
    for path in sorted(folder.iterdir()):
        is_plan = path.suffix == ".plan"
        body = files.read(path, plans._FORM if is_plan else graphs._FORM)
        assert body is not None
        found.append((body, read_plan if is_plan else read_graph))
    return found


@pytest.mark.spread("source")
@pytest.mark.parametrize(
    "source", [network(), branches(), parsed(HALVES)], ids=["network", "branches", "halves"]
)
def test_no_flipped_bit_raises_anything_unexpected(
    folder: Path, source: bytes, channel: str, make_worker: MakeWorker
) -> None:
    """Even where the seal holds: what is read is right in its types and sizes, or it is not read."""
    rng = random.Random(7)
    refused = 0
    for body, read in bodies(folder, source, channel, make_worker):
        read(body)
        for _ in range(600):
            changed = bytearray(body)
            for _ in range(rng.choice((1, 1, 2, 8))):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            try:
                read(bytes(changed))
            except UNREADABLE:
                refused += 1
        for cut in range(0, len(body), 1 + len(body) // 500):
            try:
                read(body[:cut])
            except UNREADABLE:
                refused += 1
    assert refused > 500


@pytest.mark.parametrize("channel", ["gl_compute", "gl_pixel", "opencl"], indirect=True)
def test_kernels_that_were_changed_are_not_read(channel: str, folder: Path, make_worker: MakeWorker) -> None:
    """A driver compiles nothing but what was stored."""
    model = ModelLoader.load(network())
    make_worker(model, channel).dispose()
    (path,) = [path for path in folder.iterdir() if path.suffix == ".plan"]
    body = files.read(path, plans._FORM)
    assert body is not None
    # A formula's operation, or one in a tuned kernel's text.
    changed = body.replace(b'"add"', b'"sub"').replace(b" + ", b" - ")
    assert changed != body
    files.write(path, plans._FORM, changed)
    worker = make_worker(model, channel)
    assert worker._session.stored is not None
    assert "planner" in worker._session.__dict__, "it was planned anew"


def answers(model: Model, inputs: Mapping[str, np.ndarray] | None = None) -> list[bytes]:
    """The outputs for fixed inputs."""
    with Worker(model, BackendType.CPU) as worker:
        rng = np.random.default_rng(3)
        given = {}
        for item in model.inputs if inputs is None else ():
            assert item.shape is not None
            shape = [dim if isinstance(dim, int) else 16 for dim in item.shape]
            given[item.name] = rng.normal(size=shape).astype(item.dtype)
        worker.schedule(given if inputs is None else inputs)
        results = [worker.peek_output(o.name).readback_and_clone().download_to_array() for o in model.outputs]
        return [result.tobytes() for result in results]


NETWORKS = [*DEMOS, *(trained_path(name) for name in TRAINED_NAMES)]


@pytest.mark.long
@pytest.mark.parametrize("path", NETWORKS, ids=[path.stem for path in NETWORKS])
def test_networks_that_were_read_back_answer_to_the_bit(folder: Path, path: Path) -> None:
    if not path.exists():
        pytest.skip("the folder of trained networks is not here")
    model = ModelLoader.load(path)
    fresh = answers(model)
    assert any(file.suffix == ".plan" for file in folder.iterdir()), "the plan was stored"
    again = ModelLoader.load(path)
    assert same(again, model)
    file = plans.plan_file(again, CPUBackend())
    assert file is not None
    assert file.read is not None
    assert answers(again) == fresh


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_that_were_read_back_answer_to_the_bit(folder: Path, seed: int) -> None:
    graph = RandomGraph(seed)
    model = ModelLoader.load(graph.source)
    fresh = [answers(model, feeds) for feeds in graph.feeds]
    again = ModelLoader.load(graph.source)
    assert [answers(again, feeds) for feeds in graph.feeds] == fresh
    assert any(file.suffix == ".plan" for file in folder.iterdir())
