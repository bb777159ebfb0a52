"""ONNX's backend interface: its own runner drives the engine over some cases; devices, nodes, errors."""

from __future__ import annotations

import functools
import unittest
from importlib import import_module
from unittest import mock

import moderngl
import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import TensorProto, helper
from onnx.backend.test import loader

import engine.api.onnx_backend as backend
from engine import DeviceError, InputError, ModelImportError, UnsupportedLayerError
from engine.api.onnx_backend import DEVICES, EngineBackend
from tests.graphs import node, proto

SAMPLE = (
    "add", "and2d", "argmax_default_axis_random", "cast_FLOAT_to_FLOAT16", "concat_1d_axis_0", "identity",
    "gather_0", "gemm_default_no_bias", "maxpool_1d_default", "relu", "sign_model", "single_relu_model",
    "PixelShuffle",
)  # fmt: skip
MODULES = ("add", "and_", "argmax", "cast", "concat", "identity", "gather", "gemm", "maxpool", "relu")
"""Where ONNX generates those of the sample that are not stored."""


@functools.cache
def sample() -> tuple[unittest.TestCase, ...]:
    """ONNX's runner over the sample; it asks for "CPU" and "CUDA"."""
    # By itself it generates the cases of all operators, which takes 10 s: each module's on import.
    for module in MODULES:
        import_module(f"onnx.backend.test.case.node.{module}")
    with mock.patch.object(loader, "import_recursive"):
        tests = onnx.backend.test.BackendTest(EngineBackend, __name__)
    for name in SAMPLE:
        tests.include(f"^test_{name}_(cpu|cuda)$")
    return tuple(case for case in tests.test_suite if isinstance(case, unittest.TestCase))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # onnx's, while it makes its cases
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_onnx_s_own_runner_passes(device: str, game: moderngl.Context) -> None:
    result = unittest.TestResult()
    unittest.TestSuite(case for case in sample() if case.id().endswith(f"_{device}")).run(result)
    assert not [text for _, text in (*result.errors, *result.failures)]
    assert result.testsRun - len(result.skipped) == len(SAMPLE)


RELU = proto([node("Relu", ["x"], ["y"])], {"x": ("float32", ["n"])}, {"y": ("float32", ["n"])})
X = np.array([-1.0, 2.0], np.float32)


@pytest.mark.parametrize("device", [d for d in DEVICES if d != "CUDA"])
def test_every_device_runs(device: str, game: moderngl.Context) -> None:
    if not backend.supports_device(device):
        pytest.skip(f"no {device} here")
    (y,) = backend.run_model(onnx.load_from_string(RELU), [X], device)
    np.testing.assert_array_equal(y, [0.0, 2.0])


def test_inputs_come_as_a_list_a_dict_or_one_array() -> None:
    with backend.prepare(RELU) as prepared:
        for inputs in ([X], (X,), {"x": X}, X):
            outputs = prepared.run(inputs)
            np.testing.assert_array_equal(outputs[0], [0.0, 2.0])
            assert outputs["y"] is outputs.y is outputs[0]  # type: ignore[call-overload, attr-defined]
        with pytest.raises(InputError, match=r"got 2 input\(s\) for 1: x"):
            prepared.run([X, X])


def test_a_node_runs_by_itself() -> None:
    (y,) = backend.run_node(helper.make_node("Neg", ["x"], ["y"]), [X])
    np.testing.assert_array_equal(y, [1.0, -2.0])
    softmax = helper.make_node("Softmax", ["x"], ["y"])
    cube = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    (old,) = backend.run_node(softmax, [cube], opset_version=11)
    (new,) = backend.run_node(softmax, [cube], outputs_info=[(np.float32, cube.shape)])
    assert old.sum() == pytest.approx(2.0)
    assert new.sum() == pytest.approx(4.0)
    clip = helper.make_node("Clip", ["x", "", "high"], ["y"])
    (y,) = backend.run_node(clip, {"x": X, "high": np.float32(1.0)})
    np.testing.assert_array_equal(y, [-1.0, 1.0])


@pytest.mark.parametrize(("value", "kind"), [([], "sequence"), (None, "optional")])
def test_a_node_s_input_needs_a_type(value: object, kind: str) -> None:
    with pytest.raises(InputError, match=f"empty {kind} is unknown; use prepare"):
        backend.run_node(helper.make_node("Identity", ["x"], ["y"]), [value])


def test_a_node_s_inputs_are_declared_from_their_values() -> None:
    declared = backend.declared_input([X, X])
    assert declared.sequence_type.elem_type.tensor_type.elem_type == TensorProto.FLOAT
    assert backend.declared_input(np.int64(3)).tensor_type.elem_type == TensorProto.INT64


def test_unknown_devices_are_named_with_those_there_are() -> None:
    with pytest.raises(DeviceError, match=r"no device 'NPU'; the names are CPU, GPU_COMPUTE, GPU, CUDA"):
        backend.prepare(RELU, "NPU")
    with pytest.raises(DeviceError, match="asks for number 1"):
        backend.prepare(RELU, "CUDA:1")
    assert not backend.supports_device("NPU")
    assert not backend.supports_device("CUDA:1")
    assert backend.supports_device("CPU:0")


def test_what_the_engine_lacks_is_told() -> None:
    unknown = helper.make_node("Frobnicate", ["x"], ["y"], domain="some.where")
    graph = helper.make_graph(
        [unknown],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("some.where", 1)])
    assert not backend.is_compatible(model)
    supported, reason = backend.is_opset_supported(model)
    assert not supported
    assert "some.where.Frobnicate (opset 1) x1: no such operator" in reason
    with pytest.raises(ModelImportError, match="Frobnicate"):
        backend.prepare(model)
    assert backend.is_compatible(onnx.load_from_string(RELU))
    assert backend.is_opset_supported(onnx.load_from_string(RELU)) == (True, "")


def test_fallback_can_be_refused(game: moderngl.Context) -> None:
    wide = proto([node("Relu", ["x"], ["y"])], {"x": ("float64", [2])}, {"y": ("float64", [2])})
    with pytest.raises(UnsupportedLayerError, match="float64"):
        backend.prepare(wide, "GPU_PIXEL", allow_fallback=False, rtol=1e-3)
