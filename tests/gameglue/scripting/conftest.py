"""An app for tests that leave nothing behind in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gameglue import (
    App,
)


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    """An app that all rows of the table share: a mistake changes nothing."""
    with App("mistakes", headless=True, size=(64, 48)) as made:
        yield made
