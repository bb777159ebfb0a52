"""Time steps that a plan holds once: against onnxruntime, and against a plan that holds each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Model, Worker
from engine.backends.gl.compute.backend import GLComputeBackend
from engine.backends.opencl.backend import OpenCLBackend
from tests.engine.conftest import CHANNELS, MakeWorker, answers
from tests.engine.operators.independent import by_onnxruntime
from tests.engine.operators.single import one_layer
from tests.engine.operators.test_recurrent import inputs_of
from tests.engine.runtime.plans.test_symbolic_plans import count_plans
from tests.onnx_cases import disagreement

Arrays = list[np.ndarray | None]
WEIGHTS = (1, 2, 3)

# With what the CPU's kernel for all steps does not take: lengths, a clip, or weights that are inputs.
LAYERS: dict[str, tuple[str, Arrays, dict[str, Any]]] = {
    "RNN": ("RNN", inputs_of("RNN", 9, 2, 3, 4), {"clip": 0.9}),
    "GRU": ("GRU", inputs_of("GRU", 10, 1, 3, 5, "reverse"), {"direction": "reverse"}),
    "GRU as Keras and PyTorch have it": (
        "GRU", inputs_of("GRU", 11, 3, 3, 4, "bidirectional"),
        {"direction": "bidirectional", "linear_before_reset": 1, "clip": 1.5},
    ),
    "LSTM": ("LSTM", inputs_of("LSTM", 13, 1, 3, 6), {}),
    "sequences of their own lengths": (
        "LSTM", inputs_of("LSTM", 12, 4, 3, 5, "bidirectional", [12, 0, 5, 9]),
        {"direction": "bidirectional", "clip": 0.7},
    ),
    "batch first": (
        "LSTM",
        [
            a if a is None or i in (1, 2, 3, 4, 7) else np.ascontiguousarray(a.swapaxes(0, 1))
            for i, a in enumerate(inputs_of("LSTM", 8, 3, 3, 4))
        ],
        {"layout": 1},
    ),
}  # fmt: skip


def outputs_of(worker: Worker, arrays: Arrays) -> list[np.ndarray]:
    """All outputs for the arrays that are inputs of the model."""
    names = [item.name for item in worker.model.inputs]
    return answers(worker, {name: array for name in names if (array := arrays[int(name[1:])]) is not None})


def layer(
    kind: str, known: tuple[int, ...] = WEIGHTS, **options: Any
) -> tuple[Model, Arrays, dict[str, Any]]:
    """One of `LAYERS`: its model, inputs and attributes."""
    op_type, arrays, attributes = LAYERS[kind]
    assert arrays[2] is not None
    attributes = {"hidden_size": arrays[2].shape[2], **attributes}
    outputs = 3 if op_type == "LSTM" else 2
    return one_layer(op_type, arrays, attributes, outputs=outputs, known=known, **options), arrays, attributes


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are steps of their own on every backend, so that they use the kernels of a plan that holds all."""
    monkeypatch.setattr("engine.backends.opencl.backend._MOST_WORK", {"cpu": 0, "gpu": 0})
    monkeypatch.setattr("engine.backends.gl.compute.backend._MOST_WORK", 0)


