"""The trace against the rules of Chrome's trace event format, read back from the file."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from gameglue.profiling.recording import ProfileRecording
from gameglue.profiling.trace import TRACKS, trace_events, write_trace
from tests.gameglue.profiling.recorded import recorded

# What each kind of event must have, and of which type.
REQUIRED: dict[str, dict[str, type | tuple[type, ...]]] = {
    "X": {"name": str, "cat": str, "ts": (int, float), "dur": (int, float), "pid": int, "tid": int},
    "i": {"name": str, "ts": (int, float), "pid": int, "tid": int, "s": str},
    "C": {"name": str, "ts": (int, float), "pid": int, "args": dict},
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
}


def check_schema(events: list[dict[str, Any]]) -> None:
    """Raise unless every event is one that the format knows, complete, and spans of a thread nest."""
    threads: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        for key, kind in REQUIRED[event["ph"]].items():
            assert isinstance(event[key], kind), (key, event)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name", "thread_sort_index")
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
        if event["ph"] == "X":
            assert event["dur"] >= 0.0
            assert event["ts"] >= 0.0
            threads[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in threads.values():
        open_ends: list[float] = []
        for start, end in sorted(spans, key=lambda s: (s[0], -s[1])):
            while open_ends and open_ends[-1] <= start + 0.0015:  # times are written in thousandths
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 0.0015
            open_ends.append(end)


def test_the_file_is_a_trace(tmp_path: Path) -> None:
    recording = recorded()
    path = write_trace(recording, tmp_path / "new" / "t.json", "game")
    content = json.loads(path.read_text())
    assert set(content) == {"traceEvents", "displayTimeUnit"}
    assert content["displayTimeUnit"] in ("ms", "ns")
    events = content["traceEvents"]
    check_schema(events)
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    used = {named[e["tid"]] for e in events if e["ph"] == "X"}
    assert {TRACKS[t] for t in ("frames", "phases", "hooks", "main", "readback", "jobs")} <= used


def test_times_are_microseconds_since_the_first_event() -> None:
    events = trace_events(recorded(frames=3, ms=4.0), "game")
    frames = [e for e in events if e.get("cat") == "frames"]
    assert [e["name"] for e in frames] == ["frame 0", "frame 1", "frame 2"]
    assert [e["ts"] for e in frames] == pytest.approx([0, 16_000, 32_000], abs=0.01)
    assert [e["dur"] for e in frames] == pytest.approx([4000] * 3, abs=0.01)


def test_spans_that_overlap_have_rows_of_their_own() -> None:
    """Readbacks end after the next one has begun: in one row, a viewer would draw them wrong."""
    events = trace_events(recorded(frames=6), "game")
    readbacks = [e for e in events if e.get("cat") == "readback" and e["ph"] == "X"]
    assert len({e["tid"] for e in readbacks}) == 2
    check_schema(events)


def test_an_empty_recording_is_a_trace_too(tmp_path: Path) -> None:
    events = json.loads(write_trace(ProfileRecording(), tmp_path / "t.json").read_text())["traceEvents"]
    check_schema(events)
    assert [e["ph"] for e in events] == ["M"]
