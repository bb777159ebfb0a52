"""onnxruntime's own attention layers, against onnxruntime; against NumPy where its CPU lacks a form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from engine import ModelLoader
from engine.base.errors import ShapeError
from engine.compiler.interpreter import interpret
from tests.engine.conftest import MakeWorker, answers
from tests.onnx_cases import disagreement
from tests.peer import open_session

onnxruntime.set_default_logger_severity(4)

Inputs = Sequence[np.ndarray | None]
BATCH, LENGTH, HEADS, SIZE = 2, 4, 3, 4
WIDTH = HEADS * SIZE


def layer(
    op_type: str,
    arrays: Inputs,
    attributes: dict[str, Any],
    outputs: int,
    dims: Mapping[int, str] = MappingProxyType({}),
) -> bytes:
    """A model of one layer of the domain; sizes in `dims` are left open under the names there."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, made, domain="com.microsoft", **attributes)
    inputs = []
    for name, a in zip(names, arrays, strict=True):
        if a is not None:
            shape = [dims.get(n, n) for n in a.shape]
            inputs.append(
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), shape)
            )
    results = [helper.make_tensor_value_info(n, 1, None) for n in made]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "one", inputs, results)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def named(arrays: Inputs) -> dict[str, np.ndarray]:
    return {f"x{i}": a for i, a in enumerate(arrays) if a is not None}


def theirs(op_type: str, arrays: Inputs, attributes: dict[str, Any], outputs: int = 1) -> list[np.ndarray]:
    """onnxruntime's answer."""
    source = layer(op_type, arrays, attributes, outputs)
    session = open_session(source)
    return [np.asarray(y) for y in session.run(None, named(arrays))]


def ours(op_type: str, arrays: Inputs, attributes: dict[str, Any], outputs: int = 1) -> list[np.ndarray]:
    """The engine's, by NumPy."""
    model = ModelLoader.load(layer(op_type, arrays, attributes, outputs))
    found = interpret(model, named(arrays))
    return [found[o.name] for o in model.outputs]


def agree(op_type: str, arrays: Inputs, attributes: dict[str, Any], outputs: int = 1) -> None:
    """Both give the same outputs."""
    pairs = zip(
        ours(op_type, arrays, attributes, outputs), theirs(op_type, arrays, attributes, outputs), strict=True
    )
    for position, (a, b) in enumerate(pairs):
        assert disagreement(a, b) < 1e-5, position


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def masks(keys: int) -> dict[str, np.ndarray]:
    """Every form of a padding mask that onnxruntime's CPU takes, for `LENGTH` queries."""
    rng = np.random.default_rng(9)
    seen = rng.integers(0, 2, (BATCH, LENGTH, keys))
    seen[..., 0] = 1
    forms = {
        "lengths": np.array([2, keys]),
        "ends and starts": np.array([2, keys, 1, 0]),
        "cumulative": np.array([2, keys, 0, 2, 6, 0, 2, 2 + keys]),
        "keys": seen[:, 0],
        "queries and keys": seen,
    }
    return {name: a.astype(np.int32) for name, a in forms.items()}


MASKS = tuple(masks(4))


# Attention


def attention_inputs(rng: np.random.Generator, **others: np.ndarray | None) -> list[np.ndarray | None]:
    """Input, weights, bias, and then the others by name."""
    names = ("mask_index", "past", "attention_bias")
    found = [floats(rng, BATCH, LENGTH, 6), floats(rng, 6, 3 * WIDTH), floats(rng, 3 * WIDTH)]
    return [*found, *(others.get(n) for n in names)]


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("mask", [None, *MASKS])
def test_attention_with_masks(unidirectional: int, mask: str | None, rng: np.random.Generator) -> None:
    arrays = attention_inputs(rng, mask_index=None if mask is None else masks(LENGTH)[mask])
    agree("Attention", arrays, {"num_heads": HEADS, "unidirectional": unidirectional})


@pytest.mark.parametrize("mask", [None, "keys", "queries and keys"])
def test_attention_with_past(mask: str | None, rng: np.random.Generator) -> None:
    given_mask = None if mask is None else masks(LENGTH + 3)[mask]
    arrays = attention_inputs(rng, mask_index=given_mask, past=floats(rng, 2, BATCH, HEADS, 3, SIZE))
    agree("Attention", arrays, {"num_heads": HEADS, "unidirectional": 1, "scale": 0.3}, 2)


@pytest.mark.parametrize("heads", [1, HEADS])
@pytest.mark.parametrize("batch", [1, BATCH])
def test_attention_with_a_bias_of_scores(heads: int, batch: int, rng: np.random.Generator) -> None:
    arrays = attention_inputs(rng, attention_bias=floats(rng, batch, heads, LENGTH, LENGTH))
    agree("Attention", arrays, {"num_heads": HEADS}, 2)


