"""Tokens a second of a small decoder whose cache grows by one with each, beside one of fixed length.

    python -m tests.benchmarks.tokens --backends cpu gl_compute --tokens 64

Each step schedules a token and the cache, reads the logits, and keeps the longer cache on the backend. In the
first text, all lengths are new to the worker; its plans and kernels are cached on disk, as in a game's second
start. `fixed` does the same with the model's cache fixed at the mean length. onnxruntime's cache grows in
arrays. Contenders take turns, a text each; a ratio above 1 means that `growing` is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from time import perf_counter

import numpy as np

from engine import Model, ModelLoader, Tensor, Worker
from engine.runtime.inputs import InputValue
from gameglue.host.garbage_collection import freeze_garbage_collector
from gameglue.profiling.benchmark_cases import onnxruntime_call
from gameglue.profiling.compare import until_quiet
from tests.benchmarks.setting import (
    BenchmarkParser,
    chosen_backends,
    console,
    open_worker,
    print_end,
    print_setting,
    print_table,
)
from tests.sequence_networks import CACHED, decoder, decoder_inputs

Text = Callable[[], float]
"""One text; what it takes, in seconds."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = BenchmarkParser("benchmarks.tokens", __doc__)
    parser.add_backends()
    parser.add_count("--tokens", len(CACHED), "tokens of a text")
    parser.add_count("--texts", 9, "texts of each contender")
    options = parser.parse_args(argv)
    tokens, start = options.tokens, CACHED[0]
    out = console()
    settings = {"texts": f"{options.texts} of {tokens} tokens each, cache from {start} tokens on"}
    print_setting(out, "a decoder with a growing cache", settings)
    mean = start + tokens // 2
    growing, fixed = ModelLoader.load(decoder()), ModelLoader.load(decoder(mean))
    rows = []
    for name in chosen_backends(options.backends):
        open_worker(growing, name).dispose()  # fills the cache
        with _text(growing, name, start, tokens) as grow, _text(fixed, name, mean, tokens) as fix:
            times = _in_turns([grow, fix, _peer(start, tokens)], options.texts)
        rows.append([name, *_figures(times, tokens)])
    columns = ["tokens a second", "first text", "growing", "fixed", "ratio", "onnxruntime", "ratio"]
    print_table(out, columns, rows)
    print_end(out)
    return 0


def _in_turns(contenders: Sequence[Text], count: int) -> list[list[float]]:
    """Seconds of each contender's texts."""
    times: list[list[float]] = [[] for _ in contenders]
    with freeze_garbage_collector():
        for turn in range(count):
            for k in range(len(contenders)):
                # Each follows each of the others as often.
                which = (k + turn) % len(contenders) if turn % 2 else (turn - k) % len(contenders)
                until_quiet()
                times[which].append(contenders[which]())
    return times


def _figures(times: list[list[float]], tokens: int) -> list[str]:
    """Tokens a second and ratios, as text."""
    grow, fix, peer = (median(taken) for taken in times)
    return [
        *(f"{tokens / seconds:.0f}" for seconds in (times[0][0], grow, fix)),
        f"{fix / grow:.2f}",
        f"{tokens / peer:.0f}",
        f"{peer / grow:.2f}",
    ]


@contextmanager
def _text(model: Model, backend: str, length: int, tokens: int) -> Iterator[Text]:
    """A text by a worker of its own that starts with a cache of `length`."""
    with open_worker(model, backend) as worker:
        yield lambda: _write(worker, length, tokens)


def _write(worker: Worker, length: int, tokens: int) -> float:
    """Seconds of one text."""
    token, *cached = given = decoder_inputs(0, length)
    feeds: dict[str, InputValue] = dict(given)
    kept: list[Tensor] = []
    begin = perf_counter()
    for _ in range(tokens):
        worker.schedule(feeds)
        worker.peek_output("logits").download_to_array()
        older, kept = kept, [worker.copy_output(name.removeprefix("past_")) for name in cached]
        feeds = {token: given[token], **dict(zip(cached, kept, strict=True))}
        for tensor in older:
            tensor.dispose()
    seconds = perf_counter() - begin
    for tensor in kept:
        tensor.dispose()
    return seconds


def _peer(length: int, tokens: int) -> Text:
    """The same by onnxruntime, whose cache grows."""
    call = onnxruntime_call(decoder(), 2)
    token, *cached = start = decoder_inputs(0, length)

    def text() -> float:
        feeds: dict[str, np.ndarray] = dict(start)
        begin = perf_counter()
        for _ in range(tokens):
            answers = call(feeds)
            feeds = {token: start[token], **{name: answers[name.removeprefix("past_")] for name in cached}}
        return perf_counter() - begin

    return text


if __name__ == "__main__":
    raise SystemExit(main())
