"""What the frame loop adds to the game's own code: many components whose `update` does nothing.

    python -m tests.benchmarks.behaviours

They take turns with a bare Python loop over as many bound methods of plain objects, and with frames of an app
without components. Ratios are formed round by round; above 1, the loop over plain methods is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gameglue import App, MonoBehaviour
from gameglue.profiling.compare import alternate
from tests.benchmarks.setting import BenchmarkParser, console, print_end, print_setting, print_table


class Idle(MonoBehaviour):
    """Has a hook with nothing in it."""

    def update(self) -> None:
        """Do nothing."""


class Plain:
    """The same without a host."""

    def update(self) -> None:
        """Do nothing."""


def filled_app(count: int) -> App:
    """A game without a window that has `count` components, all of them awake."""
    app = App("behaviours", headless=True)
    for number in range(count):
        app.scene.create(f"object {number}", Idle)
    for _ in range(5):
        app.step()
    return app


def bare_loop(count: int) -> Callable[[], None]:
    """What a game would write by hand."""
    calls = [Plain().update for _ in range(count)]

    def run() -> None:
        for call in calls:
            call()

    return run


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = BenchmarkParser("benchmarks.behaviours", __doc__)
    parser.add_counts("--batches", [10_000], "components")
    parser.add_count("--runs", 41, "turns of each contender")
    options = parser.parse_args(argv)
    out = console()
    print_setting(
        out,
        "components with an empty update",
        {"times": f"medians over {options.runs} turns of 0.02 s each"},
    )
    rows = []
    for count in options.batches:
        with App("empty", headless=True) as empty, filled_app(count) as full:
            times = alternate(
                {
                    "bare loop": bare_loop(count),
                    "phase update": full._lifecycle.hooks["update"].run,
                    "whole frame": full.step,
                    "frame without components": empty.step,
                },
                options.runs,
                turn=0.02,
            )
        for name, timing in times.items():
            ratio = times["bare loop"].ratio(timing)
            rows.append([name, str(count), f"{timing.median * 1e6:.1f}", f"{ratio:.2f}"])
        added = times["whole frame"].median - times["frame without components"].median
        ratio = times["bare loop"].median / added
        rows.append(["frame less an empty one", str(count), f"{added * 1e6:.1f}", f"{ratio:.2f}"])
    print_table(out, ["µs", "components", "median", "bare loop / this"], rows)
    print_end(out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
