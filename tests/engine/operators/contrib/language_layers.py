"""Cases of onnxruntime's layers of language models: attention, caches, gates, states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.engine.operators.contrib.layers import Arrays, Case, Draw

draw = Draw(5)
real, u8, i8, ids, steps = draw.real, draw.u8, draw.i8, draw.ids, draw.steps
SIZE = 16


def half(*arrays: np.ndarray | None) -> tuple[np.ndarray | None, ...]:
    """Floats in half precision."""
    return tuple(a.astype(np.float16) if a is not None and a.dtype == np.float32 else a for a in arrays)


GQA = {"num_heads": 4, "kv_num_heads": 2}


def gqa(lengths: list[int], new: int, past: int, cache: Any = np.float32) -> list[np.ndarray | None]:
    """Samples that have `lengths` tokens in the end, `new` of which are given."""
    batch, angles = len(lengths), np.arange(64)[:, None] * 0.5 ** np.arange(SIZE // 2)
    if cache is np.float32:
        stored = [real(batch, 2, past, SIZE) for _ in range(2)]
    else:
        stored = [
            i8(batch, 2, past, SIZE) if cache is np.int8 else u8(batch, 2, past, SIZE // 2) for _ in "kv"
        ]
    return [
        *(real(batch, new, heads * SIZE) for heads in (4, 2, 2)),
        *stored,
        np.array(lengths, np.int32) - 1,
        np.array(max(lengths), np.int32),
        *(f(angles).astype(np.float32) for f in (np.cos, np.sin)),
    ]


def resident(total: int, capacity: int, window: int) -> int:
    """How many tokens a cache of the size of a window holds."""
    gap = capacity - window + 1
    return total if total <= capacity else total - gap * -(-(total - capacity) // gap)


def queries(
    lengths: list[int], new: int, past: int, others: dict[int, np.ndarray] | None = None,
    cache: Any = np.float32, rows: list[int] | None = None, **settings: Any,
) -> Case:  # fmt: skip
    """A layer whose outputs count for the first `rows` tokens, and whose cache does so far as it is used."""
    arrays = gqa(lengths, new, past, cache)
    others = others or {}
    arrays += [None] * (max(others, default=0) - len(arrays) + 1)
    for position, array in others.items():
        arrays[position] = array
    used, counts = lengths, rows or [new] * len(lengths)
    if settings.get("sliding_window_cache"):
        used = [resident(n, past, settings["local_window_size"]) for n in lengths]

    def meant(n: int, y: np.ndarray) -> np.ndarray:
        parts = (
            [y[i, :c] for i, c in enumerate(counts)] if n == 0 else [y[i, :, :u] for i, u in enumerate(used)]
        )
        return np.concatenate([p.reshape(-1) for p in parts])

    return Case("GroupQueryAttention", tuple(arrays), {**GQA, **settings}, 3, meant=meant)


def windows() -> Iterator[tuple[str, Case]]:
    for capacity, window in ((6, 6), (8, 5), (7, 3)):
        for lengths, new in (([3], 3), ([9], 1), ([30], 4), ([12], 12), ([20], 15), ([20, 4], 1)):
            yield (
                f"window of {window} in {capacity}: {lengths}, {new}",
                queries(
                    lengths, new, capacity, sliding_window_cache=1, local_window_size=window, do_rotary=1
                ),
            )
    bias = {10: real(1, 4, 2, 20)}
    yield "window, bias", queries([20], 2, 8, bias, sliding_window_cache=1, local_window_size=5)
    counts = {16: np.array([2, 4], np.int32)}
    yield (
        "window, padding",
        queries([20, 9], 4, 8, counts, rows=[2, 4], sliding_window_cache=1, local_window_size=5, do_rotary=1),
    )
    whole: dict[str, Any] = {
        "k_quant_type": "PER_TENSOR",
        "v_quant_type": "PER_TENSOR",
        "kv_cache_bit_width": 8,
    }
    scales = {12: np.array([0.05], np.float32), 13: np.array([0.04], np.float32)}
    yield (
        "window of int8",
        queries([20], 2, 8, scales, np.int8, sliding_window_cache=1, local_window_size=5, **whole),
    )


def caches() -> Iterator[tuple[str, Case]]:
    for lengths, new, rows, past in (([3, 5], 5, [3, 5], 8), ([6, 9], 4, [2, 4], 12), ([6, 4], 1, [1, 0], 8)):
        counts = {16: np.array(rows, np.int32)}
        yield f"padded queries {rows}", queries(lengths, new, past, counts, rows=rows, do_rotary=1)
    for kind in ("PER_TENSOR", "PER_CHANNEL"):
        scales = (
            [np.array([0.05], np.float32)] * 2
            if kind == "PER_TENSOR"
            else [steps(1, 2, 1, SIZE) for _ in "kv"]
        )
        for bits, dtype in ((8, np.int8), (4, np.uint8)):
            for lengths, new, past in (([5, 5], 5, 8), ([6, 4], 1, 8), ([9], 3, 6)):
                yield f"cache of {bits} bits, {kind}, {lengths}", queries(
                    lengths, new, past, {12: scales[0], 13: scales[1]}, dtype, do_rotary=1,
                    k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=bits,
                )  # fmt: skip


def angles(rows: int, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines by position and pair."""
    turns = np.arange(rows)[:, None] * 0.5 ** np.arange(pairs)
    return np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)


