"""The network at work: it is asked in every frame, and answers when it has the answer."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from demos.digits.preprocess import INPUT_SIDE
from demos.digits.sheet import Sheet
from gameglue import InferenceResult, Model, MonoBehaviour, Worker
from gameglue.cli.backends import ALL_CHOICES, BackendChoice, Progress, exact_choice, open_worker
from gameglue.errors import EngineError

_MOST_WAITING = 3  # questions on their way at once; a backend slower than the frames is asked less often
_KEPT = 240


@dataclass(frozen=True)
class Question:
    """What the network was asked, and when."""

    worker: Worker
    drawing: int
    written: int | None
    is_blank: bool
    asked: float


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
    """A worker that has run once: the first run costs more, and a frame should not pay for it."""
    worker = open_worker(model, choice, progress)
    worker.schedule(np.zeros((1, 1, INPUT_SIDE, INPUT_SIDE), np.float32))
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
        self._waiting = 0
        self.app.inference.register(worker)

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
        if self._waiting < _MOST_WAITING and not self.app.inference.paused:
            self._ask()

    def _ask(self) -> None:
        image = self.sheet.ink.to_input()
        self.picture = image[0, 0]
        with self.app.profiler.sample("schedule"):
            self.worker.schedule(image)
        question = Question(
            self.worker, self.sheet.drawing, self.sheet.written, self.sheet.ink.is_empty, time.perf_counter()
        )
        self.app.inference.result(self.worker.peek_output(), self._take, payload=question)
        self._waiting += 1
        self.asked += 1

    def _take(self, result: InferenceResult) -> None:
        question = result.payload
        if not isinstance(question, Question) or question.worker is not self.worker:
            return
        self._waiting -= 1
        frames = self.time.frame_count - result.frame
        milliseconds = (time.perf_counter() - question.asked) * 1e3
        self.answer = Answer(question.drawing, result.result()[0], question.is_blank, frames, milliseconds)
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
        self.app.inference.unregister(self.worker)
        self.worker.dispose()
        self._employ(worker, choice)

    def on_destroy(self) -> None:
        """Free what the worker holds."""
        self.app.inference.unregister(self.worker)
        self.worker.dispose()
