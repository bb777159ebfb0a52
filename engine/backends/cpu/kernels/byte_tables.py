"""Table lookup of bytes in a table of 256 bytes, a vector at a time."""

from __future__ import annotations

import llvmlite.binding as llvm

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import TaskGrid, TaskSchedule, emit_raw, even_blocks
from engine.backends.cpu.codegen.tiles import host_tile
from engine.backends.cpu.library import library_text
from engine.compiler.plan import Compute, Tuner

_NS_PER_BYTE = 0.2

_GRID = TaskGrid(place="total")
_ARGUMENTS = ArgumentBlock("total", _GRID.arguments)


def tune_byte_lookup(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "byte_lookup"."""
    x, table = compute.operands
    nanoseconds, lanes = x.size * _NS_PER_BYTE, _lanes()
    blocks = even_blocks(x.size, tasks_wanted(nanoseconds, threads), lanes)
    schedule = (
        TaskSchedule.over((blocks,), nanoseconds),
        _ARGUMENTS.values(total=x.size, **_GRID.values(blocks)),
    )
    kernel = NativeKernel("byte_lookup", byte_lookup_text(lanes))
    return emit_raw(compute, tuner, compute.output.dtype, kernel, schedule, inputs=(x.name, table.name))


def _lanes() -> int:
    """The bytes of a vector that is looked up at once."""
    features = llvm.get_host_cpu_features()
    if host_tile().lanes == 16 and features.get("avx512bw"):
        return 64
    return 32 if features.get("avx2") else 1


def byte_lookup_text(lanes: int) -> str:
    """Source of the kernel."""
    run = ["byte_lookup(out + place, x + place, table)", f"place += {lanes}"]
    whole = [f"while place + {lanes} <= place1:", *indent(run)] if lanes > 1 else []
    rest = ["for k in range(place, place1):", "    store_u8(out, k, load_u8(table, to_int64(load_u8(x, k))))"]
    task = [*_GRID.locate("i0"), "place = place0", *whole, *rest]
    helpers = f"byte_lookup = make_byte_lookup({lanes})\n" if lanes > 1 else ""
    return kernel_text(library_text("byte_lookup") + helpers, _ARGUMENTS.prologue("out", "x", "table"), task)
