"""OpenCL kernels under Oclgrind, a simulator of a graphics card that reports reads and writes beside buffers.

A sample is part of the long suites; `GAMEGLUE_DRIVERS=all` or `GAMEGLUE_DRIVERS=oclgrind` runs all files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.long, pytest.mark.opencl]

SAMPLE = (
    "tests/engine/backends/gpu/test_scatters.py",
    "tests/engine/backends/gpu/test_sorts.py",
    "tests/engine/backends/gpu/test_roi_align.py",
    "tests/engine/operators/test_cases.py",
)
"""Files whose tests run everywhere."""

REST = (
    "tests/engine/backends/gpu",
    "tests/engine/backends/test_operands.py",
    "tests/engine/backends/opencl",
    "tests/engine/backends/test_narrow.py",
    "tests/engine/test_exported_networks.py",
    "tests/engine/runtime/test_slice_cuts.py",
)
"""Files that take long, and test cases that are long ones, run on demand."""

OTHERS = ("cpu", "texels", "storage", "minimal", "pixel", "gl_")
"""What names tests on other backends, and with kernels for processors."""

LEFT_OUT = {
    "test_training_dropout_zero_ratio": "the simulator of 2021 does not find the kernel in its program",
    "test_trees": "likewise",
    "test_expert_matmul": "its compiler crashes with a kernel that others take",
}
"""Tests that cannot pass, with the reason."""

_CHOSEN = os.environ.get("GAMEGLUE_DRIVERS", "")
_IS_WHOLE = _CHOSEN == "all" or "oclgrind" in _CHOSEN.split(",")
_SECONDS = 3600

WARM_UP = """
from engine import BackendType, ModelLoader, Worker
worker = Worker(ModelLoader.load("assets/digits/digits.onnx"), BackendType.GPU_COMPUTE, device="opencl")
worker.warm_up({"image": (3, 1, 28, 28)}).wait()
worker.dispose()
"""

DEVICE = "from engine.device.cl.device import CLDevice; print(CLDevice().info.platform)"


def installed() -> Path | None:
    """The simulator's driver library, where its package is installed."""
    program = shutil.which("oclgrind")
    if program is None:
        return None
    library = Path(program).resolve().parent.parent / "lib" / "oclgrind" / "liboclgrind-rt-icd.so"
    return library if library.is_file() else None


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a child whose only graphics card is the simulator, which reports to a file."""
    library = installed()
    if library is None:
        pytest.skip("Oclgrind is not here; install oclgrind")
    folder = tmp_path_factory.mktemp("simulator")
    (folder / "oclgrind.icd").write_text(f"{library}\n")
    names = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    found = {
        **names,
        "PYTHONPATH": str(ROOT),
        "OCL_ICD_VENDORS": str(folder),
        "OCLGRIND_LOG": str(folder / "report.txt"),
        # What graphics cards have: other kernels are chosen than with the simulator's own limits.
        "OCLGRIND_LOCAL_MEM_SIZE": "49152",
        "OCLGRIND_MAX_WGSIZE": "1024",
        "GAMEGLUE_DRIVERS": "",
    }
    command = [sys.executable, "-c", DEVICE]
    answer = subprocess.run(command, env=found, cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.stdout.strip() != "Oclgrind":
        pytest.skip(f"Oclgrind is not taken for the graphics card here: {answer.stdout}{answer.stderr}")
    return found


@pytest.mark.parametrize("file", [*SAMPLE, *(REST if _IS_WHOLE else ())])
def test_kernels_stay_within_their_buffers(file: str, environment: dict[str, str]) -> None:
    chosen = f"(opencl or gpu) and not ({' or '.join([*OTHERS, *LEFT_OUT])})"
    suites = ["-m", "long or not long"] if _IS_WHOLE else []
    check(["-m", "pytest", "-q", "-p", "no:cacheprovider", *suites, "-k", chosen, file], environment)


def test_plans_that_run_in_part_at_first_stay_within_their_buffers(environment: dict[str, str]) -> None:
    """A kernel takes its indices from a table that another makes, of which then only a part is there."""
    check(["-c", WARM_UP], environment)


def check(arguments: Sequence[str], environment: dict[str, str]) -> None:
    """Fail if Python fails with these arguments, or if a kernel of it leaves its buffers."""
    run = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    report = Path(environment["OCLGRIND_LOG"])
    found = report.read_text() if report.is_file() else ""
    assert not found, found[:4000]
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-4000:]


def test_what_lies_beside_a_buffer_is_reported(environment: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "beside.py"
    program.write_text(
        "import pyopencl as cl\n"
        "from engine.device.cl.device import CLDevice\n"
        "device = CLDevice()\n"
        "a, b = [cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 64) for _ in range(2)]\n"
        'body = "{ int i = get_global_id(0); b[i] = a[i + 8]; }"\n'
        'text = f"kernel void k(global int *a, global int *b) {body}"\n'
        "cl.Program(device.context, text).build().k(device.queue, (16,), None, a, b)\n"
        "device.finish()\n"
    )
    report = tmp_path / "report.txt"
    subprocess.run(
        [sys.executable, program], env={**environment, "OCLGRIND_LOG": str(report)}, cwd=ROOT, check=True
    )
    assert "Invalid read of size 4 at global memory" in report.read_text()
