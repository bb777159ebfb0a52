"""Fixtures in which tests play demos; see `tests.demos.playing`."""

from __future__ import annotations

from collections.abc import Iterator

import moderngl
import pytest

from tests.demos.playing import Play, playing


@pytest.fixture
def play_undrawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """`play_undrawn(build, script, **options)`: a demo on the CPU, without OpenGL."""
    monkeypatch.setenv("GAMEGLUE_NO_OPENGL", "1")
    with playing(headless=True) as play:
        yield play


@pytest.fixture
def play_drawn(game: moderngl.Context) -> Iterator[Play]:
    """`play_drawn(build, script, kind=..., **options)`: a demo that draws in the process's OpenGL context."""
    with playing(context=game) as play:
        yield play
