"""What each step of a model takes on its device: estimated at first, then measured while it runs in slices.

An estimate is right in proportion only. The first measurements of a kernel tell how it compares; those of
other kernels what the device makes of estimates at all. Nothing here waits: times are taken in when they
have arrived.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from engine.backends.base import Backend
from engine.backends.partial_dispatch import Between, Cut, Timing
from engine.compiler.lower import Lowered, Place
from engine.compiler.plan import Plan, Step

SURE = 6
"""Measurements of a step after which it is measured in one run of `SELDOM` only."""

SELDOM = 16

_MOST_PENDING = 1024
# Each older measurement counts for so much of the next one.
_FADING = 0.9
# What disturbs a part makes it longer: longer ones count for less, and as no more than so many times as long.
_LONGER = 0.4
_OUTLIER = 2.0
_UNQUESTIONED = 2
# Parts whose shares vary by less tell nothing of what is fixed.
_SAME_SIZE = 0.1
_LEAST_SLOPE = 0.2
# What a kernel shows moves its rate by so much.
_WEIGHT = 0.2
# What starting a part takes is no more than that.
_MOST_OVERHEAD_MS = 0.1
# Kernels nobody has measured may take so many times as long as others let expect.
_CAUTION = 2.0
# Bounds so close, of what they bound, tell what something took.
_NARROW = 0.3

StepKey = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class StepCost:
    """What one step of a plan takes: `ms` expected on the device, after so many `measurements`.

    place: "native" for the worker's backend, "cpu" for a layer that falls back.
    """

    layer: str
    op_type: str
    place: str
    ms: float
    measurements: int


class Expected:
    """What is known of one step, shared by all plans that have the same step.

    A part takes a fixed time and one in proportion to its share of the step. Both are fitted to what parts of
    different sizes took lately: least squares, older measurements counting for less.
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
        """What starting a part takes."""
        return self._fixed if self.measurements else self.rates.overhead_ms

    @property
    def slope_ms(self) -> float:
        """What the whole step takes beyond that."""
        return self._slope if self.measurements else self.estimate * self.rates.of(self.kernel)

    @property
    def caution(self) -> float:
        """By how much to expect more, as long as nobody has measured the kernel."""
        return 1.0 if self.measurements or self.rates.knows(self.kernel) else _CAUTION

    def ms(self, share: float = 1.0) -> float:
        """Milliseconds for a part of the step."""
        return self.fixed_ms + self.slope_ms * share

    def learn(self, ms: float, share: float) -> None:
        """Take in what a part took."""
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
            # Between all of it in proportion, and most of it fixed.
            slope = min(max((xy / n - share * ms) / spread, _LEAST_SLOPE * ms / share), ms / share)
        else:
            slope = max(ms - self.rates.overhead_ms, _LEAST_SLOPE * ms) / share
            if share < 0.5 and self.estimate:
                # What is far from the estimate is rather fixed: so parts grow, and will tell.
                slope = min(slope, _CAUTION * self.estimate * self.rates.general)
        self._slope, self._fixed = slope, max(ms - slope * share, 0.0)
        self.measurements += 1
        self.rates.learn(self.kernel, self._slope / self.estimate if self.estimate else 1.0)


class Rates:
    """How milliseconds compare with estimates at one place: for each kernel, and in general."""

    def __init__(self, general: float) -> None:
        self.general = general
        self.overhead_ms = 0.0
        self._shortest = _MOST_OVERHEAD_MS
        self._kernels: dict[str, float] = {}

    def knows(self, kernel: str) -> bool:
        """Whether a kernel was measured."""
        return kernel in self._kernels

    def of(self, kernel: str) -> float:
        """Milliseconds for an estimate of 1."""
        return self._kernels.get(kernel, self.general)

    def learn(self, kernel: str, rate: float) -> None:
        """Take in what a step of a kernel has shown."""
        known = self._kernels.get(kernel)
        self._kernels[kernel] = rate if known is None else known + _WEIGHT * (rate - known)
        if known is None:
            rates = sorted(self._kernels.values())
            self.general = rates[len(rates) // 2]

    def started(self, ms: float) -> None:
        """A part took so long, starting it included."""
        if ms < self._shortest:
            self._shortest = self.overhead_ms = ms


class StepCosts:
    """What the steps of a worker's plans take, by what was measured while `schedule_iterable` ran them.

    Iterating yields a `StepCost` for each step of the latest plan, in order.
    """

    def __init__(self, backends: dict[Place, Backend], plans: Callable[[], Sequence[Lowered]]) -> None:
        self._backends = backends
        self._plans = plans
        self._rates = {place: Rates(backend.first_rate * 1e-6) for place, backend in backends.items()}
        self._known: weakref.WeakValueDictionary[StepKey, Expected] = weakref.WeakValueDictionary()
        # Plans are dropped and made again; what is known of their steps stays for a while.
        self._lately: deque[Expected] = deque(maxlen=4096)
        self._pending: dict[Place, deque[tuple[list[Expected], list[float], Timing]]]
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
        """Expected milliseconds of the latest plan, as far as it was made."""
        return sum(step.ms for step in self)

    @property
    def is_measured(self) -> bool:
        """Whether every step of the latest plan has been measured."""
        return all(step.measurements for step in self)

    def overhead_ms(self, place: Place) -> float:
        """What starting a part takes."""
        return self._rates[place].overhead_ms

    def of_plan(self, place: Place, plan: Plan) -> list[Expected]:
        """What is known of each step of a plan."""
        return [self._of_step(place, step) for step in plan.steps]

    def _of_step(self, place: Place, step: Step) -> Expected:
        key = (place, step.kernel.key, step.space, step.values)
        found = self._known.get(key)
        if found is None:
            estimate = self._backends[place].estimate(step) if prod(step.space) else 0.0
            found = self._known[key] = Expected(step.kernel.key, estimate, self._rates[place])
            self._lately.append(found)
        return found

    def watch(
        self,
        place: Place,
        steps: Sequence[Expected],
        units: Sequence[int],
        cuts: Sequence[Cut],
        timing: Timing,
    ) -> None:
        """Have what cuts take taken in, once it is known. steps, units: of their plan."""
        watched = [steps[cut.step] for cut in cuts]
        shares = [(cut.end - cut.first) / units[cut.step] for cut in cuts]
        self._pending[place].append((watched, shares, timing))

    def collect(self) -> None:
        """Take in what has become known. Never waits."""
        for place, pending in self._pending.items():
            rates = self._rates[place]
            while pending:
                steps, shares, timing = pending[0]
                result = timing.result()
                if result is None:
                    break
                pending.popleft()
                if isinstance(result, Between):
                    _learn_together(steps, shares, result)
                    continue
                for step, share, seconds in zip(steps, shares, result, strict=True):
                    ms = 1000.0 * seconds
                    rates.started(ms)
                    step.learn(ms, share)


def _learn_together(steps: Sequence[Expected], shares: Sequence[float], bounds: Between) -> None:
    """Where bounds are narrow they are a measurement; what lies outside wide ones is drawn inside them."""
    expected = sum(step.ms(share) for step, share in zip(steps, shares, strict=True))
    least, most = 1000.0 * bounds.least, 1000.0 * bounds.most
    if expected <= 0.0:
        return
    is_narrow = most - least < _NARROW * most
    factor = (0.5 * (least + most) if is_narrow else min(max(expected, least), most)) / expected
    for step, share in dict(zip(steps, shares, strict=True)).items():
        step.learn(step.ms(share) * factor, share)
