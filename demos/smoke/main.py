"""Stir coloured smoke: a network computes the fluid's pressure, beside a classical solver."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from demos.smoke.fluid import walled_box
from demos.smoke.panels import Panels
from demos.smoke.simulation import Simulation
from gameglue import (
    App,
    BackendChoice,
    Model,
    ModelLoader,
    PlayOptions,
    ProgressCallback,
    ReportCallback,
    Worker,
    default_backend_choice,
    open_worker,
)


def load_worker(
    model: Model, choice: BackendChoice, progress: ProgressCallback | None
) -> tuple[Worker, float]:
    """Returns a warmed up worker, and the milliseconds of one run."""
    worker = open_worker(model, choice, progress)
    worker.warm_up({"batch": 1}).wait()
    solid, times = walled_box()[None, None].astype(np.float32), []
    for _ in range(5):
        started = time.perf_counter()
        worker.schedule(solid, solid)
        worker.peek_output().download_to_array()
        times.append(1e3 * (time.perf_counter() - started))
    return worker, min(times)


def build(app: App, options: PlayOptions) -> ReportCallback:
    """Load the network and create the scene."""
    choice = options.choice or default_backend_choice(app.ctx is not None)[0]
    app.frame_budget_ms = 6.0  # of 16.7 ms: little else happens here
    model = ModelLoader.load(app.resources.find("smoke/smoke.onnx"))
    worker, network_ms = load_worker(model, choice, options.progress)
    backend = f"{choice.label} on {worker.plan_report().device}"
    game = app.scene.create("smoke")
    simulation = game.add_component(
        Simulation, worker=worker, network_ms=network_ms, autoplay=options.autoplay
    )
    game.add_component(Panels, simulation=simulation, title=backend)
    return lambda: _facts(simulation, backend)


def _facts(simulation: Simulation, backend: str) -> Mapping[str, object]:
    """Figures for the report."""
    report: dict[str, object] = {"backend": backend, "steps": simulation.steps}
    if simulation.left:
        network, classical = np.median(simulation.left, axis=0)
        frames, milliseconds = np.median(simulation.waits, axis=0)
        report["divergence left by the network"] = f"{network:.1%}, {simulation.network_ms:.2f} ms alone"
        report[f"left by Jacobi, {simulation.iterations} iterations"] = (
            f"{classical:.1%}, {np.median(simulation.jacobi_ms):.2f} ms"
        )
        report["pressure after"] = f"{frames:.0f} frame(s), {milliseconds:.2f} ms (median)"
    return report
