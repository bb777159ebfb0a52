"""Attention against its formula in NumPy, and a small decoder with a cache against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from engine import ModelLoader
from engine.base.errors import ShapeError
from engine.base.shapes import DynamicTensorShape
from engine.compiler.fusion import fuse_elementwise
from engine.compiler.interpreter import interpret
from engine.compiler.trace import Tracer, live
from engine.graph.model import Input, Layer, Model, Output
from engine.kernels.value import Value
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.single import one_layer, run
from tests.onnx_cases import disagreement
from tests.peer import open_session

onnxruntime.set_default_logger_severity(4)

Arrays = dict[str, np.ndarray]


def attend(
    q: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    bias: np.ndarray | float,
    scale: float,
    cap: float = 0.0,
) -> np.ndarray:
    """softmax(cap * tanh(scale * q k' / cap) + bias) v, (batch, heads, length, size), 0 for rows of -inf."""
    group = q.shape[1] // key.shape[1]
    key, value = (np.repeat(x.astype(np.float64), group, axis=1) for x in (key, value))
    scores = scale * np.einsum("bhid,bhjd->bhij", q.astype(np.float64), key)
    scores = cap * np.tanh(scores / cap) if cap else scores
    scores = scores + bias
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    shares = np.exp(scores - np.where(np.isneginf(top), 0.0, top))
    total = shares.sum(-1, keepdims=True)
    return np.einsum("bhij,bhjd->bhid", shares / np.where(total == 0, 1.0, total), value)


def visible(queries: int, keys: int, offset: int, left: int = -1, right: int = 0) -> np.ndarray:
    """0 where a query at `offset` + its index sees a key, -inf elsewhere."""
    ahead = np.arange(keys)[None, :] - (np.arange(queries)[:, None] + offset)
    hidden = (ahead > right if right >= 0 else False) | (ahead < -left if left >= 0 else False)
    return np.where(hidden, -np.inf, 0.0) * np.ones(ahead.shape)


SIZES: dict[str, tuple[str | int, ...]] = {
    "q": ("batch", "heads", "queries", "size"),
    "k": ("batch", "kv_heads", "keys", "size"),
    "v": ("batch", "kv_heads", "keys", "v_size"),
    "mask": ("mask_batch", 1, "queries", "keys"),
    "past_k": ("batch", "kv_heads", "past", "size"),
    "past_v": ("batch", "kv_heads", "past", "v_size"),
    "used": ("batch",),
}
VARIANTS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "plain": (("q", "k", "v"), {"softcap": 1.5}),
    "causal cache": (("q", "k", "v", "", "past_k", "past_v"), {"is_causal": 1, "scale": 0.7}),
    "bool mask": (("q", "k", "v", "mask"), {"left_window_size": 2}),
    "float mask": (("q", "k", "v", "mask", "", "", "used"), {"is_causal": 1}),
}


def open_model(variant: str) -> Model:
    """An Attention layer with every dimension left open."""
    names, attributes = VARIANTS[variant]
    kinds = {"mask": np.dtype(bool if variant == "bool mask" else np.float32), "used": np.dtype(np.int64)}
    inputs = tuple(
        Input(n, kinds.get(n, np.dtype(np.float32)), DynamicTensorShape(SIZES[n])) for n in names if n
    )
    outputs = ("y", "present_k", "present_v") if "past_k" in names else ("y",)
    layer = Layer("Attention", "it", names, outputs, attributes, version=25)
    return Model("one", inputs, tuple(Output(n, None, None) for n in outputs), (layer,), {}, {"": 25})


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, int]:
    """Sizes of everything, 1 and (for a cache) 0 among them."""
    small = st.integers(1, 3)
    found = {n: draw(small) for n in ("batch", "kv_heads")}
    found["heads"] = found["kv_heads"] * draw(small)
    found |= {n: draw(st.integers(1, 9)) for n in ("queries", "keys", "size", "v_size")}
    return found | {"past": draw(st.integers(0, 5)), "mask_batch": draw(st.sampled_from([1, found["batch"]]))}


def drawn(variant: str, n: dict[str, int], seed: int) -> Arrays:
    """Inputs of a variant at some sizes. Rows that see nothing are among the masks."""
    rng = np.random.default_rng(seed)
    names = [name for name in VARIANTS[variant][0] if name]
    shapes = {x: tuple(n[d] if isinstance(d, str) else d for d in SIZES[x]) for x in names}
    arrays: Arrays = {x: rng.normal(size=shapes[x]).astype(np.float32) for x in names}
    if "used" in arrays:
        arrays["used"] = rng.integers(0, n["keys"] + 1, shapes["used"])
        arrays["mask"][rng.random(shapes["mask"]) < 0.2] = -np.inf
    elif "mask" in arrays:
        arrays["mask"] = rng.random(shapes["mask"]) < 0.6
    return arrays


