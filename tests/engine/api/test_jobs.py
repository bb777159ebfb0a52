"""Jobs of one's own: what they compute, what they wait for and what waits for them, what is refused."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import (
    BackendType,
    CPUTensorData,
    DisposedError,
    InputError,
    JobHandle,
    JobSystem,
    KernelCompileError,
    ModelLoader,
    StaleTensorError,
    Tensor,
    ValuePending,
    Worker,
    job,
)
from tests.conftest import RunChild
from tests.engine.device.jobs.gates import Gate
from tests.graphs import model, node, proto

SCALE = 3
LIMITS = (-1.5, 1.5)
ENDLESS = float("inf")


def helper(value: float) -> float:
    """Called as something in the text around every kernel is; that has to be none of the user's business."""
    return min(max(value, LIMITS[0]), LIMITS[1])


@job
def scaled(begin: int, end: int, out: np.ndarray, x: np.ndarray, factor: float) -> None:
    for i in range(begin, end):
        for j in range(out.shape[1]):
            out[i, j] = helper(x[i, j] * factor) + math.cos(0.0) - 1.0


@job
def slowly_set(begin, end, out, value, turns):
    """Some `turns` later, every element is `value`."""
    x = 0.5
    for _ in range(turns):
        x = math.sin(x) + 0.5
    for i in range(begin, end):
        out[i] = value if x < ENDLESS else 0


@job
def slowly_copy(begin, end, out, x, turns):
    y = 0.5
    for _ in range(turns):
        y = math.sin(y) + 0.5
    for i in range(begin, end):
        out[i] = x[i] if y < ENDLESS else 0


@job
def copied(begin, end, out, x):
    for i in range(begin, end):
        out[i] = x[i]


TURNS = 2_000_000
"""A few tens of milliseconds: whoever does not wait where it has to is seen."""


@pytest.fixture(scope="module")
def jobs() -> Iterator[JobSystem]:
    with JobSystem(2) as system:
        for function in (slowly_set, slowly_copy):  # compiled here, so that no test measures it
            out = np.zeros(1, np.float32)
            given: tuple[Any, ...] = (out, 1.0, 1) if function is slowly_set else (out, out.copy(), 1)
            function.schedule(*given, jobs=system).complete()
        copied.schedule(np.zeros(1, np.float32), np.zeros(1, np.float32), jobs=system).complete()
        yield system


@pytest.fixture
def plus_one(jobs: JobSystem) -> Iterator[Worker]:
    network = model(
        [node("Add", ["x", "one"], ["y"])], {"x": ("float32", ["n"])}, {"y": ("float32", ["n"])},
        {"one": np.ones(1, np.float32)},
    )  # fmt: skip
    with Worker(network, jobs=jobs) as worker:
        worker.schedule(np.zeros(4, np.float32))
        yield worker


def wait_in_python(handle: JobHandle) -> None:
    """Polls: whatever the handle stands for happens without this thread."""
    limit = time.monotonic() + 60
    while not handle.is_completed:
        assert time.monotonic() < limit


def zeros(n: int = 4) -> Tensor:
    return Tensor(np.zeros(n, np.float32))


def test_a_job_fills_a_tensor_and_runs_as_python_too(jobs: JobSystem) -> None:
    x = np.random.default_rng(0).standard_normal((50, 7)).astype(np.float32)
    out, expected = Tensor(np.zeros((50, 7), np.float32)), np.clip(x * 2.5, -1.5, 1.5)
    scaled.schedule(out, Tensor(x), 2.5, grain=3, jobs=jobs).complete()
    np.testing.assert_allclose(out.download_to_array(), expected, atol=1e-6)
    again = np.zeros_like(x)
    scaled(0, 50, again, x, 2.5)
    np.testing.assert_allclose(again, expected, atol=1e-6)
    scaled.run(out, x * 0, 1.0)
    assert not out.download_to_array().any()


@pytest.mark.parametrize(
    "dtype", "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()
)
def test_element_types(dtype: str) -> None:
    x = np.arange(9).astype(dtype)
    out = Tensor(np.zeros(9, dtype))
    copied.run(out, x)
    np.testing.assert_array_equal(out.download_to_array(), x)


@job
def sum_of_all(begin, end, out, a, b, c, count, weight, flag, small):
    for i in range(begin, end):
        total = 0.0
        for j in range(b.shape[1]):
            for k in range(c.shape[2]):
                for m in range(c.shape[3]):
                    total += a[i] * b[i, j] * c[i, j, k, m]
        out[i] = total * weight + count + small + (SCALE if flag else -SCALE)


