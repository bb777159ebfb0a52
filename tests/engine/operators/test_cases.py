"""ONNX's own operator cases: by NumPy evaluation for all, and on every backend.

`EXCEPTIONS` lists the cases that are not run or run with another bound, with the reason for each; a case of
an operator that the engine has is otherwise expected to pass.
"""

from __future__ import annotations

import fnmatch
import zlib

import numpy as np
import pytest

from engine import ModelLoader
from engine.compiler.interpret import interpret
from engine.operators import OPERATORS
from tests.engine.conftest import MakeWorker
from tests.onnx_cases import Case, all_cases, disagreement

EXCEPTIONS = {
    "test_training_dropout*": "training mode draws random numbers; the engine runs inference",
    "test_*_string*": "strings are not numbers",
    "test_strnorm*": "strings are not numbers",
    "test_not_?d": "the case declares opset 1; the engine reads 7 and newer",
}

OWN_TOLERANCE = {
    "test_averagepool_2d_ceil_last_window_starts_on_pad": "its expected numbers are given to four decimals",
    "test_roialign_aligned_false": "its expected numbers are given to four decimals",
    "test_roialign_aligned_true": "its expected numbers are given to four decimals",
}


def exception(case: Case) -> str | None:
    """Why a case is left out, or None."""
    return next((why for pattern, why in EXCEPTIONS.items() if fnmatch.fnmatchcase(case.name, pattern)), None)


HAVE = {op.name for op in OPERATORS}
CASES = [c for c in all_cases() if c.op_type in HAVE and exception(c) is None]
SHORT = [c for c in CASES if zlib.crc32(c.name.encode()) % 12 == 0]
"""A twelfth of the cases, for the everyday run; the long suites run them all."""


def check(case: Case, actual: np.ndarray, expected: np.ndarray, bound: float) -> None:
    """Compare one output: shape, dtype and values."""
    assert actual.dtype == expected.dtype
    if case.name in OWN_TOLERANCE:
        np.testing.assert_allclose(actual, expected, rtol=case.rtol, atol=case.atol)
    else:
        narrow = expected.dtype.itemsize < 4 and expected.dtype.kind not in "iub"
        assert disagreement(actual, expected) <= (2e-3 if narrow else bound)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_definition_gives_onnx_s_answer(case: Case) -> None:
    model = case.model()
    for inputs, outputs in case.data_sets:
        results = interpret(model, inputs)
        for declared, expected in zip(model.outputs, outputs, strict=True):
            check(case, results[declared.name], expected, 1e-5)


def run_on(case: Case, channel: str, make_worker: MakeWorker) -> None:
    """Run a case's model on a backend."""
    model = ModelLoader.load(case.proto.SerializeToString())
    wide = any(d.dtype == np.float64 for inputs, outs in case.data_sets for d in (*inputs.values(), *outs))
    worker = make_worker(model, channel, allow_fallback=wide)
    for inputs, outputs in case.data_sets:
        worker.schedule(dict(inputs))
        for declared, expected in zip(model.outputs, outputs, strict=True):
            actual = worker.peek_output(declared.name).download_to_array()
            check(case, actual, expected, 1e-5 if channel == "cpu" else 1e-4)


@pytest.mark.parametrize("case", SHORT, ids=lambda c: c.name)
def test_backends_give_onnx_s_answer(case: Case, channel: str, make_worker: MakeWorker) -> None:
    run_on(case, channel, make_worker)


@pytest.mark.long
@pytest.mark.parametrize("case", [c for c in CASES if c not in SHORT], ids=lambda c: c.name)
def test_backends_give_onnx_s_answer_to_every_case(case: Case, channel: str, make_worker: MakeWorker) -> None:
    run_on(case, channel, make_worker)
