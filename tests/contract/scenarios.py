"""What a game does with the engine within its frames, each way in a component of its own.

A scenario is prepared while nothing counts (that is loading), then plays in the frame loop until it is done.
Each checks what it gets against answers that were waited for while it was prepared.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from engine import Tensor, TextureConverter, Worker
from engine.runtime.loading.handle import Loading
from engine.runtime.slices import Schedule
from gameglue import MonoBehaviour
from gameglue.inference import InferenceRequest
from gameglue.profiling.contenders import infer
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


class Awaited(Scenario):
    """`await tensor.readback_and_clone_async()`, and an answer of the queue, in an `async def start`."""

    left = 6

    def prepare(self, place: Place) -> None:
        of = network("digits")
        self.worker, self.inputs = place.worker(of), picture(of, 4)
        self.expected = next(iter(infer(self.worker, self.inputs).values()))

    async def start(self) -> None:
        while not self.is_done:
            self.worker.schedule(self.inputs)
            clone = await self.worker.peek_output().readback_and_clone_async()
            self.check(clone.download_to_array(), self.expected)
            self.worker.schedule(self.inputs)
            self.check(await self.app.inference.result(self.worker.peek_output()), self.expected)

    def on_destroy(self) -> None:
        self.worker.dispose()


class CalledBack(Scenario):
    """The queue's callback, and a readback's own, for a worker that is asked in every frame."""

    left = 8

    def prepare(self, place: Place) -> None:
        of = network("digits")
        self.worker, self.inputs = place.worker(of), picture(of, 5)
        self.expected = next(iter(infer(self.worker, self.inputs).values()))
        self.read_back: list[tuple[Tensor, list[bool]]] = []

    def update(self) -> None:
        self.worker.schedule(self.inputs)
        self.app.inference.result(self.worker.peek_output(), self.come, payload=self.time.frame_count)
        calls: list[bool] = []
        tensor = self.worker.peek_output()
        tensor.readback_request(calls.append)
        self.read_back = [(t, c) for t, c in self.read_back if not t.is_readback_request_done()]
        self.read_back.append((tensor, calls))

    def come(self, result: InferenceRequest) -> None:
        assert result.payload == result.frame
        self.check(result.result(), self.expected)

    def on_destroy(self) -> None:
        self.worker.dispose()


class IntoOwnArray(Scenario):
    """`download_to_array(out=...)` once the readback is there; readbacks in between are abandoned."""

    left = 6

    def prepare(self, place: Place) -> None:
        of = network("digits")
        self.worker, self.inputs = place.worker(of), picture(of, 6)
        self.expected = next(iter(infer(self.worker, self.inputs).values()))
        self.out = np.zeros_like(self.expected)
        self.pending: Tensor | None = None

    def update(self) -> None:
        if self.pending is None:
            for _ in range(3):
                self.worker.schedule(self.inputs)
                self.pending = self.worker.peek_output()
                self.pending.readback_request()
        elif self.pending.is_readback_request_done():
            self.out[:] = 0
            assert self.pending.download_to_array(out=self.out) is self.out
            self.check(self.out, self.expected)
            self.pending = None

    def on_destroy(self) -> None:
        self.worker.dispose()


class OwnTensors(Scenario):
    """Tensors of one's own on the backend: copied out of a worker, written anew, given as inputs, freed."""

    left = 6

    def prepare(self, place: Place) -> None:
        self.worker = place.worker(filters())
        self.picture = np.sin(np.arange(3 * 12 * 16)).astype(np.float32).reshape(1, 3, 12, 16)
        self.expected = next(iter(infer(self.worker, {"x": self.picture}).values()))
        self.tensors: list[Tensor] = []
        self.pending: Tensor | None = None

    def update(self) -> None:
        if self.pending is None:
            self.worker.schedule(self.picture * 2)
            held = self.worker.copy_output()
            held.upload(self.picture)
            self.worker.set_input("x", held)
            self.worker.schedule()
            self.pending = self.worker.copy_output()
            self.pending.readback_request()
            self.tensors = [held, self.pending]
        elif self.pending.is_readback_request_done():
            self.check(self.pending.download_to_array(), self.expected)
            self.worker.set_input("x", self.picture)
            for tensor in self.tensors:
                tensor.dispose()
            self.pending = None

    def on_destroy(self) -> None:
        self.worker.dispose()


class InSlices(Scenario):
    """One inference over several frames, slice by slice; one that is dropped half-way, and one cancelled."""

    left = 5

    def prepare(self, place: Place) -> None:
        of = network("digits")
        self.worker, self.inputs = place.worker(of), picture(of, 8)
        self.expected = next(iter(infer(self.worker, self.inputs).values()))
        self.schedule: Schedule | None = None
        self.pending: Tensor | None = None

    def update(self) -> None:
        if self.pending is not None:
            if self.pending.is_readback_request_done():
                self.check(self.pending.download_to_array(), self.expected)
                self.schedule = self.pending = None
            return
        if self.schedule is None:
            self.worker.schedule_iterable(self.inputs).advance(0.1, force=True)
            dropped = self.worker.schedule_iterable(self.inputs)
            next(dropped)
            dropped.cancel()
            self.schedule = self.worker.schedule_iterable(self.inputs)
        self.schedule.advance(0.3, force=True)
        if self.schedule.is_done:
            self.pending = self.schedule.output()
            self.pending.readback_request()

    def on_destroy(self) -> None:
        self.worker.dispose()


