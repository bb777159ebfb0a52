"""Symbolic plans: the same answers, to the bit, as plans made for the sizes at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

from engine import BackendType, Model, ModelLoader, Worker
from engine.base.errors import InputError, ShapeError
from engine.compiler.lower import LoweredModel
from engine.compiler.plan_walk import Trace
from engine.kernels import size_recorder
from engine.runtime.plans.symbolic_plans import MOST_PLANS
from tests.engine.conftest import MakeWorker
from tests.engine.runtime.plans.test_new_shapes import picture_network, sequence_network, weights
from tests.graphs import node, proto
from tests.open_sizes import check_sizes as check_sizes_of
from tests.open_sizes import plan_statically
from tests.random_graphs import GIVEN, RandomGraph, long_seeds

ASSETS = Path(__file__).resolve().parents[4] / "assets"
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 47, 48, 63, 64, 65)

SUMS = """<ir_version: 9, opset_import: ["": 18]>
g (float[n, 2] x) => (float[n, 2] y) {
    begin = Constant<value = float[2] {0.0, 0.0}>()
    last, y = Scan(begin, x) <
        num_scan_inputs = 1,
        body = step (float[2] before, float[2] here) => (float[2] after, float[2] out) {
            after = Add(before, here)
            out = Identity(after)
        }
    >
}"""

Feeds = dict[str, np.ndarray]
Inputs = Mapping[str, tuple[str, Sequence[int | str | None] | None]]


def recurrent_network() -> bytes:
    """A recurrent layer over sequences of any number and length, with first states."""
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("LSTM", ["t", "w", "r", "b"], ["all", "last", ""], hidden_size=12),
        node("Squeeze", ["last", "zero"], ["y"]),
        node("ReduceMax", ["all", "zero"], ["z"], keepdims=0),
    ]
    constants = {
        "w": weights(1, 48, 6), "r": weights(1, 48, 12), "b": weights(1, 96), "zero": np.array([0], np.int64),
    }  # fmt: skip
    inputs: Inputs = {"x": ("float32", ["n", "t", 6])}
    return proto(nodes, inputs, {"y": ("float32", None), "z": ("float32", None)}, constants)


def shape_network() -> bytes:
    """Sizes as elements: ranges, masks and factors that depend on them."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["length"], axis=0),
        node("Range", ["nought", "length", "step"], ["places"]),
        node("Unsqueeze", ["places", "axis"], ["column"]),
        node("LessOrEqual", ["places", "column"], ["mask"]),
        node("Cast", ["length"], ["factor"], to=1),
        node("Div", ["x", "factor"], ["scaled"]),
        node("MatMul", ["scaled", "w"], ["m"]),
        node("Transpose", ["m"], ["mt"], perm=[0, 2, 1]),
        node("MatMul", ["m", "mt"], ["scores"]),
        node("Where", ["mask", "scores", "low"], ["kept"]),
        node("Softmax", ["kept"], ["y"], axis=-1),
        node("Slice", ["x", "begin", "end", "along"], ["z"]),
    ]
    constants = {
        "one": np.array(1, np.int64), "nought": np.array(0, np.int64), "step": np.array(1, np.int64),
        "axis": np.array([1], np.int64), "w": weights(8, 8), "low": np.array(-1e9, np.float32),
        "begin": np.array([-3], np.int64), "end": np.array([2**63 - 1], np.int64),
        "along": np.array([1], np.int64),
    }  # fmt: skip
    inputs: Inputs = {"x": ("float32", ["n", "t", 8])}
    return proto(nodes, inputs, {"y": ("float32", None), "z": ("float32", None)}, constants)


