"""ONNX's own operator cases, made runnable: the independent answer for every operator on every backend."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases

from engine.importers.onnx_importer import read_onnx
from engine.model import Model


@dataclass(frozen=True)
class Case:
    """One case: a single-operator model and sets of (inputs by name, expected outputs in order)."""

    name: str
    op_type: str
    proto: onnx.ModelProto
    data_sets: tuple[tuple[dict[str, np.ndarray], tuple[np.ndarray, ...]], ...]
    rtol: float
    atol: float

    def model(self) -> Model:
        """The case's model, imported."""
        return read_onnx(self.proto.SerializeToString())


@cache
def all_cases() -> tuple[Case, ...]:
    """Every node case over plain tensors of the default domain that the installed onnx generates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    cases = []
    for case in found:
        assert case.model is not None, case.name
        assert case.data_sets is not None, case.name
        graph = case.model.graph
        if len(graph.node) != 1 and not case.name.endswith("_expanded"):
            op_type = case.name
        else:
            op_type = graph.node[0].op_type if graph.node else ""
        if case.name.endswith("_expanded") or any(n.domain not in ("", "ai.onnx") for n in graph.node):
            continue
        names = [i.name for i in graph.input]
        sets: list[tuple[dict[str, np.ndarray], tuple[np.ndarray, ...]]] = []
        for inputs, outputs in case.data_sets:
            if not all(isinstance(a, (np.ndarray, np.generic)) for a in (*inputs, *outputs)):
                sets = []
                break
            arrays = {n: np.asarray(a) for n, a in zip(names, inputs, strict=False)}
            sets.append((arrays, tuple(np.asarray(a) for a in outputs)))
        if sets:
            cases.append(Case(case.name, op_type, case.model, tuple(sets), case.rtol, case.atol))
    return tuple(cases)


def cases_of(*op_types: str) -> list[Case]:
    """The cases of some operators."""
    return [c for c in all_cases() if c.op_type in op_types]


def disagreement(actual: np.ndarray, expected: np.ndarray) -> float:
    """max |a - b| / max(1, max |b|); infinite where shapes, NaNs or infinities differ."""
    if actual.shape != expected.shape:
        return float("inf")
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isnan(a), np.isnan(b)) or not np.array_equal(a[np.isinf(b)], b[np.isinf(b)]):
        return float("inf")
    if not np.isfinite(a[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.max(np.abs(a - b)[finite]) / max(1.0, np.max(np.abs(b[finite]))))
