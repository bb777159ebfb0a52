"""`PendingFences`: tracks unfinished work in an OpenGL context by fences."""

from __future__ import annotations

from collections import deque

import moderngl

from engine import DeviceError
from engine.device.gl.fence import has_passed
from engine.device.gl.functions import GL, GLFunctions


class PendingFences:
    """Fences after each frame and each piece of enqueued work, oldest first.

    Its context must be current in every call. Where the context cannot tell the address of a function,
    nothing is ever pending.
    """

    def __init__(self, ctx: moderngl.Context) -> None:
        loader = getattr(ctx.mglo, "_context", None)
        self._gl = GLFunctions(loader) if loader is not None else None
        self._fences: deque[int] = deque()

    def mark(self) -> None:
        """Insert a fence after the commands issued so far, and flush."""
        if self._gl is not None:
            self._fences.append(self._gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0))
            # A fence that never left for the GPU is never passed.
            self._gl.glFlush()

    def count(self) -> int:
        """How many marks the GPU has not reached; never waits."""
        try:
            while self._gl is not None and self._fences:
                if not has_passed(self._gl.glClientWaitSync(self._fences[0], 0, 0)):
                    break
                self._gl.glDeleteSync(self._fences.popleft())
        except DeviceError:
            # The context was lost: who draws next finds out, and nobody is to wait for its images.
            self._fences.clear()
        return len(self._fences)

    def release(self) -> None:
        """Delete the fences."""
        while self._gl is not None and self._fences:
            self._gl.glDeleteSync(self._fences.popleft())