def resized_network() -> bytes:
    """A picture brought to the size of another, whose tables the host computes."""
    nodes = [
        node("Shape", ["like"], ["shape"], start=2),
        node("Shape", ["x"], ["first"], end=2),
        node("Concat", ["first", "shape"], ["sizes"], axis=0),
        node("Resize", ["x", "", "", "sizes"], ["big"], mode="linear"),
        node("Resize", ["big", "", "halves"], ["small"], mode="nearest"),
        node("Conv", ["big", "w"], ["y"], pads=[1, 1, 1, 1]),
        node("Identity", ["small"], ["z"]),
    ]
    constants = {"w": weights(4, 3, 3, 3), "halves": np.array([1, 1, 0.5, 0.5], np.float32)}
    inputs: Inputs = {"x": ("float32", ["n", 3, "h", "w"]), "like": ("float32", ["n", 1, "a", "b"])}
    return proto(nodes, inputs, {"y": ("float32", None), "z": ("float32", None)}, constants)


def deep_network() -> bytes:
    """Windows of 3 x 3 over more and more channels, computed one way or another as sizes have it."""
    nodes = [node("Conv", ["x", "w0"], ["c0"], pads=[1, 1, 1, 1])]
    channels = (3, 16, 32, 64, 128)
    constants = {f"w{n}": weights(channels[n + 1], channels[n], 3, 3) for n in range(4)}
    for n in range(1, 4):
        pads = [1, 1, 1, 1] if n < 3 else [0, 0, 1, 1]
        nodes += [
            node("Relu", [f"c{n - 1}"], [f"r{n}"]),
            node(
                "MaxPool", [f"r{n}"], [f"p{n}"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, pads=pads
            ),
            node("Conv", [f"p{n}", f"w{n}"], [f"c{n}"], pads=[1, 1, 1, 1]),
        ]
    nodes += [node("GlobalAveragePool", ["c3"], ["y"]), node("Relu", ["c3"], ["z"])]
    inputs: Inputs = {"x": ("float32", [1, 3, "h", "w"])}
    return proto(nodes, inputs, {"y": ("float32", None), "z": ("float32", None)}, constants)


def scalar_network() -> bytes:
    """Reductions over all axes, whose results have none."""
    nodes = [node("ReduceMean", ["x"], ["y"], keepdims=0), node("ReduceMax", ["x"], ["z"], keepdims=0)]
    return proto(nodes, {"x": ("float32", ["n", "m", "k"])}, {"y": ("float32", []), "z": ("float32", [])})


def counted_network() -> bytes:
    """Outputs whose size data decides, up to a bound, and sizes as outputs."""
    nodes = [
        node("NonZero", ["r"], ["places"]),
        node("ReduceMax", ["x", "one"], ["most"], keepdims=0),
        node("Greater", ["most", "low"], ["taken"]),
        node("Compress", ["x", "taken"], ["rows"], axis=0),
        node("Exp", ["rows"], ["y"]),
        node("Shape", ["x"], ["shape"]),
        node("Mul", ["shape", "two"], ["twice"]),
    ]
    nodes.insert(0, node("Relu", ["x"], ["r"]))
    constants = {"one": np.array([1]), "low": np.array(0.5, np.float32), "two": np.array(2)}
    outputs: Inputs = dict.fromkeys(("places", "shape", "twice"), ("int64", None))
    return proto(nodes, {"x": ("float32", ["n", "m"])}, {**outputs, "y": ("float32", None)}, constants)


def boxes_network() -> bytes:
    """The best of any number of boxes."""
    nodes = [node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["picked"])]
    constants = {
        "most": np.array([5]), "overlap": np.array([0.3], np.float32), "least": np.array([0.1], np.float32)
    }  # fmt: skip
    inputs: Inputs = {"boxes": ("float32", [2, "n", 4]), "scores": ("float32", [2, 3, "n"])}
    return proto(nodes, inputs, {"picked": ("int64", None)}, constants)


def wide_network() -> bytes:
    """Steps over float64, which some backends leave to the CPU, between others."""
    nodes = [
        node("Mul", ["x", "x"], ["a"]),
        node("Cast", ["a"], ["wide"], to=11),
        node("Exp", ["wide"], ["e"]),
        node("Cast", ["e"], ["narrow"], to=1),
        node("MatMul", ["narrow", "w"], ["y"]),
        node("Identity", ["x"], ["z"]),
    ]
    inputs: Inputs = {"x": ("float32", ["n", 8])}
    return proto(nodes, inputs, {"y": ("float32", None), "z": ("float32", None)}, {"w": weights(8, 5)})


