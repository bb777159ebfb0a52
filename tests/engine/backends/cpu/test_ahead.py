"""What a first network on a machine has compiled for it while it is read."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine import native
from engine.backends.cpu import ahead
from engine.jobs.system import job_sources
from engine.native import NativeSource


@pytest.mark.parametrize("is_certain", [True, False])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_new_machine_compiles_what_everybody_waits_for_together(
    monkeypatch: pytest.MonkeyPatch, is_new: bool, is_certain: bool
) -> None:
    begun: dict[str, list[str]] = {}

    def note(how: str, sources: Sequence[NativeSource]) -> None:
        begun[how] = [source.name for source in sources]

    monkeypatch.setattr(native, "prepare_async", lambda sources: note("wanted", sources))
    monkeypatch.setattr(native, "prepare_ahead", lambda sources: note("ahead", sources))
    monkeypatch.setattr(native, "is_kept", lambda source: not is_new)
    ahead.compile_ahead.__wrapped__(is_certain)
    if not is_new:
        assert begun == {}
        return
    program = job_sources()[0].name  # everything waits for it
    assert begun["ahead"][0] == program
    assert {"turn_panels", "winograd_weights", "copy", "fill"} <= set(begun["ahead"])
    assert begun.get("wanted") == ([program] if is_certain else None)


def test_what_was_compiled_is_kept() -> None:
    sources = job_sources()
    native.load(sources)
    assert all(native.is_kept(source) for source in sources)
    assert not native.is_kept(NativeSource("other", "", "kernel"))
