"""Recurrent layers of float32: the input's products for all steps at once, then one kernel for the steps.

Gates are in blocks of as many hidden units as a vector has lanes, gate next to gate, so that a tile of sums
holds all gates of its units and the cell's step follows while they are in first-level cache.

Where there are fewer sequences than threads, each step's units are cut into parts, and threads meet after
every step: a core then reads its part of the weights alone, from its own cache. No thread waits for one that
has not come: each does its own part of a step and then those that nobody has taken. A part's mark says how
far it is: 2 s when step s may be taken, 2 s + 1 while a thread computes it, 2 s + 2 when that is done.
A thread that has waited long leaves the layer to those it waits for: one of them may have lost its core, and
get this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import trunc

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import TaskSchedule, emit_raw
from engine.backends.cpu.codegen.task_partition import cut_step, reading_ns
from engine.backends.cpu.codegen.tiles import Tile, by_height, host_tile
from engine.backends.cpu.kernels.matmul.matmul import tune_matmul
from engine.backends.cpu.library import library_text
from engine.backends.operands import flattened
from engine.base.dtypes import FLOAT32
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.expr import acc, arg, index, load
from engine.kernels.hint import Hint
from engine.kernels.size import deferred, largest, smallest
from engine.kernels.value import Value

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
FLOPS_PER_NS = 120.0
CELL_NS = 20.0
"""A cell's step for a vector of units."""

COPY_NS = 0.5
"""To copy an element of the states."""

ROWS_AT_ONCE = 8
"""Sequences that a task follows, where there are so many."""

PART_NS = 600.0
"""Work on one step below this is not worth a meeting of threads, which takes 200 to 300."""

MARK_BYTES = 128
"""A mark has lines of the cache to itself: processors fetch them in pairs."""

PATIENCE = 2000
"""Pauses in a wait for another thread, besides those that its part of a step may take."""

PAUSE_NS = 4.0
"""The shortest pause of any processor."""

BEGIN, STEPS, END = range(3)
"""What a run of the kernel does: put marks and states at their beginning; the steps; give the last states."""

_ARGUMENTS = ArgumentBlock(
    "phase steps directions sequences hidden units row_blocks block_rows parts patience is_reverse0 "
    "is_reverse1 has_h has_c states"
)


