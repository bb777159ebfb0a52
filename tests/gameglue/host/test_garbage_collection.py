"""What a game has loaded is not searched for garbage while it runs; what it makes is."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from gameglue import App, MonoBehaviour
from gameglue.host import garbage_collection
from gameglue.host.garbage_collection import freeze_garbage_collector


@pytest.fixture(autouse=True)
def outermost(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No block is open but those of the test: the session holds one, see `tests/conftest.py`."""
    monkeypatch.setattr(garbage_collection, "_blocks", 0)
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


class Knot:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_what_was_there_is_left_alone_until_the_end() -> None:
    frozen = gc.get_freeze_count()
    early = weakref.ref(Knot())
    gc.collect()
    assert early() is None  # garbage of before is not kept
    knot = Knot()
    early = weakref.ref(knot)
    with freeze_garbage_collector():
        assert gc.get_freeze_count() > frozen
        del knot
        late = weakref.ref(Knot())
        gc.collect()
        assert early() is not None
        assert late() is None
    gc.collect()
    assert early() is None


def test_inner_blocks_end_with_the_outermost() -> None:
    before = gc.get_freeze_count()
    with freeze_garbage_collector():
        kept = gc.get_freeze_count()
        late = weakref.ref(Knot())
        with freeze_garbage_collector():
            # Nothing is collected or added, so runs of a few frames each cost nothing.
            assert late() is not None
            assert gc.get_freeze_count() <= kept
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() <= before


def test_an_app_keeps_it_while_it_runs() -> None:
    counts = []

    class Counting(MonoBehaviour):
        def update(self) -> None:
            counts.append(gc.get_freeze_count())

    before = gc.get_freeze_count()
    with App("garbage", headless=True) as app:
        app.scene.create("counting").add_component(Counting)
        app.run(2)
    assert min(counts) > before
    assert gc.get_freeze_count() <= before


def test_only_long_runs_begin_with_a_collection() -> None:
    with App("garbage", headless=True) as app:
        gc.disable()
        try:
            kept = weakref.ref(Knot())
            app.run(2)
            assert kept() is not None
            app.run(60)
            assert kept() is None
        finally:
            gc.enable()
