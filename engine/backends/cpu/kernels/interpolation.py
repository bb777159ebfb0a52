"""Interpolation at listed positions: vectors of channels, as positions and weights are the same in all.

A step before puts channels last, so that a tap's channels are neighbours, and nothing is gathered. Sums of a
vector of channels are transposed in a task's memory, and leave it as runs of places.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import TaskGrid, TaskSchedule, emit, even_blocks
from engine.backends.cpu.codegen.tiles import host_tile
from engine.backends.cpu.kernels.transpose import band_text, tune_transpose
from engine.backends.cpu.library import library_text
from engine.base.dtypes import FLOAT32, INT32
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import index
from engine.kernels.hint import Hint
from engine.kernels.size import largest
from engine.kernels.value import Value

_TABLE = 1024
_LEAST_PLACES, _MOST_PLACES = 32, 128

MOST_CHANNELS = 256
"""Of a task."""

_WRITTEN_TAPS = 16
"""Taps that are added up in registers."""

_LEAST_LANES = 4

_NS_PER_TAP = 0.12
_NS_PER_RESULT = 0.1
_NS_PER_ENTRY = 0.5
_NS_PER_TASK = 200.0

_GRID = TaskGrid(channel="channels", place="places")
_ARGUMENTS = ArgumentBlock(_GRID.arguments, "channels places groups size last_size")


def tune_interpolation(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "interpolate": float32, enough channels, and more taps than elements."""
    planes, elements, weights = compute.operands
    types = (planes.dtype, elements.dtype, weights.dtype)
    if types != (FLOAT32, INT32, FLOAT32) or compute.body.dtype != "float32" or not planes.is_static(1):
        return False
    axes = compute.attributes["axes"]
    images, channels, size = planes.shape
    _, groups, entries, places = elements.shape
    count = entries // axes
    taps = count**axes
    lanes = _lanes(channels)
    if lanes == 0 or len(compute.space) not in (3, 4) or size > groups * places * taps:
        return False
    epilogue = print_epilogue(compute, _ARGUMENTS.end)
    results = images * groups * channels * places
    total_ns = results * (taps * _NS_PER_TAP + _NS_PER_RESULT) + results // channels * taps * _NS_PER_ENTRY
    wanted = tasks_wanted(total_ns, threads)
    outer = images * groups
    in_places = even_blocks(places, -(-places // places_at_once(taps)), lanes)
    shared = -(-wanted // largest(1, outer * in_places.count))
    in_channels = even_blocks(channels, largest(shared, -(-channels // MOST_CHANNELS)), lanes)
    arguments = _ARGUMENTS.values(
        **_GRID.values(in_channels, in_places), channels=channels, places=places, groups=groups, size=size,
        last_size=compute.space[-1],
    )  # fmt: skip
    kernel = NativeKernel("interpolate", interpolation_text(axes, count, lanes, epilogue))
    schedule = TaskSchedule.over((in_channels, in_places), total_ns, outer, _NS_PER_TASK)
    inputs = (_channels_last(planes, compute, tuner, threads), elements.name, weights.name)
    return emit(tuner, kernel, schedule, arguments, inputs, compute.output.name, epilogue)


def _lanes(channels: int) -> int:
    """The widest vector of which the channels fill one; 0 if they do not fill the narrowest."""
    lanes = host_tile().lanes
    while lanes > channels:
        lanes //= 2
    return lanes if lanes >= _LEAST_LANES else 0


def places_at_once(taps: int) -> int:
    """The places that a task blends at once: their tables stay in the nearest cache."""
    return max(_LEAST_PLACES, min(_MOST_PLACES, _TABLE // taps))


def _channels_last(planes: Value, compute: Compute, tuner: Tuner, threads: int) -> str:
    """Emit the step that puts channels last; returns its tensor."""
    images, channels, size = planes.shape
    shape = (images, size, channels)
    packed = Value(tuner.temporary(prod(shape), FLOAT32), shape, FLOAT32)
    n, element, c = map(index, range(3))
    hint = Hint("transpose", (planes,), {"batch": images, "rows": channels, "columns": size})
    step = replace(compute, output=packed, space=shape, body=planes[n, c, element], hint=hint, epilogue=None)
    is_taken = tune_transpose(step, tuner, threads)
    assert is_taken, "transpositions of float32 have a kernel"
    return packed.name


def interpolation_text(axes: int, count: int, lanes: int, epilogue: Epilogue) -> str:
    """Source of the kernel, for `count` taps along each axis, and vectors of `lanes` channels."""
    taps, room = count**axes, places_at_once(count**axes)
    written = min(taps, _WRITTEN_TAPS)
    digits = [f"op_rem(op_div(t, {count ** (axes - 1 - axis)}), {count})" for axis in range(axes)]
    lead = [
        *_ARGUMENTS.prologue("x", "elements", "weights", epilogue=epilogue),
        f"addresses = stack_bytes({taps * room * 8})",
        f"shares = stack_bytes({taps * room * 4})",
        f"sums = stack_bytes({room * lanes * 4})",
        f"turned = stack_bytes({room * lanes * 4})",
        # A tap outside reads these; its vector may begin before the channels of the task.
        f"zeros = stack_bytes({(MOST_CHANNELS + 2 * lanes) * 4})",
        f"set_bytes(zeros, 0, {(MOST_CHANNELS + 2 * lanes) * 4})",
        f"zeros += {lanes * 4}",
        *epilogue.kernel,
    ]
    table = [
        f"for t in range({taps}):",
        *(f"    entry{a} = first + ({a * count} + {digit}) * places" for a, digit in enumerate(digits)),
        "    for p in range(width):",
        *(f"        element{a} = to_int64(load_i32(elements, entry{a} + p))" for a in range(axes)),
        f"        is_inside = {' and '.join(f'element{a} >= 0' for a in range(axes))}",
        f"        element = {' + '.join(f'element{a}' for a in range(axes))}",
        "        address = image + element * channels * 4 if is_inside else zeros",
        f"        store_i64(addresses, t * {room} + p, address)",
        "        share = load_f32(weights, entry0 + p)",
        *(f"        share = op_mul(share, load_f32(weights, entry{a} + p))" for a in range(1, axes)),
        f"        store_f32(shares, t * {room} + p, share)",
    ]
    task = [
        *_GRID.locate("plane"),
        "i0, width = op_div(plane, groups), place1 - place0",
        "first_column = (plane - i0 * groups) * places + place0",
        f"first = plane * {axes * count} * places + place0",
        "image = x + (i0 * size * channels + channel0) * 4",
        *table,
        f"for c in range(channel0, channel1, {lanes}):",
        # The last vector of an image covers some channels again.
        f"    near = min(c, channels - {lanes})",
        f"    set_bytes(sums, 0, width * {4 * lanes})",
        f"    for t in range(0, {taps}, {written}):",
        "        for p in range(width):",
        f"            at, target = t * {room} + p, sums + p * {4 * lanes}",
        "            blend_channels(addresses + at * 8, (near - channel0) * 4, shares + at * 4, target)",
        f"    transpose_band(sums, {lanes * 4}, turned, {room * 4}, width, {lanes})",
        f"    for i1 in range(c, min(c + {lanes}, channel1)):",
        f"        tile, columns = turned + (i1 - near) * {room * 4}, width",
        "        start = (i0 * channels + i1) * groups * places + first_column",
        *indent(indent(epilogue.store)),
    ]
    made = f"blend_channels = make_blend_channels({written}, {room}, {lanes})\n" + band_text(lanes, 4)
    return kernel_text(library_text("vectors", "interpolation") + made, lead, task)
