"""onnxruntime's fused layers against onnxruntime, and against NumPy where its CPU has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from engine.base.shapes import DynamicTensorShape
from engine.compiler.interpreter import interpret
from engine.graph.model import Input
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.independent import by_onnxruntime
from tests.engine.operators.single import one_layer, run, structures
from tests.onnx_cases import disagreement

CONTRIB = "com.microsoft"
Arrays = list[np.ndarray | None]


def normal(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    """Numbers around 0."""
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def check(
    op_type: str, arrays: Arrays, attributes: dict[str, Any] | None = None, outputs: int = 1,
    skipped: tuple[int, ...] = (), domain: str = CONTRIB, opset: int = 21,
) -> None:  # fmt: skip
    """The engine's answer is onnxruntime's, but for the outputs that the latter does not fill."""
    expected = by_onnxruntime(op_type, arrays, attributes, outputs=outputs, domain=domain, opset=opset)
    found = run(op_type, arrays, attributes, outputs=outputs, domain=domain, opset=opset)
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if i not in skipped:
            assert a.dtype == b.dtype
            assert disagreement(a, b) < 5e-6


# Products


@pytest.mark.parametrize("op_type", ["FusedMatMul", "TransposeMatMul"])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("trans_a", [0, 1])
def test_products_with_axes_swapped(op_type: str, trans_a: int, trans_b: int) -> None:
    attributes = {"transA": trans_a, "transB": trans_b, "alpha": 0.5}
    for lead_a, lead_b in (
        ((), ()),
        ((2, 3), (2, 3)),
        ((2, 3), ()),
        ((), (2,)),
        ((2, 1), (3,)),
        ((3,), (1,)),
    ):
        a, b = normal(*lead_a, 4, 5), normal(*lead_b, 5, 6)
        a = np.ascontiguousarray(np.swapaxes(a, -1, -2)) if trans_a else a
        b = np.ascontiguousarray(np.swapaxes(b, -1, -2)) if trans_b else b
        check(op_type, [a, b], attributes)
    check(op_type, [normal(5), normal(6, 5) if trans_b else normal(5, 6)], attributes)


@pytest.mark.parametrize("flags", [(1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("trans", [(0, 0), (1, 1)])
def test_products_with_the_batch_inside(flags: tuple[int, int], trans: tuple[int, int]) -> None:
    attributes = {"transBatchA": flags[0], "transBatchB": flags[1], "transA": trans[0], "transB": trans[1]}
    a, b = normal(2, 3, 4, 5), normal(2, 3, 5, 6)
    if trans[0]:
        a, b = np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2)
    a, b = (x.transpose(2, 0, 1, 3) if flag else x for x, flag in zip((a, b), flags, strict=True))
    check("FusedMatMul", [np.ascontiguousarray(a), np.ascontiguousarray(b)], attributes)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", {"activation_alpha": 0.3}),
        ("Elu", {"activation_alpha": 0.7}), ("Softsign", {}), ("Softplus", {}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
        ("Selu", {"activation_alpha": 1.5, "activation_gamma": 1.1}),
        ("ThresholdedRelu", {"activation_alpha": 0.5}),
    ],
)  # fmt: skip
def test_gemm_and_its_activation(name: str, params: dict[str, float]) -> None:
    attributes: dict[str, Any] = {"transB": 1, "alpha": 0.5, "beta": 0.25, "activation": name, **params}
    check("FusedGemm", [normal(3, 4), normal(5, 4), normal(5)], attributes)


def test_inverse() -> None:
    for shape in ((3, 3), (2, 4, 4), (2, 3, 1, 1), (5, 17, 17)):
        check("Inverse", [normal(*shape, dtype="float64")])
    # The first pivot is 0, and so is the second one after the first elimination.
    rows = np.array([[0, 1, 2], [1, 0, 3], [4, -3, 8]], np.float64)
    assert disagreement(run("Inverse", [rows], domain=CONTRIB)[0], np.linalg.inv(rows)) < 1e-12


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric: str) -> None:
    check("CDist", [normal(4, 5), normal(3, 5)], {"metric": metric})


# Convolutions

CONV_ACTIVATIONS: list[tuple[str, tuple[float, ...]]] = [
    ("Relu", ()), ("Tanh", ()), ("Sigmoid", ()), ("LeakyRelu", (0.2,)), ("Clip", (-0.5, 1.0)),
    ("HardSigmoid", (0.3, 0.4)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "params"), CONV_ACTIVATIONS)
def test_convolution_and_its_activation(name: str, params: tuple[float, ...]) -> None:
    attributes: dict[str, Any] = {"activation": name, "pads": [1, 0, 1, 2], "strides": [2, 1], "group": 2}
    if params:
        attributes["activation_params"] = params
    x, w, b, z = normal(2, 4, 6, 7), normal(6, 2, 3, 3), normal(6), normal(2, 6, 3, 7)
    check("FusedConv", [x, w, b], attributes)
    check("FusedConv", [x, w, b, z], attributes)
    check("FusedConv", [x, w, None, z], attributes)


def test_convolution_of_channels_last() -> None:
    """onnxruntime's CPU has no such kernel."""
    x, w, b, z = normal(2, 6, 7, 4), normal(6, 2, 3, 3), normal(6), normal(2, 3, 7, 6)
    attributes = {"pads": [1, 1, 1, 1], "strides": [2, 1], "group": 2}
    first, moved = (np.ascontiguousarray(a.transpose(0, 3, 1, 2)) for a in (x, z))
    (plain,) = by_onnxruntime("Conv", [first, w, b], attributes)
    (found,) = run("NhwcConv", [x, w, b], attributes, domain=CONTRIB)
    (same,) = run("NhwcConv", [x, w.transpose(0, 2, 3, 1), b], attributes, domain=CONTRIB)
    np.testing.assert_array_equal(same, found)
    assert disagreement(found, plain.transpose(0, 2, 3, 1)) < 5e-6
    (found,) = run("NhwcFusedConv", [x, w, b, z], {**attributes, "activation": "Relu"}, domain=CONTRIB)
    assert disagreement(found, np.maximum(plain + moved, 0).transpose(0, 2, 3, 1)) < 5e-6


