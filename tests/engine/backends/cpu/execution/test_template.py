"""Recorded plans: fixed and symbolic sizes take the same path from steps to commands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.execution.arguments import count_words
from engine.backends.cpu.execution.command_builder import CommandBuilder
from engine.backends.cpu.execution.program import CPUProgram
from engine.compiler.plan import BufferSpec, IterationWindow, Plan, RepeatedSteps, Step, StoredKernel
from engine.device.jobs.command_loops import BEGIN, TURN
from engine.kernels.expr import IterationNumber
from engine.kernels.size_recorder import SizeRecorder
from tests import guards

F32 = np.dtype(np.float32)


@pytest.fixture
def backend() -> CPUBackend:
    """A backend with functions that are never called."""
    backend = CPUBackend(deterministic=True)
    backend._functions |= {"rows": 8, "tasks": 16, "cells": 24}
    return backend


def step(
    name: str,
    space: tuple[Any, ...],
    values: tuple[Any, ...],
    inputs: tuple[str, ...],
    output: str,
    window: IterationWindow | None = None,
) -> Step:
    """A step of one of the fixture's functions, which takes 20 us."""
    kernel = StoredKernel(name, name, name == "tasks", 20_000.0)
    return Step("layer", "type", kernel, space, values, inputs, output, window)


def plan_of(n: Any) -> Plan:
    """Steps over n x 600 elements, some of them repeated n times; a few are of other elements or none."""
    body = (
        step("rows", (n, 600), (IterationNumber(0), 0.5), ("x", "even"), "odd"),
        step("tasks", (n - 3,), (1.5, n), ("odd",), "t"),
    )
    last = (step("cells", (n * 600,), (), ("even",), "y", IterationWindow(0, 600, n * 100)),)
    repeated = RepeatedSteps(body, last, {"even": "odd", "odd": "even"})
    steps = [
        step("rows", (n, 600), (), ("x",), "even"),
        step("tasks", (n - 3,), (), ("x",), "t"),
        Step("layer", "type", repeated, (n,), (), ("x", "even", "odd", "t"), "y"),
        step("cells", (n * 600,), (n * 0.5, -n), ("y",), "z"),
    ]
    roles = {
        "x": "input",
        "y": "output",
        "z": "output",
        "even": "temporary",
        "odd": "temporary",
        "t": "temporary",
    }
    specs = {name: BufferSpec(name, n * 600, F32, role) for name, role in roles.items()}  # type: ignore[arg-type]
    return Plan(steps, specs)


def commands_of(program: CPUProgram, places: dict[int, str]) -> list[list[Any]]:
    """The commands with their words, and names for addresses outside the temporaries."""
    commands = program.commands
    assert commands is not None
    block: np.ndarray = commands.keep_alive[0]  # type: ignore[index]
    arena: np.ndarray = commands.keep_alive[1][0]  # type: ignore[index]
    begin, end = arena.ctypes.data, arena.ctypes.data + arena.nbytes
    found = []
    for function, words, total, grain in commands.array.tolist():
        place = (words - block.ctypes.data) // 8
        following = [w for w in commands.array[:, 1].tolist() if w > words]
        stop = (min(following) - block.ctypes.data) // 8 if following else place + 4
        named = ["temporary" if begin <= w < end else places.get(w, w) for w in block[place:stop].tolist()]
        found.append([function, total, grain, named])
    return found


@pytest.mark.skipif(guards.WANTED, reason="only temporaries of a fixed plan have guards between them")
@pytest.mark.parametrize("size", [3, 4, 5, 40])
def test_open_sizes_give_the_commands_of_fixed_ones(backend: CPUBackend, size: int) -> None:
    recorder = SizeRecorder()
    template = backend.template(plan_of(recorder.input(7)), {})
    fixed = plan_of(size)
    buffers = {name: backend.create(size * 600, F32) for name in ("x", "y", "z")}
    places = {buffer.address: name for name, buffer in buffers.items()}
    program = recorder.program(template.numbers)
    numbers = program(size)
    assert numbers is not None
    opened, recorded = template.fill(numbers, buffers), backend.record(fixed, buffers)
    assert commands_of(opened, places) == commands_of(recorded, places)
    assert opened.nanoseconds == recorded.nanoseconds
    assert {*opened.places} == {*recorded.places} == {buffers["x"].address}
    assert {*opened.outputs} == {*recorded.outputs} == {"y", "z"}


@pytest.mark.parametrize("size", [3, 5])
def test_a_repetition_has_its_rows_where_some_have_nothing_to_do(backend: CPUBackend, size: int) -> None:
    """Rows of symbolic plans were dropped where they were empty, and spans counted them all the same."""
    buffers = {name: backend.create(size * 600, F32) for name in ("x", "y", "z")}
    commands = backend.record(plan_of(size), buffers).commands
    assert commands is not None
    rows = commands.array.tolist()
    begin = [row[0] for row in rows].index(BEGIN)
    assert begin == (1 if size == 3 else 2)
    assert rows[begin][2:] == [2, 4]
    assert rows[begin + 3][0] == TURN
    assert rows[begin + 3][2] == 2
    assert [row[0] for row in rows[begin + 4 :]][1:] == [24]


def test_the_words_of_a_step_are_as_many_as_the_plan_store_expects() -> None:
    listing = CommandBuilder({"rows": 8, "tasks": 16, "cells": 24})
    for each in plan_of(5).steps:
        if not isinstance(each.kernel, RepeatedSteps):
            before = len(listing.words)
            listing.add(each)
            assert len(listing.words) - before == count_words(each)
