"""Models whose dynamic dimensions take only some sizes: guesses that fail are no reason to refuse a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from engine import ModelLoader, ShapeError
from engine.compiler.lower import LoweredModel
from engine.compiler.trace import Tracer
from engine.graph.model import Model
from engine.runtime.plans.session import Session
from tests.engine.conftest import MakeWorker, answers
from tests.graphs import Declared, Dims, model, node, proto
from tests.networks import error
from tests.peer import open_session

Feeds = Mapping[str, np.ndarray]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    fan = max(1, int(np.prod(shape[1:])))
    return np.random.default_rng(seed).normal(0, fan**-0.5, shape).astype(np.float32)


def filter_bank() -> bytes:
    """A spectrogram as a convolution, and pooling: at least 256 samples, as Silero's detectors have it."""
    nodes = [
        node("Unsqueeze", ["x", "axis"], ["one"]),
        node("Conv", ["one", "bank"], ["bands"], strides=[64]),
        node("Relu", ["bands"], ["power"]),
        node("Conv", ["power", "mix"], ["mixed"], pads=[1, 1]),
        node("ReduceMean", ["mixed", "last"], ["y"], keepdims=0),
    ]
    constants = {
        "axis": np.array([1]), "last": np.array([2]),
        "bank": normal(10, 1, 256), "mix": normal(4, 10, 3),
    }  # fmt: skip
    return proto(nodes, {"x": ("float32", ["batch", "samples"])}, {"y": ("float32", ["batch", 4])}, constants)


