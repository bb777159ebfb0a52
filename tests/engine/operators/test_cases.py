"""ONNX's own operator cases: by NumPy evaluation for all, and on every backend.

`EXCEPTIONS` lists the cases that are not run, with the reason for each; any other case is expected to pass.
What runs on the CPU in place of a GPU is held too: cases over the types that every GPU has fall back for the
operators in `ON_THE_CPU` only.
"""

from __future__ import annotations

import fnmatch
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from engine import ModelLoader, Worker
from engine.base.dtypes import STORAGE_TYPES
from engine.compiler.interpreter import interpret
from tests.engine.conftest import CHANNELS, MakeWorker
from tests.onnx_cases import Case, all_cases, compare, disagreement, is_integer, stored_cases

GPUS = ("gl_compute", "gl_pixel", "opencl")
EVERYWHERE = ("numpy", *CHANNELS)

GPU_TYPES = frozenset({"float32", "int64", "int32", "bool"})
"""Element types that every backend computes with, to the same values."""

ON_THE_CPU = {
    "Unique": "how many distinct elements there are decides its work at every step",
}
"""Operators that may leave a GPU although their tensors have types that it knows, and why."""

COMPUTED_IN_FLOAT64 = (
    "test_attention_local_window_gqa_rank4_mask_expanded",
    "test_reduce_log_sum_exp_*_expanded",
)
"""Cases over 32-bit types whose layers convert to float64 on the way, which GLSL does not have."""

HELD = frozenset({*STORAGE_TYPES, "string", "sequence", "optional"})
"""What a model's inputs and outputs may be."""

Note = Callable[[str, object], None]
"""pytest's `record_property`: what `tests/conftest.py` adds up over all processes."""


@dataclass(frozen=True)
class Exemption:
    """Cases that a backend need not pass: their names' pattern, the reason, and where it holds."""

    pattern: str
    reason: str
    channels: tuple[str, ...] = EVERYWHERE


EXCEPTIONS = (
    Exemption("test_training_dropout", "what it expects was drawn by another generator"),
    Exemption("test_training_dropout_[!z]*", "what it expects was drawn by another generator"),
    Exemption("test_bernoulli*", "what it expects was drawn by another generator"),
    Exemption("test_bitcast_int64_to_float64", "GPUs hold 32 bits of an int64, a float64 has 64", GPUS),
    Exemption("test_PReLU_?d_multiparam", "ONNX's converter leaves the slopes of opset 6 as they are"),
    Exemption("test_gradient_of_*", "Gradient asks for the derivative of a graph; the engine runs inference"),
)

OWN_TOLERANCE = {
    "test_averagepool_2d_ceil_last_window_starts_on_pad": "its expected numbers are given to four decimals",
    "test_roialign_aligned_false": "its expected numbers are given to four decimals",
    "test_roialign_aligned_true": "its expected numbers are given to four decimals",
}
"""Cases that are compared within the bounds that they bring along, and why."""


HALFWAY = ("test_dynamicquantizelinear*",)
"""Cases with values halfway between two integers, by a scale that is a quotient.

Its last bit, and so the integer, is up to the graphics driver where GLSL computes it.
"""


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a case's name fits one of the patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def expected_on(case: Case, channel: str) -> bool:
    """Whether a case must pass: the engine has its operators, and no exception names it."""
    exempt = matches(case.name, (e.pattern for e in EXCEPTIONS if channel in e.channels))
    return not exempt and not case.missing and case.types <= HELD


CASES = [c for c in all_cases() if expected_on(c, "numpy")]
STORED = [c for c in stored_cases() if expected_on(c, "numpy")]
ON_BACKENDS = [
    (c, channel) for c in (*all_cases(), *stored_cases()) for channel in CHANNELS if expected_on(c, channel)
]
LEAST, LEAST_OF_GPU_TYPES = 1873, 1368
"""How many cases each backend has to pass, of all and of those over `GPU_TYPES`."""

SHARE = 30
"""One case in so many runs on a backend every day; the long suite runs them all on all backends."""


def is_everyday(case: Case, channel: str) -> bool:
    """Whether a case is of the everyday share, and on which backend."""
    number, rest = divmod(zlib.crc32(case.name.encode()), SHARE)
    return rest == 0 and CHANNELS[number % len(CHANNELS)] == channel


def labelled(pairs: list[tuple[Case, str]]) -> list[Any]:
    """The pairs as test parameters."""
    return [pytest.param(case, channel, id=f"{case.name}-{channel}") for case, channel in pairs]


