"""Time by layer: the plan's steps, run again with their data, and onnxruntime's nodes beside them."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from engine import BackendType, Model, ModelLoader, Worker
from engine.base.errors import DisposedError
from engine.compiler.plan import Plan
from gameglue.profiling.benchmark_cases import infer
from gameglue.profiling.layers import LayerTime, by_layer, cover, match, measure_layers
from gameglue.profiling.onnxruntime_profile import OrtNode, OrtProfile, known_names
from gameglue.profiling.step_times import PlannedStep, RepeatedSchedule, in_model, interquartile_mean
from tests.graphs import node, proto

Make = Callable[..., Worker]
CHANNELS = ("cpu", "gl_compute", "gl_pixel", "opencl")


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """`make(model, channel)`: a worker that is disposed when the test ends."""
    made: list[Worker] = []

    def worker(model: Model, channel: str = "cpu") -> Worker:
        kind, device = BackendType.CPU, None
        if channel != "cpu":
            kind = BackendType.GPU_PIXEL if channel == "gl_pixel" else BackendType.GPU_COMPUTE
            device = request.getfixturevalue("cl_device" if channel == "opencl" else "gl_device")
        made.append(Worker(model, kind, device=device))
        return made[-1]

    yield worker
    for one in made:
        one.dispose()


def network() -> bytes:
    """Convolution with normalisation and activation, pool, reshape, product, softmax."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "scale": np.full(8, 1.5, np.float32),
        "shift": np.full(8, 0.1, np.float32),
        "mean": np.zeros(8, np.float32),
        "var": np.ones(8, np.float32),
        "flat": np.array([1, -1]),
        "m": rng.normal(size=(8 * 64, 5)).astype(np.float32) * np.float32(0.01),
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", ["p", "flat"], ["f"]),
        node("MatMul", ["f", "m"], ["s"]),
        node("Softmax", ["s"], ["y"]),
    ]
    return proto(nodes, {"x": ("float32", (1, 3, 16, 16))}, {"y": ("float32", (1, 5))}, constants)


def picture(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(1, 3, 16, 16)).astype(np.float32)


def plan_steps(worker: Worker) -> list[Any]:
    assert worker._latest is not None
    return [
        s
        for recorded in worker._latest.recorded_plans
        for g in recorded.lowered.segments
        for s in g.plan.steps
    ]


@pytest.mark.parametrize("channel", CHANNELS)
def test_steps_are_the_plans_and_are_run_again(channel: str, make: Make) -> None:
    model = ModelLoader.load(io.BytesIO(network()))
    worker = make(model, channel)
    worker.schedule(picture(1))
    before = worker.peek_output().download_to_array()
    replay = RepeatedSchedule(worker)
    assert [planned.step for planned in replay.steps] == plan_steps(worker)
    run = worker._latest
    assert run is not None
    for repeat, seed in ((replay.stepwise, 2), (replay.whole, 3)):
        for place, buffer in run.recorded.inputs["x"]:
            run.session.backends[place].upload(buffer, picture(seed))
        began = time.perf_counter()
        times = repeat()
        passed = time.perf_counter() - began
        again = worker.peek_output().download_to_array()
        if times is not None:
            assert len(times) == len(replay.steps)
            assert min(times) > 0.0
            assert sum(times) <= passed
        assert not np.allclose(again, before, atol=1e-3)
        fresh = make(model, channel)
        np.testing.assert_array_equal(again, infer(fresh, {"x": picture(seed)})["y"])


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_step_without_elements_takes_no_time(channel: str, make: Make) -> None:
    source = proto([node("Exp", ["x"], ["y"])], {"x": ("float32", (4, 4))}, {"y": ("float32", (4, 4))})
    worker = make(ModelLoader.load(io.BytesIO(source)), channel)
    infer(worker, {"x": np.zeros((4, 4), np.float32)})
    run = worker._latest
    assert run is not None
    (segment,) = run.recorded.lowered.segments
    (step,) = segment.plan.steps
    backend = run.session.backends[segment.place]
    buffers = {name: buffer for (_, name), buffer in run.recorded.buffers.items()}
    empty = replace(step, space=tuple(0 for _ in step.space))
    plan = Plan([empty, step, empty], segment.plan.buffers, segment.plan.constants)
    program = backend.record(plan, buffers)
    before, between, after = backend.time_steps(program, plan)
    assert before == after == 0.0 < between
    nothing = Plan([empty], segment.plan.buffers, segment.plan.constants)
    assert backend.time_steps(backend.record(nothing, buffers), nothing) == [0.0]


