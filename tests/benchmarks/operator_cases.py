"""The table of `tests.benchmarks.operators`: single operators at the sizes that networks use, a line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from tests.benchmarks.operator_case import (
    CONTRIB,
    ML,
    NONE,
    Case,
    Operand,
    case,
    chain,
    constant,
    fixed,
    given,
    w,
    x,
)

HALF, BYTE = "float16", "uint8"
ONES = (1, 1, 1, 1)


def _boxes(rng: np.random.Generator) -> np.ndarray:
    corners = rng.random((4000, 2)) * 0.8
    return np.concatenate((corners, corners + 0.02 + rng.random((4000, 2)) * 0.2), 1)[None].astype(np.float32)


def _regions(rng: np.random.Generator) -> np.ndarray:
    corners = rng.random((64, 2)) * 40
    return np.concatenate((corners, corners + 4 + rng.random((64, 2)) * 16), 1).astype(np.float32)


def _grid(rng: np.random.Generator) -> np.ndarray:
    rows, columns = np.meshgrid(np.linspace(-1, 1, 56), np.linspace(-1, 1, 56), indexing="ij")
    grid = np.stack((columns, rows), -1)[None] + rng.normal(0, 0.02, (1, 56, 56, 2))
    return grid.astype(np.float32)


def _pooled_from(rng: np.random.Generator) -> np.ndarray:
    """Positions in 32 planes of 56 x 56, one in each window of 2 x 2."""
    plane, row, column = np.ogrid[:32, :28, :28]
    found = plane * 56 * 56 + (2 * row + rng.integers(0, 2, (32, 28, 28))) * 56 + 2 * column
    return found[None]


def _rows(count: int, most: int) -> Operand:
    """Different rows in a random order, as the indices of a scatter."""
    return fixed(lambda rng: rng.permutation(most)[:count].astype(np.int64)[:, None])


def _body(
    nodes: Sequence[NodeProto], inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]
) -> GraphProto:
    return helper.make_graph(nodes, "body", inputs, outputs)


def _loop(op: str) -> Case:
    """64 steps of a small recurrent cell, as `Scan` or `Loop` runs it."""
    step, state = [1, 64], [1, 64]
    make = helper.make_tensor_value_info
    nodes = [
        helper.make_node("MatMul", ["s", "w"], ["m"]),
        helper.make_node("Add", ["m", "e"], ["a"]),
        helper.make_node("Tanh", ["a"], ["n"]),
        helper.make_node("Identity", ["n"], ["y"]),
    ]
    ends = [make("n", TensorProto.FLOAT, state), make("y", TensorProto.FLOAT, state)]
    if op == "Scan":
        begins = [make("s", TensorProto.FLOAT, state), make("e", TensorProto.FLOAT, step)]
        body = _body(nodes, begins, ends)
        found = case(
            op, "64 steps of a cell", x(1, 64), x(64, 1, 64), outputs=2, num_scan_inputs=1, body=body
        )
    else:
        nodes.insert(0, helper.make_node("Gather", ["v2", "i"], ["e"], axis=0))
        nodes.append(helper.make_node("Identity", ["c"], ["d"]))
        begins = [make("i", TensorProto.INT64, []), make("c", TensorProto.BOOL, [])]
        body = _body(
            nodes, [*begins, make("s", TensorProto.FLOAT, state)], [make("d", TensorProto.BOOL, []), *ends]
        )
        lines = (given(64), given(True, "bool"), x(64, 1, 64))
        found = case(op, "64 steps of a cell", *lines, outputs=2, body=body)
        node = found.nodes[0]
        del node.input[2:]
        node.input.append("s0")
    weights = Operand(w(64, 64).make, True, "w")
    start = Operand(x(1, 64).make, False, "s0")
    more = (weights,) if op == "Scan" else (start, weights)
    return Case(op, found.detail, (*found.operands, *more), found.nodes, found.outputs)


def _trees(op: str, detail: str = "", **attributes: object) -> Case:
    """100 trees of depth 4 over 16 features, 256 rows."""
    rng = np.random.default_rng(0)
    trees, nodes, leaves = 100, 31, 16
    inner = nodes - leaves
    ids = [n for _ in range(trees) for n in range(nodes)]
    is_leaf = [n >= inner for n in ids]
    of = [t for t in range(trees) for _ in range(nodes)]
    where = [(t, n) for t, n, leaf in zip(of, ids, is_leaf, strict=True) if leaf]
    prefix = "class" if op == "TreeEnsembleClassifier" else "target"
    tail: dict[str, object] = {
        f"{prefix}_treeids": [t for t, _ in where],
        f"{prefix}_nodeids": [n for _, n in where],
        f"{prefix}_ids": [0] * len(where),
        f"{prefix}_weights": rng.normal(0, 0.1, len(where)).astype(np.float32).tolist(),
    }
    return case(
        op, f"100 trees, 256 rows{detail}", x(256, 16), domain=ML, opset=17, **tail, **attributes,
        outputs=2 if prefix == "class" else 1,
        types=("object" if detail else "int64", "float32") if prefix == "class" else ("float32",),
        nodes_treeids=of, nodes_nodeids=ids,
        nodes_modes=["LEAF" if leaf else "BRANCH_LEQ" for leaf in is_leaf],
        nodes_featureids=rng.integers(0, 16, len(ids)).tolist(),
        nodes_values=rng.normal(size=len(ids)).astype(np.float32).tolist(),
        nodes_truenodeids=[0 if n >= inner else 2 * n + 1 for n in ids],
        nodes_falsenodeids=[0 if n >= inner else 2 * n + 2 for n in ids],
    )  # fmt: skip


def _q(dtype: str, zero: int = 0, scale: float = 0.02) -> tuple[Operand, Operand]:
    return given(scale, "float32"), given(zero, dtype)


QDQ_CONV = [
    "a = DequantizeLinear(x, s, z)",
    "b = DequantizeLinear(w, ws, wz)",
    "c = Conv <pads = [1, 1, 1, 1]> (a, b)",
    "out = QuantizeLinear(c, t, z)",
]
QDQ_GEMM = [
    "a = DequantizeLinear(x, s, z)",
    "b = DequantizeLinear(w, ws, wz)",
    "c = MatMul(a, b)",
    "out = QuantizeLinear(c, t, z)",
]
DYNAMIC = [
    "q, s, z = DynamicQuantizeLinear(x)",
    "p = MatMulInteger(q, w, z, wz)",
    "f = Cast <to = 1> (p)",
    "t = Mul(s, ws)",
    "out = Mul(f, t)",
]
DYNAMIC_CONV = [
    "q, s, z = DynamicQuantizeLinear(x)",
    "p = ConvInteger <pads = [1, 1, 1, 1]> (q, w, z, wz)",
    "f = Cast <to = 1> (p)",
    "t = Mul(s, ws)",
    "out = Mul(f, t)",
]
SCALES: dict[str, Any] = {
    "s": given(0.02, "float32"),
    "ws": given(0.01, "float32"),
    "t": given(0.5, "float32"),
}

OPERATORS: list[Case] = [
    # Products.
    case("MatMul", "128 x 768 by 768", x(1, 128, 768), w(768, 768)),
    case("MatMul", "128 x 768 by 768, both inputs", x(1, 128, 768), x(768, 768)),
    case("MatMul", "1 x 768 by 3072", x(1, 768), w(768, 3072)),
    case("MatMul", "12 heads of 128 x 64 by 128", x(1, 12, 128, 64), x(1, 12, 64, 128)),
    case("MatMul", "128 x 768 by 768", x(1, 128, 768, dtype=HALF), w(768, 768, dtype=HALF)),
    case("MatMul", "1 x 768 by 3072", x(1, 768, dtype=HALF), w(768, 3072, dtype=HALF)),
    case("MatMul", "256 x 256 by 256", x(256, 256, dtype="float64"), w(256, 256, dtype="float64")),
    case("MatMul", "256 x 256 by 256", x(256, 256, dtype="int32"),
         w(256, 256, dtype="int32", least=0, most=100)),
    case("Gemm", "32 x 256 by 256", x(32, 256), w(256, 256), w(256), transB=1),
    case("Gemm", "1 x 1280 by 1000", x(1, 1280), w(1000, 1280), w(1000), transB=1),
    case("Gemm", "32 x 256 by 256", x(32, 256, dtype=HALF), w(256, 256, dtype=HALF), w(256, dtype=HALF)),
    case("Gemm", "64 x 64 by 64", x(64, 64, dtype="float64"), w(64, 64, dtype="float64"),
         w(64, dtype="float64")),
    case("Einsum", "bhid, bhjd", x(1, 8, 128, 64), x(1, 8, 128, 64), equation="bhid,bhjd->bhij"),
    case("MatMulInteger", "128 x 768 by 768", x(128, 768, dtype=BYTE), w(768, 768, dtype="int8"),
         given(128, BYTE)),
    case("QLinearMatMul", "128 x 768 by 768", x(128, 768, dtype=BYTE), *_q(BYTE, 128),
         w(768, 768, dtype="int8"), *_q("int8"), *_q(BYTE, 128, 2.0)),
    chain("QDQ MatMul", "128 x 768 by 768", QDQ_GEMM, x=x(128, 768, dtype=BYTE), w=w(768, 768, dtype="int8"),
          z=given(128, BYTE), wz=given(0, "int8"), **SCALES),
    chain("Dynamic MatMul", "128 x 768 by 768", DYNAMIC, x=x(128, 768), w=w(768, 768, dtype="int8"),
          wz=given(0, "int8"), ws=given(0.01, "float32")),
    chain("Dynamic MatMul", "1 x 256 by 256", DYNAMIC, x=x(1, 256), w=w(256, 256, dtype="int8"),
          wz=given(0, "int8"), ws=given(0.01, "float32")),
    case("DynamicQuantizeMatMul", "128 x 768 by 768", x(128, 768), w(768, 768, dtype="int8"),
         w(768, least=0.01, most=0.02), domain=CONTRIB, types=("float32",)),
    case("MatMulNBits", "1 x 768 by 3072, 4 bits", x(1, 768), w(3072, 24, 16, dtype=BYTE),
         w(3072 * 24, least=0.001, most=0.002), domain=CONTRIB, types=("float32",), K=768, N=3072, bits=4,
         block_size=32),
    case("MatMulNBits", "64 x 768 by 768, 4 bits", x(64, 768), w(768, 24, 16, dtype=BYTE),
         w(768 * 24, least=0.001, most=0.002), domain=CONTRIB, types=("float32",), K=768, N=768, bits=4,
         block_size=32),
    *(
        made
        for rows in (1, 64)
        for made in (
            case("MoE", f"{rows} rows, 2 of 8 experts, 256 to 512", x(rows, 256), x(rows, 8), w(8, 512, 256),
                 NONE, w(8, 256, 512), domain=CONTRIB, types=("float32",), k=2),
            case("QMoE", f"{rows} rows, 2 of 8 experts, 256 to 512, 4 bits", x(rows, 256), x(rows, 8),
                 w(8, 512, 128, dtype=BYTE), w(8, 512, least=0.001, most=0.002), NONE,
                 w(8, 256, 256, dtype=BYTE), w(8, 256, least=0.001, most=0.002), domain=CONTRIB,
                 types=("float32",), k=2, expert_weight_bits=4),
        )
    ),
    case("QAttention", "64 x 256, 4 heads", x(1, 64, 256, dtype=BYTE), w(256, 768, dtype="int8"), w(768),
         given(0.02, "float32"), given(0.01, "float32"), NONE, given(128, BYTE), given(0, "int8"),
         domain=CONTRIB, types=("float32",), num_heads=4),
    case("FusedMatMul", "8 heads of 128 x 64, transposed", x(1, 8, 128, 64), x(1, 8, 128, 64), domain=CONTRIB,
         types=("float32",), transB=1, alpha=0.125),
    # Convolutions.
    case("Conv", "3 x 3, 64 of 56 x 56", x(1, 64, 56, 56), w(64, 64, 3, 3), w(64), pads=ONES),
    case("Conv", "3 x 3, 256 of 14 x 14", x(1, 256, 14, 14), w(256, 256, 3, 3), w(256), pads=ONES),
    case("Conv", "3 x 3 stride 2, 3 to 32 of 224 x 224", x(1, 3, 224, 224), w(32, 3, 3, 3), strides=(2, 2),
         pads=ONES),
    case("Conv", "7 x 7 stride 2, 3 to 64 of 224 x 224", x(1, 3, 224, 224), w(64, 3, 7, 7), strides=(2, 2),
         pads=(3, 3, 3, 3)),
    case("Conv", "1 x 1, 128 of 28 x 28", x(1, 128, 28, 28), w(128, 128, 1, 1), w(128)),
    case("Conv", "depthwise 3 x 3, 144 of 56 x 56", x(1, 144, 56, 56), w(144, 1, 3, 3), group=144, pads=ONES),
    case("Conv", "groups 32, 3 x 3, 256 of 28 x 28", x(1, 256, 28, 28), w(256, 8, 3, 3), group=32, pads=ONES),
    case("Conv", "dilated 3 x 3, 64 of 28 x 28", x(1, 64, 28, 28), w(64, 64, 3, 3), dilations=(2, 2),
         pads=(2, 2, 2, 2)),
    case("Conv", "3 x 3, 64 of 56 x 56, weights an input", x(1, 64, 56, 56), x(64, 64, 3, 3), pads=ONES),
    case("Conv", "depthwise 3 x 3, 96 of 56 x 56, weights an input", x(1, 96, 56, 56), x(96, 1, 3, 3),
         group=96, pads=ONES),
    case("Conv", "1-D, 5 of 256, 400 long", x(1, 256, 400), w(256, 256, 5), w(256), pads=(2, 2)),
    case("Conv", "1-D, 10 stride 5, 1 to 512 of 16000", x(1, 1, 16000), w(512, 1, 10), strides=(5,)),
    case("Conv", "3-D 3 x 3 x 3, 32 of 8 x 28 x 28", x(1, 32, 8, 28, 28), w(32, 32, 3, 3, 3), pads=(1,) * 6),
    case("Conv", "3-D 1 x 1 x 1, 64 of 8 x 14 x 14", x(1, 64, 8, 14, 14), w(64, 64, 1, 1, 1)),
    case("Conv", "3-D 1 x 3 x 3, 32 of 8 x 28 x 28", x(1, 32, 8, 28, 28), w(32, 32, 1, 3, 3),
         pads=(0, 1, 1) * 2),
    case("Conv", "3-D 3 x 1 x 1, 32 of 8 x 28 x 28", x(1, 32, 8, 28, 28), w(32, 32, 3, 1, 1),
         pads=(1, 0, 0) * 2),
    case("Conv", "3 x 3, 64 of 56 x 56", x(1, 64, 56, 56, dtype=HALF), w(64, 64, 3, 3, dtype=HALF),
         pads=ONES),
    case("Conv", "1 x 1, 128 of 28 x 28", x(1, 128, 28, 28, dtype=HALF), w(128, 128, 1, 1, dtype=HALF)),
    case("Conv", "depthwise 3 x 3, 144 of 56 x 56", x(1, 144, 56, 56, dtype=HALF),
         w(144, 1, 3, 3, dtype=HALF), group=144, pads=ONES),
    case("ConvTranspose", "2 x 2 stride 2, 64 to 32 of 28 x 28", x(1, 64, 28, 28), w(64, 32, 2, 2),
         strides=(2, 2)),
    case("ConvTranspose", "4 x 4 stride 2, 64 to 32 of 28 x 28", x(1, 64, 28, 28), w(64, 32, 4, 4),
         strides=(2, 2), pads=ONES),
    case("ConvTranspose", "3-D 2 x 2 x 2 stride 2, 32 of 4 x 14 x 14", x(1, 32, 4, 14, 14),
         w(32, 16, 2, 2, 2), strides=(2, 2, 2)),
    case("ConvTranspose", "2 x 2 stride 2, 64 to 32 of 28 x 28", x(1, 64, 28, 28, dtype=HALF),
         w(64, 32, 2, 2, dtype=HALF), strides=(2, 2)),
    case("ConvInteger", "3 x 3, 32 of 28 x 28", x(1, 32, 28, 28, dtype=BYTE), w(32, 32, 3, 3, dtype="int8"),
         given(128, BYTE), pads=ONES),
    case("QLinearConv", "3 x 3, 64 of 56 x 56", x(1, 64, 56, 56, dtype=BYTE), *_q(BYTE, 128),
         w(64, 64, 3, 3, dtype="int8"), *_q("int8"), *_q(BYTE, 128, 1.0), pads=ONES),
    case("QLinearConv", "1 x 1, 128 of 28 x 28", x(1, 128, 28, 28, dtype=BYTE), *_q(BYTE, 128),
         w(128, 128, 1, 1, dtype="int8"), *_q("int8"), *_q(BYTE, 128, 1.0)),
    case("QLinearConv", "depthwise 3 x 3, 144 of 56 x 56", x(1, 144, 56, 56, dtype=BYTE), *_q(BYTE, 128),
         w(144, 1, 3, 3, dtype="int8"), *_q("int8"), *_q(BYTE, 128, 1.0), group=144, pads=ONES),
    chain("QDQ Conv", "3 x 3, 64 of 56 x 56", QDQ_CONV, x=x(1, 64, 56, 56, dtype=BYTE),
          w=w(64, 64, 3, 3, dtype="int8"), z=given(128, BYTE), wz=given(0, "int8"), **SCALES),
    chain("Dynamic Conv", "3 x 3, 64 of 56 x 56", DYNAMIC_CONV, x=x(1, 64, 56, 56),
          w=w(64, 64, 3, 3, dtype="int8"), wz=given(0, "int8"), ws=given(0.01, "float32")),
    # Pools.
    case("MaxPool", "3 x 3 stride 2, 64 of 112 x 112", x(1, 64, 112, 112), kernel_shape=(3, 3),
         strides=(2, 2), pads=ONES),
    case("MaxPool", "2 x 2 stride 2, 64 of 56 x 56", x(1, 64, 56, 56, dtype=HALF), kernel_shape=(2, 2),
         strides=(2, 2)),
    case("MaxPool", "2 x 2 stride 2, 64 of 56 x 56", x(1, 64, 56, 56, dtype=BYTE), kernel_shape=(2, 2),
         strides=(2, 2)),
    case("MaxPool", "with indices, 64 of 56 x 56", x(1, 64, 56, 56), outputs=2, kernel_shape=(2, 2),
         strides=(2, 2)),
    case("MaxPool", "3-D 2 x 2 x 2, 32 of 8 x 28 x 28", x(1, 32, 8, 28, 28), kernel_shape=(2, 2, 2),
         strides=(2, 2, 2)),
    case("AveragePool", "3 x 3, 192 of 28 x 28", x(1, 192, 28, 28), kernel_shape=(3, 3), pads=ONES),
    case("AveragePool", "28 x 28, 64 of 56 x 56", x(1, 64, 56, 56), kernel_shape=(28, 28), strides=(28, 28)),
    case("AveragePool", "3-D 2 x 2 x 2, 32 of 8 x 28 x 28", x(1, 32, 8, 28, 28), kernel_shape=(2, 2, 2),
         strides=(2, 2, 2)),
    case("GlobalAveragePool", "1280 of 7 x 7", x(1, 1280, 7, 7)),
    case("GlobalAveragePool", "64 of 112 x 112", x(1, 64, 112, 112, dtype=HALF)),
    case("GlobalMaxPool", "512 of 14 x 14", x(1, 512, 14, 14)),
    case("LpPool", "2 x 2, 64 of 28 x 28", x(1, 64, 28, 28), kernel_shape=(2, 2), strides=(2, 2)),
    case("MaxUnpool", "2 x 2, 32 of 28 x 28", x(1, 32, 28, 28),
         constant(_pooled_from), kernel_shape=(2, 2), strides=(2, 2)),
    case("QLinearGlobalAveragePool", "1280 of 7 x 7", x(1, 1280, 7, 7, dtype=BYTE), *_q(BYTE, 128),
         *_q(BYTE, 128), domain=CONTRIB, types=(BYTE,), channels_last=0),
    # Normalisations, softmax.
    case("BatchNormalization", "64 of 56 x 56", x(1, 64, 56, 56), w(64), w(64), w(64),
         w(64, least=0.5, most=1.5)),
    case("LayerNormalization", "128 x 768", x(1, 128, 768), w(768), w(768)),
    case("LayerNormalization", "128 x 768", x(1, 128, 768, dtype=HALF), w(768, dtype=HALF),
         w(768, dtype=HALF)),
    case("LayerNormalization", "256 x 256", x(256, 256, dtype="float64"), w(256, dtype="float64")),
    case("InstanceNormalization", "32 of 128 x 128", x(1, 32, 128, 128), w(32), w(32)),
    case("GroupNormalization", "32 groups, 128 of 32 x 32", x(1, 128, 32, 32), w(128), w(128), opset=21,
         num_groups=32),
    case("SkipLayerNormalization", "128 x 768", x(1, 128, 768), x(1, 128, 768), w(768), w(768),
         domain=CONTRIB, types=("float32",)),
    case("SimplifiedLayerNormalization", "128 x 768", x(1, 128, 768), w(768), types=("float32",)),
    case("LpNormalization", "256 x 512", x(256, 512), axis=-1),
    case("MeanVarianceNormalization", "64 of 56 x 56", x(1, 64, 56, 56)),
    case("LRN", "96 of 27 x 27", x(1, 96, 27, 27), size=5),
    case("Softmax", "12 heads of 128 x 128", x(1, 12, 128, 128)),
    case("Softmax", "1 x 1000", x(1, 1000)),
    case("Softmax", "12 heads of 128 x 128", x(1, 12, 128, 128, dtype=HALF)),
    case("Softmax", "over channels, 21 of 128 x 128", x(1, 21, 128, 128), axis=1),
    case("LogSoftmax", "32 x 1000", x(32, 1000)),
    # Elementwise.
    case("Relu", "64 of 112 x 112", x(1, 64, 112, 112)),
    case("Relu", "64 of 112 x 112", x(1, 64, 112, 112, dtype=HALF)),
    case("Add", "64 of 112 x 112", x(1, 64, 112, 112), x(1, 64, 112, 112)),
    case("Add", "64 of 112 x 112, a channel's", x(1, 64, 112, 112), w(1, 64, 1, 1)),
    case("Add", "64 of 56 x 56", x(1, 64, 56, 56, dtype=HALF), x(1, 64, 56, 56, dtype=HALF)),
    case("Add", "100,000", x(100000, dtype="int64"), x(100000, dtype="int64")),
    case("Mul", "100,000", x(100000, dtype="int32"), x(100000, dtype="int32")),
    case("Mul", "100,000", x(100000, dtype="float64"), x(100000, dtype="float64")),
    case("Div", "100,000", x(100000), x(100000, least=1.0, most=2.0)),
    case("Mod", "100,000", x(100000, dtype="int64"), x(100000, dtype="int64", least=1, most=50)),
    case("Pow", "128 x 768", x(128, 768, least=0.1, most=2.0), given(3.0, "float32")),
    case("Sigmoid", "128 x 3072", x(128, 3072)),
    case("Tanh", "128 x 3072", x(128, 3072)),
    case("Erf", "128 x 3072", x(128, 3072)),
    case("Gelu", "128 x 3072", x(128, 3072)),
    case("Gelu", "128 x 3072", x(128, 3072, dtype=HALF)),
    case("Exp", "128 x 3072", x(128, 3072)),
    case("Log", "128 x 3072", x(128, 3072, least=0.1, most=9.0)),
    case("Sqrt", "128 x 3072", x(128, 3072, least=0.1, most=9.0)),
    case("Sin", "128 x 3072", x(128, 3072)),
    case("HardSwish", "96 of 56 x 56", x(1, 96, 56, 56)),
    case("LeakyRelu", "64 of 104 x 104", x(1, 64, 104, 104)),
    case("PRelu", "64 of 56 x 56", x(1, 64, 56, 56), w(64, 1, 1)),
    case("Mish", "64 of 52 x 52", x(1, 64, 52, 52)),
    case("Clip", "96 of 112 x 112", x(1, 96, 112, 112), given(0.0, "float32"), given(6.0, "float32")),
    case("Where", "12 of 128 x 128", x(1, 1, 128, 128, dtype="bool"), x(1, 12, 128, 128),
         given(-1e9, "float32")),
    case("Greater", "100,000", x(100000), x(100000)),
    case("Equal", "100,000", x(100000, dtype="int64"), x(100000, dtype="int64")),
    case("Equal", "1,000 words", x(1000, dtype="object"), given(["walk"], "object"), opset=19),
    case("And", "100,000", x(100000, dtype="bool"), x(100000, dtype="bool")),
    case("Not", "100,000", x(100000, dtype="bool")),
    case("IsNaN", "100,000", x(100000)),
    case("Round", "100,000", x(100000)),
    case("BitShift", "100,000", x(100000, dtype="uint32"), given(3, "uint32"), direction="LEFT"),
    case("Max", "100,000, three", x(100000), x(100000), x(100000)),
    case("QLinearAdd", "64 of 56 x 56", x(1, 64, 56, 56, dtype=BYTE), *_q(BYTE, 128),
         x(1, 64, 56, 56, dtype=BYTE), *_q(BYTE, 128), *_q(BYTE, 128, 0.04), domain=CONTRIB, types=(BYTE,)),
    case("QLinearSigmoid", "64 of 56 x 56", x(1, 64, 56, 56, dtype=BYTE), *_q(BYTE, 128),
         *_q(BYTE, 0, 1 / 256), domain=CONTRIB, types=(BYTE,)),
    # Conversion.
    case("Cast", "to float16, 64 of 112 x 112", x(1, 64, 112, 112), to=TensorProto.FLOAT16),
    case("Cast", "to float32, 64 of 112 x 112", x(1, 64, 112, 112, dtype=HALF), to=TensorProto.FLOAT),
    case("Cast", "to float32, 3 of 224 x 224", x(1, 3, 224, 224, dtype=BYTE), to=TensorProto.FLOAT),
    case("Cast", "to int32, 100,000", x(100000, dtype="int64"), to=TensorProto.INT32),
    case("QuantizeLinear", "64 of 112 x 112", x(1, 64, 112, 112), *_q(BYTE, 128)),
    case("DequantizeLinear", "64 of 112 x 112", x(1, 64, 112, 112, dtype=BYTE), *_q(BYTE, 128)),
    case("DynamicQuantizeLinear", "128 x 768", x(128, 768), outputs=3),
    # Reductions.
    case("ReduceMean", "128 x 768, rows", x(1, 128, 768), given([-1])),
    case("ReduceMean", "64 of 56 x 56, planes", x(1, 64, 56, 56), given([2, 3])),
    case("ReduceSum", "1024 x 1024, columns", x(1024, 1024), given([0])),
    case("ReduceSum", "1024 x 1024, columns", x(1024, 1024, dtype="int64"), given([0])),
    case("ReduceMax", "128 x 768, rows", x(1, 128, 768, dtype=HALF), given([-1])),
    case("ReduceMin", "100,000, all", x(100000)),
    case("ReduceProd", "128 x 768, rows", x(128, 768, least=0.9, most=1.1), given([-1])),
    case("ReduceL2", "256 x 512, rows", x(256, 512), given([-1])),
    case("ReduceLogSumExp", "256 x 512, rows", x(256, 512), given([-1])),
    case("ReduceLogSumExp", "64 of 56 x 56, over channels", x(4, 64, 56, 56), given([1])),
    case("ArgMin", "1000 x 300, along axis 0", x(1000, 300), axis=0),
    case("Hardmax", "256 x 1000", x(256, 1000), axis=1),
    case("ArgMax", "1 x 50,000", x(1, 50000), axis=1),
    case("ArgMax", "over channels, 21 of 128 x 128", x(1, 21, 128, 128), axis=1),
    case("CumSum", "64 x 4096, along rows", x(64, 4096), given(1)),
    case("CumSum", "4096 x 64, along axis 0", x(4096, 64), given(0)),
    case("CumSum", "1 x 512", x(1, 512, dtype="int64"), given(1)),
    # Movement.
    case("Transpose", "1000 x 1000", x(1000, 1000), perm=(1, 0)),
    case("Transpose", "64 of 112 x 112 to channels last", x(1, 64, 112, 112), perm=(0, 2, 3, 1)),
    case("Transpose", "12 heads of 128 x 64", x(1, 128, 12, 64, dtype=HALF), perm=(0, 2, 1, 3)),
    case("Transpose", "224 x 224 x 3 to channels first", x(1, 224, 224, 3, dtype=BYTE), perm=(0, 3, 1, 2)),
    case("Concat", "two of 64 of 56 x 56", x(1, 64, 56, 56), x(1, 64, 56, 56), axis=1),
    case("Concat", "two of 128 x 64, last axis", x(1, 12, 128, 64), x(1, 12, 128, 64), axis=-1),
    case("Split", "128 x 2304 in three", x(1, 128, 2304), outputs=3, axis=-1, num_outputs=3),
    case("Slice", "every second, 64 of 112 x 112", x(1, 64, 112, 112), given([0, 0]), given([112, 112]),
         given([2, 3]), given([2, 2])),
    case("Pad", "zeros, 64 of 56 x 56", x(1, 64, 56, 56), given([0, 0, 1, 1, 0, 0, 1, 1])),
    case("Pad", "reflected, 32 of 112 x 112", x(1, 32, 112, 112), given([0, 0, 4, 4, 0, 0, 4, 4]),
         mode="reflect"),
    case("Expand", "1 x 768 to 128 x 768", x(1, 768), given([128, 768])),
    case("Tile", "64 of 28 x 28 twice", x(1, 64, 28, 28), given([1, 1, 2, 2])),
    case("DepthToSpace", "64 of 56 x 56", x(1, 64, 56, 56), blocksize=2),
    case("SpaceToDepth", "3 of 640 x 640", x(1, 3, 640, 640), blocksize=2),
    case("Reshape", "64 of 112 x 112", x(1, 64, 112, 112), given([1, -1])),
    case("ReverseSequence", "64 x 32 x 128", x(64, 32, 128), fixed(lambda rng: rng.integers(1, 64, 32))),
    case("Trilu", "12 of 128 x 128", x(12, 128, 128)),
    case("EyeLike", "512 x 512", x(512, 512)),
    case("Range", "100,000", given(0), given(100000), given(1)),
    case("ConstantOfShape", "256 x 1024", fixed(lambda rng: np.array([256, 1024]))),
    # Choosing, sorting, gathering, scattering.
    case("Gather", "128 rows of 30,000 x 768", w(30000, 768), x(1, 128, dtype="int64", least=0, most=30000)),
    case("Gather", "128 rows of 30,000 x 768", w(30000, 768, dtype=HALF),
         x(1, 128, dtype="int64", least=0, most=30000)),
    case("Gather", "1,000 words", given(["a", "b", "c", "d"], "object"),
         x(1000, dtype="int64", least=0, most=4)),
    case("GatherElements", "256 x 1024", x(256, 1024), x(256, 1024, dtype="int64", least=0, most=1024),
         axis=1),
    case("GatherND", "2,000 of 200 x 200 x 16", x(200, 200, 16),
         x(2000, 2, dtype="int64", least=0, most=200)),
    case("ScatterElements", "256 x 1024", x(256, 1024),
         fixed(lambda rng: rng.permuted(np.tile(np.arange(1024), (256, 1)), axis=1)), x(256, 1024), axis=1),
    case("ScatterElements", "500 x 50 into 1000 x 100, add", x(1000, 100),
         x(500, 50, dtype="int64", least=0, most=1000), x(500, 50), axis=0, reduction="add"),
    case("ScatterND", "20,000 rows of 32", x(20000, 32), _rows(2000, 20000), x(2000, 32)),
    case("ScatterND", "add 20,000 rows of 32", x(20000, 32), x(20000, 1, dtype="int64", least=0, most=20000),
         x(20000, 32), reduction="add"),
    case("TopK", "100 of 100,000", x(1, 100000), given([100]), outputs=2),
    case("TopK", "10 of 1,000 in 128 rows", x(128, 1000), given([10]), outputs=2),
    case("TopK", "a full sort of 10,000", x(1, 10000), given([10000]), outputs=2),
    case("TopK", "50 of 50,000", x(1, 50000, dtype=HALF), given([50]), outputs=2),
    case("NonMaxSuppression", "4,000 boxes of 8 classes", fixed(_boxes), x(1, 8, 4000, least=0.0, most=1.0),
         given([100]), given([0.5], "float32"), given([0.6], "float32")),
    case("NonZero", "256 x 1024", x(256, 1024, dtype="bool")),
    case("Compress", "half of 20,000 rows of 8", x(20000, 8), x(20000, dtype="bool"), axis=0),
    case("Unique", "10,000", x(10000, dtype="int64"), outputs=1),
    case("OneHot", "512 of 1,000", x(512, dtype="int64"), given(1000), given([0.0, 1.0], "float32")),
    # Images.
    case("Resize", "linear, 32 of 56 x 56, twice", x(1, 32, 56, 56), NONE, given([1, 1, 2, 2], "float32"),
         mode="linear"),
    case("Resize", "nearest, 64 of 52 x 52, twice", x(1, 64, 52, 52), NONE, given([1, 1, 2, 2], "float32"),
         mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    case("Resize", "cubic, 3 of 112 x 112, twice", x(1, 3, 112, 112), NONE, given([1, 1, 2, 2], "float32"),
         mode="cubic"),
    case("Resize", "linear, 32 of 56 x 56, twice", x(1, 32, 56, 56, dtype=HALF), NONE,
         given([1, 1, 2, 2], "float32"), mode="linear"),
    case("Resize", "3-D linear, 16 of 8 x 28 x 28, twice", x(1, 16, 8, 28, 28), NONE,
         given([1, 1, 2, 2, 2], "float32"), mode="linear"),
    case("GridSample", "bilinear, 64 of 56 x 56", x(1, 64, 56, 56), fixed(_grid), mode="linear"),
    case("GridSample", "nearest, 64 of 56 x 56", x(1, 64, 56, 56), fixed(_grid), mode="nearest"),
    case("AffineGrid", "56 x 56", x(1, 2, 3), given([1, 3, 56, 56])),
    case("RoiAlign", "64 regions of 64 x 50 x 50", x(1, 64, 50, 50), fixed(_regions), given([0] * 64),
         output_height=7, output_width=7, sampling_ratio=2),
    case("Upsample", "linear, 16 of 28 x 28, twice", x(1, 16, 28, 28), given([1, 1, 2, 2], "float32"),
         opset=9, mode="linear"),
    # Sequences in time, attention.
    case("LSTM", "32 steps of 128, 128 cells", x(32, 1, 128), w(1, 512, 128), w(1, 512, 128), w(1, 1024),
         outputs=3, hidden_size=128),
    case("GRU", "32 steps of 128, 128 cells", x(32, 1, 128), w(1, 384, 128), w(1, 384, 128), w(1, 768),
         outputs=2, hidden_size=128),
    case("RNN", "32 steps of 128, 128 cells", x(32, 1, 128), w(1, 128, 128), w(1, 128, 128), w(1, 256),
         outputs=2, hidden_size=128),
    case("LSTM", "1 step of 153, 256 cells", x(1, 1, 153), w(1, 1024, 153), w(1, 1024, 256), w(1, 2048), NONE,
         x(1, 1, 256), x(1, 1, 256), outputs=3, hidden_size=256),
    case("LSTM", "both ways, 32 steps of 64", x(32, 1, 64), w(2, 256, 64), w(2, 256, 64), w(2, 512),
         outputs=1, hidden_size=64, direction="bidirectional"),
    case("MultiHeadAttention", "12 heads of 128 x 64", x(1, 128, 768), x(1, 128, 768), x(1, 128, 768),
         domain=CONTRIB, types=("float32",), num_heads=12),
    case("Attention", "12 heads of 128 x 64", x(1, 128, 768), w(768, 2304), w(2304), domain=CONTRIB,
         types=("float32",), num_heads=12),
    case("GroupQueryAttention", "8 heads on 2 of 64, 128 long", x(1, 128, 512), x(1, 128, 128),
         x(1, 128, 128), NONE, NONE, given([127], "int32"), given(128, "int32"), domain=CONTRIB,
         types=("float32",) * 3, outputs=3, num_heads=8, kv_num_heads=2),
    _loop("Scan"),
    _loop("Loop"),
    # Signals, random numbers.
    case("DFT", "64 frames of 512", x(64, 512, 1), NONE, given(1), onesided=1),
    case("DFT", "4 complex of 4096", x(4, 4096, 2), NONE, given(1)),
    case("STFT", "16,000 samples, 512 by 160", x(1, 16000, 1), given(160),
         constant(lambda rng: np.hanning(512).astype(np.float32)), given(512)),
    case("MelWeightMatrix", "80 of 512", given(80), given(512), given(16000), given(0.0, "float32"),
         given(8000.0, "float32")),
    case("RandomNormalLike", "128 x 768", x(128, 768)),
    case("RandomUniformLike", "128 x 768", x(128, 768)),
    case("Multinomial", "128 rows of 64", x(128, 64), dtype=TensorProto.INT64, sample_size=1),
    case("Bernoulli", "128 x 768", x(128, 768, least=0.0, most=1.0)),
    # Linear algebra.
    case("Det", "64 of 8 x 8", x(64, 8, 8)),
    # Trees, labels, text.
    _trees("TreeEnsembleRegressor", n_targets=1),
    _trees("TreeEnsembleClassifier", classlabels_int64s=[0, 1], post_transform="LOGISTIC"),
    _trees("TreeEnsembleClassifier", ", words", classlabels_strings=["run", "wait"]),
    case("LinearClassifier", "256 rows of 16, 4 labels", x(256, 16), domain=ML, opset=17, outputs=2,
         types=("int64", "float32"), coefficients=np.linspace(-1, 1, 64).tolist(), intercepts=[0.0] * 4,
         classlabels_ints=[0, 1, 2, 3], multi_class=1, post_transform="SOFTMAX"),
    case("SVMRegressor", "256 rows of 16, 100 vectors", x(256, 16), domain=ML, opset=17, types=("float32",),
         coefficients=np.linspace(-1, 1, 100).tolist(), kernel_params=[0.1, 0.0, 3.0], kernel_type="RBF",
         n_supports=100, rho=[0.0], support_vectors=np.sin(np.arange(1600.0)).tolist()),
    case("Normalizer", "256 x 16", x(256, 16), domain=ML, opset=17, types=("float32",), norm="L2"),
    case("Scaler", "256 x 16", x(256, 16), domain=ML, opset=17, types=("float32",), offset=[0.5] * 16,
         scale=[2.0] * 16),
    case("LabelEncoder", "1,000 words", x(1000, dtype="object"), domain=ML, opset=17, types=("int64",),
         keys_strings=["walk", "run", "jump"], values_int64s=[0, 1, 2]),
    case("StringNormalizer", "16 words", x(16, dtype="object"), case_change_action="UPPER", locale="C"),
    case("TfIdfVectorizer", "256 x 64", x(256, 64, dtype="int64", least=0, most=50), max_gram_length=1,
         max_skip_count=0, min_gram_length=1, mode="TF", ngram_counts=[0], ngram_indexes=list(range(50)),
         pool_int64s=list(range(50))),
]  # fmt: skip
