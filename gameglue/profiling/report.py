"""`FrameReport`: frame times of a run, as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from gameglue.profiling.profiler import Profiler


@dataclass(frozen=True)
class Spread:
    """How a time is distributed over the frames, in milliseconds."""

    mean: float = 0.0
    median: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    max: float = 0.0

    @classmethod
    def of(cls, seconds: np.ndarray) -> Spread:
        """Measure (n,) times given in seconds; all zeros for none."""
        if len(seconds) == 0:
            return cls()
        ms = seconds * 1e3
        median, p95, p99 = np.percentile(ms, (50, 95, 99)).tolist()
        return cls(float(ms.mean()), median, p95, p99, float(ms.max()))


@dataclass(frozen=True)
class FrameReport:
    """Frame times of one run, in milliseconds.

    Attributes:
        title: Title of the app.
        frames: All frames.
        measured: The latest frames, which the times are of.
        first_frame_ms: Time of the first frame.
        work: CPU time on the main thread within a frame.
        interval: Time from one frame to the next.
        phases: Times of each phase, by name.
        samples: Times of each sample block, by name.
        sample_calls: How often each sample block ran, by name.
        metadata: What the app and the game add, such as the renderer.
    """

    title: str
    frames: int
    measured: int
    first_frame_ms: float
    work: Spread
    interval: Spread
    phases: dict[str, Spread] = field(default_factory=dict)
    samples: dict[str, Spread] = field(default_factory=dict)
    sample_calls: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, profiler: Profiler, title: str, metadata: Mapping[str, object] | None = None) -> FrameReport:
        """Summarise what `profiler` recorded. `metadata` (renderer, backend...) is added unchanged."""
        return cls(
            title=title,
            frames=profiler.frame_count,
            measured=len(profiler.work.latest()),
            first_frame_ms=(profiler.first_frame or 0.0) * 1e3,
            work=Spread.of(profiler.work.latest()),
            interval=Spread.of(profiler.interval.latest()),
            phases={name: Spread.of(ring.latest()) for name, ring in profiler.phases.items()},
            samples={name: Spread.of(ring.latest()) for name, ring in profiler.samples.items()},
            sample_calls=dict(profiler.sample_calls),
            metadata=dict(metadata or {}),
        )

    def as_dict(self) -> dict[str, object]:
        """The report as plain data."""
        return asdict(self)

    def as_text(self) -> str:
        """The report as a table."""
        lines = [f"{self.title}: {self.frames} frames, the first took {self.first_frame_ms:.2f} ms"]
        lines += [f"{name}: {value}" for name, value in self.metadata.items()]
        lines += ["", f"{'ms':24}{'mean':>9}{'median':>9}{'p95':>9}{'p99':>9}{'max':>9}"]
        lines.append(_row("frame", self.work))
        lines.append(_row("from frame to frame", self.interval))
        lines += ["", "phases"]
        lines += [_row(f"  {name}", spread) for name, spread in self.phases.items()]
        if self.samples:
            lines += ["", "samples"]
            for name, spread in self.samples.items():
                lines.append(f"{_row(f'  {name}', spread)}   {self.sample_calls[name]} calls")
        return "\n".join(lines) + "\n"

    def write(self, path: str | Path) -> Path:
        """Write JSON if the name ends in `.json`, else text; makes the folder."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix.lower() == ".json":
            target.write_text(json.dumps(self.as_dict(), indent=2, default=str) + "\n", encoding="utf-8")
        else:
            target.write_text(self.as_text(), encoding="utf-8")
        return target


def _row(name: str, spread: Spread) -> str:
    times = (spread.mean, spread.median, spread.p95, spread.p99, spread.max)
    return f"{name:24}" + "".join(f"{value:9.3f}" for value in times)
