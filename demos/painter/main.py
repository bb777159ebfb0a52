"""A moving island in three dimensions, painted by a network while you watch."""

from __future__ import annotations

from collections.abc import Mapping

from demos.painter.island import build_island
from demos.painter.painter import Painter
from demos.painter.panel import Panel
from gameglue import (
    App,
    BackendType,
    Facts,
    ModelLoader,
    PlayOptions,
    TextureConverter,
    default_choice,
    exact_choice,
    open_worker,
)

STYLES = ("comic", "etching", "gouache")


def build(app: App, options: PlayOptions) -> Facts:
    """Load the networks and fill the scene."""
    choice = options.choice or default_choice(app.ctx is not None)[0]
    workers = {
        style: open_worker(
            ModelLoader.load(app.resources.find(f"painter/{style}.onnx")), choice, options.progress
        )
        for style in STYLES
    }
    choice = exact_choice(choice, workers[STYLES[0]])
    build_island(app)
    # Where the processor draws, shaders are no faster than it: a quarter of the pixels is what it can do.
    is_slow = app.graphics.is_software and choice.backend is not BackendType.CPU
    game = app.scene.create("painter")
    painter = game.add_component(Painter, workers=workers, scale=0.25 if is_slow else 0.5)
    is_there = choice.backend is not BackendType.CPU and choice.device != "opencl"
    label = f"{choice.label}, " + ("never off the GPU" if is_there else "by way of the host")
    game.add_component(Panel, painter=painter, label=label, autoplay=options.autoplay)
    return lambda: _facts(painter, choice.label)


def _facts(painter: Painter, backend: str) -> Mapping[str, object]:
    """What the report tells about the networks."""
    copied = TextureConverter.counters
    facts: dict[str, object] = {
        "backend": backend,
        "paintings": painter.pictures,
        "pictures through the host": f"{copied.staged_down} down, {copied.staged_up} up",
    }
    network = painter.network
    if network.count:
        after = f"{network.latency_frames:.0f} frame(s), {network.latency_ms:.1f} ms (median)"
        facts["painting after"] = after
        facts["paintings a second"] = f"{network.pictures_per_second:.1f}"
    return facts
