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
from tests.conftest import ROOT, options_of_child

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


def run_tests(name: str, request: pytest.FixtureRequest, chosen: str, *places: str) -> str:
    """What pytest prints about quick tests in a process whose only runtime is this; they all pass.

    In a run with less time than its tests take they are fewer.
    """
    environment = {**os.environ, "OCL_ICD_VENDORS": library(name, request), "OPENCL_VENDOR_PATH": NONE}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-k", chosen, "-m", "not long", *places]
    command += options_of_child(request.config)
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    assert run.returncode == 0, run.stdout[-8000:]
    return run.stdout


def fewest(number: int, request: pytest.FixtureRequest) -> int:
    """How many tests have to pass at least."""
    return number if request.config.getoption("minutes") is None else 10


@pytest.mark.parametrize("name", ["intel", "pocl", "refusing", "none"])
def test_what_needs_opencl_passes_or_is_skipped(name: str, request: pytest.FixtureRequest) -> None:
    told = run_tests(name, request, "opencl or cl_device", "tests")
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped)", told)}
    if "no kernel runs on OpenCL here" in told or "no OpenCL platform" in told:
        assert name != "intel"
        assert counts["skipped"] > 500
    else:
        assert name in ("intel", "pocl")
        assert counts["passed"] > fewest(500, request)


def mentioning_opencl() -> list[str]:
    """The files of tests that touch OpenCL in some way: by its name, or where the machine is described."""
    mentioned = re.compile("opencl|doctor|SystemInfo", re.IGNORECASE)
    files = [file.relative_to(ROOT) for file in sorted((ROOT / "tests").rglob("test_*.py"))]
    others = (Path(__file__).relative_to(ROOT), Path("tests/docs/test_docstrings.py"))
    return [str(f) for f in files if f not in others and mentioned.search((ROOT / f).read_text("utf-8"))]


@pytest.mark.parametrize("name", ["refusing", "none"])
def test_what_mentions_opencl_passes_where_none_works(name: str, request: pytest.FixtureRequest) -> None:
    others = "gl_compute or gl_pixel or cpu or definition or opencl"
    told = run_tests(name, request, f"not ({others})", *mentioning_opencl())
    assert int(re.findall(r"(\d+) passed", told)[-1]) > fewest(300, request)
