"""Every family of operators at sizes where some limit begins to matter, against onnxruntime.

Limits: rounds after which a driver ends loops (65,535 on llvmpipe, over the elements of a texel or word
together), width and height of textures, groups of a dispatch (65,535), integers that a float32 holds (2^24),
inputs and arguments of a shader, bytes that one storage block addresses (2^27).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from engine import Model, ModelLoader
from tests.engine.conftest import MakeWorker
from tests.graphs import node, proto
from tests.peer import open_session

SEED = np.random.SeedSequence(21)
Arrays = Mapping[str, np.ndarray]


@dataclass
class Case:
    """One layer. `constants` are those of the inputs that the model holds; `is_moved` allows the CPU."""

    op_type: str
    arrays: Callable[..., Sequence[np.ndarray | None]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: Sequence[int] = ()
    outputs: int = 1
    domain: str = ""
    is_quick: bool = False
    is_moved: bool = False
    opset: int = 18
    expected: Callable[[Arrays], Sequence[np.ndarray]] | None = None

    def made(self) -> tuple[bytes, Arrays]:
        """The model file and its inputs."""
        given = self.arrays(np.random.default_rng(SEED))
        names = [f"x{i}" if a is not None else "" for i, a in enumerate(given)]
        arrays = {n: a for n, a in zip(names, given, strict=True) if a is not None}
        known = {f"x{i}": arrays.pop(f"x{i}") for i in self.constants}
        outputs = [f"y{i}" for i in range(self.outputs)]
        layer = node(self.op_type, names, outputs, domain=self.domain, **self.attributes)
        types = _output_types(layer, arrays, known, self)
        declared = {n: (a.dtype.name, list(a.shape)) for n, a in arrays.items()}
        return proto([layer], declared, dict(zip(outputs, types, strict=True)), known, self.opset), arrays


def _output_types(layer: Any, arrays: Arrays, known: Arrays, case: Case) -> list[tuple[str, None]]:
    """What the layer yields, by ONNX's inference."""
    declared = {n: (a.dtype.name, list(a.shape)) for n, a in arrays.items()}
    model = onnx.load_from_string(proto([layer], declared, {}, known, case.opset))
    inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
    types = {v.name: helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type).name for v in inferred}
    return [(types.get(name, "float32"), None) for name in layer.output]


def floats(*shape: int) -> Callable[[np.random.Generator], list[np.ndarray]]:
    """One tensor of numbers in 0.5..1.5: sums grow, and products do not vanish."""
    return lambda rng: [rng.random(shape, np.float32) + np.float32(0.5)]


def signed(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[np.ndarray]]:
    """Tensors of numbers around 0."""
    return lambda rng: [rng.standard_normal(s, np.float32) for s in shapes]


def axes(make: Callable[[np.random.Generator], list[np.ndarray]], *along: int) -> Any:
    """With the axes as a second input."""
    return lambda rng: [*make(rng), np.array(along)]


def by_onnxruntime(made: bytes, arrays: Arrays) -> list[np.ndarray]:
    """What onnxruntime yields."""
    session = open_session(made)
    return list(session.run(None, dict(arrays)))


def spectrum(arrays: Arrays) -> list[np.ndarray]:
    """The one-sided Fourier transform of a real signal (1, n, 1)."""
    found = np.fft.rfft(arrays["x0"][..., 0].astype(np.float64))
    return [np.stack([found.real, found.imag], -1).astype(np.float32)]


CASES: dict[str, Case] = {}

# Rounds of one loop: one element at once, two or four in a word, four in a texel.
for n in (16382, 16384, 65535, 65536, 70001):
    CASES[f"sum of {n}"] = Case("ReduceSum", axes(floats(3, n), 1), {"keepdims": 0}, [1], is_quick=n == 70001)
    CASES[f"sum of rows {n}"] = Case("ReduceSum", axes(floats(n, 3), 0), {"keepdims": 0}, [1])
    CASES[f"largest position of {n}"] = Case("ArgMax", signed((3, n)), {"axis": 1}, is_quick=n == 70001)
    CASES[f"bytes {n}"] = Case(
        "ReduceMax", lambda rng, n=n: [rng.integers(0, 200, (5, n), np.uint8), np.array([1])], {}, [1]
    )
    CASES[f"running sum of {n}"] = Case("CumSum", lambda rng, n=n: [*floats(2, n)(rng), np.array(1)], {}, [1])
    CASES[f"softmax of {n}"] = Case("Softmax", signed((2, n)), is_quick=n == 65536)
    CASES[f"product of {n}"] = Case("MatMul", signed((5, n), (n, 3)))
    CASES[f"channels {n}"] = Case("Conv", signed((1, n, 2, 2), (9, n, 1, 1)), {}, [1])
    CASES[f"window of {n}"] = Case("AveragePool", floats(1, 2, n + 8), {"kernel_shape": [n], "strides": [4]})
