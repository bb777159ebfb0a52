"""Profiling: samples, the frame time report, recordings, and the overlay."""

from gameglue.profiling.overlay import FrameOverlay
from gameglue.profiling.profiler import Profiler
from gameglue.profiling.recording import FrameRecord, ProfileEvent, ProfileRecording
from gameglue.profiling.report import FrameReport, Spread

__all__ = [
    "FrameOverlay",
    "FrameRecord",
    "FrameReport",
    "Profiler",
    "ProfileRecording",
    "ProfileEvent",
    "Spread",
]