def test_attention_with_values_of_another_size(rng: np.random.Generator) -> None:
    arrays = [floats(rng, BATCH, LENGTH, 6), floats(rng, 6, 30), floats(rng, 30)]
    agree("Attention", arrays, {"num_heads": HEADS, "qkv_hidden_sizes": [12, 12, 6]})


def test_attention_without_a_bias(rng: np.random.Generator) -> None:
    arrays = attention_inputs(rng)
    arrays[2] = np.zeros_like(arrays[2])
    (right,) = theirs("Attention", arrays, {"num_heads": HEADS})
    (found,) = ours("Attention", [*arrays[:2]], {"num_heads": HEADS})
    assert disagreement(found, right) < 1e-5


def test_attention_with_a_mask_of_positions(rng: np.random.Generator) -> None:
    """(batch, 1, longest, longest) is read at the query's and the key's position."""
    wide = rng.integers(0, 2, (BATCH, 1, 9, 9)).astype(np.int32)
    wide[..., 0] = 1
    past = floats(rng, 2, BATCH, HEADS, 3, SIZE)
    arrays = attention_inputs(rng, mask_index=wide, past=past)
    same = [*arrays]
    same[3] = np.ascontiguousarray(wide[:, 0, 3 : 3 + LENGTH, : 3 + LENGTH])
    (found,), (right,) = (ours("Attention", a, {"num_heads": HEADS}) for a in (arrays, same))
    assert disagreement(found, right) < 1e-6


# MultiHeadAttention


def mha_inputs(rng: np.random.Generator, **others: np.ndarray | None) -> list[np.ndarray | None]:
    """Query, key and value (of 5 keys), and then the others by name."""
    names = ("bias", "key_padding_mask", "attention_bias", "past_key", "past_value", "past_sequence_length")
    found = [floats(rng, BATCH, LENGTH, WIDTH), floats(rng, BATCH, 5, WIDTH), floats(rng, BATCH, 5, WIDTH)]
    return [*found, *(others.get(n) for n in names)]


@pytest.mark.parametrize("mask", [None, *(m for m in MASKS if m != "ends and starts")])
@pytest.mark.parametrize("lowered", [-10000.0, -1.5])
def test_mha_with_masks(mask: str | None, lowered: float, rng: np.random.Generator) -> None:
    given_mask = None if mask is None else masks(5)[mask]
    arrays = mha_inputs(
        rng, bias=floats(rng, 3 * WIDTH), key_padding_mask=given_mask, attention_bias=floats(rng, 1, 1, 4, 5)
    )
    agree("MultiHeadAttention", arrays, {"num_heads": HEADS, "mask_filter_value": lowered}, 4)


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_mha_with_past(unidirectional: int, rng: np.random.Generator) -> None:
    past = [floats(rng, BATCH, HEADS, 3, SIZE) for _ in range(2)]
    arrays = mha_inputs(rng, past_key=past[0], past_value=past[1])
    # onnxruntime lets the last query see all keys: as many new keys as queries, so that it may.
    arrays[1:3] = [floats(rng, BATCH, LENGTH, WIDTH) for _ in range(2)]
    agree("MultiHeadAttention", arrays, {"num_heads": HEADS, "unidirectional": unidirectional}, 3)


def test_mha_with_a_cache_of_a_fixed_size(rng: np.random.Generator) -> None:
    past = [floats(rng, BATCH, HEADS, 8, SIZE) for _ in range(2)]
    arrays = mha_inputs(
        rng, past_key=past[0], past_value=past[1], past_sequence_length=np.array([3], np.int32)
    )
    arrays[:3] = [floats(rng, BATCH, 1, WIDTH) for _ in range(3)]
    agree("MultiHeadAttention", arrays, {"num_heads": HEADS}, 3)


@pytest.mark.parametrize("biased", [False, True])
def test_mha_over_an_encoder_s_keys(biased: bool, rng: np.random.Generator) -> None:
    arrays = mha_inputs(rng, bias=floats(rng, 3 * WIDTH) if biased else None)
    arrays[1:3] = [floats(rng, BATCH, HEADS, 5, SIZE) for _ in range(2)]
    agree("MultiHeadAttention", arrays, {"num_heads": HEADS})


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kinds", [2, 3])
def test_mha_of_packed_operands(biased: bool, kinds: int, rng: np.random.Generator) -> None:
    """onnxruntime's CPU takes them apart only."""
    packed = floats(rng, BATCH, LENGTH, HEADS, kinds, SIZE)
    bias = floats(rng, 3 * WIDTH) if biased else None
    apart = [packed[:, :, :, n].reshape(BATCH, LENGTH, WIDTH) for n in range(kinds)]
    query = floats(rng, BATCH, LENGTH, WIDTH)
    whole: Inputs = [packed, None, None, bias] if kinds == 3 else [query, packed, None, bias]
    (right,) = theirs(
        "MultiHeadAttention", [*([query] if kinds == 2 else []), *apart, bias], {"num_heads": HEADS}
    )
    (found,) = ours("MultiHeadAttention", whole, {"num_heads": HEADS})
    assert disagreement(found, right) < 1e-5


