"""Tries an OpenCL device: compiles a kernel, runs it and reads its result back."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from engine.device.cl.binaries import compile_program
from engine.device.probe_results import Probe, probed
from engine.device.processor import cpu_model

_GROUP = 64
_ROUNDS = 64
# Local memory, a barrier, a library function and a loop: what the engine's kernels are made of.
_SOURCE = f"""
__kernel void probe(__global const float *values, __global float *result) {{
    __local float part[{_GROUP}];
    const int item = get_global_id(0), lane = get_local_id(0);
    part[lane] = exp2(values[item]);
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0.0f;
    for (int i = 0; i < {_ROUNDS}; i++)
        for (int k = 0; k < {_GROUP}; k++)
            sum = fma(part[k], values[(item + i) % get_global_size(0)], sum);
    result[item] = sum;
}}
"""
_RUNS = 3


def probe_cl(cl: Any, device: Any) -> Probe:
    """Whether kernels run on a `pyopencl.Device`; tried once for each device and driver version."""
    key = (
        "opencl",
        device.platform.name,
        device.platform.version,
        device.name,
        device.version,
        device.driver_version,
        # With the same home folder the same runtime may meet a processor that it does not know.
        cpu_model(),
        _SOURCE,
    )
    return probed(key, lambda: _attempt(cl, device))


def _attempt(cl: Any, device: Any) -> Probe:
    try:
        if not device.compiler_available:
            return Probe("its driver has no compiler")
        if device.max_work_group_size < _GROUP:
            return Probe(f"its work groups have {device.max_work_group_size} items; {_GROUP} are needed")
        seconds, result, expected = _run(cl, device)
    except Exception as error:  # noqa: BLE001 - a driver's exceptions have no common class
        return Probe(_first_cause(str(error)) or type(error).__name__)
    if not np.allclose(result, expected, rtol=1e-4):
        return Probe("a small kernel gives wrong numbers on it")
    return Probe(seconds=seconds)


def _run(cl: Any, device: Any) -> tuple[float, np.ndarray, np.ndarray]:
    values = np.linspace(0, 1, 64 * _GROUP, dtype=np.float32)
    result = np.zeros_like(values)
    context = cl.Context([device])
    queue = cl.CommandQueue(context, device)
    kernel = cl.Kernel(compile_program(cl, context, _SOURCE, ()), "probe")
    source = cl.Buffer(context, cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
    target = cl.Buffer(context, cl.mem_flags.READ_WRITE, values.nbytes)
    times = []
    for _ in range(1 + _RUNS):
        began = perf_counter()
        kernel(queue, values.shape, (_GROUP,), source, target)
        cl.enqueue_copy(queue, result, target)
        times.append(perf_counter() - began)
    parts = np.exp2(values.astype(np.float64)).reshape(-1, _GROUP).sum(axis=1).repeat(_GROUP)
    windows = np.arange(values.size)[:, None] + np.arange(_ROUNDS)
    return min(times[1:]), result, parts * values[windows % values.size].sum(axis=1)


def _first_cause(message: str) -> str:
    """The line of a driver's message that names the cause; it may repeat the source over many lines."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    for line in lines:
        if "error:" in line.lower() and "build_program_failure" not in line.lower():
            return line[:200]
    return lines[0][:200] if lines else ""
