"""Every target that runs kernels."""

from __future__ import annotations

import pytest

from tests.engine.kernels.runners import RUNNERS, Runner


@pytest.fixture(params=sorted(RUNNERS))
def runner(request: pytest.FixtureRequest) -> Runner:
    return RUNNERS[request.param]
