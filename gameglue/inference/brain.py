"""`Brain`: a component that owns a worker, submits requests to it, and measures how long answers take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Self

from engine import Model, Worker
from gameglue.host.play_options import PlayOptions
from gameglue.inference import InferenceRequest
from gameglue.inference.backend_choice import (
    BackendChoice,
    default_backend_choice,
    open_worker,
    resolve_backend_choice,
)
from gameglue.inference.request import Callback
from gameglue.scripting.behaviour import MonoBehaviour

if TYPE_CHECKING:
    from gameglue.scene.game_object import GameObject

_KEPT = 60

Shapes = Mapping[str, Any]


class Brain(MonoBehaviour):
    """A component that owns a worker, submits requests to it, and measures how long answers take.

        brain = Brain.open(app.scene.create("guard"), "guard.onnx", shapes={"batch": 1})
        brain.request(senses, callback=self.take, latest_only=True)

    Components that have it as a field share it; one that derives from it asks `self`.
    """

    worker: Worker
    """What runs the network; disposed with the component."""
    choice: BackendChoice | None = None
    """The requested backend; `None` is the worker's own."""

    result_count = 0
    """Number of results so far."""
    _waits: tuple[tuple[int, float], ...] = ()
    _asked: Sequence[InferenceRequest] = ()
    _label = ""

    @classmethod
    def open(
        cls,
        game_object: GameObject,
        model: str | Path | Model,
        options: PlayOptions | None = None,
        shapes: Shapes | Sequence[Shapes] | None = None,
        **fields: object,
    ) -> Self:
        """Add a brain to `game_object`, on the backend that the player chose or that suits this machine.

        Args:
            game_object: whose component it becomes.
            model: a file's name, as for `resources`, or a model.
            options: with the player's choice of a backend; without them what `default_backend_choice` takes.
            shapes: what the inputs will have, as for `Worker.warm_up`, so that no frame pays for a first run;
                `{}` where the model has no dynamic dimensions.
            fields: those of a class that derives from this one.

        Raises what loading a model and making a worker raise.
        """
        app, options = game_object.scene.app, options or PlayOptions()
        choice = options.choice or default_backend_choice(app.ctx is not None)[0]
        if not isinstance(model, Model):
            model = app.resources.load(model, Model)
        worker = open_worker(model, choice, options.progress)
        try:
            if shapes is not None:
                worker.warm_up(shapes).wait()
        except Exception:
            worker.dispose()
            raise
        return game_object.add_component(cls, worker=worker, choice=choice, **fields)

    def request(self, *inputs: Any, callback: Callback | None = None, **options: Any) -> InferenceRequest:
        """Submit a request to the worker.

        Args:
            *inputs: Inputs of the model, by position.
            callback: Called with the request when it is done.
            **options: Options of `app.inference.submit`.

        Returns:
            The request.
        """

        def take(request: InferenceRequest) -> None:
            if request.error is None:
                self.result_count += 1
                self._waits = (*self._waits[1 - _KEPT :], (request.age_frames, request.age_ms))
            if callback is not None:
                callback(request)

        # Whose callback it is, for messages.
        take.__wrapped__ = callback or _nothing  # type: ignore[attr-defined]
        request = self.app.inference.submit(self.worker, *inputs, callback=take, **options)
        self._asked = [*(asked for asked in self._asked if not asked.is_done()), request]
        return request

    @property
    def pending(self) -> int:
        """Number of requests without a result."""
        return sum(not asked.is_done() for asked in self._asked)

    def cancel(self) -> None:
        """Cancel all open requests: their callbacks are not called."""
        self.app.inference.cancel_all(self.worker)

    @property
    def latency_ms(self) -> float:
        """Median of the latest times from request to result, in milliseconds; 0 before the first."""
        return median(ms for _, ms in self._waits) if self._waits else 0.0

    @property
    def latency_frames(self) -> float:
        """Median of the latest numbers of frames from request to result; 0 before the first."""
        return median(frames for frames, _ in self._waits) if self._waits else 0.0

    @property
    def latency_text(self) -> str:
        """How long an answer takes, in words for a screen: "1 frame, 4.2 ms"; "..." before the first."""
        frames = f"{self.latency_frames:.0f} frame{'s' if round(self.latency_frames) != 1 else ''}"
        return f"{frames}, {self.latency_ms:.1f} ms" if self._waits else "..."

    @property
    def label(self) -> str:
        """Where the worker runs, such as "gpu_pixel on llvmpipe"; kept after destruction."""
        if not self._label:
            choice = resolve_backend_choice(
                self.choice or BackendChoice(self.worker.backend_type), self.worker
            )
            self._label = f"{choice.label} on {self.worker.plan_report().device}"
        return self._label

    @property
    def statistics(self) -> dict[str, object]:
        """Statistics for a report: backend, number of results, and latency."""
        found: dict[str, object] = {"backend": self.label, "answers": self.result_count}
        if self._waits:
            frames, ms = self.latency_frames, self.latency_ms
            found["answer after"] = f"{frames:.0f} frame(s), {ms:.2f} ms (median)"
        return found

    def set_worker(self, worker: Worker, choice: BackendChoice | None = None) -> None:
        """Replace the worker: dispose the previous one and cancel its requests."""
        self._dismiss()
        self.worker, self.choice, self._waits, self._label = worker, choice, (), ""

    def on_destroy(self) -> None:
        """Cancel pending requests, and free what the worker holds."""
        self._dismiss()

    def _dismiss(self) -> None:
        self.cancel()
        if not self.worker.is_disposed:
            self._label = self.label  # for a report after the end
        self.worker.dispose()


def _nothing(request: InferenceRequest) -> None:
    """Stands for the callback of a request without one."""
