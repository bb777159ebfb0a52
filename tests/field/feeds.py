"""Inputs of a model as files: `NAME.npz`, or `NAME.0.npz`, `NAME.1.npz` for several sets of sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

Feed = dict[str, np.ndarray]


def write_feeds(model: Path, feeds: Sequence[Mapping[str, np.ndarray]]) -> None:
    """Write the sets of inputs beside a model."""
    for number, feed in enumerate(feeds):
        path = model.with_suffix(f".{number}.npz" if len(feeds) > 1 else ".npz")
        # Arrays of Python strings would need pickles.
        arrays = {name: a.astype(str) if a.dtype == object else a for name, a in feed.items()}
        with path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]


def read_feeds(model: Path) -> list[Feed]:
    """All sets of inputs that lie beside a model, in order."""
    single = model.with_suffix(".npz")
    paths = [single] if single.exists() else sorted(model.parent.glob(f"{model.stem}.[0-9]*.npz"))
    feeds = []
    for path in paths:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        feeds.append({n: a.astype(object) if a.dtype.kind == "U" else a for n, a in arrays.items()})
    return feeds
