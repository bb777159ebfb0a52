"""onnxruntime's own operators against onnxruntime, over their attributes and forms of inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from engine.compiler.interpreter import interpret
from engine.operators import OPERATORS
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.contrib.language_layers import (
    SIZE,
    caches,
    draw,
    gates,
    half,
    joined_sequences,
    queries,
    rotations,
    routers,
    states,
    windows,
)
from tests.engine.operators.contrib.layers import Arrays, Case

real, u8, i8, ids, steps = draw.real, draw.u8, draw.i8, draw.ids, draw.steps


# Tables of packed integers


def packed_rows(columns: int, blocks: int, bits: int) -> int:
    return -(-columns * blocks * bits // 8)


def tables() -> Iterator[tuple[str, Case]]:
    at = np.array([[0, 3, -1], [2, 5, 40]])
    for bits in (2, 4, 8):
        settings = {"bits": bits, "block_size": 16}
        words, scales, zeros = u8(7, 64 * bits // 8), steps(7, 4), u8(7, 4 * bits // 8)
        yield (
            f"table of {bits} bits",
            Case("GatherBlockQuantized", (words, at, scales), settings, known=(0, 2)),
        )
        yield (
            f"table of {bits} bits, zeros",
            Case("GatherBlockQuantized", (words, at.astype(np.int32), scales, zeros), settings),
        )
    odd = u8(7, 3, 40), at, steps(7, 3, 3).astype(np.float16), u8(7, 3, 2)
    yield "table, odd", Case("GatherBlockQuantized", odd, {"block_size": 32, "quantize_axis": 2})
    int4, uint4 = (draw.ids(16, *s).astype(t) for s, t in (((7, 40), "int8"), ((40, 7), "uint8")))
    yield (
        "table of int4",
        Case(
            "GatherBlockQuantized",
            ((int4 - 8).astype(ml_dtypes.int4), at, steps(7, 3)),
            {"block_size": 16},
            known=(0, 2),
        ),
    )
    yield (
        "table of uint4, columns",
        Case(
            "GatherBlockQuantized",
            (uint4.astype(ml_dtypes.uint4), at, steps(3, 7), ids(16, 3, 7).astype(ml_dtypes.uint4)),
            {"block_size": 16, "quantize_axis": 0, "gather_axis": 1},
            known=(0, 2, 3),
        ),
    )
    floats = real(7, 40).astype(ml_dtypes.float8_e4m3fn)
    yield (
        "table of float8",
        Case("GatherBlockQuantized", (floats, at, steps(1, 1)), {"block_size": 0}, known=(0, 2)),
    )


# Mixtures of experts

ROWS, HIDDEN, INNER, EXPERTS = 6, 32, 64, 5


def experts() -> Iterator[tuple[str, Case]]:
    x, router = real(ROWS, HIDDEN), real(ROWS, EXPERTS)
    first, second = real(EXPERTS, INNER, HIDDEN), real(EXPERTS, HIDDEN, INNER)
    biases = real(EXPERTS, INNER), real(EXPERTS, HIDDEN)
    for name in ("relu", "gelu", "silu", "identity"):
        for normalize in (0, 1):
            settings = {"k": 2, "normalize_routing_weights": normalize, "activation_type": name}
            arrays = (x, router, first, biases[0], second, biases[1])
            yield f"experts, {name} {normalize}", Case("MoE", arrays, settings)
    yield "experts, no bias", Case("MoE", (x.reshape(2, 3, -1), router, first, None, second), {"k": 3})
    gated: dict[str, Any] = {
        "activation_type": "swiglu",
        "swiglu_fusion": 1,
        "activation_alpha": 1.7,
        "activation_beta": 1.0,
    }
    wide = x, router, real(EXPERTS, 2 * INNER, HIDDEN), real(EXPERTS, 2 * INNER), second, biases[1]
    yield "experts, gated", Case("MoE", wide, {"k": 2, **gated})
    yield "experts, limited", Case("MoE", wide, {"k": 2, **gated, "swiglu_limit": 1.5})
    for bits in (2, 4, 8):
        for block in (0, 16):
            for zeros in (False, True):
                if bits == 8 and block:
                    continue  # onnxruntime rounds what it multiplies by them to 8 bits
                name = f"experts of {bits} bits, blocks of {block}" + ", zeros" * zeros
                yield name, Case("QMoE", (x, router, *small_experts(bits, block, zeros)), {
                    "k": 2, "expert_weight_bits": bits, "weights_prepacked": 0, **gated,
                    **({"block_size": block} if block else {}),
                })  # fmt: skip
    chosen = (x, router, *small_experts(4, 0, False), *[None] * 6, np.abs(real(ROWS, EXPERTS)))
    for normalize in (0, 1):
        settings = {"k": 2, "normalize_routing_weights": normalize, **gated}
        yield f"experts, weights of their own {normalize}", Case("QMoE", chosen, settings)
    yield "experts, half", Case("QMoE", half(*chosen[:8]), {"k": 1, **gated}, bound=2e-3)


def small_experts(bits: int, block: int, zeros: bool) -> list[np.ndarray | None]:
    """Both layers of experts with packed weights; the first is twice as wide."""
    found: list[np.ndarray | None] = []
    points: list[np.ndarray | None] = [None] * 3
    for rows, columns in ((2 * INNER, HIDDEN), (HIDDEN, INNER)):
        blocks = columns // block if block else 1
        scales = steps(EXPERTS, rows, blocks) if block else steps(EXPERTS, rows)
        found += [u8(EXPERTS, rows, columns * bits // 8), scales * np.float32(0.5), real(EXPERTS, rows)]
        points.append(u8(EXPERTS, rows, -(-blocks * bits // 8)) if block else u8(EXPERTS, rows * bits // 8))
    return found + points if zeros else found


# Signals


def signals() -> Iterator[tuple[str, Case]]:
    frame, window = np.array(16), np.hanning(16).astype(np.float32)
    for onesided in (0, 1):
        yield (
            f"frames of a signal without a last axis {onesided}",
            Case(
                "STFT",
                (real(2, 40), np.array(8), window, frame),
                {"onesided": onesided},
                known=(1, 3),
                domain="",
            ),
        )


# Quantised layers


def number(value: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


def quantised() -> Iterator[tuple[str, Case]]:
    arrays: Arrays
    zeros = number(120, np.uint8), number(3, np.int8)
    masks = (None, np.array([3, 4], np.int32), np.array([[1, 1, 0, 0], [1, 1, 1, 1]], np.int32))
    for n, mask in enumerate(masks):
        arrays = (u8(2, 4, 6), i8(6, 36), real(36), number(0.02), number(0.01), mask, *zeros)
        yield f"attention of integers, mask {n}", Case("QAttention", arrays, {"num_heads": 3}, known=(1, 7))
    by_column = (u8(2, 4, 6), u8(6, 36), real(36), number(0.02), steps(36), None, zeros[0], u8(36))
    causal = {"num_heads": 3, "unidirectional": 1}
    yield "attention of integers by column", Case("QAttention", by_column, causal, known=(1,))
    past = (
        u8(2, 4, 6),
        i8(6, 36),
        real(36),
        number(0.02),
        number(0.01),
        None,
        *zeros,
        real(2, 2, 3, 5, 4),
    )
    yield "attention of integers with past", Case("QAttention", past, causal, 2, known=(1, 7))
    for segments in (True, False):
        some = (lambda a: a) if segments else (lambda a: None)
        arrays = (
            ids(9, 2, 4, dtype=np.int32), some(ids(2, 2, 4, dtype=np.int32)), u8(9, 8), u8(6, 8),
            some(u8(2, 8)), u8(8), u8(8), masks[2], number(0.02), number(0.03), some(number(0.02)),
            number(0.01), number(0.02), number(100, np.uint8), number(120, np.uint8),
            some(number(110, np.uint8)), number(0, np.uint8), number(99, np.uint8),
        )  # fmt: skip
        name = f"embeddings of integers, segments {segments}"
        yield name, Case("QEmbedLayerNormalization", arrays, {"epsilon": 1e-5}, 2)
    planes = (u8(1, 7, 9, 4), number(0.02), zeros[0], i8(6, 4, 3, 3), steps(6), np.zeros(6, np.int8))
    result = (number(0.5), zeros[0], draw.rng.integers(-900, 900, 6).astype(np.int32))
    window = {"pads": [1, 1, 1, 1], "strides": [2, 1], "channels_last": 1}
    yield (
        "convolution, last",
        Case("QLinearConv", (*planes, *result), window, known=(3, 4, 5, 8), levels=True),
    )
    sides = (draw.rng.integers(-300, 300, s).astype(np.int16) for s in ((2, 3, 5), (5, 4)))
    yield "products of 16 bits", Case("MatMulInteger16", tuple(sides))
    for kind in (0, 1):
        settings = {"K": 48, "N": 6, "block_size": 16, "quant_type": kind}
        yield (
            f"4-bit floats {kind}",
            Case("MatMulBnb4", (real(2, 3, 48), u8(144), steps(18)), settings, known=(1, 2)),
        )


def assigned() -> Iterator[tuple[str, Case]]:
    """Blocks that a table names for each column; with it, onnxruntime takes no notice of zero points."""
    table = draw.rng.permutation(np.repeat(np.arange(4), 16)).astype(np.int32)
    arrays = (real(2, 3, 64), u8(6, 4, 8), steps(6, 4), None, table)
    settings = {"K": 64, "N": 6, "bits": 4, "block_size": 16}
    yield "blocks by a table", Case("MatMulNBits", arrays, settings, known=(1, 2, 4))


def recurrent() -> Iterator[tuple[str, Case]]:
    """One sequence: onnxruntime's threads quantise parts of a batch by ranges of their own."""
    arrays: Arrays
    for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        for integers, zero in ((u8, 128), (i8, 0)):
            for per_column in (False, True):
                shape = (count, 24) if per_column else (count,)
                scales = [steps(*shape) * np.float32(0.05) for _ in "wr"]
                point = np.full(shape, zero, np.uint8 if zero else np.int8)
                arrays = (
                    real(5, 1, 7), integers(count, 7, 24), integers(count, 6, 24), real(count, 48), None,
                    real(count, 1, 6), real(count, 1, 6), None, scales[0], point, scales[1], point,
                )  # fmt: skip
                name = f"LSTM {direction}, {integers.__name__} {per_column}"
                settings = {"direction": direction, "hidden_size": 6}
                yield (
                    name,
                    Case("DynamicQuantizeLSTM", arrays, settings, 3, known=(1, 2, 8, 9, 10, 11), bound=2e-3),
                )


