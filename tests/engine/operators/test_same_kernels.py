"""A new input shape compiles nothing: kernels depend on what a model fixes, never on the sizes of a run.

Each layer has every size of its first input above 1 left open; its kernels must be the same at shapes that
differ in all of them, ones included.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.engine.operators.single import one_layer, structures


class Subject(NamedTuple):
    """A layer: operator, the other inputs (known), attributes, number of outputs, opset."""

    op_type: str
    others: tuple[np.ndarray | None, ...] = ()
    attributes: dict[str, Any] = {}
    outputs: int = 1
    opset: int = 25


def ints(*values: int) -> np.ndarray:
    """A known tensor of integers."""
    return np.array(values, np.int64)


SUBJECTS = [
    Subject("ReduceMean", (ints(2, 3),)),
    Subject("ReduceMax", (ints(0, 2),), {"keepdims": 0}),
    Subject("ReduceLogSumExp", (ints(1),)),
    Subject("ReduceL2", (), {"axes": (1,)}, opset=11),
    Subject("ArgMax", (), {"axis": 2}),
    Subject("CumSum", (ints(1),), {"reverse": 1}),
    Subject("Reshape", (ints(0, -1),)),
    Subject("Flatten"),
    Subject("Transpose", (), {"perm": (0, 2, 3, 1)}),
    Subject("Transpose", (), {"perm": (2, 0, 1, 3)}),
    Subject("Expand", (ints(2, 1, 1, 1, 1),)),
    Subject("Tile", (ints(1, 2, 1, 3),)),
    Subject("Concat", (np.zeros((1, 3, 1, 1), np.float32),), {"axis": 1}),
    Subject("Split", (), {"axis": 2, "num_outputs": 2}, outputs=2),
    Subject("Slice", (ints(0, -2), ints(9, 100), ints(1, 3))),
    Subject("Slice", (ints(-1), ints(-100), ints(2), ints(-1))),
    Subject("Pad", (ints(0, 0, 1, 1, 0, 0, 2, 2),)),
    Subject("Pad", (ints(0, 0, 1, 1, 0, 0, 2, 2),), {"mode": "reflect"}),
    Subject("Pad", (ints(0, 0, 1, 1, 0, 0, 2, 2),), {"mode": "edge"}),
    Subject("Pad", (ints(0, 0, 1, 1, 0, 0, 2, 2),), {"mode": "wrap"}),
    Subject("CenterCropPad", (ints(6, 6),), {"axes": (2, 3)}),
    Subject("DepthToSpace", (), {"blocksize": 1}),
    Subject("SpaceToDepth", (), {"blocksize": 1}),
    Subject("Trilu", (ints(1)[0],)),
    Subject("Gather", (ints(0, -1),), {"axis": 2}),
    Subject("OneHot", (ints(5), np.array([0.0, 1.0], np.float32))),
    Subject("TopK", (ints(1),), {"axis": 3}, outputs=2),
    Subject("EyeLike"),
    Subject("Cast", (), {"to": 17}),
    Subject("QuantizeLinear", (np.array(0.5, np.float32), np.array(3, np.int8))),
    Subject("DynamicQuantizeLinear", (), {}, outputs=3),
    Subject("Resize", (None, np.array([1, 1, 2, 1.5], np.float32)), {"mode": "linear"}),
    Subject("Resize", (None, None, ints(1, 3, 4, 5)), {"mode": "nearest"}),
    Subject("Resize", (None, None, ints(8, 9)), {"mode": "cubic", "antialias": 1, "axes": (2, 3)}),
    Subject("Upsample", (), {"scales": (1.0, 1.0, 2.0, 2.0)}, opset=7),
]
SHAPES: list[tuple[int, ...]] = [
    (2, 3, 6, 7),
    (5, 4, 8, 9),
    (3, 3, 4, 4),
    (1, 2, 12, 5),
    (2, 3, 4, 1),
    (1, 1, 2, 1),
]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: f"{s.op_type}-{s.attributes}")
def test_a_new_shape_needs_no_new_kernel(subject: Subject) -> None:
    rank = 2 if subject.op_type == "EyeLike" else 4
    shapes = [shape[:rank] for shape in SHAPES]
    if subject.op_type == "Concat":
        shapes = [(1, n, 1, 1) for n in (5, 7, 3, 1)]
    x = np.zeros(shapes[0], np.int64 if subject.op_type == "OneHot" else np.float32)
    arrays = [x, *subject.others]
    model = one_layer(
        subject.op_type, arrays, subject.attributes,
        opset=subject.opset, outputs=subject.outputs, known=range(1, len(arrays)), dynamic=[0],
    )  # fmt: skip
    assert model.dim_names
    expected = structures(model, {"x0": shapes[0]})
    for shape in shapes[1:]:
        assert structures(model, {"x0": shape}) == expected, shape
