"""Plans: what falls back and moves, what plans share, and that memory goes when a plan goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import ClassVar

import numpy as np
import pytest

from engine import BackendType, Model, Worker
from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.execution.memory import CPUBuffer
from engine.compiler.lower import Planner
from engine.compiler.plan import Compute, Tuner
from engine.kernels.value import leaves
from engine.runtime.outputs import data_at
from engine.runtime.plans.session import Session
from engine.runtime.run import Run
from tests.graphs import model, node

RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


class Picky(CPUBackend):
    """A backend that lacks some operators, and knows every buffer that it made."""

    shares: ClassVar[bool] = False

    def __init__(self, lacks: Iterable[str] = ()) -> None:
        super().__init__()
        self.lacks = set(lacks)
        self.made: list[CPUBuffer] = []

    def refusal(self, compute: Compute) -> str | None:
        missing = self.lacks.intersection(compute.op_type.split("+"))
        return f"no {', '.join(missing)} here" if missing else None

    def create(self, elements: int, dtype: np.dtype, data: np.ndarray | None = None) -> CPUBuffer:
        self.made.append(super().create(elements, dtype, data))
        return self.made[-1]

    @property
    def alive(self) -> int:
        return sum(buffer._array is not None for buffer in self.made)


def run(session: Session, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One schedule, waited for."""
    shapes = {name: array.shape for name, array in feeds.items()}
    going = Run(session, session.recorded_plan(shapes, {}), dict(feeds))
    assert going.advance(wait=True)
    outputs = {}
    for output in session.model.outputs:
        (value,) = leaves(going.recorded.lowered.trace.values[output.name])
        outputs[output.name] = data_at(going.locate(value)).download()
    going.let_go()
    return outputs


def branching() -> Model:
    """Two products with the same weights, and tensors that are read again later."""
    return model(
        [
            node("MatMul", ["x", "w"], ["p"]),
            node("Softmax", ["p"], ["a"]),
            node("Transpose", ["a"], ["b"]),
            node("MatMul", ["b", "x"], ["c"]),
            node("MatMul", ["a", "w"], ["d"]),
            node("Concat", ["c", "d"], ["y"], axis=0),
        ],
        {"x": ("float32", ["n", 4])},
        {"y": ("float32", None), "a": ("float32", None)},
        {"w": normal(4, 4)},
    )


def expected(made: Model, x: np.ndarray) -> dict[str, np.ndarray]:
    e = np.exp(x @ made.constants["w"])
    a = e / e.sum(axis=1, keepdims=True)
    return {"y": np.concatenate([a.T @ x, a @ made.constants["w"]]), "a": a}


@pytest.mark.parametrize(
    "lacks", [(), ("Softmax",), ("Transpose",), ("MatMul",), ("Transpose", "Concat"), ("MatMul", "Softmax")]
)
def test_what_a_backend_lacks_runs_beside_it(lacks: tuple[str, ...]) -> None:
    made = branching()
    native, cpu = Picky(lacks), CPUBackend()
    session = Session(made, native, cpu, allow_fallback=True)
    for rows in (3, 5, 1, 3):
        x = normal(rows, 4)
        result = run(session, {"x": x})
        for name, array in expected(made, x).items():
            np.testing.assert_allclose(result[name], array, rtol=1e-5, atol=1e-6)
    lowered = next(iter(session.cache.plans.values())).lowered
    assert {f.op_type for f in lowered.fallbacks} == set(lacks)
    assert all(f.reason.startswith("no ") for f in lowered.fallbacks)
    assert {s.place for s in lowered.segments} == ({"native", "cpu"} if lacks else {"native"})
    for one, other in zip(lowered.segments, lowered.segments[1:], strict=False):
        assert one.place != other.place
    session.release()
    assert native.alive == 0


