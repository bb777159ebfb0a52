"""The stream of an OpenCL backend: order, snapshots, transfers that never wait, memory, stored programs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path

import numpy as np
import pytest

from engine.backends.base import Readback
from engine.backends.opencl import OpenCLBackend
from engine.backends.opencl.backend import CLProgram
from engine.base.errors import DisposedError, InputError, ValuePending
from engine.compiler.plan import BufferSpec, Compute, Plan
from engine.device.cl.counting import counting_cl_calls
from engine.device.cl.device import CLDevice
from engine.kernels.expr import FLAT, arg, cast, index, lit, reduce
from engine.kernels.value import Value
from tests.engine.backends.steps import F32, Bound, chain_plan, result_of

pytestmark = pytest.mark.opencl


@contextmanager
def held(device: CLDevice) -> Iterator[Callable[[], None]]:
    """What is enqueued in this context begins when the given function is called, or after a minute."""
    cl = device.cl
    gate = cl.UserEvent(device.context)
    lock = threading.Lock()

    def begin() -> None:
        with lock:
            if gate.command_execution_status != cl.command_execution_status.COMPLETE:
                gate.set_status(cl.command_execution_status.COMPLETE)

    timer = threading.Timer(60, begin)
    timer.start()
    cl.enqueue_barrier(device.queue, wait_for=[gate])
    try:
        yield begin
    finally:
        timer.cancel()
        begin()


def chain(value: Value, length: int, work: int) -> list[Compute]:
    """Steps that add 1, `length` times; each also sums `work` elements, to take a while."""
    steps = []
    for k in range(length):
        output = Value("y" if k == length - 1 else f"t{k}", value.shape, F32)
        body = value.at(FLAT) + reduce("sum", work, value.at) * 0.0 + 1.0
        steps.append(Compute(output, (value.size,), body, f"add{k}", "Add"))
        value = output
    return steps


def recorded_chain(backend: OpenCLBackend, size: int, length: int = 4, work: int = 1) -> Bound:
    x = Value("x", (size,), F32)
    steps = chain(x, length, work)
    return Bound(backend, chain_plan(steps), {"x": np.zeros(size, np.float32)}, {"y": steps[-1].output})


@pytest.mark.parametrize("pinned", [False, True])
def test_three_runs_in_flight_keep_their_values(cl_device: CLDevice, pinned: bool) -> None:
    backend = OpenCLBackend(cl_device, pinned=pinned)
    recorded = recorded_chain(backend, 1 << 14, work=300)
    data = np.empty(1 << 14, np.float32)
    readbacks: list[Readback] = []
    for _ in range(2):
        # The second round finds the pools filled.
        readbacks.clear()
        with counting_cl_calls() as blocking:
            for k in (10, 20, 30):
                data[:] = k
                backend.upload(recorded.buffers["x"], data)
                # The upload is a copy: what happens to the array afterwards is not seen.
                data[:] = -1
                backend.run(recorded.program)
                readbacks.append(backend.readback(recorded.buffers["y"]))
            backend.flush()
            deadline = time.monotonic() + 60
            while not all(r.done() for r in readbacks) and time.monotonic() < deadline:
                time.sleep(0.001)
            arrays = [r.array() for r in readbacks]
        assert blocking == {}
        for array, k in zip(arrays, (10, 20, 30), strict=True):
            assert np.all(array == k + 4)
    recorded.program.release()
    backend.dispose()


def test_a_pending_value_says_so_and_a_wait_is_counted(cl_device: CLDevice, backend: OpenCLBackend) -> None:
    recorded = recorded_chain(backend, 1 << 14)
    backend.synchronize()
    cl_device.counters.reset()
    with held(cl_device) as begin:
        backend.run(recorded.program)
        result = backend.readback(recorded.buffers["y"])
        assert not result.done()
        with pytest.raises(ValuePending):
            result.array()
        assert cl_device.counters.blocking == {}
        # The device must not be done before the wait begins.
        later = threading.Timer(0.3, begin)
        later.start()
        result.wait()
        later.join()
    assert cl_device.counters.blocking == {"clWaitForEvents": 1}
    assert np.all(result.array() == 4)
    assert (cl_device.counters.readbacks, cl_device.counters.bytes_down) == (1, 4 << 14)
    recorded.program.release()


def test_a_dropped_readback_does_not_wait(cl_device: CLDevice, backend: OpenCLBackend) -> None:
    recorded = recorded_chain(backend, 1 << 14)
    with held(cl_device) as begin:
        backend.run(recorded.program)
        dropped, kept = (backend.readback(recorded.buffers["y"]) for _ in range(2))
        # pyopencl waits when it drops the event of a copy under way.
        del dropped
        assert not kept.done()
        begin()
        kept.wait()
    assert np.all(kept.array() == 4)
    recorded.program.release()


def test_copies_and_empty_buffers(backend: OpenCLBackend) -> None:
    first, second = backend.create(5, F32, np.arange(5)), backend.create(5, F32)
    backend.copy(first, second)
    backend.upload(first, np.zeros(5))
    result = backend.readback(second)
    result.wait()
    np.testing.assert_array_equal(result.array(), np.arange(5))
    nothing = backend.create(0, F32, np.empty(0, np.float32))
    backend.copy(nothing, nothing)
    empty = backend.readback(nothing)
    assert empty.done()
    assert empty.array().shape == (0,)
    with pytest.raises(InputError, match="3 values"):
        backend.upload(first, np.zeros(3))
    with pytest.raises(InputError, match="beyond the 32-bit integers"):
        backend.create(2, np.dtype(np.int64), np.array([0, 2**31]))
    first.release()
    first.release()
    with pytest.raises(DisposedError):
        backend.readback(first)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int64", "uint64", "int32", "int8", "uint8", "int16", "bool"]
)
def test_values_come_back_in_the_declared_type(backend: OpenCLBackend, dtype: str) -> None:
    values = np.array([0, 1, 0, 1, 1], dtype) if dtype == "bool" else np.array([0, 1, 2, 100, 7], dtype)
    result = backend.readback(backend.create(5, np.dtype(dtype), values))
    result.wait()
    assert result.array().dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result.array(), values)


def test_float64_is_computed_where_the_device_has_it(cl_device: CLDevice, backend: OpenCLBackend) -> None:
    x = Value("x", (3,), np.dtype(np.float64))
    step = Compute(Value("y", (3,), x.dtype), (3,), x.at(FLAT) / 3.0, "third", "Div")
    if not cl_device.info.has_double:
        assert "float64" in (backend.refusal(step) or "")
        return
    assert backend.refusal(step) is None
    data = np.array([1.0, 2.0, 1e300])
    np.testing.assert_array_equal(result_of(backend, chain_plan([step]), {"x": data}, step.output), data / 3)


def test_int64_is_computed_in_32_bits(backend: OpenCLBackend) -> None:
    x = Value("x", (3,), np.dtype(np.int64))
    step = Compute(Value("y", (3,), x.dtype), (3,), x.at(FLAT) * arg(3, "int64"), "triple", "Mul")
    got = result_of(backend, chain_plan([step]), {"x": np.array([1, -7, 2**30])}, step.output)
    np.testing.assert_array_equal(got, [3, -21, 3 * 2**30 - 2**32])


def test_a_kernel_with_many_numbers(backend: OpenCLBackend) -> None:
    x = Value("x", (4,), F32)
    body = x.at(FLAT)
    for k in range(300):
        body = body + (arg(k + 0.5, "float32") if k % 2 else cast(arg(k), "float32"))
    step = Compute(Value("y", (4,), F32), (4,), body, "sum", "Add")
    got = result_of(backend, chain_plan([step]), {"x": np.zeros(4, np.float32)}, step.output)
    assert np.all(got == sum(k + 0.5 * (k % 2) for k in range(300)))


def test_a_large_space_is_cut_into_dispatches(
    backend: OpenCLBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.backends.opencl.execution.dispatches._MAX_WORK", 3000)
    x = Value("x", (3, 50, 7), F32)
    data = np.arange(prod(x.shape), dtype=np.float32).reshape(x.shape)
    body = x[index(0), index(1), index(2)] * cast(index(1), "float32") + reduce("sum", 10, lambda r: x.at(r))
    step = Compute(Value("y", x.shape, F32), x.shape, body, "l", "T")
    recorded = Bound(backend, chain_plan([step]), {"x": data}, {"y": step.output})
    assert len(recorded.program.commands) == -(-data.size // 256)
    expected = data * np.arange(50)[:, None] + data.reshape(-1)[:10].sum()
    recorded.run()
    np.testing.assert_allclose(recorded.result().reshape(x.shape), expected, rtol=1e-6)
    recorded.program.release()


def test_refusals(backend: OpenCLBackend) -> None:
    limit = backend.device.limits.max_allocation
    huge = Value("huge", (limit // 4 + 1,), F32)
    step = Compute(Value("y", (1,), F32), (1,), huge.at(FLAT), "l", "T")
    assert "huge" in (backend.refusal(step) or "")
    small = Value("small", (4,), F32)
    assert backend.refusal(Compute(Value("y", (4,), F32), (4,), small.at(FLAT), "l", "T")) is None


def test_temporaries_share_memory(cl_device: CLDevice) -> None:
    backend = OpenCLBackend(cl_device)
    recorded = recorded_chain(backend, 1000, length=6)
    memory = recorded.program.memory
    # The first t reads x; from then on two take turns. Not parts of one buffer: drivers fail with these.
    assert [(m.size, m.associated_memobject) for m in memory] == [(4000, None)] * 2
    recorded.run()
    assert np.all(recorded.result() == 6)
    recorded.program.release()
    backend.dispose()


def test_programs_are_stored(cl_device: CLDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(tmp_path))

    def compile_once() -> tuple[int, np.ndarray]:
        cl_device.stores.clear()
        backend = OpenCLBackend(cl_device)
        recorded = recorded_chain(backend, 100)
        recorded.run()
        result = recorded.result()
        recorded.release()
        compiled = backend.programs.compilations
        backend.dispose()
        return compiled, result

    compiled, first = compile_once()
    assert compiled == 1
    (stored,) = (tmp_path / "opencl").glob("*.clbin")
    compiled, second = compile_once()
    assert compiled == 0
    np.testing.assert_array_equal(first, second)
    # A damaged file costs a compilation, and is replaced.
    good = stored.read_bytes()
    stored.write_bytes(good[:-20])
    assert compile_once()[0] == 1
    assert compile_once()[0] == 0


def test_an_empty_plan_and_an_empty_step(backend: OpenCLBackend) -> None:
    plan = Plan()
    plan.buffers["y"] = BufferSpec("y", 0, F32, "output")
    step = Compute(Value("y", (0,), F32), (0,), lit(1.0, "float32"), "l", "T")
    plan.steps.append(step.as_step())
    program = backend.record(plan, {"y": backend.create(0, F32)})
    assert isinstance(program, CLProgram)
    assert program.commands == []
    backend.run(program)
    program.release()