def wide_pooling() -> bytes:
    """Pooling over windows of 130 x 40: both sides open, and neither small."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], strides=[2, 2]),
        node("AveragePool", ["c"], ["y"], kernel_shape=[130, 40], strides=[13, 4]),
    ]
    return proto(
        nodes, {"x": ("float32", ["n", 1, "height", "width"])}, {"y": ("float32", [None] * 4)},
        {"w": normal(2, 1, 3, 3)},
    )  # fmt: skip


def baked_encoder() -> bytes:
    """Self-attention whose Reshapes hold the sizes (5, 3) of the export, although both are called open."""
    nodes = []
    for name in "qkv":
        nodes += [
            node("MatMul", ["x", f"w{name}"], [f"{name}0"]),
            node("Reshape", [f"{name}0", "apart"], [f"{name}1"]),
            node("Transpose", [f"{name}1"], [name], perm=[1, 2, 0] if name == "k" else [1, 0, 2]),
        ]
    nodes += [
        node("MatMul", ["q", "k"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["heads"]),
        node("Transpose", ["heads"], ["back"], perm=[1, 0, 2]),
        node("Reshape", ["back", "flat"], ["rows"]),
        node("MatMul", ["rows", "wo"], ["out"]),
        node("Reshape", ["out", "whole"], ["attended"]),
        node("Add", ["x", "attended"], ["y"]),
    ]
    constants = {
        **{f"w{name}": normal(16, 16, seed=i) for i, name in enumerate("qkvo")},
        "apart": np.array([5, 3 * 2, 8]), "flat": np.array([15, 16]), "whole": np.array([5, 3, 16]),
    }  # fmt: skip
    return proto(nodes, {"x": ("float32", ["s", "b", 16])}, {"y": ("float32", ["s", "b", 16])}, constants)


def one_of_a_batch() -> bytes:
    """The batch is called open and must be 1; the sides must not be small."""
    nodes = [
        node("Conv", ["x", "w1"], ["a"], strides=[4, 4]),
        node("Conv", ["a", "w2"], ["b"], strides=[2, 2]),
        node("Reshape", ["b", "flat"], ["tokens"]),
        node("Squeeze", ["tokens", "first"], ["one"]),
        node("Softmax", ["one"], ["shares"], axis=1),
        node("Reshape", ["shares", "flat"], ["again"]),
        node("Shape", ["b"], ["sizes"]),
        node("Reshape", ["again", "sizes"], ["c"]),
        node("MaxPool", ["c"], ["y"], kernel_shape=[3, 3]),
    ]
    constants = {
        "w1": normal(4, 3, 7, 7), "w2": normal(6, 4, 5, 5),
        "flat": np.array([1, 6, -1]), "first": np.array([0]),
    }  # fmt: skip
    return proto(
        nodes, {"x": ("float32", ["n", 3, "height", "width"])}, {"y": ("float32", [None] * 4)}, constants
    )


def fixed_frames() -> bytes:
    """Frames of a signal are shaped into the 49 that the export saw (wav2vec2): few lengths work."""
    nodes = [
        node("Conv", ["x", "w1"], ["a"], strides=[5]),
        node("Conv", ["a", "w2"], ["b"], strides=[4]),
        node("Reshape", ["b", "shape"], ["c"]),
        node("Transpose", ["c"], ["d"], perm=[0, 2, 1]),
        node("MatMul", ["d", "w3"], ["y"]),
    ]
    constants = {
        "w1": normal(3, 1, 10), "w2": normal(4, 3, 8), "w3": normal(4, 2), "shape": np.array([-1, 4, 49])
    }  # fmt: skip
    return proto(nodes, {"x": ("float32", ["n", 1, "samples"])}, {"y": ("float32", [None] * 3)}, constants)


def open_cache() -> bytes:
    """GroupQueryAttention over a cache all of whose sizes are open: only weights tell heads and width."""
    heads, kv_heads, width = 4, 2, 16
    nodes = [
        node("MatMul", ["x", "wq"], ["q"]),
        node("MatMul", ["x", "wk"], ["k"]),
        node("MatMul", ["x", "wv"], ["v"]),
        node("ReduceSum", ["mask", "last"], ["counts"], keepdims=0),
        node("Sub", ["counts", "one"], ["less"]),
        node("Cast", ["less"], ["lengths"], to=TensorProto.INT32),
        node("Shape", ["mask"], ["sizes"]),
        node("Gather", ["sizes", "second"], ["total64"]),
        node("Cast", ["total64"], ["total"], to=TensorProto.INT32),
    ]
    nodes.append(
        helper.make_node(
            "GroupQueryAttention", ["q", "k", "v", "past_k", "past_v", "lengths", "total"],
            ["y", "new_k", "new_v"], "gqa", domain="com.microsoft", num_heads=heads, kv_num_heads=kv_heads,
        )
    )  # fmt: skip
    constants = {
        "wq": normal(24, heads * width), "wk": normal(24, kv_heads * width, seed=1),
        "wv": normal(24, kv_heads * width, seed=2), "last": np.array([1]), "one": np.array(1),
        "second": np.array(1),
    }  # fmt: skip
    cache: tuple[str, Dims] = ("float32", ["batch", "kv_heads", "past", "head"])
    inputs: Declared = {
        "x": ("float32", ["batch", "new", 24]), "mask": ("int64", ["batch", "total"]),
        "past_k": cache, "past_v": cache,
    }  # fmt: skip
    outputs: Declared = {"y": ("float32", None), "new_k": ("float32", None), "new_v": ("float32", None)}
    found = onnx.ModelProto.FromString(proto(nodes, inputs, outputs, constants))
    found.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return bytes(found.SerializeToString())


def cache_feeds(past: int, new: int, batch: int = 1) -> dict[str, np.ndarray]:
    cache = (batch, 2, past, 16)
    return {
        "x": normal(batch, new, 24), "mask": np.ones((batch, past + new), np.int64),
        "past_k": normal(*cache, seed=3), "past_v": normal(*cache, seed=4),
    }  # fmt: skip


KINDS: dict[str, tuple[bytes, list[dict[str, np.ndarray]]]] = {
    "filter bank": (filter_bank(), [{"x": normal(2, 1000)}, {"x": normal(1, 321)}]),
    "wide pooling": (wide_pooling(), [{"x": normal(1, 1, 300, 90)}, {"x": normal(2, 1, 261, 100)}]),
    "baked encoder": (baked_encoder(), [{"x": normal(5, 3, 16)}]),
    "one of a batch": (one_of_a_batch(), [{"x": normal(1, 3, 70, 60)}, {"x": normal(1, 3, 47, 99)}]),
    "fixed frames": (fixed_frames(), [{"x": normal(2, 1, 1007)}, {"x": normal(1, 1, 1005)}]),
    "open cache": (open_cache(), [cache_feeds(5, 1), cache_feeds(0, 3), cache_feeds(6, 1, 2)]),
}


def expected(source: bytes, feeds: Feeds) -> list[np.ndarray]:
    """onnxruntime's outputs."""
    session = open_session(source)
    return [np.asarray(a) for a in session.run(None, dict(feeds))]


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_that_work_are_found(kind: str) -> None:
    tracer = Tracer(ModelLoader.load(KINDS[kind][0]))
    assert tracer.representatives(), tracer.refusal
    assert not tracer.refusal


