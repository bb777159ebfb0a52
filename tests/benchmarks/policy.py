"""A small policy network, as games ask one for each of many agents: MLP 8-128-128-2 with tanh.

    python -m tests.benchmarks.policy --batches 1 32

Through `schedule` and a blocking readback, beside `run` of onnxruntime with one thread and with two; and what
`schedule` alone costs the calling thread. Ratios are theirs / ours: above 1, this engine is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from engine import ModelLoader
from gameglue.profiling.benchmark_cases import infer, onnxruntime_call
from gameglue.profiling.compare import alternate
from tests.benchmarks.measuring import BOUNDS, schedule_cost
from tests.benchmarks.setting import (
    BenchmarkParser,
    chosen_backends,
    console,
    open_worker,
    print_end,
    print_setting,
    print_table,
)
from tests.benchmarks.subjects import POLICY_SIZES, policy_inputs, subject
from tests.networks import error

SCHEDULES = 200
"""Calls of `schedule` that its own cost is the median of."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if the outputs differ from onnxruntime's."""
    parser = BenchmarkParser("benchmarks.policy", __doc__)
    parser.add_backends("cpu")
    parser.add_counts("--batches", [1, 32, 1024], "agents")
    parser.add_count("--runs", 15, "turns of each contender")
    options = parser.parse_args(argv)
    channels = chosen_backends(options.backends or ["cpu"])
    out = console()
    sizes = "-".join(map(str, POLICY_SIZES))
    print_setting(
        out,
        f"policy {sizes}: one decision for a batch of agents",
        {"times": f"medians over {options.runs} turns of 0.05 s each"},
    )
    item = subject("policy")
    model = ModelLoader.load(item.source)
    rows: list[list[str]] = []
    problems = []
    with ExitStack() as stack:
        peers = {f"onnxruntime {count}t": onnxruntime_call(item.source, count) for count in (1, 2)}
        workers = {name: stack.enter_context(open_worker(model, name)) for name in channels}
        for batch in options.batches:
            inputs = policy_inputs(batch)
            expected = next(iter(peers.values()))(inputs)["y"]
            contenders: dict[str, Callable[[], object]] = {
                name: partial(call, inputs) for name, call in peers.items()
            }
            for name, worker in workers.items():
                off = error(infer(worker, inputs)["y"], expected)
                if off > BOUNDS[name]:
                    problems.append(f"{name} at batch {batch} is off by {off:.1e}")
                contenders[name] = partial(infer, worker, inputs)
            times = alternate(contenders, options.runs)
            for name, timing in times.items():
                row = [name, str(batch), f"{timing.median * 1e6:.1f}", f"{timing.best * 1e6:.1f}"]
                if name not in workers:
                    row += [""] * (len(peers) + 1)
                else:
                    row += [f"{times[peer].ratio(timing):.2f}" for peer in peers]
                    row.append(f"{schedule_cost(workers[name], inputs, SCHEDULES) * 1e6:.1f}")
                rows.append(row)
    columns = ["µs", "batch", "median", "fastest", *(f"{p} / ours" for p in peers), "schedule() alone"]
    print_table(out, columns, rows)
    for problem in problems:
        out.print(problem)
    print_end(out)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