def test_a_fallback_counts_the_bytes_that_it_moves() -> None:
    planner = Planner(branching(), Picky(("Transpose",)), CPUBackend())
    (fallback,) = planner.lower({"x": (6, 4)}).fallbacks
    assert (fallback.layer, fallback.op_type) == ("b_layer", "Transpose")
    assert (fallback.bytes_down, fallback.bytes_up) == (6 * 4 * 4, 6 * 4 * 4)


def test_segments_export_what_later_ones_read_and_nothing_else() -> None:
    segments = Planner(branching(), Picky(("Transpose",)), CPUBackend()).lower({"x": (6, 4)}).segments
    assert [s.place for s in segments] == ["native", "cpu", "native"]
    first, second, third = segments
    assert first.imports == ("x",)
    assert first.exports == second.imports
    assert set(second.exports) < set(third.imports)
    assert "x" in third.imports
    assert all(plan.buffers[name].role == "temporary" for plan in (third.plan,) for name in plan.lifetimes())


def test_buffers_have_the_size_of_their_tensors() -> None:
    for segment in Planner(branching(), Picky(), None).lower({"x": (6, 4)}).segments:
        for step in segment.plan.steps:
            if step.is_generic:
                assert segment.plan.buffers[step.output].elements == prod(step.space)
            for name in (*step.inputs, step.output):
                assert name in segment.plan.buffers


class Packing(Picky):
    """Tunes every product whose right side is known, by a copy of it in another order."""

    packings = 0

    def tune(self, compute: Compute, tuner: Tuner) -> bool:
        if compute.hint is None or compute.hint.kind != "matmul" or compute.hint.operands[1].known is None:
            return False
        weights = compute.hint.operands[1].known

        def pack() -> np.ndarray:
            self.packings += 1
            return np.ascontiguousarray(weights.T)

        tuner.constant(f"{compute.hint.operands[1].name} transposed", pack)
        return False


def test_packed_weights_are_made_once_for_all_plans_and_layers() -> None:
    native = Packing()
    session = Session(branching(), native, None, allow_fallback=False)
    for rows in (2, 3, 4, 2):
        run(session, {"x": normal(rows, 4)})
    assert native.packings == 1
    assert set(session.planner.packed) == {"w transposed"}
    session.release()
    assert native.alive == 0


def test_packed_weights_lie_in_their_buffers_alone() -> None:
    """Once recorded, neither the planner nor a plan holds what buffers have; it can be made again."""
    native = Packing()
    session = Session(branching(), native, None, allow_fallback=False)
    run(session, {"x": normal(2, 4)})
    (packed,) = session.planner.packed.values()
    assert packed._array is None
    for recorded in session.cache.plans.values():
        assert not any(s.plan.constants or s.plan.packed for s in recorded.lowered.segments)
    np.testing.assert_array_equal(packed.elements(), session.model.constants["w"].T)
    assert (packed.size, packed.dtype, native.packings) == (16, np.float32, 2)
    session.release()