# Decoders


def decoders() -> Iterator[tuple[str, Case]]:
    arrays: Arrays
    heads, size, width = 3, 4, 12
    new = [real(2, 1, width) for _ in "qkv"]
    caches = [real(2, heads, 9, size) for _ in "kv"]
    used, beams = np.array([5], np.int32), ids(2, 1, 2, 9, dtype=np.int32)

    def meant(n: int, y: np.ndarray) -> np.ndarray:
        return (y if n == 0 else y[:, :, :6]).reshape(-1)

    shared = {"num_heads": heads, "past_present_share_buffer": 1}
    for bias in (None, real(3 * width)):
        name = "" if bias is None else ", bias"
        arrays = (*new, None, None, *caches, used, None, None, bias)
        yield f"one token{name}", Case("DecoderMaskedMultiHeadAttention", arrays, shared, 3, meant=meant)
        arrays = (*new, None, None, *caches, used, np.array([2], np.int32), beams, bias)
        yield (
            f"one token of beams{name}",
            Case("DecoderMaskedMultiHeadAttention", arrays, shared, 3, meant=meant),
        )
        encoder = [real(2, heads, 7, size) for _ in "kv"]
        arrays = (new[0], *encoder, *[None] * 7, bias)
        yield (
            f"one token of an encoder{name}",
            Case("DecoderMaskedMultiHeadAttention", arrays, {"num_heads": heads}),
        )
    arrays = (*new, None, None, None, *caches, used, beams)
    yield "a step of beams", Case("MultiHeadAttention", arrays, {"num_heads": heads}, 3, meant=meant)


