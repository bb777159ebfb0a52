"""At a new size, no engine call of a frame does more than one piece of the work, however deep the network is.
Another thread allocates memory, binds constants and records the steps.

Counted, not timed: each poll gets a budget that one piece uses up.
"""

from __future__ import annotations

import gc
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from engine import GLDevice, Model, Worker, advance_loads, background_planning
from engine.backends import table
from engine.backends.base import Backend
from engine.backends.gl.compute.memory import GLMemory
from engine.backends.gl.pixel.memory import TensorTexture
from engine.backends.gl.record import GLRecorder
from engine.backends.opencl.backend import OpenCLBackend
from engine.backends.opencl.execution.programs import CompiledProgram
from engine.runtime.loading import handle
from tests.graphs import model, node

pytestmark = pytest.mark.gl

LAYERS, WIDTH, RECURRENT = 24, 8, 4

MOST_PIECES = 6
"""The last call of a plan also runs it: pixels take a texture and a draw for each upload and readback."""

DEVICES = {"gl_compute": "gl_device", "gl_pixel": "gl_device", "opencl": "cl_device"}


def network() -> tuple[Model, Callable[[np.ndarray], np.ndarray]]:
    """A chain of layers, each of whose results is an output, and its last output by NumPy."""
    rng = np.random.default_rng(6)
    weights = {f"w{k}": rng.normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32) for k in range(LAYERS)}
    nodes = []
    for k in range(LAYERS):
        nodes.append(node("MatMul", [f"y{k - 1}" if k else "x", f"w{k}"], [f"m{k}"]))
        nodes.append(node("Tanh", [f"m{k}"], [f"y{k}"]))
    outputs: Any = {f"y{k}": ("float32", ["rows", WIDTH]) for k in range(LAYERS)}

    def expected(x: np.ndarray) -> np.ndarray:
        for w in weights.values():
            x = np.tanh(x @ w)
        return x

    return model(nodes, {"x": ("float32", ["rows", WIDTH])}, outputs, weights), expected


def recurrent() -> tuple[Model, Callable[[np.ndarray], np.ndarray]]:
    """Layers of a recurrent network over a sequence of any length, and what they compute by NumPy."""
    rng = np.random.default_rng(6)
    constants, nodes = {}, [node("Unsqueeze", ["x", "one"], ["h0"])]
    for k in range(RECURRENT):
        constants[f"w{k}"] = rng.normal(0, 0.3, (1, WIDTH, WIDTH)).astype(np.float32)
        constants[f"r{k}"] = rng.normal(0, 0.3, (1, WIDTH, WIDTH)).astype(np.float32)
        inputs, flat = [f"h{k}", f"w{k}", f"r{k}"], [f"z{k}", "two"]
        nodes += [node("RNN", inputs, [f"z{k}"], hidden_size=WIDTH), node("Squeeze", flat, [f"h{k + 1}"])]
    nodes.append(node("Squeeze", [f"h{RECURRENT}", "one"], ["y"]))
    axes = {"one": np.array([1]), "two": np.array([1])}
    row: Any = ("float32", ["steps", WIDTH])

    def expected(x: np.ndarray) -> np.ndarray:
        for k in range(RECURRENT):
            h, rows = np.zeros(WIDTH, np.float32), []
            for row in x:
                h = np.tanh(constants[f"w{k}"][0] @ row + constants[f"r{k}"][0] @ h)
                rows.append(h)
            x = np.stack(rows)
        return x

    return model(nodes, {"x": row}, {"y": row}, {**constants, **axes}), expected


class Pieces:
    """How many pieces each engine call did (allocations and recorded kernels), and who recorded templates.

    `elsewhere` counts those of other threads.
    """

    def __init__(self) -> None:
        self.count = self.elsewhere = 0
        self.calls: list[int] = []
        self.recorders: list[int] = []

    def call(self, function: Callable[[], Any]) -> Any:
        """Make a call and count its pieces."""
        self.count = 0
        result = function()
        self.calls.append(self.count)
        return result


