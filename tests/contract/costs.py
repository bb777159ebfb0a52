"""What each call of the engine takes of the main thread's time, in the order in which a frame makes them.

    python -m tests.contract.costs cpu digits squeezenet --runs 30

Prints milliseconds of thread CPU time (and of the clock, in brackets): a call's median over the runs, and
its most. `dispose` frees a worker at rest and one in flight, of so many made before.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from engine import Tensor, reserve_game_core
from gameglue import InferenceQueue
from gameglue.profiling.benchmark_cases import infer
from tests.contract.networks import agents, network, picture, policy
from tests.contract.place import CHANNELS, Place
from tests.networks import Inputs

SLICE_MS = 0.25
"""Budget of a call of `Schedule.advance`."""

DISPOSED = 4
"""Workers that are made and disposed for the cost of that."""


@dataclass
class Clocked:
    """Times of calls by name: (thread CPU, clock), in ms."""

    times: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    yardstick: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    """What copying the inputs alone took just before they were scheduled, in ns: memory is slow by turns."""

    @property
    def disturbance(self) -> float:
        """How many times longer than at best the same work of Python took between the calls."""
        return median(self.yardstick) / min(self.yardstick)

    def call(self, name: str, function: Callable[[], Any]) -> Any:
        """Make a call and keep what it took."""
        begin, cpu = time.perf_counter_ns(), time.thread_time_ns()
        result = function()
        spent = time.thread_time_ns() - cpu
        self.times.setdefault(name, []).append((spent * 1e-6, (time.perf_counter_ns() - begin) * 1e-6))
        cpu = time.thread_time_ns()
        sum(len(str(number)) for number in range(100))
        self.yardstick.append(time.thread_time_ns() - cpu)
        return result

    def copy(self, inputs: Inputs) -> None:
        """Take the time of a copy of the inputs."""
        spare = [np.empty_like(array) for array in inputs.values()]
        cpu = time.thread_time_ns()
        for target, array in zip(spare, inputs.values(), strict=True):
            np.copyto(target, array)
        self.copies.append(time.thread_time_ns() - cpu)

    def medians(self, column: int = 0) -> dict[str, float]:
        """The median thread CPU time of each call, in ms; of the clock's time with 1."""
        return {name: median(time[column] for time in times) for name, times in self.times.items()}


def frames(place: Place, name: str, runs: int) -> Clocked:
    """`runs` inferences, each polled until it is there, as a game's frames do it."""
    of = network(name)
    clocked, inputs = Clocked(), picture(of)
    out_name = of.outputs[0].name
    queue = InferenceQueue()
    worker = place.worker(of)
    out = infer(worker, inputs)[out_name]
    for _ in range(runs):
        asked(clocked, worker, inputs, queue, out)
    sliced(clocked, worker, inputs)
    resized(clocked, place, runs)
    disposed(clocked, place, name)
    worker.dispose()
    return clocked


def sliced(clocked: Clocked, worker: Any, inputs: Any) -> None:
    """Inferences under a budget; the first do not count, as costs are learned."""
    for clock in (Clocked(), Clocked(), *[clocked] * 3):
        clock.copy(inputs)
        schedule = clock.call("schedule_iterable", lambda: worker.schedule_iterable(inputs))
        while not schedule.is_done:
            clock.call("advance", partial(schedule.advance, SLICE_MS, force=True))
            time.sleep(0.002)


def resized(clocked: Clocked, place: Place, runs: int) -> None:
    """A policy network that has another number of agents in each frame; the first two make its plans."""
    worker = place.worker(policy())
    for count in range(1, runs + 3):
        inputs = {"x": agents(count)}
        known = clocked if count > 2 else Clocked()
        known.call("schedule at a new size", partial(worker.schedule, inputs))
        tensor = worker.peek_output()
        tensor.readback_request()
        settle(tensor.is_readback_request_done)
    worker.dispose()


def asked(clocked: Clocked, worker: Any, inputs: Any, queue: InferenceQueue, out: np.ndarray) -> None:
    """One inference with a readback that is taken in both ways, and one that the queue delivers."""
    clocked.call("schedule", lambda: worker.schedule(inputs))
    tensor: Tensor = clocked.call("peek_output", worker.peek_output)
    clocked.call("readback_request", tensor.readback_request)
    settle(lambda: clocked.call("is_readback_request_done", tensor.is_readback_request_done))
    clocked.call("download_to_array", tensor.download_to_array)
    clocked.call("download_to_array(out)", lambda: tensor.download_to_array(out=out))
    clocked.call("pump", worker.pump)
    worker.schedule(inputs)
    result = clocked.call("queue.result", lambda: queue.result(worker.peek_output()))

    def poll() -> bool:
        clocked.call("queue.poll", queue.poll)
        return queue.pending == 0

    settle(poll)
    assert result.is_done()


def settle(done: Callable[[], bool]) -> None:
    """Ask until it is so, a frame's pause in between."""
    while not done():
        time.sleep(0.002)


def disposed(clocked: Clocked, place: Place, name: str) -> None:
    """Workers that go, at rest and in flight; then a frame that enters the device."""
    of = network(name)
    workers = [place.worker(of) for _ in range(DISPOSED)]
    inputs = picture(of)
    other = place.worker(policy())
    infer(other, {"x": agents(1)})
    for number, worker in enumerate(workers):
        infer(worker, inputs)
        if number % 2:
            worker.schedule(inputs)
        clocked.call("dispose", worker.dispose)
        for _ in range(20):
            clocked.call("schedule after dispose", lambda: other.schedule({"x": agents(1)}))
            tensor = other.peek_output()
            tensor.readback_request()
            settle(tensor.is_readback_request_done)
    other.dispose()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for a person, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.contract.costs", description=__doc__)
    parser.add_argument("channel", choices=CHANNELS)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    reserve_game_core()
    place = Place(options.channel, is_counted=False)
    for name in options.networks:
        clocked = frames(place, name, options.runs)
        if options.json:
            found = {"medians": clocked.medians(), "clock": clocked.medians(1)}
            found["copy"] = {"inputs": median(clocked.copies) * 1e-6}
            print(json.dumps({**found, "disturbance": clocked.disturbance}), flush=True)
            continue
        copy = f"copying its inputs {median(clocked.copies) * 1e-6:.3f} ms"
        print(f"{name} on {options.channel}; disturbance {clocked.disturbance:.1f}, {copy}")
        for call, times in clocked.times.items():
            cpu, clock = zip(*times, strict=True)
            row = f"{median(cpu):8.3f} {max(cpu):8.3f} ({median(clock):8.3f} {max(clock):8.3f})"
            print(f"  {call:28} {row}  x{len(times)}")
    place.release()


if __name__ == "__main__":
    main()
