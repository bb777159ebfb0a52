"""Profiles a game with inference alternately running and paused."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from engine import DeviceError, Worker
from engine.device.cl.counting import counting_cl_calls
from engine.device.gl.counting import CountedContexts, counting_gl_calls
from engine.kernels.value import Value
from engine.runtime.memory_report import WorkerMemory
from gameglue.profiling.benchmark_cases import infer
from gameglue.profiling.layers import LayerTime, layer_times
from gameglue.profiling.recording import ProfileRecording
from gameglue.profiling.report import Spread
from gameglue.profiling.workers import WorkerTimes

if TYPE_CHECKING:
    from gameglue.host.app import App
    from gameglue.host.frame import Phase

RUNNING, PAUSED = "with inference", "without inference"
SETTLING = ""
"""Frames at a change that belong to neither: answers of one side still come in on the other."""

_LATE, _MANY = 0.001, 0.05
"""Seconds from which on a frame counts as late, and the share of late frames that is worth a word."""


@dataclass(frozen=True)
class FramePlan:
    """The frames of a profiling run, in turns of `block`, each skipping its first `settle` frames.

    rate: frames a second; 0 plays without a pause. warm_up: frames before the first, which are not counted.
    """

    frames: int = 600
    block: int = 60
    settle: int = 6
    warm_up: int = 20
    rate: float = 60.0

    def label(self, number: int) -> str:
        """Which side frame `number` (from 0) belongs to."""
        turn, place = divmod(number, self.block)
        if place < min(self.settle, self.block // 2):
            return SETTLING
        return PAUSED if turn % 2 else RUNNING

    def is_paused(self, number: int) -> bool:
        """Whether inference is paused in frame `number`."""
        return number // self.block % 2 == 1


@dataclass
class Profile:
    """The result of a profiling run; times are in seconds."""

    title: str
    recording: ProfileRecording
    rate: float
    metadata: dict[str, object] = field(default_factory=dict)
    sides: dict[str, np.ndarray] = field(default_factory=dict)
    intervals: dict[str, np.ndarray] = field(default_factory=dict)
    late: dict[str, np.ndarray] = field(default_factory=dict)
    work: np.ndarray = field(default_factory=lambda: np.zeros(0))
    blocking: Counter[str] = field(default_factory=Counter)
    counted: tuple[str, ...] = ()
    memory: dict[str, WorkerMemory] = field(default_factory=dict)
    layers: dict[str, tuple[LayerTime, ...]] = field(default_factory=dict)
    layers_on_cpu: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def blocking_calls(self) -> int:
        """Calls in frames that waited, or might have."""
        return self.blocking.total()

    @property
    def workers(self) -> tuple[WorkerTimes, ...]:
        """Active workers, the most expensive first."""
        return self.recording.workers

    def spread(self, side: str) -> Spread:
        """How the frame times of one side are distributed, in milliseconds."""
        return Spread.of(self.sides.get(side, np.zeros(0)))

    @property
    def difference_p99(self) -> float:
        """Difference of the p99 frame times with and without inference, in milliseconds."""
        return self.spread(RUNNING).p99 - self.spread(PAUSED).p99

    @property
    def noise_p99(self) -> float | None:
        """Uncertainty of `difference_p99`, in milliseconds; None with too few frames."""
        deviations = [_deviation_p99(self.sides.get(side, np.zeros(0))) for side in (RUNNING, PAUSED)]
        if any(deviation is None for deviation in deviations):
            return None
        return 2e3 * math.hypot(*(deviation or 0.0 for deviation in deviations))

    @property
    def difference_text(self) -> str:
        """`difference_p99` as text, with its uncertainty."""
        text, noise = f"{self.difference_p99:+.2f} ms", self.noise_p99
        if noise is None:
            return f"{text}, of too few frames to tell how far off that may be"
        if abs(self.difference_p99) <= noise:
            return f"{text}, which is inside the run's own noise (±{noise:.2f} ms): no difference was found"
        return f"{text} (±{noise:.2f} ms)"

    @property
    def limit(self) -> str:
        """A note that frames waited for the renderer; empty if almost none did."""
        with_, without = (self.late.get(side, np.zeros(0)) for side in (RUNNING, PAUSED))
        shares = [float((late > _LATE).mean()) if len(late) else 0.0 for late in (with_, without)]
        if max(shares) < _MANY:
            return ""
        waits = (
            f"{share:.0%} of the frames {side} waited for it, {late[late > _LATE].mean() * 1e3:.1f} ms each"
            for share, side, late in zip(shares, (RUNNING, PAUSED), (with_, without), strict=True)
            if share
        )
        who = "the renderer, not inference, is" if shares[1] >= _MANY else "the renderer, with inference, is"
        return f"{who} the limit: {'; '.join(waits)}"


_STRETCH, _DRAWS = 20, 200
"""Frames that are drawn together, as neighbours are alike, and how often a side is drawn again."""


def _deviation_p99(seconds: np.ndarray) -> float | None:
    """The standard deviation of a p99, by a block bootstrap with a fixed seed."""
    count = len(seconds)
    if count < 2 * _STRETCH:
        return None
    starts = np.random.default_rng(0).integers(0, count - _STRETCH + 1, (_DRAWS, -(-count // _STRETCH)))
    drawn = seconds[starts[..., None] + np.arange(_STRETCH)].reshape(_DRAWS, -1)[:, :count]
    return float(np.percentile(drawn, 99, axis=1).std())


class BlockingCalls:
    """Counts blocking OpenGL and OpenCL calls while open; create contexts after it is opened."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.contexts: CountedContexts = self._stack.enter_context(counting_gl_calls())
        self.counted = ["OpenGL", "the CPU backend"]
        self._cl: Mapping[str, int] = {}
        try:
            self._cl = self._stack.enter_context(counting_cl_calls())
            self.counted.append("OpenCL")
        except DeviceError:  # no pyopencl: nobody can call it
            pass

    @property
    def counts(self) -> Counter[str]:
        """So far, by name."""
        return self.contexts.counts + Counter(self._cl)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Count no more."""
        self._stack.close()


def profile_frames(
    app: App,
    plan: FramePlan,
    *,
    blocking: BlockingCalls | None = None,
    layers: bool = True,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.perf_counter,
) -> Profile:
    """Run `plan.frames` frames of an app, alternating inference on and off, and summarise.

    Ends early if the app quits. Layers are measured when the frames are over, which takes a second or so.
    """
    recording = ProfileRecording(frames=plan.frames + plan.warm_up)
    pace = _Pace(app, plan.rate, sleep, clock)
    for _ in range(plan.warm_up):
        pace.frame()
    app.profiler.stop()
    app.profiler.record(recording)
    before = blocking.counts if blocking is not None else Counter[str]()
    late: list[float] = []
    with _Inference(app) as inference:
        for number in range(plan.frames):
            if app.is_quitting:
                break
            inference.pause(plan.is_paused(number))
            recording.label = plan.label(number)
            pace.frame()
            late.append(app._idle_time.late)
    app.profiler.stop()
    if app._watchdog is not None:
        app._watchdog.stop()
    profile = Profile(app.title, recording, plan.rate)
    profile.work = np.array([frame.seconds for frame in recording.frames])
    labels = np.array([frame.label for frame in recording.frames])
    starts = np.array([frame.start for frame in recording.frames])
    for side in (RUNNING, PAUSED):
        profile.sides[side] = profile.work[labels == side]
        profile.intervals[side] = np.diff(starts)[labels[:-1] == side]
        profile.late[side] = np.array(late)[labels == side]
    if blocking is not None:
        profile.blocking = blocking.counts - before
        profile.counted = tuple(blocking.counted)
    if recording.totals["waits for jobs"]:
        profile.blocking["waits for jobs"] = recording.totals["waits for jobs"]
    _measure_workers(profile, layers)
    return profile


class _Inference:
    """Pauses and resumes an app's inference: nothing new begins, and work in flight waits, too.

    For that the frame goes without its phase `inference`; results of what was enqueued still arrive.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._before = app.inference.paused
        names = app.frame.names
        place = names.index("inference") if "inference" in names else 0
        self._follows = names[place - 1] if place else ""
        self._phase: Phase | None = None

    def pause(self, paused: bool) -> None:
        """Pause, or continue."""
        app = self._app
        app.inference.paused = paused
        if paused and self._phase is None and self._follows:
            self._phase = app.frame.remove("inference")
        elif not paused and self._phase is not None:
            app.frame.insert(self._phase, after=self._follows)
            self._phase = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Inference continues if it ran before."""
        self.pause(False)
        self._app.inference.paused = self._before


class _Pace:
    """Runs frames of equal length, `rate` of them a second."""

    def __init__(
        self, app: App, rate: float, sleep: Callable[[float], object], clock: Callable[[], float]
    ) -> None:
        self._app = app
        self._rate = rate
        self._sleep = sleep
        self._clock = clock

    def frame(self) -> None:
        """Run one frame with a fixed time step, then sleep until the next is due."""
        began = self._clock()
        self._app.step(1.0 / (self._rate or self._app.target_frame_rate))
        end = began + 1.0 / self._rate if self._rate else began
        self._app._idle_time.spend(end - self._clock())
        left = end - self._clock()
        if left > 0.0:
            self._sleep(left)


def _measure_workers(profile: Profile, layers: bool) -> None:
    """Memory and layers of the workers that are still there."""
    for times in profile.workers:
        worker = times.worker
        if worker is None:
            continue
        profile.memory[times.label] = worker.memory()
        latest: Any = worker._latest
        if not layers or latest is None or not latest.is_over or latest.error is not None:
            continue
        profile.layers[times.label] = layer_times(worker)
        profile.layers_on_cpu[times.label] = _on_the_cpu(worker)


def _on_the_cpu(worker: Worker) -> dict[str, float]:
    """Seconds of each layer on the CPU backend, for a worker of another one; nothing where it cannot run."""
    run = worker._latest
    if worker.plan_report().backend == "cpu" or run is None:
        return {}
    values = run.recorded_plans[0].lowered.trace.values
    rng = np.random.default_rng(0)
    inputs = {}
    for item in worker.model.inputs:
        value = values.get(item.name)
        if not isinstance(value, Value) or value.dtype.kind not in "fiub":
            return {}
        drawn = rng.standard_normal(value.shape) if value.dtype.kind == "f" else np.zeros(value.shape)
        inputs[item.name] = drawn.astype(value.dtype)
    with Worker(worker.model) as other:
        infer(other, inputs)
        return {item.layer: item.seconds for item in layer_times(other)}
