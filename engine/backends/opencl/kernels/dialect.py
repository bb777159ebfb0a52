"""`OpenCLDialect`: how OpenCL C writes the kernels that it shares with GLSL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.backends.gpu.kernel_dialect import GROUP, KernelDialect, Store, ThreadStep
from engine.backends.opencl.codegen.printer import OpenCLPrinter, element
from engine.backends.opencl.codegen.tuned_kernel import OpenCLEpilogue, build, indent
from engine.backends.opencl.kernels.sort import SORTED_ALONE, sort_statements
from engine.compiler.plan import Compute, Tuner

INPUTS = "XLPE"
"""Names of the tensors that a `ThreadStep` reads."""


class OpenCLDialect(KernelDialect):
    """OpenCL C, for CPUs or GPUs: `form` is "cpu" or "gpu"."""

    output, shared, static, barrier = "y", "__local", "static ", "barrier(CLK_LOCAL_MEM_FENCE);"
    full_barrier = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"
    as_int, as_float, bits, from_bits = "(int){}", "(float){}", "as_int({})", "as_float({})"
    bit_place = "31 - (int)clz({})"

    def __init__(self, form: str) -> None:
        if form == "cpu":
            self.alone, self.widths, self.sorted_block = SORTED_ALONE, (16, 8, 4), sort_statements

    def fits(self, elements: int, dtype: np.dtype) -> bool:
        return True

    def load(self, slot: int, position: str, kind: str) -> str:
        return element(kind, INPUTS[slot], position)

    def load_vector(self, slot: int, position: str, width: int = 4) -> str:
        if width == 4:
            return f"vload4({position}, {INPUTS[slot]})"
        # A dereference of this type is one unaligned vector move; PoCL's vload16 is a function call.
        return f"*(__global const loose{width}*)({INPUTS[slot]} + {width} * ({position}))"

    def load_word(self, slot: int, position: str) -> str:
        return f"((__global const uint*){INPUTS[slot]})[{position}]"

    def vector(self, width: int = 4) -> str:
        return f"float{width}"

    def construct_vector(self, numbers: str, width: int = 4) -> str:
        return f"(float{width})({numbers})"

    def lane(self, vector: str, number: int) -> str:
        return f"{vector}.s{number:x}"

    def atomic(self, operation: str, array: str, position: str, number: str) -> str:
        return f"atomic_{operation}({array} + {position}, {number});"

    def emit(self, tuner: Tuner, step: ThreadStep) -> bool:
        return self._emit(tuner, step, step.lines, None, step.output)

    def emit_with_epilogue(
        self, compute: Compute, tuner: Tuner, step: ThreadStep, lines: Callable[[Store], Sequence[str]]
    ) -> bool:
        epilogue = OpenCLEpilogue(compute, {}, {})
        word = OpenCLPrinter.TYPES[epilogue.item]

        def store(position: str, value: str) -> list[str]:
            begin = [f"const int flat = {position};", f"const {word} acc = {value};"]
            return ["{", *(f"    {line}" for line in (*begin, *epilogue.row_lines, *epilogue.lines)), "}"]

        return self._emit(tuner, step, lines(store), epilogue, compute.output.name)

    @staticmethod
    def _emit(
        tuner: Tuner, step: ThreadStep, lines: Sequence[str], epilogue: OpenCLEpilogue | None, output: str
    ) -> bool:
        local = 1 if step.is_alone else GROUP
        thread = f"int t = (f0 + (int)get_group_id(0)) * {local} + (int)get_local_id(0);"
        tensors, kinds = zip(*step.inputs, strict=True)
        loose = [f"typedef float{k} loose{k} __attribute__((aligned(4)));" for k in (8, 16)]
        kernel = build(
            indent([*step.shared, thread, *lines], 1), epilogue,
            [f"{name}:{kind}" for name, kind in zip(INPUTS, kinds, strict=False)], step.argument_names,
            (local, 1, 1), rounds=step.rounds, area=step.area, output=step.kind,
            head=indent([*loose, *step.functions], 0),
        )  # fmt: skip
        more, inputs = ([], ()) if epilogue is None else (epilogue.values, epilogue.inputs)
        grid = (-(-step.threads // local), 1, 1)
        tuner.emit(kernel, grid, (*step.argument_values, *more), (*inputs, *tensors), output)
        return True
