"""Loops that a counter ends: their number of iterations is known before they begin."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from engine import Model, ModelLoader
from engine.base.errors import ShapeError
from engine.compiler.interpreter import interpret
from engine.compiler.plan import RepeatedSteps
from engine.graph.model import Layer
from engine.operators.loop_bodies import never_ends_early
from tests.engine.conftest import CHANNELS, MakeWorker, answers
from tests.engine.runtime.plans.test_symbolic_plans import count_plans
from tests.engine.test_random_control_flow import HEAD
from tests.networks import reference
from tests.open_sizes import check_sizes, plan_statically

ENDLESS = 2**63 - 1
FLOATS = """a = Cast<to = 1>(j) b = Cast<to = 1>(m) before = Less(a, b)
            p = Cast<to = 1>(run) q = Cast<to = 1>(n) in_time = Less(p, q) again = And(in_time, before)"""
"""As TensorFlow's exporter writes it for sets of operators that compare only floats."""


def loop(
    condition: str = "again = Less(j, m)",
    *,
    start: str = "Identity(zero)",
    change: str = "Add(c, step)",
    step: int = 1,
    first: str = "go = Less(i0, n32)",
    most: str = f"Constant<value = int64 {{{ENDLESS}}}>()",
    limit: str = "m2 = Identity(m)",
    length: int | str = "n",
) -> bytes:
    """A recurrent layer with a counter, weights and a limit as states."""
    text = f"""g (float[{length}, 3] x, float[2, 3] h, float[3, 3] w, bool flag)
        => (int32 end, float[2, 3] last, float[3, 3] same, float[a, 2, 3] ys) {{
        sizes = Shape(x)
        first = Constant<value = int64 {{0}}>()
        n = Gather(sizes, first)
        n32 = Cast<to = 6>(n)
        zero = Constant<value = int32 {{0}}>()
        one = Constant<value = int32 {{1}}>()
        i0 = {start}
        {first}
        most = {most}
        end, last, same, unused, ys = Loop(most, go, i0, h, w, n32) <
            body = each (int64 run, bool goes, int32 c, float[2, 3] s, float[3, 3] v, int32 m)
                => (bool again, int32 j, float[2, 3] t, float[3, 3] v2, int32 m2, float[2, 3] y) {{
                step = Constant<value = int32 {{{step}}}>()
                j = {change}
                e = Gather<axis = 0>(x, c)
                product = MatMul(s, v)
                sums = Add(product, e)
                t = Tanh(sums)
                y = Neg(t)
                v2 = Identity(v)
                {limit}
                {condition}
            }}
        >
    }}"""
    return onnx.parser.parse_model(HEAD + text).SerializeToString()


COUNTED = {
    "less": loop(),
    "as of TensorFlow": loop(FLOATS, most="Identity(n)", first="go = Less(i0, n32)"),
    "no more than so many": loop(most="Constant<value = int64 {4}>()"),
    "up to one less": loop("top = Sub(m, one) again = LessOrEqual(j, top)"),
    "greater": loop("again = Greater(m, j)"),
    "two at a time": loop(step=2),
    "from one on": loop(start="Identity(one)"),
    "the number of the iteration alone": loop(
        "after = Cast<to = 6>(run) next = Add(after, one) again = Less(next, m)"
    ),
    "backwards": loop(
        "again = GreaterOrEqual(j, zero)", start="Sub(n32, one)", change="Sub(c, step)",
        first="go = Less(zero, n32)",
    ),
    "data decides whether it begins": loop(first="some = Less(i0, n32) go = And(some, flag)"),
    "a number of iterations": loop("again = Identity(goes)", most="Identity(n)"),
}  # fmt: skip
"""Loops whose number of iterations follows from sizes."""

LEFT = {
    "a counter that doubles": loop(change="Add(c, c)", start="Identity(one)"),
    "data decides each time": loop(
        "top = ReduceMax<keepdims = 0>(t) half = Constant<value = float {0.5}>() again = Less(top, half)",
        most="Identity(n)",
    ),
    "a limit that moves": loop(limit="m2 = Sub(m, c)"),
    "a counter that the condition does not know": loop(
        "half = Div(m, step) again = Less(j, half)", step=1, limit="m2 = Identity(m)"
    ),
}
"""Others, each of which decides about the next iteration."""