def check(case: Case, actual: Any, expected: Any, bound: float, channel: str = "numpy") -> None:
    """Compare one output: kind, shape, element type and values."""
    if channel.startswith("gl_") and matches(case.name, HALFWAY) and is_integer(expected.dtype):
        np.testing.assert_allclose(actual.astype(int), expected.astype(int), rtol=0, atol=1)
    elif case.name in OWN_TOLERANCE:
        np.testing.assert_allclose(actual, expected, rtol=case.rtol, atol=1e-4)
    else:
        compare(actual, expected, bound)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_definition_gives_onnx_s_answer(case: Case, record_property: Note) -> None:
    model = case.model()
    for inputs, outputs in case.data_sets:
        results = interpret(model, inputs)
        for declared, expected in zip(model.outputs, outputs, strict=True):
            check(case, results[declared.name], expected, 1e-5)
    record_property("case", ["numpy", []])


def kernels(worker: Worker) -> list[str]:
    """The keys of all kernels that a worker has recorded plans with."""
    found: set[str] = set()
    waiting = [*worker._session.cache.plans.values()]
    while waiting:
        recorded = waiting.pop()
        waiting.extend(recorded.continuations.values())
        found.update(step.kernel.key for segment in recorded.lowered.segments for step in segment.plan.steps)
    return sorted(found)


def run_on(case: Case, channel: str, make_worker: MakeWorker, note: Note) -> None:
    """Run a case's model on a backend, and see what of it ran on the CPU."""
    worker = make_worker(ModelLoader.load(case.proto.SerializeToString()), channel, allow_fallback=True)
    for inputs, outputs in case.data_sets:
        worker.schedule(dict(inputs))
        found = worker.take_outputs()
        for declared, expected in zip(worker.model.outputs, outputs, strict=True):
            bound = 1e-5 if channel == "cpu" else 1e-4
            check(case, found[declared.name], expected, bound, channel)
        if case.types <= GPU_TYPES and not matches(case.name, COMPUTED_IN_FLOAT64):
            fallbacks = worker.plan_report().fallbacks
            left = [f for f in fallbacks if not {*f.op_type.split("+")} & ON_THE_CPU.keys()]
            assert not left, f"runs on the CPU: {left[0].op_type}: {left[0].reason}"
    note("case", [channel, kernels(worker)])


@pytest.mark.parametrize(("case", "channel"), labelled([p for p in ON_BACKENDS if is_everyday(*p)]))
def test_backends_give_onnx_s_answer(
    case: Case, channel: str, make_worker: MakeWorker, record_property: Note
) -> None:
    run_on(case, channel, make_worker, record_property)


@pytest.mark.long
@pytest.mark.parametrize(("case", "channel"), labelled([p for p in ON_BACKENDS if not is_everyday(*p)]))
def test_backends_give_onnx_s_answer_to_every_case(
    case: Case, channel: str, make_worker: MakeWorker, record_property: Note
) -> None:
    run_on(case, channel, make_worker, record_property)


@pytest.mark.long
@pytest.mark.parametrize("case", STORED, ids=lambda c: c.name)
def test_the_definition_gives_the_stored_answer(case: Case, record_property: Note) -> None:
    test_the_definition_gives_onnx_s_answer(case, record_property)


@pytest.mark.parametrize(
    ("actual", "expected", "error"),
    [
        (np.array(["a", "b"], object), np.array(["a", "b"], object), 0.0),
        (np.array(["a"], object), np.array(["b"], object), np.inf),
        (np.array([2**64 - 2], np.uint64), np.array([2**64 - 1], np.uint64), 1.0),
        (np.array([True]), np.array([False]), 1.0),
        (np.array([1.0, 20.0], np.float32), np.array([1.0, 10.0], np.float32), 1.0),
        (np.array([np.nan], np.float32), np.array([1.0], np.float32), np.inf),
        (np.zeros((1, 2), np.float32), np.zeros(2, np.float32), np.inf),
        (np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32), 0.0),
    ],
)
def test_a_difference_is_seen(actual: np.ndarray, expected: np.ndarray, error: float) -> None:
    assert disagreement(actual, expected) == error


@pytest.mark.parametrize("channel", CHANNELS)
def test_most_cases_have_to_pass(channel: str) -> None:
    """Each of the cases counted here is a test of its own, in the everyday share or the long suite."""
    assert sum(expected_on(case, channel) for case in all_cases()) >= LEAST
    of_gpu_types = [case for case in all_cases() if case.types <= GPU_TYPES]
    assert sum(expected_on(case, channel) for case in of_gpu_types) >= LEAST_OF_GPU_TYPES


def test_every_exception_names_a_case() -> None:
    names = [case.name for case in (*all_cases(), *stored_cases())]
    patterns = [*(e.pattern for e in EXCEPTIONS), *COMPUTED_IN_FLOAT64]
    idle = [pattern for pattern in patterns if not fnmatch.filter(names, pattern)]
    assert not idle
    assert set(OWN_TOLERANCE) <= set(names)
