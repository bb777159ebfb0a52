"""One model on several backends against onnxruntime, in a process of its own. Not called by hand.

    python -m tests.field.child MODEL.onnx RESULTS.jsonl SECONDS GIB BACKEND...

Appends a line of JSON for the reference, then two for each backend: that it begins, and what came of it. So
whoever reads the file knows which backend the process died on.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.field.agreement import (
    NUDGES,
    bound,
    computes_in_halves,
    difference,
    in_order_of,
    is_unordered,
    nudged,
    rounds_to_steps,
    with_nudged_weights,
    without_rounding,
)
from tests.field.feeds import Feed, read_feeds
from tests.field.truth import Truth, infer
from tests.peer import open_session

GIB = 2**30
ROUNDS = 10
SECONDS = 1.0
"""Timed runs of a model stop after so many, or after so long."""

THREADS = 2
"""onnxruntime's, where it is timed."""

Answers = list[dict[str, Any]]


def fastest(run: Callable[[], object]) -> float:
    """Milliseconds of the fastest of a few runs."""
    best, end = np.inf, time.perf_counter() + SECONDS
    for _ in range(ROUNDS):
        before = time.perf_counter()
        run()
        now = time.perf_counter()
        best = min(best, now - before)
        if now > end:
            break
    return float(best) * 1e3


Reference = Callable[[Mapping[str, np.ndarray]], dict[str, Any]]


def open_reference(
    model: Path | bytes, optimised: bool, shares_memory: bool, threads: int = THREADS
) -> Reference:
    """onnxruntime for a file or its content."""
    session = open_session(
        model, threads=threads, optimised=optimised, reuses_memory=shares_memory, severity=4
    )
    names = [output.name for output in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(names, dict(feed)), strict=True))


