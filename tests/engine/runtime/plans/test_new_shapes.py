"""Running at a new input shape compiles nothing, on any backend: loading has prepared every variant."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import onnx.parser
import pytest

from engine import ModelLoader
from engine.backends.base import Backend, Progress
from engine.compiler.plan import AnyKernel
from tests.engine.conftest import MakeWorker, answers
from tests.graphs import node, proto
from tests.networks import error
from tests.peer import open_session

RNG = np.random.default_rng(7)


def weights(*shape: int) -> np.ndarray:
    return RNG.normal(0, np.prod(shape[1:]) ** -0.5, shape).astype(np.float32)


def picture_network() -> bytes:
    """Convolutions of several kinds, pools, joins, resizing, normalisation and a softmax; all sizes open."""
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Conv", ["r0", "wd"], ["cd"], pads=[1, 1, 1, 1], strides=[2, 2], group=6),
        node("Concat", ["c1", "cd"], ["j"], axis=1),
        node("MaxPool", ["j"], ["p"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        node("Conv", ["p", "w2"], ["c2"]),
        node("Resize", ["c2", "", "scales"], ["up"], mode="linear"),
        node("InstanceNormalization", ["up", "s", "b0"], ["n"]),
        node("Add", ["n", "r0"], ["a"]),
        node("AveragePool", ["a"], ["v"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Transpose", ["v"], ["t"], perm=[0, 2, 3, 1]),
        node("Softmax", ["t"], ["y"], axis=-1),
        node("GlobalAveragePool", ["a"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "wg"], ["z"]),
    ]
    constants = {
        "w0": weights(6, 3, 3, 3), "b0": weights(6), "w1": weights(8, 6, 3, 3), "wd": weights(6, 1, 3, 3),
        "w2": weights(6, 14, 1, 1), "s": weights(6) + 1, "wg": weights(6, 5),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    return proto(
        nodes,
        {"x": ("float32", ["n", 3, "h", "w"])},
        {"y": ("float32", None), "z": ("float32", None)},
        constants,
    )


def sequence_network() -> bytes:
    """Attention over a sequence of any length: batched products, broadcasting, shape arithmetic."""
    nodes = [
        node("MatMul", ["x", "wq"], ["q"]),
        node("Shape", ["x"], ["size"]),
        node("Gather", ["size", "zero"], ["batch"], axis=0),
        node("Concat", ["batch", "rest"], ["heads"], axis=0),
        node("Reshape", ["q", "heads"], ["q4"]),
        node("Transpose", ["q4"], ["q5"], perm=[0, 2, 1, 3]),
        node("Transpose", ["q4"], ["k5"], perm=[0, 2, 3, 1]),
        node("MatMul", ["q5", "k5"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "q5"], ["o"]),
        node("ReduceMean", ["o", "axes"], ["m"], keepdims=1),
        node("Sub", ["o", "m"], ["y"]),
    ]
    constants = {
        "wq": weights(8, 8), "zero": np.array([0], np.int64), "rest": np.array([-1, 2, 4], np.int64),
        "axes": np.array([-1], np.int64),
    }  # fmt: skip
    return proto(nodes, {"x": ("float32", ["n", "t", 8])}, {"y": ("float32", None)}, constants)


NETWORKS: dict[str, tuple[Callable[[], bytes], list[tuple[int, ...]]]] = {
    "pictures": (picture_network, [(1, 3, 16, 16), (2, 3, 8, 20), (1, 3, 34, 10), (5, 3, 2, 2)]),
    "sequences": (sequence_network, [(1, 1, 8), (1, 5, 8), (3, 1, 8), (4, 17, 8)]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_new_shapes_compile_nothing(
    name: str, channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, shapes = NETWORKS[name]
    source = make()
    session = open_session(source)
    worker = make_worker(ModelLoader.load(source), channel)
    compiled: list[int] = []
    for backend in worker._session.backends.values():
        count_compilations(backend, compiled, monkeypatch)
    for seed, shape in enumerate(shapes):
        x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
        for actual, expected in zip(answers(worker, x), session.run(None, {"x": x}), strict=True):
            assert error(actual, expected) < (1e-5 if channel == "cpu" else 1e-4)
    # Symbolic plans ask once, others at every size.
    assert compiled
    assert sum(compiled) == 0


STACKING = """<ir_version: 9, opset_import: ["": 18]>
g (float[3] x, int64 runs) => (float[3] y, int16[m, 3] all) {
    y, all = Loop(runs, , x) <
        body = step (int64 i, bool go, float[3] s) => (bool again, float[3] t, int16[3] o) {
            again = Identity(go)
            t = Add(s, x)
            o = Cast<to = 5>(t)
        }
    >
}"""
"""Stacks a type that no other test stacks, so that no other test has compiled its kernels."""


def test_another_number_of_runs_compiles_nothing(
    channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = onnx.parser.parse_model(STACKING).SerializeToString()
    worker = make_worker(ModelLoader.load(source), channel)
    compiled: list[int] = []
    for backend in worker._session.backends.values():
        count_compilations(backend, compiled, monkeypatch)
    x = np.array([1, 2, -3], np.float32)
    for runs in (3, 1, 2, 5, 9, 22):
        worker.schedule(x, np.array(runs))
        stacked = worker.peek_output("all").download_to_array()
        np.testing.assert_array_equal(stacked, [x * n for n in range(2, runs + 2)])
    # One plan serves all numbers but 1.
    assert compiled
    assert sum(compiled) == 0


def count_compilations(backend: Backend, counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Note how many kernels each `prepare` compiles from now on."""
    prepare = backend.prepare

    def counting(kernels: Iterable[AnyKernel], progress: Progress | None = None) -> int:
        counts.append(prepare(kernels, progress))
        return counts[-1]

    monkeypatch.setattr(backend, "prepare", counting)
