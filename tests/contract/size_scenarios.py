"""Games whose sizes change in every frame: agents, speakers, a growing cache, pictures.

Nothing is prepared for the sizes beyond what loading does, so the first ones have no plan yet.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from engine import ModelLoader, Tensor
from tests import sequence_networks
from tests.contract.networks import attention_step, downscaled
from tests.contract.place import Place
from tests.contract.scenarios import Scenario
from tests.networks import Inputs

ASSETS = Path(__file__).parents[2] / "assets"

IN_FLIGHT = 4


def answers(judge: ReferenceEvaluator, feeds: Inputs) -> list[np.ndarray]:
    """The outputs of a network, by ONNX's own evaluator."""
    return [np.asarray(array) for array in judge.run(None, feeds)]


class NewSizes(Scenario):
    """Another size in every frame, with several answers on their way."""

    left = 24
    kinds = 12
    """How many different sizes there are. They come by turns, and then once more."""
    output = 0
    """The output that is read."""

    @abstractmethod
    def file(self) -> bytes:
        """The network."""

    @abstractmethod
    def inputs(self, number: int, rng: np.random.Generator) -> Inputs:
        """Inputs of one size."""

    def prepare(self, place: Place) -> None:
        self.worker = place.worker(ModelLoader.load(self.file()))
        judge: Any = ReferenceEvaluator(onnx.load_from_string(self.file()))
        rng = np.random.default_rng(5)
        self.asked_with = [self.inputs(number, rng) for number in range(self.kinds)]
        self.expected = [answers(judge, feeds)[self.output] for feeds in self.asked_with]
        self.asked: list[tuple[Tensor, int]] = []
        self.count = 0

    def update(self) -> None:
        for tensor, number in [*self.asked]:
            if tensor.is_readback_request_done():
                self.asked.remove((tensor, number))
                self.check(tensor.download_to_array(), self.expected[number])
        if len(self.asked) < IN_FLIGHT:
            number = self.count % self.kinds
            self.count += 1
            self.worker.schedule(self.asked_with[number])
            tensor = self.worker.peek_output(self.output)
            tensor.readback_request()
            self.asked.append((tensor, number))

    def on_destroy(self) -> None:
        self.worker.dispose()


class AgentsComeAndGo(NewSizes):
    """The swarm's policy for however many are near, be it none."""

    left, kinds = 40, 20

    def file(self) -> bytes:
        return (ASSETS / "swarm" / "swarm.onnx").read_bytes()

    def inputs(self, number: int, rng: np.random.Generator) -> Inputs:
        count = (1, 2, 0, 16, 17, 64, 3)[number] if number < 7 else int(rng.integers(0, 90))
        return {"senses": rng.normal(size=(count, 14)).astype(np.float32)}


class Speakers(NewSizes):
    """The chatter's network for however many speak at a time."""

    left, kinds = 12, 6
    output = 1  # the chances of the next word

    def file(self) -> bytes:
        return (ASSETS / "chatter" / "chatter.onnx").read_bytes()

    def inputs(self, number: int, rng: np.random.Generator) -> Inputs:
        speakers = (1, 3, 2, 5, 8, 4)[number]
        memory = {f"memory_{i}": rng.normal(size=(2, speakers, 52, 64)).astype(np.float32) for i in range(3)}
        return {
            "word": rng.integers(0, 256, speakers),
            "place": rng.integers(0, 52, speakers),
            "chance": rng.random(speakers).astype(np.float32),
            **memory,
        }


class PicturesOfAnySize(NewSizes):
    """Another height and width in every frame."""

    def file(self) -> bytes:
        return downscaled()

    def inputs(self, number: int, rng: np.random.Generator) -> Inputs:
        height, width = rng.integers(4, 40, 2)
        return {"x": rng.normal(size=(1, 3, height, width)).astype(np.float32)}


class Sentences(NewSizes):
    """A text encoder over sentences of any length."""

    left, kinds = 16, 8

    def file(self) -> bytes:
        return sequence_networks.encoder(written_out=True)

    def inputs(self, number: int, rng: np.random.Generator) -> Inputs:
        tokens = int(rng.integers(1, 65))
        return {"x": rng.normal(size=(1, tokens, sequence_networks.WIDTH)).astype(np.float32)}


class GrowingCache(Scenario):
    """A decoder whose cache of keys and values grows by one with each token, on the device."""

    left = 24

    def file(self) -> bytes:
        """The network: its first output is read, the others come back as inputs."""
        return attention_step()

    def first(self) -> Inputs:
        """Inputs of the first step."""
        nothing = np.zeros((0, 8), np.float32)
        return {"token": np.ones((1, 8), np.float32), "past_keys": nothing, "past_values": nothing}

    def prepare(self, place: Place) -> None:
        self.worker = place.worker(ModelLoader.load(self.file()))
        judge: Any = ReferenceEvaluator(onnx.load_from_string(self.file()))
        feeds = self.first()
        self.token, self.caches = next(iter(feeds)), [*feeds][1:]
        self.steps: list[np.ndarray] = []
        self.expected: list[np.ndarray] = []
        for number in range(self.left):
            self.steps.append(np.cos(number + np.arange(feeds[self.token].size, dtype=np.float32)))
            feeds[self.token] = self.steps[-1].reshape(feeds[self.token].shape)
            answer, *grown = answers(judge, feeds)
            self.expected.append(answer)
            feeds.update(zip(self.caches, grown, strict=True))
        self.cached: dict[str, Tensor | np.ndarray] = {name: self.first()[name] for name in self.caches}
        self.shape = self.first()[self.token].shape
        self.pending: Tensor | None = None

    def update(self) -> None:
        if self.is_done:
            return
        number = len(self.expected) - self.left
        if self.pending is None:
            feeds = {self.token: self.steps[number].reshape(self.shape), **self.cached}
            self.worker.schedule(feeds)
            self.pending = self.worker.peek_output()
            self.pending.readback_request()
        elif self.pending.is_readback_request_done():
            self.check(self.pending.download_to_array(), self.expected[number])
            self.pending = None
            before = self.cached
            self.cached = {name: self.worker.copy_output(1 + i) for i, name in enumerate(self.caches)}
            for tensor in before.values():
                if isinstance(tensor, Tensor):
                    tensor.dispose()

    def on_destroy(self) -> None:
        self.worker.dispose()


class GrowingDecoder(GrowingCache):
    """The same with four layers of a transformer."""

    left = 16

    def file(self) -> bytes:
        return sequence_networks.decoder()

    def first(self) -> Inputs:
        return sequence_networks.decoder_inputs(0, 1)


SIZE_SCENARIOS: Mapping[str, type[Scenario]] = {
    "agents come and go": AgentsComeAndGo,
    "speakers come and go": Speakers,
    "pictures of any size": PicturesOfAnySize,
    "a growing cache": GrowingCache,
    "sentences": Sentences,
    "a growing decoder": GrowingDecoder,
}
"""By what the reports call them."""

LONG_SIZES = ("sentences", "a growing decoder")
"""Left to the long suite."""