for a, b in ((2, 32768), (32768, 2), (16384, 3), (256, 256), (3, 40000), (40000, 3)):
    CASES[f"sum of {a} times {b}"] = Case(
        "ReduceSum", axes(floats(a, 3, b), 0, 2), {}, [1], is_quick=a == 32768
    )
for name in "Sum Mean Max Min Prod L1 L2 SumSquare LogSum LogSumExp".split():
    near_one = lambda rng: [1 + rng.standard_normal((3, 90001), np.float32) / 1000]  # noqa: E731
    CASES[f"Reduce{name}"] = Case(f"Reduce{name}", axes(near_one, 1), {}, [1])
CASES["sum of 17 million"] = Case("ReduceSum", axes(floats(1, 17_000_000), 1), {}, [1])
CASES["position in 17 million"] = Case("ArgMin", signed((1, 17_000_000)), {"axis": 1})
CASES["half sum"] = Case(
    "ReduceMean", lambda rng: [rng.random((3, 70001)).astype(np.float16), np.array([1])], {}, [1]
)
CASES["long sum"] = Case("ReduceSum", lambda rng: [rng.integers(-9, 9, (3, 70001)), np.array([1])], {}, [1])
CASES["last position"] = Case(
    "ArgMax", lambda rng: [rng.integers(0, 9, (3, 70001), np.int32)], {"axis": 1, "select_last_index": 1}
)

# Windows.
for kernel in ((128, 128), (256, 256), (257, 300)):
    for op in ("AveragePool", "MaxPool", "LpPool"):
        CASES[f"{op} {kernel}"] = Case(
            op,
            floats(1, 16, kernel[0] + 9, kernel[1] + 9),
            {"kernel_shape": kernel, "strides": [4, 4], "pads": [2, 2, 2, 2]},
            is_quick=op == "AveragePool" and kernel[0] == 128,
        )
CASES["where the largest is"] = Case(
    "MaxPool", signed((1, 3, 280, 280)), {"kernel_shape": [270, 270]}, outputs=2
)
for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
    CASES[op] = Case(op, floats(2, 3, 300, 301))
CASES["a long kernel"] = Case("Conv", signed((1, 2, 70100), (3, 2, 70001)), {}, [1])
CASES["a large kernel"] = Case("Conv", signed((1, 5, 200, 200), (16, 5, 180, 181)), {}, [1])
CASES["a large depthwise kernel"] = Case(
    "Conv", signed((1, 8, 270, 270), (8, 1, 262, 262)), {"group": 8}, [1]
)
CASES["a kernel that is computed"] = Case("Conv", signed((1, 2, 270, 270), (2, 2, 262, 262)))
CASES["a transposed kernel"] = Case("ConvTranspose", signed((1, 70001, 2, 2), (70001, 2, 2, 2)), {}, [1])
CASES["a long transposed kernel"] = Case(
    "ConvTranspose", signed((1, 1, 5), (1, 1, 70001)), {"strides": [2]}, [1]
)
CASES["neighbouring channels"] = Case("LRN", floats(1, 17001, 1, 2), {"size": 16999})

# Products.
CASES["262,152 deep"] = Case("MatMul", signed((9, 262_152), (262_152, 8)))
CASES["262,152 deep, known"] = Case("MatMul", signed((9, 262_152), (262_152, 8)), {}, [1])
CASES["one row"] = Case("MatMul", signed((1, 70_001), (70_001, 8)), {}, [1])
CASES["65,537 rows"] = Case("MatMul", signed((65_537, 3), (3, 5)), {}, [1])
CASES["65,537 columns"] = Case("MatMul", signed((5, 3), (3, 65_537)))
CASES["65,537 products"] = Case("MatMul", signed((65_537, 2, 3), (65_537, 3, 2)))
CASES["Gemm"] = Case("Gemm", signed((5, 70_001), (6, 70_001), (6,)), {"transB": 1}, [1, 2])
CASES["Einsum"] = Case("Einsum", signed((300, 300), (300, 300)), {"equation": "ij,ji->"})
CASES["integers"] = Case(
    "MatMulInteger",
    lambda rng: [rng.integers(0, 255, (4, 70_001), np.uint8), rng.integers(-64, 64, (70_001, 5), np.int8)],
)
CASES["65,537 images"] = Case("Conv", signed((65_537, 2, 3, 3), (3, 2, 2, 2)), {}, [1])
CASES["65,537 filters"] = Case("Conv", signed((1, 2, 3, 3), (65_537, 2, 2, 2)), {}, [1])

