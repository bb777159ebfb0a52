"""Loops and scans of which a plan holds one run, against plans that hold each, and against NumPy's answer."""

from __future__ import annotations

import numpy as np
import pytest

from engine import CommandBuffer, Model
from engine.compiler.interpreter import interpret
from tests.engine.conftest import CHANNELS, MakeWorker, answers
from tests.engine.runtime.plans.test_symbolic_plans import count_plans
from tests.engine.test_random_control_flow import load

Feeds = dict[str, np.ndarray]


def scan(steps: int | str = 11) -> Model:
    """Two tensors, one of them from its end on; results along either axis, one from its end on."""
    return load(f"""g (float[{steps}, 3] x, float[3] z)
        => (float[3] last, float[a, b] sums, float[c, d] backs) {{
        last, sums, backs = Scan<num_scan_inputs = 2, scan_input_directions = [0, 1],
                                 scan_output_axes = [0, 1], scan_output_directions = [0, 1],
            body = add (float[3] s, float[3] e, float[3] f) => (float[3] t, float[3] u, float[3] v) {{
                p = Mul(s, f)
                t = Tanh(p)
                u = Add(s, e)
                v = Sub(t, f)
            }}
        >(z, x, x)
    }}""")


def mapped(steps: int = 9) -> Model:
    """A scan without a state."""
    return load(f"""g (float[{steps}, 3] x, float[3] z) => (float[a, b, c] y) {{
        y = Scan<num_scan_inputs = 1, body = each (float[3] e) => (float[3, 1] f) {{
                axis = Constant<value = int64[1] {{1}}>()
                d = Mul(e, z)
                f = Unsqueeze(d, axis)
            }}
        >(x)
    }}""")


def loop(steps: int = 10, state: str = "s2 = Identity(r)", stacked: str = "y = Neg(h)") -> Model:
    """States that change places, and a result of each run, whose number counts."""
    return load(f"""g (float[{steps}, 3] x, float[2, 3] z)
        => (float[2, 3] a, float[2, 3] b, float[c, d, e] ys) {{
        most = Constant<value = int64 {{{steps}}}>()
        yes = Constant<value = bool {{1}}>()
        a, b, ys = Loop(most, yes, z, z) <
            body = step (int64 i, bool go, float[2, 3] s, float[2, 3] r)
                => (bool again, float[2, 3] s2, float[2, 3] r2, float[2, 3] y) {{
                again = Identity(go)
                e = Gather<axis = 0>(x, i)
                f = Cast<to = 1>(i)
                g = Mul(f, e)
                h = Add(s, g)
                {state}
                r2 = Sin(h)
                {stacked}
            }}
        >
    }}""")


def mixed(steps: int, first: str, wanted: str, change: str = "Add(c, three)") -> Model:
    """A counter, flags and floats as states and as results."""
    return load(f"""g (float[{steps}, 3] x, float[2, 3] z)
        => ({", ".join(TYPES[name] + " " + name for name in wanted.split(", "))}) {{
        most = Constant<value = int64 {{{steps}}}>()
        yes = Constant<value = bool {{1}}>()
        zero = Constant<value = float {{0}}>()
        {first}
        off = Less(z, zero)
        n, flag, last, ys, ns, bs = Loop(most, yes, n0, off, z) <
            body = step (int64 i, bool go, int64 c, bool[2, 3] f, float[2, 3] s)
                => (bool again, int64 c2, bool[2, 3] f2, float[2, 3] s2, float[2, 3] y, int64 m,
                    bool[2, 3] b) {{
                again = Identity(go)
                e = Gather<axis = 0>(x, i)
                three = Constant<value = int64 {{3}}>()
                c2 = {change}
                d = Cast<to = 1>(c)
                q = Div(e, d)
                t = Add(s, q)
                s2 = Sin(t)
                y = Where(f, s, s2)
                big = Less(s2, q)
                f2 = Xor(f, big)
                m = Sub(c2, c)
                b = Not(f2)
            }}
        >
    }}""")


