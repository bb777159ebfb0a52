"""Batches of a buffer's commands: one job on the CPU, one replay on OpenGL."""

from __future__ import annotations

from collections.abc import Sequence

from engine.api.command_buffers.items import (
    Command,
    Item,
    JobCommand,
    PlainSegment,
    ScheduleCommand,
    Segment,
    Slot,
    are_latest,
    outside_outputs,
)
from engine.api.command_buffers.jobs import CPUSegment
from engine.device.jobs.system import JobSystem
from engine.runtime.binding import bind, can_bind
from engine.runtime.fast_path import FastPath


def segments_of(commands: Sequence[Command]) -> list[Segment]:
    """How commands that were executed one by one go out together from now on."""
    found: list[Segment] = []
    together: list[Item | JobCommand] = []
    place: object = None
    latest: dict[int, FastPath] = {}

    def close() -> None:
        if len(together) > 1:
            is_on_cpu = isinstance(place, JobSystem)
            found.append(CPUSegment(together, place) if is_on_cpu else StreamSegment(together))  # type: ignore[arg-type]
        else:
            found.extend(PlainSegment(x.command if isinstance(x, Item) else x) for x in together)
        together.clear()

    for command in commands:
        item = _item(command, latest) if isinstance(command, ScheduleCommand) else None
        where = _where(item, command, place)
        if where is None or where != place or (item is not None and _breaks(item, together)):
            close()
        place = where
        if isinstance(command, JobCommand) and where is not None:
            together.append(command)
        elif item is not None:
            together.append(item)
            latest[id(item.command.worker)] = item.fast_path
        else:
            found.append(PlainSegment(command))
    close()
    return found


def _item(command: ScheduleCommand, latest: dict[int, FastPath]) -> Item | None:
    fast_path, values = command.fast_path, command.worker._inputs.completed(command.given)
    if fast_path is None or values is None or fast_path.recorded.fast_path is not fast_path:
        return None
    slots = [Slot.of(value, fast_path, number, latest) for number, value in enumerate(values)]
    kept = [slot for slot in slots if slot is not None]
    return Item(command, fast_path, kept) if len(kept) == len(slots) else None


def _where(item: Item | None, command: Command, place: object) -> object:
    """With which others a command can go out; None for none. A job goes with the workers before it."""
    if isinstance(command, JobCommand):
        return place if isinstance(place, JobSystem) else None
    if item is None:
        return None
    backend = item.fast_path.backend
    return backend.owner if backend.is_host else (backend.name, id(backend.owner))


def _breaks(item: Item, together: Sequence[Item | JobCommand]) -> bool:
    """Whether a schedule on a GPU needs those before it to be enqueued: its inputs are uploaded first."""
    if item.fast_path.backend.is_host:
        return False
    before = {id(other.command.worker) for other in together if isinstance(other, Item)}
    needed = {id(slot.output.worker) for slot in item.slots if slot.output is not None}
    return id(item.command.worker) in before or bool(needed & before)


class StreamSegment:
    """Schedules of several workers on one GPU: uploads, then all their commands in one replay."""

    stays = False

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = list(items)
        self.commands = [item.command for item in items]
        self.count = len(items)
        self._outside = outside_outputs(items)
        self._backend = items[0].fast_path.backend
        self._run = self._backend.join([item.fast_path.program for item in items])

    def replay(self) -> bool:
        """Upload and run, with one change of context."""
        if not are_latest(self._outside):
            return False
        bound = []
        for item in self._items:
            values = item.values()
            if values is None:
                return False
            feeds = [slot.feed(value) for slot, value in zip(item.slots, values, strict=True)]
            if not all(can_bind(feed, self._backend) for feed in feeds):
                return False
            bound.append((item, feeds))
        with self._backend.entered():
            for item, feeds in bound:
                for slot, feed in zip(item.slots, feeds, strict=True):
                    bind(feed, item.fast_path.backend, slot.buffer)
            self._run()
            self._backend.flush()
        for item in self._items:
            item.command.worker._took(item.fast_path)
        return True
