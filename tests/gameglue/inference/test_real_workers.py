"""Requests to real networks on every backend: the right answer for each, whatever runs between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gameglue import (
    App,
    BackendType,
    InferenceQueue,
    InferenceRequest,
    InputError,
    InputScript,
    Model,
    ModelLoader,
    MonoBehaviour,
    Worker,
)
from gameglue.host.resources import Resources
from tests.graphs import model, node
from tests.peer import open_session

MODEL = "digits/digits.onnx"
CHANNELS = [
    "cpu",
    pytest.param("gl_compute", marks=pytest.mark.gl),
    pytest.param("gl_pixel", marks=pytest.mark.gl),
    pytest.param("opencl", marks=pytest.mark.opencl),
]
MakeWorker = Callable[[Model], Worker]


@pytest.fixture(params=CHANNELS)
def make_worker(request: pytest.FixtureRequest) -> Iterator[MakeWorker]:
    """`make_worker(model)`: a worker on the backend of this run."""
    kind, fixture = {
        "cpu": (BackendType.CPU, None),
        "gl_compute": (BackendType.GPU_COMPUTE, "gl_device"),
        "gl_pixel": (BackendType.GPU_PIXEL, "gl_device"),
        "opencl": (BackendType.GPU_COMPUTE, "cl_device"),
    }[request.param]
    device = request.getfixturevalue(fixture) if fixture else None
    made: list[Worker] = []

    def make(model: Model) -> Worker:
        made.append(Worker(model, kind, device=device))
        return made[-1]

    yield make
    for worker in made:
        worker.dispose()


@pytest.fixture(scope="module")
def digits() -> Model:
    return ModelLoader.load(Resources().find(MODEL))


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Twelve smooth images, (12, 1, 28, 28)."""
    rng = np.random.default_rng(4)
    coarse = rng.random((12, 1, 7, 7), np.float32)
    return coarse.repeat(4, 2).repeat(4, 3)


@pytest.fixture(scope="module")
def expected(images: np.ndarray) -> np.ndarray:
    """What onnxruntime answers to each."""
    session = open_session(Resources().read_bytes(MODEL))
    name = session.get_inputs()[0].name
    return np.concatenate([session.run(None, {name: image[None]})[0] for image in images])


def play(queue: InferenceQueue, budget_ms: float = 2.0, seconds: float = 120.0) -> int:
    """Frames of a bare loop until nothing is under way; how many there were."""
    end, frames = time.perf_counter() + seconds, 0
    while queue.pending:
        assert time.perf_counter() < end, f"still under way: {queue.stats}"
        queue.poll()
        queue.pump(budget_ms)
        frames += 1
    return frames


def test_each_request_has_its_own_answer(
    make_worker: MakeWorker, digits: Model, images: np.ndarray, expected: np.ndarray
) -> None:
    queue = InferenceQueue()
    order: list[Any] = []
    worker, other = make_worker(digits), make_worker(digits)
    requests = [
        queue.submit((worker, other)[i % 2], images[i : i + 1], payload=i, callback=order.append)
        for i in range(len(images))
    ]
    play(queue)
    for i, request in enumerate(requests):
        np.testing.assert_allclose(request.result()[0], expected[i], atol=1e-4)
    assert {request.payload for request in order} == set(range(len(images)))
    assert [r.payload for r in order if r.payload % 2] == [1, 3, 5, 7, 9, 11]


