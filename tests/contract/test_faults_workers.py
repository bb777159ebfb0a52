"""Workers that are disposed with work on its way, or used from another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine import DisposedError, ModelLoader, Tensor, ThreadError, Worker
from gameglue import InferenceQueue
from tests.contract.faults import CHANNELS, DIGITS, IMAGE, open_worker
from tests.graphs import model, node

pytestmark = pytest.mark.gl

Request = pytest.FixtureRequest


@pytest.mark.parametrize("channel", CHANNELS)
def test_readbacks_outlive_a_worker_that_is_disposed_with_work_pending(
    request: Request, channel: str
) -> None:
    worker = open_worker(request, ModelLoader.load(DIGITS), channel)
    worker.schedule(IMAGE)
    expected = worker.peek_output().download_to_array()
    worker.schedule(IMAGE)
    asked, copy = worker.peek_output(), worker.copy_output()
    asked.readback_request()
    not_asked = worker.peek_output()
    worker.dispose()
    worker.dispose()
    assert np.array_equal(asked.download_to_array(), expected)
    assert np.array_equal(copy.download_to_array(), expected)
    copy.dispose()
    for use in (not_asked.download_to_array, worker.peek_output, lambda: worker.schedule(IMAGE)):
        with pytest.raises(DisposedError, match="was disposed"):
            use()


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_worker_may_be_disposed_in_a_callback_of_its_own(request: Request, channel: str) -> None:
    worker = open_worker(request, ModelLoader.load(DIGITS), channel)
    queue = InferenceQueue()
    seen: list[Any] = []

    def take(result: object) -> None:
        seen.append(result)
        worker.dispose()

    for _ in range(3):
        worker.schedule(IMAGE)
        queue.result(worker.peek_output(), take)
    while queue.pending:
        queue.poll()
        queue.pump(1.0)
    assert len(seen) == 3
    assert worker.is_disposed
    assert all(r.result().shape == (1, 10) for r in seen)


@pytest.mark.parametrize("channel", CHANNELS)
def test_what_waits_for_data_of_its_own_ends_in_one_error(request: Request, channel: str) -> None:
    """The plan stops to ask how large its output is; the worker is disposed meanwhile."""
    nodes = [
        node("NonZero", ["x"], ["where"]),
        node("Shape", ["where"], ["s"]),
        node("Expand", ["one", "s"], ["y"]),
    ]
    sizes = model(nodes, {"x": ("float32", ["n"])}, {"y": ("float32", None)}, {"one": np.ones(1, np.float32)})
    worker = open_worker(request, sizes, channel)
    queue = InferenceQueue()
    seen: list[Any] = []
    worker.schedule(np.ones(5, np.float32))
    queue.result(worker.peek_output(), seen.append)
    worker.dispose()
    while queue.pending:
        queue.poll()
    try:
        assert seen[0].result().shape == (1, 5)
    except DisposedError as error:
        assert "disposed before this schedule" in str(error)  # noqa: PT017 - either is right, by how fast it is


def elsewhere(use: Callable[[], object]) -> Exception | None:
    """What a call raises on another thread."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            use()
        except Exception as error:  # noqa: BLE001 - it is looked at
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    return raised[0] if raised else None


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("channel", CHANNELS)
def test_a_worker_used_from_another_thread_says_so(request: Request, channel: str, is_warm: bool) -> None:
    worker = open_worker(request, ModelLoader.load(DIGITS), channel)
    for _ in range(3 if is_warm else 1):
        worker.schedule(IMAGE)
        expected = worker.peek_output().download_to_array()
    worker.schedule(IMAGE)
    tensor: Tensor = worker.peek_output()
    uses: list[Callable[[], object]] = [
        lambda: worker.schedule(IMAGE),
        lambda: worker.peek_output().readback_request(),
        worker.copy_output,
        worker.pump,
        tensor.readback_request,
        tensor.download_to_array,
        lambda: worker.set_input("image", IMAGE),
        worker.plan_report,
        worker.dispose,
    ]
    for use in uses:
        error = elsewhere(use)
        assert isinstance(error, ThreadError), (use, error)
        assert "belongs to the thread" in str(error)
    assert not worker.is_disposed
    assert np.array_equal(tensor.download_to_array(), expected)
    worker.schedule(IMAGE)
    assert np.array_equal(worker.peek_output().download_to_array(), expected)


@pytest.mark.parametrize("channel", ["cpu", "opencl"])
def test_a_worker_whose_thread_has_ended_belongs_to_who_uses_it_next(request: Request, channel: str) -> None:
    made: list[Worker] = []
    device = request.getfixturevalue("cl_device") if channel == "opencl" else None

    def make() -> None:
        made.append(open_worker(request, ModelLoader.load(DIGITS), channel, device=device))
        made[0].schedule(IMAGE)

    assert elsewhere(make) is None
    made[0].schedule(IMAGE)
    assert made[0].peek_output().download_to_array().shape == (1, 10)
    assert isinstance(elsewhere(lambda: made[0].schedule(IMAGE)), ThreadError)
