"""The mark `spread`: sets of parameters run with one backend, or one value of others, every day."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

from engine.backends import table
from tests.conftest import ROOT

FILE = "tests/engine/operators/test_scan_with_batches.py"
TEST = f"{FILE}::test_sequences_of_a_batch"


def collected(*options: str, test: str = TEST) -> set[str]:
    """The tests of a function that pytest chooses."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *options, test]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    return {line for line in run.stdout.splitlines() if line.startswith(test)}


def test_each_set_of_parameters_runs_on_one_backend_every_day_and_on_the_others_in_the_long_suite() -> None:
    everyday, long = collected(), collected("-m", "long")
    backends = {entry.name for entry in table.BACKENDS}
    sets = ("whole sequences", "with lengths")
    assert everyday | long == {f"{TEST}[{one}-{backend}]" for one in sets for backend in backends}
    assert not everyday & long
    assert sorted(re.sub(r"-\w+\]$", "", name) for name in everyday) == [f"{TEST}[{one}" for one in sets]


def test_what_a_keyword_chooses_runs_on_all_backends() -> None:
    assert len(collected("-k", "sequences_of_a_batch")) == 2 * len(table.BACKENDS)


def test_named_parameters_take_turns_together_and_values_of_the_long_suite_have_none() -> None:
    everyday = collected(test="tests/engine/kernels/test_semantics.py::test_integer_functions")
    sets, types = zip(*(name.rstrip("]").rsplit("-", 1) for name in everyday), strict=True)
    assert len(set(sets)) == len(sets)
    assert Counter(types) == {"int32": len(sets) / 2, "int64": len(sets) / 2}