def test_slices_of_many_requests_take_turns(
    make_worker: MakeWorker, digits: Model, images: np.ndarray, expected: np.ndarray
) -> None:
    """With a budget so small that each inference takes several frames, and the others go on between."""
    queue = InferenceQueue()
    workers = [make_worker(digits) for _ in range(3)]
    requests = [queue.submit(worker, images[i : i + 1]) for i in range(4) for worker in workers]
    play(queue, budget_ms=0.05)
    for number, request in enumerate(requests):
        np.testing.assert_allclose(request.result()[0], expected[number // 3], atol=1e-4)


def test_the_latest_image_is_the_one_that_is_read(
    make_worker: MakeWorker, digits: Model, images: np.ndarray, expected: np.ndarray
) -> None:
    queue, worker = InferenceQueue(), make_worker(digits)
    requests: list[InferenceRequest] = []
    for i in range(len(images)):
        requests.append(queue.submit(worker, images[i : i + 1], latest_only=True, cancel_running=i % 3 == 0))
        queue.poll()
        queue.pump(0.1)
    play(queue)
    assert requests[-1].state == "done"
    for i, request in enumerate(requests):
        assert request.is_done()
        if request.state == "done":
            np.testing.assert_allclose(request.result()[0], expected[i], atol=1e-4)


def test_a_size_that_depends_on_data(make_worker: MakeWorker) -> None:
    """As many ones as the largest input says: the plan waits for data of its own."""
    network = model(
        [
            node("ReduceMax", ["x"], ["top"], keepdims=1),
            node("Cast", ["top"], ["size"], to=7),
            node("Expand", ["one", "size"], ["y"]),
        ],
        {"x": ("float32", [4])},
        {"y": ("float32", None)},
        {"one": np.ones(1, np.float32)},
    )
    queue, worker = InferenceQueue(), make_worker(network)
    requests = [queue.submit(worker, np.array([0, n, 1, 2], np.float32)) for n in (3, 5, 4)]
    play(queue)
    assert [request.result().tolist() for request in requests] == [[1.0] * 3, [1.0] * 5, [1.0] * 4]


def test_several_outputs_and_inputs_by_name(make_worker: MakeWorker) -> None:
    network = model(
        [node("Add", ["a", "b"], ["sum"]), node("Sub", ["a", "b"], ["difference"])],
        {"a": ("float32", [2]), "b": ("float32", [2])},
        {"sum": ("float32", [2]), "difference": ("float32", [2])},
    )
    queue, worker = InferenceQueue(), make_worker(network)
    a, b = np.array([3, 4], np.float32), np.array([1, 1], np.float32)
    both = queue.submit(worker, a=a, b=b)
    one = queue.submit(worker, {"a": b, "b": a}, outputs="difference")
    play(queue)
    assert both.result()["sum"].tolist() == [4.0, 5.0]
    assert both.result()["difference"].tolist() == [2.0, 3.0]
    assert one.result().tolist() == [-2.0, -3.0]


def test_a_wrong_shape_fails_its_request_alone(
    make_worker: MakeWorker, digits: Model, images: np.ndarray, expected: np.ndarray, caplog: Any
) -> None:
    queue, worker = InferenceQueue(), make_worker(digits)
    before = queue.submit(worker, images[:1])
    wrong = queue.submit(worker, np.zeros((1, 3, 5, 5), np.float32))
    after = queue.submit(worker, images[1:2])
    play(queue)
    with pytest.raises(InputError, match="needs"):
        wrong.result()
    assert caplog.text.count("Traceback") == 1
    for request, answer in zip((before, after), expected, strict=False):
        np.testing.assert_allclose(request.result()[0], answer, atol=1e-4)


def test_a_worker_disposed_under_way(make_worker: MakeWorker, digits: Model, images: np.ndarray) -> None:
    queue, worker, other = InferenceQueue(), make_worker(digits), make_worker(digits)
    requests = [queue.submit(worker, images[i : i + 1]) for i in range(4)]
    theirs = queue.submit(other, images[:1])
    queue.poll()
    queue.pump(0.2)
    worker.dispose()
    play(queue)
    assert {request.state for request in requests} <= {"failed", "done"}
    assert requests[-1].state == "failed"
    assert theirs.state == "done"


def test_scheduling_the_same_worker_by_hand_between(
    make_worker: MakeWorker, digits: Model, images: np.ndarray, expected: np.ndarray
) -> None:
    """The answer is right, or the request fails because its outputs were replaced: never another's answer."""
    queue, worker = InferenceQueue(), make_worker(digits)
    requests = [queue.submit(worker, images[i : i + 1]) for i in range(3)]
    by_hand = []
    for i in range(3, 6):
        queue.poll()
        queue.pump(0.1)
        worker.schedule(images[i : i + 1])
        by_hand.append(worker.peek_output())
        by_hand[-1].readback_request()
    play(queue)
    for i, request in enumerate(requests):
        if request.state == "done":
            np.testing.assert_allclose(request.result()[0], expected[i], atol=1e-4)
    for i, tensor in enumerate(by_hand, start=3):
        np.testing.assert_allclose(tensor.download_to_array()[0], expected[i], atol=1e-4)


class Player(MonoBehaviour):
    """Moves a window over a picture as the network's answers and the keys say."""

    worker: Worker
    dawdle: Any

    def awake(self) -> None:
        self.picture = np.random.default_rng(1).random((60, 60), np.float32)
        self.position = np.zeros(2)
        self.states: list[bytes] = []
        self.results: list[tuple[int, int, bytes]] = []

    def update(self) -> None:
        x, y = (round(value) % 32 for value in self.position)
        view = self.picture[y : y + 28, x : x + 28][None, None]
        self.app.inference.submit(self.worker, view, latest_only=True, callback=self.take)
        self.position[0] += self.input.get_axis("left", "right")
        self.states.append(self.position.tobytes())
        self.dawdle(self.time.frame_count)

    def take(self, request: InferenceRequest) -> None:
        array = request.result()
        self.position += np.array([array[0, 3] - array[0, 5], array[0].max()]) * 3.0
        self.results.append((request.frame, self.time.frame_count, array.tobytes()))


def test_a_real_replay_of_1000_frames(make_app: Callable[..., App], digits: Model) -> None:
    """Two runs, one of which dawdles at random: all states and results are the same to the bit."""
    runs = []
    for seed in (None, 5):
        rng = np.random.default_rng(seed)

        def dawdle(number: int, seed: int | None = seed, rng: np.random.Generator = rng) -> None:
            if seed is not None and number % 7 == 0:
                time.sleep(rng.random() * 2e-3)

        script = InputScript().press("right", at=0.5, hold=3.0).press("left", at=6.0, hold=1.0)
        app = make_app(deterministic=True, latency_frames=2, input_source=script, on_error="raise")
        with Worker(digits, BackendType.CPU) as worker:
            player = app.scene.create("player").add_component(Player, worker=worker, dawdle=dawdle)
            app.run(frames=1000)
            app.inference.cancel_all()
        app.dispose()
        runs.append(player)
    assert len(runs[0].results) == 998
    assert len(set(runs[0].states)) > 500
    assert {came - asked for asked, came, _ in runs[0].results} == {2}
    assert runs[0].states == runs[1].states
    assert runs[0].results == runs[1].results


@pytest.mark.gl
def test_where_the_processor_draws_work_is_enqueued_before_the_picture(
    make_drawing_app: Callable[..., App],
) -> None:
    app = make_drawing_app()
    names = app.frame.names
    assert (names.index("inference") < names.index("draw")) == app.graphics.is_software
