"""Formulas for given shapes: what sizes may decide, what they may not, and where a plan has to stop."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Model, ShapeError
from engine.compiler.interpreter import interpret
from engine.compiler.trace import SAMPLES, Tracer
from tests.engine.compiler.running import kernel_keys, planned, run_fused
from tests.engine.test_random_control_flow import load
from tests.graphs import model, node

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def broadcasting() -> Model:
    """Whether b's rows are broadcast is known only when it runs."""
    return model(
        [node("Add", ["a", "b"], ["s"]), node("Mul", ["s", "row"], ["t"]), node("Tanh", ["t"], ["y"])],
        {"a": ("float32", ["n", "m"]), "b": ("float32", ["k", "m"]), "row": ("float32", ["m"])},
        {"y": ("float32", None)},
    )


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("k", [1, "n"])
@pytest.mark.parametrize("m", [1, 3])
def test_broadcasting_that_only_the_run_knows(n: int, k: int | str, m: int) -> None:
    a, b, row = normal(n, m), normal(1 if k == 1 else n, m), normal(m)
    expected = np.tanh((a + b) * row)
    made = broadcasting()
    np.testing.assert_allclose(run_fused(made, {"a": a, "b": b, "row": row})["y"], expected, rtol=1e-6)


def test_sizes_that_meet_by_chance_do_not_become_one() -> None:
    """Sizes equal to each other, to a sample's, or to 1: answers stay right and kernels the same."""
    made = model(
        [
            node("MatMul", ["a", "w"], ["p"]),
            node("Transpose", ["p"], ["t"], perm=[0, 2, 1]),
            node("Add", ["t", "c"], ["s"]),
            node("Relu", ["s"], ["r"]),
            node("ReduceMean", ["r", "axes"], ["u"], keepdims=1),
            node("Sub", ["r", "u"], ["y"]),
        ],
        {"a": ("float32", ["n", "m", 4]), "c": ("float32", ["n", 6, "m"])},
        {"y": ("float32", None)},
        {"w": normal(4, 6), "axes": np.array([1])},
    )
    tracer = Tracer(made)
    keys = set()
    for n, m in [(1, 1), (2, 3), (3, 3), (6, 6), (4, 6), (1, 6), (6, 1), *(s[:2] for s in SAMPLES)]:
        feeds = {"a": normal(n, m, 4), "c": normal(n, 6, m)}
        r = np.maximum((feeds["a"] @ made.constants["w"]).transpose(0, 2, 1) + feeds["c"], 0)
        expected = r - r.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(run_fused(made, feeds)["y"], expected, rtol=1e-5, atol=1e-5)
        keys.add(tuple(kernel_keys(tracer, {k: v.shape for k, v in feeds.items()})))
    assert len(keys) == 1


def test_an_unnamed_dimension_stands_for_itself_only() -> None:
    made = model(
        [node("Add", ["a", "b"], ["y"])],
        {"a": ("float32", [None, 2]), "b": ("float32", [None, 2])},
        {"y": ("float32", None)},
    )
    for rows in ((1, 1), (4, 1), (1, 4), (4, 4)):
        a, b = normal(rows[0], 2), normal(rows[1], 2)
        np.testing.assert_array_equal(run_fused(made, {"a": a, "b": b})["y"], a + b)
    with pytest.raises(ShapeError, match=r"layer 'y_layer' \(Add\).*cannot broadcast"):
        run_fused(made, {"a": normal(3, 2), "b": normal(4, 2)})


def test_an_input_of_unknown_rank() -> None:
    made = model(
        [node("Add", ["x", "c"], ["s"]), node("Exp", ["s"], ["y"])],
        {"x": ("float32", None)}, {"y": ("float32", None)}, {"c": normal(3)},
    )  # fmt: skip
    for shape in ((3,), (1,), (), (2, 3), (2, 1, 3)):
        x = normal(*shape)
        result = run_fused(made, {"x": x})["y"]
        np.testing.assert_allclose(result, np.exp(x + made.constants["c"]), rtol=1e-6)


