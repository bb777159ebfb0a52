"""What a first network on a machine has compiled for it while it is read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu import precompile
from engine.device import native
from engine.device.jobs.builtin_commands import job_sources
from engine.device.native import NativeSource
from tests.graphs import node, proto


@pytest.mark.parametrize("is_certain", [True, False])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_new_machine_compiles_what_everybody_waits_for_together(
    monkeypatch: pytest.MonkeyPatch, is_new: bool, is_certain: bool
) -> None:
    begun: dict[str, list[str]] = {}

    def note(how: str, sources: Sequence[NativeSource]) -> None:
        begun[how] = [source.name for source in sources]

    monkeypatch.setattr(native.NativeStore, "prepare_async", lambda store, sources: note("wanted", sources))
    monkeypatch.setattr(native.NativeStore, "prepare_ahead", lambda store, sources: note("ahead", sources))
    monkeypatch.setattr(native.NativeStore, "is_kept", lambda store, source: not is_new)
    precompile.precompile_kernels.__wrapped__(is_certain)
    if not is_new:
        assert begun == {}
        return
    program = job_sources()[0].name  # everything waits for it
    assert begun["ahead"][0] == program
    assert {"transpose_panels", "winograd_weights", "copy", "fill"} <= set(begun["ahead"])
    assert begun.get("wanted") == ([program] if is_certain else None)


def test_what_was_compiled_is_kept() -> None:
    sources = job_sources()
    native.process_store().load(sources)
    assert all(native.process_store().is_kept(source) for source in sources)
    assert not native.process_store().is_kept(NativeSource("other", "", "kernel"))


FIRST_SCHEDULE = """
import sys
import numpy as np
from engine import ModelLoader, Worker
from engine.device.native import NativeStore

worker = Worker(ModelLoader.load(sys.argv[1]))
loaded = []
NativeStore.load = lambda store, sources, progress: loaded.extend(source.name for source in sources)
x = np.ones((64, 100), np.float32)
worker.schedule(x)
assert worker.peek_output().download_to_array().shape == (64, 100)
print("loaded:", *loaded)
"""


def test_the_first_schedule_loads_nothing(tmp_path: Path) -> None:
    """Neither where plans are made nor where they are read; a frame would wait for a compiler."""
    path = tmp_path / "model.onnx"
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Relu", ["p"], ["y"])]
    weights = {"w": np.ones((100, 100), np.float32)}
    path.write_bytes(proto(nodes, {"x": ("float32", [64, 100])}, {"y": ("float32", None)}, weights))
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", FIRST_SCHEDULE, str(path)],
            env={**os.environ, "GAMEGLUE_STORED_PLANS": "on"},
            capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        assert done.stdout.split("\n")[0] == "loaded:"
