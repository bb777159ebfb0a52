"""What a game does with the engine within its frames, each way in a component of its own.

A scenario is prepared while nothing counts (that is loading), then plays in the frame loop until it is done.
Each checks what it gets against answers that were waited for while it was prepared.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine import Tensor, TextureConverter, Worker
from engine.runtime.loading.handle import Loading
from engine.runtime.sliced_schedule import Schedule
from gameglue.inference import InferenceRequest
from gameglue.profiling.benchmark_cases import infer
from tests.contract.networks import (
    filters,
    network,
    picture,
)
from tests.contract.place import Place
from tests.contract.scenario import (
    TOLERANCE,
    Asking,
    AskingResnet,
    AskingSqueezenet,
    Chained,
    Disposing,
    FallsBack,
    Scenario,
    SeveralWorkers,
    StopsForData,
    VaryingShapes,
)
from tests.networks import Inputs


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
                self.warming.result()
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