NETWORKS: dict[str, tuple[Callable[[], Model], int]] = {
    "pictures": (lambda: ModelLoader.load(picture_network()), 6),
    "deep": (lambda: ModelLoader.load(deep_network()), 8),
    "sequences": (lambda: ModelLoader.load(sequence_network()), 8),
    # Short layers and scans are unrolled, so that each length below 8 has a plan.
    "recurrent": (lambda: ModelLoader.load(recurrent_network()), 8),
    "summed": (lambda: ModelLoader.load(onnx.parser.parse_model(SUMS).SerializeToString()), 8),
    "scalars": (lambda: ModelLoader.load(scalar_network()), 8),
    "shapes": (lambda: ModelLoader.load(shape_network()), 6),
    "resized": (lambda: ModelLoader.load(resized_network()), 14),
    "counted": (lambda: ModelLoader.load(counted_network()), 8),
    "boxes": (lambda: ModelLoader.load(boxes_network()), 6),
    "wide": (lambda: ModelLoader.load(wide_network()), 4),
    "digits": (lambda: ModelLoader.load(ASSETS / "digits" / "digits.onnx"), 4),
    "swarm": (lambda: ModelLoader.load(ASSETS / "swarm" / "swarm.onnx"), 2),
    "chatter": (lambda: ModelLoader.load(ASSETS / "chatter" / "chatter.onnx"), 6),
    "upscale": (lambda: ModelLoader.load(ASSETS / "upscale" / "upscale.onnx"), 8),
}
"""Networks, and how many plans they may take at most for all sizes here."""


def feeds_for(model: Model, rng: np.random.Generator) -> Feeds:
    sizes: dict[object, int] = {}
    feeds = {}
    for item in model.inputs:
        assert item.shape is not None
        shape = [
            dim if isinstance(dim, int) else sizes.setdefault(dim, int(rng.choice(LENGTHS)))
            for dim in item.shape
        ]
        if item.dtype.kind == "f":
            feeds[item.name] = rng.normal(size=shape).astype(item.dtype)
        else:
            feeds[item.name] = rng.integers(0, 2, shape).astype(item.dtype)
    return feeds


def answers(worker: Worker, feeds: Feeds) -> list[np.ndarray]:
    worker.schedule(feeds)
    return [worker.peek_output(item.name).download_to_array() for item in worker.model.outputs]


@pytest.mark.parametrize("name", NETWORKS)
def test_any_size_answers_as_a_plan_of_its_own_does(name: str, make_worker: MakeWorker) -> None:
    check_sizes(name, 12, 11, "cpu", make_worker)


@pytest.mark.spread
@pytest.mark.parametrize("name", ["pictures", "scalars", "shapes", "swarm", "counted", "boxes", "wide"])
@pytest.mark.parametrize("channel", ["gl_compute", "gl_pixel", "opencl"], indirect=True)
def test_any_size_does_so_on_a_gpu(name: str, channel: str, make_worker: MakeWorker) -> None:
    check_sizes(name, 5, 13, channel, make_worker)


@pytest.mark.long
@pytest.mark.parametrize("name", NETWORKS)
def test_many_sizes_answer_as_plans_of_their_own_do(name: str, channel: str, make_worker: MakeWorker) -> None:
    check_sizes(name, 50 if channel == "cpu" else 12, 12, channel, make_worker)


def check_sizes(name: str, count: int, seed: int, channel: str, make_worker: MakeWorker) -> None:
    make, most_plans = NETWORKS[name]
    model = make()
    rng = np.random.default_rng(seed)
    apart = plan_statically(make_worker(model, channel, allow_fallback=name == "wide"))
    worker = make_worker(model, channel, allow_fallback=name == "wide")
    worker._session.stored = worker._session.file = None
    planned = count_plans(worker)
    for _ in range(count):
        feeds = feeds_for(model, rng)
        shapes = str({name: x.shape for name, x in feeds.items()})
        try:
            expected = answers(apart, feeds)
        except ShapeError:
            with pytest.raises(ShapeError):
                answers(worker, feeds)
            continue
        for one, other in zip(answers(worker, feeds), expected, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=shapes)
    assert not apart._session.symbolic_plans.ready
    plans = worker._session.symbolic_plans
    assert 1 <= len(plans.ready) + len(plans.waiting) <= most_plans
    # A size at which kernels were missing was planned for itself as well.
    assert len(planned) <= 2 * most_plans