def test_every_stretch_of_a_plan_and_every_place_counts(make: Make) -> None:
    """A NumPy function cuts the plan in two; on OpenGL what computes in float64 runs on the CPU."""
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("Unique", ["a"], ["u"]),
        node("Cast", ["u"], ["wide"], to=TensorProto.DOUBLE),
        node("CumSum", ["wide", "axis"], ["sums"]),
        node("Cast", ["sums"], ["narrow"], to=TensorProto.FLOAT),
        node("Softmax", ["narrow"], ["y"]),
    ]
    source = proto(nodes, {"x": ("float32", (6,))}, {"y": ("float32", (None,))}, {"axis": np.array(0)})
    worker = make(ModelLoader.load(io.BytesIO(source)), "gl_compute")
    x = np.array([0, 1, 0, 1, 1, 0.5], np.float32)
    worker.schedule(x)
    y = worker.peek_output().download_to_array()
    expected = np.exp(np.cumsum(np.unique(np.exp(x))))
    np.testing.assert_allclose(y, expected / expected.sum(), rtol=1e-4)
    run = worker._latest
    assert run is not None
    assert len(run.recorded_plans) == 2
    assert {submission.place for recorded in run.recorded_plans for submission in recorded.submissions} == {
        "native",
        "cpu",
    }
    replay = RepeatedSchedule(worker)
    assert [planned.step for planned in replay.steps] == plan_steps(worker)
    assert [s.step.layer for s in replay.steps][:: len(replay.steps) - 1] == ["a_layer", "y_layer"]
    replay.whole()
    assert len(replay.stepwise()) == len(replay.steps)
    np.testing.assert_array_equal(worker.peek_output().download_to_array(), y)


def test_a_released_plan_is_not_timed(make: Make) -> None:
    worker = make(ModelLoader.load(io.BytesIO(network())))
    infer(worker, {"x": picture(1)})
    replay = RepeatedSchedule(worker)
    worker.dispose()
    with pytest.raises(DisposedError):
        replay.stepwise()


def test_rows_sum_up_the_steps_of_a_layer(make: Make) -> None:
    worker = make(ModelLoader.load(io.BytesIO(network())))
    infer(worker, {"x": picture(1)})
    steps = RepeatedSchedule(worker).steps
    rows = by_layer(steps, [1.0] * len(steps))
    assert [row.layer for row in rows] == list(dict.fromkeys(s.layer for s in plan_steps(worker)))
    assert sum(row.seconds for row in rows) == len(steps)
    conv, pool, turned, product, softmax = rows
    assert (conv.op_type, conv.shape, conv.is_generic) == ("Conv+Relu", (1, 16, 16, 8), False)
    assert (pool.op_type, pool.shape) == ("MaxPool", (1, 8, 8, 8))
    assert (turned.op_type, turned.values) == ("Transpose", {"p", "f"})
    assert (product.layer, product.shape) == ("s_layer", (1, 5))
    assert (softmax.kernels, softmax.is_generic) == (("softmax",), False)


def test_a_layer_that_runs_several_times_is_one_row(make: Make) -> None:
    worker = make(ModelLoader.load(io.BytesIO(network())))
    infer(worker, {"x": picture(1)})
    steps: tuple[PlannedStep, ...] = RepeatedSchedule(worker).steps
    once = by_layer(steps, [1.0] * len(steps))
    twice = by_layer(steps * 2, [1.0] * len(steps) * 2)
    assert [row.layer for row in twice] == [row.layer for row in once]
    assert [row.seconds for row in twice] == [2 * row.seconds for row in once]


def test_onnxruntimes_nodes_stand_beside_the_layers(make: Make) -> None:
    pytest.importorskip("onnxruntime")
    worker = make(ModelLoader.load(io.BytesIO(network())))
    inputs = {"x": picture(1)}
    told: list[tuple[int, int]] = []
    times = measure_layers(
        worker,
        inputs,
        peer=OrtProfile(onnx.load_from_string(network()), inputs),
        runs=3,
        progress=lambda done, wanted: told.append((done, wanted)),
    )
    assert [row.layer for row in times.layers] == [
        "c_layer", "p_layer", "p/transposed", "s_layer", "y_layer",
    ]  # fmt: skip
    assert all(row.seconds > 0.0 for row in times.layers)
    assert all(row.peer_seconds is not None for row in times.layers if row.layer != "p/transposed")
    assert {node.op_type for node in times.peer_only} <= {"ReorderInput", "ReorderOutput"}
    # The normalisation went into the convolution; the reshape is a view of what the transpose yields.
    assert times.layers[0].values == {"c", "n", "r"}
    assert [times.layers[k].values for k in (1, 2)] == [{"p"}, {"f"}]
    assert times.peer_whole is not None
    assert len(times.whole.turns) == len(times.peer_whole.turns) == 3
    assert told == [(done, 9) for done in range(9)]


