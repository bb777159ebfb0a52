"""Model files with something changed load and run, or end in an error of ours, in bounded time and memory."""

from __future__ import annotations

import os

import pytest

from tests.bounded import judged, run_bounded
from tests.mutated_files import mutated_files, run_mutated
from tests.odd_layers import from_cases, starts

COUNT = int(os.environ.get("GAMEGLUE_MUTATIONS", "2000"))
"""How many files the long suite tries."""


def test_a_sample_of_mutated_files_is_answered_or_refused() -> None:
    layers = [start for found in from_cases().values() for start in found]
    cases = mutated_files(150, layers, compiled=0.0)
    faults = [
        f"{label}: {r}" for label, c in cases if (r := judged(run_mutated, c)) not in ("answer", "refused")
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.long
def test_mutated_files_are_answered_or_refused_in_time_and_memory() -> None:
    cases = mutated_files(COUNT, starts(), seed=1)
    _, warm_up = next(mutated_files(1, starts()))
    outcomes = run_bounded(run_mutated, cases, processes=2, warm_up=warm_up)
    faults = [f"{o.label}: {o.result}" for o in outcomes if o.is_fault]
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:50]])