class Submitted(Scenario):
    """Requests to the app's queue: by callback, by `await`, replaced by newer ones, cancelled."""

    left = 8

    def prepare(self, place: Place) -> None:
        of = network("digits")
        self.worker, self.inputs = place.worker(of), picture(of, 9)
        self.expected = next(iter(infer(self.worker, self.inputs).values()))

    async def start(self) -> None:
        while not self.is_done:
            self.check(await self.app.inference.submit(self.worker, self.inputs), self.expected)

    def update(self) -> None:
        if self.is_done:
            return
        self.app.inference.submit(self.worker, self.inputs, latest_only=True, callback=self.come)
        self.app.inference.submit(self.worker, self.inputs, priority=-1).cancel()

    def come(self, request: InferenceRequest) -> None:
        self.check(request.result(), self.expected)

    def on_destroy(self) -> None:
        self.worker.dispose()


class Pictures(Scenario):
    """The game's texture in, the network's picture out, and its elements besides."""

    left = 4

    def prepare(self, place: Place) -> None:
        rows = np.arange(12 * 16 * 4, dtype=np.uint8).reshape(12, 16, 4)
        self.source = place.game.texture((16, 12), 4, rows.tobytes())
        self.target = place.game.texture((16, 12), 4)
        self.worker = place.worker(filters())
        rgb = rows[::-1, :, :3].transpose(2, 0, 1)[None].astype(np.float32) / 255  # rows from the top
        self.expected = next(iter(infer(self.worker, {"x": rgb}).values()))
        self.tensor = TextureConverter.to_tensor(self.source, on=self.worker)
        infer(self.worker, {"x": self.tensor.download_to_array()})
        self.worker.schedule(self.tensor)
        TextureConverter.to_texture(self.worker.peek_output(), texture=self.target)
        self.pending: Tensor | None = None

    def update(self) -> None:
        if self.pending is None:
            TextureConverter.to_tensor(self.source, tensor=self.tensor, on=self.worker)
            self.worker.schedule(self.tensor)
            TextureConverter.to_texture(self.worker.peek_output(), texture=self.target)
            self.pending = self.worker.peek_output()
            self.pending.readback_request()
        elif self.pending.is_readback_request_done():
            self.check(self.pending.download_to_array(), self.expected)
            self.pending = None

    def on_destroy(self) -> None:
        self.tensor.dispose()
        self.worker.dispose()


class LoadedInTheLoop(Scenario):
    """A worker that is made beside the frames, warmed up for other shapes, and asked."""

    left = 2

    def prepare(self, place: Place) -> None:
        self.place = place
        self.loading: Loading[Worker] | None = None
        self.warming: Loading[None] | None = None
        self.worker: Worker | None = None
        self.pending: Tensor | None = None

    def update(self) -> None:
        if self.loading is None:
            self.loading = Worker.load_async(
                network("digits"), self.place.backend_type, device=self.place.device
            )
        elif self.worker is None:
            if self.loading.is_done():
                self.worker = self.loading.result()
                self.warming = self.worker.warm_up({"image": (3, 1, 28, 28)})
        elif self.warming is not None and self.warming.is_done() and self.left > 0:
            if self.pending is None:
                self.worker.schedule(np.ones((3, 1, 28, 28), np.float32))
                self.pending = self.worker.peek_output()
                self.pending.readback_request()
            elif self.pending.is_readback_request_done():
                found = self.pending.download_to_array()
                np.testing.assert_allclose(found[0], found[2], atol=TOLERANCE)
                self.left -= 1
                self.pending = None

    def on_destroy(self) -> None:
        if self.worker is not None:
            self.worker.dispose()


class Impatient(Scenario):
    """What no game should do: it waits for its answer within the frame. It has to be counted.

    The last layer is a heavy one, so that the answer is never there at once.
    """

    def prepare(self, place: Place) -> None:
        self.worker = place.worker(filters())
        self.inputs = {"x": np.ones((1, 3, 320, 320), np.float32)}

    def update(self) -> None:
        if self.left > 0:
            self.worker.schedule(self.inputs)
            self.worker.peek_output().download_to_array()
            self.left -= 1

    def on_destroy(self) -> None:
        self.worker.dispose()


class LatestOnly(Scenario):
    """Asked anew in every frame, whether or not the last answer came: nobody looks at most of them."""

    left = 25

    def prepare(self, place: Place) -> None:
        self.worker = place.worker(filters())
        self.inputs: Inputs = {"x": np.ones((1, 3, 96, 128), np.float32)}
        infer(self.worker, self.inputs)
        self.last: Tensor | None = None

    def update(self) -> None:
        if self.last is not None:
            self.last.is_readback_request_done()
        self.worker.schedule(self.inputs)
        self.last = self.worker.peek_output()
        self.last.readback_request()
        self.left -= 1

    def on_destroy(self) -> None:
        self.worker.dispose()


SCENARIOS: Mapping[str, type[Scenario]] = {
    "digits": Asking,
    "squeezenet": AskingSqueezenet,
    "resnet50": AskingResnet,
    "several workers": SeveralWorkers,
    "varying shapes": VaryingShapes,
    "stops for data": StopsForData,
    "a layer on the CPU": FallsBack,
    "disposed in the loop": Disposing,
    "one worker feeds another": Chained,
    "awaited": Awaited,
    "called back": CalledBack,
    "into an array of one's own": IntoOwnArray,
    "tensors of one's own": OwnTensors,
    "latest only": LatestOnly,
    "in slices": InSlices,
    "submitted to the queue": Submitted,
    "pictures in and out": Pictures,
    "loaded in the loop": LoadedInTheLoop,
    "impatient": Impatient,
}
"""By what the reports call them."""

LONG = ("resnet50",)
"""Left to the long suite."""

BLOCKING = ("impatient",)
"""Those that break the contract, to see that it shows."""
