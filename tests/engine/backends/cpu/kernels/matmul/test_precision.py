"""Which reduced precision a processor has, and what a worker says where it has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine import BackendType, DeviceError, InputError, ModelLoader, Worker
from engine.backends.cpu.kernels.matmul import precision
from engine.backends.cpu.kernels.matmul.precision import arithmetics_for, matrix_units


def _pretend(monkeypatch: pytest.MonkeyPatch, *features: str) -> None:
    monkeypatch.setattr(precision.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(precision.llvm, "get_host_cpu_features", lambda: dict.fromkeys(features, True))


def _dense() -> Any:
    """y = x w with so many columns that bfloat16 pays."""
    weights = np.random.default_rng(3).standard_normal((256, 200)).astype(np.float32) / 16
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [40, 256])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [40, 200])
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "dense", [x], [y], [numpy_helper.from_array(weights, "w")])
    return onnx.ModelProto.SerializeToString(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    )


def test_float32_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch)
    assert arithmetics_for("float32") == ()


def test_a_processor_without_the_instructions_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, "avx512f", "avx2")
    model = ModelLoader.load(_dense())
    with pytest.raises(DeviceError, match=r"precision='bf16' needs .*AMX-BF16 or AVX512_BF16.*float32"):
        Worker(model, precision="bf16")


def test_the_matrix_unit_comes_first_and_vectors_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    every = ("avx512f", "avx512bf16", "amx-tile", "amx-bf16")
    _pretend(monkeypatch, *every)
    monkeypatch.setattr(precision, "_may_use_tiles", lambda: True)
    assert matrix_units("bf16") == ("amx", "avx512")
    monkeypatch.setattr(precision, "_may_use_tiles", lambda: False)
    assert matrix_units("bf16") == ("avx512",)
    _pretend(monkeypatch, "avx512f", "avx512bf16")
    assert matrix_units("bf16") == ("avx512",)


def test_bytes_have_instructions_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, "avx512f", "avx512vnni")
    assert [(a.precision, a.unit) for a in arithmetics_for("int8")] == [("int8", "avx512")]
    _pretend(monkeypatch, "avx2", "fma", "avxvnni")
    assert [(a.precision, a.unit) for a in arithmetics_for("int8")] == [("int8", "avx2")]
    _pretend(monkeypatch, "avx512f", "avx512vnni", "avx512bf16")
    assert [a.precision for a in arithmetics_for("int8")] == ["int8", "bf16"]
    _pretend(monkeypatch, "avx512f", "avx512bf16")
    with pytest.raises(DeviceError, match="AMX-INT8, AVX512_VNNI or AVX-VNNI"):
        arithmetics_for("int8")


def test_other_processors_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision.platform, "machine", lambda: "riscv64")
    assert matrix_units("bf16") == ()


def test_unknown_precisions_are_named() -> None:
    model = ModelLoader.load(_dense())
    with pytest.raises(InputError, match="precision is 'fp8'; one of 'float32', 'bf16', 'int8'"):
        Worker(model, precision="fp8")  # type: ignore[arg-type]


def test_gpus_compute_in_float32() -> None:
    model = ModelLoader.load(_dense())
    with pytest.raises(InputError, match=r"precision='bf16' is for BackendType\.CPU"):
        Worker(model, BackendType.GPU_PIXEL, precision="bf16")


@pytest.mark.skipif(not matrix_units("bf16"), reason="this processor has neither AMX-BF16 nor AVX512_BF16")
def test_a_worker_computes_in_the_precision_that_it_is_given() -> None:
    model = ModelLoader.load(_dense())
    x = np.random.default_rng(4).standard_normal((40, 256)).astype(np.float32)
    results = {}
    for name in ("float32", "bf16"):
        with Worker(model, precision=name) as worker:
            worker.schedule(x)
            results[name] = worker.peek_output().download_to_array()
    error = np.abs(results["bf16"] - results["float32"]).max() / np.abs(results["float32"]).max()
    assert 1e-5 < error < 1e-2
