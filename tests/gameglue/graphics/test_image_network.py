"""A network from picture to picture: what it makes, compared with NumPy, and what no frame pays for it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gameglue import (
    App,
    BackendType,
    DisposedError,
    ImageNetwork,
    InputError,
    MonoBehaviour,
    Texture,
    TextureConverter,
    TextureTransform,
    Worker,
)
from tests.graphs import model, node

MakeApp = Callable[..., App]
MakeWorker = Callable[..., Worker]
SIZE, DOUBLE = (24, 16), (48, 32)
RNG = np.random.default_rng(3)
MIX = RNG.uniform(0.1, 0.3, (12, 3)).astype(np.float32)
PIXELS = RNG.integers(0, 256, (SIZE[1], SIZE[0], 3), np.uint8)
ANY = (1, 3, "rows", "columns")
LARGE = (1, 3, "rows2", "columns2")
CHANNELS = [
    "cpu",
    pytest.param("gl_compute", marks=pytest.mark.gl),
    pytest.param("gl_pixel", marks=pytest.mark.gl),
    pytest.param("opencl", marks=pytest.mark.opencl),
]


def doubler(mix: np.ndarray = MIX, shape: tuple[Any, ...] = ANY, large: tuple[Any, ...] = LARGE) -> Any:
    """Each pixel becomes two by two, each a mixture of its channels."""
    nodes = [
        node("Conv", ["x", "w"], ["mixed"]),
        node("DepthToSpace", ["mixed"], ["y"], blocksize=2, mode="DCR"),
    ]
    return model(nodes, {"x": ("float32", shape)}, {"y": ("float32", large)}, {"w": mix[:, :, None, None]})


def doubled(pixels: np.ndarray, mix: np.ndarray = MIX) -> np.ndarray:
    """The same with NumPy, rounded as a texture of 8 bits rounds."""
    rows, columns, _ = pixels.shape
    mixed = (pixels / 255.0) @ mix.T.astype(float)
    large = mixed.reshape(rows, columns, 2, 2, 3).transpose(0, 2, 1, 3, 4).reshape(2 * rows, 2 * columns, 3)
    return np.floor(np.clip(large, 0, 1) * 255 + 0.5)


class Shown(MonoBehaviour):
    """Gives a network the same texture in every frame."""

    network: Any
    source: Any

    def on_gui(self) -> None:
        self.network.update(self.source)


@pytest.fixture
def make_worker(request: pytest.FixtureRequest) -> Iterator[MakeWorker]:
    """`make_worker(channel, model)`: a worker on the backend of a channel."""
    made: list[Worker] = []

    def make(channel: str, what: Any = None) -> Worker:
        kind, fixture = {
            "cpu": (BackendType.CPU, None),
            "gl_compute": (BackendType.GPU_COMPUTE, "gl_device"),
            "gl_pixel": (BackendType.GPU_PIXEL, "gl_device"),
            "opencl": (BackendType.GPU_COMPUTE, "cl_device"),
        }[channel]
        device = request.getfixturevalue(fixture) if fixture else None
        made.append(Worker(what or doubler(), kind, device=device))
        return made[-1]

    yield make
    for worker in made:
        worker.dispose()


def wait_for(app: App, network: ImageNetwork, count: int) -> None:
    # Long enough for renderers that draw beside the loop, which runs ahead of them here.
    end = time.monotonic() + 60.0
    while time.monotonic() < end:
        if network.count >= count:
            return
        app.step()
    pytest.fail("the network's picture never came")


def play(app: App, network: ImageNetwork, source: Texture, frames: int) -> None:
    for _ in range(frames):
        network.update(source)
        app.step()


def show(app: App, network: ImageNetwork, pixels: np.ndarray = PIXELS) -> Texture:
    source = app.graphics.texture(pixels)
    app.scene.create("shown").add_component(Shown, network=network, source=source)
    return source


def read(network: ImageNetwork) -> np.ndarray:
    assert network.picture is not None
    return network.picture.read().astype(float)


@pytest.mark.gl
@pytest.mark.parametrize("channel", CHANNELS)
def test_the_picture_is_the_networks_and_nothing_waits(
    channel: str, make_drawing_app: MakeApp, make_worker: MakeWorker, gl_device: Any
) -> None:
    app = make_drawing_app()
    network = ImageNetwork(app, make_worker(channel), SIZE, DOUBLE)
    show(app, network)
    assert network.picture is None
    assert (network.count, network.latency_ms, network.images_per_second) == (0, 0.0, 0.0)
    app.step()
    gl_device.counters.reset()
    before = TextureConverter.counters.staged_down
    # The plan is made beside the first frames, and its weights are uploaded.
    wait_for(app, network, 1)
    counters, blocking = gl_device.counters, gl_device.counters.blocking
    assert not blocking
    if channel.startswith("gl"):
        assert (counters.readbacks, counters.bytes_down) == (0, 0)
        counters.reset()
    wait_for(app, network, 3)
    assert not blocking
    if channel.startswith("gl"):
        assert network.copies_through_host == 0
        assert TextureConverter.counters.staged_down == before
        assert (counters.readbacks, counters.uploads, counters.bytes_down, counters.bytes_up) == (0, 0, 0, 0)
    else:
        # Down and up for each picture, and perhaps down for the one that is on its way.
        assert network.copies_through_host in (6, 7, 8)
        assert counters.readbacks > 0
    picture = read(network)
    assert picture.shape == (DOUBLE[1], DOUBLE[0], 3)
    difference = np.abs(picture - doubled(PIXELS))
    # A step of 8 bits where two kinds of arithmetic compute the middle between two to either side.
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.02
    assert network.latency_ms > 0.0
    assert network.latency_frames >= 1.0
    assert network.images_per_second > 0.0
    network.release()


@pytest.mark.gl
@pytest.mark.parametrize("channel", ["gl_compute", "gl_pixel"])
def test_where_a_graphics_card_draws_it_is_of_the_same_frame(
    channel: str, make_drawing_app: MakeApp, make_worker: MakeWorker
) -> None:
    app = make_drawing_app()
    app.graphics.device.is_software = False
    network = ImageNetwork(app, make_worker(channel), SIZE, DOUBLE, budget_ms=1000.0)
    assert network.budget_ms == 1000.0
    source = app.graphics.texture(PIXELS)
    network.update(source)
    assert (network.count, network.latency_frames) == (1, 0)
    first = network.picture
    source.write(PIXELS[::-1])
    network.update(source)
    assert network.count == 2
    assert network.picture is not first
    assert np.abs(read(network) - doubled(PIXELS[::-1])).max() <= 1
    network.release()


@pytest.mark.gl
@pytest.mark.parametrize("channel", CHANNELS)
def test_a_deterministic_app_has_each_picture_in_the_same_frame(
    channel: str, make_drawing_app: MakeApp, make_worker: MakeWorker
) -> None:
    app = make_drawing_app(deterministic=True, latency_frames=3)
    network = ImageNetwork(app, make_worker(channel), SIZE, DOUBLE)
    show(app, network)
    counts = []
    for _ in range(11):
        app.step()
        counts.append(network.count)
    # The first is given in the first frame; each next one in the frame that brings the previous one.
    assert counts == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3]
    assert network.latency_frames == 3.0
    assert np.abs(read(network) - doubled(PIXELS)).max() <= 1
    network.release()


@pytest.mark.gl
@pytest.mark.parametrize("channel", ["cpu", "gl_pixel"])
def test_worker_and_size_change_while_a_picture_is_on_its_way(
    channel: str, make_drawing_app: MakeApp, make_worker: MakeWorker
) -> None:
    app = make_drawing_app()
    other = MIX[:, ::-1].copy()
    network = ImageNetwork(app, make_worker(channel), SIZE, DOUBLE)
    show(app, network)
    app.step()
    assert network.is_busy
    network.worker = make_worker(channel, doubler(other))
    network.resize((12, 8), (24, 16))
    wait_for(app, network, 1)
    assert np.abs(read(network) - doubled(PIXELS)).max() <= 1
    wait_for(app, network, 2)
    assert network.picture is not None
    assert network.picture.size == (24, 16)
    small = PIXELS.reshape(8, 2, 12, 2, 3).mean(axis=(1, 3))
    assert np.abs(read(network) - doubled(small, other)).max() <= 1
    network.release()


@pytest.mark.gl
def test_two_networks_do_not_wait_for_each_other(make_drawing_app: MakeApp, make_worker: MakeWorker) -> None:
    app = make_drawing_app()
    networks = [ImageNetwork(app, make_worker("cpu"), SIZE, DOUBLE) for _ in range(2)]
    for network, pixels in zip(networks, (PIXELS, PIXELS[:, ::-1]), strict=True):
        show(app, network, pixels)
    for network in networks:
        wait_for(app, network, 3)
    assert np.abs(read(networks[0]) - doubled(PIXELS)).max() <= 1
    assert np.abs(read(networks[1]) - doubled(PIXELS[:, ::-1])).max() <= 1
    for network in networks:
        network.release()


@pytest.mark.gl
@pytest.mark.parametrize("channel", ["cpu", "gl_compute", "gl_pixel"])
@pytest.mark.parametrize("pictures", [0, 2])
def test_release_frees_everything(
    channel: str, pictures: int, make_drawing_app: MakeApp, make_worker: MakeWorker
) -> None:
    app = make_drawing_app()
    worker = make_worker(channel)
    source = app.graphics.texture(PIXELS)
    app.step()
    objects, routines = app.graphics.device.live_objects, len(app._coroutines)
    network = ImageNetwork(app, worker, SIZE, DOUBLE)
    network.update(source)
    assert network.is_busy
    while network.count < pictures:
        app.step()
        network.update(source)
    assert app.graphics.device.live_objects > objects
    network.release()
    network.release()
    app.step()
    network.update(source)
    assert app.graphics.device.live_objects == objects
    assert len(app._coroutines) == routines
    assert (network.picture, network.is_busy) == (None, False)
    # The worker is its owner's, and answers.
    worker.schedule(np.zeros((1, 3, 2, 2), np.float32))
    assert worker.peek_output().download_to_array().shape == (1, 3, 4, 4)


@pytest.mark.gl
def test_one_that_nobody_holds_is_driven_no_more(make_drawing_app: MakeApp, make_worker: MakeWorker) -> None:
    app = make_drawing_app()
    routines = len(app._coroutines)
    network = ImageNetwork(app, make_worker("cpu"), SIZE, DOUBLE)
    assert len(app._coroutines) == routines + 1
    del network
    gc.collect()
    app.step()
    assert len(app._coroutines) == routines


@pytest.mark.gl
@pytest.mark.parametrize("channel", ["cpu", "gl_pixel"])
def test_what_ends_a_picture_is_raised_where_it_is_given(
    channel: str, make_drawing_app: MakeApp, make_worker: MakeWorker
) -> None:
    app = make_drawing_app()
    source = app.graphics.texture(PIXELS)
    network = ImageNetwork(app, make_worker(channel), SIZE, SIZE)
    with pytest.raises(InputError, match=r"\(1, 3, 32, 48\), an image of 48 x 32; output_size says 24 x 16"):
        play(app, network, source, 3000)
    network.resize(SIZE, DOUBLE)
    while network.count < 1:
        play(app, network, source, 1)
    network.worker.dispose()
    with pytest.raises(DisposedError):
        play(app, network, source, 100)
    network.release()


FLAT = {"x": ("float32", (1, 10))}
PLAIN = {"x": ("float32", ANY)}
WRONG: dict[str, tuple[Any, Any, str]] = {
    "no picture in": (FLAT, FLAT, r"input 'x' has the shape \(1, 10\); it has to be one image"),
    "a batch": ({"x": ("float32", (4, 3, 16, 24))}, PLAIN, r"\(4, 3, 16, 24\); it has to be one image"),
    "eight channels": ({"x": ("float32", (1, 8, "h", "w"))}, PLAIN, r"\(1, 8, h, w\).* 1 to 4 channels"),
    "another size": ({"x": ("float32", (1, 3, 9, 24))}, PLAIN, r"24 x 9 .*input_size says 24 x 16"),
    "integers": ({"x": ("int64", ANY)}, PLAIN, r"'x' \(1, 3, rows, columns\) has dtype int64"),
    "two inputs": ({**PLAIN, "z": ("float32", ANY)}, PLAIN, r"has 2: 'x' .*, 'z' \(1, 3, rows, columns\)"),
    "a number out": (PLAIN, {"y": ("float32", (10,))}, r"output 'y' has the shape \(10\)"),
    "another size out": (PLAIN, {"y": ("float32", (1, 3, 9, 24))}, r"output 'y' .*output_size says 24 x 16"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_network_of_something_else_is_refused(case: str, app: App) -> None:
    inputs, outputs, message = WRONG[case]
    named = {"y": next(iter(outputs.values()))}
    worker = Worker(model([node("Identity", ["x"], ["y"])], inputs, named), BackendType.CPU)
    with pytest.raises(InputError, match=message):
        ImageNetwork(app, worker, SIZE)
    worker.dispose()


def test_sizes_and_changes_are_checked_and_leave_all_as_it_was(app: App, make_worker: MakeWorker) -> None:
    fixed = make_worker("cpu", doubler(shape=(1, 3, 16, 24), large=(1, 3, 32, 48)))
    with pytest.raises(InputError, match=r"not \(0, 16\)"):
        ImageNetwork(app, fixed, (0, 16))
    network = ImageNetwork(app, fixed, SIZE, DOUBLE)
    with pytest.raises(InputError, match="input_size says 12 x 8"):
        network.resize((12, 8))
    other = make_worker("cpu", doubler(shape=(1, 3, 8, 12)))
    with pytest.raises(InputError, match="input_size says 24 x 16"):
        network.worker = other
    assert (network.input_size, network.output_size) == (SIZE, DOUBLE)
    assert network.worker is fixed
    network.release()


def test_rows_columns_channels_is_a_matter_of_the_transform(app: App) -> None:
    shape = (1, 16, 24, 3)
    last = model([node("Identity", ["x"], ["y"])], {"x": ("float32", shape)}, {"y": ("float32", shape)})
    how = TextureTransform(layout="NHWC")
    with Worker(last, BackendType.CPU) as worker:
        with pytest.raises(InputError, match="1, channels, rows, columns"):
            ImageNetwork(app, worker, SIZE)
        ImageNetwork(app, worker, SIZE, transform=how, transform_out=how).release()


def test_without_opengl_no_picture_comes(app: App, make_worker: MakeWorker) -> None:
    network = ImageNetwork(app, make_worker("cpu"), SIZE, DOUBLE)
    show(app, network)
    app.run(frames=3)
    assert (network.picture, network.count, network.is_busy) == (None, 0, False)
    network.release()
