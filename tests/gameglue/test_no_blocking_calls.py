"""The frame loop makes no blocking call while inference is in flight, and inference leaves no trace in the
picture. Proven by counters under both OpenGL loaders (the game's and the device's) and around OpenCL.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.networks import light_network

pytestmark = pytest.mark.gl

CHILD = """
import glcontext, moderngl, numpy as np
from engine.devices import CountingLoader, GLDevice, CLDevice, counting_cl_calls
from gameglue import App, BackendType, ModelLoader, MonoBehaviour, Worker

loaders = []

def wrap(loader):
    loaders.append(CountingLoader(loader))
    return loaders[-1]

backend = glcontext.get_backend_by_name("egl")
game = moderngl.create_context(context=wrap(backend(mode="standalone", glversion=430)))
gl = GLDevice(game, loader_wrapper=wrap)
kind, device = {
    "cpu": (BackendType.CPU, None),
    "gl_compute": (BackendType.GPU_COMPUTE, gl),
    "gl_pixel": (BackendType.GPU_PIXEL, gl),
    "opencl": (BackendType.GPU_COMPUTE, "opencl"),
}[CHANNEL]
model = ModelLoader.load(NETWORK)
shape = tuple(d if isinstance(d, int) else 1 for d in model.inputs[0].shape)


class Spinner(MonoBehaviour):
    def update(self):
        self.transform.rotate(30 * self.time.delta_time)

    def on_gui(self):
        self.app.gui.rect(20, 20, 40, 30, color=(0.9, 0.4, 0.1, 1))


class Reader(MonoBehaviour):
    def start(self):
        self.worker = Worker(model, kind, device=device)
        self.picture = np.zeros(shape, np.float32)
        self.pending = None
        self.results = 0
        self.expected = None

    def update(self):
        if self.pending is not None and self.pending.is_readback_request_done():
            self.results += 1
            self.pending = None
        if self.pending is None:
            self.picture += 0.01
            self.worker.schedule(self.picture)
            self.pending = self.worker.peek_output()
            self.pending.readback_request()

    def on_destroy(self):
        self.worker.dispose()


app = App("counted", size=(64, 64), context=game, on_error="raise")
app.scene.create("spinner", Spinner)
reader = app.scene.create("reader", Reader).get_component(Reader)
for _ in range(5):
    app.step()
before = reader.results
frames = 0
with counting_cl_calls() as cl_counts:
    marks = [dict(loader.counts) for loader in loaders]
    while frames < 30 or reader.results - before < 2 and frames < 20000:
        app.step()
        frames += 1
    counted = [{k: n - mark.get(k, 0) for k, n in loader.counts.items() if n != mark.get(k, 0)}
               for loader, mark in zip(loaders, marks)]
print("results", reader.results - before)
print("gl", counted)
print("cl", dict(cl_counts))
app.dispose()
"""


@pytest.mark.parametrize("network", ["digits", "squeezenet"])
@pytest.mark.parametrize("channel", ["cpu", "gl_compute", "gl_pixel", "opencl"])
def test_the_frame_loop_never_waits(
    channel: str, network: str, run_child: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "squeezenet.onnx"
    if network == "digits":
        path = Path(__file__).parents[2] / "assets" / "digits" / "digits.onnx"
    else:
        path.write_bytes(light_network("squeezenet"))
    said = run_child(f"CHANNEL = {channel!r}\nNETWORK = {str(path)!r}\n{CHILD}")
    lines = dict(line.split(" ", 1) for line in said.splitlines() if line.startswith(("results", "gl", "cl")))
    assert int(lines["results"]) >= 2
    assert lines["gl"] == "[{}, {}]"
    assert lines["cl"] == "{}"
