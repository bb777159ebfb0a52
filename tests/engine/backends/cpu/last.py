"""Windows over channels last, made by hand from the cases that have the channels in ONNX's place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.kernels.expr import FLAT, Expr, acc, cast, index, load, maximum
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.cpu.hinted import Case


def first_to_last(case: Case, epilogue: str | None = None) -> tuple[Case, np.ndarray]:
    """A convolution or pooling without an epilogue, given (N, C, *spatial), with its channels behind instead.

    Returns the case and what NumPy makes of the formula with channels first and of the epilogue.
    """
    assert case.compute is not None
    assert case.compute.hint is not None
    compute, hint = case.compute, case.compute.hint
    rank = len(compute.space)
    plain = np.moveaxis(case.expected().reshape(compute.space), 1, -1)
    x, *others = hint.operands
    moved = Value("x", (x.shape[0], *x.shape[2:], x.shape[1]), x.dtype)
    last = Case(5)
    last.arrays = {**case.arrays, "x": np.ascontiguousarray(np.moveaxis(case.arrays["x"], 1, -1))}
    attributes: dict[str, Any] = {**hint.attributes, "channels_last": True, "x_first": False}
    # Only the rule reads the hint; the formula that stands for it here is never run.
    last.finish(plain.shape, moved.at(FLAT), Hint(hint.kind, (moved, *others), attributes), None)
    assert last.compute is not None
    if epilogue is None:
        return last, plain
    last.compute.epilogue, result = _epilogue(last, epilogue, plain, rank)
    if epilogue == "position":
        last.compute.output = Value("y", plain.shape, np.dtype(np.int8))
    return last, result


def _epilogue(case: Case, name: str, plain: np.ndarray, rank: int) -> tuple[Expr, np.ndarray]:
    """The formula, and its value: per channel and rectified, with another tensor, or by position as int8."""
    channel = rank - 1
    if name == "bias":
        bias = case.value("bias", plain.shape[-1:])
        return maximum(acc("float32") + load(bias, index(channel)), 0.0), np.maximum(
            plain + case.arrays["bias"], 0
        )
    if name == "residual":
        other = case.value("other", plain.shape)
        return acc("float32") * 0.5 + other.at(FLAT), plain * np.float32(0.5) + case.arrays["other"]
    place = case.value("place", plain.shape[1:-1])
    at: Sequence[Expr] = [index(axis) for axis in range(1, channel)]
    value = (plain + case.arrays["place"][..., None]) * 3
    return cast((acc("float32") + place[tuple(at)]) * 3.0, "int32"), np.trunc(value)


def assert_close(got: np.ndarray, expected: np.ndarray, edge: float = 0.0) -> None:
    """Equal to 1e-5 of the largest number, infinities and NaN exactly; `edge` is for rounded integers."""
    got, expected = got.astype(np.float64), expected.astype(np.float64).reshape(-1)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isfinite(got), finite)
    np.testing.assert_array_equal(got[~finite], expected[~finite])
    scale = max(1.0, float(np.abs(expected[finite]).max(initial=0.0)))
    np.testing.assert_allclose(got[finite], expected[finite], rtol=0, atol=1e-5 * scale + edge)
