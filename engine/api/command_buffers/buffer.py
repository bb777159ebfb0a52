"""`CommandBuffer`: records schedules, jobs and calls, and executes them together any number of times.

The first execution schedules each command by itself and records the result. Later, consecutive commands are
submitted together (`engine.api.command_buffers.joined_segments`): on the CPU as one job, on OpenGL as one
replay of calls. Other commands (a plan that waits for data, inputs of another shape than before) are
scheduled by themselves, with the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.api.command_buffers.items import (
    Command,
    JobCommand,
    PlainCommand,
    ScheduleCommand,
    WorkerOutput,
    now,
)
from engine.api.command_buffers.joined_segments import JoinedSegment, segments_of
from engine.api.jobs import Job
from engine.api.textures import TextureConverter, TextureTransform
from engine.api.worker import Worker
from engine.base import instrumentation
from engine.base.errors import InputError
from engine.base.spelling import SpellingType
from engine.runtime.inputs import InputValue
from engine.runtime.tensor import Tensor


class CommandBuffer:
    """Commands collected now and executed together later, in order, any number of times."""

    def __init__(self) -> None:
        self._commands: list[Command] = []
        self._segments: list[Command | JoinedSegment] | None = None
        self._replayed = 0

    def schedule_worker(
        self, worker: Worker, inputs: Mapping[str, InputValue | WorkerOutput] | None = None
    ) -> None:
        """Add a schedule of a worker; inputs that are not given take their `set_input` values at execution.

        The elements of `inputs` are read when the buffer is executed. With arrays and tensors of the same
        shapes each time, the schedule is replayed.
        """
        if not isinstance(worker, Worker):
            raise InputError(f"schedule_worker takes a Worker, not a {type(worker).__name__}")
        self._add(ScheduleCommand(worker, dict(inputs or {})))

    def set_input(self, worker: Worker, name: str, value: InputValue) -> None:
        """Add a `worker.set_input`, which later schedules of that worker use.

        Args:
            worker: The worker.
            name: Name of the input.
            value: A tensor or array.
        """
        self.add(lambda: worker.set_input(name, value))

    def output(self, worker: Worker, name: str | None = None) -> WorkerOutput:
        """A reference to a worker's output at execution time, for use as an input or a job argument."""
        return WorkerOutput(worker, name)

    def schedule_job(
        self, job: Job, *arguments: Any, count: int | None = None, grain: int | None = None
    ) -> None:
        """Add a user's job, which runs after the commands before it and before those that follow.

        Args:
            job: The job.
            *arguments: Arguments of `Job.schedule`; `output(worker)` stands for a worker's output.
            count: Size of the parallel loop; by default that of the first array.
            grain: Iterations per chunk.
        """
        if not isinstance(job, Job):
            raise InputError(f"schedule_job takes what @job made, not a {type(job).__name__}")
        self._add(JobCommand(job, arguments, count, grain))

    def to_tensor(
        self,
        image: Any,
        tensor: Tensor,
        transform: TextureTransform | None = None,
        *,
        slot: int | None = None,
    ) -> None:
        """Add a `TextureConverter.to_tensor` into a tensor that later commands read.

        Args:
            image: The texture, render target or image.
            tensor: The tensor to write.
            transform: How the image becomes a tensor.
            slot: Position in the tensor's batch to write; `None` for all.
        """
        self.add(lambda: TextureConverter.to_tensor(image, transform, tensor, slot=slot))

    def to_texture(
        self,
        tensor: Tensor | WorkerOutput,
        texture: Any,
        transform: TextureTransform | None = None,
        *,
        slot: int = 0,
    ) -> None:
        """Add a `TextureConverter.to_texture`.

        Args:
            tensor: A tensor, or `output(worker)`.
            texture: The texture or image to write.
            transform: How the tensor becomes an image.
            slot: Position in the tensor's batch to read.
        """
        self.add(lambda: TextureConverter.to_texture(now(tensor), transform, texture, slot=slot))

    def render_to_texture(
        self,
        tensor: Tensor | WorkerOutput,
        target: Any,
        transform: TextureTransform | None = None,
        *,
        slot: int = 0,
    ) -> None:
        """Add a `TextureConverter.render_to_texture`.

        Args:
            tensor: A tensor, or `output(worker)`.
            target: The texture, render target or framebuffer to write.
            transform: How the tensor becomes an image.
            slot: Position in the tensor's batch to read.
        """
        self.add(lambda: TextureConverter.render_to_texture(now(tensor), target, transform, slot=slot))

    def render_to_screen(
        self,
        tensor: Tensor | WorkerOutput,
        transform: TextureTransform | None = None,
        screen: Any = None,
        *,
        slot: int = 0,
    ) -> None:
        """Add a `TextureConverter.render_to_screen`.

        Args:
            tensor: A tensor, or `output(worker)`.
            transform: How the tensor becomes an image.
            screen: As for `TextureConverter.render_to_screen`.
            slot: Position in the tensor's batch to read.
        """
        self.add(lambda: TextureConverter.render_to_screen(now(tensor), transform, screen, slot=slot))

    def add(self, call: Callable[[], object]) -> None:
        """Add any other callable, which each execution calls in order."""
        if not callable(call):
            raise InputError(f"add takes something to call, not a {type(call).__name__}")
        self._add(PlainCommand(call))

    def clear(self) -> None:
        """Remove all commands."""
        self._commands.clear()
        self._segments = None

    def execute(self) -> None:
        """Enqueue the commands in order, without waiting; they stay, so a buffer can be executed again."""
        self._replayed = 0
        if self._segments is None or instrumentation.installed:
            for command in self._commands:
                command.execute()
            self._segments = segments_of(self._commands)
            return
        is_changed = False
        for segment in self._segments:
            if not isinstance(segment, JoinedSegment):
                is_changed |= isinstance(segment, ScheduleCommand) and segment.waited
                segment.execute()
            elif segment.replay():
                self._replayed += segment.count
            else:  # put together anew
                is_changed = True
                for command in segment.commands:
                    command.execute()
        if is_changed:
            self._segments = segments_of(self._commands)

    @property
    def replayed_count(self) -> int:
        """How many commands the last execution replayed natively, together with others."""
        return self._replayed

    def __len__(self) -> int:
        return len(self._commands)

    def _add(self, command: Command) -> None:
        self._commands.append(command)
        self._segments = None


class Graphics(metaclass=SpellingType):
    """Executes command buffers."""

    @staticmethod
    def execute_command_buffer(buffer: CommandBuffer) -> None:
        """Execute all commands of a buffer in order, without waiting for their work."""
        buffer.execute()
