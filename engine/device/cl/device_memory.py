"""Frees device memory on another thread, as drivers block until it is no longer used.

NVIDIA's waits in `clReleaseMemObject` for all that was enqueued, others give pages back to the system. The
object's destructor still runs where it is dropped, but leaves a last reference to the thread.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import os
import threading
from functools import cache
from typing import Any

from engine.device.cl.native_calls import RELEASE, RETAIN, address_of_function

# The second lets go of the GIL, as it may wait.
_CALL = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_WAITING_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


class BackgroundRelease:
    """Releases memory objects on a thread that runs while there are any."""

    def __init__(self) -> None:
        # Reentrant: a destructor may run wherever its thread allocates.
        self._changed = threading.Condition(threading.RLock())
        self._handles: list[int] = []
        self._is_running = self._is_ending = self._is_forked = False

    def release_later(self, handle: int) -> None:
        """Keep a memory object alive that is about to be released, and release it on the thread."""
        release = address_of_function(RELEASE)
        if self._is_ending or not release:
            return
        _CALL(address_of_function(RETAIN))(handle)
        if self._is_forked:
            return  # for good: its driver's threads are the parent's
        with self._changed:
            self._handles.append(handle)
            if self._is_running:
                return
            self._is_running = True
        # `Thread.start` would wait until the other runs.
        _thread.start_new_thread(self._run, (_WAITING_CALL(release),))

    def finish(self) -> None:
        """Block until all are released."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_running)

    def end(self) -> None:
        """Block until all are released; later ones are by their own destructors. For the end of a process."""
        self._is_ending = True
        self.finish()

    def follow_fork(self) -> None:
        """In a forked child, which lacks the thread: release nothing more."""
        self._changed = threading.Condition(threading.RLock())
        self._is_running, self._is_forked = False, True

    def _run(self, release: Any) -> None:
        while True:
            with self._changed:
                if not self._handles:
                    self._is_running = False
                    self._changed.notify_all()
                    return
                handle = self._handles.pop(0)
            release(handle)


background_release = BackgroundRelease()
atexit.register(background_release.end)


@cache
def device_memory_class(cl: Any) -> Any:
    """The `pyopencl.Buffer` that is freed on another thread."""

    class DeviceMemory(cl.Buffer):
        """A buffer whose memory the background frees."""

        _is_released = True

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._is_released = False

        def release(self) -> None:
            """Let go of the memory, which is freed once nothing enqueued uses it."""
            self._hand_over()
            super().release()

        def __del__(self) -> None:
            self._hand_over()

        def _hand_over(self) -> None:
            if not self._is_released:
                self._is_released = True
                background_release.release_later(self.int_ptr)

    return DeviceMemory


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=background_release.follow_fork)
