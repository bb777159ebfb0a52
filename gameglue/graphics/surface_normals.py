"""Computes vertex normals of meshes that have none."""

from __future__ import annotations

import numpy as np


def smooth_normals(positions: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Sums of the normals of the triangles around each vertex, weighted by their areas; not of length 1.

    positions: (n, 3); triangles: (m, 3) numbers of positions. Returns (n, 3) float64.
    """
    a, b, c = (positions[triangles[:, k]] for k in range(3))
    faces = np.cross(b - a, c - a)
    normals = np.zeros((len(positions), 3))
    for k in range(3):
        np.add.at(normals, triangles[:, k], faces)
    return normals
