"""The soak runs, finds nothing on any backend, and would find what grows."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import moderngl
import pytest

from engine.device.cl.device import CLDevice
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL
from tests.benchmarks.holdings import Holdings, ObjectLoader, growth, held
from tests.benchmarks.processes import ROOT
from tests.contract.place import CHANNELS

NONE = Holdings(*[0] * len(fields(Holdings)))


def soak(channel: str, schedules: int, timeout: float) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.soak", "--backend", channel]
    command += ["--schedules", str(schedules)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing has grown" in done.stdout
    assert "raised" not in done.stderr


@pytest.mark.long
@pytest.mark.gl
@pytest.mark.opencl
@pytest.mark.parametrize(
    "channel", [c if c == "cpu" else pytest.param(c, marks=pytest.mark.long) for c in CHANNELS]
)
def test_nothing_grows(channel: str) -> None:
    soak(channel, 300, 250)


@pytest.mark.long
@pytest.mark.gl
@pytest.mark.opencl
@pytest.mark.parametrize("channel", CHANNELS)
def test_nothing_grows_for_long(channel: str) -> None:
    soak(channel, 5000, 900)


@pytest.mark.parametrize("name", [item.name for item in fields(Holdings)])
def test_growth_of_anything_is_told(name: str) -> None:
    allowed = replace(NONE, **{name: 5})
    assert growth(NONE, replace(NONE, **{name: 5}), allowed) == []
    assert growth(replace(NONE, **{name: 9}), NONE, allowed) == []
    (problem,) = growth(NONE, replace(NONE, **{name: 6}), allowed)
    assert problem.startswith(name)


@pytest.mark.gl
def test_opengl_objects_are_counted_by_kind(game: moderngl.Context) -> None:
    loaders: list[ObjectLoader] = []

    def wrap(loader: Any) -> ObjectLoader:
        loaders.append(ObjectLoader(loader))
        return loaders[-1]

    with GLDevice(game, loader_wrapper=wrap) as device, device.current():
        alive, before = loaders[0].alive, loaders[0].alive.copy()
        buffer = device.ctx.buffer(reserve=16)
        fence = device.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
        shader = device.gl.glCreateShader(0x8B31)  # a vertex shader
        assert alive - before == {"Buffers": 1, "Sync": 1, "Shader": 1}
        buffer.release()
        device.gl.glDeleteSync(fence)
        device.gl.glDeleteShader(shader)
        assert alive.total() == before.total()
        device.gl.glDeleteSync(None)
        assert alive.total() == before.total()


@pytest.mark.opencl
def test_opencl_objects_are_counted(cl_device: CLDevice) -> None:
    before = held(None, cl_device, settled=True).cl_objects
    flags = cl_device.cl.mem_flags.READ_WRITE
    buffers = [cl_device.cl.Buffer(cl_device.context, flags, 64) for _ in range(5)]
    if cl_device.context.reference_count == 1:
        pytest.skip(f"objects do not show in the reference count of a context of {cl_device.info.platform}")
    assert held(None, cl_device, settled=False).cl_objects == before + 5
    buffers.clear()
    assert held(None, cl_device, settled=True).cl_objects == before
