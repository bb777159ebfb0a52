"""Random graphs against onnxruntime: what fusion, placement and signatures may get wrong together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest

from engine import ModelLoader
from engine.backends import table
from engine.compiler.interpreter import interpret
from engine.compiler.trace import Tracer
from engine.device.cl.device import CLDevice
from engine.device.gl.device import GLDevice
from tests.engine.compiler.running import kernel_keys, run_fused
from tests.engine.conftest import MakeWorker
from tests.networks import error
from tests.peer import open_session
from tests.random_graphs import GIVEN, RandomGraph, long_seeds

onnxruntime.set_default_logger_severity(4)

Answers = list[dict[str, np.ndarray]]

QUICK = range(30)
QUICK_BACKENDS = range(3)
LONG = long_seeds(200)
"""The graphs of the long suite; more of them on demand."""
LONG_BACKENDS = LONG if GIVEN else LONG[::5]
"""Those that run on every backend: all that somebody asked for, a fifth without."""


def reference(graph: RandomGraph) -> Answers:
    """onnxruntime's outputs at each setting, without its own fusions."""
    session = open_session(graph.source, threads=1, optimised=False)
    names = [o.name for o in session.get_outputs()]
    return [dict(zip(names, session.run(None, feeds), strict=True)) for feeds in graph.feeds]


def compare(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray], graph: RandomGraph) -> None:
    for name, array in expected.items():
        assert actual[name].shape == array.shape, name
        assert actual[name].dtype == array.dtype, name
        if array.dtype.kind == "f":
            assert error(actual[name].astype(np.float32), array.astype(np.float32)) < graph.tolerance, name
        else:
            np.testing.assert_array_equal(actual[name], array, err_msg=name)


def check_numpy(seed: int) -> None:
    graph = RandomGraph(seed, length=18)
    model = ModelLoader.load(graph.source)
    for feeds, expected in zip(graph.feeds, reference(graph), strict=True):
        compare(interpret(model, feeds), expected, graph)
        for fan_in in (3, 15):
            compare(run_fused(model, feeds, fan_in), expected, graph)


def check_backend(seed: int, channel: str, make_worker: MakeWorker, **options: Any) -> None:
    graph = RandomGraph(seed)
    worker = make_worker(ModelLoader.load(graph.source), channel, **options)
    answers = reference(graph)
    order = [*range(len(answers)), *reversed(range(len(answers)))]
    pending = []
    for k in order:
        worker.schedule(graph.feeds[k])
        outputs = {name: worker.peek_output(name) for name in answers[k]}
        for tensor in outputs.values():
            tensor.readback_request()
        pending.append(outputs)
    for k, outputs in zip(order, pending, strict=True):
        compare({name: tensor.download_to_array() for name, tensor in outputs.items()}, answers[k], graph)


def check_kernels(seed: int) -> None:
    """What loading prepares is all that the model needs at any size."""
    graph = RandomGraph(seed, length=18)
    tracer = Tracer(ModelLoader.load(graph.source))
    if len(tracer.samples) <= 2:
        # It takes few sizes, or those that are found all have a 1: the others compile when they come.
        return
    prepared = {key for shapes in tracer.representatives() for key in kernel_keys(tracer, shapes)}
    for feeds in graph.feeds:
        shapes = {name: array.shape for name, array in feeds.items()}
        if prepared:
            assert set(kernel_keys(tracer, shapes)) <= prepared


@pytest.mark.parametrize("seed", QUICK)
def test_new_sizes_need_no_new_kernels(seed: int) -> None:
    check_kernels(seed)


@pytest.mark.parametrize("seed", QUICK)
def test_formulas_with_and_without_fusion(seed: int) -> None:
    check_numpy(seed)


@pytest.mark.parametrize("seed", QUICK_BACKENDS)
def test_every_backend(seed: int, channel: str, make_worker: MakeWorker) -> None:
    check_backend(seed, channel, make_worker)


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG)
def test_formulas_and_kernels_at_length(seed: int) -> None:
    check_kernels(seed)
    check_numpy(seed)


@pytest.fixture
def device(channel: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A device for one test: it holds its programs, of which thousands of graphs have tens of GB."""
    kind = table.named(channel).device
    if kind not in ("gl", "opencl"):
        yield kind
        return
    made = GLDevice(request.getfixturevalue("game")) if kind == "gl" else CLDevice()
    yield made
    made.dispose()


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_BACKENDS)
def test_every_backend_at_length(seed: int, channel: str, device: Any, make_worker: MakeWorker) -> None:
    check_backend(seed, channel, make_worker, device=device)
