"""Sizes never seen on GPUs: numbers by a native call, and the answers, errors and plans of the usual way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine import Model, Worker, background_planning
from engine.backends.gl.compute.memory import GLComputeBuffer, buffer_size
from engine.backends.gpu import template
from engine.backends.gpu.size_functions import divide_by, is_at_most, is_one_dispatch, texel_layout
from engine.base.errors import InputError, StaleTensorError
from engine.device import native
from engine.kernels.size_function import SizeLibrary
from engine.runtime.fast_path import FastPath
from engine.runtime.symbolic_fast_path import SymbolicFastPath
from tests.engine.conftest import MakeWorker
from tests.graphs import model, node

WORDS, WIDTH = 40, 24


def network() -> tuple[Model, Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """Rows of a table, scaled, through two layers; and what they come to by NumPy."""
    rng = np.random.default_rng(3)
    table, w = rng.normal(size=(WORDS, WIDTH)), rng.normal(0, 0.3, (WIDTH, WIDTH))
    constants = {"table": table.astype(np.float32), "w": w.astype(np.float32)}
    nodes = [
        node("Gather", ["table", "words"], ["rows"]),
        node("Mul", ["rows", "scale"], ["scaled"]),
        node("MatMul", ["scaled", "w"], ["mixed"]),
        node("Softmax", ["mixed"], ["y"], axis=-2),
    ]
    inputs: dict[str, tuple[str, list[object] | None]] = {
        "words": ("int64", ["batch", "length"]),
        "scale": ("float32", ["batch", "length", 1]),
    }

    def expected(words: np.ndarray, scale: np.ndarray) -> np.ndarray:
        mixed = constants["table"][words] * scale @ constants["w"]
        powers = np.exp(mixed - mixed.max(axis=-2, keepdims=True))
        found: np.ndarray = powers / powers.sum(axis=-2, keepdims=True)
        return found

    return model(nodes, inputs, {"y": ("float32", None)}, constants), expected  # type: ignore[arg-type]


def feeds(batch: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(batch * 1000 + length)
    words = rng.integers(0, WORDS, (batch, length))
    return words, rng.normal(size=(batch, length, 1)).astype(np.float32)


@pytest.fixture(params=["opencl", "gl_compute", "gl_pixel"])
def worker(request: pytest.FixtureRequest, make_worker: MakeWorker) -> Worker:
    native.process_store().load(template.sources_of_numbers())
    made = make_worker(network()[0], request.param)
    made.schedule(*feeds(40, 60))  # memory for all of these sizes
    made.schedule(*feeds(30, 50))
    return made


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each schedule that asked for it, whether the fast path took it."""
    calls: list[bool] = []
    original = SymbolicFastPath.schedule

    def schedule(self: SymbolicFastPath, *inputs: object) -> object:
        found = original(self, *inputs)  # type: ignore[arg-type]
        calls.append(found is not None)
        return found

    monkeypatch.setattr(SymbolicFastPath, "schedule", schedule)
    return calls


SIZES = [(3, 7), (2, 2), (16, 33), (2, 50), (3, 7), (40, 59), (5, 2), (3, 7)]


@pytest.mark.parametrize("in_frames", [False, True])
def test_answers_at_sizes_never_seen(worker: Worker, taken: list[bool], in_frames: bool) -> None:
    expected = network()[1]
    for sizes in SIZES:
        given = feeds(*sizes)
        if in_frames:
            with background_planning():
                worker.schedule(*given)
        else:
            worker.schedule(*given)
        found = worker.peek_output().download_to_array()
        np.testing.assert_allclose(found, expected(*given), rtol=2e-4, atol=1e-5)
    if worker._native.storage == "texture":
        assert any(taken)  # at other sizes textures may be too narrow, though others are as large
    else:
        assert taken == [True] * 7  # and the last has a plan that is there
        assert len(worker._session.cache.plans) <= 5


