"""What tests of operators share."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    """The same numbers on every run."""
    return np.random.default_rng(7)