def expected(variant: str, x: Arrays) -> list[np.ndarray]:
    """The outputs by formula."""
    q, key, value = x["q"], x["k"], x["v"]
    scale, queries, keys = 1.0 / np.sqrt(q.shape[3]), q.shape[2], key.shape[2]
    if variant == "plain":
        return [attend(q, key, value, 0.0, scale, 1.5)]
    if variant == "causal cache":
        past = x["past_k"].shape[2]
        key, value = np.concatenate([x["past_k"], key], 2), np.concatenate([x["past_v"], value], 2)
        return [attend(q, key, value, visible(queries, keys + past, past), 0.7), key, value]
    if variant == "bool mask":
        bias = visible(queries, keys, 0, left=2, right=-1) + np.where(x["mask"], 0.0, -np.inf)
        return [attend(q, key, value, bias, scale)]
    bias = np.stack([visible(queries, keys, n - queries) for n in x["used"]])[:, None] + x["mask"]
    bias += np.where(np.arange(keys) < x["used"][:, None, None, None], 0.0, -np.inf)
    return [attend(q, key, value, bias, scale)]


@pytest.mark.spread
@pytest.mark.parametrize("variant", VARIANTS)
def test_any_sizes_on_every_backend(variant: str, channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(open_model(variant), channel)
    bound = 1e-5 if channel == "cpu" else 1e-4

    @settings(max_examples=8)
    @given(sizes(), st.integers(0, 99))
    def check(n: dict[str, int], seed: int) -> None:
        arrays = drawn(variant, n, seed)
        worker.schedule(arrays)
        for name, right in zip(("y", "present_k", "present_v"), expected(variant, arrays), strict=False):
            assert disagreement(worker.peek_output(name).download_to_array(), right) < bound, name

    check()


@settings(max_examples=60)
@given(st.sampled_from(sorted(VARIANTS)), sizes(), st.integers(0, 99))
def test_any_sizes_by_numpy(variant: str, n: dict[str, int], seed: int) -> None:
    arrays = drawn(variant, n, seed)
    found = interpret(open_model(variant), arrays)
    for name, right in zip(("y", "present_k", "present_v"), expected(variant, arrays), strict=False):
        assert disagreement(found[name], right) < 1e-5, name


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("heads", [(3, 3), (4, 2), (2, 1)], ids=str)
def test_heads_side_by_side(batch: int, heads: tuple[int, int], rng: np.random.Generator) -> None:
    """A batch of 1 is read where it lies, others are put in order first: the answer is the same."""
    own, shared = heads
    q, key, value = (rng.normal(size=(batch, n, 5, d)).astype(np.float32)
                     for n, d in ((own, 4), (shared, 4), (shared, 6)))  # fmt: skip
    flat = [x.transpose(0, 2, 1, 3).reshape(batch, 5, -1) for x in (q, key, value)]
    y, present_k, present_v = run("Attention", flat, {"q_num_heads": own, "kv_num_heads": shared}, outputs=3)
    right = attend(q, key, value, 0.0, 0.5)
    assert disagreement(y, right.transpose(0, 2, 1, 3).reshape(batch, 5, -1)) < 1e-5
    np.testing.assert_array_equal(present_k, key)
    np.testing.assert_array_equal(present_v, value)
    (alone,) = run("Attention", flat, {"q_num_heads": own, "kv_num_heads": shared})
    assert disagreement(alone, y) < 1e-6


def kernels(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """For each kernel that a model needs, "matmul" where backends may tune it."""
    trace = Tracer(model).trace(shapes)
    outputs = [v for o in model.outputs if isinstance(v := trace.values[o.name], Value)]
    computes = fuse_elementwise(live(trace.computes, outputs), outputs, 7)
    return ["" if c.hint is None else c.hint.kind for c in computes]


@pytest.mark.parametrize("variant", ["plain", "bool mask", "float mask"])
def test_scale_cap_and_masks_join_the_first_product(variant: str) -> None:
    n = {"q": (2, 4, 5, 8), "k": (2, 2, 6, 8), "v": (2, 2, 6, 3), "mask": (2, 1, 5, 6), "used": (2,)}
    model = open_model(variant)
    shapes = {i.name: n[i.name] for i in model.inputs}
    assert kernels(model, shapes) == ["matmul", "", "", "softmax", "matmul"]


def test_a_batch_of_one_moves_nothing_but_the_result(rng: np.random.Generator) -> None:
    x = rng.normal(size=(1, 5, 12)).astype(np.float32)
    model = one_layer("Attention", [x, x, x], {"q_num_heads": 3, "kv_num_heads": 3})
    shapes = {f"x{i}": (1, 5, 12) for i in range(3)}
    assert kernels(model, shapes) == ["matmul", "", "", "softmax", "matmul", ""]


@pytest.mark.parametrize(
    ("shapes", "attributes", "message"),
    [
        ([(2, 3, 4), (2, 3, 4), (2, 3, 4)], {}, "q_num_heads and kv_num_heads"),
        ([(2, 3, 4), (2, 3, 4), (2, 3, 4)], {"q_num_heads": 3, "kv_num_heads": 3}, "divide into 3 heads"),
        ([(1, 3, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)], {}, "3 query heads cannot share 2"),
        ([(1, 2, 4, 8), (1, 2, 4, 7), (1, 2, 4, 8)], {}, "do not fit together"),
        ([(1, 2, 4, 8), (1, 2, 4), (1, 2, 4, 8)], {}, "all of rank 3 or all of rank 4"),
        ([(1, 2, 4, 8)] * 3 + [(3, 4)], {}, "does not broadcast"),
        ([(1, 2, 4, 8)] * 3 + [(4, 5)], {}, "does not broadcast"),
        ([(1, 2, 4, 8)] * 3, {"qk_matmul_output_mode": 4}, "one of 0, 1, 2, 3"),
        ([(1, 2, 4, 8)] * 3, {"softmax_precision": 7}, "one of 1, 10, 11, 16"),
        ([(1, 2, 4, 8)] * 3, {"left_window_size": -2}, "must be -1"),
        ([(1, 2, 4, 8)] * 3 + [None, (1, 2, 4, 8)], {}, "together or neither"),
        ([(1, 2, 4, 8)] * 3 + [None, (1, 3, 4, 8), (1, 2, 4, 8)], {}, "a cache of shape"),
    ],
)
def test_wrong_use(shapes: list[tuple[int, ...] | None], attributes: dict[str, Any], message: str) -> None:
    arrays = [None if s is None else np.zeros(s, np.float32) for s in shapes]
    with pytest.raises(ShapeError, match=message):
        run("Attention", arrays, attributes)


def decoder(width: int = 12, heads: int = 4, kv_heads: int = 2) -> onnx.ModelProto:
    """One decoder layer: projections, rotary positions, causal attention over a cache, output projection."""
    rng = np.random.default_rng(3)
    size, longest = 6, 16
    angles = np.arange(longest)[:, None] / 10.0 ** np.linspace(0, 1, size // 2)
    weights = {
        "wq": rng.normal(size=(width, heads * size)) / 3,
        "wk": rng.normal(size=(width, kv_heads * size)) / 3,
        "wv": rng.normal(size=(width, kv_heads * size)) / 3,
        "wo": rng.normal(size=(heads * size, width)) / 4,
        "cos": np.cos(angles),
        "sin": np.sin(angles),
    }
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "wq"], ["q0"]),
        node("MatMul", ["x", "wk"], ["k0"]),
        node("MatMul", ["x", "wv"], ["v"]),
        node("RotaryEmbedding", ["q0", "cos", "sin", "at"], ["q"], num_heads=heads),
        node("RotaryEmbedding", ["k0", "cos", "sin", "at"], ["k"], num_heads=kv_heads),
        node("Attention", ["q", "k", "v", "", "past_k", "past_v"], ["a", "present_k", "present_v"],
             is_causal=1, q_num_heads=heads, kv_num_heads=kv_heads),
        node("MatMul", ["a", "wo"], ["o"]),
        node("Add", ["x", "o"], ["y"]),
    ]  # fmt: skip
    info = helper.make_tensor_value_info
    cache: Sequence[str | int] = ["b", kv_heads, "past", size]
    inputs: list[onnx.ValueInfoProto] = [
        info("x", TensorProto.FLOAT, ["b", "s", width]),
        info("at", TensorProto.INT64, ["b", "s"]),
        info("past_k", TensorProto.FLOAT, cache),
        info("past_v", TensorProto.FLOAT, cache),
    ]
    outputs = [info(n, TensorProto.FLOAT, None) for n in ("y", "present_k", "present_v")]
    tensors = [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@pytest.mark.spread
def test_a_decoder_feeds_its_cache_back(channel: str, make_worker: MakeWorker) -> None:
    """A prompt of 4 tokens into an empty cache, then one token after another."""
    source = decoder().SerializeToString()
    session = open_session(source)
    worker = make_worker(ModelLoader.load(source), channel)
    rng = np.random.default_rng(4)
    empty = np.zeros((2, 2, 0, 6), np.float32)
    theirs, ours = (empty, empty), (empty, empty)
    length = 0
    for step in (4, 1, 1, 1, 2):
        x = rng.normal(size=(2, step, 12)).astype(np.float32)
        at = np.broadcast_to(np.arange(length, length + step), (2, step)).copy()
        feeds: Arrays = {"x": x, "at": at}
        right = session.run(None, feeds | {"past_k": theirs[0], "past_v": theirs[1]})
        found = answers(worker, {"x": x, "at": at, "past_k": ours[0], "past_v": ours[1]})
        for a, b in zip(found, right, strict=True):
            assert disagreement(a, b) < (1e-5 if channel == "cpu" else 1e-4)
        theirs, ours = (right[1], right[2]), (found[1], found[2])
        length += step


CONTRIB = "com.microsoft"
LENGTH, WIDTH = 9, 16
MASKS: dict[str, np.ndarray] = {
    "seen": np.tril(np.ones((LENGTH, LENGTH), bool)),
    "bias": visible(LENGTH, LENGTH, 0).astype(np.float32),
    "lowest": np.array(-np.inf, np.float32),
    "last": np.array([LENGTH - 1], np.int32),
    "total": np.array(LENGTH, np.int32),
    "no_past": np.zeros((1, 2, 0, WIDTH // 2), np.float32),
}


def masked_layers() -> bytes:
    """Attention over the same q, k and v of two heads, causal in all the ways that there are."""
    node: Any = helper.make_node
    heads = {"q_num_heads": 2, "kv_num_heads": 2}
    cache = ["no_past", "no_past", "last", "total"]
    contrib: dict[str, Any] = {"domain": CONTRIB, "num_heads": 2}
    grouped = contrib | {"kv_num_heads": 2}
    nodes = [
        node("Attention", ["q", "k", "v"], ["causal"], is_causal=1, **heads),
        node("Attention", ["q", "k", "v", "seen"], ["by booleans"], **heads),
        node("Attention", ["q", "k", "v", "bias"], ["by numbers"], **heads),
        node("MultiHeadAttention", ["q", "k", "v"], ["contrib"], unidirectional=1, **contrib),
        node("GroupQueryAttention", ["q", "k", "v", *cache], ["grouped", "k1", "v1"], **grouped),
        node("Transpose", ["k"], ["across"], perm=[0, 2, 1]),
        node("MatMul", ["q", "across"], ["scores"]),
        node("Where", ["seen", "scores", "lowest"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["by layers"]),
    ]  # fmt: skip
    info = helper.make_tensor_value_info
    names = ["causal", "by booleans", "by numbers", "contrib", "grouped", "by layers"]
    graph = helper.make_graph(
        nodes, "masked", [info(n, TensorProto.FLOAT, [1, LENGTH, WIDTH]) for n in "qkv"],
        [info(n, TensorProto.FLOAT, None) for n in names],
        [numpy_helper.from_array(a, n) for n, a in MASKS.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(CONTRIB, 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


@pytest.mark.spread
def test_nan_reaches_nothing_that_does_not_see_it(channel: str, make_worker: MakeWorker) -> None:
    """Of q only its own row, of k only rows that see it, of v only its column."""
    source, at, column = masked_layers(), LENGTH - 2, 3
    session = open_session(source)
    names = [o.name for o in session.get_outputs()]
    worker = make_worker(ModelLoader.load(source), channel)
    rng = np.random.default_rng(8)
    clean = {n: rng.normal(size=(1, LENGTH, WIDTH)).astype(np.float32) for n in "qkv"}
    right = dict(zip(names, session.run(None, clean), strict=True))
    for part in "qkv":
        feeds = {n: a.copy() for n, a in clean.items()}
        feeds[part][0, at, column] = np.nan
        worker.schedule(feeds)
        for name in names:
            # The layers one by one have one head, the others two.
            head = WIDTH if name == "by layers" else WIDTH // 2
            reached = {"q": np.s_[:, at, :head], "k": np.s_[:, at:, :head], "v": np.s_[..., column]}[part]
            expected = right[name].copy()
            expected[reached] = np.nan
            found = worker.peek_output(name).download_to_array()
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=f"{part}, {name}")
