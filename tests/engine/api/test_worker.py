"""A worker's contracts, on every backend: order, ownership, snapshots, shapes, continuations, disposal."""

from __future__ import annotations

import asyncio
import gc

import numpy as np
import pytest

from engine import (
    BackendType,
    ComputeTensorData,
    CPUTensorData,
    DisposedError,
    InputError,
    ModelLoader,
    StaleTensorError,
    Tensor,
    TensorData,
    TextureTensorData,
    UnsupportedLayerError,
    ValuePending,
    Worker,
)
from engine.api import operator_support
from engine.backends import table
from engine.graph.model import Model
from tests.engine.conftest import MakeWorker
from tests.graphs import mlp, model, node

SIZES = (6, 16, 16, 3)


def policy() -> Model:
    return ModelLoader.load(mlp(SIZES))


def expected(x: np.ndarray) -> np.ndarray:
    """The policy network in NumPy."""
    constants = ModelLoader.read(mlp(SIZES)).constants
    for i in range(len(SIZES) - 1):
        x = x @ constants[f"w{i}"].T + constants[f"b{i}"]
        if i < len(SIZES) - 2:
            x = np.tanh(x)
    return x


def batch(seed: int, rows: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, SIZES[0])).astype(np.float32)


def test_three_schedules_in_flight_keep_their_own_values(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(policy(), channel)
    inputs = [batch(seed) for seed in range(3)]
    outputs = []
    for x in inputs:
        held = x.copy()
        worker.schedule(held)
        held[:] = np.nan  # the worker took a copy
        outputs.append(worker.peek_output())
        outputs[-1].readback_request()
    for x, output in zip(inputs, outputs, strict=True):
        np.testing.assert_allclose(output.download_to_array(), expected(x), atol=1e-4)


def test_a_tensor_is_stale_after_the_next_schedule(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(policy(), channel)
    worker.schedule(batch(0))
    old = worker.peek_output()
    worker.schedule(batch(1))
    for use in (old.download_to_array, old.readback_request, lambda: old.shape, lambda: old.data_on_backend):
        with pytest.raises(StaleTensorError, match="'y' was replaced by a newer schedule"):
            use()
    np.testing.assert_allclose(worker.peek_output().download_to_array(), expected(batch(1)), atol=1e-4)


def test_a_copy_outlives_the_schedule_and_the_worker(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(policy(), channel)
    worker.schedule(batch(0))
    copy = worker.copy_output("y")
    worker.schedule(batch(1))
    np.testing.assert_allclose(copy.download_to_array(), expected(batch(0)), atol=1e-4)
    copy.dispose()
    with pytest.raises(DisposedError, match="Tensor was disposed"):
        copy.download_to_array()


def test_polling_ends_and_results_are_immediate_then(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(policy(), channel)
    worker.schedule(batch(2))
    output = worker.peek_output()
    assert not output.is_readback_request_done()
    told: list[bool] = []
    output.readback_request(told.append)
    for _ in range(100_000):
        if output.is_readback_request_done():
            break
    assert told == [True]
    out = np.empty((4, 3), np.float32)
    assert output.download_to_array(out=out) is out
    np.testing.assert_allclose(out, expected(batch(2)), atol=1e-4)
    np.testing.assert_array_equal(np.asarray(output), out)
    np.testing.assert_array_equal(np.from_dlpack(output), out)
    assert output[0, 1] == out[0, 1]
    clone = output.readback_and_clone()
    assert isinstance(clone.data_on_backend, CPUTensorData)


def test_a_readback_is_awaitable_from_asyncio(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(policy(), channel)

    async def play() -> np.ndarray:
        worker.schedule(batch(3))
        tensor = await worker.peek_output().readback_and_clone_async()
        return tensor.download_to_array()

    np.testing.assert_allclose(asyncio.run(play()), expected(batch(3)), atol=1e-4)


def test_a_pending_value_is_not_converted_by_accident(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(policy(), channel)
    worker.schedule(batch(0))
    output = worker.peek_output()
    for use in (lambda: np.asarray(output), lambda: output[0], lambda: np.from_dlpack(output)):
        with pytest.raises(ValuePending, match="not on the CPU yet"):
            use()


def test_tensors_go_from_worker_to_worker_on_their_backend(channel: str, make_worker: MakeWorker) -> None:
    first = make_worker(ModelLoader.load(mlp((6, 8, 6))), channel)
    second = make_worker(policy(), channel)
    first.schedule(batch(0))
    middle = first.peek_output()
    second.schedule(middle)
    np.testing.assert_allclose(
        second.peek_output().download_to_array(), expected(first.peek_output().download_to_array()), atol=1e-4
    )


@pytest.mark.parametrize("storage", [CPUTensorData, ComputeTensorData, TextureTensorData])
def test_pinned_tensors_feed_any_backend(
    storage: type[CPUTensorData | ComputeTensorData | TextureTensorData],
    channel: str,
    make_worker: MakeWorker,
) -> None:
    worker = make_worker(policy(), channel)
    tensor = Tensor(batch(5))
    data: TensorData
    if issubclass(storage, CPUTensorData):
        data = storage.pin(tensor)
    else:
        same = channel in ("gl_compute", "gl_pixel")
        data = storage.pin(tensor, worker.device if same else None)
    assert tensor.data_on_backend is data
    worker.schedule(tensor)
    np.testing.assert_allclose(worker.peek_output().download_to_array(), expected(batch(5)), atol=1e-4)
    np.testing.assert_array_equal(data.download(), batch(5))
    tensor.upload(batch(6))
    worker.schedule(tensor)
    np.testing.assert_allclose(worker.peek_output().download_to_array(), expected(batch(6)), atol=1e-4)
    tensor.dispose()


def test_inputs_by_position_keyword_dict_and_set_input(channel: str, make_worker: MakeWorker) -> None:
    both = model(
        [node("Sub", ["a", "b:0"], ["y"])],
        {"a": ("float32", [3]), "b:0": ("float32", [3])},
        {"y": ("float32", [3])},
    )
    worker = make_worker(both, channel)
    a, b = np.array([1, 2, 3], np.float32), np.array([3, 1, 1], np.float32)

    def result() -> list[float]:
        return list(worker.peek_output().download_to_array())

    worker.schedule(a, b)
    assert result() == [-2, 1, 2]
    worker.schedule({"a": b, "b:0": a})
    assert result() == [2, -1, -2]
    worker.set_input("b:0", a)
    worker.schedule(a=[5, 5, 5])
    assert result() == [4, 3, 2]
    with pytest.raises(InputError, match=r"has no input 'c'; its inputs: 'a', 'b:0'"):
        worker.schedule(a, b, c=a)


def test_an_initializer_among_the_inputs_is_a_constant(make_worker: MakeWorker) -> None:
    source = model(
        [node("Mul", ["x", "w"], ["y"])],
        {"x": ("float32", [2]), "w": ("float32", [2])},
        {"y": ("float32", [2])},
        {"w": np.array([2, 3], np.float32)},
    )
    worker = make_worker(source, "cpu")
    worker.schedule([1, 1])
    np.testing.assert_array_equal(worker.peek_output().download_to_array(), [2, 3])
    with pytest.raises(InputError, match="'w' is a constant of model .* remove its initializer"):
        worker.schedule({"x": [1, 1], "w": [1, 1]})


def test_a_shape_from_computed_data_continues_without_a_wait(channel: str, make_worker: MakeWorker) -> None:
    """The size of the result depends on data: the run stops, reads back what it needs, and goes on."""
    dynamic = model(
        [
            node("ReduceMax", ["x"], ["top"], keepdims=1),
            node("Cast", ["top"], ["count"], to=7),
            node("Reshape", ["count", "one"], ["shape"]),
            node("ConstantOfShape", ["shape"], ["zeros"]),
            node("Add", ["zeros", "x1"], ["y"]),
        ],
        {"x": ("float32", [4]), "x1": ("float32", [1])},
        {"y": ("float32", None)},
        {"one": np.array([1], np.int64)},
    )
    worker = make_worker(dynamic, channel)
    outputs = []
    for count in (3, 5, 3):
        worker.schedule(np.array([1, count, 0, 2], np.float32), np.array([count], np.float32))
        outputs.append(worker.peek_output())
        outputs[-1].readback_request()
    assert outputs[-1].shape_or_none in (None, (3,))
    for count, output in zip((3, 5, 3), outputs, strict=True):
        assert output.download_to_array().tolist() == [count] * count


def test_fallback_is_reported_and_can_be_refused(channel: str, make_worker: MakeWorker) -> None:
    wide = model(
        [
            node("Relu", ["x"], ["r"]),
            node("Cast", ["r"], ["d"], to=11),
            node("Sqrt", ["d"], ["s"]),
            node("Cast", ["s"], ["y"], to=1),
        ],
        {"x": ("float32", [4])},
        {"y": ("float32", [4])},
    )
    if "float64" not in operator_support.lacking_types(channel):
        worker = make_worker(wide, channel)
        assert worker.plan_report().fallbacks == ()
    else:
        with pytest.raises(UnsupportedLayerError, match="float64"):
            make_worker(wide, channel)
        worker = make_worker(wide, channel, allow_fallback=True)
        report = worker.plan_report()
        assert report.fallbacks
        assert "float64" in report.fallbacks[0].reason
        assert "on the CPU" in str(report)
    worker.schedule(np.array([4, 9, -1, 2], np.float32))
    np.testing.assert_allclose(
        worker.peek_output().download_to_array(), np.sqrt([4.0, 9.0, 0.0, 2.0]).astype(np.float32)
    )


def test_outputs_that_are_inputs_or_constants_or_empty(channel: str, make_worker: MakeWorker) -> None:
    odd = model(
        [node("Identity", ["x"], ["same"]), node("Slice", ["x", "two", "two"], ["none"])],
        {"x": ("float32", [3])},
        {"same": ("float32", [3]), "two": ("int64", [1]), "none": ("float32", [0])},
        {"two": np.array([2], np.int64)},
    )
    worker = make_worker(odd, channel)
    worker.schedule(np.array([1, 2, 3], np.float32))
    assert worker.peek_output("same").download_to_array().tolist() == [1, 2, 3]
    assert worker.peek_output("two").download_to_array().tolist() == [2]
    assert worker.peek_output("none").download_to_array().shape == (0,)


def test_a_disposed_worker_says_so() -> None:
    worker = Worker(policy(), BackendType.CPU)
    worker.schedule(batch(0))
    output = worker.peek_output()
    worker.dispose()
    worker.dispose()
    for use in (lambda: worker.schedule(batch(0)), worker.peek_output, worker.plan_report):
        with pytest.raises(DisposedError, match="Worker was disposed"):
            use()
    with pytest.raises(DisposedError, match="worker that was disposed"):
        output.download_to_array()


def test_debug_mode_finds_computed_integers_beyond_32_bits(channel: str, make_worker: MakeWorker) -> None:
    product = model([node("Mul", ["x", "x"], ["sq"]), node("Mod", ["sq", "m"], ["y"])],
                    {"x": ("int64", [2])}, {"y": ("int64", [2])}, {"m": np.array([7], np.int64)})  # fmt: skip
    worker = make_worker(product, channel, debug=True)
    worker.schedule(np.array([3, 40_000]))
    assert worker.peek_output().download_to_array().tolist() == [2, 40_000**2 % 7]
    if not table.named(channel).load().keeps_int64:
        with pytest.raises(InputError, match="'sq' of layer 'sq_layer' holds 10000000000"):
            worker.schedule(np.array([3, 100_000]))


def test_what_is_never_disposed_is_reported_with_its_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GAMEGLUE_DEBUG", "1")
    worker = Worker(policy(), BackendType.CPU)  # the line that is named
    del worker
    gc.collect()
    (warning,) = [r.getMessage() for r in caplog.records if "never disposed" in r.getMessage()]
    assert "test_worker.py" in warning
    assert "the line that is named" in warning
    caplog.clear()
    with Worker(policy(), BackendType.CPU) as kept:
        kept.schedule(batch(0))
    del kept
    gc.collect()
    assert not caplog.records


def test_needs_that_arrive_one_after_another_are_kept() -> None:
    """The first layer needs two inputs on the host. Going on once dropped the first when the second came."""
    inputs = ["x", "roi", "", "sizes"]
    crop = model(
        [node("Resize", inputs, ["y"], coordinate_transformation_mode="tf_crop_and_resize")],
        {"x": ("float32", [1, 1, 4, 4]), "roi": ("float32", [8]), "sizes": ("int64", [4])},
        {"y": ("float32", None)},
    )
    with Worker(crop, BackendType.CPU) as worker:
        worker._session.host_inputs = frozenset()
        x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
        worker.schedule(x, np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32), np.array([1, 1, 2, 2]))
        assert worker.peek_output().download_to_array().tolist() == [[[[0, 3], [12, 15]]]]


def test_schedules_of_changing_shapes_never_meet_a_dropped_plan(
    channel: str, make_worker: MakeWorker
) -> None:
    """What a worker remembers of the last schedule, to skip checks, must go with the plan it is about."""
    made = model(
        [node("Mul", ["x", "x"], ["y"]), node("Add", ["x", "x"], ["z"])],
        {"x": ("float32", ["n"])}, {"y": ("float32", None), "z": ("float32", None)},
    )  # fmt: skip
    worker = make_worker(made, channel)
    for n in [1, 1, *range(2, 40), 1, 1, 5, 5, 5, 1]:
        x = np.arange(n, dtype=np.float32)
        worker.schedule(x)
        np.testing.assert_array_equal(worker.peek_output("y").download_to_array(), x * x)
        np.testing.assert_array_equal(worker.peek_output("z").download_to_array(), x + x)


def test_the_next_schedule_is_checked_like_the_first(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(
        model([node("Neg", ["x"], ["y"])], {"x": ("float32", [3])}, {"y": ("float32", [3])}), channel
    )
    x = np.array([1, 2, 3], np.float32)
    for _ in range(3):
        worker.schedule(x)
    for wrong in (x[:2], x.astype(np.int32), np.zeros((3, 1), np.float32)):
        with pytest.raises(InputError, match="input 'x' needs float32"):
            worker.schedule(wrong)
    worker.schedule([4.0, 5.0, 6.0])
    assert worker.peek_output().download_to_array().tolist() == [-4, -5, -6]
    worker.schedule(x)
    for given, options in (({"x": 2 * x},), {}), ((), {"x": 2 * x}):
        worker.schedule(*given, **options)
        assert worker.peek_output().download_to_array().tolist() == [-2, -4, -6]
    with pytest.raises(InputError, match="no input 'z'"):
        worker.schedule({"z": x})
    with pytest.raises(InputError, match="needs the input 'x'"):
        worker.schedule({})
    worker.schedule(x[::-1])
    output = worker.peek_output()
    output.readback_request()
    worker.schedule(x)
    assert output.download_to_array().tolist() == [-3, -2, -1]
    stale = worker.peek_output()
    worker.schedule(x)
    with pytest.raises(StaleTensorError):
        stale.download_to_array()
    worker.dispose()
    with pytest.raises(DisposedError):
        worker.schedule(x)