def compile_now(backend: Any) -> None:
    """Have a backend compile while it is called, so that symbolic plans are used at once."""

    def prepare_async(kernels: Any) -> None:
        backend.prepare(kernels)

    backend.prepare_async = prepare_async


def count_plans(worker: Worker) -> list[Trace]:
    """What the worker plans from now on."""
    planner, planned = worker._session.planner, []
    lowered = planner._lowered

    def counted(trace: Trace) -> LoweredModel:
        planned.append(trace)
        return lowered(trace)

    planner._lowered = counted  # type: ignore[method-assign]
    return planned


@pytest.mark.parametrize("seed", range(900, 906))
def test_random_graphs_answer_the_same(seed: int, make_worker: MakeWorker) -> None:
    check_random_graph(seed, "cpu", make_worker)


@pytest.mark.long
@pytest.mark.parametrize("seed", long_seeds(100))
def test_many_random_graphs_answer_the_same(seed: int, make_worker: MakeWorker) -> None:
    check_random_graph(seed, "cpu", make_worker, 50 if GIVEN else 12)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1020))
@pytest.mark.parametrize("channel", ["gl_compute", "gl_pixel", "opencl"], indirect=True)
def test_random_graphs_do_so_on_a_gpu(seed: int, channel: str, make_worker: MakeWorker) -> None:
    check_random_graph(seed, channel, make_worker)


def check_random_graph(seed: int, channel: str, make_worker: MakeWorker, sizes: int = 0) -> None:
    graph = RandomGraph(seed)
    model = ModelLoader.load(graph.source)
    options = {} if channel == "cpu" else {"allow_fallback": True}
    apart = plan_statically(make_worker(model, channel, **options))
    worker = make_worker(model, channel, **options)
    for feeds in [*graph.feeds, *graph.feeds]:
        for one, other in zip(answers(worker, feeds), answers(apart, feeds), strict=True):
            np.testing.assert_array_equal(one, other)
    if sizes and graph.is_open:
        check_sizes_of(worker, apart, graph.feeds[0], sizes, seed)


def test_a_size_never_seen_is_not_planned() -> None:
    model = ModelLoader.load(ASSETS / "swarm" / "swarm.onnx")
    rng = np.random.default_rng(3)
    with Worker(model, BackendType.CPU) as worker:
        session = worker._session
        (item,) = model.inputs
        for count in (1, 5, 7, *range(1, 300)):
            x = rng.normal(size=[d if isinstance(d, int) else count for d in item.shape or ()])
            answers(worker, {item.name: x.astype(item.dtype)})
            if count == 7:
                session.planner.lower = None  # type: ignore[assignment,method-assign]
                session.planner.lower_symbolic = None  # type: ignore[assignment,method-assign]
        assert len(session.cache.plans) <= 300


def test_one_plan_computes_windows_in_any_way_and_holds_the_weights_that_sizes_need() -> None:
    """Products or tiles of either size, chosen as a size is filled in."""
    with Worker(ModelLoader.load(deep_network()), BackendType.CPU) as worker:
        session, rng = worker._session, np.random.default_rng(3)
        session.planner.lower = None  # type: ignore[assignment,method-assign]
        session.planner.lower_symbolic = None  # type: ignore[assignment,method-assign]
        ways = set()
        for size in (33, 61, 90, 130, 210):
            answers(worker, {"x": rng.normal(size=(1, 3, size, size + 11)).astype(np.float32)})
            assert worker._latest is not None
            (submission,) = worker._latest.recorded.submissions
            steps = [step for step in submission.plan.steps if "|" in " ".join(step.inputs)]
            ways.add(tuple([step.space[0] > 0 for step in steps]))
            read = {name for step in steps if step.space[0] for name in step.inputs if "|" in name}
            assert read <= {name for _, name in session.recorder.constants}
        assert len(ways) > 1