def feeds_for(length: int, flag: bool = True) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(length)
    arrays = {
        name: rng.normal(size=shape) for name, shape in (("x", (length, 3)), ("h", (2, 3)), ("w", (3, 3)))
    }
    return {**{name: array.astype(np.float32) for name, array in arrays.items()}, "flag": np.array(flag)}


def loop_in(model: Model) -> Layer:
    (found,) = [layer for layer in model.layers if layer.op_type == "Loop"]
    return found


def check_answers(source: bytes, model: Model) -> None:
    for length, flag in ((5, True), (1, True), (2, True), (8, True), (13, False), (0, True)):
        feeds = feeds_for(length, flag)
        expected = reference(source, feeds)
        for name, array in interpret(model, feeds).items():
            np.testing.assert_allclose(
                array, expected[name], rtol=1e-5, atol=1e-5, err_msg=f"{name} {length}"
            )


@pytest.mark.parametrize("kind", COUNTED)
def test_what_a_counter_ends_has_a_number_of_iterations(kind: str) -> None:
    model = ModelLoader.load(COUNTED[kind])
    (body,) = loop_in(model).subgraphs
    assert never_ends_early(body)
    # Its only state is the layer's own.
    assert len(body.inputs) == 3
    check_answers(COUNTED[kind], model)


@pytest.mark.parametrize("kind", LEFT)
def test_other_loops_decide_at_each_turn(kind: str) -> None:
    model = ModelLoader.load(LEFT[kind])
    (body,) = loop_in(model).subgraphs
    assert not never_ends_early(body)
    check_answers(LEFT[kind], model)


def test_a_condition_before_the_loop_that_its_own_implies_is_left_out() -> None:
    for kind, source in COUNTED.items():
        condition = loop_in(ModelLoader.load(source)).inputs[1]
        assert bool(condition) == (kind == "data decides whether it begins"), kind


