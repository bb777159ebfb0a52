"""Runs the network: one request in every frame; answers arrive in later frames."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np

from demos.digits.preprocess import INPUT_SIDE
from demos.digits.sheet import Sheet
from gameglue import BACKEND_CHOICES, Brain, EngineError, InferenceRequest, WaitUntil, resolve_backend_choice


class DigitReader(Brain):
    """Classifies the sheet in every frame; B loads the next backend."""

    execution_order = 10  # after the pens

    sheet: Sheet

    def awake(self) -> None:
        """Start without an answer."""
        self.picture = np.zeros((INPUT_SIDE, INPUT_SIDE), np.float32)
        """The latest input."""
        self.drawing, self.probabilities = -1, np.zeros(10)
        """The drawing of the latest answer, and its probabilities; zeros for an empty sheet."""
        self.read: dict[int, tuple[int, int]] = {}
        """For each drawing of the script: the digit written and the digit read."""
        self.message = ""

    def update(self) -> None:
        """Submit the sheet."""
        image = self.sheet.ink.to_input()
        self.picture = image[0, 0]
        take = partial(self._take, self.sheet.drawing, self.sheet.written)
        # latest_only: a network slower than the frames skips stale requests.
        self.request(image, latest_only=True, payload=image.any(), callback=take)

    def _take(self, drawing: int, written: int | None, request: InferenceRequest) -> None:
        answer = request.result()[0]
        self.drawing, self.probabilities = drawing, answer if request.payload else np.zeros(10)
        if written is not None:
            self.read.setdefault(drawing, (written, int(answer.argmax())))

    async def start(self) -> None:
        """Load the next backend with each B, without delaying frames; the old one runs until then."""
        assert self.choice is not None
        first = BACKEND_CHOICES.index(resolve_backend_choice(self.choice, self.worker)) + 1
        for choice in itertools.cycle(BACKEND_CHOICES[first:] + BACKEND_CHOICES[:first]):
            await WaitUntil(lambda: self.input.get_key_down("b"))
            self.message = f"loading {choice.label}"
            try:
                worker = await self.app.load_worker(self.worker.model, choice, shapes={"batch": 1})
            except EngineError as error:
                self.message = f"no {choice.label}: {str(error).splitlines()[0]}"
            else:
                self.set_worker(worker, choice)
                self.message = ""
