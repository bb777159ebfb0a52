"""What needs OpenCL passes on each runtime that is here, and is skipped with the reason where none works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.device.cl import runtimes
from tests.conftest import ROOT

pytestmark = pytest.mark.long

NONE = "/nowhere"


def library(name: str, request: pytest.FixtureRequest) -> str:
    """What the loader is to load as the only runtime."""
    if name == "none":
        return NONE
    if name == "refusing":
        return str(request.getfixturevalue("refusing_runtime"))
    if name == "intel":
        found = [path for path in runtimes.installed_runtimes() if "intel" in path.name]
    else:
        package = find_spec("pyopencl")
        assert package is not None
        assert package.origin is not None
        found = list(Path(package.origin).parent.glob(".libs/libpocl*.so"))
    if not found:
        pytest.skip(f"the runtime {name} is not installed here")
    return str(found[0])


@pytest.mark.parametrize("name", ["intel", "pocl", "refusing", "none"])
def test_what_needs_opencl_passes_or_is_skipped(name: str, request: pytest.FixtureRequest) -> None:
    environment = {**os.environ, "OCL_ICD_VENDORS": library(name, request), "OPENCL_VENDOR_PATH": NONE}
    environment.pop("PYTEST_ADDOPTS", None)
    chosen = ["-k", "opencl or cl_device", "-m", "not long"]
    command = [sys.executable, "-m", "pytest", "-q", "-rs", *chosen, "tests"]
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    assert run.returncode == 0, run.stdout[-8000:]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped)", run.stdout)}
    if "no kernel runs on OpenCL here" in run.stdout or "no OpenCL platform" in run.stdout:
        assert name != "intel"
        assert counts["skipped"] > 500
    else:
        assert name in ("intel", "pocl")
        assert counts["passed"] > 500
