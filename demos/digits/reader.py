"""The network at work: it is asked in every frame, and answers when it has the answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from demos.digits.preprocess import INPUT_SIDE
from demos.digits.sheet import Sheet
from gameglue import (
    ALL_CHOICES,
    BackendChoice,
    EngineError,
    InferenceRequest,
    Model,
    MonoBehaviour,
    Progress,
    Worker,
    exact_choice,
    open_worker,
)

_KEPT = 240


@dataclass(frozen=True)
class Question:
    """What the network was asked."""

    drawing: int
    written: int | None
    is_blank: bool


@dataclass(frozen=True)
class Answer:
    """What it said: (10,) probabilities, and how long it took, in frames and milliseconds."""

    drawing: int
    probabilities: np.ndarray
    is_blank: bool
    frames: int
    milliseconds: float

    @property
    def digit(self) -> int:
        """The likeliest digit."""
        return int(self.probabilities.argmax())


def load_worker(model: Model, choice: BackendChoice, progress: Progress | None = None) -> Worker:
    """A worker that has run once, in slices too: first runs cost more, which no frame should pay for."""
    worker = open_worker(model, choice, progress)
    blank = np.zeros((1, 1, INPUT_SIDE, INPUT_SIDE), np.float32)
    worker.schedule(blank)
    worker.peek_output().download_to_array()
    for _ in worker.schedule_iterable(blank):
        pass
    worker.peek_output().download_to_array()
    return worker


class DigitReader(MonoBehaviour):
    """Shows the network the sheet in every frame. `picture` is what it was shown last, (28, 28)."""

    execution_order = 10  # behind the pens

    sheet: Sheet
    model: Model
    worker: Worker
    choice: BackendChoice

    def awake(self) -> None:
        """Begin without an answer."""
        self.picture = np.zeros((INPUT_SIDE, INPUT_SIDE), np.float32)
        self.answer: Answer | None = None
        self.asked = self.answered = 0
        self.read: list[tuple[int, int]] = []
        """Digits that a script has written, with what the network took each for."""
        self._read_drawing = -1
        self._next: BackendChoice | None = None
        self._employ(self.worker, self.choice)

    def _employ(self, worker: Worker, choice: BackendChoice) -> None:
        self.worker, self.choice = worker, exact_choice(choice, worker)
        self._tried = self.choice
        self.device = worker.plan_report().device
        self.message = ""
        self.waits: list[tuple[int, float]] = []
        """How long the latest answers took: frames and milliseconds."""

    def has_read(self, drawing: int) -> bool:
        """Whether a drawing has been read when it was complete, which only a script can tell."""
        return self._read_drawing >= drawing

    def update(self) -> None:
        """Ask about the sheet as it is now."""
        if self._next is not None:
            self._switch(self._next)
        elif self.input.get_key_down("b"):
            self._next = ALL_CHOICES[(ALL_CHOICES.index(self._tried) + 1) % len(ALL_CHOICES)]
            self.message = f"loading {self._next.label}"  # seen in this frame; the next one loads
        self._ask()

    def _ask(self) -> None:
        image = self.sheet.ink.to_input()
        self.picture = image[0, 0]
        # A network slower than the frames never answers questions that have become stale.
        question = Question(self.sheet.drawing, self.sheet.written, self.sheet.ink.is_empty)
        self.app.inference.submit(self.worker, image, latest_only=True, payload=question, callback=self._take)
        self.asked += 1

    def _take(self, request: InferenceRequest) -> None:
        question = request.payload
        assert isinstance(question, Question)
        frames, milliseconds = request.age_frames, request.age_ms
        probabilities = request.result()[0]
        self.answer = Answer(question.drawing, probabilities, question.is_blank, frames, milliseconds)
        self.answered += 1
        self.waits = [*self.waits[1 - _KEPT :], (frames, milliseconds)]
        if question.written is not None and question.drawing > self._read_drawing:
            self._read_drawing = question.drawing
            self.read.append((question.written, self.answer.digit))

    def _switch(self, choice: BackendChoice) -> None:
        """Load another backend. The game stands still meanwhile; one that minds would load both at first."""
        self._next = None
        try:
            worker = load_worker(self.model, choice)
        except EngineError as error:
            # The next press goes on from here, past the backend that is missing.
            self._tried = choice
            self.message = f"no {choice.label}: {str(error).splitlines()[0]}"
            return
        self.app.inference.cancel_all(self.worker)
        self.worker.dispose()
        self._employ(worker, choice)

    def on_destroy(self) -> None:
        """Free what the worker holds."""
        self.app.inference.cancel_all(self.worker)
        self.worker.dispose()
