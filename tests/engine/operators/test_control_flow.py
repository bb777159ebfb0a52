"""Layers that run other layers, on every backend, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from engine import ModelLoader, ShapeError
from engine.compiler.interpreter import interpret
from engine.kernels.value import Entry
from engine.operators.builder import Builder
from engine.operators.control_flow import CountedLoop
from tests.engine.conftest import MakeWorker, answers
from tests.engine.test_random_control_flow import HEAD, load
from tests.peer import open_session

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is the independent answer")

BRANCHES = """g (float[2, 3] x, float limit) => (float[2, 3] y) {
    total = ReduceSum<keepdims=0>(x)
    above = Greater(total, limit)
    doubled = Add(x, x)
    y = If(above) <
        then_branch = high () => (float[2, 3] a) { m = ReduceMax<keepdims=0>(x)  a = Mul(doubled, m) },
        else_branch = low () => (float[2, 3] b) { n = Neg(x)  b = Softmax(n) }
    >
}"""

LIGHT = """g (float[2, 3] x, float limit) => (float[2, 3] y) {
    total = ReduceSum<keepdims=0>(x)
    above = Greater(total, limit)
    y = If(above) <
        then_branch = high () => (float[2, 3] a) { a = Mul(x, total) },
        else_branch = low () => (float[2, 3] b) { n = Neg(x)  b = Tanh(n) }
    >
}"""

COUNTED = """g (float[3] x, int64 n) => (float[3] y, float[m, 3] all) {
    yes = Constant<value = bool {1}>()
    y, all = Loop(n, yes, x) <
        body = step (int64 i, bool go, float[3] s) => (bool again, float[3] next, float[3] kept) {
            again = Identity(go)
            f = Cast<to = 1>(i)
            p = Mul(s, x)
            next = Add(p, f)
            kept = Sin(next)
        }
    >
}"""

WHILE = """g (float[2] x, float limit) => (float[2] y, int64 steps, float[m, 2] all) {
    start = Constant<value = int64 {0}>()
    none = Constant<value = int64 {1000}>()
    yes = Constant<value = bool {1}>()
    y, steps, all = Loop(none, yes, x, start) <
        body = step (int64 i, bool go, float[2] s, int64 c) => (bool again, float[2] t, int64 d, float[2] k) {
            t = Mul(s, s)
            k = Add(t, x)
            one = Constant<value = int64 {1}>()
            d = Add(c, one)
            size = ReduceSum<keepdims=0>(t)
            again = Less(size, limit)
        }
    >
}"""

GROWING = """g (float[2] x, float limit) => (float[m] y) {
    none = Constant<value = int64 {50}>()
    yes = Constant<value = bool {1}>()
    y = Loop(none, yes, x) <
        body = step (int64 i, bool go, float[k] s) => (bool again, float[l] t) {
            t = Concat<axis = 0>(s, x)
            size = ReduceSum<keepdims=0>(t)
            again = Less(size, limit)
        }
    >
}"""

NESTED = """g (float[4] x, int64 n) => (float[4] y) {
    yes = Constant<value = bool {1}>()
    y = Loop(n, yes, x) <
        body = outer (int64 i, bool go, float[4] s) => (bool again, float[4] t) {
            again = Identity(go)
            odd = Constant<value = int64 {2}>()
            rest = Mod(i, odd)
            flag = Cast<to = 9>(rest)
            t = If(flag) <
                then_branch = inner () => (float[4] a) {
                    three = Constant<value = int64 {3}>()
                    a = Loop(three, yes, s) <
                        body = deep (int64 j, bool g2, float[4] u) => (bool h, float[4] v) {
                            h = Identity(g2)
                            w = Add(u, x)
                            v = Tanh(w)
                        }
                    >
                },
                else_branch = other () => (float[4] b) { b = Neg(s) }
            >
        }
    >
}"""

SCAN = """g (float[3] start, float[t, 3] xs) => (float[3] last, float[t, 3] sums, float[3, t] back) {
    last, sums, back = Scan <
        num_scan_inputs = 1, scan_output_axes = [0, 1], scan_output_directions = [0, 1],
        body = step (float[3] s, float[3] x) => (float[3] next, float[3] kept, float[3] other) {
            next = Add(s, x)
            kept = Identity(next)
            other = Mul(s, x)
        }
    >(start, xs)
}"""


def against_onnxruntime(
    text: str, feeds: Mapping[str, np.ndarray], channel: str, make_worker: MakeWorker
) -> Any:
    """Run on a backend (None: NumPy) and by onnxruntime, compare all outputs; returns the worker."""
    data = onnx.parser.parse_model(HEAD + text).SerializeToString()
    expected = open_session(data).run(None, dict(feeds))
    evaluated = interpret(ModelLoader.load(data), feeds)
    worker = make_worker(ModelLoader.load(data), channel)
    for output, actual, answer in zip(
        worker.model.outputs, answers(worker, dict(feeds)), expected, strict=True
    ):
        assert actual.dtype == answer.dtype
        np.testing.assert_allclose(evaluated[output.name], answer, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(actual, answer, rtol=1e-4, atol=1e-5)
    return worker


X3 = np.array([0.5, -0.25, 0.75], np.float32)


@pytest.mark.parametrize("limit", [-100.0, 100.0])
def test_one_branch_runs_and_reads_what_is_around_it(
    limit: float, channel: str, make_worker: MakeWorker
) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
    feeds: dict[str, np.ndarray] = {"x": x, "limit": np.array(limit, np.float32)}
    worker = against_onnxruntime(BRANCHES, feeds, channel, make_worker)
    run = {
        step.layer
        for recorded in worker._latest.recorded_plans
        for s in recorded.lowered.segments
        for step in s.plan.steps
    }
    assert not run.intersection({"Softmax_7"} if limit < 0 else {"ReduceMax_4", "Mul_5"}), run


@pytest.mark.parametrize("limit", [-100.0, 100.0])
def test_light_branches_both_run_and_nothing_waits(
    limit: float, channel: str, make_worker: MakeWorker
) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
    feeds: dict[str, np.ndarray] = {"x": x, "limit": np.array(limit, np.float32)}
    worker = against_onnxruntime(LIGHT, feeds, channel, make_worker)
    assert worker.plan_report().waits == ()


@pytest.mark.spread("n")
@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_counted_loop_is_unrolled(n: int, channel: str, make_worker: MakeWorker) -> None:
    feeds = {"x": X3, "n": np.array(n)}
    if n == 0:
        y, runs = answers(make_worker(load(COUNTED), channel), feeds)
        np.testing.assert_array_equal(y, X3)
        assert runs.shape == (0, 3)
        return
    worker = against_onnxruntime(COUNTED, feeds, channel, make_worker)
    assert worker.plan_report().waits == ()


@pytest.mark.spread
@pytest.mark.parametrize("limit", [0.1, 1e3, 1e30])
def test_a_loop_that_data_ends_asks_once_in_a_while(
    limit: float, channel: str, make_worker: MakeWorker
) -> None:
    x = np.array([1.5, 1.04], np.float32)
    feeds = {"x": x, "limit": np.array(limit, np.float32)}
    worker = against_onnxruntime(WHILE, feeds, channel, make_worker)
    steps = int(worker.peek_output("steps").download_to_array())
    waits = worker.plan_report().waits
    asked, made = 1, 9
    while made < steps:
        asked, made = asked + 1, made + max(8, made // 4)
    assert [w.op_type for w in waits] == ["Loop"] * asked


def test_state_that_grows_is_decided_run_by_run(channel: str, make_worker: MakeWorker) -> None:
    feeds = {"x": np.array([1.0, 2.0], np.float32), "limit": np.array(10.0, np.float32)}
    against_onnxruntime(GROWING, feeds, channel, make_worker)


def test_loops_and_branches_in_one_another(channel: str, make_worker: MakeWorker) -> None:
    x = np.array([0.1, -0.2, 0.3, 2.0], np.float32)
    against_onnxruntime(NESTED, {"x": x, "n": np.array(4)}, channel, make_worker)


@pytest.mark.spread("t")
@pytest.mark.parametrize("t", [1, 4])
def test_a_scan_goes_over_slices(t: int, channel: str, make_worker: MakeWorker) -> None:
    xs = np.linspace(-1, 1, t * 3, dtype=np.float32).reshape(t, 3)
    against_onnxruntime(SCAN, {"start": X3, "xs": xs}, channel, make_worker)


def test_the_same_worker_takes_either_way_as_data_says(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(load(BRANCHES), channel)
    x = np.ones((2, 3), np.float32)
    for limit in (0.0, 10.0, 0.0, 5.0, 7.0):
        expected = 2 * x if limit < 6 else np.full((2, 3), 1 / 3)
        np.testing.assert_allclose(answers(worker, x, np.array(limit, np.float32))[0], expected, atol=1e-4)


def test_an_endless_loop_is_refused_with_its_name() -> None:
    text = """g (float[1] x) => (float[1] y) {
        y = Loop(, , x) <
            body = step (int64 i, bool go, float[1] s) => (bool again, float[1] t) {
                again = Identity(go)
                t = Neg(s)
            }
        >
    }"""
    with pytest.raises(ShapeError, match=r"Loop.*runs on without an end.*smaller trip count"):
        interpret(load(text), {"x": np.zeros(1, np.float32)})


def test_a_body_that_does_not_fit_is_refused_with_its_name() -> None:
    text = """g (float[1] x) => (float[1] y) {
        n = Constant<value = int64 {2}>()
        y = Loop(n, , x, x) <
            body = step (int64 i, bool go, float[1] s) => (bool go, float[1] s) { }
        >
    }"""
    with pytest.raises(ShapeError, match=r"Loop.*its body has 3 inputs and 2 outputs"):
        interpret(load(text), {"x": np.zeros(1, np.float32)})


def test_branches_of_different_counts_are_refused_with_their_name() -> None:
    text = """g (bool c, float[1] x) => (float[1] y) {
        y = If(c) <
            then_branch = one () => (float[1] a) { a = Neg(x) },
            else_branch = two () => (float[1] b, float[1] d) { b = Abs(x)  d = Exp(x) }
        >
    }"""
    with pytest.raises(ShapeError, match=r"If.*its branches yield 1 and 2 outputs"):
        interpret(load(text), {"c": np.array(True), "x": np.zeros(1, np.float32)})


@pytest.mark.parametrize("name", ["scan_input_directions", "scan_output_axes"])
def test_a_scan_s_attributes_have_an_entry_for_each_tensor(name: str) -> None:
    text = f"""g (float[1] x, float[3, 1] xs) => (float[1] y, float[3, 1] ys) {{
        y, ys = Scan <num_scan_inputs = 1, {name} = [0, 0],
            body = step (float[1] s, float[1] i) => (float[1] t, float[1] o) {{ t = Add(s, i)  o = Neg(i) }}
        > (x, xs)
    }}"""
    with pytest.raises(ShapeError, match=rf"Scan.*its {name} has 2 entries for 1 tensors"):
        interpret(load(text), {"x": np.zeros(1, np.float32), "xs": np.zeros((3, 1), np.float32)})


def test_what_python_raises_between_two_runs_names_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only at the first step of a layer: a body's results are joined after its last run."""

    def broken(self: CountedLoop, k: Builder) -> tuple[Entry, ...]:
        raise ValueError("these do not fit")

    monkeypatch.setattr(CountedLoop, "results", broken)
    with pytest.raises(ShapeError, match=r"layer .*Loop.*these do not fit"):
        interpret(load(COUNTED), {"x": X3, "n": np.array(2)})
