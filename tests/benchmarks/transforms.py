"""Moving many objects: what a game does with transforms, in nanoseconds an object.

    python -m tests.benchmarks.transforms --objects 10000

Each row is the median of its runs; the ways take turns. "below one" are objects that hang under a moving one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

from gameglue import Transform
from tests.benchmarks.setting import BenchmarkParser, console, print_setting, print_table

Way = Callable[[list[Transform]], object]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = BenchmarkParser("benchmarks.transforms", __doc__)
    parser.add_count("--objects", 10_000, "")
    parser.add_count("--runs", 15, "turns")
    options = parser.parse_args(argv)
    single = [Transform() for _ in range(options.objects)]
    above, below = Transform(), [Transform() for _ in range(options.objects)]
    for child in below:
        child.set_parent(above, keep_world=False)
        child.local_position = (1.0, 2.0)
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(options.runs):
        for name, way in WAYS.items():
            above.local_position += (0.25, 0.0, 0.0)
            chosen = below if name.startswith("below one") else single
            start = perf_counter()
            way(chosen)
            times[name].append((perf_counter() - start) / options.objects * 1e9)
    out = console()
    print_setting(out, f"{options.objects} transforms", {"runs": options.runs})
    rows = [(name, f"{median(found):.0f}") for name, found in times.items()]
    print_table(out, ("what", "ns an object"), rows)
    return 0


def _set_position(transforms: list[Transform]) -> None:
    for transform in transforms:
        transform.position = (1.0, 2.0, 3.0)


def _move(transforms: list[Transform]) -> None:
    for transform in transforms:
        transform.position += (0.25, 0.0)


def _translate(transforms: list[Transform]) -> None:
    for transform in transforms:
        transform.translate((0.25, 0.0, 0.5))


def _turn(transforms: list[Transform]) -> None:
    for transform in transforms:
        transform.rotate(1.5)


def _forward(transforms: list[Transform]) -> None:
    for transform in transforms:
        transform.position += transform.forward * 0.01


def _matrix(transforms: list[Transform]) -> None:
    for transform in transforms:
        transform.position += (0.25, 0.0)
        _ = transform.matrix


def _read(transforms: list[Transform]) -> None:
    for transform in transforms:
        _ = transform.position


def _to_world(transforms: list[Transform]) -> None:
    for transform in transforms:
        transform.to_world((1.0, 0.0))


WAYS: dict[str, Way] = {
    "position = (x, y, z)": _set_position,
    "position += (x, y)": _move,
    "translate": _translate,
    "rotate": _turn,
    "position += forward * step": _forward,
    "move, then matrix": _matrix,
    "below one: position": _read,
    "below one: position +=": _move,
    "below one: to_world": _to_world,
}

if __name__ == "__main__":
    raise SystemExit(main())
