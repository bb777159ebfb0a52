"""Random graphs whose plans follow data, against onnxruntime; and, by hand, the faults that they led to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.parser
import pytest

from engine import Model, ModelLoader, ShapePending, Tensor, Worker
from engine.compiler.interpreter import interpret
from engine.compiler.trace import Tracer
from engine.runtime.plans.plan_cache import KEPT_CONTINUATIONS, KEPT_PLANS
from engine.runtime.plans.recorded_plan import RecordedPlan
from tests.engine.conftest import MakeWorker
from tests.engine.runtime.plans.test_continuations import held
from tests.networks import error
from tests.random_control_flow import Item, RandomFlow, Refused, run_reference

HEAD = '<ir_version: 9, opset_import: ["": 18]>\n'

Answers = list[dict[str, Item]]


def load(text: str, head: str = HEAD) -> Model:
    return ModelLoader.load(onnx.parser.parse_model(head + text).SerializeToString())


def draw(seed: int, **options: Any) -> tuple[RandomFlow, Answers]:
    """A graph and onnxruntime's answers; the test is skipped where that refuses the graph as a whole."""
    graph = RandomFlow(seed, **options)
    try:
        return graph, run_reference(graph.source, graph.feeds)
    except Refused as refusal:
        pytest.skip(f"onnxruntime refuses this graph: {refusal}")


def compare(actual: Any, expected: Item, graph: RandomFlow, where: object) -> None:
    if isinstance(expected, list):
        assert len(actual) == len(expected), where
        for one, other in zip(actual, expected, strict=True):
            compare(one, other, graph, where)
        return
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), where
    if expected.dtype.kind == "f" and expected.size:
        assert error(actual.astype(np.float32), expected.astype(np.float32)) < graph.tolerance, where
    else:
        np.testing.assert_array_equal(actual, expected, err_msg=str(where))


def fetched(output: Any) -> Any:
    """The arrays of an output: of a tensor, or of each in a list."""
    if isinstance(output, list):
        return [x.download_to_array() for x in output]
    return output.download_to_array()


def check_numpy(seed: int) -> None:
    graph, answers = draw(seed)
    for source in {graph.source, graph.plain}:
        model = ModelLoader.load(source)
        tracer = Tracer(model)
        for k, (feeds, expected) in enumerate(zip(graph.feeds, answers, strict=True)):
            found = interpret(model, feeds, tracer=tracer)
            for name, item in expected.items():
                compare(found[name], item, graph, (name, k))


def check_backend(seed: int, channel: str, make_worker: MakeWorker, **options: Any) -> None:
    """One schedule after another; many without reading in between; copies that outlive the worker."""
    graph, answers = draw(seed, **options)
    worker = make_worker(ModelLoader.load(graph.plain), channel, allow_fallback=True, debug=seed % 4 == 0)
    order = [*range(len(answers)), *reversed(range(len(answers)))]
    copies = []
    for k in order:
        worker.schedule(graph.feeds[k])
        copies.append({name: worker.copy_output(name) for name in answers[k]})
        for name, item in answers[k].items():
            compare(fetched(worker.peek_output(name)), item, graph, (name, k))
    pending = []
    for k in order:
        worker.schedule(graph.feeds[k])
        pending.append(requested(worker, answers[k]))
    for k in order:
        worker.schedule(graph.feeds[k])
    for k, outputs in zip(order, pending, strict=True):
        for name, output in outputs.items():
            compare(fetched(output), answers[k][name], graph, (name, k, "queued"))
    worker.schedule(graph.feeds[0])
    requested(worker, answers[0])
    worker.dispose()
    for k, outputs in zip(order, copies, strict=True):
        for name, output in outputs.items():
            compare(fetched(output), answers[k][name], graph, (name, k, "copied"))


def requested(worker: Worker, names: Sequence[str] | dict[str, Item]) -> dict[str, Any]:
    """Outputs that are on their way, but for sequences of which nobody knows yet how long they are."""
    found: dict[str, Any] = {}
    for name in names:
        try:
            found[name] = worker.peek_output(name)
        except ShapePending:
            continue
        for tensor in found[name] if isinstance(found[name], list) else [found[name]]:
            tensor.readback_request()
    return found


