"""The collector runs less often while plans are made, not while modules are imported, and as before then."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from engine.base.garbage_collection import collecting_rarely, imported, importing


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    """Python's own thresholds, which are restored."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_thresholds_are_higher_until_the_last_block_ends(thresholds: tuple[int, int, int]) -> None:
    with collecting_rarely():
        inside = gc.get_threshold()
        assert inside[0] > thresholds[0]
        with collecting_rarely():
            pass
        assert gc.get_threshold() == inside
    assert gc.get_threshold() == thresholds


@pytest.mark.parametrize("own", [(0, 10, 10), (100_000, 10, 10)])
def test_a_game_that_collects_by_itself_goes_on_so(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with collecting_rarely():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


def test_thresholds_that_are_set_within_a_block_stay() -> None:
    with collecting_rarely():
        gc.set_threshold(900, 5, 5)
    assert gc.get_threshold() == (900, 5, 5)


def test_what_is_imported_goes_to_the_oldest_generation() -> None:
    # All tests are run with what was imported before them frozen.
    gc.unfreeze()
    with importing():
        kept: list[list[int]] = [[] for _ in range(5000)]
        assert not gc.isenabled()
    assert gc.isenabled()
    oldest = {id(x) for x in gc.get_objects(generation=2)}
    gc.freeze()
    assert {id(x) for x in kept} <= oldest


def test_what_is_imported_already_costs_no_look_at_frozen_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("it counts them one by one"))
    assert imported("engine.base.errors") is sys.modules["engine.base.errors"]


def test_what_a_program_has_frozen_stays_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    with importing():
        pass
    assert gc.get_freeze_count() == frozen


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with importing():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