# Older layers, and those for the host


def older() -> Iterator[tuple[str, Case]]:
    arrays: Arrays
    settings: dict[str, Any]
    x = real(3, 5) * np.float32(9)
    for name, settings in (
        ("Affine", {"alpha": 0.5, "beta": 2.0}),
        ("Scale", {"scale": 0.5}),
        ("ScaledTanh", {"alpha": 0.5, "beta": 2.0}),
        ("ParametricSoftplus", {"alpha": 0.5, "beta": 2.0}),
    ):
        yield name, Case(name, (x,), settings, domain="", opset=9)
    planes = real(1, 2, 7, 9)
    yield "cut", Case("Crop", (planes,), {"border": [1, 2, 3, 1]}, domain="", opset=9)
    yield "cut, size", Case("Crop", (planes,), {"border": [1, 2, 3, 1], "scale": [3, 4]}, domain="", opset=9)
    ends = (real(5, 6), np.array([1, -3]), np.array([4, 100]))
    yield "slice", Case("DynamicSlice", ends, known=(1, 2), domain="", opset=9)
    for axis in (-1, 0, 1):
        settings = {"dim": axis, "size": 3, "step": 2}
        yield f"windows along {axis}", Case("UnfoldTensor", (real(5, 6, 7),), settings)
    boxes = np.array(
        [[0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], [-0.2, 0.1, 1.2, 0.6], [0.9, 0.8, 0.1, 0.2]], np.float32
    )
    of = np.array([0, 1, 1, 0], np.int32)
    for mode in ("bilinear", "nearest"):
        for size in ([4, 5], [1, 3]):
            arrays = (real(2, 3, 8, 9), boxes, of, np.array(size, np.int32))
            settings = {"mode": mode, "extrapolation_value": -7.0}
            yield f"boxes, {mode} {size}", Case("CropAndResize", arrays, settings, known=(3,))
    for count in (1, 2, 3, 13):
        arrays = (ids(4, 3, 12), real(3, 9))

        def meant(n: int, y: np.ndarray) -> np.ndarray:
            return np.nan_to_num(y, neginf=-99.0)

        yield f"runs of {count}", Case("NGramRepeatBlock", arrays, {"ngram_size": count}, meant=meant)


