"""A file or an input may ask for any number of steps: planning ends, in an error that says why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import EngineError, Model, OutOfMemoryError, ShapeError
from engine.compiler.builders import MOST_MADE
from engine.compiler.interpreter import interpret
from engine.compiler.memory_planner import assign_offsets
from engine.compiler.trace import Tracer
from tests.engine.conftest import MakeWorker
from tests.engine.test_random_control_flow import load
from tests.graphs import model, node

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(kind: str, steps: int | str, **attributes: Any) -> Model:
    """A layer of two units over so many steps of one number."""
    rows = GATES[kind] * 2
    constants = {"w": np.ones((1, rows, 1), np.float32), "r": np.ones((1, rows, 2), np.float32)}
    layer = node(kind, ["x", "w", "r"], ["y"], hidden_size=2, **attributes)
    return model([layer], {"x": ("float32", [steps, 1, 1])}, {"y": ("float32", None)}, constants)


def looping(runs: int) -> Model:
    """A loop without a condition that ends it."""
    return load(f"""g (float[2] x) => (float[2] y) {{
        most = Constant<value = int64 {{{runs}}}>()
        yes = Constant<value = bool {{1}}>()
        y = Loop(most, yes, x) <
            body = step (int64 i, bool go, float[2] s) => (bool again, float[2] t) {{
                again = Identity(go)
                t = Sin(s)
            }}
        >
    }}""")


def scanning(steps: int | str) -> Model:
    """A running sum."""
    return load(f"""g (float[{steps}, 1] x, float[1] z) => (float[1] last, float[a, b] sums) {{
        last, sums = Scan<num_scan_inputs = 1,
            body = add (float[1] s, float[1] e) => (float[1] t, float[1] u) {{
                t = Add(s, e)
                u = Identity(t)
            }}
        >(z, x)
    }}""")


ENDLESS = {
    **{kind: recurrent(kind, 2**48, clip=3.0) for kind in GATES},
    "loop": looping(2**63 - 1),
    "scan": scanning(2**48),
}
"""One step stands for all, however many there are; loops and scans count to less than that."""


def traced(made: Model) -> None:
    """Plan it for the shapes that it declares."""
    Tracer(made).trace({item.name: item.shape.to_static() for item in made.inputs if item.shape})


@pytest.mark.parametrize("kind", ENDLESS)
def test_workers_are_refused_at_once(kind: str, channel: str, make_worker: MakeWorker) -> None:
    """The error names the layer, and its length or what it would take: that is known after one step."""
    if kind in GATES:
        with pytest.raises(OutOfMemoryError, match=r"'y_layer #1' .* would take . PiB"):
            make_worker(ENDLESS[kind], channel)
        return
    length = {"loop": "9,223,372,036,854,775,807", "scan": "281,474,976,710,65[56]"}[kind]
    with pytest.raises(ShapeError, match=rf"layer '.*' \(.*\).*{length} .*; give .* trip count"):
        make_worker(ENDLESS[kind], channel)


def growing(runs: int, constant: int) -> Model:
    """A loop that adds so many zeros, which the host knows, in each run; its condition is computed."""
    return load(f"""g (float[2] x) => (float[a] y) {{
        most = Constant<value = int64 {{{runs}}}>()
        yes = Constant<value = bool {{1}}>()
        y = Loop(most, yes, x) <
            body = step (int64 i, bool go, float[n] s) => (bool again, float[m] t) {{
                limit = Constant<value = int64 {{{runs}}}>()
                square = Mul(i, i)
                again = LessOrEqual(square, limit)
                size = Constant<value = int64[1] {{{constant}}}>()
                zeros = ConstantOfShape(size)
                zero = ReduceSum<keepdims = 0>(zeros)
                t = Add(s, zero)
            }}
        >
    }}""")


def test_a_loop_whose_end_is_computed_ends_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.compiler.walk.MOST_MADE", 2000)
    with pytest.raises(ShapeError, match=r"the plan needs more than .* trip count, or shorter sequences"):
        traced(growing(2**62, 8))


def test_planning_runs_of_a_loop_ends_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the host computes for each run may be any amount of work."""
    monkeypatch.setattr("engine.compiler.walk.MOST_SECONDS", 0.0)
    with pytest.raises(ShapeError, match=r"\(Loop\): planning its runs takes more than 0 seconds; give"):
        traced(growing(100, 8))


def test_what_the_host_works_out_for_runs_of_a_loop_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit kernels compute what the host would, with the same result."""
    folded: list[str] = []
    computed: list[str] = []
    for found, most in ((folded, 1 << 28), (computed, 1000)):
        monkeypatch.setattr("engine.compiler.walk.MOST_KNOWN", most)
        made = growing(3, 100)
        trace = Tracer(made).trace({"x": (2,)})
        found += [c.op_type for c in trace.computes]
        assert interpret(made, {"x": np.ones(2, np.float32)})["y"].tolist() == [1, 1]
    assert "ConstantOfShape" not in folded
    assert "ConstantOfShape" in computed


@pytest.mark.parametrize("kind", GATES)
def test_one_kernel_for_all_steps_meets_the_limit_of_memory(kind: str, make_worker: MakeWorker) -> None:
    """On the CPU a plain layer is one kernel however long its sequences are."""
    attributes = {"linear_before_reset": 1} if kind == "GRU" else {}
    with pytest.raises(OutOfMemoryError):
        make_worker(recurrent(kind, 2**48, **attributes), "cpu")


def test_a_worker_of_open_length_takes_shorter_sequences_after_one_that_is_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.compiler.walk.MOST_MADE", 2000)
    made = scanning("n")
    zero = np.zeros(1, np.float32)
    with pytest.raises(EngineError, match="shorter sequences"):
        interpret(made, {"x": np.ones((900, 1), np.float32), "z": zero})
    found = interpret(made, {"x": np.ones((50, 1), np.float32), "z": zero})
    assert found["last"] == 50
    assert found["sums"].shape == (50, 1)


def test_memory_of_a_long_plan_is_placed_in_linear_time() -> None:
    """Each buffer was compared with all that were placed before: 4,000 steps of a layer took 25 s."""
    count = MOST_MADE // 2
    lifetimes = {f"b{i}": (i, i + 2) for i in range(count)}
    offsets, total = assign_offsets(dict.fromkeys(lifetimes, 64), lifetimes, 64)
    assert total == 3 * 64
    assert len(offsets) == count
