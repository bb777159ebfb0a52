"""Inputs for networks that packages carry: images, sounds, letters and graphs of given sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.field.feeds import Feed
from tests.images import smooth


def image(name: str, *shape: int, low: float = 0.0, high: float = 1.0) -> Feed:
    """A smooth image, (..., H, W)."""
    return {name: smooth(shape, sum(shape), low, high)}


def channels_last(name: str, *shape: int, low: float = 0.0, high: float = 1.0) -> Feed:
    """A smooth image, (N, H, W, C)."""
    batch, height, width, channels = shape
    picture = smooth((batch, channels, height, width), sum(shape), low, high)
    return {name: np.ascontiguousarray(picture.transpose(0, 2, 3, 1))}


def sound(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    """A few tones that swell, and some noise, at 16 kHz."""
    time = np.arange(shape[-1]) / 16000
    tones = sum(np.sin(2 * np.pi * pitch * time + rng.uniform(0, 6)) for pitch in rng.uniform(80, 900, 4))
    swell = 0.2 + 0.8 * np.sin(np.pi * np.linspace(0, 3, shape[-1])) ** 2
    noise = rng.normal(0, 0.02, shape)
    return (scale * (0.2 * tones * swell + noise)).astype(np.float32)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Standard normal numbers."""
    return rng.normal(size=shape).astype(np.float32)


def voice(rate: bool = True, state: int = 128, samples: int = 576) -> Callable[..., Feed]:
    """The inputs of Silero's voice detectors: a piece of sound, the state, the sample rate."""

    def make(rng: np.random.Generator, size: tuple[int, ...]) -> Feed:
        (batch,) = size
        feed = {"input": sound(rng, batch, samples), "state": 0.1 * normal(rng, 2, batch, state)}
        return {**feed, "sr": np.array(16000, np.int64)} if rate else feed

    return make


def voice_sequence(rng: np.random.Generator, size: tuple[int, ...]) -> Feed:
    """Many pieces of sound and one state."""
    return {"input": sound(rng, *size, 576), "h": normal(rng, 1, 1, 128), "c": normal(rng, 1, 1, 128)}


def letters(*inputs: tuple[str, int], width: int = 21) -> Callable[..., Feed]:
    """Windows of characters, their numbers as float32."""
    return lambda rng, size: {
        name: rng.integers(0, count, (*size, width)).astype(np.float32) for name, count in inputs
    }


def numbers(name: str) -> Callable[..., Feed]:
    """Numbers of characters, (N, length)."""
    return lambda rng, size: {name: rng.integers(1, 20, size)}


def wake_word(name: str, frames: int = 16) -> Callable[..., Feed]:
    """Embeddings of a few frames of speech."""
    return lambda rng, size: {name: normal(rng, *(size or (1,)), frames, 96)}


def residues(rng: np.random.Generator, size: tuple[int, ...]) -> Feed:
    """A protein as a graph of atoms."""
    atoms, edges, count = size
    distances = rng.uniform(1, 8, edges).astype(np.float32)
    return {
        "element": rng.integers(0, 4, atoms),
        "amino_acid": rng.integers(0, 20, atoms),
        "atom_role": rng.integers(0, 5, atoms),
        "bfactor": normal(rng, atoms),
        "edge_index": rng.integers(0, atoms, (2, edges)),
        "edge_dist": distances,
        "seq_sep": rng.integers(0, 5, edges),
        "same_residue": rng.integers(0, 2, edges).astype(np.float32),
        "target_indices": rng.integers(0, atoms, (count, 6)),
        "target_mask": np.ones((count, 6), bool),
        "residue_types": rng.integers(0, 20, count),
        "residue_geometry": normal(rng, count, 52),
        "target_environment": normal(rng, count, 6, 15),
        "temperature_feature": normal(rng, count, 1),
        "target_atom_rsasa": normal(rng, count, 6),
        "pos": 4 * normal(rng, atoms, 3),
        "node_normal": normal(rng, atoms, 3),
        "hb_cos": normal(rng, edges),
        "is_hbond": rng.integers(0, 2, edges).astype(np.float32),
    }


def one_hot(name: str, letters: int) -> Callable[..., Feed]:
    """Letters of words, (N, length, letters)."""
    return lambda rng, size: {name: np.eye(letters, dtype=np.float32)[rng.integers(0, letters, size)]}


def boxes(rng: np.random.Generator, size: tuple[int, ...]) -> Feed:
    """What a detector finds: boxes and the scores of 80 classes."""
    corners, scores = rng.uniform(20, 600, (1, 4, *size)), rng.random((1, 80, *size)) ** 8
    return {
        "grid": np.concatenate([corners, scores], 1).astype(np.float32),
        "scale": np.ones(2, np.float32),
        "conf_thr": np.array(0.3, np.float32),
        "iou_thr": np.array(0.5, np.float32),
        "top_k": np.array(50, np.int32),
    }


def molecules(rng: np.random.Generator, size: tuple[int, ...]) -> Feed:
    """Molecules as graphs of atoms."""
    atoms, edges, count = size
    return {
        "feat": normal(rng, atoms, 85),
        "edge_feat": normal(rng, edges, 13),
        "edge_index": rng.integers(0, atoms, (2, edges)),
        "laplacian_eigvec": normal(rng, atoms, 8),
        "laplacian_eigval": np.abs(normal(rng, atoms, 8)),
        "rw_return_probs": rng.random((atoms, 16)).astype(np.float32),
        "batch": np.sort(rng.integers(0, count, atoms)),
        "graph_slots": np.zeros(count, np.float32),
    }


def cut_letters(rng: np.random.Generator, size: tuple[int, ...]) -> Feed:
    """Characters of a sentence, one batch."""
    return {"input": rng.integers(1, 60, (1, *size))}


def word_and_tag(rng: np.random.Generator, size: tuple[int, ...]) -> Feed:
    """Letters of words, and those of what is made of them so far."""
    batch, letters_in, letters_out = size
    return {
        "src": rng.integers(1, 60, (batch, letters_in)),
        "tgt_in": rng.integers(1, 60, (batch, letters_out)),
    }


def sentence(rng: np.random.Generator, size: tuple[int, ...]) -> Feed:
    """Numbers of words, as encoders of text take them."""
    return {
        "input_ids": rng.integers(1, 1000, size),
        "attention_mask": np.ones(size, np.int64),
        "token_type_ids": np.zeros(size, np.int64),
    }


def filtered_voice(rng: np.random.Generator, size: tuple[int, ...]) -> Feed:
    """Stacked frames of speech, whose voice to keep, and the states of a filter."""
    batch, frames = size
    states = {name: np.zeros((3, batch, 512), np.float32) for name in ("h0", "c0")}
    return {"stacked_logmel": normal(rng, batch, frames, 512), "dvec": normal(rng, batch, 256), **states}


def picture(name: str = "x", low: float = -1.0, high: float = 1.0) -> Callable[..., Feed]:
    """An image of the set's size."""
    return lambda rng, size: image(name, *size, low=low, high=high)