def check(kind: str, channel: str, make_worker: MakeWorker) -> None:
    source, settings = KINDS[kind]
    worker = make_worker(ModelLoader.load(source), channel)
    assert not worker.plan_report().unprepared
    for feeds in settings:
        for found, wanted in zip(answers(worker, feeds), expected(source, feeds), strict=True):
            assert found.shape == wanted.shape
            assert error(found, wanted) < 1e-4


def test_an_encoder_runs_at_the_one_size_that_works(make_worker: MakeWorker) -> None:
    check("baked encoder", "cpu", make_worker)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_backend(kind: str, channel: str, make_worker: MakeWorker) -> None:
    check(kind, channel, make_worker)


def impossible() -> Model:
    """Takes one size only, which nothing in the file hints at, and no guess meets."""
    nodes = [
        node("Mul", ["x", "x"], ["square"]),
        node("Shape", ["square"], ["sizes"]),
        node("Mul", ["sizes", "sizes"], ["large"]),
        node("Mod", ["large", "modulus"], ["rest"]),
        node("Sub", ["rest", "offset"], ["wanted"]),
        node("Reshape", ["square", "wanted"], ["y"]),
    ]
    constants = {"modulus": np.array([100_003]), "offset": np.array([777 * 777 % 100_003 - 777])}
    return model(nodes, {"x": ("float32", ["n"])}, {"y": ("float32", ["n"])}, constants)


def test_where_no_size_works_nothing_is_prepared_and_that_is_reported(
    channel: str, make_worker: MakeWorker
) -> None:
    worker = make_worker(impossible(), channel)
    report = worker.plan_report()
    assert "Reshape" in report.unprepared
    assert "nothing prepared" in str(report)
    assert report.steps == 0
    x = normal(777)
    np.testing.assert_allclose(answers(worker, x)[0], x * x, rtol=1e-5)
    with pytest.raises(ShapeError, match="Reshape"):
        worker.schedule(normal(10))
    np.testing.assert_allclose(answers(worker, x)[0], x * x, rtol=1e-5)


@pytest.mark.spread
@pytest.mark.parametrize("kind", ["steps", "multiples"])
def test_guesses_beyond_a_device_s_limits_are_dropped(
    kind: str, channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large sample stands for many steps; or is the smallest of the usual ones that fit."""
    open_x: Dims = ["m", "n", 5] if kind == "steps" else ["m", "n"]
    open_y: Dims = ["m", 1, "n", 4] if kind == "steps" else ["k", 12]
    first = {
        "steps": node("LSTM", ["x", "w", "r"], ["rows"], hidden_size=4),
        "multiples": node("Reshape", ["x", "twelves"], ["rows"]),
    }[kind]
    nodes = [
        first,
        node("Unsqueeze", ["rows", "last"], ["thin"]),
        node("Add", ["thin", "ramp"], ["wide"]),
        node("ReduceLogSumExp", ["wide", "last"], ["y"], keepdims=0),
    ]
    constants = {
        "w": normal(1, 16, 5),
        "r": normal(1, 16, 4),
        "ramp": np.linspace(0.5, 1.5, 16_666, dtype=np.float32),
        "last": np.array([-1]),
        "twelves": np.array([-1, 12]),
    }
    source = proto(nodes, {"x": ("float32", open_x)}, {"y": ("float32", open_y)}, constants)
    prepared, compile_plan = [], Session.compile

    def noted(self: Session, lowered: LoweredModel, progress: Any = None) -> int:
        prepared.append(lowered)
        return compile_plan(self, lowered, progress)

    monkeypatch.setattr(Session, "compile", noted)
    for allow_fallback in (True, False):
        worker = make_worker(ModelLoader.load(source), channel, allow_fallback=allow_fallback)
        assert not worker.plan_report().unprepared
        for sizes in ((3, 2, 5), (1, 5, 5)) if kind == "steps" else ((3, 4), (2, 6)):
            feeds = {"x": normal(*sizes)}
            assert error(answers(worker, feeds)[0], *expected(source, feeds)) < 1e-5
            assert not worker.plan_report().fallbacks
    assert prepared
    assert not any(lowered.fallbacks for lowered in prepared)


def test_fixed_sizes_that_contradict_each_other_are_refused_at_once(make_worker: MakeWorker) -> None:
    nodes = [node("Add", ["x", "z"], ["y"])]
    inputs: dict[str, Any] = {"x": ("float32", [3]), "z": ("float32", [4])}
    with pytest.raises(ShapeError, match="cannot broadcast"):
        make_worker(model(nodes, inputs, {"y": ("float32", None)}), "cpu")
