"""Whole networks give onnxruntime's output on every backend, with no fallback, and respond to their input."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest

from engine import Model, ModelLoader
from tests.engine.conftest import MakeWorker, answers
from tests.networks import (
    LIGHT_NAMES,
    MADE,
    TRAINED_NAMES,
    Inputs,
    bounds,
    error,
    light_inputs,
    light_network,
    made_inputs,
    trained_inputs,
    trained_path,
)

FLOOR = {"cpu": 1e-5, "gl_compute": 1e-4, "gl_pixel": 1e-4, "opencl": 1e-4}

SLOW = ("style_transfer", "mobilenet_v2", "selfie_segmentation_landscape", "super_resolution_x3")
"""Those that take seconds to compile, or software renderers to run: for the long suite."""


def _by_duration(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in names]


def compare(
    source: str | bytes, inputs: Callable[[int], Inputs], channel: str, make_worker: MakeWorker
) -> None:
    """Two different inputs through one worker, each against onnxruntime."""
    model: Model = ModelLoader.load(source)
    worker = make_worker(model, channel, allow_fallback=True)
    seen = []
    for seed in (1, 2):
        feeds = inputs(seed)
        expected, allowed = bounds(source, feeds, FLOOR[channel])
        worker.schedule(feeds)
        for output in model.outputs:
            actual = worker.peek_output(output.name).download_to_array()
            assert error(actual, expected[output.name]) <= allowed[output.name], output.name
        seen.append(expected[model.outputs[0].name])
    changed = seen[0].shape != seen[1].shape or error(seen[0], seen[1]) > 1e-3
    assert changed, "the network does not respond to its input, so this test would prove nothing"
    report = worker.plan_report()
    # Mesa's renderers on the CPU end a shader's loops after 65,535 rounds; a norm over 256 x 256 has more.
    assert all("rounds of a loop" in fallback.reason for fallback in report.fallbacks)
    assert not report.transfers or report.fallbacks


@pytest.mark.parametrize("name", _by_duration(TRAINED_NAMES))
def test_trained_models_agree_with_onnxruntime(name: str, channel: str, make_worker: MakeWorker) -> None:
    path = trained_path(name)
    if not path.exists():
        pytest.skip(f"the folder of trained models is not here ({path.parent.name}/{path.name})")
    compare(str(path), lambda seed: trained_inputs(name, seed), channel, make_worker)


@pytest.mark.spread
@pytest.mark.parametrize("name", _by_duration(MADE))
def test_made_networks_agree_with_onnxruntime(name: str, channel: str, make_worker: MakeWorker) -> None:
    compare(MADE[name](), lambda seed: made_inputs(name, seed), channel, make_worker)


def _light(name: str, channel: str, make_worker: MakeWorker) -> None:
    source = light_network(name)
    proto = onnx.load_from_string(source)
    try:
        compare(source, lambda seed: light_inputs(proto, seed), channel, make_worker)
    finally:
        gc.collect()


@pytest.mark.parametrize("name", LIGHT_NAMES[:1])
def test_light_networks_agree_with_onnxruntime(name: str, channel: str, make_worker: MakeWorker) -> None:
    _light(name, channel, make_worker)


@pytest.mark.long
@pytest.mark.parametrize("name", LIGHT_NAMES[1:])
def test_large_light_networks_agree_with_onnxruntime(
    name: str, channel: str, make_worker: MakeWorker
) -> None:
    _light(name, channel, make_worker)


def test_a_chain_of_layers_finishes_while_python_is_busy(make_worker: MakeWorker) -> None:
    """Nothing between `schedule` and the flag that a poll reads needs the GIL.

    The main thread runs pure Python without a pause, with the interval at which Python gives up the GIL set
    beyond the test's length; job threads that needed it would not get it before the loop ends.
    """
    import sys
    import time

    from engine import JobSystem
    from tests.graphs import node, proto

    size = 256
    weights = (np.eye(size) * 0.9).astype(np.float32)
    names = ["x", *(f"m{i}" for i in range(20))]
    nodes = [node("MatMul", [a, "w"], [b]) for a, b in pairwise(names)]
    chain = proto(
        nodes, {"x": ("float32", [size, size])}, {names[-1]: ("float32", [size, size])}, {"w": weights}
    )
    with JobSystem(2) as jobs:
        worker = make_worker(ModelLoader.load(chain), "cpu", jobs=jobs)
        x = np.ones((size, size), np.float32)
        answers(worker, x)
        worker.schedule(x)
        output = worker.peek_output()
        interval = sys.getswitchinterval()
        sys.setswitchinterval(60)
        try:
            output.readback_request()
            started = time.perf_counter()
            spins = 0
            while not output.is_readback_request_done():
                spins += 1
                assert time.perf_counter() - started < 30, "the jobs wait for the GIL"
        finally:
            sys.setswitchinterval(interval)
        np.testing.assert_allclose(output.download_to_array(), 0.9**20, rtol=1e-4)
        worker.dispose()
