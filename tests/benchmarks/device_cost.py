"""What a device takes for plain work: a copy of so many bytes, a product of so many multiplications."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import numpy as np

from engine import ModelLoader, Tensor, Worker
from tests.benchmarks.setting import open_worker
from tests.graphs import node, proto

TOGETHER = 8
"""Schedules that one readback is waited for, so that it hardly counts."""

_LEAST_BYTES, _LEAST_SIDE = 1 << 14, 32
_RUNS = 7


def resident_call(
    stack: ExitStack, worker: Worker, inputs: Mapping[str, np.ndarray]
) -> tuple[Callable[[], object], int]:
    """A call of several schedules whose inputs stay on the device, and how many they are."""
    tensors: dict[str, np.ndarray | Tensor] = {
        name: a if a.dtype.kind in "OU" else stack.enter_context(Tensor(a)) for name, a in inputs.items()
    }
    names = [item.name for item in worker.model.outputs]

    def run() -> None:
        for _ in range(TOGETHER):
            worker.schedule(tensors)
        for name in names:
            worker.peek_output(name).download_to_array()

    return run, TOGETHER


class DeviceCost:
    """Times of a copy and of a square product, measured where they are asked for and interpolated between."""

    def __init__(self, stack: ExitStack, channel: str) -> None:
        """Measure on a backend; workers are disposed with `stack`."""
        self._stack = stack
        self._channel = channel
        self._copies: dict[int, float] = {}
        self._products: dict[int, float] = {}

    def seconds(self, moved: int, multiplications: int) -> float:
        """Of a copy that reads and writes `moved` bytes in all, and a product of `multiplications`."""
        taken = self._interpolated(self._copy, max(moved, _LEAST_BYTES), 1)
        if multiplications:
            taken += self._interpolated(self._product, max(multiplications, _LEAST_SIDE**3), 3)
        return taken

    def _interpolated(self, measured: Callable[[int], float], wanted: int, power: int) -> float:
        below = 1 << ((wanted.bit_length() - 1) // power)
        least, most = below**power, (2 * below) ** power
        share = (wanted - least) / (most - least)
        return measured(below) * (1 - share) + measured(2 * below) * share

    def _copy(self, moved: int) -> float:
        if moved not in self._copies:
            size = [moved // 8]
            ends = {"x": ("float32", size)}, {"y": ("float32", size)}
            x = np.ones(size, np.float32)
            self._copies[moved] = self._time(proto([node("Neg", ["x"], ["y"])], *ends), {"x": x})
        return self._copies[moved]

    def _product(self, side: int) -> float:
        if side not in self._products:
            size = [side, side]
            x = np.ones(size, np.float32)
            source = proto(
                [node("MatMul", ["x", "w"], ["y"])],
                {"x": ("float32", size)},
                {"y": ("float32", size)},
                {"w": x},
            )
            self._products[side] = self._time(source, {"x": x})
        return self._products[side]

    def _time(self, source: bytes, inputs: Mapping[str, np.ndarray]) -> float:
        with open_worker(ModelLoader.load(source), self._channel) as worker, ExitStack() as stack:
            call, several = resident_call(stack, worker, inputs)
            call()
            taken = []
            for _ in range(_RUNS):
                before = time.perf_counter()
                call()
                taken.append(time.perf_counter() - before)
            return min(taken) / several
