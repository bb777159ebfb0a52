"""The OpenCL device: which one is chosen, what it counts, what it says where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from engine.base.errors import DeviceError, DisposedError
from engine.device.cl.binaries import compile_program
from engine.device.cl.counting import counting_cl_calls
from engine.device.cl.device import CLDevice

pytestmark = pytest.mark.opencl


def test_a_kernel_runs_on_the_queue(cl_device: CLDevice) -> None:
    cl = cl_device.cl
    values = np.arange(32, dtype=np.float32)
    source = "__kernel void twice(__global float *data) { data[get_global_id(0)] *= 2.0f; }"
    program = compile_program(cl, cl_device.context, source, ("-cl-mad-enable",))
    buffer = cl.Buffer(cl_device.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
    program.twice(cl_device.queue, (32,), None, buffer)
    result = np.empty_like(values)
    event = cl.enqueue_copy(cl_device.queue, result, buffer, is_blocking=False)
    cl_device.queue.flush()
    while not cl_device.is_complete(event):
        pass
    assert np.array_equal(result, 2 * values)


def test_blocking_calls_are_counted(cl_device: CLDevice) -> None:
    cl, queue = cl_device.cl, cl_device.queue
    buffer = cl.Buffer(cl_device.context, cl.mem_flags.READ_WRITE, 64)
    other = cl.Buffer(cl_device.context, cl.mem_flags.READ_WRITE, 64)
    host = np.zeros(16, np.float32)
    before = cl.enqueue_copy
    with counting_cl_calls() as counts:
        event = cl.enqueue_copy(queue, buffer, host, is_blocking=False)
        cl.enqueue_copy(queue, other, buffer)
        queue.flush()
        while not cl_device.is_complete(event):
            pass
        assert counts == {}
        cl.enqueue_copy(queue, host, buffer)
        queue.finish()
        event.wait()
        cl.wait_for_events([event])
    assert counts == {"enqueue_copy": 1, "clFinish": 1, "clWaitForEvents": 2}
    assert cl.enqueue_copy is before
    cl_device.counters.reset()
    cl_device.finish()
    cl_device.wait(event)
    assert cl_device.counters.blocking == {"clFinish": 1, "clWaitForEvents": 1}


def test_devices_are_chosen_by_index_name_and_platform(cl_device: CLDevice) -> None:
    listed = CLDevice.list_devices()
    assert cl_device.info in listed
    with CLDevice(0) as device:
        assert device.info == listed[0]
    with CLDevice(listed[0].name[:6].upper(), platform=listed[0].platform[:8]) as device:
        assert device.info.platform == listed[0].platform
    if any(info.is_gpu for info in listed):
        assert cl_device.info.is_gpu


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [((99,), {}), (("no such device",), {}), ((), {"platform": 99}), ((), {"platform": "no such platform"})],
)
def test_a_choice_that_is_not_there_lists_what_is(cl_device: CLDevice, arguments, keywords) -> None:
    with pytest.raises(DeviceError, match="found: .*\\w"):
        CLDevice(*arguments, **keywords)


def test_limits_and_info_are_those_of_the_device(cl_device: CLDevice) -> None:
    limits, device = cl_device.limits, cl_device.device
    assert limits.max_work_group_size == device.max_work_group_size > 0
    assert limits.local_memory == device.local_mem_size
    assert cl_device.info.version.startswith("OpenCL")
    assert cl_device.info.is_software != cl_device.info.is_gpu


def test_use_after_dispose_raises() -> None:
    device = CLDevice()
    device.dispose()
    device.dispose()
    with pytest.raises(DisposedError, match="disposed"):
        device.finish()
