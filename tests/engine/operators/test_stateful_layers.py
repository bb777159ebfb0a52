"""TensorScatter, CausalConvWithState, LinearAttention and SwiGLU against ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from engine.graph.model import Model
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.independent import by_reference
from tests.engine.operators.single import one_layer, run, structures
from tests.onnx_cases import disagreement

PROPERTY = settings(max_examples=8)


def on_backend(
    make_worker: MakeWorker, channel: str, model: Model, arrays: list[np.ndarray | None]
) -> list[np.ndarray]:
    """A model's outputs, computed by a backend."""
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    return answers(make_worker(model, channel), feeds)


# TensorScatter


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [-2, 1, 2, -1])
def test_a_cache_is_written_in_place(axis: int, mode: str, rng: np.random.Generator) -> None:
    cache = rng.normal(size=(3, 4, 5, 6)).astype(np.float32)
    for count in (1, 2):
        shape = list(cache.shape)
        shape[axis] = count
        update = rng.normal(size=shape).astype(np.float32)
        limit = cache.shape[axis] - count + 1 if mode == "linear" else 20
        for indices in (rng.integers(0, limit, 3), None):
            arrays = [cache, update, indices]
            (expected,) = by_reference("TensorScatter", arrays, {"axis": axis, "mode": mode}, opset=24)
            (found,) = run("TensorScatter", arrays, {"axis": axis, "mode": mode})
            np.testing.assert_array_equal(found, expected)


def test_an_empty_update_changes_nothing(rng: np.random.Generator) -> None:
    cache = rng.normal(size=(2, 3, 4)).astype(np.float16)
    (found,) = run("TensorScatter", [cache, cache[:, :0], np.array([1, 2])])
    np.testing.assert_array_equal(found, cache)


@PROPERTY
@given(data=st.data())
def test_every_backend_writes_a_cache(channel: str, make_worker: MakeWorker, data: st.DataObject) -> None:
    sizes = st.sampled_from((1, 2, 5))
    batch, heads, room, width = (data.draw(sizes) for _ in range(4))
    count = data.draw(st.integers(0, room))
    rng = np.random.default_rng(1)
    arrays: list[np.ndarray | None] = [
        rng.normal(size=(batch, heads, room, width)).astype(np.float32),
        rng.normal(size=(batch, heads, count, width)).astype(np.float32),
        rng.integers(0, 3 * room, batch),
    ]
    (expected,) = by_reference("TensorScatter", arrays, {"mode": "circular"}, opset=24)
    model = one_layer("TensorScatter", arrays, {"mode": "circular"}, dynamic=(0, 1, 2))
    (found,) = on_backend(make_worker, channel, model, arrays)
    np.testing.assert_array_equal(found, expected)


# CausalConvWithState


def conv_inputs(
    batch: int, channels: int, steps: int, taps: int, past: bool = True
) -> list[np.ndarray | None]:
    """x, weight, bias and past_state."""
    rng = np.random.default_rng(5)
    shapes = ((batch, channels, steps), (channels, 1, taps), (channels,), (batch, channels, taps - 1))
    arrays: list[np.ndarray | None] = [rng.normal(size=s).astype(np.float32) for s in shapes]
    return arrays if past else arrays[:3]


@pytest.mark.parametrize("activation", ["none", "silu", "swish"])
@pytest.mark.parametrize("past", [True, False])
def test_a_causal_convolution_remembers(past: bool, activation: str) -> None:
    for steps, taps in ((6, 4), (1, 4), (2, 1), (5, 2)):
        arrays, attributes = conv_inputs(2, 3, steps, taps, past), {"activation": activation}
        expected = by_reference("CausalConvWithState", arrays, attributes, opset=27, outputs=2)
        found = run("CausalConvWithState", arrays, attributes, opset=27, outputs=2)
        assert disagreement(found[0], expected[0]) < 1e-6
        np.testing.assert_array_equal(found[1], expected[1])


def test_a_causal_convolution_of_nothing_passes_its_state_on() -> None:
    arrays = conv_inputs(2, 3, 0, 4)
    y, state = run("CausalConvWithState", arrays, opset=27, outputs=2)
    assert y.shape == (2, 3, 0)
    np.testing.assert_array_equal(state, arrays[3])


