"""Frozen programs: kernels compile in processes that are the program itself, started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine import BackendType, freeze_support
from engine.device.native import child_processes
from engine.runtime.loading.driver_warm_up import warm_up_driver
from tests.conftest import ROOT
from tests.graphs import mlp

WARM_UP = "engine.api.freeze_support:run_driver_warm_up"

PROGRAM = """
import os, sys
sys.frozen = True
sys.executable = os.environ["PROGRAM"]
from engine import freeze_support
{call}
if __name__ == "__main__":
    from pathlib import Path
    from engine.device.native import NativeSource, NativeStore
    from engine.device.native.child_processes import can_start
    from engine.device.native.pool import CompilePool
    from engine.device.native.prelude import PRELUDE
    store = NativeStore(Path(os.environ["STORE"]), CompilePool(limit=1))
    text = PRELUDE + "\\n\\ndef nothing(args, begin, end):\\n    pass\\n"
    addresses = store.load([NativeSource("nothing", text, "nothing")])
    print(can_start(), len(addresses), "numba" in sys.modules)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for a frozen program is a shell script")
@pytest.mark.parametrize(("call", "expected"), [("freeze_support()", "True 1 False"), ("", "False 1 True")])
def test_a_frozen_program_compiles_in_itself_started_again(tmp_path: Path, call: str, expected: str) -> None:
    script = tmp_path / "game.py"
    script.write_text(PROGRAM.format(call=call))
    program = tmp_path / "game"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    program.chmod(0o755)
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PROGRAM": str(program), "STORE": str(tmp_path / "s")}
    found = subprocess.run(
        [str(program)], env=variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert found.stdout.strip() == expected, found.stderr


def test_elsewhere_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_processes, "_may_reenter", [])
    freeze_support()
    assert child_processes.can_start()
    assert not child_processes.is_frozen()


def test_a_worker_is_rehearsed_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(mlp((6, 8, 3)))
    assert (
        warm_up_driver(WARM_UP, path, BackendType.CPU, {"batch": 2}, True) is False
    )  # the CPU has no device
    assert warm_up_driver(WARM_UP, tmp_path / "nowhere.onnx", BackendType.GPU_PIXEL, None, True) is False


@pytest.mark.gl
def test_a_rehearsal_makes_the_worker_with_its_shapes(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(mlp((6, 8, 3)))
    shapes = [{"batch": 2}, {"x": np.zeros((3, 6))}, {"x": (np.int64(4), 6)}]
    assert warm_up_driver(WARM_UP, path, BackendType.GPU_PIXEL, shapes, True)
    assert not warm_up_driver(WARM_UP, path, BackendType.GPU_PIXEL, {"rows": 2}, True)
