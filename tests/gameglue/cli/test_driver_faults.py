"""What `gameglue doctor` knows about faults of OpenGL drivers."""

from __future__ import annotations

import pytest

from engine.device.gl.limits import GLInfo
from gameglue.cli.driver_faults import driver_faults

SWITCHES = {"ZINK_INLINE_UNIFORMS": "0", "GALLIUM_THREAD": "0"}


def info(renderer: str, version: str) -> GLInfo:
    return GLInfo(renderer, "Mesa", version, 460, frozenset())


@pytest.mark.parametrize(
    ("renderer", "version"),
    [
        ("llvmpipe (LLVM 15.0.6, 256 bits)", "4.5 (Core Profile) Mesa 22.3.6"),
        ("zink Vulkan 1.3(llvmpipe)", "4.6 (Core Profile) Mesa 24.0.1"),
        ("zink of another maker", "4.6"),
    ],
)
def test_other_drivers_have_no_known_fault(renderer: str, version: str) -> None:
    assert driver_faults(info(renderer, version), {}) == []


def test_zink_of_an_old_mesa_needs_two_switches() -> None:
    zink = info("zink (llvmpipe (LLVM 15.0.6, 256 bits))", "4.6 (Core Profile) Mesa 22.3.6")
    assert driver_faults(zink, SWITCHES) == []
    for name in SWITCHES:
        (fault,) = driver_faults(zink, {**SWITCHES, name: "1"})
        assert f"set {name}=0" in fault
    assert len(driver_faults(zink, {})) == 2
