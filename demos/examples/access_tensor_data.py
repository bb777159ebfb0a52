"""Reach a tensor's elements where they are: on the CPU as an array, on the GPU as a shader's buffer."""

import numpy as np
from onnx.parser import parse_model

from gameglue import App, BackendType, ComputeTensorData, CPUTensorData, ModelLoader, Tensor, Worker, job

DOUBLE = """
<ir_version: 9, opset_import: ["": 18]>
double (float[4] x) => (float[4] y) {
    y = Add (x, x)
}"""

SHADER = """
#version 430
layout(local_size_x = 4) in;
layout(std430, binding = 0) buffer Elements { float elements[]; };
void main() { elements[gl_GlobalInvocationID.x] = float(gl_GlobalInvocationID.x) * 10.0; }
"""


@job
def count_up(begin, end, x):  # type: ignore[no-untyped-def]
    """A job of one's own: element i becomes i."""
    for i in range(begin, end):
        x[i] = i


def on_the_cpu() -> tuple[list[float], list[float]]:
    """Elements written in place, then by a job that nobody waits for, and what a worker makes of them."""
    x = Tensor(np.zeros(4, np.float32))
    data = CPUTensorData.pin(x)
    with Worker(ModelLoader.load(parse_model(DOUBLE).SerializeToString())) as worker:
        data.array[:] = 5.0
        worker.schedule(x)
        first = worker.peek_output().download_to_array().tolist()
        count_up.schedule(x, count=4)  # behind what reads x (data.reuse), ahead of what comes (data.fence)
        worker.schedule(x)
        return first, worker.peek_output().download_to_array().tolist()


def on_the_gpu() -> list[float] | None:
    """The same with a compute shader; None without OpenGL 4.3."""
    with App("tensor data", headless=True) as app:
        if app.ctx is None or app.ctx.version_code < 430:
            return None
        shader = app.ctx.compute_shader(SHADER)
        x = Tensor(np.zeros(4, np.float32))
        model = ModelLoader.load(parse_model(DOUBLE).SerializeToString())
        with Worker(model, BackendType.GPU_COMPUTE) as worker, x:
            with ComputeTensorData.pin(x).writing() as buffer:  # behind the engine's work, ahead of the next
                buffer.bind_to_storage_buffer(0)
                shader.run(1)
            worker.schedule(x)
            return worker.peek_output().download_to_array().tolist()


if __name__ == "__main__":
    print(on_the_cpu(), on_the_gpu())