@contextmanager
def counting(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pieces]:
    """Count pieces in a block, in which a poll has time for one."""
    pieces, this = Pieces(), threading.get_ident()

    def watch(of: type, name: str, then: Callable[[], None]) -> None:
        original = getattr(of, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            then()
            return original(*arguments, **named)

        patch.setattr(of, name, watched)

    def piece() -> None:
        is_here = threading.get_ident() == this
        pieces.count += is_here
        pieces.elsewhere += not is_here

    seconds = itertools.count(1.0)
    with monkeypatch.context() as patch:
        patch.setattr(handle, "perf_counter", lambda: next(seconds))
        for of, name in (
            *((GLMemory, "_allocate"), (TensorTexture, "__init__"), (OpenCLBackend, "_allocate")),
            *((GLRecorder, "use"), (CompiledProgram, "bare_kernel")),
        ):
            watch(of, name, piece)
        watch(type(backend), "template", lambda: pieces.recorders.append(threading.get_ident()))
        yield pieces


def answer(worker: Worker, x: np.ndarray, name: str, pieces: Pieces) -> np.ndarray:
    """An output, polled as a game's frames do it."""
    with background_planning():
        pieces.call(lambda: worker.schedule(x))
        tensor = pieces.call(lambda: worker.peek_output(name))
        pieces.call(tensor.readback_request)
        end = time.monotonic() + 60
        while not pieces.call(tensor.is_readback_request_done):
            assert time.monotonic() < end
        found: np.ndarray = tensor.download_to_array()
    return found


@pytest.mark.parametrize("channel", DEVICES)
def test_a_call_at_a_new_size_does_one_piece(
    channel: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    device: GLDevice = request.getfixturevalue(DEVICES[channel])
    of, expected = network()
    with Worker(of, table.named(channel).backend_type, device=device, allow_fallback=False) as worker:
        backend = worker._session.backends["native"]
        for rows in (5, 50, 49, 400):
            x = np.random.default_rng(rows).normal(size=(rows, WIDTH)).astype(np.float32)
            with counting(backend, monkeypatch) as pieces:
                found = answer(worker, x, f"y{LAYERS - 1}", pieces)
            np.testing.assert_allclose(found, expected(x), rtol=1e-4, atol=1e-5)
            # Only what moves the elements in and out may be new.
            assert sum(pieces.calls) <= MOST_PIECES
            if rows != 49:
                assert pieces.calls[0] == 0
                assert pieces.elsewhere >= LAYERS
            assert threading.get_ident() not in pieces.recorders
            assert len(pieces.recorders) == (rows == 5)


@pytest.mark.parametrize("channel", DEVICES)
def test_memory_is_there_before_sizes_that_grow_need_it(
    channel: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a cache does that grows with each token: `schedule` fills the plan in at once."""
    device: GLDevice = request.getfixturevalue(DEVICES[channel])
    of, _ = network()
    with Worker(of, table.named(channel).backend_type, device=device, allow_fallback=False) as worker:
        backend = worker._session.backends["native"]
        late = []
        for rows in range(40, 160, 3):
            with counting(backend, monkeypatch) as pieces, background_planning():
                worker.schedule(np.ones((rows, WIDTH), np.float32))
            assert pieces.count <= MOST_PIECES
            if worker.peek_output().shape_or_none is None:
                late.append(rows)
            with background_planning():
                while not worker.pump() or advance_loads(1.0):
                    time.sleep(0.0005)
        assert len(late) <= 2, late
        shared = [*backend.shared_temporaries(), *worker._session.recorder.shared_buffers.values()]
        memory = worker.memory()
        assert memory.device_temporaries + memory.device_tensors >= sum(m.held_bytes() for m in shared) > 0
        held = [weakref.ref(m.memory) for m in shared if m.memory is not None]
    del shared
    gc.collect()
    assert not any(found() for found in held)


@pytest.mark.parametrize("channel", DEVICES)
def test_repeated_steps_are_recorded_one_at_a_time(
    channel: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call records the steps of two recurrent layers."""
    device: GLDevice = request.getfixturevalue(DEVICES[channel])
    of, expected = recurrent()
    with Worker(of, table.named(channel).backend_type, device=device, allow_fallback=False) as worker:
        backend = worker._session.backends["native"]
        for steps in (12, 11, 40):
            x = np.random.default_rng(steps).normal(size=(steps, WIDTH)).astype(np.float32)
            with counting(backend, monkeypatch) as pieces:
                found = answer(worker, x, "y", pieces)
            np.testing.assert_allclose(found, expected(x), rtol=1e-4, atol=1e-5)
            assert pieces.calls[0] == 0
            assert sum(pieces.calls) > 2 * max(pieces.calls)
