"""pyopencl looks up the functions of kernel objects once for each signature."""

from __future__ import annotations

from typing import Any

import pytest

from engine.device.cl.device import CLDevice

invoker = pytest.importorskip("pyopencl.invoker")
memoised = pytest.importorskip("engine.device.cl.kernel_invokers")


def test_equal_arguments_have_one_result() -> None:
    calls: list[Any] = []

    def function(*args: Any, **options: Any) -> object:
        calls.append((args, options))
        return object()

    found = memoised.Memoised(function)
    first = found("k", (None, None), devs=["a"])
    assert found("k", (None, None), devs=["a"]) is first
    assert found("k", (None, int), devs=["a"]) is not first
    assert found("k", (None, None), devs=["b"]) is not first
    assert calls[0] == (("k", (None, None)), {"devs": ["a"]})
    assert len(calls) == 3
    assert found("k", {"a": 1}) is not found("k", {"a": 1})


@pytest.mark.opencl
def test_a_second_kernel_object_reads_nothing(cl_device: CLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    cl = cl_device.cl
    text = "kernel void k(global int* a, int n) { if (n) a[0] = n; }"
    program = cl.Program(cl_device.context, text).build()
    cl.Kernel(program, "k")
    monkeypatch.setattr(invoker, "invoker_cache", None)
    assert cl.Kernel(program, "k").num_args == 2