def for_the_host() -> Iterator[tuple[str, Case]]:
    arrays: Arrays
    settings: dict[str, Any]
    yield "different", Case("Unique", (np.array([2, 1, 1, 3, 4, 3], np.float32),), {}, 3)
    for name, costs in (("costs", real(5, 7)), ("equal costs", ids(2, 1, 6, 8).astype(np.float32))):
        yield f"path, {name}", Case("DynamicTimeWarping", (costs,))
    source = np.array([5, 3, 8, 2, 9, 3, 8, 1])
    for tokens, at, guess in (
        ([7, 2], 0, [5, 3, 8, 2, 9, 3, 8, 1, 4]), ([1, 5], 1, [3, 8, 2, 9, 3, 8, 1, 6]), ([3, 8, 1], 0, None),
        ([9, 3, 8], 0, None), ([2], 0, None), ([4], 0, None),
    ):  # fmt: skip
        arrays = (source, np.array(tokens), np.array(at), *([] if guess is None else [np.array(guess)]))
        yield f"where {tokens} part", Case("BifurcationDetector", arrays, {}, 2)
    for dtype in (np.int64, np.int32):
        text, past = ids(6, 2, 9, dtype=dtype), ids(6, 2, 2, dtype=dtype)
        factors, sizes = np.array([7919, 104729, 1299709], dtype), np.array([97, 89, 83, 79], dtype)
        segments = np.array([[0] * 4 + [1] * 5, [0] * 2 + [1] * 3 + [2] * 4], np.int32)
        offsets = np.array([0, 97, 186, 269], dtype)
        settings = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 0, "reset_on_eos": 1}
        for n, more in enumerate(
            ((), (past,), (past, offsets, np.array(3, dtype)), (past, offsets, np.array(3, dtype), segments))
        ):
            arrays = (text, factors, sizes, *more)
            yield f"hashes of runs {n}, {dtype.__name__}", Case("NGramHashMapping", arrays, settings, 2)


