"""Tensors of the GPU backends as objects of the game: its shaders write them and read them, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import moderngl
import numpy as np
import pytest

from engine import (
    BackendType,
    CLDevice,
    ComputeTensorData,
    DeviceError,
    DisposedError,
    GLDevice,
    Tensor,
    TextureTensorData,
    Worker,
)
from engine.backends.gl import sharing
from engine.device.cl.binaries import compile_program
from tests.conftest import RunChild
from tests.graphs import model, node

COUNT = 1000
NETWORK = (
    [node("Mul", ["x", "x"], ["s"]), node("Add", ["s", "x"], ["y"])],
    {"x": ("float32", [COUNT])},
    {"y": ("float32", [COUNT])},
)
FILL = """#version 430
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Data { float data[]; };
uniform float step_;
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < COUNT) data[i] = float(i) * step_;
}""".replace("COUNT", str(COUNT))


def expected(step: float) -> np.ndarray:
    x = np.arange(COUNT, dtype=np.float32) * np.float32(step)
    return x * x + x


@pytest.fixture
def compute(gl_device: GLDevice) -> GLDevice:
    if not gl_device.info.supports_compute:
        pytest.skip("needs OpenGL 4.3")
    return gl_device


@pytest.fixture
def fill(game: moderngl.Context) -> Iterator[Any]:
    shader = game.compute_shader(FILL)
    yield shader
    shader.release()


@pytest.mark.gl
def test_a_compute_shader_of_the_game_fills_a_tensor(compute: GLDevice, fill: Any) -> None:
    with (
        Worker(model(*NETWORK), BackendType.GPU_COMPUTE, device=compute) as worker,
        Tensor(np.zeros(COUNT, np.float32)) as tensor,
    ):
        data = ComputeTensorData.pin(tensor, compute)
        assert data.element_dtype == np.float32
        assert data.buffer.size >= 4 * COUNT
        reads = []
        for frame in range(20):
            with data.writing() as buffer:
                assert buffer is data.buffer
                buffer.bind_to_storage_buffer(0)
                fill["step_"] = frame / 16
                fill.run(-(-COUNT // 64))
            worker.schedule(tensor)
            output = worker.peek_output()
            output.readback_request()
            reads.append(output)
        assert not compute.counters.blocking  # nothing has waited so far
        for frame, output in enumerate(reads):
            np.testing.assert_allclose(output.download_to_array(), expected(frame / 16), rtol=1e-6)


@pytest.mark.gl
def test_what_was_read_back_before_is_not_taken_for_the_new_value(compute: GLDevice, fill: Any) -> None:
    with Tensor(np.full(COUNT, 7, np.float32)) as tensor:
        data = ComputeTensorData.pin(tensor, compute)
        tensor.readback_request()
        assert tensor.download_to_array()[5] == 7
        with ComputeTensorData.pin(tensor).writing() as buffer:
            buffer.bind_to_storage_buffer(0)
            fill["step_"] = 2.0
            fill.run(-(-COUNT // 64))
        assert tensor.download_to_array()[5] == 10
        # Letting the game's object go leaves the tensor as it is.
        data.buffer.release()
        assert tensor.download_to_array()[6] == 12
    with pytest.raises(DisposedError, match="was disposed"):
        _ = data.buffer


@pytest.mark.gl
def test_the_game_reads_an_output_on_the_gpu(game: moderngl.Context, compute: GLDevice) -> None:
    target = game.buffer(reserve=4 * COUNT)
    with Worker(model(*NETWORK), BackendType.GPU_COMPUTE, device=compute) as worker:
        for step in (1.0, 0.5):
            worker.schedule(np.arange(COUNT, dtype=np.float32) * np.float32(step))
            with ComputeTensorData.pin(worker.peek_output()).reading() as buffer:
                game.copy_buffer(target, buffer, 4 * COUNT)
            # The next schedule overwrites it only behind that.
            worker.schedule(np.zeros(COUNT, np.float32))
            np.testing.assert_allclose(np.frombuffer(target.read(), np.float32), expected(step), rtol=1e-6)
    target.release()


@pytest.mark.gl
def test_the_game_draws_into_a_tensor(game: moderngl.Context, gl_device: GLDevice) -> None:
    program = game.program(
        vertex_shader="""#version 330
        void main() { gl_Position = vec4(vec2(gl_VertexID % 2, gl_VertexID / 2) * 4.0 - 1.0, 0.0, 1.0); }""",
        fragment_shader="""#version 330
        uniform float step_;
        uniform int width;
        out vec4 texel;
        void main() {
            int t = int(gl_FragCoord.y) * width + int(gl_FragCoord.x);
            texel = (vec4(0.0, 1.0, 2.0, 3.0) + 4.0 * float(t)) * step_;
        }""",
    )
    triangle = game.vertex_array(program, [])
    with (
        Worker(model(*NETWORK), BackendType.GPU_PIXEL, device=gl_device) as worker,
        Tensor(np.zeros(COUNT, np.float32)) as tensor,
    ):
        data = TextureTensorData.pin(tensor, gl_device)
        texture = data.texture
        assert (texture.components, texture.dtype) == (4, "f4")
        assert texture.width * texture.height >= COUNT / 4
        framebuffer = game.framebuffer([texture])
        for step in (1.0, 0.25):
            with data.writing():
                framebuffer.use()
                program["step_"], program["width"] = step, texture.width
                triangle.render(moderngl.TRIANGLES, 3)
            worker.schedule(tensor)
            np.testing.assert_allclose(worker.peek_output().download_to_array(), expected(step), rtol=1e-6)
        framebuffer.release()
    game.detect_framebuffer(0).use()
    triangle.release()
    program.release()


@pytest.mark.gl
def test_the_context_has_to_be_the_game_s(
    game: moderngl.Context, compute: GLDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Tensor(np.zeros(4, np.float32)) as tensor:
        data = ComputeTensorData.pin(tensor, compute)
        with monkeypatch.context() as patch:
            patch.setattr(sharing, "default_context_if_current", lambda: None)
            with pytest.raises(DeviceError, match=r"name it: data\.shared\(ctx\)"):
                _ = data.buffer
            assert data.shared(game).ctx is game


@pytest.mark.gl
def test_a_private_device_has_a_context_to_compute_in(run_child: RunChild) -> None:
    code = f"""
