"""The division of results into tasks: every result has one task, whatever the axes."""

from __future__ import annotations

import random
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.codegen.schedule import (
    Blocks,
    TaskGrid,
    TaskSchedule,
    TiledAxis,
    even_blocks,
    halve,
    partition_axes,
)
from engine.backends.cpu.codegen.task_partition import cut_tasks, elapsed_ns, next_division


@pytest.mark.parametrize("outer", [1, 3])
@pytest.mark.parametrize(
    "sizes", [{"row": 7}, {"row": 7, "column": 10}, {"output": 5, "row": 4, "column": 9}]
)
def test_tasks_cover_every_result_once(sizes: dict[str, int], outer: int) -> None:
    grid = TaskGrid(**{name: f"{name}_size" for name in sizes})
    blocks = tuple(even_blocks(size, 3) for size in sizes.values())
    schedule = TaskSchedule.over(blocks, 100.0, outer)
    found = np.zeros((outer, *sizes.values()), int)
    statements = "\n".join(grid.locate("image" if outer > 1 else ""))
    for task in range(schedule.tasks):
        names: dict[str, Any] = {f"{name}_size": size for name, size in sizes.items()}
        names |= {"task": task, "image": 0, "op_div": lambda a, b: a // b, **grid.values(*blocks)}
        exec(statements, {}, names)
        within = [slice(names[f"{name}0"], names[f"{name}1"]) for name in sizes]
        found[(names["image"], *within)] += 1
    assert (found == 1).all()
    assert schedule.task_ns * schedule.tasks == pytest.approx(100.0)


def test_tasks_that_follow_each_other_share_the_slow_axis() -> None:
    grid = TaskGrid(row="4", column="6")
    names: dict[str, Any] = grid.values(Blocks(2, 2), Blocks(3, 2))
    names |= {"task": 1, "op_div": lambda a, b: a // b}
    exec("\n".join(grid.locate()), {}, names)
    assert (names["row0"], names["column0"]) == (0, 2)


def test_blocks_are_even() -> None:
    for size, wanted, step in product(range(1, 40), range(8), (1, 4)):
        blocks = even_blocks(size, wanted, step)
        assert blocks.size % step == 0
        assert (blocks.count - 1) * blocks.size < size <= blocks.count * blocks.size
        assert blocks.count <= max(wanted, 1)
        # No division into as many blocks has smaller ones.
        assert blocks.size < -(-size // max(1, min(wanted, size))) + step


def test_blocks_are_halved_until_they_fit() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        rows, columns = (int(n) for n in rng.integers(1, 300, 2))
        most = int(rng.integers(1, 4000))
        axes = [TiledAxis.of_tiles(rows, -(-rows // 4) * 4, 4), TiledAxis(columns, columns)]
        row, column = halve(axes, lambda row, column, most=most: row.block * column.block > most)
        assert row.block % 4 == 0
        assert row.block * column.block <= most or (row.block, column.block) == (4, 1)
        assert row.count * row.block >= rows
        assert column.count * column.block >= columns


def test_blocks_are_halved_until_there_are_enough_tasks() -> None:
    for size, outer, wanted in product((1, 7, 64, 100), (1, 3), (1, 2, 16)):
        blocks = partition_axes([TiledAxis(size, size, 1, 8), TiledAxis(32, 32, 1, 16)], outer, wanted)
        tasks = outer * prod(axis.count for axis in blocks)
        assert tasks >= wanted or (blocks[0].size <= 8 and blocks[1].size == 16)


def test_the_estimate_counts_the_rounds_of_the_busiest_thread() -> None:
    assert elapsed_ns(7, 10.0, 1, 0.0) == 70.0
    assert elapsed_ns(7, 10.0, 2, 0.0) == 40.0
    assert elapsed_ns(8, 10.0, 2, 0.0) == 40.0
    # Two threads take three chunks each, of three tasks.
    assert elapsed_ns(17, 10.0, 2, 0.0) == 90.0
    assert elapsed_ns(8, 10.0, 2, 0.5) == 45.0


def test_printed_variables_are_out_of_reach() -> None:
    with pytest.raises(AssertionError, match="letters"):
        TaskGrid(t="tiles")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 12, 97, 1000])
def test_divisions_have_each_size_of_blocks_once(size: int) -> None:
    found = [(1, size)]
    while found[-1][1] > 1:
        found.append(next_division(size, found[-1][1]))
    assert {block for _, block in found} == {-(-size // count) for count in range(1, size + 1)}
    for count, block in found:
        assert (count, block) == (-(-size // block), -(-size // count))


@pytest.mark.parametrize("threads", [1, 2, 8, 16])
def test_no_division_into_as_many_rounds_has_shorter_tasks(threads: int) -> None:
    rng = random.Random(threads)
    for _ in range(50):
        panels, tiles = rng.randint(1, 8), rng.randint(1, 200)
        tile_ns = rng.uniform(100.0, 3000.0)
        # Without memory to wait for, a task takes as long as its tiles.
        tasks, _, _, wide, _, long = cut_tasks(tiles, panels, 1, threads, tile_ns, 0.0, 0.0, 300.0)
        rounds = -(-tasks // threads)
        others = [
            -(-panels // a) * -(-tiles // b)
            for a in range(1, panels + 1)
            for b in range(1, tiles + 1)
            if -(-a * b // threads) <= rounds and a * b <= tasks
        ]
        assert wide * long == min(others)
