"""Measure `smoke.onnx` with onnxruntime beside Jacobi's method, and write the model card."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assets.measuring import FileFacts, open_session
from assets.smoke.pool import Pool, conjugate_gradients
from demos.smoke.fluid import COLUMNS, ROWS, Array, Fluid, jacobi
from gameglue import ModelLoader, Worker

ITERATIONS = (20, 40, 80, 160, 320, 640, 1280)
BOXES, WARM_UP, MEASURED, SEED = 12, 60, 10, 100
ALONE = 240
REST = 1e-3  # a root mean square of the divergence below which nothing flows
MOST_LEFT = 0.15

Solver = Callable[[Fluid, Array], Array]


@dataclass(frozen=True)
class Figures:
    """left: the share of the divergence that is left, flow_error: how far the flow is from the exact one
    (relative, both the mean over boxes of a root mean square), and milliseconds, by solver.
    """

    left: dict[str, float]
    flow_error: dict[str, float]
    milliseconds: dict[str, float]
    alone: float
    """What is left, on average, in the last steps of fluids that had the network's pressure all along."""


def network(path: Path) -> Solver:
    """The model as a solver, on one thread."""
    session = open_session(path, threads=1)

    def solve(fluid: Fluid, divergence: Array) -> Array:
        solid = fluid.solid[:, None].astype(np.float32)
        (pressure,) = session.run(["pressure"], {"divergence": divergence[:, None], "solid": solid})
        return np.asarray(pressure[:, 0])

    return solve


def in_game(path: Path) -> list[float]:
    """How long an answer takes on the CPU backend that the demo plays with, in milliseconds."""
    times = []
    with Worker(ModelLoader.load(path)) as worker:
        field = np.random.default_rng(SEED).standard_normal((1, 1, ROWS, COLUMNS), np.float32)
        for _ in range(100):
            started = time.perf_counter()
            worker.schedule(field, np.zeros_like(field))
            worker.peek_output().download_to_array()
            times.append(1e3 * (time.perf_counter() - started))
    return times


def classical(iterations: int) -> Solver:
    """Jacobi's method, as the demo has it."""
    return lambda fluid, divergence: jacobi(divergence, fluid.fluid, fluid.degree, iterations)


def size(*fields: Array) -> float:
    """The root mean square."""
    return float(np.sqrt(sum(float(np.square(f).sum()) for f in fields) / sum(f.size for f in fields)))


def outcome(fluid: Fluid, divergence: Array, pressure: Array) -> tuple[Array, Array, Array]:
    """Velocities and divergence after a pressure, without changing the fluid."""
    u, v = fluid.u.copy(), fluid.v.copy()
    fluid.project(pressure)
    after = fluid.u, fluid.v, fluid.divergence()
    fluid.u, fluid.v = u, v
    return after


def measure(
    path: Path,
    boxes: int = BOXES,
    iterations: tuple[int, ...] = ITERATIONS,
    *,
    warm_up: int = WARM_UP,
    measured: int = MEASURED,
    alone: int = ALONE,
) -> Figures:
    """Try each solver on fluids that training has not seen; the exact pressure moves them on."""
    solvers = {"network": network(path), **{f"Jacobi {count}": classical(count) for count in iterations}}
    left: dict[str, list[float]] = {name: [] for name in solvers}
    errors: dict[str, list[float]] = {name: [] for name in solvers}
    times: dict[str, list[float]] = {name: [] for name in solvers}
    pool = Pool(SEED, boxes)
    for step in range(warm_up + measured):
        for fluid in pool.step(boxes):
            divergence = fluid.divergence()
            if size(divergence) < REST:
                continue
            if step < warm_up:
                fluid.project(solvers["network"](fluid, divergence))
                continue
            exact = conjugate_gradients(fluid, divergence)
            u, v, _ = outcome(fluid, divergence, exact)
            for name, solve in solvers.items():
                started = time.perf_counter()
                pressure = solve(fluid, divergence)
                times[name].append(1e3 * (time.perf_counter() - started))
                his_u, his_v, after = outcome(fluid, divergence, pressure)
                left[name].append(size(after) / max(size(divergence), 1e-9))
                errors[name].append(size(his_u - u, his_v - v) / max(size(u, v), 1e-9))
            fluid.project(exact)
    times["network"] = in_game(path)
    return Figures(
        {name: float(np.mean(values)) for name, values in left.items()},
        {name: float(np.mean(values)) for name, values in errors.items()},
        {name: float(np.median(values)) for name, values in times.items()},
        _alone(solvers["network"], alone),
    )


def _alone(solve: Solver, steps: int) -> float:
    pool, shares = Pool(SEED + 1, 4), []
    for step in range(steps):
        for fluid in pool.step(4):
            divergence = fluid.divergence()
            if size(divergence) < REST:
                continue
            fluid.project(solve(fluid, divergence))
            if step >= steps - 40:
                shares.append(size(fluid.divergence()) / max(size(divergence), 1e-9))
    return float(np.mean(shares))


