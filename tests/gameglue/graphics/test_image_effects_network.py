"""Frame -> tensor -> network -> picture in `on_render_image`: nothing leaves the GPU, and nothing waits.

The network sharpens, or finds edges. What it makes of a frame is compared, pixel by pixel, with NumPy and
onnxruntime on the frame's own pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine import BackendType, ModelLoader, Tensor, TextureConverter, TextureTransform, Worker
from gameglue import App, MonoBehaviour, RenderTarget, SpriteRenderer
from tests.graphs import node, proto
from tests.peer import open_session

MakeApp = Callable[..., App]
SHARPEN = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], np.float32)


def sharpener() -> bytes:
    """Three planes, each convolved with `SHARPEN`, and mixed a little so that the order of channels shows."""
    mix = np.array([[0.8, 0.2, 0.0], [0.0, 0.9, 0.1], [0.1, 0.0, 0.9]], np.float32)
    weights = mix[:, :, None, None] * SHARPEN
    constants = {"w": weights, "b": np.array([0.05, 0.0, -0.05], np.float32)}
    nodes = [
        node("Pad", ["x", "pads"], ["padded"], mode="edge"),
        node("Conv", ["padded", "w", "b"], ["c"]),
        node("Clip", ["c", "low", "high"], ["y"]),
    ]
    constants |= {
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "low": np.array(0, np.float32),
        "high": np.array(1, np.float32),
    }
    return proto(
        nodes, {"x": ("float32", (1, 3, None, None))}, {"y": ("float32", (1, 3, None, None))}, constants
    )


MODEL = sharpener()


class NetworkEffect(MonoBehaviour):
    """A network as an image effect, as the guide shows it."""

    backend: BackendType
    device: Any = None
    transform_of_picture: TextureTransform = TextureTransform()

    def start(self) -> None:
        self.worker = Worker(ModelLoader.load(MODEL), self.backend, device=self.device)
        self.tensor: Tensor | None = None
        self.seen: tuple[np.ndarray, np.ndarray] | None = None
        self.look = False

    def on_render_image(self, source: RenderTarget, destination: RenderTarget) -> None:
        how = self.transform_of_picture
        self.tensor = TextureConverter.to_tensor(source, how, self.tensor, on=self.worker)
        self.worker.schedule(self.tensor)
        TextureConverter.render_to_texture(self.worker.peek_output(), destination, how)
        if self.look:
            while TextureConverter.poll():
                pass
            self.seen = source.read(), destination.read()

    def on_destroy(self) -> None:
        self.worker.dispose()


def scene(app: App) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    picture = app.graphics.texture(noise, smooth=False)
    app.scene.create("noise").add_component(SpriteRenderer, texture=picture, width=9.0, height=6.0)


def expected(frame: np.ndarray, how: TextureTransform) -> np.ndarray:
    """What onnxruntime makes of a frame (rows, columns, 3), top row first."""
    x = (frame / 255).astype(np.float32)
    linear = how.color_space == "linear"
    if linear:
        x = np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4).astype(np.float32)
    x = x[..., ::-1] if how.swizzle == "bgr" else x
    x = x[::-1] if how.coord_origin == "bottom_left" else x
    session = open_session(MODEL)
    (y,) = session.run(None, {"x": np.ascontiguousarray(x.transpose(2, 0, 1)[None])})
    y = y[0].transpose(1, 2, 0)
    y = y[::-1] if how.coord_origin == "bottom_left" else y
    y = y[..., ::-1] if how.swizzle == "bgr" else y
    if linear:
        y = np.where(y <= 0.0031308, y * 12.92, 1.055 * y ** (1 / 2.4) - 0.055)
    return np.floor(np.clip(y, 0, 1) * 255 + 0.5).astype(int)


TRANSFORMS = {
    "plain": TextureTransform(),
    "blue first, bottom first": TextureTransform().set_channel_swizzle("bgr").set_coord_origin("bottom_left"),
    "in linear light": TextureTransform(color_space="linear"),
}


@pytest.mark.spread("kind")
@pytest.mark.gl
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("kind", [BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL])
def test_a_frame_goes_through_a_network_without_leaving_the_gpu(
    kind: BackendType, transform: str, make_drawing_app: MakeApp, gl_device: Any
) -> None:
    how = TRANSFORMS[transform]
    app = make_drawing_app(size=(120, 90))
    scene(app)
    effect = app.scene.create("effect").add_component(NetworkEffect, backend=kind, transform_of_picture=how)
    app.step()
    gl_device.counters.reset()
    staged = TextureConverter.counters.staged_down
    for _ in range(5):
        app.step()
    counters = gl_device.counters
    moved = (counters.readbacks, counters.uploads, counters.bytes_down, counters.bytes_up)
    assert moved == (0, 0, 0, 0)
    assert not counters.blocking
    assert TextureConverter.counters.staged_down == staged
    effect.look = True
    app.step()
    assert effect.seen is not None
    before, after = effect.seen
    assert len(np.unique(before)) > 50
    difference = np.abs(after.astype(int) - expected(before, how))
    # One step of a texture's 8 bits where the two compute the middle between two to either side.
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.02


@pytest.mark.gl
@pytest.mark.parametrize("channel", ["cpu", "opencl"])
def test_elsewhere_it_goes_by_way_of_the_host_and_is_counted(
    channel: str, make_drawing_app: MakeApp, gl_device: Any, request: pytest.FixtureRequest
) -> None:
    device = request.getfixturevalue("cl_device") if channel == "opencl" else None
    kind = BackendType.CPU if channel == "cpu" else BackendType.GPU_COMPUTE
    app = make_drawing_app(size=(48, 36))
    scene(app)
    app.scene.create("effect").add_component(NetworkEffect, backend=kind, device=device)
    shown = 0
    for _ in range(400):
        app.step()
        picture = app.graphics.read_pixels().astype(int)
        shown += len(np.unique(picture)) > 30
        if shown > 3:
            break
    assert shown > 3, "the network's picture never came"
    assert TextureConverter.counters.staged_down > 0
    assert gl_device.counters.readbacks > 0
    assert not gl_device.counters.blocking


CHILD = """
import glcontext, moderngl, numpy as np
from engine.device.cl.counting import counting_cl_calls
from engine.device.gl.counting import CountingLoader
from engine.device.gl.device import GLDevice
from gameglue import App, BackendType
from tests.gameglue.graphics import test_image_effects_network as effects