def test_a_mistake_in_code_is_not_taken_for_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the engine's own errors say that a model cannot be planned with symbolic sizes."""

    def mistaken(*arguments: Any) -> None:
        raise AttributeError("a misspelt name")

    with Worker(ModelLoader.load(ASSETS / "swarm" / "swarm.onnx"), BackendType.CPU) as worker:
        session = worker._session
        session.symbolic_plans.release()
        session.stored = session.file = None
        monkeypatch.setattr(session.planner, "lower_symbolic", mistaken)
        with pytest.raises(AttributeError, match="misspelt"):
            worker.schedule(feeds_for(worker.model, np.random.default_rng(1)))


def test_the_guards_of_a_new_plan_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the numbers of its steps: the sizes that it was made for need no program to be asked about."""
    with Worker(ModelLoader.load(ASSETS / "swarm" / "swarm.onnx"), BackendType.CPU) as worker:
        plans, compiled = worker._session.symbolic_plans, size_recorder.compiled
        compile_now(worker._session.backends["native"])
        plans.release()
        worker._session.stored = worker._session.file = None
        made: list[Sequence[str]] = []

        def counted(inputs: Any, lines: Any, results: Sequence[str], *others: Any) -> Any:
            made.append(results)
            return compiled(inputs, lines, results, *others)

        monkeypatch.setattr(size_recorder, "compiled", counted)
        answers(worker, feeds_for(worker.model, np.random.default_rng(1)))
        assert len(plans.ready) == 1
        assert len(made) == 1
        assert made[0]


def test_a_size_that_is_a_number_of_steps_is_planned_for_itself() -> None:
    source = onnx.parser.parse_model(SUMS).SerializeToString()
    with Worker(ModelLoader.load(source), BackendType.CPU) as worker:
        for length in (3, 5, 1):
            x = np.arange(2.0 * length, dtype=np.float32).reshape(length, 2)
            (found,) = answers(worker, {"x": x})
            np.testing.assert_allclose(found, np.cumsum(x, 0))


@pytest.mark.parametrize("channel", ["gl_compute", "gl_pixel", "opencl"], indirect=True)
def test_a_length_is_planned_once_for_all_other_sizes(channel: str, make_worker: MakeWorker) -> None:
    model = ModelLoader.load(recurrent_network())
    rng = np.random.default_rng(6)
    apart, worker = plan_statically(make_worker(model, channel)), make_worker(model, channel)
    worker._session.stored = worker._session.file = None
    for batch in (5, 3, 7, 4, 9):
        planned = count_plans(worker)
        for length in (2, 3, 6):
            feeds = {"x": rng.normal(size=(batch, length, 6)).astype(np.float32)}
            for one, other in zip(answers(worker, feeds), answers(apart, feeds), strict=True):
                np.testing.assert_array_equal(one, other)
    assert not planned


@pytest.mark.parametrize("channel", ["gl_compute", "opencl"], indirect=True)
def test_a_recurrent_network_is_planned_once_for_all_batches(channel: str, make_worker: MakeWorker) -> None:
    """Also where kernels divide by a size: with unsigned words, which were taken for sizes beyond 31 bits."""
    model = ModelLoader.load(ASSETS / "gesture" / "gesture.onnx")
    rng = np.random.default_rng(6)
    apart, worker = plan_statically(make_worker(model, channel)), make_worker(model, channel)
    worker._session.stored = worker._session.file = None
    planned: list[Trace] = []
    for batch in (5, 11, 33):
        feeds = {"movement": rng.normal(size=(batch, 48, 3)).astype(np.float32)}
        for one, other in zip(answers(worker, feeds), answers(apart, feeds), strict=True):
            np.testing.assert_array_equal(one, other)
        if batch == 5:
            planned = count_plans(worker)
    assert not planned


def test_no_more_plans_are_kept_than_may_be() -> None:
    # Its result has another form at every size, as it is told as text which axes were cut.
    nodes = [node("Reshape", ["x", "shape"], ["r"]), node("ReduceSum", ["r", "axis"], ["y"], keepdims=0)]
    constants = {"shape": np.array([-1, 2], np.int64), "axis": np.array([0], np.int64)}
    model = ModelLoader.load(proto(nodes, {"x": ("float32", ["n"])}, {"y": ("float32", None)}, constants))
    with Worker(model, BackendType.CPU) as worker:
        for count in range(2, 120, 2):
            x = np.arange(count, dtype=np.float32)
            (found,) = answers(worker, {"x": x})
            np.testing.assert_allclose(found, x.reshape(-1, 2).sum(0), rtol=1e-6)
        assert len(worker._session.symbolic_plans.ready) <= MOST_PLANS


COLLECTED = """<ir_version: 9, opset_import: ["": 18]>
g (seq(float[k, 2]) s, optional(float[n]) o) => (float[m, 2] y, int64 count, float[a] z) <
    int64 zero = {0}, float[2, 2] w = {0.5, -1.0, 2.0, 0.25}, float[1] one = {1.0}