def test_pooling_of_channels_last() -> None:
    x = np.random.default_rng(1).integers(0, 255, (2, 7, 8, 3)).astype(np.uint8)
    check("NhwcMaxPool", [x], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]})


def test_transposed_convolution_with_pads_as_an_input() -> None:
    arrays: Arrays = [normal(1, 3, 4, 5), normal(3, 2, 3, 3), np.array([1, 0, 1, 2]), normal(2)]
    check("ConvTransposeWithDynamicPads", arrays, {"strides": [2, 2], "output_padding": [1, 0]})
    (expected,) = by_onnxruntime("ConvTranspose", arrays[:2])
    (found,) = run("ConvTransposeWithDynamicPads", arrays[:2], domain=CONTRIB)
    assert disagreement(found, expected) < 5e-6


# Elementwise


def test_gelus() -> None:
    x, bias = 3 * normal(2, 3, 8), normal(8)
    check("Gelu", [x])
    check("BiasGelu", [x, bias])
    check("FastGelu", [x])
    check("FastGelu", [x, bias])
    check("QuickGelu", [x])
    check("QuickGelu", [x], {"alpha": 0.9})


def test_layers_of_diffusion_models() -> None:
    """onnxruntime's CPU has none of these."""
    x, skip, bias = normal(2, 5, 8), normal(2, 5, 8, seed=1), normal(8)
    (found,) = run("BiasAdd", [x, bias, skip], domain=CONTRIB)
    assert disagreement(found, x + bias + skip) < 1e-6
    (found,) = run("BiasSplitGelu", [x, bias], domain=CONTRIB)
    left, right = np.split(x + bias, 2, axis=-1)
    (gelu,) = by_onnxruntime("Gelu", [right], opset=20)
    assert disagreement(found, left * gelu) < 1e-6


