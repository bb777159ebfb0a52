"""`InputRecording`: frame lengths and input of a run, for exact replay.

The game it belongs to is the same function of seed, frame lengths, events and the answers of its networks; a
deterministic app (see `App`) has the last of these in the same frames regardless of the computer's speed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from gameglue.errors import GameError
from gameglue.input.events import InputEvent, QuitRequested, event_from_dict, event_to_dict

_FORMAT = 1


@dataclass(frozen=True)
class RecordedFrame:
    """One recorded frame: its duration in real seconds, and its events."""

    delta: float
    events: tuple[InputEvent, ...] = ()


@dataclass
class InputRecording:
    """Recorded frames of a game, for replay: `App(replay=recording)`.

    Attributes:
        seed: Seed of the app that was recorded.
        frame_rate: Its `target_frame_rate`.
        deterministic: Whether it was deterministic.
        latency_frames: Its `latency_frames`.
        size: Width and height of its image in pixels.
        metadata: What else the game has to know: numbers, texts, lists and dicts.
        frames: Length and events of each frame.
    """

    seed: int = 0
    frame_rate: float = 60.0
    deterministic: bool = False
    latency_frames: int = 2
    size: tuple[int, int] = (960, 640)
    metadata: dict[str, object] = field(default_factory=dict)
    frames: list[RecordedFrame] = field(default_factory=list)

    def add_frame(self, delta: float, events: Sequence[InputEvent] = ()) -> None:
        """Append a frame of `delta` seconds."""
        self.frames.append(RecordedFrame(delta, tuple(events)))

    @property
    def duration(self) -> float:
        """Total duration in seconds."""
        return sum(frame.delta for frame in self.frames)

    def save(self, path: str | Path) -> None:
        """Write as text: a line of JSON with the header, then one per frame."""
        head = {"gameglue input": _FORMAT, **{name: getattr(self, name) for name in _HEAD}}
        rows = [head, *([frame.delta, *map(event_to_dict, frame.events)] for frame in self.frames)]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        Path(path).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> InputRecording:
        """Read what `save` wrote. Raises `GameError` for anything else."""
        try:
            head, *rows = map(json.loads, Path(path).read_text(encoding="utf-8").splitlines())
            if head.pop("gameglue input") != _FORMAT:
                raise GameError(f"it was written by another version (this one reads format {_FORMAT})")
            head["size"] = (int(head["size"][0]), int(head["size"][1]))
            made = cls(**head)
            for row in rows:
                made.add_frame(float(row[0]), [event_from_dict(values) for values in row[1:]])
        except OSError as error:
            raise GameError(f"cannot read the recording {path}: {error.strerror}") from error
        except (GameError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise GameError(
                f"{path} is not a recording of input: {error!r}; `gameglue play DEMO --record FILE` or "
                "app.record_input() makes one"
            ) from error
        return made


_HEAD = tuple(f.name for f in fields(InputRecording) if f.name != "frames")


class InputReplay:
    """Plays a recording instead of any other source of events."""

    def __init__(self, recording: InputRecording) -> None:
        self.recording = recording
        self._next = 0
        self._events: tuple[InputEvent, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether the last frame has begun."""
        return self._next >= len(self.recording.frames)

    def begin_frame(self) -> float | None:
        """Advance to the next frame; returns its length in seconds, or `None` when there is none left."""
        if self.is_over:
            return None
        frame = self.recording.frames[self._next]
        self._next += 1
        self._events = frame.events
        return frame.delta

    def take(self, live: Sequence[InputEvent]) -> list[InputEvent]:
        """Return the recorded events of this frame; of live events only quitting is kept."""
        taken, self._events = self._events, ()
        return [*taken, *(event for event in live if isinstance(event, QuitRequested))]