# GroupQueryAttention


GQA: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"do_rotary": 1},
    "rotary in pairs": {"do_rotary": 1, "rotary_interleaved": 1},
    "window": {"local_window_size": 2},
    "capped": {"softcap": 1.5, "scale": 0.4},
    "smooth": {"smooth_softmax": 1},
}


def gqa_inputs(
    rng: np.random.Generator,
    lengths: Sequence[int],
    new: int,
    past: int,
    packed: bool = False,
    size: int = 16,
) -> list[np.ndarray | None]:
    """4 query heads for 2 key heads; `lengths` are the rows that each sample has in the end."""
    batch = len(lengths)
    q, key, value = floats(rng, batch, new, 4 * size), *(floats(rng, batch, new, 2 * size) for _ in range(2))
    angles = np.arange(32)[:, None] * 0.5 ** np.arange(size // 2)
    cache = [floats(rng, batch, 2, past, size) for _ in range(2)]
    whole: list[np.ndarray | None] = [np.concatenate([q, key, value], 2), None, None]
    return [
        *(whole if packed else [q, key, value]),
        *cache,
        np.array(lengths, np.int32) - 1,
        np.array(max(lengths), np.int32),
        np.cos(angles).astype(np.float32),
        np.sin(angles).astype(np.float32),
    ]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("variant", GQA)
def test_gqa_prompt(variant: str, packed: bool, rng: np.random.Generator) -> None:
    """Into an empty cache, all samples equally long."""
    arrays = gqa_inputs(rng, [5, 5], 5, 0, packed)
    agree("GroupQueryAttention", arrays, {"num_heads": 4, "kv_num_heads": 2} | GQA[variant], 3)


@pytest.mark.parametrize("variant", GQA)
def test_gqa_step(variant: str, rng: np.random.Generator) -> None:
    """One token for each of two samples that have come to different lengths."""
    arrays = gqa_inputs(rng, [6, 4], 1, 5)
    attributes = {"num_heads": 4, "kv_num_heads": 2} | GQA[variant]
    found, right = (
        ours("GroupQueryAttention", arrays, attributes, 3),
        theirs("GroupQueryAttention", arrays, attributes, 3),
    )
    assert disagreement(found[0], right[0]) < 1e-5
    for a, b in zip(found[1:], right[1:], strict=True):
        assert a.shape == b.shape
        for sample, length in enumerate((6, 4)):
            assert disagreement(a[sample, :, :length], b[sample, :, :length]) < 1e-5


def test_gqa_several_tokens_behind_a_cache(rng: np.random.Generator) -> None:
    arrays = gqa_inputs(rng, [9], 3, 6)
    agree("GroupQueryAttention", arrays, {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}, 3)


def test_gqa_with_bias_sink_and_scores(rng: np.random.Generator) -> None:
    arrays = gqa_inputs(rng, [5, 5], 5, 0)
    arrays += [None, floats(rng, 1, 4, 5, 5), floats(rng, 4)]
    agree("GroupQueryAttention", arrays, {"num_heads": 4, "kv_num_heads": 2, "qk_output": 2}, 4)


def test_gqa_prompts_of_different_lengths(rng: np.random.Generator) -> None:
    """What follows a shorter prompt is padding, whose outputs mean nothing."""
    arrays = gqa_inputs(rng, [3, 5], 5, 0)
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    (found,), (right,) = (
        ours("GroupQueryAttention", arrays, attributes),
        theirs("GroupQueryAttention", arrays, attributes),
    )
    assert disagreement(found[0, :3], right[0, :3]) < 1e-5
    assert disagreement(found[1], right[1]) < 1e-5


# RotaryEmbedding


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("one_position", [False, True])
@pytest.mark.parametrize("rank", [3, 4])
def test_rotary(interleaved: int, one_position: bool, rank: int, rng: np.random.Generator) -> None:
    x = floats(rng, 2, 5, 24) if rank == 3 else floats(rng, 2, 3, 5, 8)
    angles = np.arange(12)[:, None] * 0.5 ** np.arange(4)
    at = np.array([4]) if one_position else rng.integers(0, 12, (2, 5))
    arrays = [x, at, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]
    agree("RotaryEmbedding", arrays, {"interleaved": interleaved})


# On every backend


@pytest.mark.spread
def test_mha_on_every_backend(channel: str, make_worker: MakeWorker) -> None:
    """A biased decoder block with padding and a growing cache, at any batch and length."""
    rng = np.random.default_rng(1)

    def drawn(batch: int, new: int, past: int) -> list[np.ndarray | None]:
        arrays = [floats(rng, batch, new, WIDTH) for _ in range(3)]
        seen = rng.integers(0, 2, (batch, past + new)).astype(np.int32)
        seen[:, 0] = 1
        cache = [floats(rng, batch, HEADS, past, SIZE) for _ in range(2)]
        return [*arrays, floats(rng, 3 * WIDTH), seen, None, *cache]

    attributes = {"num_heads": HEADS, "unidirectional": 1}
    model = ModelLoader.load(
        layer("MultiHeadAttention", drawn(2, 5, 6), attributes, 3, {2: "b", 5: "s", 6: "p", 11: "t"})
    )
    worker = make_worker(model, channel)

    @settings(max_examples=6)
    @given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 4))
    def check(batch: int, new: int, past: int) -> None:
        arrays = drawn(batch, new, past)
        right = theirs("MultiHeadAttention", arrays, attributes, 3)
        for n, (a, b) in enumerate(zip(answers(worker, named(arrays)), right, strict=True)):
            assert disagreement(a, b) < (1e-5 if channel == "cpu" else 1e-4), n

    check()