FAMILIES = (
    tables, experts, windows, caches, signals, rotations, gates, routers, joined_sequences, states, quantised,
    assigned, recurrent, decoders, older, for_the_host,
)  # fmt: skip
CASES = dict(case for family in FAMILIES for case in family())
ON_BACKENDS = ("table of 4 bits, zeros", "window of 5 in 8: [30], 4")
"""A sample for the quick suite; the long one runs all."""


def is_for_host(name: str) -> bool:
    """Whether the operator runs on the CPU whatever the backend."""
    case = CASES[name]
    operator = OPERATORS.find(case.domain, case.op_type, case.opset if not case.domain else 1)
    return operator is not None and operator.kind == "numpy"


@pytest.mark.parametrize("name", CASES)
def test_the_formulas_give_onnxruntime_s_answer(name: str) -> None:
    case = CASES[name]
    found = interpret(case.model(), case.feeds())
    case.check([found[f"y{n}"] for n in range(case.outputs)], 1e-5)


def test_queries_and_keys_are_normalised_before_they_are_turned() -> None:
    """onnxruntime's CPU refuses the weights of norms; with rows that are normalised already it agrees."""
    plain = queries([5, 5], 5, 8, do_rotary=1)
    weights = [real(SIZE), real(SIZE)]
    arrays = [*plain.arrays, *[None] * (14 - len(plain.arrays)), *weights]
    done = [*plain.arrays]
    for n, weight in enumerate(weights):
        x = plain.arrays[n]
        assert x is not None
        heads = x.reshape(2, 5, -1, SIZE)
        root = np.sqrt((heads**2).mean(-1, keepdims=True) + 0.01)
        done[n] = (heads / root * weight).reshape(x.shape).astype(np.float32)
    case = plain._replace(arrays=tuple(arrays), attributes={**plain.attributes, "qk_norm_epsilon": 0.01})
    found = interpret(case.model(), case.feeds())
    plain._replace(arrays=tuple(done)).check([found[f"y{n}"] for n in range(3)], 1e-5)


def on_backend(name: str, channel: str, make_worker: MakeWorker) -> None:
    case = CASES[name]
    case.check(answers(make_worker(case.model(), channel), case.feeds()), 1e-5 if channel == "cpu" else 1e-4)


@pytest.mark.spread
@pytest.mark.parametrize("name", ON_BACKENDS)
def test_backends_give_onnxruntime_s_answer(name: str, channel: str, make_worker: MakeWorker) -> None:
    on_backend(name, channel, make_worker)


@pytest.mark.long
@pytest.mark.parametrize("name", [n for n in CASES if n not in ON_BACKENDS and not is_for_host(n)])
def test_backends_give_onnxruntime_s_answer_to_all(name: str, channel: str, make_worker: MakeWorker) -> None:
    on_backend(name, channel, make_worker)
