"""A new input shape compiles nothing: kernels depend on what a model fixes, never on the sizes of a run.

Each layer has every size of its first input above 1 left open; its kernels must be the same at shapes that
differ in all of them, ones included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np
import onnx.parser
import pytest

from engine import Model, ModelLoader
from engine.base.shapes import DynamicTensorShape
from engine.compiler.trace import Tracer
from engine.kernels.kernel import kernel_call
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
    Subject("CumSum", (ints(3),)),
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
    Subject("TopK", (ints(1),), {"axis": 1, "largest": 0}, outputs=2),
    Subject("NonZero"),
    Subject("ScatterND", (ints(0, 0, 0, 0).reshape(1, 4), np.ones(1, np.float32))),
    Subject("EyeLike"),
    Subject("Cast", (), {"to": 17}),
    Subject("QuantizeLinear", (np.array(0.5, np.float32), np.array(3, np.int8))),
    Subject("DynamicQuantizeLinear", (), {}, outputs=3),
    Subject("Resize", (None, np.array([1, 1, 2, 1.5], np.float32)), {"mode": "linear"}),
    Subject("Resize", (None, None, ints(1, 3, 4, 5)), {"mode": "nearest"}),
    Subject("Resize", (None, None, ints(8, 9)), {"mode": "cubic", "antialias": 1, "axes": (2, 3)}),
    Subject("Upsample", (), {"scales": (1.0, 1.0, 2.0, 2.0)}, opset=7),
    Subject("RoiAlign", (np.zeros((2, 4), np.float32), ints(0, 0)), {"output_height": 2, "output_width": 2}),
    Subject("MaxRoiPool", (np.zeros((2, 5), np.float32),), {"pooled_shape": (2, 2)}),
    Subject("RandomNormalLike"),
    Subject("Bernoulli"),
    Subject("Dropout", (np.array(0.5, np.float32), np.array(True)), outputs=2),
]
SHAPES: list[tuple[int, ...]] = [
    (2, 3, 6, 7),
    (5, 4, 8, 9),
    (3, 3, 4, 4),
    (1, 2, 12, 5),
    (2, 3, 4, 1),
    (1, 1, 2, 1),
]


@pytest.mark.parametrize(
    "subject",
    [pytest.param(s, marks=pytest.mark.long) if number % 3 else s for number, s in enumerate(SUBJECTS)],
    ids=lambda s: f"{s.op_type}-{s.attributes}",
)
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


LENGTHS = (5, 64, 70, 300, 1500, 40000)

STEPWISE: list[tuple[Subject, tuple[int, ...]]] = [
    (Subject("CumSum", (ints(1),)), (2, 0)),
    (Subject("TopK", (ints(3),), {"axis": 1}, outputs=2), (2, 0)),
    (Subject("NonZero"), (2, 0)),
    (Subject("ScatterElements", (), {"axis": 1, "reduction": "add"}), (2, 0)),
]
"""Layers whose number of steps grows with a size, and the shape of their first input; 0 is the size."""


@pytest.mark.parametrize(("subject", "form"), STEPWISE, ids=lambda s: getattr(s, "op_type", ""))
def test_more_steps_need_no_new_kernel(subject: Subject, form: tuple[int, ...]) -> None:
    """What a model's own samples prepare is all that any size runs."""

    def arrays(count: int) -> list[np.ndarray | None]:
        x = np.zeros([n or count for n in form], np.float32)
        if subject.op_type == "ScatterElements":
            return [x, x.astype(np.int64), x]
        return [x]

    first = arrays(LENGTHS[0])
    free = range(len(first))
    model = one_layer(
        subject.op_type, [*first, *subject.others], subject.attributes, outputs=subject.outputs,
        known=range(len(first), len(first) + len(subject.others)), dynamic=free,
    )  # fmt: skip
    check_prepared(model, [[np.shape(np.asarray(a)) for a in arrays(length)] for length in LENGTHS])


def check_prepared(model: Model, shapes: Sequence[Sequence[tuple[int, ...]]]) -> None:
    """What loading prepares is all that any of the input shapes needs."""
    tracer = Tracer(model)
    assert len(tracer.samples) > 1
    prepared = {key for sizes in tracer.representatives() for key in structures(model, sizes)}
    for sizes in shapes:
        named = {item.name: size for item, size in zip(model.inputs, sizes, strict=True)}
        assert set(structures(model, named)) <= prepared, named


def test_more_boxes_need_no_new_kernel() -> None:
    text = """<ir_version: 9, opset_import: ["": 18]>
    g (float[1, n, 4] boxes, float[1, 2, n] scores) => (int64[k, 3] y) {
        most = Constant<value_ints = [5]>()
        found = NonMaxSuppression(boxes, scores, most)
        one = Constant<value_int = 1>()
        y = Add(found, one)
    }"""
    model = ModelLoader.load(onnx.parser.parse_model(text).SerializeToString())
    check_prepared(model, [[(1, n, 4), (1, 2, n)] for n in LENGTHS[:-1]])


def test_what_follows_them_needs_no_new_kernel() -> None:
    """The rows of what was sorted and summed are still known to go with those of the input."""
    text = """<ir_version: 9, opset_import: ["": 18]>
    g (float[2, n, 4] x) => (float[2, n, 4] y) {
        axis = Constant<value_int = 1>()
        shape = Shape<start = 1, end = 2>(x)
        best, at = TopK<axis = 1>(x, shape)
        sums = CumSum(x, axis)
        both = Add(best, sums)
        y = Add(both, x)
    }"""
    model = ModelLoader.load(onnx.parser.parse_model(text).SerializeToString())
    check_prepared(model, [[(2, length, 4)] for length in LENGTHS])


TRANSPOSED: list[dict[str, Any]] = [
    {"strides": (2, 2), "pads": (1, 1, 1, 1), "output_padding": (1, 0)},
    {"strides": (2, 3), "auto_pad": "SAME_UPPER"},
    {"strides": (2, 2), "output_shape": (9, 10)},
    {"pads": (1, 1, 1, 1)},
]


@pytest.mark.parametrize("attributes", TRANSPOSED, ids=str)
def test_transposed_convolutions_keep_their_kernels(attributes: dict[str, Any]) -> None:
    """Neither the formulas change with the size, nor what tuned kernels go by."""
    x, w = np.zeros((2, 3, 4, 5), np.float32), np.ones((3, 2, 3, 4), np.float32)
    layer = one_layer("ConvTranspose", [x, w], attributes, known=(1,))
    image = replace(layer.inputs[0], shape=DynamicTensorShape(("n", 3, "h", "w")))
    tracer = Tracer(replace(layer, inputs=(image,)))
    found = []
    for shape in ((2, 3, 4, 5), (1, 3, 9, 8), (5, 3, 5, 7), (1, 3, 4, 4)):
        computes = tracer.trace({"x0": shape}).computes
        keys = [kernel_call(c.formula(), len(c.space), c.output.dtype).kernel.key for c in computes]
        found.append((keys, [c.hint.attributes for c in computes if c.hint is not None]))
    assert found[1:] == found[:1] * 3
    # Output elements between which the stride lies meet the same taps: a convolution for each number of taps.
    assert 1 <= len(found[0][1]) <= prod(attributes.get("strides", (1, 1)))