def test_image_scaler() -> None:
    check("ImageScaler", [normal(2, 3, 4, 5)], {"scale": 0.5, "bias": [1.0, 2.0, 3.0]}, domain="", opset=8)


# Normalisation


def test_skip_layer_normalization() -> None:
    x, gamma, beta, bias = normal(2, 3, 8), normal(8), normal(8, seed=1), normal(8, seed=2)
    for skip in (normal(2, 3, 8, seed=3), normal(1, 3, 8), normal(3, 8)):
        for rest in ([beta, bias], [beta], [], [None, bias]):
            check("SkipLayerNormalization", [x, skip, gamma, *rest], {"epsilon": 1e-3}, 4, skipped=(1, 2))


def test_skip_simplified_layer_normalization() -> None:
    x, skip, gamma, bias = normal(2, 3, 8), normal(2, 3, 8, seed=3), normal(8), normal(8, seed=2)
    for rest in ([bias], []):
        arrays: Arrays = [x, skip, gamma, *rest]
        expected = by_onnxruntime("SkipSimplifiedLayerNormalization", arrays, outputs=4, domain=CONTRIB)
        model = one_layer("SkipSimplifiedLayerNormalization", arrays, outputs=4, domain=CONTRIB)
        (layer,), outputs = model.layers, model.outputs
        model = model.replace(
            layers=(layer.replace(outputs=("y0", "", "", "y3")),), outputs=(outputs[0], outputs[3])
        )
        found = interpret(model, {f"x{i}": a for i, a in enumerate(arrays) if a is not None})
        assert disagreement(found["y0"], expected[0]) < 5e-6
        assert disagreement(found["y3"], expected[3]) < 5e-6


def test_layer_normalizations_of_before_opset_17() -> None:
    x, scale, bias = normal(2, 3, 8), normal(8), normal(8, seed=1)
    check("SimplifiedLayerNormalization", [x, scale], {"epsilon": 1e-3}, 2, domain="")
    check("SimplifiedLayerNormalization", [x, normal(3, 8)], {"axis": 1}, 2, domain="")
    check("LayerNormalization", [x, scale, bias], {"epsilon": 1e-3}, 3, domain="", opset=12)


@pytest.mark.parametrize("activation", ["silu", "swish", "sigmoid"])
def test_gated_rms_norm(activation: str) -> None:
    check("GatedRMSNorm", [normal(2, 3, 8), normal(4), normal(2, 3, 8, seed=1)], {"activation": activation})


@pytest.mark.parametrize("channels_last", [1, 0])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm(activation: int, channels_last: int) -> None:
    """onnxruntime's CPU has no such kernel."""
    attributes = {"groups": 2, "activation": activation, "epsilon": 1e-3, "channels_last": channels_last}
    x, gamma, beta, bias = normal(2, 4, 5, 6), normal(6), normal(6, seed=1), normal(6, seed=2)

    def expected(x: np.ndarray) -> np.ndarray:
        groups = x.astype(np.float64).reshape(2, 20, 2, 3)
        spread = groups - groups.mean((1, 3), keepdims=True)
        y = (spread / np.sqrt((spread**2).mean((1, 3), keepdims=True) + 1e-3)).reshape(x.shape) * gamma + beta
        return laid(y / (1 + np.exp(-y)) if activation else y)

    def laid(a: np.ndarray) -> np.ndarray:
        return a if channels_last or a.ndim != 4 else np.ascontiguousarray(a.transpose(0, 3, 1, 2))

    (found,) = run("GroupNorm", [laid(x), gamma, beta], attributes, domain=CONTRIB)
    assert disagreement(found, expected(x)) < 5e-6
    for skip in (normal(2, 4, 5, 6, seed=3), normal(2, 1, 1, 6), normal(2, 6)):
        whole = x + (skip.reshape(2, 1, 1, 6) if skip.ndim == 2 else skip) + bias
        arrays: Arrays = [laid(x), gamma, beta, laid(skip), bias]
        y, total = run("SkipGroupNorm", arrays, attributes, outputs=2, domain=CONTRIB)
        assert disagreement(y, expected(whole)) < 5e-6
        assert disagreement(total, laid(whole)) < 1e-6


