"""Where the frame's time goes: samples, the frame-time report, and the overlay."""

from gameglue.profiling.overlay import FrameOverlay
from gameglue.profiling.profiler import Profiler
from gameglue.profiling.report import FrameReport, Spread

__all__ = ["FrameOverlay", "FrameReport", "Profiler", "Spread"]
