"""A game drawn with a quarter of its pixels and upscaled by a network, beside bilinear interpolation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from demos.upscale.city import City
from demos.upscale.upscaler import Upscaler
from demos.upscale.view import View
from gameglue import (
    App,
    BackendType,
    Camera2D,
    ModelLoader,
    PlayOptions,
    ReportCallback,
    default_backend_choice,
    open_worker,
    resolve_backend_choice,
)


def build(app: App, options: PlayOptions) -> ReportCallback:
    """Load both networks and create the scene."""
    choice = options.choice or default_backend_choice(app.ctx is not None)[0]
    worker, judge = (
        open_worker(ModelLoader.load(app.resources.find(f"upscale/{name}.onnx")), choice, options.progress)
        for name in ("upscale", "compare")
    )
    label = resolve_backend_choice(choice, worker).label
    # The network was trained on cities with other seeds.
    city = app.scene.create("city").add_component(City, seed=9000 + (options.seed or 0))
    # The small camera draws the game; the large one draws the reference for measuring.
    small, large = (app.scene.create(name).add_component(Camera2D, depth=-1) for name in ("small", "large"))
    app.scene.create("screen").add_component(Camera2D, layers=())
    game = app.scene.create("upscale")
    size = 640, 480
    if app.graphics.is_software and not options.full_size:  # the processor draws and infers
        size = (384, 288) if choice.backend is BackendType.CPU else (320, 240)
    upscaler = game.add_component(
        Upscaler, worker=worker, judge=judge, small_camera=small, large_camera=large, size=size
    )
    game.add_component(View, upscaler=upscaler, city=city, label=label, autoplay=options.autoplay)
    return lambda: _facts(upscaler, label)


def _facts(upscaler: Upscaler, backend: str) -> Mapping[str, object]:
    """Figures for the report."""
    report: dict[str, object] = {"backend": backend, "images": upscaler.images}
    if (network := upscaler.network).count:
        after = f"{network.latency_frames:.0f} frame(s), {network.latency_ms:.1f} ms (median)"
        report["image after"] = after
        report["images a second"] = f"{network.images_per_second:.1f}"
        report["upscaled to"] = f"{upscaler.size[0]} x {upscaler.size[1]}"
    if upscaler.measured:
        bilinear, network = np.mean(upscaler.measured, axis=0)
        report["PSNR"] = f"bilinear {bilinear:.2f} dB, network {network:.2f} dB"
    return report
