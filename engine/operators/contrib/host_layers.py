"""onnxruntime's layers that run on the host: data-dependent sizes and 64-bit hashes."""

from __future__ import annotations

import numpy as np

from engine.graph.model import CONTRIB
from engine.operators.registry import operator
from engine.operators.selection import unique


@operator("Unique", kind="numpy", domain=CONTRIB)
def unique_1(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """The different elements in the order of their first occurrence, which each is, how many of each."""
    values, _, inverse, counts = unique(x, sorted=0)
    return values, inverse, counts


@operator("DynamicTimeWarping", kind="numpy", domain=CONTRIB)
def dynamic_time_warping(x: np.ndarray) -> np.ndarray:
    """The cheapest path (2, steps) through a matrix of costs, from its first to its last element."""
    costs = x.reshape(x.shape[-2:]) if x.ndim in (2, 3) else x
    if costs.ndim != 2 or not costs.size or x.ndim == 3 and x.shape[0] != 1:
        raise ValueError(f"takes a matrix of costs, not {list(x.shape)}")
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0.0
    came = np.zeros((rows + 1, columns + 1), np.int8)
    for j in range(1, columns + 1):
        for i in range(1, rows + 1):
            options = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
            # Ties go to the column's step, then to the row's, as in Whisper's own code.
            if options[0] < options[1] and options[0] < options[2]:
                came[i, j] = 0
            elif options[1] < options[0] and options[1] < options[2]:
                came[i, j] = 1
            else:
                came[i, j] = 2
            total[i, j] = costs[i - 1, j - 1] + options[came[i, j]]
    came[0, :], came[:, 0] = 2, 1
    path = []
    i, j = rows, columns
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        step = came[i, j]
        i, j = i - (step != 2), j - (step != 1)
    return np.array(path[::-1], np.int32).T.copy()


@operator("BifurcationDetector", kind="numpy", domain=CONTRIB)
def bifurcation_detector(
    src_tokens: np.ndarray, cur_tokens: np.ndarray, prev_suffix_match_idx: np.ndarray,
    pred_tokens: np.ndarray | None = None, *, max_ngram_size: int = 3, min_ngram_size: int = 1,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Tokens with predictions up to the first wrong guess, and where the source continues."""
    tokens = cur_tokens
    if pred_tokens is not None:
        start = int(np.asarray(prev_suffix_match_idx).reshape(-1)[0])
        source = src_tokens[start : start + pred_tokens.size]
        differ = np.flatnonzero(source != pred_tokens[: source.size])
        count = int(differ[0]) + 1 if differ.size else source.size + 1
        tokens = np.concatenate([cur_tokens, pred_tokens[:count]])
    match = -1
    for size in range(min_ngram_size, max_ngram_size + 1):
        if size > min(tokens.size, src_tokens.size):
            break
        windows = np.lib.stride_tricks.sliding_window_view(src_tokens, size)
        found = np.flatnonzero((windows == tokens[tokens.size - size :]).all(1))
        if found.size == 0:
            break
        if found.size == 1:
            match = int(found[0]) + size
            break
    return tokens, np.array(match, src_tokens.dtype)


@operator("NGramHashMapping", kind="numpy", domain=CONTRIB)
def ngram_hash_mapping(
    input_ids: np.ndarray, multipliers: np.ndarray, vocab_sizes: np.ndarray,
    past_ids: np.ndarray | None = None, head_offsets: np.ndarray | None = None,
    eos_token_id: np.ndarray | None = None, segment_ids: np.ndarray | None = None, *, max_ngram_size: int,
    n_head_per_ngram: int, pad_id: int, reset_on_eos: int = 0,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Hashes of the 2, 3, ... tokens up to each token, a row of heads for each count, and the last tokens.

    A hash is the exclusive or of tokens times multipliers, modulo a head's vocabulary, plus its offset. With
    `reset_on_eos` nothing before an end of sequence counts, nor does what stands in another segment.
    """
    if input_ids.ndim != 2 or max_ngram_size < 2 or multipliers.size < max_ngram_size:
        raise ValueError(f"takes ids (N, T) and {max_ngram_size} multipliers, 2 or more")
    heads = (max_ngram_size - 1) * n_head_per_ngram
    if vocab_sizes.size != heads or (vocab_sizes < 1).any():
        raise ValueError(f"takes {heads} vocabulary sizes above 0, not {vocab_sizes.tolist()}")
    (batch, steps), before, kind = input_ids.shape, max_ngram_size - 1, input_ids.dtype
    eos = None if eos_token_id is None else kind.type(np.asarray(eos_token_id).reshape(-1)[0])
    filler = kind.type(pad_id) if eos is None else eos
    past = np.full((batch, before), filler, kind) if past_ids is None else past_ids
    whole = np.concatenate([past, input_ids], 1)
    first = np.zeros((batch, steps), np.int64)
    """The first place of `whole` that a token's hashes may see."""
    places = np.arange(whole.shape[1])
    if reset_on_eos and eos is not None:
        ends = np.maximum.accumulate(np.where(whole == eos, places, -1), 1)
        first = np.maximum(first, ends[:, before - 1 : -1] + 1)
    if segment_ids is not None and steps:
        starts = np.zeros((batch, steps), np.int64)
        starts[:, 1:] = np.where(segment_ids[:, 1:] != segment_ids[:, :-1], places[before + 1 :], 0)
        first = np.maximum(first, np.maximum.accumulate(starts, 1))
    mixes, mix = [], np.zeros((batch, steps), kind)
    with np.errstate(over="ignore"):
        for j in range(max_ngram_size):
            at = np.arange(before, before + steps) - j
            shifted = np.where(at >= first, whole[:, at], filler)
            mix = mix ^ (shifted * multipliers.reshape(-1)[j]).astype(kind)
            mixes.append(mix)
        columns = [
            mixes[1 + h // n_head_per_ngram] % vocab_sizes.reshape(-1)[h] for h in range(heads)
        ]  # fmt: skip
        found = np.stack(columns, -1).astype(kind)
        if head_offsets is not None:
            found = found + head_offsets.reshape(-1).astype(kind)
    return found, whole[:, whole.shape[1] - before :].copy()