loaders = []

def wrap(loader):
    loaders.append(CountingLoader(loader))
    return loaders[-1]

backend = glcontext.get_backend_by_name("egl")
game = moderngl.create_context(context=wrap(backend(mode="standalone", glversion=430)))
gl = GLDevice(game, loader_wrapper=wrap)
from engine.device.gl import device as module
module._by_context[game] = gl
kind, device = {
    "cpu": (BackendType.CPU, None),
    "gl_compute": (BackendType.GPU_COMPUTE, gl),
    "gl_pixel": (BackendType.GPU_PIXEL, gl),
    "opencl": (BackendType.GPU_COMPUTE, "opencl"),
}[CHANNEL]
app = App("counted", size=(64, 48), context=game, on_error="raise")
effects.scene(app)
effect = app.scene.create("effect").add_component(effects.NetworkEffect, backend=kind, device=device)
for _ in range(30):
    app.step()
with counting_cl_calls() as cl_counts:
    marks = [dict(loader.counts) for loader in loaders]
    for _ in range(60):
        app.step()
    counted = [{k: n - mark.get(k, 0) for k, n in loader.counts.items() if n != mark.get(k, 0)}
               for loader, mark in zip(loaders, marks)]
print("gl", counted)
print("cl", dict(cl_counts))
app.dispose()
"""


@pytest.mark.gl
@pytest.mark.spread
@pytest.mark.parametrize("channel", ["cpu", "gl_compute", "gl_pixel", "opencl"])
def test_no_call_waits(channel: str, run_child: Callable[..., str]) -> None:
    said = run_child(f"CHANNEL = {channel!r}\n{CHILD}")
    lines = dict(line.split(" ", 1) for line in said.splitlines() if line.startswith(("gl ", "cl ")))
    assert lines["gl"] == "[{}, {}]"
    assert lines["cl"] == "{}"
