"""Temporaries are filled with zeros where a step would run on what others left unwritten."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.backends.gl.pixel.backend import GLPixelBackend
from engine.backends.partial_dispatch import StepRange
from tests.engine.backends.steps import Bound, chain, chain_plan, value


def test_a_step_alone_finds_zeros(tuned_backend: Backend) -> None:
    if isinstance(tuned_backend, GLPixelBackend) and tuned_backend.device.info.version_code < 440:
        pytest.skip("before OpenGL 4.4 no call clears a texture")
    x = np.arange(1, 1001, dtype=np.float32)
    computes = chain(value("x", x), 3)
    plan = chain_plan(computes)
    bound = Bound(tuned_backend, plan, {"x": x}, {"y": computes[-1].output})
    bound.run()
    np.testing.assert_array_equal(bound.result(), 8 * x + 14)
    with tuned_backend.entered():
        tuned_backend.clear_temporaries(bound.program)
    dispatch = tuned_backend.partial_dispatch(bound.program, plan)
    last = len(plan.steps) - 1
    dispatch.enqueue([StepRange(last, 0, dispatch.units[last])], False)
    np.testing.assert_array_equal(bound.result(), np.full_like(x, 2))
    bound.release()