CARD = """\
# smoke: finds the pressure of a fluid

Written by `train_smoke.py` in this folder; do not edit it by hand.

| solver | divergence left | flow off by | ms |
| --- | --- | --- | --- |
{rows}

Measured on {samples} steps of {boxes} boxes that training has not seen, with jets and up to three stones, at
{height} x {width} cells, with onnxruntime. "Divergence left" is relative to that before, "flow off by" to the
exact flow (conjugate gradients, to 1e-5); both are root mean squares. Times are medians, as in the demo: the
network on the CPU backend, Jacobi's method in NumPy, both from nothing. The boxes flow by the exact
pressure, so each solver starts from flows without earlier errors. In the demo, a box keeps what its
own solver left in all steps before: see `demos/smoke/README.md`.

- At equal time ({network_ms:.2f} ms), Jacobi's method gets through about {equal_time:.0f} iterations and
  leaves {equal_time_left:.1%} of the divergence where the network leaves {network_left:.1%}; the flow is off
  by {equal_time_error:.1%} and {network_error:.1%}.
- {equal_quality}
- Fluids that had nothing but the network's pressure for {alone_steps} steps stay calm: {alone:.1%} is left
  in their last ones.

## Input and output

| name | type and shape | meaning |
| --- | --- | --- |
| `divergence` (input) | float32 (batch, 1, {height}, {width}) | what flows out of each cell in a step |
| `solid` (input) | float32 (batch, 1, {height}, {width}) | 1 in walls and stones, 0 in the fluid |
| `pressure` (output) | float32 (batch, 1, {height}, {width}) | its slope is taken from the velocities |

Outside the grid is open air at pressure 0. `batch` is a named dynamic dimension. One file without external
data, {kilobytes:.0f} kB, {weights:,} weights, opset {opset}.

## Network

A U-net on blocks of 2 x 2 cells, with four sizes of picture down to 6 x 4, used twice with the same weights:
the second round sees the divergence that the first one leaves. Each round gets its input at size 1 and gives
its pressure back at the input's size, so that a calm fluid is solved as well as a wild one.

## Training

No solutions were learned from. Fluids flow under the network's own pressure, in the simulator that the demo
plays (`demos/smoke/fluid.py`); the loss is the divergence left, near and far. From the root of the
repository:

    pip install -e .[train,test]
    python -m assets.smoke.train_smoke

It takes about two minutes on an idle core and replaces `smoke.onnx` and this file; `--card` measures
again without training. Seeds are fixed; another machine or library version may still differ in the last
decimals.

## Use and limits

Made for boxes of {height} x {width} cells with walls left, right and below, and round stones. What it leaves
of the divergence acts like small sources: good for smoke to look at, not for figures to rely on.

## Licence

The model and its script are under the project's MIT licence. All data come from the script.
"""


def write_card(folder: Path) -> str:
    """Measure `smoke.onnx` in a folder and write its card. Raises RuntimeError where too much is left."""
    path = folder / "smoke.onnx"
    figures = measure(path)
    mine = figures.left["network"]
    if mine > MOST_LEFT:
        raise RuntimeError(f"the network leaves {mine:.1%} of the divergence; at most {MOST_LEFT:.0%} may be")
    counts = np.array(ITERATIONS, float)
    lefts = [figures.left[f"Jacobi {count}"] for count in ITERATIONS]
    errors = [figures.flow_error[f"Jacobi {count}"] for count in ITERATIONS]
    times = [figures.milliseconds[f"Jacobi {count}"] for count in ITERATIONS]
    network_ms = figures.milliseconds["network"]
    equal = float(np.interp(network_ms, times, counts))
    if mine >= lefts[-1]:
        needed = float(np.exp(np.interp(-mine, [-x for x in lefts], np.log(counts))))
        ms = float(np.interp(needed, counts, times))
        quality = f"At equal quality, Jacobi's method needs about {needed:.0f} iterations, {ms:.2f} ms."
    else:
        quality = (
            f"Equal quality takes Jacobi's method more than {ITERATIONS[-1]} iterations, {times[-1]:.1f} ms."
        )
    rows = [
        f"| {name} | {left:.1%} | {figures.flow_error[name]:.1%} | {figures.milliseconds[name]:.2f} |"
        for name, left in figures.left.items()
    ]
    text = CARD.format(
        rows="\n".join(rows).replace("| Jacobi 20 |", "| Jacobi 20 iterations |"),
        samples=BOXES * MEASURED,
        boxes=BOXES,
        height=ROWS,
        width=COLUMNS,
        network_ms=network_ms,
        network_left=mine,
        network_error=figures.flow_error["network"],
        equal_time=equal,
        equal_time_left=float(np.interp(equal, counts, lefts)),
        equal_time_error=float(np.interp(equal, counts, errors)),
        equal_quality=quality,
        alone=figures.alone,
        alone_steps=ALONE,
        **vars(FileFacts.of(path)),
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
    return "\n".join(rows)