def _run_nudged(run: Reference, seed: int, feed: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return run(nudged(feed, seed))


def moved_references(model: Path, shares_memory: bool, threads: int) -> Iterator[Reference]:
    """onnxruntime with its inputs and the model's weights changed in their last bits."""
    whole = onnx.load(model)
    for seed in range(NUDGES):
        weights = with_nudged_weights(whole, seed).SerializeToString()
        yield partial(_run_nudged, open_reference(weights, True, shares_memory, threads), seed)


def reference(
    model: Path, exact: Path, feeds: list[Feed], in_steps: bool, shares_memory: bool = True
) -> tuple[Answers, Answers, dict[str, Any]]:
    """What onnxruntime answers, how far its own runs are apart for each output, and the figures to report.

    exact: the model to compare with, see `tests.field.agreement.without_rounding`; `model` is timed.
    """
    before = time.perf_counter()
    timed = open_reference(model, True, shares_memory)
    loaded = time.perf_counter() - before
    # DynamicQuantizeLSTM divides a batch among threads, and each quantises the states of its own rows.
    threads = 1 if in_steps else THREADS
    is_timed = exact == model and threads == THREADS
    run = timed if is_timed else open_reference(exact, True, shares_memory, threads)
    expected = [run(feed) for feed in feeds]
    plain = open_reference(exact, False, shares_memory, threads)
    own: Answers = [dict.fromkeys(answers, 0.0) for answers in expected]
    moved = moved_references(exact, shares_memory, threads) if in_steps else ()
    for other in chain([plain], moved):
        for feed, answers, errors in zip(feeds, expected, own, strict=True):
            found = other(feed)
            errors |= {n: max(errors[n], difference(found[n], answer)) for n, answer in answers.items()}
    figures = {
        "own": max((error for errors in own for error in errors.values()), default=0.0),
        "load_ms": loaded * 1e3,
        "run_ms": fastest(lambda: timed(feeds[0])),
        "sizes": len(feeds),
    }
    return expected, own, figures


def measure(
    model: Path,
    backend: str,
    feeds: list[Feed],
    expected: Answers,
    own: Answers,
    truth: Truth,
    in_halves: bool,
    unordered: bool,
) -> dict[str, Any]:
    """A backend's errors, fallbacks and times. Raises what the engine raises."""
    from engine import ModelLoader, Worker
    from tests.benchmarks.setting import CHANNELS

    choice = CHANNELS[backend]
    before = time.perf_counter()
    worker = Worker(ModelLoader.load(model), choice.backend, device=choice.device, precision=choice.precision)
    loaded = time.perf_counter() - before
    worst = {"error": 0.0, "bound": bound(backend, in_halves, 0.0)}
    disagreements = []
    by_float64 = 0.0
    fallbacks: dict[tuple[str, str], str] = {}
    with worker:
        for number, (feed, answers) in enumerate(zip(feeds, expected, strict=True)):
            actual = infer(worker, feed)
            if unordered:
                actual = in_order_of(actual, answers)
            fallbacks.update({(f.layer, f.op_type): f.reason for f in worker.plan_report().fallbacks})
            for name, answer in answers.items():
                try:
                    error = difference(actual[name], answer)
                except ValueError as wrong:
                    disagreements.append(f"output '{name}' of inputs {number}: {wrong}")
                    continue
                limit = bound(backend, in_halves, own[number][name])
                if not error <= limit and not in_halves:
                    wider = bound(backend, in_halves, truth.errors[number].get(name, 0.0))
                    if limit < error <= wider:
                        limit, by_float64 = wider, max(by_float64, wider)
                if not error <= limit:
                    disagreements.append(
                        f"output '{name}' of inputs {number}: {error:.1e}, {limit:.1e} allowed"
                    )
                if error / limit > worst["error"] / worst["bound"]:
                    worst = {"error": error, "bound": limit}
        taken = fastest(lambda: infer(worker, feeds[0])) if not disagreements else np.nan
    return {
        **worst,
        "by_float64": by_float64,
        "failure": "; ".join(disagreements[:3]),
        "fallbacks": [[op_type, reason] for (_, op_type), reason in fallbacks.items()],
        "load_ms": loaded * 1e3,
        "run_ms": taken,
    }


def limit_memory(gib: float) -> None:
    """Let allocations beyond a limit fail, where the system can; drivers map far more than they use."""
    if sys.platform == "win32":
        return
    import resource

    size = int(gib * GIB)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def main() -> None:
    """See the module."""
    model, results, seconds, gib = (
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        float(sys.argv[3]),
        float(sys.argv[4]),
    )
    limit_memory(gib)

    def report(**line: Any) -> None:
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    faulthandler.dump_traceback_later(seconds, exit=True)
    feeds = read_feeds(model)
    if not feeds:
        raise FileNotFoundError(f"no inputs beside {model}")
    try:
        graph = onnx.load(model, load_external_data=False)
        in_steps, in_halves = rounds_to_steps(graph), computes_in_halves(graph)
        unordered = is_unordered(graph)
        exact = model
        if without_rounding(graph):
            whole = onnx.load(model)
            without_rounding(whole)
            exact = results.with_name("exact.onnx")
            onnx.save(whole, exact)
        try:
            expected, own, figures = reference(model, exact, feeds, in_steps)
        except Exception as error:
            # Sizes that a file names alike and that differ: onnxruntime lets their tensors share memory.
            if "re-use buffer" not in str(error):
                raise
            expected, own, figures = reference(model, exact, feeds, in_steps, shares_memory=False)
    except Exception as error:  # noqa: BLE001 - onnxruntime and protobuf raise many kinds
        report(reference={"failure": f"{type(error).__name__}: {error}"})
        return
    report(reference=figures)
    truth = Truth(model, feeds, expected)
    for backend in sys.argv[5:]:
        faulthandler.dump_traceback_later(seconds, exit=True)
        report(begins=backend)
        try:
            found = measure(model, backend, feeds, expected, own, truth, in_halves, unordered)
        except Exception as error:  # noqa: BLE001 - whatever a model provokes is a result
            found = {"failure": f"{type(error).__name__}: {error}"}
        report(backend=backend, **found)


if __name__ == "__main__":
    main()
