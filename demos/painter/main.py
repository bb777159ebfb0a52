"""A moving 3D scene, painted by a network in every frame."""

from __future__ import annotations

from collections.abc import Mapping

from demos.painter.island import build_island
from demos.painter.painter import Painter
from demos.painter.panel import Panel
from gameglue import (
    App,
    BackendType,
    ModelLoader,
    PlayOptions,
    ReportCallback,
    TextureConverter,
    default_backend_choice,
    open_worker,
    resolve_backend_choice,
)

STYLES = ("comic", "etching", "gouache")


def build(app: App, options: PlayOptions) -> ReportCallback:
    """Load the networks and create the scene."""
    choice = options.choice or default_backend_choice(app.ctx is not None)[0]
    workers = {
        style: open_worker(
            ModelLoader.load(app.resources.find(f"painter/{style}.onnx")), choice, options.progress
        )
        for style in STYLES
    }
    choice = resolve_backend_choice(choice, workers[STYLES[0]])
    game = app.scene.create("painter")
    painter = game.add_component(Painter, workers=workers, camera=build_island(app))
    if (
        app.graphics.is_software and not options.full_size
    ):  # the processor draws: fewer pixels keep the frame rate
        painter.detail, painter.scale = 0.4, 0.25
    is_there = choice.backend is not BackendType.CPU and choice.device != "opencl"
    label = f"{choice.label}, " + ("stays on the GPU" if is_there else "copied through the host")
    game.add_component(Panel, painter=painter, label=label, autoplay=options.autoplay)
    return lambda: _facts(painter, choice.label)


def _facts(painter: Painter, backend: str) -> Mapping[str, object]:
    """Figures for the report."""
    copied = TextureConverter.counters
    report: dict[str, object] = {
        "backend": backend,
        "paintings": painter.pictures,
        "images through the host": f"{copied.staged_down} down, {copied.staged_up} up",
    }
    network = painter.network
    if network.count:
        after = f"{network.latency_frames:.0f} frame(s), {network.latency_ms:.1f} ms (median)"
        report["painting after"] = after
        report["paintings a second"] = f"{network.images_per_second:.1f}"
    return report
