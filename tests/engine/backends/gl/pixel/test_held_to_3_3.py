"""The same tests where Mesa really refuses what is newer than OpenGL 3.3."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT, RunChild

pytestmark = pytest.mark.gl

_CHAIN = """
import numpy as np
from engine.backends.gl.pixel.backend import GLPixelBackend
from engine.device.gl.device import GLDevice
from tests.engine.gl_limits import minimum
from tests.engine.backends.test_tuned import CONVOLUTIONS, convolve
from tests.engine.backends.steps import bound_chain, chain_expected

device = GLDevice(limits=minimum(330))
print(device.info.version_code)
backend = GLPixelBackend(device)
x, bound = bound_chain(backend, 100_003, 5)
bound.run()
np.testing.assert_array_equal(bound.result(), chain_expected(x, 5))
convolve(backend, CONVOLUTIONS["3x3"], 1)
device.check_errors("drawing")
print("passed")
backend.dispose()
device.dispose()
"""


def test_chain_and_convolution(run_child: RunChild, held_to_3_3: dict[str, str]) -> None:
    assert run_child(_CHAIN, **held_to_3_3).split() == ["330", "passed"]


@pytest.mark.long
@pytest.mark.parametrize(
    "tests",
    [
        "tests/engine/backends/gl -k pixel",
        "tests/engine/backends/gl/pixel",
        "tests/engine/backends/test_narrow.py -k pixel",
        "tests/engine/backends/test_tuned.py -k pixel",
        "tests/engine/kernels -k gl_pixel",
    ],
)
def test_everything(tests: str, held_to_3_3: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", *tests.split()]
    result = subprocess.run(
        command, env=os.environ | held_to_3_3, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-4000:]
