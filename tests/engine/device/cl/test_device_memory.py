"""Device memory is freed on another thread, and none is lost or freed twice."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from engine.device.cl import device_memory
from engine.device.cl.device import CLDevice
from engine.device.cl.device_memory import BackgroundRelease, background_release
from engine.device.cl.native_calls import RELEASE, RETAIN

pytestmark = pytest.mark.opencl


class Calls:
    """Notes calls of OpenCL functions, and on which thread; those that release wait until they may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, int, bool]] = []
        self.may_release = threading.Event()
        main = threading.get_ident()

        def kind(name: str) -> object:
            def call(handle: int) -> None:
                if name == RELEASE:
                    self.may_release.wait(10)
                self.made.append((name, handle, threading.get_ident() == main))

            return call

        monkeypatch.setattr(device_memory, "address_of_function", lambda name: name)
        monkeypatch.setattr(device_memory, "_CALL", kind)
        monkeypatch.setattr(device_memory, "_WAITING_CALL", kind)


def test_the_last_reference_goes_on_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, release = Calls(monkeypatch), BackgroundRelease()
    for handle in (5, 6):
        release.release_later(handle)
    assert calls.made == [(RETAIN, 5, True), (RETAIN, 6, True)]
    calls.may_release.set()
    release.finish()
    assert calls.made[2:] == [(RELEASE, 5, False), (RELEASE, 6, False)]


def test_at_the_end_and_in_a_forked_child_no_thread_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, release = Calls(monkeypatch), BackgroundRelease()
    release.end()
    release.release_later(5)
    assert not calls.made
    release = BackgroundRelease()
    release.follow_fork()
    release.release_later(6)
    release.finish()
    assert calls.made == [(RETAIN, 6, True)]


def test_a_buffer_gives_its_memory_back_once(cl_device: CLDevice) -> None:
    background_release.finish()
    before = cl_device.context.reference_count
    dropped, released = cl_device.allocate(64), cl_device.allocate(64)
    if cl_device.context.reference_count == before:
        pytest.skip(f"objects do not show in the reference count of a context of {cl_device.info.platform}")
    assert cl_device.context.reference_count == before + 2
    released.release()
    del dropped, released
    background_release.finish()
    assert cl_device.context.reference_count == before


def test_a_buffer_that_could_not_be_made_is_not_given_back(cl_device: CLDevice) -> None:
    with pytest.raises(cl_device.cl.Error):
        cl_device.allocate(1 << 62)


ENDING = """
from engine.device.cl.device import CLDevice
device = CLDevice()
kept = [device.allocate(1 << 20) for _ in range(20)]
for buffer in kept[:10]:
    buffer.release()
"""


def test_a_process_ends_with_memory_that_is_being_freed(cl_device: CLDevice) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
