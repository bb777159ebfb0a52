"""The tables of `tests.benchmarks.models`, and which figures miss their bar.

Ratios are a peer's time / this engine's, round by round: above 1, this engine is faster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console

from gameglue.cli.console import table
from gameglue.profiling.compare import geometric_mean
from tests.benchmarks import bars
from tests.benchmarks.bars import Verdict
from tests.benchmarks.measuring import BY_DICT, BY_SET_INPUT, FRAMES, LOOP, Result
from tests.benchmarks.setting import print_table

JUDGED = "cpu"
"""The backend that the bars are for."""

REFERENCE = "onnxruntime"


@dataclass
class Report:
    """Figures of all networks, and the contenders in the order of the columns."""

    results: Mapping[str, Result]
    peers: Sequence[str]
    channels: Sequence[str]
    verdicts: list[Verdict] = field(default_factory=list)

    def print(self, out: Console) -> None:
        """All tables."""
        for show in (
            self._print_times,
            self._print_rhythms,
            self._print_new_shapes,
            self._print_schedule,
            self._print_loads,
            self._print_errors,
        ):
            show(out)
            out.print()

    def ratios(self, channel: str, peer: str) -> dict[str, float]:
        """A peer's time / a backend's, by network."""
        return {
            name: result.times[peer].ratio(result.times[channel])
            for name, result in self.results.items()
            if peer in result.times and channel in result.times
        }

    def add_verdict(self, name: str, bar: str) -> Verdict:
        """A bar that figures are yet to be judged by."""
        self.verdicts.append(Verdict(name, bar))
        return self.verdicts[-1]

    def _print_times(self, out: Console) -> None:
        out.print("x: their time / ours, round by round; above 1, this engine is faster")
        columns = ["median, ms", *self.peers]
        rows = {name: [name, *(self._median(name, peer) for peer in self.peers)] for name in self.results}
        last = ["geometric mean of x", *("" for _ in self.peers)]
        for channel in self.channels:
            columns += [channel, *(f"x {peer}" for peer in self.peers)]
            for name, row in rows.items():
                row.append(self._median(name, channel))
            last.append("")
            for peer in self.peers:
                last.append(self._add_ratios(rows, channel, peer))
        print_table(out, columns, [*rows.values(), last])

    def _add_ratios(self, rows: Mapping[str, list[str]], channel: str, peer: str) -> str:
        """A column of ratios, marked; returns their mean."""
        ratios = self.ratios(channel, peer)
        single = None
        if channel == JUDGED and peer in bars.WORST_RATIO:
            special = "".join(
                f", {name} {least:.1f}" for (name, of), least in bars.SINGLE_RATIO.items() if of == peer
            )
            single = self.add_verdict(
                f"{peer} / {channel}, every network", f"at least {bars.WORST_RATIO[peer]:.1f}{special}"
            )
        for name, row in rows.items():
            if name not in ratios:
                row.append("-")
                continue
            figure = f"{ratios[name]:.2f}"
            least = bars.least_ratio(name, peer)
            if single is not None and least is not None:
                figure = single.judge(name, figure, ratios[name] >= least)
            row.append(figure)
        mean = geometric_mean(ratios.values())
        if channel != JUDGED or peer not in bars.MEAN_RATIO or not ratios:
            return f"{mean:.2f}"
        least = bars.MEAN_RATIO[peer]
        verdict = self.add_verdict(f"{peer} / {channel}, geometric mean", f"at least {least:.1f}")
        return verdict.judge("", f"{mean:.2f}", mean >= least)

    def figures(self) -> dict[str, dict[str, dict[str, object]]]:
        """By network and contender, in seconds and bytes, for a file."""
        found: dict[str, dict[str, dict[str, object]]] = {}
        for name, result in self.results.items():
            found[name] = {contender: dict(vars(known)) for contender, known in result.loaded.items()}
            for contender, timing in result.times.items():
                found[name][contender] |= {"median": timing.median, "best": timing.best}
            for rhythm, times in result.rhythms.items():
                found[name][rhythm] = {way: timing.median for way, timing in times.items()}
            for channel in self.channels:
                for peer in self.peers:
                    if name in (ratios := self.ratios(channel, peer)):
                        found[name][channel][f"{peer} / {channel}"] = ratios[name]
        return found

    def _median(self, name: str, contender: str) -> str:
        timing = self.results[name].times.get(contender)
        return "-" if timing is None else f"{timing.median * 1e3:.3f}"

    def _print_rhythms(self, out: Console) -> None:
        """The cpu backend by two ways of giving tensors, beside onnxruntime with arrays."""
        columns = ["tensors to arrays, low µs"]
        for rhythm in (LOOP, FRAMES):
            columns += [f"{rhythm}: {REFERENCE}", BY_DICT, "x", BY_SET_INPUT, "x", "dict / set_input"]
        rows = []
        for name, result in self.results.items():
            row = [name]
            for times in result.rhythms.values():
                theirs, known, kept = (
                    float(np.quantile(times[way].calls, 0.1)) if way in times else math.nan
                    for way in (REFERENCE, BY_DICT, BY_SET_INPUT)
                )
                row += [f"{theirs * 1e6:.1f}", f"{known * 1e6:.1f}", f"{theirs / known:.2f}"]
                row += [f"{kept * 1e6:.1f}", f"{theirs / kept:.2f}", f"{known / kept:.2f}"]
            if REFERENCE in result.times and result.rhythms:
                rows.append(row)
        if rows:
            print_table(out, columns, rows)

    def _print_new_shapes(self, out: Console) -> None:
        contenders = (*self.peers, *self.channels)
        rows = [
            (name, *(f"{result.loaded[contender].new_shapes * 1e3:.3f}" for contender in contenders))
            for name, result in self.results.items()
            if any(not math.isnan(known.new_shapes) for known in result.loaded.values())
        ]
        if rows:
            print_table(out, ["first calls at other shapes, ms", *contenders], rows)

    def _print_schedule(self, out: Console) -> None:
        columns = ["schedule() on the calling thread"]
        for channel in self.channels:
            columns += [f"{channel}, arrays µs", "tensors µs", "KiB"]
        named = ", ".join(f"{n} {s * 1e6:.0f} µs" for n, s in bars.SCHEDULE_SECONDS.items())
        seconds = self.add_verdict(f"schedule() of tensors on {JUDGED}", f"below {named}")
        size = self.add_verdict(
            f"memory of schedule() on {JUDGED}", f"at most {bars.SCHEDULE_BYTES / 1024:.0f} KiB"
        )
        rows = []
        for name, result in self.results.items():
            row = [name]
            for channel in self.channels:
                known = result.loaded[channel]
                if known.problem:
                    row += ["-", "-", "-"]
                    continue
                cells = [f"{s * 1e6:.1f}" for s in (known.schedule_array, known.schedule_tensor)]
                memory = f"{known.schedule_bytes / 1024:.1f}"
                if channel == JUDGED:
                    memory = size.judge(name, memory, known.schedule_bytes <= bars.SCHEDULE_BYTES)
                    if name in bars.SCHEDULE_SECONDS:
                        most = bars.SCHEDULE_SECONDS[name]
                        cells[1] = seconds.judge(name, cells[1], known.schedule_tensor < most)
                row += [*cells, memory]
            rows.append(row)
        print_table(out, columns, rows)

    def _print_loads(self, out: Console) -> None:
        columns = ["load ms + first run ms, kernels compiled", *self.peers, *self.channels]
        floor = f"{bars.LOAD_SECONDS * 1e3:.0f} ms"
        verdict = self.add_verdict(
            f"load on {JUDGED}", f"at most {REFERENCE}'s or {floor}, whichever is longer"
        )
        rows = []
        for name, result in self.results.items():
            row = [name]
            for contender in (*self.peers, *self.channels):
                known = result.loaded[contender]
                load = f"{known.load * 1e3:.1f}"
                if contender == JUDGED and REFERENCE in result.loaded:
                    most = bars.most_load(result.loaded[REFERENCE].load)
                    load = verdict.judge(name, load, known.load <= most)
                row.append(f"{load} + {known.first * 1e3:.1f}")
            rows.append(row)
        print_table(out, columns, rows)

    def _print_errors(self, out: Console) -> None:
        contenders = (*self.peers, *self.channels)
        rows = [
            (name, *(f"{result.loaded[contender].worst_error:.1e}" for contender in contenders))
            for name, result in self.results.items()
        ]
        print_table(out, [f"error against {REFERENCE}", *contenders], rows)

    def print_verdicts(self, out: Console) -> None:
        """Every bar, and what misses it."""
        rows = [
            (v.name, v.bar, f"{v.judged - len(v.missed)} of {v.judged}", ", ".join(v.missed).strip())
            for v in self.verdicts
            if v.judged
        ]
        if rows:
            out.print(table(("bar", "", "reached by", f"missed ({bars.MISSED.strip()})"), rows))
            out.print()
