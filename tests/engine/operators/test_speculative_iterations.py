"""Loops that data ends: runs that are made before it is known whether they are due."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Model, Worker
from engine.operators.speculative_iterations import SpeculativeIterations
from tests.engine.conftest import CHANNELS, MakeWorker, answers
from tests.engine.test_random_control_flow import load

Feeds = dict[str, np.ndarray]


def model(carried: str = "c2 = Add(c, one)") -> Model:
    """States of three types, results of each, and a condition that is computed from a state."""
    return load(f"""g (float[3] x, float limit, int64 most)
        => (float[3] y, int64 n, bool[3] flags, float[a, 3] ys, int64[b] ns, bool[c, 3] bs) {{
        yes = Constant<value = bool {{1}}>()
        none = Constant<value = int64 {{0}}>()
        zero = Constant<value = float {{0}}>()
        off = Less(x, zero)
        y, n, flags, ys, ns, bs = Loop(most, yes, x, none, off) <
            body = step (int64 i, bool go, float[3] s, int64 c, bool[3] f)
                => (bool again, float[3] t, int64 c2, bool[3] g, float[3] k, int64 m, bool[3] h) {{
                t = Add(s, x)
                one = Constant<value = int64 {{1}}>()
                {carried}
                w = Less(t, s)
                g = Xor(f, w)
                k = Neg(t)
                m = Add(c, i)
                h = Not(g)
                top = ReduceMax<keepdims = 0>(t)
                again = Less(top, limit)
            }}
        >
    }}""")


def feeds_for(runs: int, most: int = 100_000) -> Feeds:
    """As many runs as that, unless there are `most` before; sums of such numbers are exact."""
    x = np.array([1.0, -0.5, 0.25], np.float32)
    return {"x": x, "limit": np.array(runs + 0.5, np.float32), "most": np.array(most)}


def by_numpy(feeds: Feeds) -> list[np.ndarray]:
    x = feeds["x"]
    s, f, kept = x, x < 0, []
    for i in range(int(feeds["most"])):
        t = s + x
        f = f ^ (t < s)
        kept.append((-t, np.int64(2 * i), ~f))
        s = t
        if not s.max() < feeds["limit"]:
            break
    stacks = [np.array(parts) for parts in zip(*kept, strict=True)]
    if not kept:
        stacks = [np.zeros((0, 3), np.float32), np.zeros(0, np.int64), np.zeros((0, 3), bool)]
    return [s, np.array(len(kept)), f, *stacks]


def check(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_array_equal(one, other)


def plan_sizes(worker: Worker) -> list[int]:
    """The steps of each plan of the latest run."""
    assert worker._latest is not None
    plans = worker._latest.recorded_plans
    return [sum(len(s.plan.steps) for s in plan.lowered.segments) for plan in plans]


@pytest.mark.parametrize("channel", CHANNELS)
def test_runs_that_data_ends(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(model(), channel)
    for runs, most in ((1, 50), (2, 50), (9, 50), (10, 50), (40, 50), (90, 50), (3, 0), (3, 1), (30, 12)):
        feeds = feeds_for(runs, most)
        check(answers(worker, feeds), by_numpy(feeds))


@pytest.mark.parametrize("channel", CHANNELS)
def test_plans_do_not_grow_with_the_number_of_runs(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(model(), channel)
    sizes: dict[int, list[int]] = {}
    for runs in (20, 700):
        feeds = feeds_for(runs)
        check(answers(worker, feeds), by_numpy(feeds))
        sizes[runs] = plan_sizes(worker)
        made, asked = 9, 1
        while made < runs:
            made, asked = made + max(8, made // 4), asked + 1
        assert len(worker.plan_report().waits) == asked
    # The last plan joins what all have stacked.
    assert max(sizes[700][:-1]) == max(sizes[20][:-1])
    assert sizes[700][-1] < 6 * len(sizes[700])


@pytest.mark.parametrize("channel", CHANNELS)
def test_the_same_bits_as_runs_that_are_made_one_by_one(
    channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = model()
    rng = np.random.default_rng(0)
    x = np.abs(rng.normal(size=3)).astype(np.float32)
    feeds = {"x": x, "limit": np.array(20 * x.max(), np.float32), "most": np.array(100)}
    found = answers(make_worker(made, channel), feeds)
    monkeypatch.setattr(SpeculativeIterations, "open", lambda *_: None)
    unrolled = make_worker(made, channel)
    check(found, answers(unrolled, feeds))
    assert max(plan_sizes(unrolled)) > 30


@pytest.mark.parametrize("carried", ["two = Concat<axis = 0>(c, one) c2 = ReduceSum<keepdims = 0>(two)"])
def test_a_body_that_fails_is_refused_as_ever(carried: str, make_worker: MakeWorker) -> None:
    with pytest.raises(Exception, match="Concat"):
        answers(make_worker(model(carried), "cpu"), feeds_for(3))


GROWS = """g (float[1] x, float limit) => (float[a] y, int64 n) {
    yes = Constant<value = bool {1}>()
    most = Constant<value = int64 {100}>()
    none = Constant<value = int64 {0}>()
    y, n = Loop(most, yes, x, none) <
        body = step (int64 i, bool go, float[k] s, int64 c) => (bool again, float[l] t, int64 d) {
            t = Concat<axis = 0>(s, x)
            one = Constant<value = int64 {1}>()
            d = Add(c, one)
            sum = ReduceSum<keepdims = 0>(t)
            again = Less(sum, limit)
        }
    >
}"""


@pytest.mark.parametrize("channel", CHANNELS)
def test_states_that_grow_are_made_one_by_one(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(load(GROWS), channel)
    y, n = answers(worker, {"x": np.ones(1, np.float32), "limit": np.array(12, np.float32)})
    np.testing.assert_array_equal(y, np.ones(12))
    assert n == 11
