"""Many networks a frame: `schedule` for each, a command buffer recorded anew, and one that is replayed.

    python -m tests.benchmarks.command_buffers --workers 20 --models squeezenet1.1_fp32

Each way schedules all workers and then reads all outputs: what scheduling took of the calling thread, and
what it took until the last output was there. Medians, the ways taking turns. A recording is the first
execution of a buffer: the same schedules, and noting what they came down to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median
from time import perf_counter, sleep

import numpy as np

from engine import CommandBuffer, ModelLoader, Worker
from tests.benchmarks.setting import (
    BenchmarkParser,
    chosen_backends,
    console,
    open_worker,
    print_end,
    print_setting,
    print_table,
)
from tests.benchmarks.subjects import Inputs, policy_inputs, present, subject

PAUSE = 0.002
"""Seconds of rest before each turn: a frame has other things to do."""

Given = list[tuple[Worker, Inputs]]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = BenchmarkParser("benchmarks.command_buffers", __doc__)
    parser.add_backends("cpu")
    parser.add_count("--workers", 20, "policies")
    parser.add_argument("--models", nargs="*", default=[], metavar="NAME", help="others beside them")
    parser.add_count("--runs", 200, "turns")
    options = parser.parse_args(argv)
    out = console()
    others = present(options.models)
    what = " and ".join([f"{options.workers} policies", *others])
    print_setting(out, f"{what}: one frame's schedules", {"times": f"medians over {options.runs} turns"})
    rows = []
    for channel in chosen_backends(options.backends or ["cpu"]):
        with ExitStack() as stack:
            given = workers_of(stack, channel, options.workers, others)
            rows += [[channel, *row] for row in measure(given, options.runs)]
    print_table(out, ["µs", "way", "scheduling", "until the last output", "commands replayed"], rows)
    print_end(out)
    return 0


def workers_of(stack: ExitStack, channel: str, policies: int, others: Sequence[str]) -> Given:
    """Workers with arrays for their inputs, scheduled once."""
    policy = ModelLoader.load(subject("policy").source)
    given: Given = [
        (stack.enter_context(open_worker(policy, channel)), policy_inputs(1)) for _ in range(policies)
    ]
    for name in others:
        item = subject(name)
        worker = stack.enter_context(open_worker(ModelLoader.load(item.source), channel))
        given.append((worker, item.inputs))
    for worker, inputs in given:
        worker.schedule(inputs)
    return given


def measure(given: Given, runs: int) -> list[list[str]]:
    """Name, median microseconds of scheduling and of all, and how many commands were replayed, by way."""
    kept = filled(given)
    kept.execute()
    latest = [kept]

    def record() -> None:
        latest[0] = filled(given)
        latest[0].execute()

    def one_by_one() -> None:
        for worker, inputs in given:
            worker.schedule(inputs)

    ways: dict[str, Callable[[], None]] = {
        "schedule, one by one": one_by_one,
        "recorded anew": record,
        "replayed": kept.execute,
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, way in ways.items():
            sleep(PAUSE)
            started = perf_counter()
            way()
            scheduled = perf_counter()
            read_all(given)
            times[name].append((scheduled - started, perf_counter() - started))
    replayed = {"replayed": kept.replayed_count, "recorded anew": latest[0].replayed_count}
    rows = []
    for name, taken in times.items():
        medians = [median(column) * 1e6 for column in zip(*taken, strict=True)]
        rows.append([name, *(f"{figure:.0f}" for figure in medians), str(replayed.get(name, ""))])
    return rows


def filled(given: Given) -> CommandBuffer:
    """A buffer with all schedules."""
    buffer = CommandBuffer()
    for worker, inputs in given:
        buffer.schedule_worker(worker, inputs)
    return buffer


def read_all(given: Given) -> list[np.ndarray]:
    """Every worker's output."""
    return [worker.peek_output().download_to_array() for worker, _ in given]


if __name__ == "__main__":
    raise SystemExit(main())
