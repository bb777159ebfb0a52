"""`Worker(deterministic=True)`: the same inputs give the same bits, in any process, on any number of threads.

Each child process replays the same frames and prints a digest of every output's bits. Nothing here computes
an expected value: bits are compared with bits.
"""

from __future__ import annotations

import numpy as np
import pytest

from engine import BackendType, InputError, JobSystem, ModelLoader, Worker
from tests.conftest import RunChild
from tests.graphs import model, node, proto

REPLAY = """
import hashlib
import numpy as np
from engine import BackendType, JobSystem, ModelLoader, Worker
from tests.engine.test_deterministic import noise, vision

def frames(count):
    random = np.random.default_rng(5)
    for frame in range(count):
        side = 40 if frame % 17 == 3 else 24  # now and then another shape
        yield random.standard_normal((1, 3, side, side), np.float32)

digest = hashlib.sha256()
with JobSystem({threads}) as jobs:
    options = dict(device={device!r}, jobs=jobs, deterministic=True)
    eye, dice = (Worker(ModelLoader.load(m()), BackendType.{backend}, **options) for m in (vision, noise))
    with eye, dice:
        for frame, x in enumerate(frames({count})):
            if {in_flight} and frame % 3 == 0:
                eye.schedule(x)  # the next one queues behind it, and so takes the other way to the threads
            if {slices}:
                schedule = eye.schedule_iterable(x)
                while not schedule.is_done:
                    schedule.advance(0.05, force=True)
            else:
                eye.schedule(x)
            dice.schedule(x[:, :1, :4, :4].reshape(-1))
            for worker in (eye, dice):
                digest.update(worker.peek_output().download_to_array().tobytes())
print(digest.hexdigest())
"""


def vision() -> bytes:
    """A small network of what could be cut or joined differently: convolutions, norms, products, softmax."""
    random = np.random.default_rng(1)
    shapes = {"w1": (32, 3, 3, 3), "w2": (48, 32, 3, 3), "scale": (48,), "shift": (48,), "w3": (48, 10)}
    return proto(
        [
            node("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
            node("Relu", ["c1"], ["r1"]),
            node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1], strides=[2, 2]),
            node("InstanceNormalization", ["c2", "scale", "shift"], ["n"]),
            node("Tanh", ["n"], ["t"]),
            node("GlobalAveragePool", ["t"], ["p"]),
            node("Flatten", ["p"], ["f"]),
            node("MatMul", ["f", "w3"], ["m"]),
            node("Softmax", ["m"], ["y"], axis=1),
        ],
        {"x": ("float32", [1, 3, "side", "side"])},
        {"y": ("float32", [1, 10])},
        {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()},
    )


def noise() -> bytes:
    """A model whose answer depends on how often it was asked."""
    nodes = [node("RandomNormalLike", ["x"], ["r"], seed=3.0), node("Add", ["x", "r"], ["y"])]
    return proto(nodes, {"x": ("float32", ["n"])}, {"y": ("float32", ["n"])})


def replay(
    run_child: RunChild,
    backend: str,
    count: int,
    threads: int = 1,
    *,
    device: str | None = None,
    in_flight: bool = False,
    slices: bool = False,
    **environment: str,
) -> str:
    """The digest of a child's outputs."""
    facts = {"backend": backend, "count": count, "threads": threads, "device": device}
    code = REPLAY.format(**facts, in_flight=in_flight, slices=slices)
    return run_child(code, **environment).strip()


def test_a_thousand_frames_replay_to_the_bit_on_the_cpu(run_child: RunChild) -> None:
    """Whatever may differ does: threads, schedules in flight, slices, plans made anew or read back."""
    first = replay(run_child, "CPU", 1000, 1)
    assert len(first) == 64
    assert replay(run_child, "CPU", 1000, 3, in_flight=True, GAMEGLUE_STORED_PLANS="on") == first
    assert replay(run_child, "CPU", 1000, 2, slices=True, GAMEGLUE_STORED_PLANS="on") == first


@pytest.mark.gl
@pytest.mark.parametrize("backend", ["GPU_COMPUTE", pytest.param("GPU_PIXEL", marks=pytest.mark.long)])
def test_frames_replay_to_the_bit_with_opengl(run_child: RunChild, backend: str) -> None:
    first = replay(run_child, backend, 60, 1, device="gl")
    assert replay(run_child, backend, 60, 2, device="gl", slices=True) == first


@pytest.mark.long
@pytest.mark.opencl
def test_a_thousand_frames_replay_to_the_bit_with_opencl(run_child: RunChild) -> None:
    first = replay(run_child, "GPU_COMPUTE", 1000, 1, device="opencl")
    assert replay(run_child, "GPU_COMPUTE", 1000, 2, device="opencl", slices=True) == first


def sums_by_threads(deterministic: bool) -> set[bytes]:
    """The bits of long sums on one, two and three threads."""
    long_sum = model(
        [node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)],
        {"x": ("float32", ["n", 64])},
        {"y": ("float32", [64])},
        {"axes": np.array([0])},
    )
    x = np.random.default_rng(2).standard_normal((1 << 15, 64)).astype(np.float32)
    found = set()
    for threads in (1, 2, 3):
        with JobSystem(threads) as jobs, Worker(long_sum, jobs=jobs, deterministic=deterministic) as worker:
            worker.schedule(x)
            found.add(worker.peek_output().download_to_array().tobytes())
    return found


def test_a_sum_is_cut_alike_for_any_number_of_threads() -> None:
    assert len(sums_by_threads(deterministic=True)) == 1
    # Without being asked to, each number of threads has the cut that is fastest there.
    assert len(sums_by_threads(deterministic=False)) > 1


def test_random_numbers_begin_again() -> None:
    with Worker(ModelLoader.load(noise()), BackendType.CPU) as worker:

        def draw() -> bytes:
            worker.schedule(np.zeros(4, np.float32))
            found: np.ndarray = worker.peek_output().download_to_array()
            return found.tobytes()

        first, second, third = draw(), draw(), draw()
        assert len({first, second, third}) == 3
        worker.reset_random()
        assert [draw(), draw()] == [first, second]
        worker.reset_random(2)
        assert draw() == third
        with pytest.raises(InputError, match="cannot have been scheduled -1 times"):
            worker.reset_random(-1)
