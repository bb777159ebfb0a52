"""OpenGL kernels by themselves: a tuned convolution beside the generic one, and the cost of replayed calls.

    python -m tests.benchmarks.gl_kernels --runs 5

Each row is the minimum of its runs; both kernels take turns. "x" is the generic kernel's time / the tuned
one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from engine.backends.gl.backend import GLBackend
from engine.backends.gl.commands import CallList, Replayer
from engine.backends.gl.compute.backend import GLComputeBackend
from engine.backends.gl.pixel.backend import GLPixelBackend
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL
from tests.benchmarks.setting import BenchmarkParser, console, print_setting, print_table
from tests.engine.backends.steps import Bound, chain_plan, conv_compute, tuned_plan, value

CALLS = 20_000


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = BenchmarkParser("benchmarks.gl_kernels", __doc__)
    parser.add_count("--runs", 5, "turns")
    options = parser.parse_args(argv)
    out = console()
    with GLDevice.for_context() as device:
        print_setting(out, "OpenGL kernels", {"runs": options.runs})
        ways: list[tuple[str, GLBackend]] = [("pixel", GLPixelBackend(device))]
        if device.info.supports_compute:
            ways += [
                (f"compute, {how}", GLComputeBackend(device, texels=how == "texels"))
                for how in ("texels", "storage")
            ]
        rows = []
        for name, backend in ways:
            tuned, generic = _convolution(backend, options.runs)
            rows.append((name, f"{tuned * 1e3:.3f}", f"{generic * 1e3:.3f}", f"{generic / tuned:.2f}"))
            backend.dispose()
        print_table(out, ("convolution, 32 to 64 of 28 x 28", "tuned ms", "generic ms", "x"), rows)
        out.print(f"\nreplaying a call takes {_replay(device, options.runs) * 1e9:.0f} ns")
    return 0


def _convolution(backend: GLBackend, runs: int) -> tuple[float, float]:
    """Seconds of the tuned kernel and of the generic one."""
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 32, 28, 28), (64, 32, 3, 3)))
    sizes = ((1, 1), (1, 1), (1, 1), (1, 1))
    compute = conv_compute(value("x", x), value("w", w, known=True), *sizes, 1, None)
    plans = (tuned_plan(backend, compute), chain_plan([compute]))
    bound = [Bound(backend, plan, {"x": x, "w": w}, {"y": compute.output}) for plan in plans]
    times: list[list[float]] = [[], []]
    for _ in range(runs + 1):  # the first is a warm-up
        for found, plan in zip(times, bound, strict=True):
            backend.synchronize()
            start = perf_counter()
            plan.run()
            backend.synchronize()
            found.append(perf_counter() - start)
    for plan in bound:
        plan.release()
    return min(times[0][1:]), min(times[1][1:])


def _replay(device: GLDevice, runs: int) -> float:
    """Seconds of a recorded call; glActiveTexture stands in for calls that do little."""
    commands = CallList()
    for _ in range(CALLS):
        commands.call(device.gl.address("glActiveTexture"), GL.TEXTURE0)
    commands.finish()
    replayer = Replayer()
    replayer.wait()
    times = []
    with device.current():
        for _ in range(runs + 1):
            start = perf_counter()
            replayer.run(commands)
            times.append(perf_counter() - start)
    return min(times[1:]) / CALLS


if __name__ == "__main__":
    raise SystemExit(main())
