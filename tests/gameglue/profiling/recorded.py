"""Recordings and profiles made by hand, at times that the test chooses."""

from __future__ import annotations

import numpy as np

from gameglue.profiling.recording import ProfileRecording
from gameglue.profiling.session import PAUSED, RUNNING, Profile


class Reader:
    """Stands for a component."""


def recorded(frames: int = 12, ms: float = 4.0, begin: float = 100.0) -> ProfileRecording:
    """Frames of `ms` each, 16 ms apart: half of it `update`, of which a hook takes half, the rest `gui`.

    The second half of the frames is paused. Every frame has a schedule and a readback that ends in the next.
    """
    recording = ProfileRecording()
    for number in range(frames):
        start, third = begin + number * 0.016, ms / 1e3
        recording.label = RUNNING if number < frames // 2 else PAUSED
        recording.begin_frame(number)
        recording.hook(Reader(), "update", start, start + third / 4)
        recording.span("main", "schedule", start, start + third / 8, bytes=64, backend="cpu")
        recording.phase("update", start, start + third / 2)
        recording.phase("gui", start + third / 2, start + third)
        recording.span("readback", "readback", start + third / 8, start + 0.017, tensor="y")
        recording.span("jobs", "job", start + third / 8, start + third)
        recording.count("bytes up", 64)
        recording.end_frame(start, start + third)
    return recording


def profile_of(recording: ProfileRecording) -> Profile:
    """The profile that the frames of a recording make."""
    profile = Profile("made <by hand>", recording, 60.0, {"renderer": "none & nothing"})
    profile.work = np.array([frame.seconds for frame in recording.frames])
    for side in (RUNNING, PAUSED):
        profile.sides[side] = np.array([f.seconds for f in recording.frames if f.label == side])
    profile.counted = ("OpenGL",)
    return profile