> {
    rows = ConcatFromSequence<axis = 0>(s)
    product = MatMul(rows, w)
    y = Softmax<axis = 0>(product)
    count = SequenceLength(s)
    is_given = OptionalHasElement(o)
    z = If(is_given) <
        then_branch = given () => (float[b] out) { element = OptionalGetElement(o) out = Exp(element) },
        else_branch = missing () => (float[c] out) { out = Identity(one) }
    >
}"""


@pytest.mark.parametrize("channel", ["cpu", "gl_compute", "opencl"])
def test_tensors_of_sequences_and_optionals_may_have_any_size(channel: str, make_worker: MakeWorker) -> None:
    model = ModelLoader.load(onnx.parser.parse_model(COLLECTED).SerializeToString())
    rng = np.random.default_rng(8)
    apart, worker = plan_statically(make_worker(model, channel)), make_worker(model, channel)
    for backend in worker._session.backends.values():
        compile_now(backend)
    planned = count_plans(worker)
    for turn in range(36):
        sizes = [int(rng.choice(LENGTHS[1:])) for _ in range(1 + turn % 2)]
        given = rng.normal(size=int(rng.choice(LENGTHS[1:]))).astype(np.float32) if turn % 3 else None
        feeds: Any = {"s": [rng.normal(size=(n, 2)).astype(np.float32) for n in sizes], "o": given}
        for one, other in zip(answers(worker, feeds), answers(apart, feeds), strict=True):
            np.testing.assert_array_equal(one, other)
    # Two lengths of the sequence, with and without the optional, and further guards.
    assert len(planned) <= 12


def test_a_size_that_does_not_fit_is_refused_as_ever() -> None:
    model = ModelLoader.load(shape_network())
    with Worker(model, BackendType.CPU) as worker:
        answers(worker, {"x": np.zeros((2, 5, 8), np.float32)})
        answers(worker, {"x": np.zeros((3, 6, 8), np.float32)})
        with pytest.raises(InputError):
            worker.schedule(np.zeros((3, 6, 7), np.float32))
        assert answers(worker, {"x": np.zeros((0, 4, 8), np.float32)})[0].shape == (0, 4, 4)


def test_slices_and_reports_see_the_steps_of_a_size() -> None:
    model = ModelLoader.load(ASSETS / "digits" / "digits.onnx")
    rng = np.random.default_rng(5)
    with Worker(model, BackendType.CPU) as worker:
        for _ in range(4):
            feeds = feeds_for(model, rng)
            whole = answers(worker, feeds)
            steps = worker.schedule_iterable(feeds)
            for _ in steps:
                pass
            sliced = [worker.peek_output(o.name).download_to_array() for o in model.outputs]
            for one, other in zip(whole, sliced, strict=True):
                np.testing.assert_array_equal(one, other)
            assert worker.plan_report().steps >= 5
        assert worker._session.symbolic_plans.ready