def test_layers_of_many_steps_are_sampled_as_they_are_planned() -> None:
    """A join of many tensors takes more steps where a kernel reads fewer; its sizes must not be mixed up."""
    names = [f"x{i}" for i in range(20)]
    made = model(
        [node("Concat", names, ["j"], axis=1), node("Relu", ["j"], ["y"])],
        {name: ("float32", ["n", i % 3 + 1]) for i, name in enumerate(names)},
        {"y": ("float32", None)},
    )
    for fan_in in (3, 7, 16, 32):
        tracer = Tracer(made, fan_in)
        computes, values = planned(tracer, {name: (5, i % 3 + 1) for i, name in enumerate(names)})
        assert values["y"].signature is not None
        assert values["y"].is_static(1)
        assert not values["y"].is_static(0)
        for compute in computes:
            signature = compute.output.signature
            assert signature is not None
            assert set(signature[0]) == {s[0] for s in SAMPLES} | {5}
            assert len(set(signature[1])) == 1
        feeds = {name: normal(5, i % 3 + 1) for i, name in enumerate(names)}
        joined = np.concatenate(list(feeds.values()), axis=1)
        np.testing.assert_array_equal(run_fused(made, feeds, fan_in)["y"], np.maximum(joined, 0))


def prepared(tracer: Tracer) -> set[str]:
    return {key for shapes in tracer.representatives() for key in kernel_keys(tracer, shapes)}


@pytest.mark.parametrize("fan_in", [3, 7, 16])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_a_sequence_of_any_length_needs_no_new_kernels(fan_in: int, direction: str) -> None:
    d = 1 + (direction == "bidirectional")
    made = model(
        [node("LSTM", ["x", "w", "r"], ["y", "h", "c"], hidden_size=2, direction=direction)],
        {"x": ("float32", ["t", "n", 3])},
        {"y": ("float32", None), "h": ("float32", None)},
        {"w": normal(d, 8, 3), "r": normal(d, 8, 2)},
    )
    tracer = Tracer(made, fan_in)
    known = prepared(tracer)
    for t, n in [(1, 1), (2, 3), (6, 1), (17, 2), (40, 1)]:
        assert set(kernel_keys(tracer, {"x": (t, n, 3)})) <= known
    feeds = {"x": normal(9, 2, 3)}
    fused, plain = run_fused(made, feeds, fan_in), interpret(made, feeds)
    for name, array in plain.items():
        np.testing.assert_allclose(fused[name], array, atol=1e-6)


def test_a_batch_that_one_side_lacks_is_broadcast_at_every_size() -> None:
    """At a batch of 1 both sides have as many matrices; the kernel is the one for any batch all the same."""
    made = model([node("MatMul", ["x", "w"], ["y"])], {"x": ("float32", ["n", 3, 2, 4])},
                 {"y": ("float32", None)}, {"w": normal(3, 4, 5)})  # fmt: skip
    tracer = Tracer(made)
    for n in (1, 2, 5):
        x = normal(n, 3, 2, 4)
        np.testing.assert_allclose(run_fused(made, {"x": x})["y"], x @ made.constants["w"], atol=1e-5)
        assert set(kernel_keys(tracer, {"x": x.shape})) <= prepared(tracer)


