"""What a `Tensor` promises, whatever backend it lies on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine import (
    BackendType,
    CPUTensorData,
    DisposedError,
    InputError,
    ShapePending,
    Tensor,
    TensorData,
    TensorShape,
    ValuePending,
    Worker,
)
from engine.backends.readback import PendingRead
from tests.engine.conftest import MakeWorker
from tests.graphs import model, node


class SlowRead:
    """Arrives after a number of polls, or when it is waited for."""

    def __init__(self, array: np.ndarray, polls: int) -> None:
        self.value = array
        self.polls = polls

    def done(self) -> bool:
        self.polls -= 1
        return self.polls < 0

    def wait(self) -> None:
        self.polls = 0

    def array(self) -> np.ndarray:
        return self.value


class SlowData(TensorData):
    """Storage whose copies arrive late."""

    def __init__(self, array: np.ndarray, polls: int = 2) -> None:
        self.content = array
        self.dtype = array.dtype
        self.shape_or_none: tuple[int, ...] | None = array.shape
        self.polls = polls
        self.requests = 0
        self.disposed = False

    def request(self) -> PendingRead:
        self.requests += 1
        return SlowRead(self.content.copy(), self.polls)

    def upload(self, array: np.ndarray) -> None:
        self.content = array.reshape(self.content.shape).copy()

    def dispose(self) -> None:
        self.disposed = True


def square() -> np.ndarray:
    return np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_tensor_copies_and_a_wrapped_array_is_shared() -> None:
    array = square()
    copied, wrapped = Tensor(array), Tensor.wrap(array)
    array[0, 0] = 9
    assert copied[0, 0] == 0
    assert wrapped[0, 0] == 9
    wrapped[1, 2] = -1
    assert array[1, 2] == -1
    downloaded = wrapped.download_to_array()
    downloaded[:] = 5
    assert array[0, 1] == 1


@pytest.mark.parametrize("array", [square().T, square()[:, ::2], [1.0, 2.0]])
def test_only_arrays_in_row_major_order_are_wrapped(array: np.ndarray) -> None:
    with pytest.raises(InputError, match="C-contiguous"):
        Tensor.wrap(array)


@pytest.mark.parametrize(
    ("data", "dtype", "expected"),
    [
        ([1.5, 2.0], None, "float32"),
        (3.0, None, "float32"),
        ([1, 2], None, "int64"),
        ([True], None, "bool"),
        ([1, 2], np.int32, "int32"),
        (np.array([1.5]), None, "float64"),
        (np.float64(1.5), None, "float64"),
        ([1.5], np.float64, "float64"),
    ],
)
def test_the_dtype_of_python_numbers(data: object, dtype: object, expected: str) -> None:
    tensor = Tensor(data, dtype)  # type: ignore[arg-type]
    assert tensor.dtype.name == expected
    np.testing.assert_array_equal(tensor.download_to_array(), np.asarray(data))


def test_an_array_in_another_order_is_copied_in_row_major_order() -> None:
    tensor = Tensor(square().T)
    assert tensor.shape == (3, 2)
    assert isinstance(tensor.shape, TensorShape)
    assert tensor.size == 6
    data = tensor.data_on_backend
    assert isinstance(data, CPUTensorData)
    assert data.array.flags.c_contiguous
    np.testing.assert_array_equal(tensor.download_to_array(), square().T)


@pytest.mark.parametrize("make", [Tensor, lambda a: Tensor.of(SlowData(a))])
def test_reshape(make: Callable[[np.ndarray], Tensor]) -> None:
    tensor = make(square())
    assert tensor.reshape(3, -1) is tensor
    assert tensor.shape == (3, 2)
    assert tensor.reshape([6]).shape == (6,)
    assert tensor.reshape((-1, 1, 2)).shape == (3, 1, 2)
    np.testing.assert_array_equal(tensor.download_to_array(), square().reshape(3, 1, 2))
    tensor.readback_request()
    tensor.reshape(2, 3)
    while not tensor.is_readback_request_done():
        pass
    np.testing.assert_array_equal(tensor.download_to_array(), square())
    tensor.reshape(-1)
    assert tensor[4] == 4
    np.testing.assert_array_equal(tensor.download_to_array(), square().reshape(-1))
    for wrong in ((4, -1), (7,), (-1, -1), (-2, -3), (0, -1)):
        with pytest.raises(InputError, match=r"cannot reshape a tensor of shape \(6,\) to"):
            tensor.reshape(*wrong)
    assert tensor.shape == (6,)


def test_reshape_of_a_scalar_and_of_nothing() -> None:
    assert Tensor(2.0).reshape(1, 1).shape == (1, 1)
    assert Tensor([[2.0]]).reshape(()).shape == ()
    assert Tensor(np.zeros((0, 3), np.float32)).reshape(3, 0).shape == (3, 0)


@pytest.mark.parametrize("make", [Tensor, lambda a: Tensor.of(SlowData(a))])
def test_upload_replaces_the_elements_and_what_was_read_before(make: Callable[[np.ndarray], Tensor]) -> None:
    tensor = make(square())
    tensor.readback_request()
    tensor.upload([[5, 4, 3], [2, 1, 0]])
    assert not tensor.is_readback_request_done()
    np.testing.assert_array_equal(tensor.download_to_array(), [[5, 4, 3], [2, 1, 0]])
    tensor.upload(np.arange(6, dtype=np.int8))
    np.testing.assert_array_equal(tensor.download_to_array(), square())
    with pytest.raises(InputError, match=r"upload of 5 elements into a tensor of shape \(2, 3\)"):
        tensor.upload(np.zeros(5))


def test_elements_are_written_where_they_lie_on_the_cpu() -> None:
    tensor = Tensor(square())
    tensor.readback_request()
    assert tensor.is_readback_request_done()
    tensor[1] = 7
    np.testing.assert_array_equal(tensor.download_to_array(), [[0, 1, 2], [7, 7, 7]])
    with pytest.raises(ValuePending, match=r"CPUTensorData\.pin"):
        Tensor.of(SlowData(square()))[0] = 1


def test_a_readback_is_a_snapshot_that_comes_once() -> None:
    data = SlowData(square())
    tensor = Tensor.of(data)
    assert not tensor.is_readback_request_done()
    told: list[str] = []
    tensor.readback_request(lambda ok: told.append(f"first {ok}"))
    tensor.readback_request(lambda ok: told.append(f"second {ok}"))
    assert data.requests == 1
    data.content[:] = 9
    assert not tensor.is_readback_request_done()
    assert not tensor.is_readback_request_done()
    assert told == []
    assert tensor.is_readback_request_done()
    assert told == ["first True", "second True"]
    assert tensor.is_readback_request_done()
    assert len(told) == 2
    np.testing.assert_array_equal(tensor.download_to_array(), square())
    tensor.readback_request(lambda ok: told.append("late"))
    assert tensor.is_readback_request_done()
    assert told[-1] == "late"
    clone = tensor.readback_and_clone()
    tensor.download_to_array()[:] = 3
    np.testing.assert_array_equal(clone.download_to_array(), square())


def test_a_download_waits_for_the_read_under_way() -> None:
    data = SlowData(square(), polls=10**9)
    tensor = Tensor.of(data)
    tensor.readback_request()
    data.content[:] = 9
    np.testing.assert_array_equal(tensor.download_to_array(), square())
    assert data.requests == 1


def test_download_into_an_array() -> None:
    out = np.empty((2, 3), np.float32)
    for tensor in (Tensor(square()), Tensor.of(SlowData(square()))):
        out[:] = 0
        assert tensor.download_to_array(out=out) is out
        np.testing.assert_array_equal(out, square())
        for wrong in (np.empty((3, 2), np.float32), np.empty((2, 3))):
            with pytest.raises(InputError, match="out has shape"):
                tensor.download_to_array(out=wrong)
    strided = np.zeros((3, 2), np.float32).T
    Tensor(square()).download_to_array(out=strided)
    np.testing.assert_array_equal(strided, square())


def test_numpy_and_dlpack_see_the_elements_without_a_copy() -> None:
    tensor = Tensor(square())
    view = np.asarray(tensor)
    shared = np.from_dlpack(tensor)
    tensor[0, 0] = 8
    assert view[0, 0] == shared[0, 0] == 8
    assert np.array(tensor, dtype=np.int32).dtype == np.int32
    with pytest.raises(ValueError, match="copy"):
        np.array(tensor, dtype=np.int32, copy=False)
    tensor.reshape(6)
    assert np.from_dlpack(tensor).shape == (6,)


def test_torch_shares_the_memory() -> None:
    torch = pytest.importorskip("torch")
    tensor = Tensor(square())
    shared = torch.from_dlpack(tensor)
    shared[0, 1] = -3
    assert tensor[0, 1] == -3


def test_pinning_keeps_a_readback_that_was_asked_for() -> None:
    tensor = Tensor.of(SlowData(square()))
    told: list[bool] = []
    tensor.readback_request(told.append)
    tensor.reshape(3, 2)
    data = CPUTensorData.pin(tensor)
    assert tensor.data_on_backend is data
    assert CPUTensorData.pin(tensor) is data
    assert tensor.shape == (3, 2)
    assert tensor.is_readback_request_done()
    assert told == [True]
    np.testing.assert_array_equal(tensor.download_to_array(), square().reshape(3, 2))


def test_disposal() -> None:
    data = SlowData(square())
    with Tensor.of(data) as tensor:
        assert tensor.shape == (2, 3)
    assert data.disposed
    tensor.dispose()
    assert repr(tensor) == "Tensor(disposed)"
    uses: list[Callable[[], object]] = [
        tensor.download_to_array, tensor.readback_request, tensor.is_readback_request_done,
        lambda: tensor.shape, lambda: tensor[0], lambda: tensor.data_on_backend,
        lambda: tensor.upload(square()), lambda: np.asarray(tensor),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(DisposedError, match="this Tensor was disposed"):
            use()


def test_a_tensor_whose_shape_is_open() -> None:
    data = SlowData(square())
    data.shape_or_none = None
    tensor = Tensor.of(data)
    assert tensor.shape_or_none is None
    with pytest.raises(ShapePending):
        tensor.reshape(-1)
    assert "ShapePending" in repr(tensor)
    tensor.download_to_array()
    tensor.readback_request()
    while not tensor.is_readback_request_done():
        pass
    assert tensor.shape == (2, 3)


def test_a_reshaped_tensor_feeds_a_worker_in_its_new_shape(channel: str, make_worker: MakeWorker) -> None:
    """On the CPU, and where it lies on the backend."""
    transpose = model(
        [node("Transpose", ["x"], ["y"])], {"x": ("float32", ["n", "m"])}, {"y": ("float32", ["m", "n"])}
    )
    worker = make_worker(transpose, channel)
    worker.schedule(square())
    held = worker.copy_output()
    for tensor in (Tensor(square()), held):
        flat = tensor.download_to_array().reshape(1, 6)
        worker.schedule(tensor.reshape(1, 6))
        np.testing.assert_array_equal(worker.peek_output().download_to_array(), flat.T)
    held.dispose()


def test_what_a_model_knows_ahead_cannot_be_changed_through_its_output() -> None:
    constant = model(
        [node("Identity", ["x"], ["y"])], {"x": ("float32", [1])},
        {"y": ("float32", [1]), "k": ("float32", [2])}, {"k": np.array([1, 2], np.float32)},
    )  # fmt: skip
    with Worker(constant, BackendType.CPU) as worker:
        worker.schedule([0])
        output = worker.peek_output("k")
        data = output.data_on_backend
        assert isinstance(data, CPUTensorData)
        data.array[:] = 9
        output.download_to_array()[:] = 9
        worker.copy_output("k")[0] = 9
        worker.schedule([0])
        assert worker.peek_output("k").download_to_array().tolist() == [1, 2]


def test_a_worker_takes_lists_and_numbers() -> None:
    add = model([node("Add", ["a", "b"], ["y"])], {"a": ("float32", [2]), "b": ("float32", [])},
                {"y": ("float32", [2])})  # fmt: skip
    with Worker(add, BackendType.CPU) as worker:
        worker.schedule([1, 2], 3)
        assert worker.peek_output().download_to_array().tolist() == [4, 5]
