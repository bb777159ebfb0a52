"""How steps are divided into slices, and how their time is measured."""

from __future__ import annotations

import moderngl
import numpy as np
import pytest

from engine import BackendType, CLDevice, DeviceError, GLDevice, Worker
from engine.backends.gpu.grid_ranges import Grid, box_at, fitting
from engine.backends.partial_dispatch import KnownTiming, PartialDispatch, StepRange, Timing
from engine.device.gl.counting import CountingLoader
from engine.device.gl.functions import Loader
from tests.engine.conftest import MakeWorker
from tests.engine.runtime.test_sliced_schedule import FEW_MS, chain, convolutions, matrix, picture, run, whole


def test_costs_are_estimated_then_measured(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(convolutions(), channel)
    before = list(worker.costs)
    assert before
    assert all(step.ms > 0.0 and step.measurements == 0 for step in before)
    for seed in range(4):
        run(worker.schedule_iterable(picture(seed)))
        worker.peek_output("y").download_to_array()
    worker.costs.collect()
    assert worker.costs.is_measured
    steps = list(worker.costs)
    layers = {layer.name for layer in worker.model.layers}
    assert {step.layer for step in steps} <= layers
    assert list(worker.costs.by_layer()) == list(dict.fromkeys(step.layer for step in steps))
    assert worker.costs.total_ms == pytest.approx(sum(worker.costs.by_layer().values()))
    schedule = worker.schedule_iterable(picture(0))
    assert schedule.remaining_ms == pytest.approx(worker.costs.total_ms, rel=0.5)
    run(schedule)


class Doubles(PartialDispatch):
    """The dispatch of a program on a device whose time is told by the test."""

    is_synchronous = True

    def __init__(self, inner: PartialDispatch, unit_ms: float) -> None:
        self.inner = inner
        self.units = inner.units
        self.unit_ms = unit_ms
        self.parts: list[StepRange] = []

    def fitting(self, step: int, first: int, count: int) -> int:
        return self.inner.fitting(step, first, count)

    def enqueue(self, parts: list[StepRange], timed: bool) -> Timing:  # type: ignore[override]
        self.parts += parts
        self.inner.enqueue(parts, False)
        return KnownTiming([self.unit_ms * 1e-3 * (part.end - part.first) for part in parts])


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Doubles]:
    from engine.backends.cpu.backend import CPUBackend

    made: list[Doubles] = []
    made_by = CPUBackend.partial_dispatch

    def slow(self: CPUBackend, program: object, plan: object) -> Doubles:
        made.append(Doubles(made_by(self, program, plan), 0.25))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(CPUBackend, "partial_dispatch", slow)
    return made


def test_heavy_steps_are_cut_by_what_they_took(make_worker: MakeWorker, told: list[Doubles]) -> None:
    """With a quarter of a millisecond a unit, four units fill a slice of one."""
    worker = make_worker(chain(), "cpu", slice_ms=1.0)
    run(worker.schedule_iterable(matrix()))
    (dispatch,) = told
    dispatch.parts.clear()
    schedule = worker.schedule_iterable(matrix())
    total = sum(dispatch.units) * 0.25
    assert schedule.remaining_ms == pytest.approx(total, rel=0.05)
    run(schedule)
    widest = max(part.end - part.first for part in dispatch.parts)
    assert widest in (3, 4) or widest == max(dispatch.units) < 4
    covered = [0] * len(dispatch.units)
    for part in dispatch.parts:
        assert covered[part.step] == part.first
        covered[part.step] = part.end
    assert covered == list(dispatch.units)


@pytest.mark.parametrize("grid", [(1, 1, 1), (7, 1, 1), (5, 3, 1), (5, 3, 4), (1, 6, 2), (3, 1, 5)])
def test_boxes_cover_a_run_of_groups(grid: Grid) -> None:
    rng = np.random.default_rng(sum(grid))
    total = grid[0] * grid[1] * grid[2]
    for _ in range(30):
        first, seen = 0, []
        while first < total:
            count = fitting(grid, first, int(rng.integers(1, total - first + 1)))
            (x0, y0, z0), (w, h, d) = box_at(grid, first, count)
            seen += [
                (x, y, z) for z in range(z0, z0 + d) for y in range(y0, y0 + h) for x in range(x0, x0 + w)
            ]
            first += count
        assert seen == [(k % grid[0], k // grid[0] % grid[1], k // (grid[0] * grid[1])) for k in range(total)]


def test_a_step_of_several_dispatches_is_cut_too(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenCL drivers end dispatches that take too long, so a long step is recorded as several."""
    monkeypatch.setattr("engine.backends.opencl.execution.dispatches._MAX_WORK", 3000)
    monkeypatch.setattr("engine.backends.opencl.codegen.tuned_kernel._MAX_MULTIPLICATIONS", 1 << 14)
    worker = make_worker(convolutions(), "opencl", slice_ms=FEW_MS)
    (expected,) = whole(worker, picture(0), "y")
    for _ in range(2):
        schedule = worker.schedule_iterable(picture(0))
        assert run(schedule) > 3
        np.testing.assert_array_equal(schedule.output("y").download_to_array(), expected)
        np.testing.assert_array_equal(whole(worker, picture(0), "y")[0], expected)


@pytest.mark.parametrize("profiling", [True, False])
def test_queues_without_times_are_watched(profiling: bool) -> None:
    try:
        device = CLDevice(profiling=profiling)
    except DeviceError as error:
        pytest.skip(str(error))
    with device, Worker(convolutions(), BackendType.GPU_COMPUTE, device=device) as worker:
        for seed in range(3):
            for _ in worker.schedule_iterable(picture(seed)):
                worker.costs.collect()
            worker.peek_output("y").download_to_array()
        worker.costs.collect()
        assert worker.costs.is_measured
        assert 0.0 < worker.costs.total_ms < 10_000.0


def test_timestamps_tell_what_parts_took(gl_device: GLDevice) -> None:
    """As on a graphics card; here they tell when work was queued, so the times themselves mean little."""
    with Worker(convolutions(), BackendType.GPU_COMPUTE, device=gl_device, slice_ms=0.2) as worker:
        (expected,) = whole(worker, picture(0), "y")
        schedule = worker.schedule_iterable(picture(0))
        assert schedule.remaining_ms > 0.0
        assert worker._latest is not None
        dispatch = worker._latest.recorded.submissions[0].slicing.dispatch
        dispatch._clock, dispatch.is_synchronous = "stamps", False
        for _ in range(4):
            run(schedule)
            np.testing.assert_array_equal(schedule.output("y").download_to_array(), expected)
            schedule = worker.schedule_iterable(picture(0))
        assert worker.costs.is_measured
        assert worker.costs.total_ms > 0.0
        assert not gl_device.timer._waiting


@pytest.mark.parametrize("kind", [BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL])
def test_slices_block_on_no_driver_call(kind: BackendType, game: moderngl.Context) -> None:
    loaders: list[CountingLoader] = []

    def counting_loader(loader: Loader) -> CountingLoader:
        loaders.append(CountingLoader(loader))
        return loaders[0]

    with (
        GLDevice(game, loader_wrapper=counting_loader) as device,
        Worker(convolutions(), kind, device=device, slice_ms=0.05) as worker,
    ):
        whole(worker, picture(0), "y")
        with loaders[0].watching() as seen:
            for _ in range(3):
                schedule = worker.schedule_iterable(picture(0))
                run(schedule)
                worker.costs.collect()
                output = schedule.output("y")
                output.readback_request()
                while not output.is_readback_request_done():
                    pass
                output.download_to_array()
        assert not seen
