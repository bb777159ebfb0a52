"""Devices that go away: an OpenGL context that is lost, released or closed, an OpenCL device that fails."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

import moderngl
import numpy as np
import pytest

from engine import BackendType, CLDevice, DeviceError, GLDevice, ModelLoader, Worker
from engine.device.cl.native_calls import NativeCalls
from tests.contract.faults import DIGITS, IMAGE, FaultyLoader, open_worker

pytestmark = pytest.mark.gl

RunChild = Callable[..., str]


@pytest.mark.parametrize("kind", [BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL])
def test_a_lost_context_is_one_error_and_the_game_may_make_another(
    game: moderngl.Context, kind: BackendType
) -> None:
    model = ModelLoader.load(DIGITS)
    device = GLDevice(game, loader_wrapper=FaultyLoader)
    worker = Worker(model, kind, device=device)
    worker.schedule(IMAGE)
    expected = worker.peek_output().download_to_array()
    worker.schedule(IMAGE)
    pending = worker.peek_output()
    pending.readback_request()
    FaultyLoader.made.lost = True
    uses: tuple[Callable[[], object], ...] = (
        pending.is_readback_request_done,
        pending.download_to_array,
        lambda: worker.schedule(IMAGE),
        worker.copy_output,
        lambda: Worker(model, kind, device=device),
    )
    for use in uses:
        with pytest.raises(
            DeviceError, match=r"context was lost .*; create the window and its workers again"
        ):
            use()
    assert device.is_lost
    worker.dispose()
    device.dispose()
    with GLDevice(game) as another, Worker(model, kind, device=another) as again:
        again.schedule(IMAGE)
        assert np.array_equal(again.peek_output().download_to_array(), expected)


RELEASED = """
import moderngl, numpy as np
from engine import BackendType, ModelLoader, Worker
image = np.ones((1, 1, 28, 28), np.float32)
for kind in (BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL):
    game = moderngl.create_standalone_context(backend="egl")
    worker = Worker(ModelLoader.load(DIGITS), kind, device="gl")
    worker.schedule(image)
    expected = worker.peek_output().download_to_array()
    worker.schedule(image)
    pending = worker.peek_output()
    pending.readback_request()
    game.release()
    assert np.array_equal(pending.download_to_array(), expected)
    worker.schedule(image)
    assert np.array_equal(worker.peek_output().download_to_array(), expected)
    worker.dispose()
    print("released")
"""


def test_a_context_that_the_game_releases_first_takes_no_worker_along(run_child: RunChild) -> None:
    assert run_child(f"DIGITS = {str(DIGITS)!r}\n{RELEASED}").count("released") == 2


HOSTS = {
    "pygame": (
        """
import pygame
pygame.display.init()
for name, value in (("MAJOR_VERSION", 3), ("MINOR_VERSION", 3), ("PROFILE_MASK", 1)):
    pygame.display.gl_set_attribute(getattr(pygame, f"GL_CONTEXT_{name}"), value)
pygame.display.set_mode((64, 48), pygame.OPENGL | pygame.DOUBLEBUF)
ctx = moderngl.create_context()
close = pygame.display.quit
"""
    ),
    "glfw": (
        """
import glfw
glfw.init()
glfw.window_hint(glfw.CONTEXT_VERSION_MAJOR, 3)
glfw.window_hint(glfw.CONTEXT_VERSION_MINOR, 3)
glfw.window_hint(glfw.OPENGL_PROFILE, glfw.OPENGL_CORE_PROFILE)
window = glfw.create_window(64, 48, "glfw", None, None)
glfw.make_context_current(window)
ctx = moderngl.create_context()
def close():
    glfw.destroy_window(window)
    glfw.terminate()
"""
    ),
    "arcade": (
        """
import arcade
window = arcade.Window(64, 48, "arcade", gl_version=(3, 3))
close = window.close
"""
    ),
}

CLOSED = """
import numpy as np
from engine import BackendType, DeviceError, ModelLoader, Worker
image = np.ones((1, 1, 28, 28), np.float32)
kinds = BackendType.GPU_PIXEL, BackendType.GPU_COMPUTE
workers = [Worker(ModelLoader.load(DIGITS), kind) for kind in kinds]
for worker in workers:
    for _ in range(2):
        worker.schedule(image)
pending = [worker.peek_output() for worker in workers]
for tensor in pending:
    tensor.readback_request()
close()
for worker, tensor in zip(workers, pending):
    for use in (tensor.download_to_array, lambda: worker.schedule(image)):
        try:
            use()
            print("works")
        except DeviceError as error:
            print("refused:", error)
    worker.dispose()