def test_embeddings_and_their_normalization(rng: np.random.Generator) -> None:
    ids, segments = rng.integers(0, 10, (2, 5)).astype(np.int32), rng.integers(0, 2, (2, 5)).astype(np.int32)
    tables = normal(10, 8), normal(7, 8), normal(2, 8)
    gamma, beta = normal(8), normal(8, seed=1)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    positions = rng.integers(0, 7, (2, 5)).astype(np.int32)
    whole: Arrays = [ids, segments, *tables, gamma, beta, mask, positions]
    name = "EmbedLayerNormalization"
    check(name, whole, {"epsilon": 1e-3}, 3)
    check(name, whole[:8], outputs=3)
    check(name, whole[:7], outputs=2)
    check(name, [ids, None, *tables[:2], None, gamma, beta], outputs=2)
    check(name, [*whole[:7], None, positions[:1]], outputs=2)


# Shapes and states


def test_older_forms_of_shape_operators() -> None:
    x, indices = normal(2, 4, 4), np.array([[0, 1], [1, 3]])
    check("Trilu", [x, np.array(1)], {"upper": 0})
    check("Trilu", [x])
    check("GatherND", [x, indices])
    check("Pad", [x, np.array([0, 1, 0, 2, 0, -1]), np.array([0.5], np.float32)])
    check("Pad", [x, np.array([0, 1, 2, 0, 0, 1])], {"mode": "reflect"})
    check("Range", [np.array(2, np.int32), np.array(9, np.int32), np.array(3, np.int32)])
    check("Range", [np.array([2.0], np.float32), np.array([6.5], np.float32)])
    for axis in (0, 2, -1):
        check("ExpandDims", [x, np.array(axis, np.int32)])
    grid = np.random.default_rng(2).uniform(-1.2, 1.2, (2, 3, 5, 2)).astype(np.float32)
    check("GridSample", [normal(2, 3, 4, 6), grid], {"mode": "bicubic", "padding_mode": "reflection"})


def test_layers_of_linear_attention() -> None:
    a, dt, scale, b = normal(2, 3, 4), normal(4), -np.abs(normal(4, seed=1)), normal(2, 3, 4, seed=2)
    check("LinearAttentionGate", [a, dt, scale, b], outputs=2)
    check("LinearAttentionGate", [a, dt, scale])
    arrays: Arrays = [normal(2, 6, 3), normal(6, 1, 4)[:, :, :], normal(6), normal(2, 6, 3, seed=4)]
    check("CausalConvWithState", arrays, {"activation": "silu"}, 2)
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    queries, keys, values = normal(2, 7, 16), 0.3 * normal(2, 7, 8), normal(2, 7, 6)
    rest = [normal(2, 2, 4, 3), -np.abs(normal(2, 7, 2)), np.random.default_rng(3).uniform(size=(2, 7, 2))]
    states = [r.astype(np.float32) for r in rest]
    check("LinearAttention", [queries, keys, values, *states], heads, 2)


# Backends


OPEN: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("FusedMatMul", {"transB": 1}, ("brw", "brw")),
    ("FusedMatMul", {"transA": 1, "transBatchA": 1}, ("wbr", "bwr")),
    ("Inverse", {}, ("brr",)),
    ("SkipLayerNormalization", {}, ("brw", "1rw", "w")),
    ("BiasSplitGelu", {}, ("br6", "6")),
    ("GroupNorm", {"groups": 1, "activation": 1}, ("brw6", "6", "6")),
]
"""Layers, their attributes, and the axes of each input: letters are symbolic sizes, digits fixed ones."""


