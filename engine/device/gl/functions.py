"""OpenGL entry points and constants that moderngl does not expose, called through ctypes.

moderngl exposes no fence, no persistent mapping and no program binary, and it holds the GIL in every call.
These functions are bound from the addresses that a context's loader gives, and release the GIL.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

from engine.base.errors import DeviceError, OutOfMemoryError


class Loader(Protocol):
    """Returns the address of an OpenGL function by name (0 if the driver has none)."""

    def load_opengl_function(self, name: str) -> int:
        """The address of an OpenGL function."""


class GL:
    """OpenGL constants, by their names without the `GL_` prefix."""

    NO_ERROR = 0
    OUT_OF_MEMORY = 0x0505
    CONTEXT_LOST = 0x0507
    TRIANGLES = 0x0004

    # Data types and pixel formats
    BYTE, UNSIGNED_BYTE, SHORT, UNSIGNED_SHORT, INT, UNSIGNED_INT, FLOAT = range(0x1400, 0x1407)
    HALF_FLOAT = 0x140B
    RED, RG, RGBA = 0x1903, 0x8227, 0x1908
    RED_INTEGER, RGBA_INTEGER = 0x8D94, 0x8D99
    RGBA8 = 0x8058
    R32F, RGBA32F = 0x822E, 0x8814
    R16F, RGBA16F = 0x822D, 0x881A
    R32I, R32UI, RGBA32I = 0x8235, 0x8236, 0x8D82
    RGBA32UI, RGBA16UI, RGBA8UI, RGBA16I, RGBA8I = 0x8D70, 0x8D76, 0x8D7C, 0x8D88, 0x8D8E

    # State that can be switched on and off
    BLEND, DEPTH_TEST, STENCIL_TEST, SCISSOR_TEST = 0x0BE2, 0x0B71, 0x0B90, 0x0C11
    CULL_FACE, DITHER, MULTISAMPLE = 0x0B44, 0x0BD0, 0x809D
    RASTERIZER_DISCARD, FRAMEBUFFER_SRGB, COLOR_LOGIC_OP = 0x8C89, 0x8DB9, 0x0BF2
    PRIMITIVE_RESTART = 0x8F9D

    # Textures
    TEXTURE_2D, TEXTURE_2D_ARRAY, TEXTURE0 = 0x0DE1, 0x8C1A, 0x84C0
    TEXTURE_MAG_FILTER, TEXTURE_MIN_FILTER = 0x2800, 0x2801
    TEXTURE_MAX_LEVEL = 0x813D
    NEAREST = 0x2600

    # Pixel transfer
    UNPACK_SWAP_BYTES, UNPACK_ROW_LENGTH, UNPACK_SKIP_ROWS = 0x0CF0, 0x0CF2, 0x0CF3
    UNPACK_SKIP_PIXELS, UNPACK_ALIGNMENT = 0x0CF4, 0x0CF5
    PACK_ROW_LENGTH, PACK_ALIGNMENT = 0x0D02, 0x0D05

    # Framebuffers
    FRAMEBUFFER, READ_FRAMEBUFFER, DRAW_FRAMEBUFFER = 0x8D40, 0x8CA8, 0x8CA9
    COLOR_ATTACHMENT0 = 0x8CE0

    # Buffers
    ARRAY_BUFFER, COPY_READ_BUFFER, COPY_WRITE_BUFFER = 0x8892, 0x8F36, 0x8F37
    PIXEL_PACK_BUFFER, PIXEL_UNPACK_BUFFER = 0x88EB, 0x88EC
    UNIFORM_BUFFER, SHADER_STORAGE_BUFFER = 0x8A11, 0x90D2
    STREAM_DRAW, STREAM_READ, DYNAMIC_DRAW, DYNAMIC_COPY = 0x88E0, 0x88E1, 0x88E8, 0x88EA
    MAP_READ_BIT, MAP_WRITE_BIT = 0x0001, 0x0002
    MAP_INVALIDATE_RANGE_BIT, MAP_INVALIDATE_BUFFER_BIT = 0x0004, 0x0008
    MAP_UNSYNCHRONIZED_BIT, MAP_PERSISTENT_BIT, MAP_COHERENT_BIT = 0x0020, 0x0040, 0x0080
    CLIENT_STORAGE_BIT = 0x0200

    # Synchronisation
    SYNC_GPU_COMMANDS_COMPLETE, SYNC_FLUSH_COMMANDS_BIT = 0x9117, 0x0001
    ALREADY_SIGNALED, TIMEOUT_EXPIRED, CONDITION_SATISFIED, WAIT_FAILED = 0x911A, 0x911B, 0x911C, 0x911D
    TIMEOUT_IGNORED = 0xFFFFFFFFFFFFFFFF
    TEXTURE_FETCH_BARRIER_BIT = 0x0008
    BUFFER_UPDATE_BARRIER_BIT = 0x0200
    SHADER_STORAGE_BARRIER_BIT = 0x2000

    # Programs
    VERTEX_SHADER, FRAGMENT_SHADER, COMPUTE_SHADER = 0x8B31, 0x8B30, 0x91B9
    LINK_STATUS = 0x8B82
    COMPLETION_STATUS = 0x91B1
    PROGRAM_BINARY_LENGTH, PROGRAM_BINARY_RETRIEVABLE_HINT = 0x8741, 0x8257
    NUM_PROGRAM_BINARY_FORMATS = 0x87FE

    # Queries
    QUERY_RESULT, QUERY_RESULT_AVAILABLE = 0x8866, 0x8867
    TIMESTAMP = 0x8E28
    SAMPLES_PASSED = 0x8914

    # Strings and versions
    VENDOR, RENDERER, VERSION, EXTENSIONS = 0x1F00, 0x1F01, 0x1F02, 0x1F03
    MAJOR_VERSION, MINOR_VERSION, NUM_EXTENSIONS = 0x821B, 0x821C, 0x821D

    # Limits
    MAX_TEXTURE_SIZE = 0x0D33
    MAX_TEXTURE_IMAGE_UNITS = 0x8872
    MAX_FRAGMENT_UNIFORM_COMPONENTS = 0x8B49
    SHADER_STORAGE_BUFFER_OFFSET_ALIGNMENT = 0x90DF
    MAX_SHADER_STORAGE_BLOCK_SIZE, MAX_SHADER_STORAGE_BUFFER_BINDINGS = 0x90DE, 0x90DD
    MAX_COMPUTE_SHADER_STORAGE_BLOCKS = 0x90DB
    MAX_COMPUTE_WORK_GROUP_COUNT = 0x91BE
    MAX_COMPUTE_TEXTURE_IMAGE_UNITS = 0x91BC


# "result arguments: names". One letter a type: i GLint/GLsizei, u GLuint/GLenum/GLbitfield, f GLfloat, b
# GLboolean, z GLintptr/GLsizeiptr, Q GLuint64, p a pointer or GLsync, s a C string; "-" for no result or
# no argument.
_SIGNATURES = """
- -: glFinish glFlush
u -: glCreateProgram glGetError
- u: glActiveTexture glBindVertexArray glCompileShader glCullFace glDeleteProgram glDeleteShader
- u: glDepthFunc glDisable glEnable glEndQuery glLinkProgram glMaxShaderCompilerThreadsKHR
- u: glMemoryBarrier glReadBuffer glStencilMask glUseProgram glBlendEquation glBeginTransformFeedback
- -: glEndTransformFeedback
- b: glDepthMask
- bbbb: glColorMask
- ffff: glClearColor
- ui: glPixelStorei
- ii: glUniform1i
- iiii: glViewport glScissor
- iip: glUniform4iv
- uu: glAttachShader glBeginQuery glBindBuffer glBindFramebuffer glBindSampler glBindTexture glBlendFunc
- uu: glDetachShader glPolygonMode glQueryCounter
- uuu: glBindBufferBase glDispatchCompute
- uui: glProgramParameteri glSamplerParameteri glTexParameteri
- uuuzz: glBindBufferRange glTexBufferRange
- uii: glDrawArrays
- uiup: glDrawElements
- ip: glDeleteBuffers glDeleteFramebuffers glDeleteQueries glDeleteSamplers glDeleteTextures
- ip: glDeleteVertexArrays glDrawBuffers
- ip: glGenBuffers glGenFramebuffers glGenQueries glGenSamplers glGenTextures glGenVertexArrays
- uuuui: glFramebufferTexture2D
- uuuii: glFramebufferTextureLayer
u u: glCreateShader
b u: glIsBuffer glIsEnabled glIsProgram glIsShader glUnmapBuffer
- uzpu: glBufferData glBufferStorage
- uzzp: glBufferSubData glGetBufferSubData
p uzzu: glMapBufferRange
- uuzzz: glCopyBufferSubData
- uuuup: glClearBufferData
- uiuup: glClearTexImage
- iiiiuup: glReadPixels
- uiuup: glGetTexImage
- uiiiiiuup: glTexImage2D glTexSubImage2D
- uiiiiiiuup: glTexImage3D
p uu: glFenceSync
u puQ: glClientWaitSync
- puQ: glWaitSync
- p: glDeleteSync
- up: glGetIntegerv glGetInteger64v
- uup: glGetIntegeri_v
s u: glGetString
s uu: glGetStringi
- uup: glGetProgramiv glGetShaderiv glGetQueryObjectui64v glGetQueryObjectuiv
- uipp: glGetProgramInfoLog glGetShaderInfoLog glGetShaderSource
- uipp: glShaderSource
i us: glGetUniformLocation
- uippp: glGetProgramBinary
- uupi: glProgramBinary
"""

_TYPES: dict[str, Any] = {
    "-": None,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "f": ctypes.c_float,
    "b": ctypes.c_ubyte,
    "z": ctypes.c_ssize_t,
    "Q": ctypes.c_uint64,
    "p": ctypes.c_void_p,
    "s": ctypes.c_char_p,
}

# OpenGL uses the stdcall convention on Windows; on 64-bit machines the two are the same.
FUNCTION_TYPE: Callable[..., Any] = getattr(ctypes, "WINFUNCTYPE", ctypes.CFUNCTYPE)


def _parse_signatures(table: str) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {}
    for line in table.strip().splitlines():
        types, names = line.split(":")
        result, arguments = types.split()
        argument_types = () if arguments == "-" else tuple(_TYPES[letter] for letter in arguments)
        for name in names.split():
            signatures[name] = (_TYPES[result], argument_types)
    return signatures


SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = _parse_signatures(_SIGNATURES)


class GLFunctions:
    """OpenGL functions as attributes, bound on first use: `gl.glDispatchCompute(8, 1, 1)`.

    A context of the loader's platform must be current when one is called. An unknown name raises
    `AttributeError`, one that the driver does not have raises `DeviceError`.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        # Recorded plans name the same few functions thousands of times.
        self._addresses: dict[str, int] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        signature = SIGNATURES.get(name)
        if signature is None:
            raise AttributeError(f"no signature for the OpenGL function {name!r}")
        function: Callable[..., Any] = FUNCTION_TYPE(signature[0], *signature[1])(self.address(name))
        setattr(self, name, function)
        return function

    def address(self, name: str) -> int:
        """The address of an OpenGL function, for native code that calls it.

        Raises `DeviceError` where the driver does not have the function.
        """
        address = self._addresses.get(name, 0)
        if not address:
            address = self._loader.load_opengl_function(name)
            if not address:
                raise DeviceError(f"the OpenGL driver has no function {name}; a newer driver is needed")
            self._addresses[name] = address
        return address

    def has(self, name: str) -> bool:
        """Whether the driver gives an address; some do for functions that the context then refuses."""
        return bool(self._loader.load_opengl_function(name))


def generate(function: Callable[[int, Any], Any]) -> int:
    """One name from a glGen function."""
    name = ctypes.c_uint(0)
    function(1, ctypes.byref(name))
    return name.value


def raise_recorded(error: int, doing: str) -> None:
    """Raise what `glGetError` returned: `OutOfMemoryError` or `DeviceError`, or nothing."""
    if error == GL.OUT_OF_MEMORY:
        raise OutOfMemoryError(f"OpenGL reports that it is out of memory while {doing}")
    if error != GL.NO_ERROR:
        raise DeviceError(f"OpenGL reports error 0x{error:04x} while {doing}")
