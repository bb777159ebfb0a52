"""`--precision` of `gameglue run`, `bench` and `diff`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu.kernels.matmul.precision import matrix_units
from gameglue.cli import main
from tests.graphs import node, proto

Capture = pytest.CaptureFixture[str]

needs_bf16 = pytest.mark.skipif(not matrix_units("bf16"), reason="this processor has no bfloat16 products")


@pytest.fixture
def dense(tmp_path: Path) -> str:
    """y = relu(x w), large enough for bfloat16, as a file."""
    weights = np.random.default_rng(5).standard_normal((256, 192)).astype(np.float32)
    path = tmp_path / "dense.onnx"
    path.write_bytes(
        proto(
            [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["y"])],
            {"x": ("float32", [32, 256])}, {"y": ("float32", [32, 192])}, {"w": weights},
        )
    )  # fmt: skip
    return str(path)


@needs_bf16
def test_diff_reports_the_error_against_float32(dense: str, capsys: Capture) -> None:
    assert main(["diff", dense, "--precision", "bf16"]) == 0
    printed = capsys.readouterr().out
    assert "cpu (bf16) with cpu: 2 values" in printed
    (line,) = [line for line in printed.splitlines() if line.startswith("outputs")]
    assert line.split()[1:3] == ["y:", "error"]
    assert 1e-5 < float(line.split()[3]) < 5e-2


@needs_bf16
def test_the_tolerance_still_decides(dense: str, capsys: Capture) -> None:
    assert main(["diff", dense, "--precision", "bf16", "--tolerance", "1e-5"]) == 1
    assert "differs first" in capsys.readouterr().out


@needs_bf16
def test_run_and_bench_take_it(dense: str, capsys: Capture) -> None:
    assert main(["run", dense, "--precision", "bf16"]) == 0
    capsys.readouterr()
    assert main(["bench", dense, "--precision", "bf16", "--runs", "1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("cpu (bf16) ") for line in printed) == 1
    assert sum(line.startswith("cpu  ") for line in printed) == 1


@pytest.mark.parametrize("also", [["--backend", "gpu_compute"], ["--device", "opencl"]])
def test_it_is_for_the_cpu(dense: str, also: list[str], capsys: Capture) -> None:
    assert main(["run", dense, "--precision", "bf16", *also]) == 2
    assert "--precision bf16 goes with --backend cpu" in capsys.readouterr().err
