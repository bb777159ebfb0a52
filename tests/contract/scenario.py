"""The base of scenarios, and those that schedule a worker themselves."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from engine import Tensor, Worker
from gameglue import MonoBehaviour
from gameglue.profiling.benchmark_cases import infer
from tests.contract.networks import (
    agents,
    falling_back,
    filters,
    network,
    picture,
    policy,
    positives,
    repeating,
)
from tests.contract.place import Place
from tests.networks import Inputs

TOLERANCE = 1e-4
"""Largest difference between an answer in the loop and one that was waited for; in both, the same kernels."""


class Scenario(MonoBehaviour):
    """One way to use the engine. `left` counts down the answers that are still to come."""

    left = 3

    @abstractmethod
    def prepare(self, place: Place) -> None:
        """Load what is needed; nothing is counted yet."""

    @property
    def is_done(self) -> bool:
        """Whether the scenario has played to its end."""
        return self.left <= 0

    def check(self, found: np.ndarray, expected: np.ndarray) -> None:
        """An answer has come: it has to be the right one."""
        most = float(np.abs(expected).max(initial=1))
        np.testing.assert_allclose(found, expected, atol=TOLERANCE * most)
        self.left -= 1


class Asking(Scenario):
    """Schedule, request a readback, poll it every frame, take the answer, ask again with another picture."""

    name = "digits"

    def prepare(self, place: Place) -> None:
        of = network(self.name)
        self.worker = place.worker(of)
        self.pictures = [picture(of, seed) for seed in (1, 2)]
        self.expected = [next(iter(infer(self.worker, one).values())) for one in self.pictures]
        self.pending: Tensor | None = None

    def update(self) -> None:
        turn = self.left % 2
        if self.pending is None:
            self.worker.schedule(self.pictures[turn])
            self.pending = self.worker.peek_output()
            self.pending.readback_request()
        elif self.pending.is_readback_request_done():
            self.check(self.pending.download_to_array(), self.expected[turn])
            self.pending = None

    def on_destroy(self) -> None:
        self.worker.dispose()


class AskingSqueezenet(Asking):
    name = "squeezenet"


class AskingResnet(Asking):
    name = "resnet50"


class SeveralWorkers(Scenario):
    """Three workers in flight together, polled out of turn."""

    left = 9

    def prepare(self, place: Place) -> None:
        kinds = ((network("digits"), picture(network("digits"))), (policy(), {"x": agents(5)}),
                 (filters(), {"x": np.ones((1, 3, 24, 32), np.float32)}))  # fmt: skip
        self.workers = [(place.worker(of), inputs) for of, inputs in kinds]
        self.expected = [next(iter(infer(worker, inputs).values())) for worker, inputs in self.workers]
        self.pending: dict[int, Tensor] = {}

    def update(self) -> None:
        for number in (2, 0, 1):
            worker, inputs = self.workers[number]
            asked = self.pending.get(number)
            if asked is None:
                worker.schedule(inputs)
                asked = self.pending[number] = worker.peek_output()
                asked.readback_request()
            if asked.is_readback_request_done():
                self.check(self.pending.pop(number).download_to_array(), self.expected[number])

    def on_destroy(self) -> None:
        for worker, _ in self.workers:
            worker.dispose()


class VaryingShapes(Scenario):
    """Another batch and another picture size in every frame: planned in the loop, compiled never."""

    left = 40

    def prepare(self, place: Place) -> None:
        self.policy, self.filters = place.worker(policy()), place.worker(filters())
        self.asked: list[tuple[Tensor, tuple[int, ...]]] = []
        self.count = 0

    def update(self) -> None:
        for tensor, shape in [*self.asked]:
            if tensor.is_readback_request_done():
                assert tensor.download_to_array().shape == shape
                self.asked.remove((tensor, shape))
                self.left -= 1
        if len(self.asked) < 6:
            self.count += 1
            batch, height, width = 1 + self.count * 7 % 31, 5 + self.count % 9, 4 + self.count * 3 % 13
            self.policy.schedule(agents(batch))
            self.ask(self.policy, (batch, 4))
            self.filters.schedule(np.ones((1, 3, height, width), np.float32))
            self.ask(self.filters, (1, 3, height, width))

    def ask(self, worker: Worker, shape: tuple[int, ...]) -> None:
        tensor = worker.peek_output()
        tensor.readback_request()
        self.asked.append((tensor, shape))

    def on_destroy(self) -> None:
        self.policy.dispose()
        self.filters.dispose()


class StopsForData(Scenario):
    """Plans that stop for a size which was computed: several schedules queue behind one another."""

    left = 12

    def prepare(self, place: Place) -> None:
        self.repeating, self.positives = place.worker(repeating()), place.worker(positives())
        self.asked: list[tuple[Tensor, np.ndarray]] = []
        self.turn = 0

    def update(self) -> None:
        for tensor, expected in [*self.asked]:
            if tensor.is_readback_request_done():
                self.check(tensor.download_to_array(), expected)
                self.asked.remove((tensor, expected))
        while len(self.asked) < 4:
            self.turn += 1
            count = 2 + self.turn % 3
            self.repeating.schedule(np.array([1, count, 0, -1], np.float32))
            self.ask(self.repeating, np.full(count, count, np.float32))
            x = np.cos(np.arange(7 + self.turn % 4)).astype(np.float32)
            self.positives.schedule(x)
            self.ask(self.positives, np.nonzero(x > 0))

    def ask(self, worker: Worker, expected: object) -> None:
        tensor = worker.peek_output()
        tensor.readback_request()
        self.asked.append((tensor, np.asarray(expected)))

    def on_destroy(self) -> None:
        self.repeating.dispose()
        self.positives.dispose()


class FallsBack(Scenario):
    """A layer that runs on the CPU in the middle of a model; the host alone carries it on."""

    left = 6

    def prepare(self, place: Place) -> None:
        # What follows a NumPy function is compiled when it first runs.
        self.worker = place.worker(falling_back())
        infer(self.worker, {"x": np.ones(3, np.float32)})
        self.pending: Tensor | None = None
        self.size = 3

    def update(self) -> None:
        if self.pending is None:
            self.size += 1
            self.worker.schedule(np.linspace(-3, 5, self.size, dtype=np.float32))
            self.pending = self.worker.peek_output()
            self.pending.readback_request()
        elif self.pending.is_readback_request_done():
            expected = np.abs(np.linspace(-3, 5, self.size, dtype=np.float32)) / 2
            self.check(self.pending.download_to_array(), expected)
            self.pending = None

    def on_destroy(self) -> None:
        self.worker.dispose()


class Disposing(Scenario):
    """Workers that go within the loop: at rest, in flight, with a readback, in the middle of a stop."""

    left = 8

    def prepare(self, place: Place) -> None:
        big, of = picture(network("squeezenet")), network("squeezenet")
        self.workers: list[tuple[Worker, Inputs]] = [(place.worker(of), big) for _ in range(self.left // 2)]
        stopping: Inputs = {"x": np.array([1, 3, 0, -1], np.float32)}
        self.workers += [(place.worker(repeating()), stopping) for _ in range(self.left // 2)]

    def update(self) -> None:
        if not self.workers:
            return
        worker, inputs = self.workers.pop()
        if self.left % 4:
            worker.schedule(inputs)
        if self.left % 4 > 1:
            worker.peek_output().readback_request()
        if self.left % 4 > 2:
            worker.schedule(inputs)
        worker.dispose()
        self.left -= 1


class Chained(Scenario):
    """One worker reads what another computes, on the device, and both go on before it is read back."""

    left = 6

    def prepare(self, place: Place) -> None:
        self.first, self.second = place.worker(filters()), place.worker(filters())
        self.picture = np.cos(np.arange(3 * 20 * 28)).astype(np.float32).reshape(1, 3, 20, 28)
        between = next(iter(infer(self.first, {"x": self.picture}).values()))
        self.expected = next(iter(infer(self.second, {"x": between}).values()))
        self.pending: Tensor | None = None

    def update(self) -> None:
        if self.pending is None:
            self.first.schedule(self.picture)
            self.second.schedule(self.first.peek_output())
            self.pending = self.second.peek_output()
            self.pending.readback_request()
            self.first.schedule(self.picture * 0)
        elif self.pending.is_readback_request_done():
            self.check(self.pending.download_to_array(), self.expected)
            self.pending = None

    def on_destroy(self) -> None:
        self.first.dispose()
        self.second.dispose()
