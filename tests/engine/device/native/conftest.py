"""Stores of native code, and processes that compile for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.device.native import NativeStore
from engine.device.native.pool import CompilePool


@pytest.fixture(scope="module")
def pool() -> CompilePool:
    """One child for the whole file: starting one costs more than compiling."""
    return CompilePool(limit=1)


@pytest.fixture(scope="module")
def in_process() -> CompilePool:
    return CompilePool(in_process=True)


@pytest.fixture
def store(pool: CompilePool, tmp_path: Path) -> NativeStore:
    return NativeStore(tmp_path, pool)