def test_padding_that_depends_on_the_size_needs_no_new_kernels() -> None:
    made = model(
        [node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", strides=[2, 2])],
        {"x": ("float32", ["n", 2, "h", "w_"])}, {"y": ("float32", None)}, {"w": normal(3, 2, 2, 2)},
    )  # fmt: skip
    tracer = Tracer(made)
    for h, w in [(1, 1), (4, 4), (5, 4), (5, 7)]:
        assert set(kernel_keys(tracer, {"x": (1, 2, h, w)})) <= prepared(tracer)


def test_dimensions_of_different_names_that_have_to_be_equal() -> None:
    """Exporters name the batch of each input for itself."""
    made = model(
        [node("Add", ["a", "b"], ["s"]), node("Tanh", ["s"], ["t"]), node("Mul", ["t", "c"], ["y"])],
        {"a": ("float32", ["n", 3]), "b": ("float32", ["n_1", 3]), "c": ("float32", ["n_2", 3])},
        {"y": ("float32", None)},
    )
    tracer = Tracer(made)
    for n in (1, 2, 3, 9):
        shapes = dict.fromkeys("abc", (n, 3))
        assert set(kernel_keys(tracer, shapes)) <= prepared(tracer)


NOTHING = {
    "an elementwise chain": ([node("Relu", ["x"], ["r"]), node("Add", ["r", "c"], ["y"])], (0, 3)),
    "a sum over nothing": ([node("Relu", ["x"], ["r"]), node("ReduceSum", ["r", "rows"], ["y"])], (0, 3)),
    "a product over nothing": ([node("Relu", ["x"], ["r"]), node("MatMul", ["r", "w"], ["m"]),
                               node("Transpose", ["m"], ["t"]), node("MatMul", ["m", "t"], ["y"])], (0, 3)),
    "a join with nothing": ([node("Relu", ["x"], ["r"]), node("Concat", ["r", "w"], ["y"], axis=0)], (0, 3)),
    "padding around nothing": ([node("Relu", ["x"], ["r"]), node("Pad", ["r", "pads"], ["y"])], (0, 3)),
    "its own shape": ([node("Relu", ["x"], ["r"]), node("Shape", ["r"], ["y"])], (0, 3)),
}  # fmt: skip
EXPECTED = {
    "an elementwise chain": np.zeros((0, 3)), "a sum over nothing": np.zeros((1, 3)),
    "a product over nothing": np.zeros((0, 0)),
    "padding around nothing": np.zeros((2, 3)), "its own shape": np.array([0, 3]),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTHING)
def test_tensors_without_elements(name: str) -> None:
    nodes, shape = NOTHING[name]
    w = normal(3, 3)
    constants = {"c": normal(3), "w": w, "rows": np.array([0]), "pads": np.array([1, 0, 1, 0])}
    dtype = "int64" if name == "its own shape" else "float32"
    made = model(nodes, {"x": ("float32", ["n", 3])}, {"y": (dtype, None)}, constants)
    result = run_fused(made, {"x": np.zeros(shape, np.float32)})["y"]
    np.testing.assert_array_equal(result, EXPECTED.get(name, w))


def shaped_by_input() -> Model:
    """Shape arithmetic over an input's elements: (k, 2 * k)."""
    return model(
        [
            node("Mul", ["k", "two"], ["twice"]),
            node("Concat", ["k", "twice"], ["shape"], axis=0),
            node("Expand", ["x", "shape"], ["e"]),
            node("Neg", ["e"], ["y"]),
        ],
        {"x": ("float32", [1]), "k": ("int64", [1])},
        {"y": ("float32", None)},
        {"two": np.array([2])},
    )


def test_arithmetic_over_known_inputs_is_done_ahead() -> None:
    tracer = Tracer(shaped_by_input())
    trace = tracer.trace({"x": (1,), "k": (1,)}, {"k": np.array([3])})
    assert trace.stop is None
    assert trace.tensor("y").shape == (3, 6)


def test_a_plan_stops_at_what_it_does_not_know_and_goes_on() -> None:
    made = shaped_by_input()
    tracer = Tracer(made)
    shapes = {"x": (1,), "k": (1,)}
    first = tracer.trace(shapes)
    assert first.stop is not None
    assert first.stop.needs == (first.tensor("shape"),)
    assert "y" not in first.values
    for sizes in ([2, 5], [3, 4]):
        second = tracer.resume(first, {first.tensor("shape").root.name: np.array(sizes)})
        assert second.stop is None
        assert second.tensor("y").shape == tuple(sizes)
    assert first.tensor("shape").known is None
    assert "y" not in first.values
    result = interpret(made, {"x": normal(1), "k": np.array([4])})["y"]
    assert result.shape == (4, 8)


def test_elements_of_an_input_are_copied() -> None:
    """A plan that was made for them must not change with the caller's array."""
    k = np.array([3])
    trace = Tracer(shaped_by_input()).trace({"x": (1,), "k": (1,)}, {"k": k})
    k[0] = 7
    assert trace.tensor("y").shape == (3, 6)
    assert trace.learned["k"].tolist() == [3]


def test_names_of_a_model_never_meet_those_of_the_plan() -> None:
    """TensorFlow's exporters call tensors 'layer:0'."""
    made = model(
        [node("Neg", ["x:0"], ["x"]), node("Exp", ["x_layer:0"], ["e"]), node("Sub", ["x", "e"], ["y"])],
        {"x:0": ("float32", [3]), "x_layer:0": ("float32", [3])},
        {"y": ("float32", [3])},
    )
    a, b = normal(3), normal(3)
    result = run_fused(made, {"x:0": a, "x_layer:0": b})["y"]
    np.testing.assert_allclose(result, -a - np.exp(b), rtol=1e-6)
    computes, _ = planned(Tracer(made), {"x:0": (3,), "x_layer:0": (3,)})
    assert not {c.output.name for c in computes} & {"x:0", "x_layer:0"}


def test_a_layer_that_cannot_run_is_named() -> None:
    made = model(
        [node("MatMul", ["a", "b"], ["y"])],
        {"a": ("float32", ["n", "k"]), "b": ("float32", ["m", "p"])},
        {"y": ("float32", None)},
    )
    with pytest.raises(ShapeError, match=r"layer 'y_layer' \(MatMul\): cannot multiply \[2, 3\] by \[4, 5\]"):
        Tracer(made).trace({"a": (2, 3), "b": (4, 5)})


def test_a_cache_that_grows_is_sampled_with_its_sum() -> None:
    """Exporters name past, new and total lengths apart; only sizes that add up make sense together."""
    made = model(
        [
            node("Concat", ["past", "new"], ["all"], axis=1),
            node("Add", ["all", "mask"], ["masked"]),
            node("Transpose", ["masked"], ["turned"], perm=[1, 0]),
            node("Softmax", ["turned"], ["y"]),
        ],
        {
            "past": ("float32", ["batch", "before"]),
            "new": ("float32", ["batch", "now"]),
            "mask": ("float32", ["batch", "total"]),
        },
        {"y": ("float32", None)},
    )
    tracer = Tracer(made)
    assert tracer.samples
    assert all(s.shapes["mask"][1] == s.shapes["past"][1] + s.shapes["new"][1] for s in tracer.samples)
    known = prepared(tracer)
    for batch, before, now in [(1, 5, 1), (2, 0, 7), (1, 1, 1), (3, 64, 2)]:
        shapes = {"past": (batch, before), "new": (batch, now), "mask": (batch, before + now)}
        assert set(kernel_keys(tracer, shapes)) <= known


def test_what_no_sample_reaches_is_fused_as_for_its_present_sizes() -> None:
    """A loop that runs for sizes only that no sample has: of the tensors behind it nothing else is known."""
    made = load("""g (float[n] x, float[2, 1] factor) => (float[a, b] y) {
        least = Constant<value = int64 {2000000}>()
        most = Constant<value = int64 {2}>()
        axes = Constant<value = int64[1] {0}>()
        half = Constant<value = float[1, 1] {0.5}>()
        sizes = Shape(x)
        size = Squeeze(sizes, axes)
        go = Less(least, size)
        rows = Loop(most, go) <
            body = step (int64 i, bool on) => (bool again, float[n] row) {
                again = Identity(on)
                row = Neg(x)
            }
        >
        s = Mul(rows, factor)
        t = LeakyRelu(s)
        y = Max(t, half)
    }""")
    tracer, factor = Tracer(made), np.array([[2.0], [0.25]], np.float32)
    keys = set()
    for n in (2_000_001, 2_000_002):
        shapes = {"x": (n,), "factor": (2, 1)}
        computes, _ = planned(tracer, shapes)
        assert computes[-1].op_type == "Mul+LeakyRelu+Max"
        keys.add(tuple(kernel_keys(tracer, shapes)))
    assert len(keys) == 1
    x = normal(n)
    scaled = -x * factor
    expected = np.maximum(np.where(scaled < 0, np.float32(0.01) * scaled, scaled), 0.5)
    np.testing.assert_allclose(run_fused(made, {"x": x, "factor": factor})["y"], expected, rtol=1e-6)