def test_arrays_of_several_axes_and_numbers() -> None:
    random = np.random.default_rng(1)
    a, b, c = random.random(5), random.random((5, 2)), random.random((5, 2, 3, 4))
    out = np.zeros(5)
    sum_of_all.run(out, a, b, c, -(2**40), 0.5, True, np.float32(0.25))
    expected = np.einsum("i,ij,ijkm->i", a, b, c) * 0.5 - 2**40 + 0.25 + 3
    np.testing.assert_allclose(out, expected)
    sum_of_all.run(out, a, b, c, 0, 0.5, False, np.float32(0.25))
    np.testing.assert_allclose(out, expected + 2**40 - 6, atol=1e-3)


def test_only_the_indices_of_count_are_done(jobs: JobSystem) -> None:
    out = zeros(10)
    copied.schedule(out, np.ones(10, np.float32), count=6, grain=4, jobs=jobs).complete()
    assert out.download_to_array().tolist() == [1] * 6 + [0] * 4
    copied.schedule(out, np.ones(10, np.float32), count=0, jobs=jobs).complete()


def test_a_chain_of_jobs_and_schedules_needs_no_main_thread(plus_one: Worker, jobs: JobSystem) -> None:
    given, result = zeros(), zeros()
    with Gate() as gate:
        first = slowly_set.schedule(given, 5.0, TURNS, depends_on=gate.hold(jobs), jobs=jobs)
        plus_one.schedule(given)
        read = copied.schedule(result, plus_one.peek_output())
        # Behind the job that reads it, the output is written again.
        plus_one.schedule(np.full(4, 10, np.float32))
        assert not read.is_completed
        assert plus_one.fence is not None
        gate.open()
    wait_in_python(first)
    wait_in_python(read)
    assert result.download_to_array().tolist() == [6] * 4
    assert plus_one.peek_output().download_to_array().tolist() == [11] * 4
    assert plus_one.fence is None


def test_schedules_behind_jobs_run_on_and_on(plus_one: Worker, jobs: JobSystem) -> None:
    """A value goes round: job, network, job, network; each one adds what it adds."""
    a = zeros()
    for _ in range(200):
        plus_one.schedule(a)
        copied.schedule(a, plus_one.peek_output(), jobs=jobs)
    assert a.download_to_array().tolist() == [200] * 4


def test_the_output_is_a_job_s_to_change(plus_one: Worker, jobs: JobSystem) -> None:
    plus_one.schedule(np.zeros(4, np.float32))
    output = plus_one.peek_output()
    slowly_set.schedule(output, 7.0, TURNS)
    assert output.download_to_array().tolist() == [7] * 4


def test_a_network_reads_an_input_in_place_until_a_job_may_write_it(jobs: JobSystem) -> None:
    """The largest input is read where it lies, so the job has to wait for what reads it."""
    large = model(
        [node("Conv", ["x", "w"], ["y"])], {"x": ("float32", [1, 8, 128, 128])}, {"y": ("float32", None)},
        {"w": np.full((16, 8, 5, 5), 0.01, np.float32)},
    )  # fmt: skip
    x = Tensor(np.ones((1, 8, 128, 128), np.float32))
    with Worker(large, jobs=jobs) as worker:
        for _ in range(12):
            slowly_set.schedule(x.reshape(-1), 1.0, 1, jobs=jobs)
            x.reshape(1, 8, 128, 128)
            worker.schedule(x)
            slowly_set.schedule(x.reshape(-1), 9.0, 1, jobs=jobs)
            x.reshape(1, 8, 128, 128)
            assert worker.peek_output().download_to_array().max() == pytest.approx(2.0, rel=1e-4)


def test_dependencies_are_waited_for(jobs: JobSystem) -> None:
    out = np.zeros(4, np.float32)  # arrays of one's own have no fence: only what is said counts
    other = np.zeros(4, np.float32)
    with Gate() as gate:
        first = slowly_set.schedule(out, 1.0, TURNS, depends_on=gate.hold(jobs), jobs=jobs)
        second = slowly_set.schedule(out, 2.0, 1, depends_on=first, jobs=jobs)
        third = copied.schedule(other, out, depends_on=[second, None])
        assert not third.is_completed
        gate.open()
    assert JobHandle.combine_dependencies([second, third]).complete()
    assert other.tolist() == [2] * 4


