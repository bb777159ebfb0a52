"""Node tables of tree ensembles, as tuned kernels read them."""

from __future__ import annotations

import numpy as np

from engine.base.dtypes import FLOAT32, INT32
from engine.compiler.plan import storable


@storable
def node_records(nodes: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """(nodes, 4) int32: feature, bits of the split, and the positions of both children.

    `nodes` are those of a hint of kind "tree_ensemble_leaves". Where NaN is on the true side, the feature is
    -1 - number.
    """
    table = nodes.reshape(len(splits), -1)
    feature, on_true, on_false = table[:, :3].T
    if table.shape[1] > 3:
        feature = np.where(table[:, 3] > 0, -1 - feature, feature)
    bits = splits.astype(FLOAT32).view(INT32)
    return np.stack([feature, bits, on_true, on_false], 1).astype(INT32).reshape(-1)