def test_without_onnxruntime_there_is_no_time_beside(make: Make) -> None:
    worker = make(ModelLoader.load(io.BytesIO(network())))
    times = measure_layers(worker, {"x": picture(1)}, runs=1)
    assert times.peer_whole is None
    assert times.peer_total == 0.0
    assert [row.peer_seconds for row in times.layers] == [None] * 5
    assert times.total == sum(row.seconds for row in times.layers) > 0.0


def row(layer: str, *values: str) -> LayerTime:
    return LayerTime(layer, "Op", None, ("generic",), frozenset(values), 1.0)


def peer(name: str, op_type: str, *names: str, seconds: tuple[float, ...] = (9.0, 2.0)) -> OrtNode:
    return OrtNode(name, op_type, names, seconds)


def test_a_node_belongs_to_the_row_that_yields_one_of_its_names() -> None:
    rows = (row("a", "a0", "a1"), row("b", "b0"))
    nodes = [
        peer("first", "Conv", "unknown", "a1"),
        peer("second", "Relu", "a0", "b0"),
        peer("third", "Add", "c0"),
        peer("fourth", "ReorderOutput", "b0"),
    ]
    beside, alone = match(rows, nodes)
    # Every other run is a warm-up.
    assert [r.peer_seconds for r in beside] == [4.0, None]
    assert beside[0].speed == 4.0
    assert beside[1].speed is None
    assert [(n.name, n.op_type, n.seconds) for n in alone] == [
        ("third", "Add", 2.0),
        ("fourth", "ReorderOutput", 2.0),
    ]


def test_a_value_in_another_layout_belongs_to_the_row_that_made_it() -> None:
    assert in_model("r/channels_last") == "r"
    assert in_model("r") == "r"
    rows = [
        row("x to x/channels_last", "x"),
        row("c_layer", "r"),
        row("p_layer", "p"),
        row("p/channels_last to p", "p", "f"),
        row("s_layer", "s"),
        row("y_layer", "y"),
    ]
    made = onnx.load_from_string(network())
    covered = cover(rows, ModelLoader.load(io.BytesIO(network())), made)
    assert covered == [set(), {"c", "n", "r"}, {"p"}, {"f"}, {"s"}, {"y"}]


def test_subgraphs_do_not_count_twice() -> None:
    pytest.importorskip("onnxruntime")
    value = helper.make_tensor_value_info
    f, i, b = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["s", "w"], ["t"]),
            helper.make_node("Tanh", ["t"], ["u"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [value("k", i, []), value("go", b, []), value("s", f, [64, 64])],
        [value("on", b, []), value("u", f, [64, 64])],
    )
    loop = node("Loop", ["trips", "", "x"], ["y"], body=body)
    weights = {"w": np.eye(64, dtype=np.float32), "trips": np.array(200)}
    made = proto([loop], {"x": ("float32", (64, 64))}, {"y": ("float32", (64, 64))}, weights)
    profile = OrtProfile(onnx.load_from_string(made), {"x": np.ones((64, 64), np.float32)})
    passed = []
    for _ in range(3):
        began = time.perf_counter()
        profile.run()
        passed.append(time.perf_counter() - began)
    nodes = {n.op_type: n for n in profile.finish()}
    assert {"Loop", "MatMul", "Tanh"} <= set(nodes)
    assert {len(n.seconds) for n in nodes.values()} == {3}
    for number, whole in enumerate(passed):
        assert 0.0 < sum(n.seconds[number] for n in nodes.values()) <= whole


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("r2_nchwc", "r2"),
        ("r8_bn_nchwc", "r8"),
        ("r10_mul_nchwc", "r10"),
        ("sum/MatMulAddFusion", "sum"),
        ("r2_token_17", "r2"),
        ("plain", "plain"),
    ],
)
def test_what_onnxruntime_adds_to_a_name_is_taken_off(name: str, known: str) -> None:
    names = list(known_names(name))
    assert names[0] == name
    assert names[-1] == known


def test_the_middle_half_is_what_counts() -> None:
    assert interquartile_mean([5.0]) == 5.0
    assert interquartile_mean([1.0, 3.0]) == 2.0
    assert interquartile_mean([100.0, 1.0, 2.0, 0.0]) == 1.5
    assert interquartile_mean([0.0, 0.0, 1.0, 2.0, 3.0, 99.0, 99.0]) == pytest.approx(
        (0 + 1 + 2 + 3 + 99) / 5
    )