import numpy as np
from engine import ComputeTensorData, GLDevice, Tensor
device = GLDevice()
if not device.info.supports_compute:
    print("skip")
else:
    tensor = Tensor(np.zeros({COUNT}, np.float32))
    data = ComputeTensorData.pin(tensor, device)
    with data.writing() as buffer:
        shader = device.ctx.compute_shader({FILL!r})
        buffer.bind_to_storage_buffer(0)
        shader["step_"] = 3.0
        shader.run({-(-COUNT // 64)})
    print(tensor.download_to_array()[7])
"""
    answer = run_child(code).strip()
    if answer == "skip":
        pytest.skip("needs OpenGL 4.3")
    assert answer == "21.0"


@pytest.mark.opencl
def test_a_kernel_of_the_game_fills_a_tensor_with_opencl(cl_device: CLDevice) -> None:
    cl = cl_device.cl
    source = "__kernel void fill(__global float* x, float s) { int i = get_global_id(0); x[i] = i * s; }"
    kernel = cl.Kernel(compile_program(cl, cl_device.context, source, ()), "fill")
    with (
        Worker(model(*NETWORK), BackendType.GPU_COMPUTE, device=cl_device) as worker,
        Tensor(np.zeros(COUNT, np.float32)) as tensor,
    ):
        data = ComputeTensorData.pin(tensor, cl_device)
        assert isinstance(data.device, CLDevice)
        for step in (1.0, 0.25):
            with data.writing() as buffer:
                kernel(data.device.queue, (COUNT,), None, buffer, np.float32(step))
            worker.schedule(tensor)
            np.testing.assert_allclose(worker.peek_output().download_to_array(), expected(step), rtol=1e-6)


@pytest.mark.gl
def test_integers_lie_in_32_bits(compute: GLDevice) -> None:
    with Tensor(np.array([True, False])) as flags, Tensor(np.array([2**31 - 1, -1])) as numbers:
        assert ComputeTensorData.pin(flags, compute).element_dtype == np.uint8
        data = ComputeTensorData.pin(numbers, compute)
        assert data.element_dtype == np.int32
        with data.reading() as buffer:
            found = np.frombuffer(buffer.read(8), np.int32)
        assert found.tolist() == [2**31 - 1, -1]