@pytest.mark.parametrize(("name", "attributes", "axes"), OPEN)
def test_a_new_size_needs_no_new_kernel(name: str, attributes: dict[str, Any], axes: tuple[str, ...]) -> None:
    inputs = tuple(
        Input(
            f"x{i}", np.dtype(np.float32), DynamicTensorShape(tuple(int(a) if a.isdigit() else a for a in x))
        )
        for i, x in enumerate(axes)
    )
    arrays: Arrays = [normal(*(1 for _ in x)) for x in axes]
    model = one_layer(name, arrays, attributes, domain=CONTRIB).replace(inputs=inputs)

    def kernels(**sizes: int) -> set[str]:
        shapes = {f"x{i}": [sizes.get(a) or int(a) for a in x] for i, x in enumerate(axes)}
        return set(structures(model, shapes))

    assert kernels(b=2, r=3, w=7) == kernels(b=3, r=5, w=4)
    assert kernels(b=1, r=2, w=1) <= kernels(b=2, r=3, w=7)


@pytest.mark.spread
@settings(max_examples=8)
@given(data=st.data())
def test_every_backend_agrees_with_onnxruntime(
    channel: str, make_worker: MakeWorker, data: st.DataObject
) -> None:
    batch, rows, width = (data.draw(st.sampled_from(sizes)) for sizes in ((1, 2), (1, 3, 5), (2, 8)))
    name = data.draw(st.sampled_from(("SkipLayerNormalization", "FusedMatMul", "Inverse")))
    arrays: Arrays
    attributes: dict[str, Any] = {}
    if name == "FusedMatMul":
        arrays = [normal(batch, rows, width), normal(batch, 4, width)]
        attributes = {"transB": 1, "alpha": 0.5}
    elif name == "Inverse":
        arrays = [normal(batch, rows, rows) + 4 * np.eye(rows, dtype=np.float32)]
    else:
        arrays = [normal(batch, rows, width), normal(1, rows, width), normal(width), None, normal(width)]
    (expected,) = by_onnxruntime(name, arrays, attributes, domain=CONTRIB)
    model = one_layer(name, arrays, attributes, dynamic=range(len(arrays)), domain=CONTRIB)
    worker = make_worker(model, channel)
    (found,) = answers(worker, {f"x{i}": a for i, a in enumerate(arrays) if a is not None})
    assert disagreement(found, expected) < (1e-5 if channel == "cpu" else 1e-4)


def test_errors_name_the_layer() -> None:
    x = normal(2, 3, 4)
    subjects: list[tuple[str, Arrays, dict[str, Any], str]] = [
        ("FusedMatMul", [x, normal(2, 3, 5)], {"transB": 1}, r"multiply \[2, 3, 4\] by \[2, 3, 5\]"),
        ("FusedGemm", [normal(2, 3), normal(3, 4)], {"activation": "Sine"}, "unknown activation 'Sine'"),
        ("Inverse", [x], {}, r"takes square matrices, not \[2, 3, 4\]"),
        ("CDist", [normal(2, 3), normal(3, 4)], {}, "equally long rows"),
        ("CDist", [normal(2, 3), normal(3, 3)], {"metric": "cosine"}, "one of euclidean, sqeuclidean"),
        ("NhwcConv", [normal(2, 3), normal(2, 3, 1)], {}, r"takes a tensor \(N, ..., C\)"),
        ("BiasSplitGelu", [normal(2, 3), normal(3)], {}, "cannot halve"),
        ("SkipLayerNormalization", [x, normal(2, 2, 3, 4), normal(4)], {}, "cannot add a skip tensor"),
        ("GroupNorm", [x, normal(4), normal(4)], {"groups": 2, "activation": 2}, "activation 0 or 1"),
        ("GatedRMSNorm", [x, normal(3), x], {}, r"cannot scale \[2, 3, 4\] by \[3\]"),
        ("GatedRMSNorm", [x, normal(4), x], {"activation": "relu"}, "one of silu, swish, sigmoid"),
    ]
    for op_type, arrays, attributes, message in subjects:
        with pytest.raises(ShapeError, match=f"layer 'it' \\(com.microsoft.{op_type}\\): .*{message}"):
            run(op_type, arrays, attributes, domain=CONTRIB)
