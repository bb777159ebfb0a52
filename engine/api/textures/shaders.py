"""The two shaders that pictures need beside a backend's own: a dispatch that reads a texture, and a draw that
reads a buffer. Their formulas are printed like any other kernel's.
"""

from __future__ import annotations

from functools import lru_cache

from engine.api.textures.formula import TEXTURE_SHIFT
from engine.backends.gl.compute.printer import ComputePrinter
from engine.backends.gl.pixel.printer import FragmentPrinter
from engine.backends.gl.pixel.shader import Shader
from engine.backends.gl.storage import decoded, memory_word, word_type
from engine.kernels.kernel import Kernel

_TEXTURE = f"""
layout(binding = 0) uniform sampler2D b0;
float k_at0(int e) {{
    vec4 v = texelFetch(b0, ivec2((e >> 2) & {(1 << TEXTURE_SHIFT) - 1}, e >> {TEXTURE_SHIFT + 2}), 0);
    int k = e & 3;
    return k < 2 ? (k == 0 ? v.x : v.y) : (k == 2 ? v.z : v.w);
}}
"""

_SAMPLER = {"float": "samplerBuffer", "int": "isamplerBuffer", "uint": "usamplerBuffer"}


class _TexturePrinter(ComputePrinter):
    """A compute shader whose one input is a texture."""

    readers = _TEXTURE

    def fetch(self, slot: int, position: str) -> str:
        return f"k_at{slot}({position})"


@lru_cache(maxsize=256)
def dispatch_from_texture(kernel: Kernel) -> tuple[str, str]:
    """Key and text of a compute shader that reads slot 0 of a kernel from a texture on unit 0."""
    return f"{kernel.key}p", _TexturePrinter(kernel, texels=False).shader()


@lru_cache(maxsize=256)
def drawing_from_buffer(kernel: Kernel) -> Shader:
    """A fragment shader that reads slot 0 of a kernel from a buffer texture on unit 0."""
    storage = kernel.buffers[0]
    value = decoded("texelFetch(b0, e).x", storage)
    helpers = (
        f"uniform {_SAMPLER[memory_word(storage)]} b0;\n"
        f"{word_type(storage)} k_at0(int e) {{ return {value}; }}\n"
    )
    return FragmentPrinter(kernel).shader(helpers=helpers, reads_itself=True)