# Normalisation and attention.
CASES["layer norm"] = Case("LayerNormalization", signed((2, 70_001), (70_001,), (70_001,)), {}, [1, 2])
CASES["instance norm"] = Case("InstanceNormalization", signed((1, 2, 300, 301), (2,), (2,)), {}, [1, 2])
CASES["group norm"] = Case(
    "GroupNormalization", signed((1, 4, 300, 301), (4,), (4,)), {"num_groups": 2}, [1, 2], opset=21
)
CASES["mean and variance"] = Case("MeanVarianceNormalization", signed((2, 3, 200, 201)))
CASES["unit length"] = Case("LpNormalization", signed((2, 70_001)), {"axis": 1})
CASES["log softmax"] = Case("LogSoftmax", signed((2, 70_001, 2)), {"axis": 1})
CASES["hard maximum"] = Case("Hardmax", signed((2, 70_001)))
CASES["attention to 70,001"] = Case(
    "Attention", signed((1, 2, 3, 8), (1, 2, 70_001, 8), (1, 2, 70_001, 8)), opset=23
)

# Scans, sorting, moves: positions that float32 does not hold, textures and dispatches of more than one row.
CASES["running sum of 2 million"] = Case(
    "CumSum", lambda rng: [*floats(2_000_003)(rng), np.array(0)], {"reverse": 1}, [1]
)
for n, k in ((70_001, 5), (70_001, 70_001), (2_000_003, 9)):
    CASES[f"best {k} of {n}"] = Case(
        "TopK", lambda rng, n=n, k=k: [*signed((n,))(rng), np.array([k])], {}, [1], outputs=2
    )
