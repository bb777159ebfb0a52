"""Counts the blocking OpenGL calls of a frame loop, for tests and profiles."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from engine.device.gl.functions import FUNCTION_TYPE, GL

# Every OpenGL function with integer and pointer arguments only fits this on 64-bit machines: the callee
# reads as many as it has. No blocking function has a float argument.
_ARGUMENTS = 12
_THUNK = FUNCTION_TYPE(ctypes.c_uint64, *[ctypes.c_uint64] * _ARGUMENTS)
_Forward = Callable[..., int]

_INDEXED_TARGETS = (GL.UNIFORM_BUFFER, GL.SHADER_STORAGE_BUFFER)
_WORK = ("glDispatchCompute", "glDrawArrays", "glDrawElements", "glDrawRangeElements", "glMultiDraw")
_READY_WHEN_COMPLETE = ("glGetQueryObject", "glGetShader", "glGetProgramiv")


class CountingLoader:
    """A loader that hands out functions which count blocking calls and pass everything on.

    Give it to `moderngl.create_context(context=...)` for the game's own context, or to
    `GLDevice(ctx, loader_wrapper=CountingLoader)` for the device's. One loader
    follows the state of one context.

    A call blocks if it is `glFinish`, `glClientWaitSync` with a timeout above 0, `glReadPixels` or
    `glGetTexImage` without a pack buffer, `glGetBufferSubData`, any other `glGet*` (a query's result once
    it is available, a link or compile status once complete, and the question whether they are, excepted),
    or if it maps or overwrites a buffer that the GPU may still use. Whether it may is followed through
    copies, reads, indexed bindings and fences; a vertex buffer counts as used by every later draw until a
    fence after that draw has signalled.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.counts: Counter[str] = Counter()
        self._thunks: dict[str, Any] = {}
        self._bound: dict[int, int] = {}
        self._indexed: dict[tuple[int, int], int] = {}
        self._vertex_buffers: set[int] = set()
        self._work = 0
        self._finished = 0
        self._last_use: dict[int, int] = {}
        self._fences: dict[int, int] = {}
        self._ready: set[tuple[str, int]] = set()
        self._hooks: dict[str, Callable[[_Forward, Any], int]] = {
            "glFinish": self._finish,
            "glClientWaitSync": self._client_wait_sync,
            "glFenceSync": self._fence_sync,
            "glDeleteSync": self._delete_sync,
            "glReadPixels": partial(self._read_into_pack_buffer, "glReadPixels"),
            "glGetTexImage": partial(self._read_into_pack_buffer, "glGetTexImage"),
            "glBindBuffer": self._bind_buffer,
            "glBindBufferBase": self._bind_buffer_indexed,
            "glBindBufferRange": self._bind_buffer_indexed,
            "glBufferData": self._buffer_data,
            "glBufferSubData": partial(self._touch_buffer, "glBufferSubData"),
            "glCopyBufferSubData": self._copy_buffer_sub_data,
            "glDeleteBuffers": self._delete_buffers,
            "glMapBuffer": partial(self._touch_buffer, "glMapBuffer"),
            "glMapBufferRange": self._map_buffer,
            "glVertexAttribPointer": self._vertex_attrib_pointer,
        }

    @property
    def total(self) -> int:
        """Blocking calls counted so far."""
        return self.counts.total()

    @contextmanager
    def watching(self) -> Iterator[Counter[str]]:
        """Context manager: counts within the block; the yielded counts are filled at its end."""
        before = self.counts.copy()
        seen: Counter[str] = Counter()
        try:
            yield seen
        finally:
            seen.update(self.counts - before)

    def load_opengl_function(self, name: str) -> int:
        """The address of a counting function, or of the driver's own if nothing is counted."""
        address: int = self._loader.load_opengl_function(name)
        hook = self._issue_work if name.startswith(_WORK) else self._hooks.get(name)
        if not address or (hook is None and not name.startswith("glGet")):
            return address
        if name not in self._thunks:
            self._thunks[name] = self._thunk(name, address, hook)
        return ctypes.cast(self._thunks[name], ctypes.c_void_p).value or 0

    def __enter__(self) -> object:
        entered: object = self._loader.__enter__()
        return entered

    def __exit__(self, *exception: object) -> None:
        self._loader.__exit__(*exception)

    def release(self) -> None:
        """Release the context behind the loader; called by moderngl."""
        self._loader.release()

    def _thunk(self, name: str, address: int, hook: Callable[[_Forward, Any], int] | None) -> Any:
        forward: _Forward = _THUNK(address)
        if hook is not None:
            known = hook
            return _THUNK(lambda *arguments: known(forward, arguments))
        return _THUNK(lambda *arguments: self._get(name, forward, arguments))

    def _get(self, name: str, forward: _Forward, arguments: Any) -> int:
        if name.startswith(_READY_WHEN_COMPLETE):
            return self._get_object(name, forward, arguments)
        self.counts[name] += 1
        return forward(*arguments)

    def _get_object(self, name: str, forward: _Forward, arguments: Any) -> int:
        """A query, shader or program may be asked if it is ready, and anything once it is."""
        kind = "query" if "Query" in name else "shader" if "Shader" in name else "program"
        key = (kind, arguments[0] & 0xFFFFFFFF)
        question = arguments[1] & 0xFFFFFFFF
        asks_ready = question in (GL.QUERY_RESULT_AVAILABLE, GL.COMPLETION_STATUS)
        if not asks_ready and key not in self._ready:
            self.counts[name] += 1
        result = forward(*arguments)
        if asks_ready and ctypes.cast(arguments[2], ctypes.POINTER(ctypes.c_int))[0]:
            self._ready.add(key)
        return result

    def _finish(self, forward: _Forward, arguments: Any) -> int:
        self.counts["glFinish"] += 1
        result = forward(*arguments)
        self._finished = self._work
        return result

    def _client_wait_sync(self, forward: _Forward, arguments: Any) -> int:
        if arguments[2]:
            self.counts["glClientWaitSync"] += 1
        status = forward(*arguments)
        if status & 0xFFFFFFFF in (GL.ALREADY_SIGNALED, GL.CONDITION_SATISFIED):
            self._finished = max(self._finished, self._fences.get(arguments[0], 0))
        return status

    def _fence_sync(self, forward: _Forward, arguments: Any) -> int:
        fence = forward(*arguments)
        self._fences[fence] = self._work
        return fence

    def _delete_sync(self, forward: _Forward, arguments: Any) -> int:
        self._fences.pop(arguments[0], None)
        return forward(*arguments)

    def _read_into_pack_buffer(self, name: str, forward: _Forward, arguments: Any) -> int:
        buffer = self._bound.get(GL.PIXEL_PACK_BUFFER, 0)
        if buffer:
            self._use(buffer)
        else:
            self.counts[name] += 1
        return forward(*arguments)

    def _bind_buffer(self, forward: _Forward, arguments: Any) -> int:
        self._bound[arguments[0] & 0xFFFFFFFF] = arguments[1] & 0xFFFFFFFF
        return forward(*arguments)

    def _bind_buffer_indexed(self, forward: _Forward, arguments: Any) -> int:
        target, index, buffer = (argument & 0xFFFFFFFF for argument in arguments[:3])
        self._bound[target] = buffer
        if target in _INDEXED_TARGETS:
            self._indexed[target, index] = buffer
        return forward(*arguments)

    def _vertex_attrib_pointer(self, forward: _Forward, arguments: Any) -> int:
        self._vertex_buffers.add(self._bound.get(GL.ARRAY_BUFFER, 0))
        return forward(*arguments)

    def _issue_work(self, forward: _Forward, arguments: Any) -> int:
        self._use(*self._indexed.values(), *self._vertex_buffers)
        return forward(*arguments)

    def _buffer_data(self, forward: _Forward, arguments: Any) -> int:
        # New storage: what the GPU still uses stays with the driver.
        self._last_use.pop(self._bound.get(arguments[0] & 0xFFFFFFFF, 0), None)
        return forward(*arguments)

    def _touch_buffer(self, name: str, forward: _Forward, arguments: Any) -> int:
        if self._is_busy(arguments[0]):
            self.counts[name] += 1
        return forward(*arguments)

    def _copy_buffer_sub_data(self, forward: _Forward, arguments: Any) -> int:
        targets = (arguments[0] & 0xFFFFFFFF, arguments[1] & 0xFFFFFFFF)
        self._use(*(self._bound.get(target, 0) for target in targets))
        return forward(*arguments)

    def _delete_buffers(self, forward: _Forward, arguments: Any) -> int:
        names = ctypes.cast(arguments[1], ctypes.POINTER(ctypes.c_uint))
        gone = {names[i] for i in range(arguments[0] & 0xFFFFFFFF)}
        self._vertex_buffers -= gone
        self._bound = {key: buffer for key, buffer in self._bound.items() if buffer not in gone}
        self._indexed = {key: buffer for key, buffer in self._indexed.items() if buffer not in gone}
        for name in gone:
            self._last_use.pop(name, None)
        return forward(*arguments)

    def _map_buffer(self, forward: _Forward, arguments: Any) -> int:
        access = arguments[3] & 0xFFFFFFFF
        may_wait = not access & GL.MAP_UNSYNCHRONIZED_BIT and not access & GL.MAP_INVALIDATE_BUFFER_BIT
        if may_wait and self._is_busy(arguments[0]):
            self.counts["glMapBufferRange"] += 1
        return forward(*arguments)

    def _use(self, *buffers: int) -> None:
        self._work += 1
        for buffer in buffers:
            self._last_use[buffer] = self._work

    def _is_busy(self, target: int) -> bool:
        return self._last_use.get(self._bound.get(target & 0xFFFFFFFF, 0), 0) > self._finished


class CountedContexts:
    """The counting loaders of the contexts that were made."""

    def __init__(self) -> None:
        self.loaders: list[CountingLoader] = []

    def wrap(self, loader: Any) -> CountingLoader:
        """Wrap `loader` in one that counts."""
        counting = CountingLoader(loader)
        self.loaders.append(counting)
        return counting

    @property
    def counts(self) -> Counter[str]:
        """Blocking calls so far by name, of all contexts."""
        return sum((loader.counts for loader in self.loaders), Counter())


_counting: list[CountedContexts] = []


@contextmanager
def counting_gl_calls() -> Iterator[CountedContexts]:
    """Count in every `GLDevice`, and in every context that asks `loader_wrapper`, made within a block.

    The counted functions take a microsecond or two longer, also after the block.
    """
    contexts = CountedContexts()
    _counting.append(contexts)
    try:
        yield contexts
    finally:
        _counting.remove(contexts)


def loader_wrapper() -> Callable[[Any], CountingLoader] | None:
    """The wrapper for the loader of a new context; None if nothing is counted."""
    return _counting[-1].wrap if _counting else None
