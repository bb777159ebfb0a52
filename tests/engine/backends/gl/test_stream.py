"""Both OpenGL backends as one ordered stream: snapshots, refusals, and nothing that waits."""

from __future__ import annotations

import time

import numpy as np
import pytest

from engine.backends.gl.backend import GLBackend
from engine.backends.gl.commands import Replayer
from engine.base.errors import DisposedError, InputError
from engine.compiler.plan import Compute
from engine.device.gl.counting import CountingLoader
from engine.device.gl.device import GLDevice
from engine.kernels.expr import cast, index, lit, reduce, unary
from engine.kernels.value import Value
from tests.engine.backends.gl.conftest import WAYS, made
from tests.engine.backends.steps import F32, Bound, bound_chain, chain_expected, chain_plan, step, value

pytestmark = pytest.mark.gl


@pytest.mark.parametrize("n", [1, 3, 1000, 8192 * 4, 100_003])
def test_three_runs_in_flight_keep_their_snapshots(backend: GLBackend, n: int) -> None:
    x, bound = bound_chain(backend, n, 5)
    readbacks = []
    for k in range(3):
        given = x * (k + 1)
        backend.upload(bound.buffers["x"], given)
        given[:] = -1
        bound.run()
        readbacks.append(backend.readback(bound.buffers["y"]))
    for k, readback in reversed(list(enumerate(readbacks))):
        readback.wait()
        assert readback.done()
        np.testing.assert_array_equal(readback.array(), chain_expected(x * (k + 1), 5))
        assert readback.array().dtype == np.float32


@pytest.mark.parametrize("way", WAYS)
def test_nothing_waits(counted_device: tuple[GLDevice, CountingLoader], way: str) -> None:
    device, loader = counted_device
    backend = made(device, way)
    x, bound = bound_chain(backend, 1000, 5)
    target = backend.create(1000, F32)
    assert backend.replayer.wait()
    bound.run()
    backend.synchronize()
    device.counters.reset()
    with loader.watching() as blocking:
        # A new input shape: its kernels are there, and its plan is recorded between two frames.
        longer, again = bound_chain(backend, 1700, 5)
        again.run()
        pending = []
        for k in range(4):
            backend.upload(bound.buffers["x"], x + k)
            bound.run()
            backend.copy(bound.buffers["y"], target)
            pending.append(backend.readback(target))
        backend.flush()
        finished: list[np.ndarray] = []
        deadline = time.monotonic() + 30
        while pending and time.monotonic() < deadline:
            if pending[0].done():
                finished.append(pending.pop(0).array())
    assert not blocking, blocking
    assert not device.counters.blocking
    assert len(finished) == 4
    for k, result in enumerate(finished):
        np.testing.assert_array_equal(result, chain_expected(x + k, 5))
    np.testing.assert_array_equal(again.result(), chain_expected(longer, 5))
    with loader.watching() as blocking:
        backend.synchronize()
    # The counter sees what it should: this one does wait.
    assert blocking["glClientWaitSync"]
    backend.dispose()


def test_the_native_replay_and_the_fallback_issue_the_same_calls(backend: GLBackend) -> None:
    x, bound = bound_chain(backend, 100, 3)
    native, fallback = Replayer(), Replayer()
    assert native.wait()
    fallback._native._pending = fallback._native._function = None
    assert not fallback.load()
    for replayer in (native, fallback):
        backend.upload(bound.buffers["y"], np.zeros(100, np.float32))
        with backend.device.current():
            replayer.run(bound.program.commands)
        np.testing.assert_array_equal(bound.result(), chain_expected(x, 3))


def test_empty_tensors(backend: GLBackend) -> None:
    x = np.zeros(0, np.float32)
    source = value("x", x)
    total = reduce("sum", source.dim(0), lambda k: source[k]) + 3.0
    computes = [step("none", source, source[index(0)] * 2.0), step("y", source, total, size=2)]
    outputs = {c.output.name: c.output for c in computes}
    bound = Bound(backend, chain_plan(computes, ("y", "none")), {"x": x}, outputs)
    bound.run()
    assert bound.result("none").shape == (0,)
    np.testing.assert_array_equal(bound.result(), [3, 3])


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_types_that_shaders_lack_are_refused(backend: GLBackend, dtype: str) -> None:
    out = Value("y", (4,), np.dtype(dtype))
    refused = backend.refusal(Compute(out, (4,), lit(1.0, "float32"), "y", "Test"))
    assert refused is not None
    assert dtype in refused


def test_float64_inside_a_formula_is_refused(backend: GLBackend) -> None:
    x = value("x", np.zeros(4, np.float32))
    formula = cast(unary("sqrt", cast(x[index(0)], "float64")), "float32")
    assert "float64" in (backend.refusal(step("y", x, formula)) or "")


def test_integers_beyond_32_bits_are_told(backend: GLBackend) -> None:
    fits = np.array([-(2**31), 2**31 - 1])
    buffer = backend.create(2, fits.dtype, fits)
    readback = backend.readback(buffer)
    readback.wait()
    np.testing.assert_array_equal(readback.array(), fits)
    assert readback.array().dtype == np.int64
    with pytest.raises(InputError, match="beyond the 32-bit integers"):
        backend.upload(buffer, np.array([0, 2**31]))
    with pytest.raises(InputError, match="expected 2 elements of int64, got 3"):
        backend.upload(buffer, np.array([0, 1, 2]))


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8", "uint16", "bool", "uint32", "float16"])
def test_round_trips(backend: GLBackend, dtype: str) -> None:
    data = np.array([0, 1, 2, 100, 1, 0]).astype(dtype)
    buffer, other = backend.create(6, data.dtype, data), backend.create(6, data.dtype)
    backend.copy(buffer, other)
    readback = backend.readback(other)
    readback.wait()
    assert readback.array().dtype == data.dtype
    np.testing.assert_array_equal(readback.array(), data)


def test_released_buffers_are_told(backend: GLBackend) -> None:
    _, bound = bound_chain(backend, 4, 2)
    # Buffers that were checked before are checked again once one was released.
    bound.run()
    bound.buffers["x"].release()
    bound.buffers["x"].release()
    with pytest.raises(DisposedError, match="released"):
        bound.run()
    with pytest.raises(DisposedError, match="released"):
        backend.readback(bound.buffers["x"])
