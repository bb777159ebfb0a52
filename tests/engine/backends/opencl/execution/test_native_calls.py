"""Commands and arguments as rows of calls: native code does with them what pyopencl does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.opencl.execution.dispatches import CLProgram, Repetition
from engine.device.cl.binaries import compile_program
from engine.device.cl.device import CLDevice
from engine.device.cl.native_calls import DATA, SET_ARGUMENT, NativeCalls, new_rows, point

pytestmark = pytest.mark.opencl

# Not commutative, so that the order shows.
SOURCE = """__kernel void k(__global int *data, int count, int added) {
    if (get_global_id(0) < count) data[get_global_id(0)] = 3 * data[get_global_id(0)] + added;
}"""


@pytest.fixture(params=["native", "pyopencl"])
def device(request: pytest.FixtureRequest, cl_device: CLDevice, monkeypatch: pytest.MonkeyPatch) -> CLDevice:
    calls = NativeCalls()
    assert calls.wait()
    if request.param == "pyopencl":
        calls._function._function = None
    monkeypatch.setattr(cl_device, "calls", calls)
    return cl_device


class Kernels:
    """Kernels over 20 integers, which begin as 0."""

    def __init__(self, device: CLDevice, count: int) -> None:
        cl, self.device = device.cl, device
        self.program = compile_program(cl, device.context, SOURCE, ())
        self.kernels = [cl.Kernel(self.program, "k") for _ in range(count)]
        self.data = cl.Buffer(device.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(20, np.int32))

    def set(self, kernels: list[Any], position: int, size: int, value: int) -> None:
        rows = new_rows(SET_ARGUMENT, len(kernels))
        rows[:, 1] = [kernel.int_ptr for kernel in kernels]
        rows[:, 2:4] = position, size
        rows[:, DATA] = value
        point(rows, 4, DATA)
        self.device.set_arguments(rows)

    def set_all(self) -> None:
        """Number k adds k to 17 elements."""
        self.set(self.kernels, 0, 8, self.data.int_ptr)
        self.set(self.kernels, 1, 4, 17)
        for k, kernel in enumerate(self.kernels):
            self.set([kernel], 2, 4, k)

    def values(self) -> np.ndarray:
        found = np.empty(20, np.int32)
        self.device.cl.enqueue_copy(self.device.queue, found, self.data)
        return found


def test_commands_run_in_order_and_repetitions_among_them(device: CLDevice) -> None:
    own = Kernels(device, 4)
    own.set_all()
    commands = [(kernel, (24,), (8,)) for kernel in own.kernels]
    repeated = Repetition(3, ([(commands[2], lambda run: own.set([own.kernels[2]], 2, 4, 10 + run))], []), [])
    program = CLProgram([commands[1], repeated, commands[3]], [], [])
    for _ in range(2):
        program.enqueue(device)
    expected = 0
    for added in (1, 10, 12, 3) * 2:
        expected = 3 * expected + added
    assert own.values().tolist() == [expected] * 17 + [0] * 3
    program.release()
    program.enqueue(device)
    assert own.values()[0] == expected


def test_a_command_that_fails_comes_after_those_before_it(device: CLDevice) -> None:
    own = Kernels(device, 3)
    own.set_all()
    own.kernels.append(device.cl.Kernel(own.program, "k"))
    program = CLProgram([(own.kernels[k], (24,), (8,)) for k in (1, 3, 2)], [], [])
    with pytest.raises(device.cl.Error, match="INVALID_KERNEL_ARGS"):
        program.enqueue(device)
    assert own.values()[0] == 1
    own.set([own.kernels[3]], 0, 8, own.data.int_ptr)
    with pytest.raises(device.cl.Error, match="INVALID_ARG_INDEX"):
        own.set([*own.kernels, own.kernels[0]], 9, 4, 17)


def test_native_code_does_all_of_it(cl_device: CLDevice) -> None:
    own = Kernels(cl_device, 2)
    calls = NativeCalls()
    assert calls.wait()
    own.set_all()
    program = CLProgram([(kernel, (24,), (8,)) for kernel in own.kernels], [], [])
    program.enqueue(cl_device)
    assert program._rows is not None
    assert calls.run(program._rows, 0) == 2
