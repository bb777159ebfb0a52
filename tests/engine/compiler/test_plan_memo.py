"""Plans that memo what earlier ones have worked out are those that would have been made anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from engine import ModelLoader
from engine.backends.cpu.backend import CPUBackend
from engine.compiler.lower import LoweredModel, Planner
from engine.compiler.plan_memo import LARGEST_KNOWN, SHAPES_AT_ONCE, LRUCache, PlanMemo
from engine.graph.model import Model
from engine.kernels.value import Value
from tests.graphs import node, proto
from tests.random_graphs import RandomGraph
from tests.sequence_networks import decoder, decoder_inputs, encoder

Shapes = dict[str, tuple[int, ...]]


def contents(lowered: LoweredModel) -> list[Any]:
    """All that a backend is told of a plan."""
    return [
        (
            segment.place,
            [(s.layer, s.op_type, s.kernel.key, s.space, s.values, s.inputs, s.output) for s in plan.steps],
            plan.buffers,
            {name: array.tobytes() for name, array in plan.constants.items()},
            set(plan.packed),
            segment.imports,
            segment.exports,
        )
        for segment in lowered.segments
        for plan in (segment.plan,)
    ]


def planner_of(model: Model) -> Planner:
    return Planner(model, CPUBackend(), None)


def check(model: Model, every: Iterable[Shapes]) -> Planner:
    memoising = planner_of(model)
    for shapes in every:
        fresh, found = planner_of(model).lower(shapes), memoising.lower(shapes)
        assert contents(found) == contents(fresh)
        for output in model.outputs:
            one, other = (t.trace.tensor(output.name) for t in (found, fresh))
            assert (one.name, one.root.name, one.shape, one.signature) == (
                other.name, other.root.name, other.shape, other.signature
            )  # fmt: skip
    return memoising


def shapes_of(feeds: dict[str, np.ndarray]) -> Shapes:
    return {name: array.shape for name, array in feeds.items()}


def test_a_cache_that_grows() -> None:
    check(
        ModelLoader.load(decoder()), [shapes_of(decoder_inputs(0, past)) for past in (0, 1, 2, 9, 10, 1, 9)]
    )


def test_a_batch_and_a_length() -> None:
    sizes = [(1, 8, 256), (1, 9, 256), (2, 8, 256), (1, 8, 256), (2, 9, 256), (1, 9, 256), (1, 1, 256)]
    check(ModelLoader.load(encoder(written_out=True)), [{"x": size} for size in sizes])


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    graph = RandomGraph(seed, length=18)
    sizes = [shapes_of(feeds) for feeds in graph.feeds]
    check(ModelLoader.load(graph.source), [*sizes, *sizes])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2000, 2300))
def test_more_random_graphs(seed: int) -> None:
    test_random_graphs(seed)


def test_layers_that_see_the_same_are_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a decoder's step those are, whose tensors grow with the cache, and what these are joined with."""
    model = ModelLoader.load(decoder())
    planner = planner_of(model)
    built: list[str] = []
    keep = LRUCache.keep

    def counting(self: LRUCache[Any, Any], key: Any, made: Any) -> None:
        if self is layers:
            built.append(key[0])
        keep(self, key, made)

    assert planner.memo is not None
    layers = planner.memo.layers
    monkeypatch.setattr(LRUCache, "keep", counting)
    planner.lower(shapes_of(decoder_inputs(0, 5)))
    whole = len(built)
    built.clear()
    planner.lower(shapes_of(decoder_inputs(0, 5)))
    assert not built
    planner.lower(shapes_of(decoder_inputs(0, 6)))
    assert 0 < len(built) < whole / 2


def shaped(*inputs: tuple[str, Sequence[int | str | None]]) -> Model:
    """y = x reshaped to (rows, 2), rows taken from x's own shape, plus z."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["rows"], axis=0),
        node("Concat", ["rows", "two"], ["both"], axis=0),
        node("Reshape", ["x", "both"], ["r"]),
        node("Add", ["r", "z"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "two": np.array([2])}
    given = {name: ("float32", [*shape]) for name, shape in inputs}
    return ModelLoader.load(proto(nodes, given, {"y": ("float32", None)}, constants))


def test_shapes_that_are_worked_out_from_shapes() -> None:
    model = shaped(("x", ["a", 2]), ("z", ["b", 2]))
    every = [(3, 3), (4, 4), (3, 1), (3, 3), (1, 4), (4, 1)]
    check(model, [{"x": (a, 2), "z": (b, 2)} for a, b in every])


def test_elements_that_a_caller_knows_are_no_part_of_what_is_recalled() -> None:
    """An input's elements decide a size: plans for others of the same shape must not take it over."""
    nodes = [node("Slice", ["x", "starts", "ends"], ["y"]), node("Exp", ["y"], ["z"])]
    inputs: dict[str, tuple[str, Sequence[int | str | None] | None]]
    inputs = {"x": ("float32", ["n"]), "starts": ("int64", [1]), "ends": ("int64", [1])}
    model = ModelLoader.load(proto(nodes, inputs, {"z": ("float32", None)}))
    planner = planner_of(model)
    for start, end in ((0, 3), (1, 3), (0, 3), (2, 9)):
        known = {"starts": np.array([start]), "ends": np.array([end])}
        for by in (planner, planner_of(model)):
            lowered = by.lower({"x": (9,), "starts": (1,), "ends": (1,)}, known)
            assert lowered.trace.tensor("z").shape == (end - start,)


def test_a_model_of_fixed_shapes_recalls_nothing() -> None:
    model = ModelLoader.load(
        proto([node("Exp", ["x"], ["y"])], {"x": ("float32", [3])}, {"y": ("float32", [3])})
    )
    assert planner_of(model).memo is None


def test_what_is_used_least_goes_first() -> None:
    recent: LRUCache[str, int] = LRUCache(2)
    recent.keep("a", 1)
    recent.keep("b", 2)
    assert recent.get("a") == 1
    recent.keep("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (1, None, 3)


def test_tensors_of_the_same_facts_are_one_object() -> None:
    memo = PlanMemo(10)
    assert memo.layers.most == 10 * SHAPES_AT_ONCE
    one = memo.tensor("t", (2, 3), np.dtype(np.float32))
    assert memo.tensor("t", (2, 3), np.dtype(np.float32)) is one
    assert memo.tensor("t", (3, 2), np.dtype(np.float32)) is not one
    assert memo.tensor("t", (2, 3), np.dtype(np.int32)) is not one

    def known(*numbers: int) -> Value:
        array = np.array(numbers)
        return memo.known(Value("k", array.shape, array.dtype, None, array))

    same = known(1, 2)
    assert known(1, 2) is same
    assert known(2, 1) is not same
    long = known(*range(LARGEST_KNOWN + 1))
    assert known(*range(LARGEST_KNOWN + 1)) is not long


def test_what_no_plan_holds_is_forgotten() -> None:
    memo = PlanMemo(10)
    one = memo.tensor("t", (2, 3), np.dtype(np.float32))
    assert len(memo._tensors) == 1
    del one
    assert len(memo._tensors) == 0