TYPES = {
    "n": "int64", "flag": "bool[2, 3]", "last": "float[2, 3]", "ys": "float[a, 2, 3]", "ns": "int64[b]",
    "bs": "bool[c, 2, 3]",
}  # fmt: skip
COMPUTED = """total = ReduceSum<keepdims = 0>(z)
        large = Exp(total)
        n0 = Cast<to = 7>(large)
"""
"""A first number that is not known."""

KNOWN = "n0 = Constant<value = int64 {7}>()"

ALL = "n, flag, last, ys, ns, bs"

REPEATED = {
    "scan": scan(),
    "scan without a state": mapped(),
    "loop": loop(),
    "a state that stays": loop(9, state="s2 = Identity(s)"),
    "a state from outside of the loop": loop(9, state="s2 = Identity(z)"),
    "two states from outside of the loop, which are one": loop(9, state="s2 = Identity(z) q = Identity(z)"),
    "a state that is a result": loop(9, state="s2 = Neg(h)", stacked="y = Identity(s)"),
    "results of another type": loop(9, stacked="y = Cast<to = 6>(h)"),
    "states of three types": mixed(13, COMPUTED, wanted=ALL),
    "integers alone are read": mixed(15, COMPUTED, wanted="n, ns"),
    "flags alone are read": mixed(9, COMPUTED, wanted="bs"),
    "floats alone are read": mixed(9, COMPUTED, wanted="ys"),
    "a counter that is known": mixed(9, KNOWN, wanted=ALL),
    "a number that is known": mixed(20, KNOWN, wanted=ALL, change="Sub(three, c)"),
}


def nested(rows: int | str = 9, steps: int | str = 10, state: str = "t = Sin(v)") -> Model:
    """A scan, and a loop that knows its number, in each run of a loop; states go in and out of both."""
    return load(
        f"""g (float[{rows}, {steps}, 3] x, float[3] z)
        => (float[3] last, float[3] other, float[a, b] sums, float[c, d, e] all) {{{{
        shape = Shape(x)
        zero = Constant<value = int64 {{{{0}}}}>()
        most = Gather(shape, zero)
        yes = Constant<value = bool {{{{1}}}}>()
        last, other, sums, all = Loop(most, yes, z, z) <
            body = outer (int64 i, bool go, float[3] s, float[3] r)
                => (bool again, float[3] t, float[3] r2, float[3] u, float[m, 3] inner) {{{{
                again = Identity(go)
                rows = Gather<axis = 0>(x, i)
                v, inner = Scan<num_scan_inputs = 1,
                    body = add (float[3] p, float[3] e) => (float[3] q, float[3] y) {{{{
                        w = Tanh(p)
                        q = Add(w, r)
                        y = Add(q, e)
                    }}}}
                >(s, rows)
                count = Constant<value = int64 {{{{11}}}}>()
                r2 = Loop(count, yes, r) <
                    body = turn (int64 j, bool go2, float[3] c) => (bool again2, float[3] d) {{{{
                        again2 = Identity(go2)
                        f = Cast<to = 1>(j)
                        g = Cast<to = 1>(i)
                        h = Add(f, g)
                        k = Add(c, h)
                        l = Add(k, s)
                        d = Cos(l)
                    }}}}
                >
                {state}
                first = Constant<value = int64[1] {{{{0}}}}>()
                u = ReduceSum<keepdims = 0>(inner, first)
            }}}}
        >
    }}}}""".replace("{{", "{").replace("}}", "}")
    )


def nested_by_numpy(feeds: Feeds, keeps: bool = False) -> list[np.ndarray]:
    """The outputs of `nested`; `keeps` where its state is what the inner scan yields."""
    s = r = feeds["z"]
    sums, everything = [], []
    for i, rows in enumerate(feeds["x"]):
        p, c, inner = s, r, []
        for e in rows:
            p = np.tanh(p) + r
            inner.append(p + e)
        for j in range(11):
            c = np.cos(c + np.float32(j + i) + s)
        s, r = p if keeps else np.sin(p), c
        everything.append(inner)
        sums.append(np.sum(inner, 0))
    return [s, r, np.array(sums), np.array(everything)]


