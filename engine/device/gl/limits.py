"""Limits and properties of an OpenGL context, queried once when a device is created."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from engine.device.gl.functions import GL, GLFunctions

_AS_GRAPHICS_CARD = os.environ.get("GAMEGLUE_GL_AS_GRAPHICS_CARD", "") not in ("", "0")
"""For tests: take a renderer on the CPU for a graphics card, so that what is meant for one runs."""

UNLIMITED = 2**31 - 1
"""A limit that no shader reaches."""

# Mesa's llvmpipe compiles this number into its shaders (LP_MAX_TGSI_LOOP_ITERATIONS), and lavapipe the same.
LLVMPIPE_ROUNDS = 65_535


@dataclass(frozen=True)
class GLLimits:
    """Limits of an OpenGL context; sizes in bytes unless said. Compute limits are 0 before OpenGL 4.3."""

    max_texture_size: int
    """Largest width and height of a texture, in texels."""
    max_texture_image_units: int
    """Textures that one fragment shader can read."""
    max_fragment_uniform_components: int
    """32-bit numbers in the default uniform block of a fragment shader."""
    max_storage_block_size: int = 0
    max_compute_storage_blocks: int = 0
    """Storage buffers that one compute shader can use."""
    max_storage_buffer_bindings: int = 0
    storage_buffer_offset_alignment: int = 0
    max_compute_group_count: tuple[int, int, int] = (0, 0, 0)
    max_compute_texture_image_units: int = 0
    max_loop_rounds: int = UNLIMITED
    """Rounds of all its loops together after which the driver ends the loops of a shader call."""

    @classmethod
    def query(cls, gl: GLFunctions, version_code: int) -> GLLimits:
        """Query the current context."""

        def integer(name: int) -> int:
            value = ctypes.c_int64(0)
            gl.glGetInteger64v(name, ctypes.byref(value))
            return value.value

        def triple(name: int) -> tuple[int, int, int]:
            values = (ctypes.c_int * 3)()
            for axis in range(3):
                gl.glGetIntegeri_v(name, axis, ctypes.byref(values, 4 * axis))
            return values[0], values[1], values[2]

        renderer = (gl.glGetString(GL.RENDERER) or b"").decode("utf-8", "replace")
        limits = cls(
            max_texture_size=integer(GL.MAX_TEXTURE_SIZE),
            max_texture_image_units=integer(GL.MAX_TEXTURE_IMAGE_UNITS),
            max_fragment_uniform_components=integer(GL.MAX_FRAGMENT_UNIFORM_COMPONENTS),
            max_loop_rounds=LLVMPIPE_ROUNDS if "llvmpipe" in renderer.lower() else UNLIMITED,
        )
        if version_code < 430:
            return limits
        return replace(
            limits,
            max_storage_block_size=integer(GL.MAX_SHADER_STORAGE_BLOCK_SIZE),
            max_compute_storage_blocks=integer(GL.MAX_COMPUTE_SHADER_STORAGE_BLOCKS),
            max_storage_buffer_bindings=integer(GL.MAX_SHADER_STORAGE_BUFFER_BINDINGS),
            storage_buffer_offset_alignment=integer(GL.SHADER_STORAGE_BUFFER_OFFSET_ALIGNMENT),
            max_compute_group_count=triple(GL.MAX_COMPUTE_WORK_GROUP_COUNT),
            max_compute_texture_image_units=integer(GL.MAX_COMPUTE_TEXTURE_IMAGE_UNITS),
        )

    def restricted_to(self, other: GLLimits) -> GLLimits:
        """The stricter of two sets of limits, field by field."""
        merged: dict[str, Any] = {}
        for limit in fields(self):
            mine, theirs = getattr(self, limit.name), getattr(other, limit.name)
            pick: Callable[..., int] = max if limit.name.endswith("alignment") else min
            merged[limit.name] = (
                tuple(map(pick, mine, theirs)) if isinstance(mine, tuple) else pick(mine, theirs)
            )
        return GLLimits(**merged)


@dataclass(frozen=True)
class GLInfo:
    """Properties of an OpenGL context."""

    renderer: str
    vendor: str
    version: str
    version_code: int
    """330 for OpenGL 3.3."""
    extensions: frozenset[str] = field(repr=False)

    @property
    def is_software(self) -> bool:
        """Whether the CPU does the drawing: llvmpipe, softpipe, SwiftShader, Windows' own renderer."""
        if _AS_GRAPHICS_CARD:
            return False
        names = (
            "llvmpipe",
            "softpipe",
            "swrast",
            "software rasterizer",
            "swiftshader",
            "gdi generic",
            "lavapipe",
        )
        return any(name in self.renderer.lower() for name in names)

    @property
    def supports_compute(self) -> bool:
        """Whether compute shaders with storage buffers exist: OpenGL 4.3."""
        return self.version_code >= 430

    @property
    def has_buffer_storage(self) -> bool:
        """Whether buffers can stay mapped while the GPU uses them: OpenGL 4.4 or its extension."""
        return self.version_code >= 440 or "GL_ARB_buffer_storage" in self.extensions

    @property
    def has_program_binary(self) -> bool:
        """Whether linked programs can be stored: OpenGL 4.1 or its extension."""
        return self.version_code >= 410 or "GL_ARB_get_program_binary" in self.extensions

    @property
    def has_parallel_shader_compile(self) -> bool:
        """Whether the driver compiles on threads of its own and reports when it has finished."""
        names = ("GL_KHR_parallel_shader_compile", "GL_ARB_parallel_shader_compile")
        return any(name in self.extensions for name in names)

    @classmethod
    def query(cls, gl: GLFunctions) -> GLInfo:
        """Query the current context."""

        def text(name: int) -> str:
            return (gl.glGetString(name) or b"").decode("utf-8", "replace")

        count = query_integer(gl, GL.NUM_EXTENSIONS)
        extensions = ((gl.glGetStringi(GL.EXTENSIONS, i) or b"").decode() for i in range(count))
        return cls(
            renderer=text(GL.RENDERER),
            vendor=text(GL.VENDOR),
            version=text(GL.VERSION),
            version_code=query_version_code(gl),
            extensions=frozenset(extensions),
        )


def query_integer(gl: GLFunctions, name: int) -> int:
    """One integer of the context that is current now."""
    value = ctypes.c_int(0)
    gl.glGetIntegerv(name, ctypes.byref(value))
    return value.value


def query_version_code(gl: GLFunctions) -> int:
    """The version of the context that is current now, as 330 for OpenGL 3.3."""
    return 100 * query_integer(gl, GL.MAJOR_VERSION) + 10 * query_integer(gl, GL.MINOR_VERSION)