def test_gqa_generates_on_every_backend(channel: str, make_worker: MakeWorker) -> None:
    """A prompt, then tokens one by one; the cache is fed back."""
    rng = np.random.default_rng(2)
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    model = ModelLoader.load(
        layer("GroupQueryAttention", gqa_inputs(rng, [5] * 3, 5, 0), attributes, 3, {3: "b", 5: "s", 0: "p"})
    )
    worker = make_worker(model, channel)
    bound = 1e-5 if channel == "cpu" else 1e-4
    caches: list[list[np.ndarray]] = [[], []]
    for new, total in ((5, 5), (1, 6), (1, 7), (1, 8)):
        arrays = gqa_inputs(rng, [total] * 3, new, 0)
        both = [[*arrays[:3], *(cache or arrays[3:5]), *arrays[5:]] for cache in caches]
        right = theirs("GroupQueryAttention", both[0], attributes, 3)
        found = answers(worker, named(both[1]))
        for n, (a, b) in enumerate(zip(found, right, strict=True)):
            assert disagreement(a, b) < bound, (total, n)
        caches = [right[1:], found[1:]]


@pytest.mark.parametrize(
    ("op_type", "shapes", "attributes", "message"),
    [
        ("Attention", [(2, 4, 6), (5, 36)], {"num_heads": 3}, "takes .batch, length, inputs."),
        ("Attention", [(2, 4, 6), (6, 36), (35,)], {"num_heads": 3}, "each of 36 columns"),
        ("Attention", [(2, 4, 6), (6, 36)], {"num_heads": 5}, "do not divide"),
        ("Attention", [(2, 4, 6), (6, 36), None, (3, 3)], {"num_heads": 3}, "a mask of shape"),
        ("Attention", [(2, 4, 6), (6, 36)], {"num_heads": 3, "do_rotary": 1}, "not supported"),
        ("MultiHeadAttention", [(2, 4, 12)], {"num_heads": 3}, "needs a key"),
        ("MultiHeadAttention", [(2, 4, 12), (2, 5, 12)], {"num_heads": 3}, "needs a value"),
        ("MultiHeadAttention", [(2, 4, 12), (2, 5, 12), (2, 5, 12)], {"num_heads": 5}, "does not divide"),
        ("MultiHeadAttention", [(2, 4, 3, 2, 4)], {"num_heads": 3}, "takes 3 kinds"),
        (
            "GroupQueryAttention",
            [(2, 4, 12), None, None, None, None, (2,), (1,)],
            {"num_heads": 3, "kv_num_heads": 2},
            "does not divide",
        ),
        ("RotaryEmbedding", [(2, 4, 12), (3,), (9, 2), (9, 2)], {}, "do not fit"),
    ],
)
def test_wrong_use(
    op_type: str, shapes: list[tuple[int, ...] | None], attributes: dict[str, Any], message: str
) -> None:
    arrays = [None if s is None else np.zeros(s, np.float32) for s in shapes]
    with pytest.raises((ShapeError, onnx.checker.ValidationError), match=message):
        ours(op_type, arrays, attributes)