def rotations() -> Iterator[tuple[str, Case]]:
    at = ids(12, 3, 2, 5)
    for layout, sections in ((0, [2, 1, 1]), (1, [2, 1, 1]), (1, [1, 1, 2])):
        settings = {"mrope_section": sections, "mrope_layout": layout}
        yield (
            f"three positions, {layout} {sections}",
            Case("MRotaryEmbedding", (real(2, 3, 5, 8), at, *angles(12, 4)), settings),
        )
        part = {**settings, "num_heads": 3, "rotary_embedding_dim": 8, "interleaved": 1}
        yield (
            f"three positions of a part, {layout} {sections}",
            Case("MRotaryEmbedding", (real(2, 5, 36), at, *angles(12, 4)), part),
        )
    packed = {"is_packed_batching": 1, "num_heads": 3}
    yield "rotary, packed", Case("RotaryEmbedding", (real(2, 5, 24), at[0], *angles(12, 4)), packed)


def gates() -> Iterator[tuple[str, Case]]:
    for kind in ("float", "half"):
        own = (lambda *a: a) if kind == "float" else half
        bound = 1e-5 if kind == "float" else 2e-3
        x, y, gate = own(real(2, 3, 8), real(2, 3, 8), real(2, 3, 1))
        yield f"gated sum, {kind}", Case("GatedAdd", (x, y, gate), bound=bound)
        yield f"scaled silu, {kind}", Case("ScaledSiLU", (x,), {"alpha": 1.7}, bound=bound)
        scale = np.array(0.3, np.float32)
        yield f"scaled silu by an input, {kind}", Case("ScaledSiLU", (x, scale), bound=bound)
        for count, shape in ((0, (2, 5, 3, 8)), (3, (2, 5, 24))):
            settings = {"num_branches": count}
            for scales in (None, real(24), real(8)):
                size = "no" if scales is None else scales.size
                yield (
                    f"norm of {count} streams, {size} scales, {kind}",
                    Case("BranchwiseRMSNorm", own(real(*shape), scales), settings, bound=bound),
                )
            for form in ((2, 5, 3), (2, 5, 3, 8)):
                streams, gates, block = own(real(*shape), real(*form), real(2, 5, 8))
                yield (
                    f"streams to one, {count} {len(form)}, {kind}",
                    Case(
                        "HyperConnectionPreMix",
                        (streams, gates),
                        {**settings, "reduction_scale": 0.5},
                        bound=bound,
                    ),
                )
                for mix in (None, real(2, 5, 3, 3)):
                    name = f"one to streams, {count} {len(form)} {mix is None}, {kind}"
                    arrays = (streams, block, gates, *own(mix))
                    yield name, Case("HyperConnectionPostMix", arrays, settings, bound=bound)
        parts = own(*(real(2, 5, 3, 8) for _ in "kq"), real(2, 5, 8), *(real(3, 8) for _ in range(3)))
        yield f"gate of a memory, {kind}", Case("EngramGate", parts, {}, 2, bound=bound)