def test_a_readback_has_the_value_as_of_its_request(jobs: JobSystem) -> None:
    tensor, again = zeros(), zeros()
    slowly_set.schedule(tensor, 1.0, TURNS, jobs=jobs)
    copy = Tensor.of(tensor.data_on_backend)  # another tensor over the same memory
    copy.readback_request()
    copied.schedule(again, tensor)
    slowly_set.schedule(tensor, 2.0, 1)
    assert copy.download_to_array().tolist() == [1] * 4
    assert tensor.download_to_array().tolist() == [2] * 4
    assert again.download_to_array().tolist() == [1] * 4


def test_elements_are_pending_until_the_job_is_done(jobs: JobSystem) -> None:
    tensor = zeros()
    with Gate() as gate:
        handle = slowly_set.schedule(tensor, 1.0, TURNS, depends_on=gate.hold(jobs), jobs=jobs)
        data = CPUTensorData.pin(tensor)
        assert CPUTensorData.pin(tensor).fence is handle
        for use in (lambda: tensor[0], lambda: np.asarray(tensor)):
            with pytest.raises(ValuePending):
                use()
        gate.open()
    assert data.array.tolist() == [1] * 4  # waits
    assert data.fence is None
    assert tensor[0] == 1


def test_what_is_written_later_counts(jobs: JobSystem) -> None:
    tensor = zeros()
    with Gate() as gate:
        slowly_set.schedule(tensor, 1.0, TURNS, depends_on=gate.hold(jobs), jobs=jobs)
        tensor.upload(np.full(4, 3, np.float32))  # takes memory of its own rather than wait
        gate.open()
    with Gate() as gate:
        reader = slowly_copy.schedule(zeros(), tensor, TURNS, depends_on=gate.hold(jobs), jobs=jobs)
        assert CPUTensorData.pin(tensor).reuse == (reader,)
        gate.open()
    wait_in_python(reader)
    assert tensor.download_to_array().tolist() == [3] * 4
    slowly_set.schedule(tensor, 1.0, TURNS, jobs=jobs)
    tensor[0] = 4  # keeps the others, so this waits
    assert tensor.download_to_array().tolist() == [4, 1, 1, 1]


@pytest.mark.opencl
def test_a_gpu_takes_a_tensor_once_its_job_is_done(jobs: JobSystem) -> None:
    network = model([node("Neg", ["x"], ["y"])], {"x": ("float32", [4])}, {"y": ("float32", [4])})
    with Worker(network, BackendType.GPU_COMPUTE, device="opencl") as worker:
        tensor = zeros()
        worker.schedule(tensor)
        with Gate() as gate:
            slowly_set.schedule(tensor, 1.0, TURNS, depends_on=gate.hold(jobs), jobs=jobs)
            worker.schedule(tensor)
            # What the schedule has been given does not change any more.
            slowly_set.schedule(tensor, 2.0, 1, jobs=jobs)
            with pytest.raises(ValuePending, match="pump the worker"):
                copied.schedule(zeros(), worker.peek_output())
            gate.open()
        assert worker.peek_output().download_to_array().tolist() == [-1] * 4
        with pytest.raises(InputError, match="'x' of job 'copied' is on a GPU"):
            copied.schedule(zeros(), worker.peek_output())
        with pytest.raises(InputError, match="cannot wait for a GPU"):
            _ = worker.fence


def test_what_is_refused(plus_one: Worker, jobs: JobSystem) -> None:
    out = zeros()
    with pytest.raises(InputError, match=r"takes 2 argument\(s\) after begin and end \(out, x\), got 1"):
        copied.schedule(out)
    with pytest.raises(InputError, match="argument 'x' of job 'copied' is a list"):
        copied.schedule(out, [1.0])
    with pytest.raises(InputError, match="elements of type float16; jobs take bool, int8"):
        copied.schedule(out, np.zeros(4, np.float16))
    with pytest.raises(InputError, match="has 5 axes; jobs take 1 to 4"):
        copied.schedule(out, np.zeros((1, 1, 1, 1, 1), np.float32))
    with pytest.raises(InputError, match="not in row-major order"):
        copied.schedule(out, np.zeros(8, np.float32)[::2])
    fixed = np.zeros(4, np.float32)
    fixed.flags.writeable = False
    copied.run(out, fixed)  # only read
    with pytest.raises(InputError, match="'out' of job 'copied' may be written by the job"):
        copied.schedule(fixed, out)
    with pytest.raises(InputError, match="count from 0 and a grain from 1"):
        copied.schedule(out, fixed, grain=0)
    gone = zeros()
    gone.dispose()
    with pytest.raises(DisposedError):
        copied.schedule(gone, fixed)
    stale = plus_one.peek_output()
    plus_one.schedule(fixed)
    with pytest.raises(StaleTensorError):
        copied.schedule(out, stale)