print("end")
"""


@pytest.mark.window
@pytest.mark.parametrize("host", HOSTS)
def test_a_window_closed_with_work_pending_is_an_error_not_a_crash(
    host: str, run_child: RunChild, display: str
) -> None:
    if importlib.util.find_spec(host) is None:
        pytest.skip(f'{host} is not installed: pip install "gameglue[loops]"')
    said = run_child(
        f"DIGITS = {str(DIGITS)!r}\nimport moderngl\n{HOSTS[host]}\n{CLOSED}",
        DISPLAY=display,
        SDL_VIDEODRIVER="x11",
    ).splitlines()
    assert said[-1] == "end"
    answers = said[:-1]
    assert len(answers) == 4
    assert all(line == "works" or "closed" in line for line in answers)


class Failing:
    """Takes the place of a pyopencl function; raises what OpenCL raises when a device has gone."""

    def __init__(self, cl: Any) -> None:
        self._error = cl.RuntimeError("clEnqueue failed: DEVICE_NOT_AVAILABLE")

    def __call__(self, *arguments: object, **keywords: object) -> object:
        raise self._error


@pytest.mark.parametrize("function", ["enqueue_nd_range_kernel", "enqueue_copy"])
@pytest.mark.opencl
def test_an_opencl_device_that_fails_in_the_middle_is_one_error(
    request: pytest.FixtureRequest, cl_device: CLDevice, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    worker = open_worker(request, ModelLoader.load(DIGITS), "opencl")
    worker.schedule(IMAGE)
    expected = worker.peek_output().download_to_array()
    with monkeypatch.context() as patched:
        patched.setattr(cl_device.cl, function, Failing(cl_device.cl))
        # Native code leaves commands that fail to pyopencl, which tells why.
        patched.setattr(NativeCalls, "run", lambda calls, rows, begin: begin)
        for _ in range(3):
            with pytest.raises(
                DeviceError, match="fails to take a co.*DEVICE_NOT_AVAILABLE.*BackendType.CPU"
            ):
                worker.schedule(IMAGE)
    # It came back: nothing of the failed schedules is left.
    worker.schedule(IMAGE)
    assert np.array_equal(worker.peek_output().download_to_array(), expected)


@pytest.mark.opencl
def test_an_opencl_command_that_fails_later_is_told_to_who_waits_for_it(
    request: pytest.FixtureRequest, cl_device: CLDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = open_worker(request, ModelLoader.load(DIGITS), "opencl")
    worker.schedule(IMAGE)
    expected = worker.peek_output().download_to_array()
    with monkeypatch.context() as patched:
        enqueue = cl_device.cl.enqueue_copy

        class Event:
            """Of a command that did not work out: the device was out of resources."""

            command_execution_status = -5

            def __init__(self, event: Any) -> None:
                self._event = event

            def wait(self) -> None:
                raise cl_device.cl.RuntimeError("clWaitForEvents failed")

        patched.setattr(cl_device.cl, "enqueue_copy", lambda *a, **k: Event(enqueue(*a, **k)))
        tensor = worker.peek_output()
        tensor.readback_request()
        with pytest.raises(DeviceError, match="status -5"):
            tensor.is_readback_request_done()
    worker.schedule(IMAGE)
    assert np.array_equal(worker.peek_output().download_to_array(), expected)


LOOP = """
import logging, numpy as np
from gameglue import App, BackendType, CLDevice, ModelLoader, MonoBehaviour, Worker
logging.basicConfig(format="%(levelname)s %(message)s")
model = ModelLoader.load(DIGITS)

class Reader(MonoBehaviour):
    def start(self):
        self.worker = Worker(model, BackendType.GPU_COMPUTE, device="opencl")
    def update(self):
        self.worker.schedule(np.ones((1, 1, 28, 28), np.float32))
        if self.time.frame_count >= 5 and not self.worker.plan_report().planning:
            cl = self.worker.device.cl
            def fails(*a, **k): raise cl.RuntimeError("DEVICE_NOT_AVAILABLE")
            cl.enqueue_copy = cl.enqueue_nd_range_kernel = fails
    def on_destroy(self):
        self.worker.dispose()
        print("disposed")

with App("removed", size=(32, 32), headless=True) as app:
    app.scene.create("reader", Reader)
    app.run(frames=200)
    print("frames", app.time.frame_count, "errors", len(app.errors), type(app.errors[0].error).__name__)
"""


@pytest.mark.opencl
def test_the_loop_goes_on_without_the_component_whose_device_is_gone(run_child: RunChild) -> None:
    said = run_child(f"DIGITS = {str(DIGITS)!r}\n{LOOP}")
    # A schedule may be waiting when the device goes; it fails beside the one that the component makes.
    assert re.search("errors [12] DeviceError", said)
    assert "disposed" in said
