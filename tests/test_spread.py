"""The mark `spread`: a set of parameters runs on one backend every day, on the others in the long suite."""

from __future__ import annotations

import re
import subprocess
import sys

from engine.backends import table
from tests.conftest import ROOT

FILE = "tests/engine/operators/test_scan_with_batches.py"
TEST = f"{FILE}::test_sequences_of_a_batch"


def collected(*options: str) -> set[str]:
    """The tests of the file that pytest chooses."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *options, FILE]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    return {line for line in run.stdout.splitlines() if line.startswith(TEST)}


def test_each_set_of_parameters_runs_on_one_backend_every_day_and_on_the_others_in_the_long_suite() -> None:
    everyday, long = collected(), collected("-m", "long")
    backends = {entry.name for entry in table.BACKENDS}
    sets = ("whole sequences", "with lengths")
    assert everyday | long == {f"{TEST}[{one}-{backend}]" for one in sets for backend in backends}
    assert not everyday & long
    assert sorted(re.sub(r"-\w+\]$", "", name) for name in everyday) == [f"{TEST}[{one}" for one in sets]


def test_what_a_keyword_chooses_runs_on_all_backends() -> None:
    assert len(collected("-k", "sequences_of_a_batch")) == 2 * len(table.BACKENDS)