def tune_recurrence(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "recurrence"."""
    attributes, operands = compute.attributes, compute.operands
    x, w, r, *others = operands
    given = dict(zip(attributes["given"], others, strict=True))
    kind = attributes["kind"]
    gates, tile = GATES[kind], host_tile()
    steps, sequences, _ = x.shape
    directions, _, hidden = r.shape
    layer = GateBlocks(directions, gates, hidden, tile.lanes)
    assert w.known is not None
    assert r.known is not None
    b = given.get("b")
    bias = np.zeros((directions, 2 * gates * hidden), np.float32) if b is None else b.known
    assert bias is not None
    inputs = _input_products(compute, tuner, layer, bias, threads)
    right, after = _constants(tuner, layer, r, bias, b.name if b is not None else "")
    rows = smallest(sequences, ROWS_AT_ONCE)
    row_blocks = -(-sequences // rows)
    units = layer.units
    products = 2.0 * rows * gates * hidden * units * tile.lanes / FLOPS_PER_NS
    read = reading_ns(4 * gates * hidden * units * tile.lanes)
    step_ns = largest(products, read) + rows * units * CELL_NS
    groups = directions * row_blocks
    (parts,) = deferred(cut_step, step_ns, steps, units, groups, threads, PART_NS)
    patience = PATIENCE + trunc(step_ns / parts / PAUSE_NS)
    reverses = [int(reverse) for reverse in attributes["reverses"]]
    arguments = partial(
        _ARGUMENTS.values, steps=steps, directions=directions, sequences=sequences, hidden=hidden,
        units=units, row_blocks=row_blocks, block_rows=rows, parts=parts, patience=patience,
        is_reverse0=reverses[0], is_reverse1=reverses[-1], has_h=int("h" in given), has_c=int("c" in given),
        states=attributes["states"],
    )  # fmt: skip
    # Per sequence: two states h, which take turns, and c.
    states = directions * sequences * 3 * units * tile.lanes
    scratch = tuner.temporary(groups * parts * MARK_BYTES // 4 + states, FLOAT32)
    initial = [given[s].name if s in given else right for s in ("h", "c")]
    names = (inputs, right, after, *initial, scratch)
    kernel = NativeKernel(kind, recurrence_text(kind, tile))
    tasks = groups * parts
    copy_ns = states / tasks * COPY_NS + 10.0
    phases = {BEGIN: copy_ns, STEPS: steps * step_ns / parts + 50.0}
    phases |= {END: copy_ns} if attributes["states"] else {}
    runs = [(TaskSchedule(tasks, task_ns), arguments(phase=phase)) for phase, task_ns in phases.items()]
    return emit_raw(compute, tuner, FLOAT32, kernel, *runs, inputs=names)


@dataclass(frozen=True)
class GateBlocks:
    """Layout of (directions, gates, hidden) gates: (direction, block of units, gate, lane)."""

    directions: int
    gates: int
    hidden: int
    lanes: int

    @property
    def units(self) -> int:
        """Blocks of units."""
        return -(-self.hidden // self.lanes)

    @property
    def columns(self) -> int:
        """Number of columns of all directions, padding included."""
        return self.directions * self.units * self.gates * self.lanes

    def blocked(self, array: np.ndarray) -> np.ndarray:
        """(directions, gates * hidden, ...) -> (directions, units, gates, lanes, ...), filled with zeros."""
        rest = array.shape[2:]
        padded = np.zeros((self.directions, self.gates, self.units * self.lanes, *rest), np.float32)
        padded[:, :, : self.hidden] = array.reshape(self.directions, self.gates, self.hidden, *rest)
        shape = (self.directions, self.gates, self.units, self.lanes, *rest)
        return padded.reshape(shape).swapaxes(1, 2)


def _input_products(compute: Compute, tuner: Tuner, layer: GateBlocks, bias: np.ndarray, threads: int) -> str:
    """A step that makes x W' and what biases add to it, (T, N, columns); gives the name of its result."""
    x, w = compute.operands[:2]
    weights = w.known
    assert weights is not None
    steps, sequences, depth = x.shape
    rows, columns = steps * sequences, layer.columns
    both = bias.reshape(layer.directions, 2, layer.gates, layer.hidden).copy()
    if layer.gates == GATES["gru"]:
        # The candidate's second bias belongs inside the reset.
        both[:, 1, 2] = 0.0
    summed = layer.blocked((both[:, 0] + both[:, 1]).reshape(layer.directions, -1)).reshape(-1)
    added = tuner.constant(f"{compute.output.name}|biases{layer.lanes}", partial(flattened, summed))
    # Only says that they are known: `blocked` makes them, and nobody holds them once they are packed.
    known = np.broadcast_to(np.float32(0.0), (columns, depth))
    right = Value(f"{w.name}|blocks{layer.lanes}", (columns, depth), FLOAT32, None, known)
    output = Value(tuner.temporary(rows * columns, FLOAT32), (1, rows, columns), FLOAT32)
    attributes = {
        "m": rows, "n": columns, "k": depth, "batch": 1,
        "a_strides": (0, depth, 1), "b_strides": (0, 1, depth),
    }  # fmt: skip
    sums = acc("float32")
    product = Compute(output, (1, rows, columns), sums, compute.layer, compute.op_type)
    product.hint = Hint("matmul", (x, right), attributes)
    product.epilogue = sums + load(Value(added, (columns,), FLOAT32), index(2) * arg(1))
    taken = tune_matmul(product, tuner, threads, partial(blocked, layer, weights))
    assert taken
    return output.name


def _constants(
    tuner: Tuner, layer: GateBlocks, r: Value, bias: np.ndarray, bias_name: str
) -> tuple[str, str]:
    """Names of r as panels (direction, block, depth, gate, lane), and of a GRU's bias inside the reset."""
    weights = r.known
    assert weights is not None

    right = tuner.constant(f"{r.name}|recurrence{layer.lanes}", partial(recurrent_panels, layer, weights))
    if layer.gates != GATES["gru"]:
        return right, right
    return right, tuner.constant(f"{r.name}|{bias_name}|reset{layer.lanes}", partial(reset_bias, layer, bias))


@storable
def blocked(layer: GateBlocks, weights: np.ndarray) -> np.ndarray:
    """See `GateBlocks.blocked`."""
    return layer.blocked(weights)


@storable
def recurrent_panels(layer: GateBlocks, weights: np.ndarray) -> np.ndarray:
    """Recurrent weights as panels: (direction, block, depth, gate, lane)."""
    return np.ascontiguousarray(np.moveaxis(layer.blocked(weights), -1, 2)).reshape(-1)


@storable
def reset_bias(layer: GateBlocks, bias: np.ndarray) -> np.ndarray:
    """A GRU's bias inside the reset, (direction, unit)."""
    last = bias.reshape(layer.directions, 2, layer.gates, layer.hidden)[:, 1, 2]
    padded = np.zeros((layer.directions, layer.units * layer.lanes), np.float32)
    padded[:, : layer.hidden] = last
    return padded.reshape(-1)


def tile_heights(tile: Tile, gates: int) -> list[int]:
    """Heights of tiles whose sums stay in registers, tallest first, for a width in vectors."""
    sums = tile.row_choices[0] * tile.vectors
    return [rows for rows in (6, 4, 2, 1) if rows * gates <= sums]


def recurrence_text(kind: str, tile: Tile) -> str:
    """Source of the kernel: a task is a direction, a block of sequences and a part of the units.

    It is run for one phase after the other.
    """
    gates, lanes = GATES[kind], tile.lanes
    heights = tile_heights(tile, gates)
    width = gates * lanes * 4
    head = "".join(f"tile_of_{rows} = make_product_tile({rows}, {gates}, {lanes})\n" for rows in heights)
    head += f"cell = make_cell({kind!r}, {lanes})\ncopy_run = make_copy_run(1, {lanes})\n"
    names = "out inputs right after first_h first_c scratch".split()

    def product(rows: int) -> list[str]:
        return [f"tile_of_{rows}(old + n * row, row, panel, {width}, hidden, sums, panel, 0, 0)"]

    one_unit = [
        f"panel = right + (d * units + unit) * hidden * {width}",
        f"valid = min({lanes}, hidden - unit * {lanes})",
        f"at = unit * {lanes * 4}",
        "n = n0",
        "while n < n1:",
        *indent(by_height(heights, "n1 - n", product)),
        "    for i in range(n, n + rows):",
        f"        given = inputs + (((t * sequences + i) * directions + d) * units + unit) * {width}",
        "        place = i * row + at",
        f"        cell(sums + (i - n) * {width}, given, after + d * row + at, cells + place, old + place,"
        " new + place)",
        "        target = out + (((t * directions + d) * sequences + i) * hidden) * 4 + at",
        f"        if valid == {lanes}:",
        "            copy_run(target, new + place)",
        "        else:",
        "            for j in range(valid):",
        "                store_f32(target, j, load_f32(new + place, j))",
        "    n += rows",
    ]
    beginning = [
        "atomic_store_i64(own, 0, 0)",
        "for n in range(n0, n1):",
        f"    for j in range(unit0 * {lanes}, unit1 * {lanes}):",
        "        h = _types.float32(0.0)",
        "        c = _types.float32(0.0)",
        "        if j < hidden and has_h:",
        "            h = load_f32(first_h, state + n * hidden + j)",
        "        if j < hidden and has_c:",
        "            c = load_f32(first_c, state + n * hidden + j)",
        "        store_f32(even + n * row, j, h)",
        "        store_f32(cells + n * row, j, c)",
    ]
    following = [
        "is_reverse = is_reverse0 if d == 0 else is_reverse1",
        "for step in range(steps):",
        "    t = steps - 1 - step if is_reverse else step",
        "    old = even + (step & 1) * plane",
        "    new = odd - (step & 1) * plane",
        "    for turn in range(parts):",
        "        part = mine + turn",
        "        if part >= parts:",
        "            part -= parts",
        f"        mark = marks + part * {MARK_BYTES}",
        "        if atomic_load_i64(mark, 0) == 2 * step:",
        "            if atomic_cas_i64(mark, 0, 2 * step, 2 * step + 1) == 2 * step:",
        "                for unit in range(op_div(units * part, parts), op_div(units * (part + 1), parts)):",
        *indent(indent(indent(indent(indent(one_unit))))),
        "                atomic_store_i64(mark, 0, 2 * step + 2)",
        "    pauses = 0",
        "    is_done = True",
        "    for part in range(parts):",
        f"        mark = marks + part * {MARK_BYTES}",
        "        while atomic_load_i64(mark, 0) < 2 * step + 2 and pauses < patience:",
        "            cpu_pause()",
        "            pauses += 1",
        # Who ends the step's last part finds all done, and stays.
        "        is_done = is_done and atomic_load_i64(mark, 0) >= 2 * step + 2",
        "    if not is_done:",
        "        break",
    ]
    ending = [
        "last = even + (steps & 1) * plane",
        "place = steps * directions * sequences * hidden + state",
        "for n in range(n0, n1):",
        f"    for j in range(unit0 * {lanes}, min(unit1 * {lanes}, hidden)):",
        "        store_f32(out, place + n * hidden + j, load_f32(last + n * row, j))",
        "        if states == 2:",
        "            both = place + (directions * sequences + n) * hidden + j",
        "            store_f32(out, both, load_f32(cells + n * row, j))",
    ]
    lead = [
        *_ARGUMENTS.prologue(*names),
        f"sums = stack_bytes({heights[0] * width})",
        f"row = units * {lanes * 4}",
        "plane = directions * sequences * row",
    ]
    task = [
        "group = op_div(task, parts)",
        "mine = task - group * parts",
        "unit0 = op_div(units * mine, parts)",
        "unit1 = op_div(units * (mine + 1), parts)",
        "d = op_div(group, row_blocks)",
        "n0 = (group - d * row_blocks) * block_rows",
        "n1 = min(n0 + block_rows, sequences)",
        f"marks = scratch + group * parts * {MARK_BYTES}",
        f"own = marks + mine * {MARK_BYTES}",
        f"even = scratch + directions * row_blocks * parts * {MARK_BYTES} + d * sequences * row",
        "odd = even + plane",
        "cells = odd + plane",
        "state = d * sequences * hidden",
        f"if phase == {BEGIN}:",
        *indent(beginning),
        f"elif phase == {STEPS}:",
        *indent(following),
        "else:",
        *indent(ending),
    ]
    return kernel_text(library_text("vectors", "matmul_tiles", "recurrent_cells") + head, lead, task)
