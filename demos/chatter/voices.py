"""Runs the network: one step predicts the next word of all speakers; its KV cache stays on the device."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from demos.chatter.words import ROOM, Vocabulary
from gameglue import InferenceRequest, MonoBehaviour, Tensor, Worker

PACE = 0.11  # seconds between two spoken words; prompts are read as fast as the network runs
LAYERS, WIDTH = 3, 64


@dataclass
class Voice:
    """One row of the batch: a text that grows word by word; `said` is the part after the prompt."""

    text: list[int] = field(default_factory=lambda: [0])
    chances: np.ndarray = field(default_factory=lambda: np.zeros(ROOM, np.float32))
    begin: int = 1
    place: int = 0
    due: float = 0.0
    is_talking: bool = False
    sentences: int = 0

    @property
    def said(self) -> list[int]:
        """The words spoken so far."""
        return self.text[self.begin :]


class Voices(MonoBehaviour):
    """All speakers as one batch. Each step feeds every row its next word: from the prompt, or predicted.

    The KV cache is an output of one step and an input of the next; only the words are read back. An idle row
    repeats its latest step, which changes nothing, so the batch size is constant.
    """

    worker: Worker
    vocabulary: Vocabulary
    seed: int
    count: int

    def awake(self) -> None:
        """Start silent, with an empty KV cache."""
        self.voices = [Voice() for _ in range(self.count)]
        # Keys and values of each layer.
        self.memory = [Tensor(np.zeros((2, self.count, ROOM, WIDTH), np.float32)) for _ in range(LAYERS)]
        self.steps = self.words = self.loudest = 0
        self.step_ms: list[float] = []
        self._request: InferenceRequest | None = None

    def say(self, row: int, prompt: list[int]) -> Voice:
        """Start a sentence: the network reads the prompt, then predicts words up to the end sign."""
        old = self.voices[row]
        # Each sentence has random numbers of its own, so it does not depend on other speakers or on timing.
        chances = np.random.default_rng((self.seed, row, old.sentences)).random(ROOM, np.float32)
        begin, number = len(prompt), old.sentences + 1
        self.voices[row] = Voice(list(prompt), chances, begin, is_talking=True, sentences=number)
        return self.voices[row]

    def update(self) -> None:
        """Submit the next step when the previous one is done and at least one speaker is due."""
        if self._request is not None and not self._request.is_done():
            return
        voices, now = list(self.voices), self.time.time
        due = [row for row, voice in enumerate(voices) if voice.is_talking and voice.due <= now]
        if not due:
            return
        word = np.array([voice.text[voice.place] for voice in voices], np.int64)
        place = np.array([voice.place for voice in voices], np.int64)
        chance = np.array([voice.chances[voice.place] for voice in voices], np.float32)
        self._request = self.app.inference.submit(
            self.worker, word, place, chance, *self.memory,
            outputs="next", callback=lambda request: self._take(request, {row: voices[row] for row in due}),
        )  # fmt: skip

    def _take(self, request: InferenceRequest, due: dict[int, Voice]) -> None:
        words, before = request.result(), self.memory
        self.memory = [self.worker.copy_output(f"kept_{layer}") for layer in range(LAYERS)]
        for tensor in before:
            tensor.dispose()
        self.steps, self.loudest = self.steps + 1, max(self.loudest, len(due))
        self.step_ms = [*self.step_ms[-59:], request.age_ms]
        for row, voice in due.items():
            self._go_on(voice, int(words[row]))

    def _go_on(self, voice: Voice, word: int) -> None:
        voice.place += 1
        if voice.place < len(voice.text):
            return  # still inside the prompt, whose next word is known
        if word == self.vocabulary.end or voice.place == ROOM:
            voice.place, voice.is_talking = voice.place - 1, False
            return
        voice.text.append(word)
        voice.due = self.time.time + PACE
        self.words += 1

    def on_destroy(self) -> None:
        """Cancel requests and dispose the worker."""
        self.app.inference.cancel_all(self.worker)
        self.worker.dispose()
