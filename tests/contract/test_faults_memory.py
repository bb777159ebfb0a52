"""Tensors that fit nowhere: one error that names the tensor, and a worker that goes on."""

from __future__ import annotations

from collections.abc import Callable

import moderngl
import numpy as np
import pytest

from engine import BackendType, GLDevice, Model, ModelLoader, OutOfMemoryError, Worker
from engine.backends.cpu.backend import CPUBackend
from engine.device.cl import device
from tests.contract.faults import CHANNELS, DIGITS, IMAGE, FaultyLoader, open_worker
from tests.graphs import model, node

pytestmark = pytest.mark.gl

Request = pytest.FixtureRequest
RunChild = Callable[..., str]


def spread(inner: bool) -> Model:
    """x: (1,) spread over the shape `s`; the large tensor is the output, or one on the way to a sum."""
    large = [node("Expand", ["x", "s"], ["large"])]
    last = [node("CumSum", ["large", "axis"], ["sums"]), node("ReduceMax", ["sums"], ["y"], keepdims=0)]
    nodes = large + (last if inner else [node("Relu", ["large"], ["y"])])
    constants = {"axis": np.array(0)} if inner else {}
    return model(
        nodes, {"x": ("float32", [1]), "s": ("int64", [2])}, {"y": ("float32", None)}, constants
    )  # fmt: skip


def infer(worker: Worker, *inputs: np.ndarray) -> np.ndarray:
    worker.schedule(*inputs)
    return np.asarray(worker.peek_output().download_to_array())


@pytest.mark.spread("inner")
@pytest.mark.parametrize("inner", [False, True], ids=["output", "inner"])
@pytest.mark.parametrize("channel", CHANNELS)
def test_a_tensor_larger_than_any_memory_is_named(request: Request, channel: str, inner: bool) -> None:
    worker = open_worker(request, spread(inner), channel)
    x = np.ones(1, np.float32)
    for side in (2**20, 2**20, 2**23):
        with pytest.raises(OutOfMemoryError, match=r"no memory for the tensor '\w+.*' on .*[GTE]iB.*smaller"):
            infer(worker, x, np.array([side, side]))
    worker.schedule(x, np.array([4, 5]))
    assert worker.peek_output().download_to_array().sum() == (4 if inner else 20)


LIMITED = """
import resource
import numpy as np
from engine import ModelLoader, OutOfMemoryError, Worker
from tests.contract.test_faults_memory import spread
worker = Worker(spread(False))
x = np.ones(1, np.float32)
worker.schedule(x, np.array([4, 4]))
worker.peek_output().download_to_array()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20), used + (600 << 20)))
for _ in range(3):
    try:
        worker.schedule(x, np.array([16384, 16384]))
        worker.peek_output().download_to_array()
        print("fits")
    except OutOfMemoryError as error:
        print("refused:", error)
    worker.schedule(x, np.array([1024, 1024]))
    print(int(worker.peek_output().download_to_array().sum()))
worker.dispose()
"""


def test_an_allocation_that_the_system_refuses_is_the_same_error(run_child: RunChild) -> None:
    """1 GiB where 600 MiB are left; what takes 4 MiB goes on."""
    lines = run_child(LIMITED).splitlines()
    assert [line for line in lines if line.startswith("refused: there is no memory for the tensor")] == lines[
        ::2
    ]
    assert lines[1::2] == ["1048576"] * 3


@pytest.mark.parametrize("kind", [BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL])
def test_a_driver_that_is_out_of_memory_is_asked_for_large_tensors(
    game: moderngl.Context, kind: BackendType
) -> None:
    """8,388,608 float32 take 32 MiB."""
    x, shape = np.ones(1, np.float32), np.array([4096, 2048])
    with (
        GLDevice(game, loader_wrapper=FaultyLoader) as device,
        Worker(spread(False), kind, device=device) as worker,
    ):
        FaultyLoader.made.has_no_memory = True
        if kind is BackendType.GPU_PIXEL:
            FaultyLoader.made.refuse()  # textures of its own are made by another call
        with pytest.raises(OutOfMemoryError, match="the tensor '.*' on gl_.*32 MiB.*OpenGL reports"):
            worker.schedule(x, shape)
        FaultyLoader.made.has_no_memory = False
        worker.schedule(x, shape)
        assert worker.peek_output().download_to_array().sum() == 4096 * 2048
        worker.schedule(x, np.array([2, 3]))
        assert worker.peek_output().download_to_array().sum() == 6


def test_opencl_that_allocates_no_more_is_the_same_error(
    request: Request, cl_device: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = open_worker(request, spread(False), "opencl")
    cl = worker.device.cl
    x = np.ones(1, np.float32)

    def refuse(*arguments: object, **keywords: object) -> object:
        raise cl.MemoryError("clCreateBuffer failed: MEM_OBJECT_ALLOCATION_FAILURE")

    with monkeypatch.context() as patched:
        patched.setattr(device, "device_memory_class", lambda _: refuse)
        with pytest.raises(
            OutOfMemoryError, match="the tensor '.*' on opencl.*MEM_OBJECT_ALLOCATION_FAILURE"
        ):
            worker.schedule(x, np.array([64, 64]))
    worker.schedule(x, np.array([64, 64]))
    assert worker.peek_output().download_to_array().sum() == 4096


def test_a_model_whose_weights_find_no_room_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> object:
        raise MemoryError("Unable to allocate")

    with Worker(ModelLoader.load(DIGITS)) as worker, monkeypatch.context() as patched:
        patched.setattr(CPUBackend, "constant", refuse)
        with pytest.raises(OutOfMemoryError, match="the tensor '.*' on cpu"):
            worker.schedule(IMAGE)
        patched.undo()
        worker.schedule(IMAGE)
        assert worker.peek_output().download_to_array().shape == (1, 10)
