from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.device.jobs.system import JobSystem


@pytest.fixture(scope="session")
def jobs() -> Iterator[JobSystem]:
    with JobSystem(2) as system:
        yield system


@pytest.fixture
def backend(jobs: JobSystem) -> Iterator[CPUBackend]:
    made = CPUBackend(jobs)
    yield made
    made.dispose()
