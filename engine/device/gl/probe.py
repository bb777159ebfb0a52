"""Tries an OpenGL context: compiles a shader, runs it and reads its result back."""

from __future__ import annotations

from typing import Literal

import moderngl
import numpy as np

from engine.device.gl.device import GLDevice
from engine.device.probe_results import Probe, probed

_SIZE = 64
_COMPUTE = f"""
#version 430
layout(local_size_x = {_SIZE}) in;
layout(std430, binding = 0) readonly buffer Values {{ float values[]; }};
layout(std430, binding = 1) writeonly buffer Result {{ float result[]; }};
shared float part[{_SIZE}];
void main() {{
    uint lane = gl_LocalInvocationID.x, item = gl_GlobalInvocationID.x;
    part[lane] = exp2(values[item]);
    barrier();
    float sum = 0.0;
    for (int k = 0; k < {_SIZE}; k++) sum += part[k];
    result[item] = sum * values[item];
}}
"""
_VERTEX = """
#version 330
void main() {
    gl_Position = vec4(4.0 * float(gl_VertexID & 1) - 1.0, 4.0 * float(gl_VertexID >> 1) - 1.0, 0.0, 1.0);
}
"""
_PIXEL = f"""
#version 330
uniform sampler2D values;
out vec4 result;
void main() {{
    int row = int(gl_FragCoord.y);
    float sum = 0.0;
    for (int k = 0; k < {_SIZE}; k++) sum += exp2(texelFetch(values, ivec2(k, row), 0).r);
    result = vec4(sum * texelFetch(values, ivec2(gl_FragCoord.xy), 0).r);
}}
"""


def probe_gl(device: GLDevice, kind: Literal["compute", "pixel"]) -> Probe:
    """Whether compute or fragment shaders run on a device; tried once for each renderer and driver version.

    Raises `DeviceError` where the device cannot be used at all.
    """
    info = device.info
    key = ("opengl", kind, info.vendor, info.renderer, info.version, _COMPUTE, _PIXEL)
    return probed(key, lambda: _attempt(device, kind))


def _attempt(device: GLDevice, kind: Literal["compute", "pixel"]) -> Probe:
    if kind == "compute" and not device.info.supports_compute:
        return Probe(f"OpenGL {device.info.version} has no compute shaders (4.3 has)")
    values = np.linspace(0, 1, _SIZE * _SIZE, dtype=np.float32).reshape(_SIZE, _SIZE)
    run = _run_compute if kind == "compute" else _run_pixel
    try:
        with (
            device.current(flush=False),
            # A context of its own, as the device's keeps its state; its blocking calls are not counted.
            GLDevice(loader_wrapper=lambda loader: loader) as other,
            other.current(),
        ):
            result = run(other.ctx, values)
    except Exception as error:  # noqa: BLE001 - moderngl and drivers raise what they like
        return Probe(f"a small shader fails on {device.info.renderer}: {error}")
    expected = np.exp2(values).sum(axis=1, keepdims=True) * values
    if not np.allclose(result, expected, rtol=1e-3):
        return Probe(f"a small shader gives wrong numbers on {device.info.renderer}")
    return Probe()


def _run_compute(ctx: moderngl.Context, values: np.ndarray) -> np.ndarray:
    program = ctx.compute_shader(_COMPUTE)
    source, target = ctx.buffer(values.tobytes()), ctx.buffer(reserve=values.nbytes)
    source.bind_to_storage_buffer(0)
    target.bind_to_storage_buffer(1)
    program.run(_SIZE)
    ctx.memory_barrier()
    return np.frombuffer(target.read(), np.float32).reshape(values.shape)


def _run_pixel(ctx: moderngl.Context, values: np.ndarray) -> np.ndarray:
    program = ctx.program(vertex_shader=_VERTEX, fragment_shader=_PIXEL)
    source = ctx.texture(values.shape, 1, values.tobytes(), dtype="f4")
    target = ctx.texture(values.shape, 4, dtype="f4")
    source.use(0)
    framebuffer = ctx.framebuffer([target])
    framebuffer.use()
    ctx.vertex_array(program, []).render(moderngl.TRIANGLES, vertices=3)
    result = np.frombuffer(framebuffer.read(components=4, dtype="f4"), np.float32)
    return result.reshape(*values.shape, 4)[..., 0]
