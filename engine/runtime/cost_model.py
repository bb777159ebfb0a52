"""The cost model: the expected time of each step, estimated first and measured in slices.

An estimate is relative only. Measurements of a kernel scale its estimates; those of all kernels scale the
estimates of kernels that were never measured. Nothing here waits: times are read once they have arrived.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from engine.backends.base import Backend
from engine.backends.partial_dispatch import StepRange, TimeBounds, Timing
from engine.compiler.lower import LoweredModel, Place
from engine.compiler.plan import Plan, Step

SURE = 6
"""After so many measurements, a step is measured in one of `SELDOM` runs only."""

SELDOM = 16

_MOST_PENDING = 1024
# Weight of a measurement relative to the one after it.
_FADING = 0.9
# Disturbances make a dispatch longer: longer times weigh less, and are capped at a multiple of the expected.
_LONGER = 0.4
_OUTLIER = 2.0
_UNQUESTIONED = 2
# With shares that vary by less, the fixed time cannot be fitted.
_SAME_SIZE = 0.1
_LEAST_SLOPE = 0.2
# Weight of a new measurement in the rate of its kernel.
_WEIGHT = 0.2
# Upper bound of the fixed time of a dispatch.
_MOST_OVERHEAD_MS = 0.1
# Kernels that were never measured may take so many times their estimate.
_CAUTION = 2.0
# Bounds that are so close relative to their value count as a measurement.
_NARROW = 0.3

StepKey = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class StepCost:
    """The expected cost of one step of a plan.

    Attributes:
        layer: Name of the layer.
        op_type: Its operator.
        place: "native" for the worker's backend, "cpu" for a layer that falls back.
        ms: Expected milliseconds on the device.
        measurements: How many measurements that is based on; 0 for an estimate.
    """

    layer: str
    op_type: str
    place: str
    ms: float
    measurements: int


class ExpectedCost:
    """The expected cost of one step, shared by all plans with the same step.

    A partial dispatch takes a fixed time and a time proportional to its share of the step. Both are fitted to
    recent measurements by weighted least squares.
    """

    __slots__ = ("__weakref__", "_fixed", "_slope", "_sums", "estimate", "kernel", "measurements", "rates")

    def __init__(self, kernel: str, estimate: float, rates: Rates) -> None:
        self.kernel = kernel
        self.estimate = estimate
        self.rates = rates
        self.measurements = 0
        self._fixed = self._slope = 0.0
        # Of weights, shares, times, squares of shares, and products of both.
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)

    @property
    def fixed_ms(self) -> float:
        """Fixed time of a dispatch, in milliseconds."""
        return self._fixed if self.measurements else self.rates.overhead_ms

    @property
    def slope_ms(self) -> float:
        """Time of the whole step without the fixed time, in milliseconds."""
        return self._slope if self.measurements else self.estimate * self.rates.of(self.kernel)

    @property
    def caution(self) -> float:
        """Safety factor while the kernel has not been measured."""
        return 1.0 if self.measurements or self.rates.knows(self.kernel) else _CAUTION

    def ms(self, share: float = 1.0) -> float:
        """Expected milliseconds of a share of the step."""
        return self.fixed_ms + self.slope_ms * share

    def learn(self, ms: float, share: float) -> None:
        """Add the measurement of a share of the step."""
        weight = 1.0
        if self.measurements >= _UNQUESTIONED and ms > self.ms(share):
            ms, weight = min(ms, _OUTLIER * self.ms(share)), _LONGER
        n, x, y, xx, xy = (_FADING * total for total in self._sums)
        n, x, y = n + weight, x + weight * share, y + weight * ms
        xx, xy = xx + weight * share * share, xy + weight * share * ms
        self._sums = (n, x, y, xx, xy)
        share, ms = x / n, y / n
        spread = xx / n - share * share
        if spread > (_SAME_SIZE * share) ** 2:
            # Between all proportional and mostly fixed.
            slope = min(max((xy / n - share * ms) / spread, _LEAST_SLOPE * ms / share), ms / share)
        else:
            slope = max(ms - self.rates.overhead_ms, _LEAST_SLOPE * ms) / share
            if share < 0.5 and self.estimate:
                # Time far beyond the estimate is assumed to be fixed, so that shares grow and can be fitted.
                slope = min(slope, _CAUTION * self.estimate * self.rates.general)
        self._slope, self._fixed = slope, max(ms - slope * share, 0.0)
        self.measurements += 1
        self.rates.learn(self.kernel, self._slope / self.estimate if self.estimate else 1.0)


class Rates:
    """Milliseconds per unit of estimate at one place: for each kernel, and in general."""

    def __init__(self, general: float) -> None:
        self.general = general
        self.overhead_ms = 0.0
        self._shortest = _MOST_OVERHEAD_MS
        self._kernels: dict[str, float] = {}

    def knows(self, kernel: str) -> bool:
        """Whether a kernel was measured."""
        return kernel in self._kernels

    def of(self, kernel: str) -> float:
        """Milliseconds per unit of estimate."""
        return self._kernels.get(kernel, self.general)

    def learn(self, kernel: str, rate: float) -> None:
        """Add the measured rate of a kernel."""
        known = self._kernels.get(kernel)
        self._kernels[kernel] = rate if known is None else known + _WEIGHT * (rate - known)
        if known is None:
            rates = sorted(self._kernels.values())
            self.general = rates[len(rates) // 2]

    def started(self, ms: float) -> None:
        """Add the measured time of a dispatch, of which the shortest bounds the fixed time."""
        if ms < self._shortest:
            self._shortest = self.overhead_ms = ms


class StepCosts:
    """The expected costs of a worker's steps, measured while `schedule_iterable` runs them.

    Iterating yields a `StepCost` for each step of the latest plan, in order.

    Attributes:
        runs: Schedules that were measured.
    """

    def __init__(self, backends: dict[Place, Backend], plans: Callable[[], Sequence[LoweredModel]]) -> None:
        self._backends = backends
        self._plans = plans
        self._rates = {place: Rates(backend.initial_cost_scale * 1e-6) for place, backend in backends.items()}
        self._known: weakref.WeakValueDictionary[StepKey, ExpectedCost] = weakref.WeakValueDictionary()
        # Plans are dropped and made again: their steps' costs are kept for a while.
        self._lately: deque[ExpectedCost] = deque(maxlen=4096)
        self._pending: dict[Place, deque[tuple[list[ExpectedCost], list[float], Timing]]]
        self._pending = {place: deque(maxlen=_MOST_PENDING) for place in backends}
        self.runs = 0

    def __iter__(self) -> Iterator[StepCost]:
        self.collect()
        for lowered in self._plans():
            for segment in lowered.segments:
                expected = self.of_plan(segment.place, segment.plan)
                for step, cost in zip(segment.plan.steps, expected, strict=True):
                    if prod(step.space):
                        yield StepCost(step.layer, step.op_type, segment.place, cost.ms(), cost.measurements)

    def by_layer(self) -> dict[str, float]:
        """Expected milliseconds of each layer of the latest plan, by its name, in order."""
        layers: dict[str, float] = {}
        for step in self:
            layers[step.layer] = layers.get(step.layer, 0.0) + step.ms
        return layers

    @property
    def total_ms(self) -> float:
        """Expected milliseconds of the latest plan, up to its first stop for data."""
        return sum(step.ms for step in self)

    @property
    def is_measured(self) -> bool:
        """Whether every step of the latest plan has been measured."""
        return all(step.measurements for step in self)

    def overhead_ms(self, place: Place) -> float:
        """Fixed time of a dispatch at a place, in milliseconds."""
        return self._rates[place].overhead_ms

    def of_plan(self, place: Place, plan: Plan) -> list[ExpectedCost]:
        """The expected cost of each step of a plan."""
        return [self._of_step(place, step) for step in plan.steps]

    def _of_step(self, place: Place, step: Step) -> ExpectedCost:
        key = (place, step.kernel.key, step.space, step.values)
        found = self._known.get(key)
        if found is None:
            estimate = self._backends[place].estimate(step) if prod(step.space) else 0.0
            found = self._known[key] = ExpectedCost(step.kernel.key, estimate, self._rates[place])
            self._lately.append(found)
        return found

    def watch(
        self,
        place: Place,
        steps: Sequence[ExpectedCost],
        units: Sequence[int],
        parts: Sequence[StepRange],
        timing: Timing,
    ) -> None:
        """Measure partial dispatches, whose times `collect` adds once they have arrived."""
        watched = [steps[part.step] for part in parts]
        shares = [(part.end - part.first) / units[part.step] for part in parts]
        self._pending[place].append((watched, shares, timing))

    def collect(self) -> None:
        """Add the measurements that have arrived. Never waits."""
        for place, pending in self._pending.items():
            rates = self._rates[place]
            while pending:
                steps, shares, timing = pending[0]
                result = timing.result()
                if result is None:
                    break
                pending.popleft()
                if isinstance(result, TimeBounds):
                    _learn_together(steps, shares, result)
                    continue
                for step, share, seconds in zip(steps, shares, result, strict=True):
                    ms = 1000.0 * seconds
                    rates.started(ms)
                    step.learn(ms, share)


def _learn_together(steps: Sequence[ExpectedCost], shares: Sequence[float], bounds: TimeBounds) -> None:
    """Take narrow bounds as a measurement, and move expected times into wide ones."""
    expected = sum(step.ms(share) for step, share in zip(steps, shares, strict=True))
    least, most = 1000.0 * bounds.least, 1000.0 * bounds.most
    if expected <= 0.0:
        return
    is_narrow = most - least < _NARROW * most
    factor = (0.5 * (least + most) if is_narrow else min(max(expected, least), most)) / expected
    for step, share in dict(zip(steps, shares, strict=True)).items():
        step.learn(step.ms(share) * factor, share)
