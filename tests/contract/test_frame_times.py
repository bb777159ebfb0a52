"""Frames with a network in flight on job threads take the main thread as long as frames without one.

Judged by medians, the best of several tries, and so widely that a busy machine passes; a wait of 5 ms in
every frame does not.
"""

from __future__ import annotations

import pytest

from tests.contract.test_no_blocking_calls import said_by

pytestmark = pytest.mark.gl

MOST_MS = 2.5
TRIES = 3


@pytest.mark.parametrize(
    "name", ["digits", *(pytest.param(name, marks=pytest.mark.long) for name in ("squeezenet", "resnet50"))]
)
def test_a_network_in_flight_costs_no_frame(name: str) -> None:
    found = []
    for _ in range(TRIES):
        (line,) = said_by("frame_times", "cpu", name)
        assert isinstance(line, dict)
        assert line["answers"] > 0
        found.append(line["with"][0] - line["without"][0])
        # On a busy machine frames without a network are late too.
        if found[-1] <= MOST_MS + line["without"][0] / 2:
            return
    raise AssertionError(f"frames took {found} ms longer at the median in {TRIES} tries")