KEEPS = "a state that an inner one becomes"
NESTED = {"odd numbers of runs": nested(9, 9), KEEPS: nested(10, 8, state="t = Identity(v)")}

UNROLLED = {
    "random numbers": loop(9, stacked="q = RandomNormalLike<seed = 1.0>(h) w = Sub(q, q) y = Add(h, w)"),
    "a state that is constant": loop(
        9, state="two = Constant<value = int64[2] {2, 3}>() s2 = ConstantOfShape(two)"
    ),
    "a number that is known": mixed(9, KNOWN, wanted=ALL, change="Sub(three, c)"),
}
"""What no run stands for: the plan has each."""


def feeds_for(made: Model, steps: int = 11, seed: int = 0) -> Feeds:
    """Numbers for a model, its symbolic size filled in."""
    rng = np.random.default_rng(seed)
    return {
        item.name: rng.normal(size=[n if isinstance(n, int) else steps for n in item.shape or ()]).astype(
            np.float32
        )
        for item in made.inputs
    }


@pytest.mark.spread
@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("kind", REPEATED)
def test_a_run_that_stands_for_all(
    kind: str, channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = REPEATED[kind]
    monkeypatch.setattr("engine.operators.loop_rolling.MOST_COUNTED", 16)
    repeating = make_worker(made, channel)
    monkeypatch.setattr("engine.operators.loop_rolling.REPEATED", 1 << 30)
    unrolled = make_worker(made, channel)
    assert 3 * repeating.plan_report().steps < unrolled.plan_report().steps
    for seed in range(2):
        feeds = feeds_for(made, seed=seed)
        found, expected = answers(repeating, feeds), interpret(made, feeds)
        for one, other, output in zip(found, answers(unrolled, feeds), made.outputs, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-6)
            np.testing.assert_allclose(one, expected[output.name], rtol=1e-4, atol=1e-4)


@pytest.mark.spread
@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("kind", NESTED)
def test_runs_inside_of_runs(
    kind: str, channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = NESTED[kind]
    worker = make_worker(made, channel)
    assert worker.plan_report().steps < 20
    monkeypatch.setattr("engine.operators.loop_rolling.REPEATED", 1 << 30)
    unrolled = make_worker(made, channel)
    for seed in range(2):
        feeds = feeds_for(made, seed=seed)
        found, expected = answers(worker, feeds), nested_by_numpy(feeds, kind == KEEPS)
        for one, other, third in zip(found, answers(unrolled, feeds), expected, strict=True):
            np.testing.assert_array_equal(one, other)
            np.testing.assert_allclose(one, third, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("channel", CHANNELS)
def test_runs_inside_of_runs_have_one_plan_for_all_lengths(channel: str, make_worker: MakeWorker) -> None:
    made = nested("n")
    worker = make_worker(made, channel)
    answers(worker, feeds_for(made, 12))
    planned = count_plans(worker)
    for rows in (9, 14):
        feeds = feeds_for(made, rows)
        for one, other in zip(answers(worker, feeds), nested_by_numpy(feeds), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    assert not planned


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_scan_over_an_open_axis_has_one_plan(channel: str, make_worker: MakeWorker) -> None:
    made = scan("n")
    worker = make_worker(made, channel)
    answers(worker, feeds_for(made, 20))
    planned = count_plans(worker)
    for steps in (9, 31, 8, 20):
        feeds = feeds_for(made, steps)
        expected = interpret(made, feeds)
        for one, output in zip(answers(worker, feeds), made.outputs, strict=True):
            np.testing.assert_allclose(one, expected[output.name], rtol=1e-4, atol=1e-4)
    assert not planned


@pytest.mark.spread("made")
@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("made", [loop(15), nested()], ids=["loop", "nested"])
def test_runs_may_be_cut_anywhere(made: Model, channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(made, channel)
    feeds = feeds_for(made)
    expected = answers(worker, feeds)
    rng = np.random.default_rng(1)
    schedule = worker.schedule_iterable(feeds)
    while not schedule.is_done:
        schedule.advance(float(rng.exponential(0.05)), force=True)
    for output, other in zip(made.outputs, expected, strict=True):
        np.testing.assert_array_equal(schedule.output(output.name).download_to_array(), other)


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_plan_does_not_grow_with_the_number_of_runs(channel: str, make_worker: MakeWorker) -> None:
    for made in (loop, scan, nested):
        few, many = (make_worker(made(n), channel).plan_report().steps for n in (10, 10_000))
        assert few == many


WIDE = "d = Cast<to = 11>(h) q = Mul(d, d) y = Cast<to = 1>(q)"
"""A result by way of float64."""


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_loop_with_a_step_for_the_cpu_runs_there(
    is_nested: bool, channel: str, make_worker: MakeWorker
) -> None:
    made = nested(9, 9, state=f"h = Sin(v) {WIDE} t = Identity(y)") if is_nested else loop(20, stacked=WIDE)
    worker = make_worker(made, channel, allow_fallback=True)
    assert worker.plan_report().steps < 16
    feeds = feeds_for(made)
    found = answers(worker, feeds)
    for one, other in zip(found, answers(make_worker(made, "cpu"), feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    if channel.startswith("gl_"):
        (fallback,) = {f.reason for f in worker.plan_report().fallbacks}
        assert "float64" in fallback


def test_many_runs_on_the_cpu(make_worker: MakeWorker) -> None:
    """More than are unrolled, on threads, sliced, and in a list of commands with others."""
    rng = np.random.default_rng(5)
    x = (0.01 * rng.normal(size=(100_000, 2))).astype(np.float32)
    made = load("""g (float[n, 2] x, float[2] z) => (float[2] last, float[a, b] sums) {
        last, sums = Scan<num_scan_inputs = 1,
            body = add (float[2] s, float[2] e) => (float[2] t, float[2] u) {
                t = Add(s, e)
                u = Neg(t)
            }
        >(z, x)
    }""")
    worker, other = make_worker(made, "cpu"), make_worker(loop(64), "cpu")
    zero, feeds = np.zeros(2, np.float32), feeds_for(other.model)
    expected = np.cumsum(x, 0, np.float32)
    wanted = answers(other, feeds)
    last, sums = answers(worker, {"x": x, "z": zero})
    np.testing.assert_array_equal(sums, -expected)
    np.testing.assert_array_equal(last, expected[-1])
    schedule = worker.schedule_iterable({"x": x, "z": zero})
    cuts = 0
    while not schedule.is_done:
        schedule.advance(0.02, force=True)
        cuts += 1
    assert cuts > 1
    np.testing.assert_array_equal(schedule.output("sums").download_to_array(), -expected)
    buffer = CommandBuffer()
    buffer.schedule_worker(worker, {"x": x[:30], "z": zero})
    buffer.schedule_worker(other, feeds)
    for _ in range(3):
        buffer.execute()
        np.testing.assert_array_equal(worker.peek_output("sums").download_to_array(), -expected[:30])
        for output, one in zip(other.model.outputs, wanted, strict=True):
            np.testing.assert_array_equal(other.peek_output(output.name).download_to_array(), one)
    assert buffer.replayed_count == 2


@pytest.mark.spread("kind")
@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("kind", UNROLLED)
def test_other_loops_have_each_run_in_the_plan(kind: str, channel: str, make_worker: MakeWorker) -> None:
    made = UNROLLED[kind]
    worker = make_worker(made, channel)
    assert worker.plan_report().steps > 20
    feeds = feeds_for(made)
    expected = interpret(made, feeds)
    for one, output in zip(answers(worker, feeds), made.outputs, strict=True):
        np.testing.assert_allclose(one, expected[output.name], rtol=1e-4, atol=1e-4)