def routers() -> Iterator[tuple[str, Case]]:
    for settings in (
        {"top_k": 2},
        {"top_k": 3, "n_group": 4, "topk_group": 2},
        {"top_k": 2, "n_group": 2, "group_topk": 1, "router_sentinel": -5.0},
    ):
        name = f"router {settings}"
        yield name, Case("MoEGroupRouter", (real(6, 8), real(8) * np.float32(0.1)), settings)


ENDS = np.array([0, 3, 4, 9], np.int32)


def joined_sequences() -> Iterator[tuple[str, Case]]:
    arrays: Arrays
    for dilation in (1, 2):
        for taps in (2, 4):
            state = real(3, 5, (taps - 1) * dilation)
            arrays = (real(9, 5), real(5, 1, taps), ENDS, real(5), state)
            settings = {"activation": "silu", "dilation": dilation}
            yield f"taps {taps}, {dilation} apart", Case("VarlenCausalConvWithState", arrays, settings, 2)
    counts = np.array([2, 3, 9], np.int32)
    kept = (real(9, 5), real(5, 1, 3), ENDS, None, real(3, 5, 2), counts)
    yield "tokens kept", Case("VarlenCausalConvWithState", kept, {"state_update_capacity": 4}, 3)

    def unit(*shape: int) -> np.ndarray:
        x = real(*shape)
        return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True), np.float32)

    for rule in ("linear", "gated", "delta", "gated_delta"):
        for ends in (ENDS, None):
            for width in ((), (8,)):
                arrays = (
                    unit(9, 2, 8), unit(9, 2, 8), real(9, 4, 6), ends,
                    -np.abs(real(9, 4, *width)) if "gated" in rule else None,
                    draw.rng.random((9, 4)).astype(np.float32) if "delta" in rule else None, real(3, 4, 6, 8),
                )  # fmt: skip
                name = f"joined, {rule} {'even' if ends is None else 'uneven'} {len(width)}"
                yield name, Case("GatedDeltaNet", arrays, {"update_rule": rule}, 2)
    for gate in ("softplus", "sigmoid"):
        settings = {"gate_activation": gate, "beta_activation": "sigmoid", "qk_l2_norm": 1}
        arrays = (
            real(9, 2, 8), real(9, 2, 8), real(9, 4, 6), ENDS, real(9, 4), real(9, 4), real(3, 4, 6, 8),
            real(4), real(4),
        )  # fmt: skip
        yield f"joined, gates by {gate}", Case("GatedDeltaNet", arrays, settings, 2)
        whole = np.concatenate([a.reshape(9, -1) for a in arrays[:3]], 1)
        yield f"joined, in one, {gate}", Case("GatedDeltaNet", (whole, None, None, *arrays[3:]), settings, 2)


def states() -> Iterator[tuple[str, Case]]:
    arrays: Arrays
    for last in (0, 1):
        for dilation in (1, 2):
            x, state = ((2, 9, 5), (2, 3 * dilation, 5)) if last else ((2, 5, 9), (2, 5, 3 * dilation))
            arrays = (real(*x), real(5, 1, 4), real(5), real(*state))
            settings = {"channels_last": last, "dilation": dilation, "activation": "silu"}
            yield f"convolution {settings}", Case("CausalConvWithState", arrays, settings, 2)
    arrays = (
        real(2, 5, 16), real(2, 5, 16), real(2, 5, 24), real(2, 4, 8, 6), -np.abs(real(2, 5, 4)),
        draw.rng.random((2, 5, 4)).astype(np.float32),
    )  # fmt: skip
    yield "values that share keys", Case("LinearAttention", arrays, {"q_num_heads": 2, "kv_num_heads": 4}, 2)
