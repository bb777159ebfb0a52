"""Off-screen OpenGL contexts, and advice for when they cannot be created."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import glcontext
import moderngl

from engine.device.gl.counting import loader_wrapper
from engine.device.gl.functions import GL
from gameglue.graphics.current_context import SYSTEM, release_current_context

FORCE_OFF = "GAMEGLUE_NO_OPENGL"
"""Set this environment variable to play as on a machine without OpenGL."""

# 4.3 brings compute shaders; 3.3 is enough to draw and for the GPU_PIXEL backend.
VERSIONS = (430, 330)

_COLOR_BUFFER_BIT = 0x4000


def open_offscreen_context() -> tuple[moderngl.Context | None, str]:
    """Open a context without a window; returns it, or `None` and the reasons."""
    if os.environ.get(FORCE_OFF, "") not in ("", "0"):
        return None, f"switched off by {FORCE_OFF}"
    release_current_context()
    # EGL needs no display; the platform's own way (a hidden window) is what other systems have.
    backends = ("egl", None) if SYSTEM == "Linux" else (None,)
    reasons = []
    for backend in backends:
        if backend is None and SYSTEM == "Linux" and not os.environ.get("DISPLAY"):
            continue
        for version in VERSIONS:
            try:
                return _open(backend, version), ""
            except Exception as error:  # noqa: BLE001 - moderngl raises bare Exception for a missing driver
                reasons.append(f"{backend or 'native'} {version // 100}.{version // 10 % 10}: {error}")
    return None, "; ".join(dict.fromkeys(reasons))


def _open(backend: str | None, version: int) -> moderngl.Context:
    wrap = loader_wrapper()
    if wrap is None:
        settings: dict[str, Any] = {"backend": backend} if backend is not None else {}
        return moderngl.create_context(require=version, standalone=True, **settings)
    find = glcontext.get_backend_by_name
    opener = glcontext.default_backend() if backend is None else find(backend)
    loader = wrap(opener(mode="standalone", glversion=version))
    create: Any = moderngl.create_context
    ctx: moderngl.Context = create(require=version, context=loader)
    return ctx


def flush_call(ctx: moderngl.Context) -> Callable[[], object]:
    """The context's `glFlush`, which moderngl does not expose.

    Without a window nothing else does so: on a software renderer, frames would pile up and be drawn all at
    once (0.6 s at a time was measured).
    """
    flush = _function(ctx, "glFlush")
    return flush if flush is not None else lambda: None


def resolve_call(ctx: moderngl.Context) -> Callable[[moderngl.Framebuffer, moderngl.Framebuffer], None]:
    """A function that resolves a multisampled framebuffer into another of the same size.

    moderngl's own way asks the driver which framebuffer is bound, which waits on some. Afterwards the caller
    has to bind one.
    """
    bind = _function(ctx, "glBindFramebuffer", ctypes.c_uint, ctypes.c_uint)
    blit = _function(ctx, "glBlitFramebuffer", *[ctypes.c_int] * 8, ctypes.c_uint, ctypes.c_uint)
    if bind is None or blit is None:
        return lambda source, destination: ctx.copy_framebuffer(destination, source)

    def resolve(source: moderngl.Framebuffer, destination: moderngl.Framebuffer) -> None:
        bind(GL.READ_FRAMEBUFFER, source.glo)
        bind(GL.DRAW_FRAMEBUFFER, destination.glo)
        area = (0, 0, *source.size)
        blit(*area, *area, _COLOR_BUFFER_BIT, GL.NEAREST)

    return resolve


def _function(ctx: moderngl.Context, name: str, *arguments: type) -> Callable[..., object] | None:
    """An OpenGL function without a result, by name; `None` if the context has no address for it."""
    loader = getattr(ctx.mglo, "_context", None)
    address = loader.load_opengl_function(name) if loader is not None else 0
    # OpenGL has a calling convention of its own on 32-bit Windows.
    kind: Any = getattr(ctypes, "WINFUNCTYPE", ctypes.CFUNCTYPE)
    return kind(None, *arguments)(address) if address else None


def how_to_get_opengl() -> str:
    """Instructions for installing OpenGL on this system."""
    if SYSTEM == "Linux":
        return (
            "apt install libegl1 libgl1 libgl1-mesa-dri  (Fedora: dnf install mesa-libEGL mesa-libGL "
            "mesa-dri-drivers; Arch: pacman -S mesa libglvnd)"
        )
    if SYSTEM == "Windows":
        return "install the graphics card maker's driver, or Mesa's opengl32.dll for software rendering"
    return "macOS brings OpenGL 4.1; a session with access to the window server is needed"