for n in (65_535, 65_537, 4_194_241, 17_000_003):
    CASES[f"reversed {n}"] = Case(
        "Slice",
        lambda rng, n=n: [*signed((n,))(rng), *map(np.array, ([-1], [-(2**31)], [0], [-1]))],
        {},
        [1, 2, 3, 4],
        is_quick=n == 65_537,
    )
    CASES[f"gather from {n}"] = Case(
        "Gather", lambda rng, n=n: [*signed((n,))(rng), rng.integers(-n, n, (n // 7,))]
    )
    CASES[f"transpose {n}"] = Case("Transpose", signed((n // 7, 7)), {"perm": [1, 0]}, is_quick=n == 65_537)
    CASES[f"pad {n}"] = Case(
        "Pad", lambda rng, n=n: [*signed((n,))(rng), np.array([5, 3])], {"mode": "reflect"}, [1]
    )
    CASES[f"sum of two {n}"] = Case("Add", signed((n,), (n,)), is_quick=n == 4_194_241)
    CASES[f"bytes of {n}"] = Case("Cast", lambda rng, n=n: [rng.integers(0, 255, (n,), np.uint8)], {"to": 1})
    CASES[f"concat {n}"] = Case("Concat", signed((n // 5, 3), (n // 5, 2)), {"axis": 1})
    CASES[f"tile {n}"] = Case("Tile", lambda rng, n=n: [*signed((n // 5, 1))(rng), np.array([1, 5])], {}, [1])
    CASES[f"depth to space {n}"] = Case("DepthToSpace", signed((1, 8, n // 128, 16)), {"blocksize": 2})
    CASES[f"elements of {n}"] = Case(
        "GatherElements",
        lambda rng, n=n: [*signed((n // 4, 4))(rng), rng.integers(0, n // 4, (n // 8, 4))],
        {"axis": 0},
    )
    CASES[f"places in {n}"] = Case(
        "GatherND", lambda rng, n=n: [*signed((n // 4, 4))(rng), rng.integers(0, 4, (n // 8, 2))]
    )
    CASES[f"scatter to {n}"] = Case(
        "ScatterElements",
        lambda rng, n=n: [*signed((n,))(rng), rng.permutation(n)[: n // 9], *signed((n // 9,))(rng)],
    )
# Coordinates are float32 here as in onnxruntime, so that longer axes have no exact answer.
for n in (65_535, 65_537, 4_194_241):
    CASES[f"nearest {n}"] = Case(
        "Resize", lambda rng, n=n: [*signed((1, 1, n // 2))(rng), None, None, np.array([1, 1, n])], {}, [3]
    )
    CASES[f"linear {n}"] = Case(
        "Resize",
        lambda rng, n=n: [*signed((1, 1, n // 2))(rng), None, None, np.array([1, 1, n])],
        {"mode": "linear"},
        [3],
    )
CASES["70,001 additions to few"] = Case(
    "ScatterElements",
    lambda rng: [*signed((50,))(rng), rng.integers(0, 3, 70_001), *floats(70_001)(rng)],
    {"reduction": "add"},
)
CASES["70,001 additions to one"] = Case(
    "ScatterND",
    lambda rng: [*signed((50,))(rng), np.zeros((70_001, 1), np.int64), *floats(70_001)(rng)],
    {"reduction": "add"},
)
CASES["the largest of 70,001"] = Case(
    "ScatterND",
    lambda rng: [*signed((50,))(rng), rng.integers(0, 50, (70_001, 1)), *signed((70_001,))(rng)],
    {"reduction": "max"},
)
CASES["one in 17 million"] = Case(
    "OneHot",
    lambda rng: [np.array([16_777_217, 3]), np.array([17_000_003]), np.array([0, 1], np.float32)],
    {},
    [1],
    is_moved=True,
)
CASES["not zero"] = Case("NonZero", lambda rng: [(rng.random(70_001) < 0.4).astype(np.float32)])
CASES["chosen"] = Case("Compress", lambda rng: [*signed((70_001,))(rng), rng.random(70_001) < 0.4])
CASES["different ones"] = Case(
    "Unique", lambda rng: [rng.integers(0, 900, 70_001).astype(np.float32)], outputs=4, is_moved=True
)
CASES["one of 70,001 classes"] = Case(
    "NegativeLogLikelihoodLoss", lambda rng: [*signed((70_001, 3))(rng), rng.integers(0, 3, 70_001)]
)
# onnxruntime is wrong in the third digit.
CASES["a spectrum of 17,001"] = Case(
    "DFT", signed((1, 17_001, 1)), {"axis": 1, "onesided": 1}, opset=17, expected=spectrum
)

# Inputs and arguments of one shader.
for n in (6, 7, 8, 15, 16, 17, 40):
    CASES[f"concat of {n}"] = Case(
        "Concat", signed(*[(2, k + 1) for k in range(n)]), {"axis": 1}, is_quick=n == 40
    )
    CASES[f"sum of inputs {n}"] = Case("Sum", signed(*[(3, 4)] * n), is_quick=n == 40)
    CASES[f"largest of inputs {n}"] = Case("Max", signed(*[(3, 4)] * n))
CASES["rank 8"] = Case("Transpose", signed((2, 3, 2, 3, 2, 3, 2, 3)), {"perm": [7, 5, 3, 1, 0, 2, 4, 6]})

# Beyond one storage block of 128 MiB, where a layer may move to the CPU.
CASES["sum of 34 million"] = Case("ReduceSum", axes(floats(2, 17_000_000), 1), {}, [1], is_moved=True)
CASES["34 million"] = Case("Add", signed((34_000_001,), (1,)), is_moved=True)
CASES["34 million reversed"] = Case(
    "Slice",
    lambda rng: [*signed((34_000_001,))(rng), *map(np.array, ([-1], [-(2**31)], [0], [-1]))],
    {},
    [1, 2, 3, 4],
    is_moved=True,
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if case.is_quick else pytest.mark.long) for name, case in CASES.items()],
)
def test_an_operator_at_a_limit(make_worker: MakeWorker, channel: str, name: str) -> None:
    case = CASES[name]
    made, arrays = case.made()
    expected = (case.expected or partial(by_onnxruntime, made))(arrays)
    model: Model = ModelLoader.load(made)
    worker = make_worker(model, channel, allow_fallback=case.is_moved)
    worker.schedule(dict(arrays))
    for output, wanted in zip(model.outputs, expected, strict=True):
        found = worker.peek_output(output.name).download_to_array()
        assert found.shape == wanted.shape
        if wanted.dtype.kind == "f":
            scale = max(1.0, float(np.abs(wanted, dtype=np.float64).max(initial=0)))
            np.testing.assert_allclose(
                found, wanted, rtol=2e-3 if wanted.dtype == np.float16 else 3e-4, atol=1e-5 * scale
            )
        else:
            np.testing.assert_array_equal(found, wanted)
