"""Several workers, long work in flight: order between streams, disposal under running jobs, threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from engine import BackendType, JobSystem, Model, ModelLoader, Worker
from tests.engine.conftest import MakeWorker
from tests.graphs import mlp, model, node

SIDE = 256


def long_chain(steps: int = 12) -> Model:
    """Rotates the rows of x by products, again and again, then adds `extra`: milliseconds on any backend."""
    names = ["x", *(f"p{i}" for i in range(steps))]
    products = [node("MatMul", ["turn", a], [b]) for a, b in pairwise(names)]
    turn = np.roll(np.eye(SIDE, dtype=np.float32), 1, axis=0)
    return model(
        [*products, node("Add", [names[-1], "extra"], ["y"])],
        {"x": ("float32", [SIDE, SIDE]), "extra": ("float32", [SIDE])},
        {"y": ("float32", [SIDE, SIDE])},
        {"turn": turn},
    )


def scaled() -> Model:
    return model([node("Mul", ["x", "by"], ["y"])], {"x": ("float32", [SIDE]), "by": ("float32", [1])},
                 {"y": ("float32", [SIDE])})  # fmt: skip


def row(value: float) -> np.ndarray:
    return np.full(SIDE, value, np.float32)


def wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, "it never came"


def picture(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(SIDE, SIDE)).astype(np.float32)


def test_a_tensor_is_read_before_its_worker_overwrites_it(channel: str, make_worker: MakeWorker) -> None:
    """The reader is busy, so its copy comes late; the maker is idle, and could run again at once."""
    maker, reader = make_worker(scaled(), channel), make_worker(long_chain(), channel)
    x = picture(0)
    for turn in range(5):
        maker.schedule(row(1), np.array([turn], np.float32))
        reader.schedule(x, row(100))  # keeps the reader's stream busy
        reader.schedule(x, maker.peek_output())
        result = reader.peek_output()
        result.readback_request()
        maker.schedule(row(1), np.array([-7], np.float32))
        np.testing.assert_allclose(result.download_to_array(), np.roll(x, 12, axis=0) + turn, atol=1e-4)
        np.testing.assert_array_equal(maker.peek_output().download_to_array(), row(-7))


def test_a_request_keeps_the_value_of_its_time(channel: str, make_worker: MakeWorker) -> None:
    """Also where it was seen to be done, or downloaded, before anything had to be copied."""
    worker = make_worker(long_chain(4), channel)
    looks = {
        "not looked at": lambda tensor: None,
        "polled": lambda tensor: wait_until(tensor.is_readback_request_done),
        "downloaded": lambda tensor: tensor.download_to_array().fill(-1),
    }
    for size, look in enumerate(looks.values()):
        x = picture(size)
        worker.schedule(x, row(size))
        output = worker.peek_output()
        output.readback_request()
        look(output)
        worker.schedule(picture(9), row(100))
        np.testing.assert_allclose(output.download_to_array(), np.roll(x, 4, axis=0) + size, atol=1e-4)
        first, again = output.download_to_array(), np.empty((SIDE, SIDE), np.float32)
        output.download_to_array(out=again)
        assert first is not output.download_to_array()
        np.testing.assert_array_equal(first, again)


def test_an_upload_comes_after_the_reads_before_it(channel: str, make_worker: MakeWorker) -> None:
    maker, reader = make_worker(scaled(), channel), make_worker(long_chain(), channel)
    x = picture(1)
    maker.schedule(row(1), np.array([3], np.float32))
    held = maker.copy_output()
    for _ in range(3):
        reader.schedule(x, row(100))
        reader.schedule(x, held)
        result = reader.peek_output()
        result.readback_request()
        held.upload(row(50))
        np.testing.assert_allclose(result.download_to_array(), np.roll(x, 12, axis=0) + 3, atol=1e-4)
        held.upload(row(3))
    held.dispose()


def test_disposal_under_running_work(channel: str, make_worker: MakeWorker) -> None:
    """What was asked for still arrives; what feeds another worker may be disposed of at once."""
    made = long_chain()
    x = picture(2)
    for _ in range(3):
        first, second = make_worker(made, channel), make_worker(made, channel)
        for value in (1, 2):
            first.schedule(x, row(value))
        kept = first.peek_output()
        kept.readback_request()
        copy = first.copy_output()
        first.schedule(x, row(9))
        second.schedule(copy, row(5))
        copy.dispose()
        first.dispose()
        np.testing.assert_allclose(kept.download_to_array(), np.roll(x, 12, axis=0) + 2, atol=1e-4)
        expected = np.roll(np.roll(x, 12, axis=0) + 2, 12, axis=0) + 5
        np.testing.assert_allclose(second.peek_output().download_to_array(), expected, atol=1e-4)
        second.dispose()


def test_workers_on_several_threads() -> None:
    """Each thread has workers of its own; they share the job threads and the compiled kernels."""
    source = mlp((16, 64, 64, 4))
    constants = ModelLoader.read(source).constants
    failures: list[BaseException] = []
    start = threading.Barrier(3)

    def forward(x: np.ndarray) -> np.ndarray:
        for i in range(3):
            x = x @ constants[f"w{i}"].T + constants[f"b{i}"]
            x = np.tanh(x) if i < 2 else x
        return x

    def play(seed: int) -> None:
        try:
            rng = np.random.default_rng(seed)
            start.wait(timeout=30)
            with (
                Worker(ModelLoader.load(source), BackendType.CPU) as worker,
                Worker(long_chain(3), BackendType.CPU) as heavy,
            ):
                for turn in range(40):
                    x = rng.normal(size=(1 + turn % 5, 16)).astype(np.float32)
                    picture = rng.normal(size=(SIDE, SIDE)).astype(np.float32)
                    if turn % 8 == 0:
                        heavy.schedule(picture, row(seed))
                    worker.schedule(x)
                    actual = worker.peek_output().download_to_array()
                    np.testing.assert_allclose(actual, forward(x), atol=1e-4)
                    if turn % 8 == 0:
                        wide = heavy.peek_output().download_to_array()
                        np.testing.assert_allclose(wide, np.roll(picture, 3, axis=0) + seed, atol=1e-4)
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=play, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_streams_of_different_job_systems_exchange_tensors() -> None:
    """They cannot wait for each other's jobs, so the elements go through the caller's memory."""
    with (
        JobSystem(1) as one,
        JobSystem(1) as other,
        Worker(long_chain(), BackendType.CPU, jobs=one) as maker,
        Worker(long_chain(), BackendType.CPU, jobs=other) as reader,
    ):
        x = picture(4)
        for value in (1, 2, 3):
            maker.schedule(x, row(value))
            reader.schedule(maker.peek_output(), row(0))
            result = reader.peek_output()
            result.readback_request()
            maker.schedule(x, row(99))
            expected = np.roll(np.roll(x, 12, axis=0) + value, 12, axis=0)
            np.testing.assert_allclose(result.download_to_array(), expected, atol=1e-4)