@pytest.mark.spread("kind")
@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("kind", ["as of TensorFlow", "two at a time", "data decides whether it begins"])
def test_one_plan_serves_all_numbers_of_iterations(kind: str, channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(ModelLoader.load(COUNTED[kind]), channel)
    for length in (12, 1):
        answers(worker, feeds_for(length))
    planned = count_plans(worker)
    for length in (9, 40, 5, 3, 64):
        feeds = feeds_for(length)
        expected = reference(COUNTED[kind], feeds)
        for output, array in zip(worker.model.outputs, answers(worker, feeds), strict=True):
            np.testing.assert_allclose(array, expected[output.name], rtol=1e-4, atol=1e-4)
    assert not planned


@pytest.mark.parametrize("channel", CHANNELS)
def test_any_number_of_iterations_answers_as_a_plan_of_its_own_does(
    channel: str, make_worker: MakeWorker
) -> None:
    model = ModelLoader.load(COUNTED["as of TensorFlow"])
    apart = plan_statically(make_worker(model, channel))
    assert check_sizes(make_worker(model, channel), apart, feeds_for(10), 12, seed=3) > 10


def scripted(joined: str = "axis = 0, new_axis = 1", added: str = "t", more: str = "") -> bytes:
    """A loop that adds a tensor to a list in each iteration, as PyTorch exports those of scripts."""
    text = f"""g (float[n, 3] x, float[2, 3] h, float[3, 3] w, bool flag)
        => (float[2, 3] last, float[a, b, c] ys) {{
        yes = Constant<value = bool {{1}}>()
        sizes = Shape(x)
        first = Constant<value = int64 {{0}}>()
        n = Gather(sizes, first)
        none = SequenceEmpty()
        last, all = Loop(n, yes, h, none) <
            body = each (int64 run, bool goes, float[2, 3] s, seq(float[2, 3]) list)
                => (bool again, float[2, 3] t, seq(float[2, 3]) list2) {{
                again = Identity(yes)
                axis = Constant<value = int64[1] {{0}}>()
                e = Gather<axis = 0>(x, run)
                product = MatMul(s, w)
                sums = Add(product, e)
                t = Tanh(sums)
                piece = Unsqueeze(t, axis)
                {more}
                list2 = SequenceInsert(list, {added})
            }}
        >
        ys = ConcatFromSequence<{joined}>(all)
    }}"""
    return onnx.parser.parse_model(HEAD + text).SerializeToString()


STACKED = {
    "stacked": scripted(),
    "stacked along another axis": scripted("axis = 2, new_axis = 1"),
    "joined": scripted("axis = 0", "piece"),
}


@pytest.mark.spread("kind")
@pytest.mark.parametrize("kind", STACKED)
@pytest.mark.parametrize("channel", CHANNELS)
def test_lists_of_any_length_have_one_plan(kind: str, channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(ModelLoader.load(STACKED[kind]), channel)
    for length in (12, 1):
        answers(worker, feeds_for(length))
    planned = count_plans(worker)
    for length in (9, 40, 5):
        feeds = feeds_for(length)
        expected = reference(STACKED[kind], feeds)
        for output, array in zip(worker.model.outputs, answers(worker, feeds), strict=True):
            np.testing.assert_allclose(array, expected[output.name], rtol=1e-4, atol=1e-4)
    assert not planned


KEPT = {
    "its length is read": scripted(
        more="length = SequenceLength(list) f = Cast<to = 1>(length) weighed = Mul(t, f)", added="weighed"
    ),
    "tensors that grow": scripted(
        "axis = 0",
        "wide",
        """one = Constant<value = int64[1] {1}>() three = Constant<value = int64[2] {2, 3}>()
        rows = Add(run, one) shape = Concat<axis = 0>(rows, three) wide = Expand(t, shape)""",
    ),
}


@pytest.mark.parametrize("kind", KEPT)
def test_other_lists_stay(kind: str) -> None:
    """Their tensors may have several shapes, or more of them is read."""
    source = KEPT[kind]
    model = ModelLoader.load(source)
    (body,) = loop_in(model).subgraphs
    assert len(body.inputs) == 4
    for length in (1, 5, 9):
        feeds = feeds_for(length)
        expected = reference(source, feeds)
        for name, array in interpret(model, feeds).items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-5)


def test_an_empty_list_cannot_be_stacked() -> None:
    with pytest.raises(ShapeError, match="empty sequence"):
        interpret(ModelLoader.load(scripted()), feeds_for(0))


def test_a_counter_takes_no_step_of_an_iteration(make_worker: MakeWorker) -> None:
    worker = make_worker(ModelLoader.load(loop(FLOATS)), "cpu")
    answers(worker, feeds_for(12))
    sized = worker._session.symbolic_plans.ready
    steps = [step for plan in sized for segment in plan.lowered.segments for step in segment.plan.steps]
    bodies = [step.kernel.body for step in steps if isinstance(step.kernel, RepeatedSteps)]
    assert bodies
    assert all(step.inputs for body in bodies for step in body)


def test_the_condition_may_be_a_result_itself() -> None:
    text = """g (int64 n, bool go) => (int64 end, bool[a] conditions) {
        most = Constant<value = int64 {100}>()
        zero = Constant<value = int64 {0}>()
        end, conditions = Loop(most, go, zero) <
            body = each (int64 run, bool goes, int64 c) => (bool again, int64 j, bool goes) {
                one = Constant<value = int64 {1}>()
                j = Add(c, one)
                again = Less(j, n)
            }
        >
    }"""
    source = onnx.parser.parse_model(HEAD + text).SerializeToString()
    model = ModelLoader.load(source)
    assert never_ends_early(loop_in(model).subgraphs[0])
    for go in (True, False):
        inputs = {"n": np.array(3, np.int64), "go": np.array(go)}
        expected = reference(source, inputs)
        for name, array in interpret(model, inputs).items():
            np.testing.assert_array_equal(array, expected[name])