@pytest.mark.spread
@PROPERTY
@given(data=st.data())
def test_every_backend_convolves(channel: str, make_worker: MakeWorker, data: st.DataObject) -> None:
    batch, channels = data.draw(st.integers(1, 2)), data.draw(st.sampled_from((1, 3)))
    steps, taps = data.draw(st.sampled_from((1, 2, 6))), data.draw(st.sampled_from((1, 4)))
    arrays = conv_inputs(batch, channels, steps, taps)
    expected = by_reference("CausalConvWithState", arrays, opset=27, outputs=2)
    model = one_layer("CausalConvWithState", arrays, opset=27, outputs=2, dynamic=(0, 3))
    for a, b in zip(on_backend(make_worker, channel, model, arrays), expected, strict=True):
        assert disagreement(a, b) < (1e-5 if channel == "cpu" else 1e-4)


# LinearAttention

RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}


def attention_inputs(
    rule: str, steps: int, batch: int = 2, heads: int = 2, group: int = 2, depth: int = 4, width: int = 3,
    past: bool = True, by_head: bool = False, one_rate: bool = False, dtype: str = "float32",
) -> tuple[list[np.ndarray | None], dict[str, Any]]:  # fmt: skip
    """Inputs with keys of length 1, as the delta rules want them, and the attributes."""
    rng = np.random.default_rng(steps + depth)
    gated, delta = RULES[rule]

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(dtype)

    keys = normal(batch, steps, heads, depth)
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    arrays = [
        normal(batch, steps, heads * group * depth),
        keys.reshape(batch, steps, heads * depth),
        normal(batch, steps, heads * width),
        normal(batch, heads, depth, width) if past else None,
        -np.abs(normal(batch, steps, heads * (1 if by_head else depth))) if gated else None,
        rng.uniform(size=(batch, steps, 1 if one_rate else heads)).astype(dtype) if delta else None,
    ]
    return arrays, {"q_num_heads": heads * group, "kv_num_heads": heads, "update_rule": rule}


def attend(
    arrays: list[np.ndarray | None], attributes: dict[str, Any], bound: float = 2e-6, chunk: int = 64
) -> None:
    """The engine's answer is the reference's, whatever the size of a chunk."""
    expected = by_reference("LinearAttention", arrays, attributes, opset=27, outputs=2)
    found = run("LinearAttention", arrays, {**attributes, "chunk_size": chunk}, opset=27, outputs=2)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert disagreement(a, b) < bound


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("past", [True, False])
def test_update_rules(rule: str, past: bool) -> None:
    for steps, chunk in ((1, 64), (2, 64), (7, 64), (7, 3), (8, 4), (5, 1), (6, 5)):
        for by_head in (True, False) if rule.startswith("gated") else (False,):
            attend(*attention_inputs(rule, steps, past=past, by_head=by_head), chunk=chunk)


def test_keys_that_repeat_do_not_blow_up() -> None:
    """The inverse of a full triangle of ones is found by blocks: its powers would grow beyond float32."""
    arrays, attributes = attention_inputs("delta", 150, batch=1, heads=1, group=1)
    assert arrays[1] is not None
    assert arrays[5] is not None
    arrays[1][:] = 0.5
    arrays[5][:] = 1.0
    attend(arrays, attributes, 1e-5)


def test_strong_decay_over_a_long_chunk_stays_finite() -> None:
    """Decays add up to thousands, of whose sums float32 keeps the fourth decimal."""
    arrays, attributes = attention_inputs("gated_delta", 40)
    assert arrays[4] is not None
    arrays[4] *= 100.0
    attend(arrays, attributes, 2e-5)


def test_attributes_and_element_types_of_linear_attention() -> None:
    arrays, attributes = attention_inputs("gated_delta", 5, one_rate=True)
    attend(arrays, {**attributes, "scale": 0.3})
    attend(*attention_inputs("gated_delta", 5, group=1, depth=1, width=1))
    attend(*attention_inputs("gated_delta", 5, dtype="float16"), bound=2e-3)
    attend(*attention_inputs("delta", 1, dtype="float16"), bound=2e-3)
    mixed, attributes = attention_inputs("gated", 5, dtype="float16")
    assert mixed[3] is not None
    mixed[3] = mixed[3].astype(np.float32)
    attend(mixed, attributes, bound=2e-3)


def test_no_step_leaves_the_state() -> None:
    arrays, attributes = attention_inputs("gated_delta", 0)
    y, state = run("LinearAttention", arrays, attributes, opset=27, outputs=2)
    assert y.shape == (2, 0, 12)
    np.testing.assert_array_equal(state, arrays[3])