@pytest.fixture(params=["gl_compute", "opencl-cpu", "opencl-gpu"])
def single(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A backend whose plans run small repeats as one kernel, in each of its forms."""
    channel, _, form = str(request.param).partition("-")
    if form:
        monkeypatch.setattr(OpenCLBackend.__init__, "__kwdefaults__", {"form": form, "pinned": None})
    else:
        monkeypatch.setattr(GLComputeBackend.__init__, "__kwdefaults__", {"texels": False})
    return channel


def repeats(worker: Worker) -> bool:
    """Whether any plan of a worker repeats steps."""
    return any(s.plan.repeats for plan in worker._plans for s in plan.segments)


@pytest.mark.spread
@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("kind", LAYERS)
def test_steps_that_repeat_yield_what_all_steps_do(
    kind: str, channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, arrays, attributes = layer(kind, opset=21)
    repeating = make_worker(made, channel)
    monkeypatch.setattr("engine.operators.loop_rolling.REPEATED", 1 << 30)
    unrolled = make_worker(made, channel)
    assert repeating.plan_report().steps < unrolled.plan_report().steps
    rng = np.random.default_rng(0)
    for _ in range(2):
        expected = outputs_of(unrolled, arrays)
        for one, other in zip(outputs_of(repeating, arrays), expected, strict=True):
            np.testing.assert_array_equal(one, other)
        if "layout" not in attributes:  # onnxruntime has it for no kind of layer
            by_others = by_onnxruntime(made.layers[0].op_type, arrays, attributes, outputs=len(expected))
            for one, other in zip(expected, by_others, strict=True):
                assert disagreement(one, other) < 2e-6
        assert arrays[0] is not None
        arrays = [rng.normal(size=arrays[0].shape).astype(np.float32), *arrays[1:]]


@pytest.mark.spread("single")
@pytest.mark.parametrize("kind", LAYERS)
def test_runs_in_one_kernel_yield_what_single_steps_do(
    kind: str, single: str, make_worker: MakeWorker, request: pytest.FixtureRequest
) -> None:
    """Products of single steps add up in another order."""
    made, arrays, _ = layer(kind, opset=21)
    at_once = make_worker(made, single)
    outputs = outputs_of(at_once, arrays)
    request.getfixturevalue("one_by_one")
    apart = make_worker(made, single)
    for one, other in zip(outputs, outputs_of(apart, arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    assert repeats(apart)
    assert not repeats(at_once)


@pytest.mark.spread("single")
@pytest.mark.parametrize("steps", [63, 64, 65, 130])
def test_a_kernel_goes_through_some_runs_at_a_time(steps: int, single: str, make_worker: MakeWorker) -> None:
    """States are where the next dispatch looks for them."""
    arrays = inputs_of("LSTM", steps, 2, 3, 4)
    made = one_layer("LSTM", arrays, {"hidden_size": 4}, opset=21, outputs=3, known=WEIGHTS)
    worker = make_worker(made, single)
    expected = by_onnxruntime("LSTM", arrays, {"hidden_size": 4}, outputs=3)
    for _ in range(2):
        for one, other in zip(outputs_of(worker, arrays), expected, strict=True):
            assert disagreement(one, other) < 2e-6
    assert not repeats(worker)


def test_numbers_of_a_kernel_may_be_in_a_buffer(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.backends.opencl.codegen.printer._ARGUMENT_BYTES", 64)
    arrays = inputs_of("LSTM", 70, 2, 3, 4)
    made = one_layer("LSTM", arrays, {"hidden_size": 4}, opset=21, outputs=3, known=WEIGHTS)
    worker = make_worker(made, "opencl")
    expected = by_onnxruntime("LSTM", arrays, {"hidden_size": 4}, outputs=3)
    for one, other in zip(outputs_of(worker, arrays), expected, strict=True):
        assert disagreement(one, other) < 2e-6
    assert not repeats(worker)


def test_dispatches_of_one_kernel_may_be_apart(single: str, make_worker: MakeWorker) -> None:
    arrays = inputs_of("GRU", 200, 1, 3, 4)
    made = one_layer("GRU", arrays, {"hidden_size": 4}, opset=21, outputs=2, known=WEIGHTS)
    worker = make_worker(made, single)
    expected = outputs_of(worker, arrays)
    schedule = worker.schedule_iterable({i.name: arrays[int(i.name[1:])] for i in made.inputs})
    while not schedule.is_done:
        schedule.advance(0.0, force=True)
    for output, other in zip(made.outputs, expected, strict=True):
        np.testing.assert_array_equal(schedule.output(output.name).download_to_array(), other)


def test_one_kernel_serves_all_lengths_and_batches(single: str, make_worker: MakeWorker) -> None:
    """Where the work of a run is open, the plan has both ways."""
    arrays = [*inputs_of("GRU", 20, 2, 3, 4)[:4], None, None]
    made = one_layer("GRU", arrays, {"hidden_size": 4}, opset=21, outputs=2, known=WEIGHTS, dynamic=[0, 1])
    worker = make_worker(made, single)
    outputs_of(worker, arrays)
    planned = count_plans(worker)
    for steps, batch in ((9, 1), (70, 2), (8, 3000), (150, 5), (20, 2)):
        arrays = [*inputs_of("GRU", steps, batch, 3, 4, seed=steps)[:1], *arrays[1:]]
        expected = by_onnxruntime("GRU", arrays, {"hidden_size": 4}, outputs=2)
        for one, other in zip(outputs_of(worker, arrays), expected, strict=True):
            assert disagreement(one, other) < 2e-6
    assert not planned


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_plan_does_not_grow_with_the_length(channel: str, make_worker: MakeWorker) -> None:
    counts = set()
    for steps in (10, 1001):
        arrays = inputs_of("LSTM", steps, 1, 3, 4)
        attributes = {"hidden_size": 4, "clip": 5.0}
        made = one_layer("LSTM", arrays, attributes, opset=21, outputs=3, known=WEIGHTS)
        worker = make_worker(made, channel)
        counts.add(worker.plan_report().steps)
        expected = by_onnxruntime("LSTM", arrays, attributes, outputs=3)
        for one, other in zip(outputs_of(worker, arrays), expected, strict=True):
            assert disagreement(one, other) < 1e-5
    assert len(counts) == 1


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("channel", CHANNELS)
def test_half_precision_and_odd_widths(
    channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elements that share a word, and states that fill no texel."""
    arrays = [None if a is None else a.astype(np.float16) for a in inputs_of("LSTM", 9, 1, 3, 5)]
    made = one_layer("LSTM", arrays, {"hidden_size": 5}, opset=21, outputs=3, known=WEIGHTS)
    found = outputs_of(make_worker(made, channel), arrays)
    monkeypatch.setattr("engine.operators.loop_rolling.REPEATED", 1 << 30)
    for one, other in zip(found, outputs_of(make_worker(made, channel), arrays), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("channel", CHANNELS)
def test_weights_that_are_inputs(channel: str, make_worker: MakeWorker) -> None:
    made, arrays, attributes = layer("sequences of their own lengths", (), opset=21)
    expected = by_onnxruntime("LSTM", arrays, attributes, outputs=3)
    for one, other in zip(outputs_of(make_worker(made, channel), arrays), expected, strict=True):
        assert disagreement(one, other) < 2e-6


@pytest.mark.parametrize("channel", CHANNELS)
def test_one_plan_serves_all_lengths(channel: str, make_worker: MakeWorker) -> None:
    arrays = inputs_of("GRU", 20, 2, 3, 4)
    arrays = [*arrays[:4], None, None]
    made = one_layer("GRU", arrays, {"hidden_size": 4}, opset=21, outputs=2, known=WEIGHTS, dynamic=[0])
    worker = make_worker(made, channel)
    outputs_of(worker, arrays)
    planned = count_plans(worker)
    for steps in (9, 33, 8, 50, 20):
        arrays = [*inputs_of("GRU", steps, 2, 3, 4, seed=steps)[:1], *arrays[1:]]
        expected = by_onnxruntime("GRU", arrays, {"hidden_size": 4}, outputs=2)
        for one, other in zip(outputs_of(worker, arrays), expected, strict=True):
            assert disagreement(one, other) < 2e-6
    assert not planned


@pytest.mark.parametrize("channel", CHANNELS)
def test_runs_may_be_cut_anywhere(channel: str, make_worker: MakeWorker) -> None:
    arrays = inputs_of("LSTM", 25, 2, 3, 6, "bidirectional")
    attributes = {"hidden_size": 6, "direction": "bidirectional"}
    made = one_layer("LSTM", arrays, attributes, opset=21, outputs=3, known=WEIGHTS)
    worker = make_worker(made, channel)
    expected = outputs_of(worker, arrays)
    given = {item.name: arrays[int(item.name[1:])] for item in made.inputs}
    rng = np.random.default_rng(1)
    for _ in range(3):
        schedule = worker.schedule_iterable(given)
        while not schedule.is_done:
            schedule.advance(float(rng.exponential(0.05)), force=True)
        for output, other in zip(made.outputs, expected, strict=True):
            np.testing.assert_array_equal(schedule.output(output.name).download_to_array(), other)
        for one, other in zip(outputs_of(worker, arrays), expected, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("channel", CHANNELS)
def test_what_a_backend_refuses_is_repeated_on_the_cpu(channel: str, make_worker: MakeWorker) -> None:
    """OpenGL has no float64."""
    counts = set()
    for steps in (9, 900):
        arrays = [None if a is None else a.astype(np.float64) for a in inputs_of("GRU", steps, 1, 3, 4)]
        made = one_layer("GRU", arrays, {"hidden_size": 4}, opset=21, outputs=2, known=WEIGHTS)
        worker = make_worker(made, channel, allow_fallback=True)
        counts.add(worker.plan_report().steps)
        narrow = [None if a is None else a.astype(np.float32) for a in arrays]
        expected = by_onnxruntime("GRU", narrow, {"hidden_size": 4}, outputs=2)
        for one, other in zip(outputs_of(worker, arrays), expected, strict=True):
            assert disagreement(one.astype(np.float32), other) < 1e-5
    assert len(counts) == 1
