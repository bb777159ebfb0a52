"""A city drawn with a quarter of its pixels and made whole by a network, beside bilinear interpolation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from demos.upscale.city import City
from demos.upscale.upscaler import Upscaler
from demos.upscale.view import View
from gameglue import App, Camera2D, Facts, ModelLoader, PlayOptions, default_choice, exact_choice, open_worker


def build(app: App, options: PlayOptions) -> Facts:
    """Load both networks and fill the scene."""
    choice = options.choice or default_choice(app.ctx is not None)[0]
    worker, judge = (
        open_worker(ModelLoader.load(app.resources.find(f"upscale/{name}.onnx")), choice, options.progress)
        for name in ("upscale", "compare")
    )
    label = exact_choice(choice, worker).label
    # A city that the network was not trained on.
    city = app.scene.create("city").add_component(City, seed=9000 + (options.seed or 0))
    # The small camera's picture is the game's; the large one's is only there to measure by.
    small, large = (app.scene.create(name).add_component(Camera2D, depth=-1) for name in ("small", "large"))
    app.scene.create("screen").add_component(Camera2D, layers=())
    game = app.scene.create("upscale")
    upscaler = game.add_component(
        Upscaler, worker=worker, judge=judge, small_camera=small, large_camera=large
    )
    game.add_component(View, upscaler=upscaler, city=city, label=label, autoplay=options.autoplay)
    return lambda: _facts(upscaler, label)


def _facts(upscaler: Upscaler, backend: str) -> Mapping[str, object]:
    """What the report tells about the network."""
    facts: dict[str, object] = {"backend": backend, "pictures": upscaler.pictures}
    if (network := upscaler.network).count:
        after = f"{network.latency_frames:.0f} frame(s), {network.latency_ms:.1f} ms (median)"
        facts["picture after"] = after
    if upscaler.measured:
        bilinear, network = np.mean(upscaler.measured, axis=0)
        facts["PSNR"] = f"bilinear {bilinear:.2f} dB, network {network:.2f} dB"
    return facts
