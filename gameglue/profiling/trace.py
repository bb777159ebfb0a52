"""Exports a recording in Chrome's trace format, for ui.perfetto.dev and chrome://tracing.

Each part of the machine is a track: frames, phases, hooks, calls of the engine, readbacks, job threads, GPU.
Spans of a track that overlap without one holding the other, which the format cannot draw, go to a second
row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gameglue.profiling.recording import ProfileEvent, ProfileRecording

TRACKS: Mapping[str, str] = {
    "frames": "frames",
    "phases": "frame phases",
    "hooks": "component hooks",
    "main": "engine calls",
    "readback": "readbacks",
    "jobs": "CPU jobs",
    "gpu": "GPU",
}
"""The tracks from top to bottom, and what the trace calls them."""

_COUNTERS = ("bytes up", "bytes down")
_ROWS = 100  # Numbers of rows that each track keeps for itself.


def trace_events(recording: ProfileRecording, title: str) -> list[dict[str, object]]:
    """The trace's events, times in microseconds since the first one."""
    spans = [*_frames(recording), *recording.events]
    origin = min((event.start for event in spans), default=0.0)
    process = os.getpid()
    made: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": title}}
    ]
    workers = sorted({str(e.detail["worker"]) for e in spans if "worker" in e.detail})
    for number, track in enumerate(TRACKS):
        chosen = [event for event in spans if event.track == track]
        for row, (first, members) in enumerate(_rows(chosen)):
            place = 1 + number * _ROWS + row
            label = TRACKS[track] if row == 0 else f"{TRACKS[track]} ({row + 1})"
            made.append(_meta("thread_name", process, place, name=label))
            made.append(_meta("thread_sort_index", process, place, sort_index=place))
            made += [_span(event, process, place, origin) for event in (first, *members)]
    # A row for each worker: what is its own of all the above, from call to answer.
    for number, worker in enumerate(workers):
        kinds = ("schedule", "slice", "readback")
        own = [e for e in spans if e.detail.get("worker") == worker and e.name in kinds]
        for row, (first, members) in enumerate(_rows(own)):
            place = 1 + (len(TRACKS) + number) * _ROWS + row
            made.append(_meta("thread_name", process, place, name=f"worker: {worker}"))
            made.append(_meta("thread_sort_index", process, place, sort_index=place))
            made += [_span(event, process, place, origin) for event in (first, *members)]
    made += _counters(recording, process, origin)
    return made


def write_trace(recording: ProfileRecording, path: str | Path, title: str = "gameglue") -> Path:
    """Write the trace as a JSON file; makes the folder."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    content = {"traceEvents": trace_events(recording, title), "displayTimeUnit": "ms"}
    target.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    return target


def _frames(recording: ProfileRecording) -> Iterator[ProfileEvent]:
    for frame in recording.frames:
        detail: dict[str, object] = {"part": frame.label} if frame.label else {}
        yield ProfileEvent("frames", f"frame {frame.number}", frame.start, frame.end, frame.number, detail)


def _rows(events: Iterable[ProfileEvent]) -> list[tuple[ProfileEvent, list[ProfileEvent]]]:
    """Events in as few rows as nest properly in each, by start: the first of a row, and those after it."""
    rows: list[tuple[ProfileEvent, list[ProfileEvent]]] = []
    open_ends: list[list[float]] = []
    for event in sorted(events, key=lambda e: (e.start, -e.end)):
        for row, ends in zip(rows, open_ends, strict=True):
            while ends and ends[-1] <= event.start:
                ends.pop()
            if not ends or event.end <= ends[-1]:
                row[1].append(event)
                ends.append(event.end)
                break
        else:
            rows.append((event, []))
            open_ends.append([event.end])
    return rows


def _span(event: ProfileEvent, process: int, place: int, origin: float) -> dict[str, object]:
    start, end = ((seconds - origin) * 1e6 for seconds in (event.start, event.end))
    made: dict[str, object] = {"name": event.name, "cat": event.track, "pid": process, "tid": place}
    if event.name == "request":
        return {**made, "ph": "i", "s": "t", "ts": round(start, 3), "args": dict(event.detail)}
    arguments = {"frame": event.frame, **event.detail}
    return {
        **made,
        "ph": "X",
        "ts": round(start, 3),
        "dur": round(max(end - start, 0.0), 3),
        "args": arguments,
    }


def _meta(kind: str, process: int, place: int, **arguments: object) -> dict[str, object]:
    return {"ph": "M", "name": kind, "pid": process, "tid": place, "args": arguments}


def _counters(recording: ProfileRecording, process: int, origin: float) -> Iterator[dict[str, object]]:
    """The frame time as a curve, and bytes that were moved, where any were."""
    for frame in recording.frames:
        moment = {"ph": "C", "pid": process, "tid": 0, "ts": round((frame.start - origin) * 1e6, 3)}
        yield {**moment, "name": "frame time, ms", "args": {"ms": round(frame.seconds * 1e3, 4)}}
        for name in _COUNTERS:
            if recording.totals[name]:
                yield {**moment, "name": name, "args": {"bytes": int(frame.counts.get(name, 0.0))}}


__all__ = ["TRACKS", "trace_events", "write_trace"]
