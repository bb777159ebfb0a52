"""The fish and their network: senses in, steering out."""

from __future__ import annotations

from itertools import cycle

import numpy as np

from demos.swarm.world import Floats, Sea
from gameglue import (
    BACKEND_CHOICES,
    BackendChoice,
    Brain,
    EngineError,
    InferenceRequest,
    resolve_backend_choice,
)

MODEL = "swarm/swarm.onnx"
LEAST, MOST = 256, 32768


class Shoal(Brain):
    """Runs the network for all fish in one batch; fish follow the latest answer."""

    sea: Sea

    def awake(self) -> None:
        """Start with fish that swim straight ahead."""
        self.steering: Floats = np.zeros((self.sea.count, 2), np.float32)
        self.message = ""
        self.is_loading = False
        self.runs_on = resolve_backend_choice(self.choice or BACKEND_CHOICES[0], self.worker)
        others = (choice for choice in BACKEND_CHOICES if choice != self.runs_on)
        self._choices = cycle((*others, self.runs_on))

    def update(self) -> None:
        """Advance the sea and submit the senses of all fish."""
        self.sea.step(self.steering, min(self.time.delta_time, 1 / 20))
        self.request(self.sea.observe(), latest_only=True, callback=self._take)

    def _take(self, request: InferenceRequest) -> None:
        steering = request.result()
        if len(steering) == self.sea.count:  # else the request is from before the number changed
            self.steering = steering

    def resize(self, count: int) -> None:
        """Change the number of fish; the network is warmed up for the new batch first."""
        if LEAST <= count <= MOST and not self.is_loading:
            self.start_coroutine(self._resize(count))

    async def _resize(self, count: int) -> None:
        self.is_loading = True
        await self.worker.warm_up({"batch": count})
        self.sea.resize(count)
        self.steering = np.resize(self.steering, (count, 2))
        self.is_loading = False

    def switch(self) -> None:
        """Change to the next backend, loaded without delaying frames."""
        if not self.is_loading:
            self.start_coroutine(self._switch(next(self._choices)))

    async def _switch(self, choice: BackendChoice) -> None:
        self.is_loading, self.message = True, f"loading {choice.label}"
        try:
            worker = await self.app.load_worker(MODEL, choice, shapes={"batch": self.sea.count})
        except EngineError as error:  # the next press tries the next backend
            self.message = f"no {choice.label}: {str(error).splitlines()[0]}"
        else:
            self.set_worker(worker, choice)
            self.runs_on, self.message = choice, ""
        self.is_loading = False