@pytest.mark.parametrize("worker", ["gl_compute"], indirect=True)
def test_plans_wait_for_functions_of_sizes_that_are_compiled_later(
    worker: Worker, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = network()[1]
    worker._session.symbolic_plans.first._recorded.__dict__.pop("native")  # type: ignore[union-attr]
    worker._prepare_symbolic_path()
    with monkeypatch.context() as patched:
        patched.setattr(SizeLibrary, "address", lambda self: None)
        worker.schedule(*feeds(3, 4))
    for length in (5, 6):
        worker.schedule(*feeds(3, length))
        found = worker.peek_output().download_to_array()
        np.testing.assert_allclose(found, expected(*feeds(3, length)), rtol=2e-4, atol=1e-5)
    assert taken == [False, True, True]


def test_larger_sizes_grow_the_memory(worker: Worker, taken: list[bool]) -> None:
    expected = network()[1]
    for sizes in ((60, 60), (59, 60), (90, 80), (2, 2)):
        given = feeds(*sizes)
        worker.schedule(*given)
        found = worker.peek_output().download_to_array()
        np.testing.assert_allclose(found, expected(*given), rtol=2e-4, atol=1e-5)
    assert taken[0] is False
    assert taken[-1] is True


def test_outputs_of_other_sizes(worker: Worker) -> None:
    expected = network()[1]
    worker.schedule(*feeds(5, 6))
    stale, later = worker.peek_output(), worker.peek_output()
    later.readback_request()
    for length in (8, 9, 10):
        worker.schedule(*feeds(5, length))
        with pytest.raises(StaleTensorError):
            stale.download_to_array()
    np.testing.assert_allclose(later.download_to_array(), expected(*feeds(5, 6)), rtol=2e-4, atol=1e-5)


def test_integers_beyond_32_bits_are_refused_by_name(worker: Worker) -> None:
    expected = network()[1]
    for sizes in ((4, 11), (4, 11), (7, 3)):
        words, scale = feeds(*sizes)
        worker.schedule(words, scale)
        far = words.copy()
        far[-1, -1] = 1 << 40
        with pytest.raises(InputError, match=r"input 'words' holds 1099511627776"):
            worker.schedule(far, scale)
        np.testing.assert_allclose(
            worker.peek_output().download_to_array(), expected(words, scale), rtol=2e-4, atol=1e-5
        )


def test_functions_of_sizes() -> None:
    assert [is_at_most(4, most) for most in (3, 4, 5)] == [(0,), (1,), (1,)]
    assert [is_one_dispatch(count, 8, 8, 9) for count in (0, 1, 8, 9)] == [(0,), (1,), (1,), (0,)]
    assert [is_one_dispatch(1, 8, widest, 9) for widest in (9, 10)] == [(1,), (0,)]
    native.process_store().load([divide_by.library.source])
    run = divide_by.library.run()
    assert run is not None
    for function, calls in (
        (divide_by, [(size,) for size in (1, 2, 3, 5, 63, 64, 65, 1000, 1 << 30, (1 << 31) - 1)]),
        (
            texel_layout,
            [(n, limit, step) for n in (1, 511, 8192, 9000) for limit in (64, 16384) for step in (1, 4)],
        ),
        (is_one_dispatch, [(9, 9, 9, 9), (0, 1, 1, 1)]),
    ):
        for given in calls:
            expected = function(*given)
            block = np.array([*given, *expected], np.int64)
            block[len(given) :] = -7
            call = np.array([function.number, 0], np.int64)
            run(block.ctypes.data, call.ctypes.data, 1)
            assert tuple(block[len(given) :].tolist()) == expected


@pytest.mark.parametrize("worker", ["opencl", "gl_compute"], indirect=True)
def test_sizes_that_come_once_share_a_program(worker: Worker) -> None:
    expected = network()[1]
    worker.schedule(*feeds(9, 9))
    path = worker._latest
    assert isinstance(path, FastPath)
    assert path.filled is not None
    program, outer, copies = path.program, path.filled.outer, []
    for sizes in ((5, 6), (16, 33), (2, 2)):
        worker.schedule(*feeds(*sizes))
        assert worker._latest is path
        assert path.program is program
        count = sizes[0] * sizes[1]
        assert sorted(buffer.elements for buffer in outer) == [count, count, count * WIDTH]
        copies.append((feeds(*sizes), worker.copy_output()))
    for given, copy in copies:
        np.testing.assert_allclose(copy.download_to_array(), expected(*given), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("worker", ["gl_compute"], indirect=True)
def test_buffer_textures_over_outputs_are_deleted_when_sizes_change(worker: Worker) -> None:
    worker.schedule(*feeds(9, 9))
    path = worker._latest
    assert isinstance(path, FastPath)
    assert path.filled is not None
    buffer = path.filled.outer[0]
    assert isinstance(buffer, GLComputeBuffer)
    for length in (3, 4, 5):
        with worker._native.entered():
            assert buffer.readable[1] > 0
        assert buffer.memory.has_textures
        worker.schedule(*feeds(9, length))
        assert buffer.memory.nbytes == buffer_size(9 * length * WIDTH, buffer.dtype)
        assert not buffer.memory.has_textures