def test_everything_belongs_to_one_job_system(plus_one: Worker, jobs: JobSystem) -> None:
    with JobSystem(1) as other:
        handle = slowly_set.schedule(zeros(), 1.0, 1, jobs=other)
        out = zeros()
        with pytest.raises(InputError, match="jobs of another JobSystem"):
            copied.schedule(out, zeros(), depends_on=handle, jobs=jobs)
        with pytest.raises(InputError, match="jobs of another JobSystem"):
            copied.schedule(out, plus_one.peek_output(), jobs=other)
        with Gate() as gate:
            slowly_set.schedule(out, 1.0, TURNS, depends_on=gate.hold(jobs), jobs=jobs)
            with pytest.raises(InputError, match="jobs of another JobSystem"):
                copied.schedule(out, zeros(), jobs=other)
            gate.open()
        # A worker of another system takes the tensor up when its job is done.
        network = ModelLoader.load(
            proto([node("Neg", ["x"], ["y"])], {"x": ("float32", [4])}, {"y": ("float32", [4])})
        )
        with Worker(network, jobs=other) as worker:
            worker.schedule(out)
            assert worker.peek_output().download_to_array().tolist() == [-1] * 4


@job
def raising(begin, end, out):
    for i in range(begin, end):
        if out[i] > 1:
            raise ValueError("too large")


@job
def allocating(begin, end, out):
    room = np.zeros(3)
    for i in range(begin, end):
        out[i] = room[i % 3]


@job
def misspelt(begin, end, out):
    for i in range(begin, end):
        # Two lines below the first.
        out[i] = out.shappe[0]


def test_code_that_cannot_be_compiled_is_told_with_its_place() -> None:
    here = Path(__file__).name
    with pytest.raises(
        KernelCompileError, match=rf"job 'raising' \(.*{here}:\d+\) cannot be compiled: it may raise"
    ):
        raising.schedule(np.zeros(3))
    with pytest.raises(KernelCompileError, match="it makes an array"):
        allocating.schedule(np.zeros(3))
    with pytest.raises(KernelCompileError) as told:
        misspelt.schedule(np.zeros(3))
    message = str(told.value)
    line = misspelt.py_func.__code__.co_firstlineno + 4
    assert f"{here}:{line})" in message
    assert "Unknown attribute 'shappe'" in message
    assert len(message) < 500


def test_prepare_compiles_ahead() -> None:
    @job
    def threefold(begin, end, out, x):
        for i in range(begin, end):
            out[i] = x[i] * local_factor

    local_factor = 3
    pending = threefold.prepare(np.zeros(1), np.zeros(1))
    assert len(pending.result()) == 1
    assert pending.done()
    out = np.zeros(4)
    threefold.run(out, np.arange(4.0))
    assert out.tolist() == [0, 3, 6, 9]


@pytest.mark.long
def test_a_warm_start_needs_no_numba(run_child: RunChild, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from engine import job\nGAIN = 2.0\n@job\ndef doubled(begin, end, out, x):\n"
        "    for i in range(begin, end):\n        out[i] = x[i] * GAIN\n"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import numpy as np\nfrom engine.device.native import process_store\nfrom mine import doubled\n"
        "out = np.zeros(3)\ndoubled.run(out, np.arange(3.0))\n"
        "print(out.tolist(), process_store().compilations, 'numba' in sys.modules)\n"
    )
    cache = {"GAMEGLUE_CACHE_DIR": str(tmp_path / "cache")}
    assert run_child(code, **cache).split("]")[0] == "[0.0, 2.0, 4.0"
    assert run_child(code, **cache).strip() == "[0.0, 2.0, 4.0] 0 False"
    text = (tmp_path / "mine.py").read_text().replace("2.0", "5.0")
    (tmp_path / "mine.py").write_text(text)
    assert run_child(code, **cache).startswith("[0.0, 5.0, 10.0]")
