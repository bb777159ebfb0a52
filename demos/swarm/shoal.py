"""The fish and their network: what they sense goes out, how they steer comes back."""

from __future__ import annotations

from collections import deque

import numpy as np

from demos.swarm.world import Floats, Sea
from gameglue import (
    ALL_CHOICES,
    BackendChoice,
    EngineError,
    InferenceRequest,
    MonoBehaviour,
    Worker,
    exact_choice,
)

MODEL = "swarm/swarm.onnx"
LEAST, MOST = 256, 32768


def prepared(worker: Worker, sea: Sea) -> Worker:
    """`worker`, once it has made its plan for so many fish."""
    worker.warm_up({"batch": sea.count}).wait()
    return worker


class Shoal(MonoBehaviour):
    """Asks the network about all fish at once; they keep to its latest answer until the next has come."""

    sea: Sea
    worker: Worker
    choice: BackendChoice

    def awake(self) -> None:
        """Begin with fish that swim straight on."""
        self.steering: Floats = np.zeros((self.sea.count, 2), np.float32)
        self.answered = 0
        self.message = ""
        self.is_loading = False
        self._wanted = self.choice
        self._employ(self.worker, self.choice)

    def _employ(self, worker: Worker, choice: BackendChoice) -> None:
        self.worker, self.choice = worker, exact_choice(choice, worker)
        self._wanted = self.choice
        self.device = worker.plan_report().device
        self.waits: deque[float] = deque(maxlen=60)
        """Milliseconds from a question to its answer, the latest ones."""

    def update(self) -> None:
        """Swim on, look around and ask."""
        self.sea.step(self.steering, min(self.time.delta_time, 1 / 20))
        senses = self.sea.observe()
        self.app.inference.submit(self.worker, senses, latest_only=True, callback=self._take)

    def _take(self, request: InferenceRequest) -> None:
        steering = request.result()
        if len(steering) == self.sea.count:  # else it was asked before their number changed
            self.steering = steering
        self.answered += 1
        self.waits.append(request.age_ms)

    def resize(self, count: int) -> None:
        """Have `count` fish, once the network is ready for so many."""
        if LEAST <= count <= MOST and not self.is_loading:
            self.start_coroutine(self._resize(count))

    async def _resize(self, count: int) -> None:
        self.is_loading = True
        await self.worker.warm_up({"batch": count})
        self.sea.resize(count)
        self.steering = np.resize(self.steering, (count, 2))
        self.is_loading = False

    def switch(self) -> None:
        """Go over to the next backend, which is loaded beside the frames; fish swim on meanwhile."""
        if not self.is_loading:
            self._wanted = ALL_CHOICES[(ALL_CHOICES.index(self._wanted) + 1) % len(ALL_CHOICES)]
            self.start_coroutine(self._switch(self._wanted))

    async def _switch(self, choice: BackendChoice) -> None:
        self.is_loading, self.message = True, f"loading {choice.label}"
        try:
            worker = await self.app.load_worker(
                MODEL, choice.backend, device=choice.device, shapes={"batch": self.sea.count}
            )
        except EngineError as error:  # the next press goes on from here
            self.message = f"no {choice.label}: {str(error).splitlines()[0]}"
        else:
            self._dismiss()
            self._employ(worker, choice)
            self.message = ""
        self.is_loading = False

    def _dismiss(self) -> None:
        self.app.inference.cancel_all(self.worker)
        self.worker.dispose()

    def on_destroy(self) -> None:
        """Free what the worker holds."""
        self._dismiss()
