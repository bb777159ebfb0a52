"""Windows, normalisation, padding, resizing and matrix products on random shapes and attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.engine.conftest import MakeWorker
from tests.engine.operators.properties import (
    FILLED,
    SIZES,
    Dims,
    Draw,
    Example,
    Subject,
    everyday,
    hold_by_numpy,
    hold_on,
    ints,
    sizes_of,
    tensor,
)
from tests.peer import open_session

LARGE = st.sampled_from([4, 5, 7, 9])
"""Sizes that a window fits into."""


def by_onnxruntime(example: Example) -> Example:
    """The example, with onnxruntime to say what it should yield."""
    session = open_session(example.proto().SerializeToString())
    answer = tuple(session.run(None, example.feeds))
    return Example(
        example.op_type, example.inputs, example.attributes, example.opset, example.outputs,
        lambda *_, **__: answer,
    )  # fmt: skip


def image(draw: Draw, channels: int = 2, spatial: int = 2) -> tuple[np.ndarray, Dims]:
    """(n, channels, *spatial) with symbolic sizes but for the channels."""
    sizes = {"n": draw(st.sampled_from([1, 1, 2]))} | sizes_of(draw, "h", "w", of=LARGE)
    return tensor(draw, sizes, ("n", channels, *("h", "w")[:spatial]))


def geometry(draw: Draw, spatial: int, ceil: bool = False, dilated: bool = True) -> dict[str, Any]:
    """Strides, dilations and padding (by numbers or by rule)."""
    each = lambda s: [draw(s) for _ in range(spatial)]  # noqa: E731
    kernel = each(st.integers(1, 3))
    rule = draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    strides = each(st.integers(1, 3))
    if rule.startswith("SAME"):
        # onnxruntime refuses what lets elements fall between windows.
        strides = [min(s, n) for s, n in zip(strides, kernel, strict=True)]
    found: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    if dilated and rule == "NOTSET":
        # At least two taps of four or more elements fit with a dilation of 1.
        found["dilations"] = each(st.integers(1, 2)) if max(kernel) < 3 else [1] * spatial
    if rule == "NOTSET":
        found["pads"] = [draw(st.integers(0, n - 1)) for n in (*kernel, *kernel)]
    else:
        found["auto_pad"] = rule
    if ceil and rule == "NOTSET":
        found["ceil_mode"] = draw(st.integers(0, 1))
    return found


@st.composite
def pool(draw: Draw, op_type: str, spatial: int = 2) -> Example:
    """Windows of any geometry."""
    attributes = geometry(draw, spatial, ceil=op_type != "LpPool")
    if op_type == "AveragePool":
        attributes["count_include_pad"] = draw(st.integers(0, 1))
    if op_type == "LpPool":
        attributes["p"] = draw(st.integers(1, 3))
    positions = op_type == "MaxPool" and draw(st.booleans())
    if op_type == "AveragePool":
        # Opset 19: before it, dilations are not there and ceil_mode means something else.
        attributes.pop("dilations", None)
    x = image(draw, spatial=spatial)
    return by_onnxruntime(Example(op_type, [x], attributes, 19, 2 if positions else 1))


@st.composite
def whole(draw: Draw, op_type: str) -> Example:
    """Pooling over whole planes."""
    attributes = {"p": draw(st.integers(1, 3))} if op_type == "GlobalLpPool" else {}
    return by_onnxruntime(Example(op_type, [image(draw)], attributes, 18))


@st.composite
def conv(draw: Draw, spatial: int = 2) -> Example:
    """Groups, bias and any geometry."""
    attributes = geometry(draw, spatial)
    group = draw(st.sampled_from([1, 2, 4]))
    outs = group * draw(st.sampled_from([1, 3]))
    weights = tensor(draw, {}, (outs, 4 // group, *attributes.pop("kernel_shape")))[0], None
    bias = [(tensor(draw, {}, (outs,))[0], None)] if draw(st.booleans()) else []
    x = image(draw, 4, spatial)
    return by_onnxruntime(Example("Conv", [x, weights, *bias], {**attributes, "group": group}, 18))


@st.composite
def conv_transpose(draw: Draw) -> Example:
    """Groups, bias, output padding and any geometry."""
    attributes = geometry(draw, 2)
    kernel = attributes.pop("kernel_shape")
    if "pads" in attributes:
        attributes["output_padding"] = [draw(st.integers(0, s - 1)) for s in attributes["strides"]]
    group = draw(st.sampled_from([1, 2]))
    weights = tensor(draw, {}, (4, draw(st.sampled_from([1, 3])), *kernel))[0], None
    x = image(draw, 4)
    example = Example("ConvTranspose", [x, weights], {**attributes, "group": group}, 18)
    return by_onnxruntime(example)


# Normalisation


@st.composite
def batch_norm(draw: Draw, rank: int) -> Example:
    """Inference form; with values that no square root refuses."""
    dims = ("n", 3, "h", "w")[:rank]
    x = tensor(draw, sizes_of(draw, "n", "h", "w"), dims)
    parameters = [(tensor(draw, {}, (3,), low=low, high=3)[0], None) for low in (-3, -3, -3, 0.1)]
    return Example(
        "BatchNormalization", [x, *parameters], {"epsilon": draw(st.sampled_from([1e-5, 0.1]))}, 15
    )


@st.composite
def by_group(draw: Draw, op_type: str) -> Example:
    """Instance and group normalisation over planes with at least two elements."""
    x = image(draw, 4)
    scale, bias = ((tensor(draw, {}, (4,))[0], None) for _ in range(2))
    attributes: dict[str, Any] = {"epsilon": 1e-3}
    if op_type == "GroupNormalization":
        attributes["num_groups"] = draw(st.sampled_from([1, 2, 4]))
    return Example(op_type, [x, scale, bias], attributes, 21)


@st.composite
def over_last(draw: Draw, op_type: str) -> Example:
    """Layer and RMS normalisation over one to three axes."""
    dims = ("n", "m", "k")
    axis = draw(st.integers(-3, -1))
    sizes = sizes_of(draw, "n", "m", of=FILLED) | {"k": draw(LARGE)}
    parameters = [tensor(draw, sizes, dims[axis:])]
    outputs = 1
    if op_type == "LayerNormalization":
        parameters += [tensor(draw, sizes, dims[axis:])] if draw(st.booleans()) else []
        outputs = draw(st.sampled_from([1, 3]))
    attributes = {"axis": axis, "epsilon": 1e-3}
    opset = 17 if op_type == "LayerNormalization" else 23
    return Example(op_type, [tensor(draw, sizes, dims), *parameters], attributes, opset, outputs)


@st.composite
def lrn(draw: Draw) -> Example:
    """Neighbourhoods up to more channels than there are."""
    attributes = {
        "size": draw(st.sampled_from([1, 3, 5, 7])), "alpha": draw(st.sampled_from([1e-4, 0.5])), "beta": 0.5,
        "bias": draw(st.sampled_from([1.0, 2.0])),
    }  # fmt: skip
    return by_onnxruntime(Example("LRN", [image(draw, 5)], attributes, 13))


@st.composite
def lp_norm(draw: Draw) -> Example:
    """Along any axis."""
    x = tensor(draw, sizes_of(draw, "n", "m", "k", of=FILLED), ("n", "m", "k"))
    attributes = {"axis": draw(st.integers(-3, 2)), "p": draw(st.integers(1, 2))}

    def expected(x: np.ndarray, axis: int, p: int) -> np.ndarray:
        size = np.linalg.norm(x, p, axis, keepdims=True)
        return x / np.where(size == 0, 1, size)

    return Example("LpNormalization", [x], attributes, 22, expected=expected)


@st.composite
def mean_variance(draw: Draw) -> Example:
    """Over some axes, by default all but the channels."""
    axes = draw(st.sampled_from([None, (0, 2, 3), (1,), (2, 3)]))
    attributes = {} if axes is None else {"axes": axes}

    def expected(x: np.ndarray, axes: tuple[int, ...] = (0, 2, 3)) -> np.ndarray:
        return (x - x.mean(axes, keepdims=True)) / (x.std(axes, keepdims=True) + 1e-9)

    return Example("MeanVarianceNormalization", [image(draw, 3)], attributes, 13, expected=expected)


# Padding, resizing, products


@st.composite
def pad(draw: Draw, mode: str) -> Example:
    """More and fewer elements at both ends of two axes."""
    low = -2 if mode == "constant" else 0
    high = 3 if mode in ("constant", "edge") else 2
    sizes = sizes_of(draw, "n", of=SIZES) | sizes_of(draw, "h", "w", of=LARGE)
    x = tensor(draw, sizes, ("n", "h", "w"))
    amounts = ints(*(draw(st.integers(low, high)) for _ in range(4)))
    inputs: list[Any] = [x, amounts, None, ints(*draw(st.sampled_from([(1, 2), (-1, -2)])))]
    if mode == "constant" and draw(st.booleans()):
        inputs[2] = np.array(2.5, np.float32), ()
    example = Example("Pad", inputs, {"mode": mode}, 19)
    # NumPy, which ONNX's reference asks, cannot take elements away; onnxruntime reads "wrap" as no mode.
    return by_onnxruntime(example) if mode == "constant" else example


@st.composite
def center(draw: Draw) -> Example:
    """To sizes smaller and larger than what is there."""
    x = tensor(draw, sizes_of(draw, "n", "m", "k"), ("n", "m", "k"))
    axes = draw(st.sampled_from([(0, 2), (-2, -1)]))
    wanted = ints(*(draw(st.integers(1, 9)) for _ in axes))

    def expected(x: np.ndarray, wanted: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        for axis, size in zip(axes, wanted.tolist(), strict=True):
            n = x.shape[axis]
            if size <= n:
                x = x.take(range((n - size) // 2, (n - size) // 2 + size), axis)
            else:
                widths = [(0, 0)] * 3
                widths[axis] = ((size - n) // 2, size - n - (size - n) // 2)
                x = np.pad(x, widths)
        return x

    return Example("CenterCropPad", [x, wanted], {"axes": axes}, 18, expected=expected)


@st.composite
def resize(draw: Draw, mode: str) -> Example:
    """Scales of the last two axes, in the ways to place coordinates that onnxruntime has for all modes."""
    coordinates = draw(st.sampled_from(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]))
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = draw(st.sampled_from(["floor", "ceil", "round_prefer_floor"]))
    # With aligned corners onnxruntime takes the cut length of an axis, ONNX's reference the exact one.
    factors = st.sampled_from([2.0, 3.0] if coordinates == "align_corners" else [0.5, 1.5, 2.0, 3.0])
    scales = [1.0, 1.0, draw(factors), draw(factors)]
    constant = np.array(scales, np.float32), None
    return by_onnxruntime(Example("Resize", [image(draw), None, constant], attributes, 18))


MATRICES: tuple[tuple[Dims, Dims], ...] = (
    (("m", "j"), ("j", "k")), (("b", "m", "j"), ("j", "k")), (("b", "m", "j"), ("b", "j", "k")),
    (("b", 1, "m", "j"), ("c", "j", "k")), (("j",), ("b", "j", "k")), (("m", "j"), ("j",)), (("j",), ("j",)),
)  # fmt: skip


@st.composite
def matmul(draw: Draw) -> Example:
    """Vectors, matrices and batches of them."""
    sizes = sizes_of(draw, "b", "c", "m", "j", "k")
    return Example("MatMul", [tensor(draw, sizes, dims) for dims in draw(st.sampled_from(MATRICES))])


@st.composite
def gemm(draw: Draw) -> Example:
    """Transposed or not, with and without a third matrix."""
    sizes = sizes_of(draw, "m", "j", "k", of=FILLED)
    flip = [draw(st.integers(0, 1)) for _ in range(2)]
    a = tensor(draw, sizes, ("j", "m") if flip[0] else ("m", "j"))
    b = tensor(draw, sizes, ("k", "j") if flip[1] else ("j", "k"))
    third = draw(st.sampled_from([None, (), ("k",), ("m", 1), ("m", "k")]))
    c = [] if third is None else [tensor(draw, sizes, third)]
    scales = {name: draw(st.sampled_from([0.0, 0.5, 1.0])) for name in ("alpha", "beta")}
    return Example("Gemm", [a, b, *c], {"transA": flip[0], "transB": flip[1], **scales}, 13)


SUBJECTS: dict[str, Subject] = {
    **{name: pool(name) for name in ("MaxPool", "AveragePool", "LpPool")},
    "MaxPool-1d": pool("MaxPool", 1),
    "AveragePool-1d": pool("AveragePool", 1),
    **{name: whole(name) for name in ("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")},
    "Conv": conv(),
    "Conv-1d": conv(1),
    "ConvTranspose": conv_transpose(),
    "BatchNormalization": batch_norm(4),
    "BatchNormalization-2d": batch_norm(2),
    "InstanceNormalization": by_group("InstanceNormalization"),
    "GroupNormalization": by_group("GroupNormalization"),
    "LayerNormalization": over_last("LayerNormalization"),
    "RMSNormalization": over_last("RMSNormalization"),
    "LRN": lrn(),
    "LpNormalization": lp_norm(),
    "MeanVarianceNormalization": mean_variance(),
    **{f"Pad-{mode}": pad(mode) for mode in ("constant", "edge", "reflect", "wrap")},
    "CenterCropPad": center(),
    **{f"Resize-{mode}": resize(mode) for mode in ("nearest", "linear", "cubic")},
    "MatMul": matmul(),
    "Gemm": gemm(),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_formulas(name: str) -> None:
    hold_by_numpy(SUBJECTS[name])


@pytest.mark.spread
@pytest.mark.parametrize("name", everyday(SUBJECTS))
def test_backends(name: str, channel: str, make_worker: MakeWorker) -> None:
    hold_on(SUBJECTS[name], channel, make_worker)