def test_what_is_packed_for_one_plan_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements that only a plan knows are packed for it alone, and do not pile up."""
    made = model(
        [
            node("Shape", ["x"], ["s"]),
            node("Cast", ["s"], ["f"], to=1),
            node("Unsqueeze", ["f", "one"], ["column"]),
            node("MatMul", ["x", "column"], ["y"]),
        ],
        {"x": ("float32", ["n", 2])},
        {"y": ("float32", None)},
        {"one": np.array([1])},
    )
    monkeypatch.setattr("engine.runtime.plans.plan_cache.KEPT_PLANS", 2)
    monkeypatch.setattr("engine.runtime.plans.plan_cache.KEPT_BYTES", 0)
    # A symbolic plan knows no elements, so it packs none.
    monkeypatch.setattr(Packing, "plans_for_all_sizes", False)
    native = Packing()
    session = Session(made, native, None, allow_fallback=False)
    alive = []
    for rows in (1, 2, 3, 4, 5, 1):
        x = normal(rows, 2)
        result = run(session, {"x": x})["y"]
        np.testing.assert_allclose(result, x @ np.array([[rows], [2]], np.float32), rtol=1e-5, atol=1e-5)
        alive.append(native.alive)
    assert native.packings == 6
    assert session.planner.packed == {}
    assert alive[1:] == alive[1:2] * 5
    session.release()
    assert native.alive == 0


def test_plans_that_were_dropped_and_made_again_answer_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.plans.plan_cache.KEPT_PLANS", 2)
    monkeypatch.setattr("engine.runtime.plans.plan_cache.KEPT_BYTES", 0)
    made = branching()
    native = Picky(("Transpose",))
    session = Session(made, native, CPUBackend(), allow_fallback=True)
    inputs = {rows: normal(rows, 4) for rows in (1, 2, 3, 4)}
    first = {rows: run(session, {"x": x}) for rows, x in inputs.items()}
    assert len(session.cache.plans) == 2
    alive = native.alive
    for rows, x in inputs.items():
        again = run(session, {"x": x})
        for name, array in first[rows].items():
            np.testing.assert_array_equal(again[name], array)
    assert native.alive == alive
    session.release()
    assert native.alive == 0


def test_a_constant_has_one_buffer_for_all_plans() -> None:
    native = Picky()
    session = Session(branching(), native, None, allow_fallback=False)
    for rows in (2, 3, 4):
        run(session, {"x": normal(rows, 4)})
    # One input and two outputs a plan; the rest are constants, but those that kernels read where they lie.
    assert 0 < len(session.recorder.constants) <= 2
    assert 0 <= len(native.made) - 3 * 3 <= len(session.recorder.constants)
    session.release()


def test_continuations_are_kept_by_what_they_were_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.plans.plan_cache.KEPT_PLANS", 2)
    monkeypatch.setattr("engine.runtime.plans.plan_cache.KEPT_BYTES", 0)
    made = model(
        [
            node("ReduceMax", ["x"], ["top"], keepdims=1),
            node("Cast", ["top"], ["count"], to=7),
            node("Expand", ["x", "count"], ["wide"]),
            node("Neg", ["wide"], ["y"]),
        ],
        {"x": ("float32", [1])},
        {"y": ("float32", None)},
    )
    native = Picky()
    session = Session(made, native, None, allow_fallback=False)
    alive = []
    for count in (1, 2, 3, 4, 3, 2):
        assert run(session, {"x": np.array([count], np.float32)})["y"].tolist() == [-count] * count
        alive.append(native.alive)
    (recorded,) = session.cache.plans.values()
    assert len(recorded.continuations) == 2
    assert len(set(alive[2:])) == 1
    session.release()
    assert native.alive == 0


def test_disposal_frees_every_buffer_of_a_worker() -> None:
    with Worker(branching(), BackendType.CPU) as worker:
        for rows in (1, 2):
            worker.schedule(normal(rows, 4))
        session = worker._session
        owned = [b for recorded in session.cache.plans.values() for b in recorded.owned]
        assert owned
    assert all(isinstance(b, CPUBuffer) and b._array is None for b in owned)
    assert not session.cache.plans
    assert not session.recorder.constants


def test_plans_for_other_shapes_share_memory_and_leave_each_other_s_results() -> None:
    session = Session(branching(), CPUBackend(), None, allow_fallback=False)
    shared_buffers = set()
    for rows in (7, 3, 5, 7, 9, 3):
        x = normal(rows, 4)
        result = run(session, {"x": x})
        for name, array in expected(session.model, x).items():
            np.testing.assert_allclose(result[name], array, rtol=1e-5, atol=1e-6)
        held = session.recorder.shared_buffers["native", "x", np.dtype(np.float32)]
        shared_buffers.add(id(held.memory))
    assert len(shared_buffers) == 2
    assert held.memory is not None
    assert held.memory.elements == (9 + 4) * 4 + 2
    session.release()
    assert not session.recorder.shared_buffers
