"""Symbolic plans on the GPU backends: sizes in turn, which share kernels, temporaries and buffers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from engine import Model, ModelLoader, Worker
from engine.backends.gl.compute.backend import GLComputeBackend
from engine.device.gl.device import GLDevice
from tests.engine.conftest import MakeWorker
from tests.engine.runtime.plans.test_symbolic_plans import (
    Feeds,
    answers,
    check_sizes,
    plan_statically,
    shape_network,
)

GPUS = ["gl_compute", "gl_pixel", "opencl"]
SIZES = [(2, 5), (3, 17), (1, 4), (2, 5), (5, 33), (1, 1), (3, 17), (2, 5)]

pytestmark = pytest.mark.gl


@pytest.fixture(params=GPUS)
def channel(request: pytest.FixtureRequest) -> str:
    """Each GPU backend in turn."""
    return str(request.param)


@cache
def network() -> Model:
    """One for all workers, as its weights are random."""
    return ModelLoader.load(shape_network())


def feeds(rng: np.random.Generator, size: tuple[int, int]) -> Feeds:
    return {"x": rng.normal(size=(*size, 8)).astype(np.float32)}


def open_worker(make_worker: MakeWorker, channel: str) -> Worker:
    worker = make_worker(network(), channel)
    worker._session.stored = worker._session.file = None
    return worker


def expected_for(make_worker: MakeWorker, channel: str, given: list[Feeds]) -> list[list[np.ndarray]]:
    apart = plan_statically(make_worker(network(), channel))
    return [answers(apart, one) for one in given]


def test_schedules_behind_each_other_keep_their_sizes(channel: str, make_worker: MakeWorker) -> None:
    rng = np.random.default_rng(1)
    given = [feeds(rng, size) for size in SIZES]
    expected = expected_for(make_worker, channel, given)
    worker = open_worker(make_worker, channel)
    taken = []
    for one in given:
        worker.schedule(one)
        tensors = [worker.peek_output(item.name) for item in worker.model.outputs]
        for tensor in tensors:
            tensor.readback_request()
        taken.append(tensors)
    for tensors, wanted in zip(taken, expected, strict=True):
        for tensor, array in zip(tensors, wanted, strict=True):
            np.testing.assert_array_equal(tensor.download_to_array(), array)
    assert worker._session.symbolic_plans.ready


def test_readbacks_outlive_their_worker(channel: str, make_worker: MakeWorker) -> None:
    rng = np.random.default_rng(2)
    given = [feeds(rng, size) for size in SIZES[:3]]
    expected = expected_for(make_worker, channel, given)
    worker = open_worker(make_worker, channel)
    tensors = []
    for one in given:
        worker.schedule(one)
        tensors.append(worker.peek_output())
        tensors[-1].readback_request()
    worker.dispose()
    for tensor, (wanted, _) in zip(tensors, expected, strict=True):
        np.testing.assert_array_equal(tensor.download_to_array(), wanted)


def test_slices_of_one_size_and_runs_of_another(channel: str, make_worker: MakeWorker) -> None:
    rng = np.random.default_rng(3)
    given = [feeds(rng, size) for size in SIZES]
    expected = expected_for(make_worker, channel, given)
    worker, other = open_worker(make_worker, channel), open_worker(make_worker, channel)
    for one, wanted, beside in zip(given, expected, given[::-1], strict=True):
        for _ in worker.schedule_iterable(one):
            other.schedule(beside)
        for item, array in zip(worker.model.outputs, wanted, strict=True):
            np.testing.assert_array_equal(worker.peek_output(item.name).download_to_array(), array)
        # A known size, whose plan was used in slices before.
        for found, array in zip(answers(worker, one), wanted, strict=True):
            np.testing.assert_array_equal(found, array)


def test_tensors_without_elements(channel: str, make_worker: MakeWorker) -> None:
    worker = open_worker(make_worker, channel)
    rng = np.random.default_rng(4)
    given = [feeds(rng, size) for size in ((2, 4), (3, 6), (0, 4), (2, 7), (0, 9))]
    expected = expected_for(make_worker, channel, given)
    for one, wanted in zip(given, expected, strict=True):
        for found, array in zip(answers(worker, one), wanted, strict=True):
            np.testing.assert_array_equal(found, array)


def test_sizes_share_their_memory(channel: str, make_worker: MakeWorker) -> None:
    rng = np.random.default_rng(5)
    largest = open_worker(make_worker, channel)
    for size in ((2, 60), (3, 63), (3, 63)):
        answers(largest, feeds(rng, size))
    worker = open_worker(make_worker, channel)
    for length in (*range(1, 64), *range(63, 0, -1)):
        answers(worker, feeds(rng, (3, length)))
    found, most = worker.memory(), largest.memory()
    # Memory grows in steps, and programs that are still known may hold what was there before the last step.
    assert found.device_temporaries <= 4 * most.device_temporaries
    # Textures of inputs and outputs are of their own sizes.
    assert channel == "gl_pixel" or found.device_tensors <= 2 * most.device_tensors


@pytest.mark.parametrize("channel", ["gl_pixel", "opencl"])
def test_steps_that_are_cut_at_some_sizes(
    channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(6)
    given = [feeds(rng, size) for size in SIZES]
    expected = expected_for(make_worker, channel, given)
    monkeypatch.setattr("engine.backends.opencl.execution.dispatches._MAX_WORK", 3000)
    monkeypatch.setattr("engine.backends.opencl.codegen.tuned_kernel._MAX_MULTIPLICATIONS", 1 << 14)
    monkeypatch.setattr("engine.backends.gl.pixel.record._DRAW_NS", 3e3)
    worker = open_worker(make_worker, channel)
    for one, wanted in zip(given, expected, strict=True):
        for found, array in zip(answers(worker, one), wanted, strict=True):
            np.testing.assert_array_equal(found, array)
    assert worker._session.symbolic_plans.ready
    cut = 0
    for recorded in worker._session.cache.plans.values():
        (submission,) = recorded.submissions
        program: Any = submission.program
        calls = program.draws if channel == "gl_pixel" else len(program.commands)
        cut += calls > len(submission.plan.steps)
    assert 0 < cut < len(SIZES)


@pytest.mark.parametrize("name", ["pictures", "shapes"])
def test_storage_buffers_of_any_size(
    name: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way in which graphics cards read tensors."""

    def on(device: GLDevice) -> GLComputeBackend:
        return GLComputeBackend(device, texels=False)

    monkeypatch.setattr(GLComputeBackend, "on", on)
    check_sizes(name, 5, 17, "gl_compute", make_worker)


def test_a_game_sees_a_tensor_of_its_own_size(make_worker: MakeWorker) -> None:
    rng = np.random.default_rng(7)
    worker = open_worker(make_worker, "gl_compute")
    for size in ((5, 33), (2, 5), (3, 17), (2, 3)):
        answers(worker, feeds(rng, size))
        recorded = next(reversed(worker._session.cache.plans.values()))
        for buffer in recorded.buffers.values():
            assert 4 * buffer.elements <= buffer.memory_bytes() < 4 * buffer.elements + 16