def test_nearly_all_graphs_are_good() -> None:
    """A generator whose graphs are refused, or do nothing, tests nothing."""
    good = 0
    for seed in range(40):
        graph = RandomFlow(seed)
        try:
            run_reference(graph.source, graph.feeds)
        except Refused:
            continue
        good += bool(ModelLoader.load(graph.source).layers)
    assert good >= 28


@pytest.mark.parametrize("seed", range(12))
def test_formulas(seed: int) -> None:
    check_numpy(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_every_backend(seed: int, channel: str, make_worker: MakeWorker) -> None:
    check_backend(seed, channel, make_worker, length=8)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_formulas_at_length(seed: int) -> None:
    check_numpy(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_every_backend_at_length(seed: int, channel: str, make_worker: MakeWorker) -> None:
    check_backend(seed, channel, make_worker)


# What the random graphs found, made by hand

LATE_GROWTH = """g (float[2] x, float limit) => (float[m] y, float[k] all) {
    most = Constant<value = int64 {20}>()
    yes = Constant<value = bool {1}>()
    three = Constant<value = int64 {3}>()
    y, all = Loop(most, yes, x) <
        body = step (int64 i, bool go, float[p] s) => (bool again, float[q] t, float total) {
            late = Greater(i, three)
            t = If(late) <
                then_branch = grow () => (float[r] a) { a = Concat<axis = 0>(s, x) },
                else_branch = keep () => (float[p] b) { b = Add(s, x) }
            >
            total = ReduceSum<keepdims=0>(t)
            again = Less(total, limit)
        }
    >
}"""


@pytest.mark.parametrize("limit", [7.0, 16.0, 25.0])
def test_a_run_made_in_advance_may_change_a_shape(
    limit: float, channel: str, make_worker: MakeWorker
) -> None:
    """Runs are made before it is known whether they are due, and the old state is kept if not. The fifth run
    of this loop grows the state, after four that did not: old and new cannot be selected from element by
    element then. The run has to wait until it is due.
    """
    worker = make_worker(load(LATE_GROWTH), channel)
    x = np.array([1.0, 0.5], np.float32)
    state, totals = x, []
    for i in range(20):
        state = np.concatenate([state, x]) if i > 3 else state + x
        totals.append(state.sum())
        if totals[-1] >= limit:
            break
    worker.schedule(x, np.array(limit, np.float32))
    np.testing.assert_allclose(worker.peek_output("y").download_to_array(), state, rtol=1e-5)
    np.testing.assert_allclose(worker.peek_output("all").download_to_array(), totals, rtol=1e-5)


PAST_THE_END = """g (float[6] x, float limit) => (float y, int64 runs) {
    most = Constant<value = int64 {50}>()
    yes = Constant<value = bool {1}>()
    zero = Constant<value = float {0.0}>()
    none = Constant<value = int64 {0}>()
    parts = SplitToSequence<axis = 0, keepdims = 0>(x)
    y, runs = Loop(most, yes, zero, none) <
        body = step (int64 i, bool go, float s, int64 c) => (bool again, float t, int64 d) {
            part = SequenceAt(parts, i)
            t = Add(s, part)
            one = Constant<value = int64 {1}>()
            d = Add(c, one)
            again = Less(t, limit)
        }
    >
}"""


@pytest.mark.parametrize("limit", [0.5, 5.5])
def test_a_run_made_in_advance_may_fail(limit: float, channel: str, make_worker: MakeWorker) -> None:
    """A loop that ends with the last tensor of a sequence was run once more in advance, and that run, which
    asks for a tensor that is not there, took the whole plan with it. Now it is given up, and made again only
    if it is due.
    """
    worker = make_worker(load(PAST_THE_END), channel)
    worker.schedule(np.ones(6, np.float32), np.array(limit, np.float32))
    runs = int(np.ceil(limit))
    assert worker.peek_output("y").download_to_array() == runs
    assert worker.peek_output("runs").download_to_array() == runs


def test_a_run_that_is_due_and_fails_says_so() -> None:
    with pytest.raises(Exception, match="outside a sequence of 6"):
        interpret(load(PAST_THE_END), {"x": np.ones(6, np.float32), "limit": np.array(9, np.float32)})


DATA_SIZES = """g (float[1] n, float limit) => (float[1] y, float total) {
    most = Constant<value = int64 {50}>()
    yes = Constant<value = bool {1}>()
    zero = Constant<value = float {0.0}>()
    first = Abs(n)
    y, total = Loop(most, yes, first, zero) <
        body = step (int64 i, bool go, float[1] s, float c) => (bool again, float[1] t, float d) {
            size = Cast<to = 7>(s)
            many = Expand(limit, size)
            sum = ReduceSum<keepdims = 0>(many)
            d = Add(c, sum)
            twenty = Constant<value = float {20.0}>()
            t = Mul(s, twenty)
            top = ReduceMax<keepdims = 0>(t)
            again = Less(top, limit)
        }
    >
}"""


def test_a_run_made_in_advance_waits_for_no_data_of_its_own(channel: str, make_worker: MakeWorker) -> None:
    """The second run would have made a tensor of 60 elements, the third of 1200, and so on, each waiting for
    its size, before anybody asked whether they were due. Where a run cannot go on without data, it is asked
    first whether it is due.
    """
    worker = make_worker(load(DATA_SIZES), channel)
    worker.schedule(np.array([3], np.float32), np.array(50, np.float32))
    assert worker.peek_output("y").download_to_array().tolist() == [60]
    assert worker.peek_output("total").download_to_array() == 150
    assert worker._latest is not None
    plans = [s.plan for recorded in worker._latest.recorded_plans for s in recorded.submissions]
    assert max(spec.elements for plan in plans for spec in plan.buffers.values()) <= 3


EITHER = """g (float[n] x, float[m] z, float limit) => (float[k] y) {
    total = ReduceSum<keepdims=0>(x)
    fits = Greater(total, limit)
    y = If(fits) <
        then_branch = both () => (float[a] s) { s = Add(x, z) },
        else_branch = one () => (float[b] t) { t = Neg(x) }
    >
}"""


def test_a_light_branch_that_is_not_meant_may_fail(channel: str, make_worker: MakeWorker) -> None:
    """Two light branches both run while the condition is computed. One that cannot take these shapes failed
    the plan although the other one was meant.
    """
    worker = make_worker(load(EITHER), channel)
    x = np.array([1.0, 2.0, 3.0], np.float32)
    worker.schedule(x, np.ones(2, np.float32), np.array(100, np.float32))
    assert worker.peek_output().download_to_array().tolist() == [-1, -2, -3]
    worker.schedule(x, np.ones(3, np.float32), np.array(1, np.float32))
    assert worker.peek_output().download_to_array().tolist() == [2, 3, 4]


PRODUCTS = """g (float[n, 3, n] x) => (float[a, b, c] y) {
    sizes = Shape(x)
    zero = Constant<value = int64 {0}>()
    ten = Constant<value = int64 {10}>()
    size = Gather(sizes, zero)
    is_ten = Equal(size, ten)
    y = If(is_ten) <
        then_branch = longer () => (float[n, 3, n] s) { a = Neg(x) b = Neg(a) c = Neg(b) s = Softmax(c) },
        else_branch = product () => (float[d, e, f] p) {
            turned = Transpose<perm = [0, 2, 1]>(x)
            p = MatMul(x, turned)
        }
    >
}"""


def test_a_product_in_a_branch_that_no_sample_reaches() -> None:
    """What such a branch makes is known at the present sizes only, what it captures also in every sample of
    the dynamic dimensions. The product compared the present sizes of one side with the first sample's of the
    other.
    """
    x = np.random.default_rng(0).normal(size=(4, 3, 4)).astype(np.float32)
    found = interpret(load(PRODUCTS), {"x": x})
    np.testing.assert_allclose(found["y"], x @ x.transpose(0, 2, 1), atol=1e-5)


NO_RUN = """g (float[n, 3] x, int64 trips)
    => (float[k] y, float[a, b, c] all, float[d, e, f] back, int64[h] size) {
    yes = Constant<value = bool {1}>()
    start = Constant<value = float {0.0}>()
    y, all = Loop(trips, yes, start) <
        body = step (int64 i, bool go, float s) => (bool again, float t, float[?, ?] rows) {
            again = Identity(go)
            t = Neg(s)
            rows = Transpose(x)
        }
    >
    back = Scan<num_scan_inputs = 1, scan_output_axes = [1], body = over (float[?] row) => (float[?, ?] two) {
        axes = Constant<value = int64[1] {0}>()
        one = Unsqueeze(row, axes)
        two = Concat<axis = 0>(one, one)
    }>(x)
    size = Shape(all)
}"""


def test_what_is_stacked_over_no_run_has_the_shape_that_runs_would_give() -> None:
    """Only the declared sizes counted, and sizes that are left open became 0, so that a later Concat with
    anything else failed. A run that nobody needs tells the shape.
    """
    model = load(NO_RUN)
    found = interpret(model, {"x": np.ones((4, 3), np.float32), "trips": np.array(0)})
    assert found["all"].shape == (0, 3, 4)
    assert found["size"].tolist() == [0, 3, 4]
    assert found["back"].shape == (2, 4, 3)
    found = interpret(model, {"x": np.ones((0, 3), np.float32), "trips": np.array(2)})
    assert found["all"].shape == (2, 3, 0)
    assert found["back"].shape == (2, 0, 3)


OLD_SCAN = """g (int64[2] lengths, float[2, 1] start, float[2, 3, 1] xs)
    => (float[2, 1] last, float[2, 3, 1] sums) {
    last, sums = Scan<num_scan_inputs = 1, body = step (float[1] s, float[1] x) => (float[1] t, float[1] u) {
        t = Add(s, x)
        u = Identity(t)
    }>(lengths, start, xs)
}"""


@pytest.mark.parametrize("lengths", [[2, 0], [0, 3], [0, 0]])
def test_a_batch_without_steps_is_filled_with_zeros(lengths: list[int]) -> None:
    """The zeros behind a sequence that is short were made from its own first entry, which one of length 0
    does not have.
    """
    xs = np.arange(1, 7, dtype=np.float32).reshape(2, 3, 1)
    model = load(OLD_SCAN, '<ir_version: 3, opset_import: ["": 8]>\n')
    found = interpret(model, {"lengths": np.array(lengths), "start": np.zeros((2, 1), np.float32), "xs": xs})
    sums = np.array([[xs[b, : t + 1].sum() if t < n else 0 for t in range(3)] for b, n in enumerate(lengths)])
    np.testing.assert_array_equal(found["sums"][:, :, 0], sums)
    np.testing.assert_array_equal(found["last"][:, 0], [xs[b, :n].sum() for b, n in enumerate(lengths)])


COUNTED_ON_THE_DEVICE = """g (float[6] x, bool[6] mask, int64 n) => (float[a, b] all, float[c, d] rows) {
    yes = Constant<value = bool {1}>()
    kept = Compress(x, mask)
    all = Loop(n, yes) <
        body = step (int64 i, bool go) => (bool again, float[m] stacked) {
            again = Identity(go)
            f = Cast<to = 1>(i)
            stacked = Add(kept, f)
        }
    >
    rows = Scan<num_scan_inputs = 1, body = over (float number) => (float[l] kept) { }>(x)
}"""


def test_what_is_stacked_is_cut_to_the_size_that_data_decides(channel: str, make_worker: MakeWorker) -> None:
    """What a body yielded with room for more than is meant (here: what Compress kept) was stacked with all
    its room, and nothing told any more how much of it was meant.
    """
    worker = make_worker(load(COUNTED_ON_THE_DEVICE), channel)
    x = np.arange(1, 7, dtype=np.float32)
    for mask in ([1, 0, 1, 1, 0, 0], [0, 0, 0, 1, 0, 0], [0] * 6):
        kept = x[np.array(mask, bool)]
        worker.schedule(x, np.array(mask, bool), np.array(2))
        np.testing.assert_array_equal(worker.peek_output("all").download_to_array(), [kept, kept + 1])
        np.testing.assert_array_equal(worker.peek_output("rows").download_to_array(), [kept] * 6)


KEPT = """g (float[n] x, bool[n] mask) => (float[k] y) {
    kept = Compress(x, mask)
    y = Neg(kept)
}"""

SQUARES = "g (float[n] x) => (float[n] y) { y = Mul(x, x) }"


def polled(output: Tensor) -> tuple[int, ...]:
    for _ in range(200_000):
        if (shape := output.shape_or_none) is not None:
            return shape
    raise AssertionError("the shape never arrives")


def test_a_size_that_data_decides_arrives_when_it_is_polled(channel: str, make_worker: MakeWorker) -> None:
    """The shape of an output that is trimmed when read back stayed unknown until somebody read all of it: who
    polled for it never got it, and the output could be fed to no other worker.
    """
    worker, other = make_worker(load(KEPT), channel), make_worker(load(SQUARES), channel)
    x = np.arange(6, dtype=np.float32)
    for mask in (x > 3, x < 0, x >= 0):
        with held(worker) as gate:
            worker.schedule(x, mask)
            output = worker.peek_output()
            assert output.shape_or_none is None
            with pytest.raises(ShapePending):
                _ = output.shape
            assert gate.waits == 0
            gate.is_open = True
            assert polled(output) == (int(mask.sum()),)
            assert gate.waits == 0
        other.schedule(output)
        np.testing.assert_array_equal(other.peek_output().download_to_array(), x[mask] ** 2)


def test_polling_for_a_shape_is_enough(channel: str, make_worker: MakeWorker) -> None:
    """Polling took no continuation up again, so a shape that one decides came only to those who pumped."""
    worker = make_worker(load(BRANCHING), channel)
    with held(worker) as gate:
        worker.schedule(np.array([2, 3, 1, 0], np.float32))
        output = worker.peek_output()
        assert output.shape_or_none is None
        gate.is_open = True
        assert polled(output) == (6,)
        assert gate.waits == 0


IN_ONE_ANOTHER = """g (float[k] x, int64 n) => (float[k] y) {
    yes = Constant<value = bool {1}>()
    y = Loop(n, yes, x) <
        body = outer (int64 i, bool go, float[k] s) => (bool again, float[k] t) {
            again = Identity(go)
            t = Loop(n, yes, s) <
                body = inner (int64 j, bool g2, float[k] u) => (bool h, float[k] v) {
                    h = Identity(g2)
                    v = Loop(n, yes, u) <
                        body = deep (int64 l, bool g3, float[k] w) => (bool m, float[k] z) {
                            m = Identity(g3)
                            sum = Add(w, x)
                            z = Tanh(sum)
                        }
                    >
                }
            >
        }
    >
}"""


def test_loading_loops_in_loops_does_not_run_them_at_length() -> None:
    """What a trip count may be was guessed like a tensor's size, at up to 64: loading three loops in one
    another went through a quarter of a million bodies.
    """
    tracer = Tracer(load(IN_ONE_ANOTHER))
    assert max(sample.steps for sample in tracer.samples) < 2000


BRANCHING = """g (float[4] sizes) => (float[m] y) {
    whole = Cast<to = 7>(sizes)
    zero = Constant<value = int64 {0}>()
    one = Constant<value = int64 {1}>()
    two = Constant<value = int64 {2}>()
    a = Gather(whole, zero)
    first = Range(zero, a, one)
    b0 = Gather(whole, one)
    sum = ReduceSum<keepdims=0>(first)
    none = Mul(sum, zero)
    b = Add(b0, none)
    second = Range(zero, b, one)
    c0 = Gather(whole, two)
    more = ReduceSum<keepdims=0>(second)
    nought = Mul(more, zero)
    c = Add(c0, nought)
    third = Range(zero, c, one)
    all = Concat<axis = 0>(first, second, third)
    y = Cast<to = 1>(all)
}"""


def plans_in(recorded: RecordedPlan) -> int:
    return 1 + sum(map(plans_in, recorded.continuations.values()))


def test_plans_that_stop_often_do_not_pile_up(
    channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stop kept some continuations, each of those as many at the next stop, and so on: with three stops
    and nine sizes, nearly a thousand plans with their buffers. There is one limit for all of them now.
    """
    assert KEPT_CONTINUATIONS < KEPT_PLANS**2 * 2
    monkeypatch.setattr("engine.runtime.plans.plan_cache.KEPT_CONTINUATIONS", 12)
    worker = make_worker(load(BRANCHING), channel)
    rng = np.random.default_rng(0)
    for _ in range(40):
        sizes = rng.integers(0, 5, 4).astype(np.float32)
        worker.schedule(sizes)
        expected = np.concatenate([np.arange(n) for n in sizes[:3]])
        np.testing.assert_array_equal(worker.peek_output().download_to_array(), expected)
        session = worker._session
        assert sum(map(plans_in, session.cache.plans.values())) == len(session.cache.plans) + len(
            session.cache.continuations
        )
        assert len(session.cache.continuations) <= 12 + 3