def test_more_chunks_need_no_new_kernel() -> None:
    def kernels(steps: int, batch: int) -> set[str]:
        arrays, attributes = attention_inputs("gated_delta", steps, batch)
        model = one_layer(
            "LinearAttention", arrays, {**attributes, "chunk_size": 4}, opset=27, outputs=2, dynamic=range(6)
        )
        return set(structures(model, {f"x{i}": a.shape for i, a in enumerate(arrays) if a is not None}))

    assert kernels(70, 3) == kernels(33, 3)
    assert len(kernels(70, 3)) < 20


@pytest.mark.spread
@PROPERTY
@given(data=st.data())
def test_every_backend_attends(channel: str, make_worker: MakeWorker, data: st.DataObject) -> None:
    steps, batch = data.draw(st.sampled_from((1, 2, 5, 9))), data.draw(st.integers(1, 2))
    arrays, attributes = attention_inputs("gated_delta", steps, batch)
    attributes["chunk_size"] = 4
    expected = by_reference("LinearAttention", arrays, attributes, opset=27, outputs=2)
    model = one_layer("LinearAttention", arrays, attributes, opset=27, outputs=2, dynamic=(0, 1, 2, 4, 5))
    for a, b in zip(on_backend(make_worker, channel, model, arrays), expected, strict=True):
        assert disagreement(a, b) < (1e-5 if channel == "cpu" else 1e-4)


# SwiGLU


@pytest.mark.parametrize("alpha", [1.0, 1.7, 0.0])
def test_swiglu(alpha: float, rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(2, 3, 4)).astype(np.float32), rng.normal(size=(2, 3, 4)).astype(np.float32)
    (expected,) = by_reference("SwiGLU", [a, b], {"alpha": alpha}, opset=28)
    assert disagreement(run("SwiGLU", [a, b], {"alpha": alpha}, opset=28)[0], expected) < 1e-6


def test_errors_name_the_layer() -> None:
    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.float32)

    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    packed: list[np.ndarray | None] = [zeros(1, 5, 16), zeros(1, 5, 8), zeros(1, 5, 6)]
    subjects: list[tuple[str, list[np.ndarray | None], dict[str, Any], str]] = [
        ("SwiGLU", [zeros(2, 3), zeros(3)], {}, r"one shape, not \[2, 3\] and \[3\]"),
        ("TensorScatter", [zeros(2, 3, 4), zeros(2, 4, 4)], {}, r"write \[2, 4, 4\] into \[2, 3, 4\]"),
        ("TensorScatter", [zeros(2, 3, 4), zeros(2, 2, 5)], {}, "along axis 1"),
        ("TensorScatter", [zeros(2, 3, 4), zeros(1, 3, 4)], {"axis": 0}, "along axis 0"),
        ("TensorScatter", [zeros(2, 3), zeros(2, 1)], {"axis": 1, "mode": "ring"}, "one of linear, circular"),
        ("TensorScatter", [zeros(2, 3, 4), zeros(2, 1, 4), np.zeros(3, np.int64)], {}, "index per sample"),
        ("CausalConvWithState", [zeros(2, 3, 4), zeros(3, 3, 2)], {}, r"weights \(C, 1, K\)"),
        ("CausalConvWithState", [*conv_inputs(1, 2, 3, 4)[:3], zeros(1, 2, 2)], {}, r"must be \[1, 2, 3\]"),
        ("CausalConvWithState", conv_inputs(1, 2, 3, 4), {"activation": "gelu"}, "one of none, silu, swish"),
        ("LinearAttention", packed, heads, "'gated_delta' needs decay"),
        ("LinearAttention", packed, {**heads, "update_rule": "gate"}, "one of linear, gated, delta"),
        (
            "LinearAttention", [*packed, None, zeros(1, 5, 2)], {**heads, "update_rule": "linear"},
            "'linear' takes no decay",
        ),
        (
            "LinearAttention", packed, {**heads, "q_num_heads": 3, "update_rule": "linear"},
            r"q_num_heads \(3\) must be a multiple of kv_num_heads \(2\)",
        ),
        (
            "LinearAttention", [*packed, zeros(1, 2, 4, 4)], {**heads, "update_rule": "linear"},
            r"past_state must be \[1, 2, 4, 3\], not \[1, 2, 4, 4\]",
        ),
    ]  # fmt: skip
    for op_type, arrays, attributes, message in subjects:
        with pytest.raises(ShapeError, match=f"layer 'it' \\({op_type}\\): .*{message}"):
            run(op_type, arrays, attributes, opset=28, outputs=1)
