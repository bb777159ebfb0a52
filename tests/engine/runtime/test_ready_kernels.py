"""A worker that is ready has the kernels that any size can reach, for networks whose sizes are open.

Kernels are only gathered, not compiled: what loading asks for, and what plans for many sizes need.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from building.networks import network
from engine import ModelLoader
from engine.backends.base import Progress
from engine.backends.cpu.backend import CPUBackend
from engine.base.errors import EngineError
from engine.compiler.plan import AnyKernel
from engine.runtime.plans.plan_requests import InputsRequest
from engine.runtime.plans.session import Session

SIZES = (
    (1, 1, 1), (2, 2, 2), (1, 7, 1), (3, 3, 3), (1, 384, 1), (8, 128, 8), (2, 3, 5), (1, 64, 64),
    (1, 320, 320), (4, 300, 500), (1, 512, 768), (1, 33, 47),
)  # fmt: skip
"""For the dynamic dimensions, in order of appearance."""


class Gathering(CPUBackend):
    """Notes the names of kernels that it would have to have, by key."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def prepare(self, kernels: Iterable[AnyKernel], progress: Progress | None = None) -> int:
        self.found.update((kernel.key, str(getattr(kernel, "name", "generic"))) for kernel in kernels)
        return 0


@pytest.mark.parametrize(
    "name",
    [
        "policy",
        "script-bert",
        "script-policy_cnn",
        pytest.param("script-detr", marks=pytest.mark.long),
        pytest.param("script-deberta", marks=pytest.mark.long),
        pytest.param("dynamo-lraspp", marks=pytest.mark.long),
        pytest.param("script-vae_encoder", marks=pytest.mark.long),
    ],
)
def test_no_size_needs_another_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.backends.cpu.backend.precompile_kernels", lambda is_certain: None)
    backend = Gathering()
    session = Session(ModelLoader.load(network(name)), backend, None, True)
    session.prepare_plans()
    ready = set(backend.found)
    fitting = 0
    for sizes in SIZES:
        shapes = session.planner.tracer.input_shapes((*sizes, *sizes))
        assert shapes is not None
        try:
            opened = InputsRequest(session, shapes, {}).found_or_made()
            lowered = session.lower(shapes, {}) if opened is None else opened.lowered
        except EngineError:
            continue  # a size that the network does not take
        fitting += 1
        session.compile(lowered)
        assert [backend.found[key] for key in backend.found.keys() - ready] == [], sizes
    assert fitting >= 6
