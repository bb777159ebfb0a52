"""Repeated steps of little work as one kernel of one group: see `engine.backends.gpu.repeated_kernel`."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.gpu.repeated_kernel import RUNS, RepeatedKernel
from engine.backends.opencl.functions import functions_for
from engine.backends.opencl.printer import AxisSplit, OpenCLPrinter, Signature, argument_word, extensions
from engine.backends.opencl.storage import WORDS
from engine.backends.opencl.tuned_kernel import FIRST_GROUP, TunedKernel, indent
from engine.base.dtypes import ArithmeticType
from engine.compiler.plan import Step
from engine.kernels.expr import RunNumber
from engine.kernels.kernel import Kernel
from engine.kernels.size import deferrable, deferred

_BARRIER = "barrier(CLK_GLOBAL_MEM_FENCE);"


class _Text:
    """The text of a kernel, and its numbers with their types."""

    def __init__(self, repeated: RepeatedKernel) -> None:
        self.names = {name: f"tensor{k}" for k, name in enumerate(repeated.tensors)}
        self.types: list[ArithmeticType] = []
        self.values: list[int | float] = []

    def number(self, value: int | float, kind: ArithmeticType) -> str:
        """The name of a new argument, or of the run's number."""
        if isinstance(value, RunNumber):
            return "run"
        self.types.append(kind)
        self.values.append(value)
        return f"arg{len(self.values) - 1}"

    def step(self, step: Step, local: int) -> list[str]:
        """The statements of all work-items for a step."""
        kernel = step.kernel
        assert isinstance(kernel, Kernel)
        axes = AxisSplit.of(kernel.body, kernel.rank)
        lines = [
            f"__global const {WORDS[kind]}* b{k} = {self.names[name]};"
            for k, (name, kind) in enumerate(zip(step.inputs, kernel.buffers, strict=True))
        ]
        lines.append(f"__global {WORDS[kernel.dtype]}* y = {self.names[step.output]};")
        for k, (kind, given) in enumerate(zip(kernel.params, step.values, strict=True)):
            lines.append(f"const {argument_word(kind)} p{k} = {self.number(given, kind)};")
        # Open numbers are checked for 32 bits with a sign, so these come as such.
        for name, kind, given in zip(axes.names, axes.types, axes.values(step.space), strict=True):
            lines.append(
                f"const {argument_word(kind)} {name} = {self.number(deferred(_signed, given), 'index')};"
            )
        if step.window is None:
            total = 1
            for size in step.space:
                total = total * size
            first, end = "0", self.number(total, "index")
        else:
            start, stride, elements = (self.number(value, "index") for value in step.window)
            lines.append(f"const int first = {start} + run * {stride};")
            first, end = "first", f"first + {elements}"
        printer = OpenCLPrinter(kernel)
        inner, value = printer.body(kernel.body, {"flat": "i"} | {axis: f"i{axis}" for axis in axes.used})
        lines.append(f"for (int i = {first} + lane; i < {end}; i += {local}) {{")
        body = [*axes.statements("i"), *inner, printer.store("y", "i", value, kernel.body.dtype)]
        return ["{", *(f"    {x}" for x in (*lines, *(f"    {y}" for y in body), "}")), "}"]


@deferrable
def _signed(word: int) -> int:
    """The int32 with the bits of a uint32."""
    return word - (1 << 32) if word >= 1 << 31 else word


def print_repeated(repeated: RepeatedKernel, step: Step, local: int) -> tuple[TunedKernel, list[int | float]]:
    """The kernel of a step that repeats others, a group of `local` work-items, and its numbers."""
    text = _Text(repeated)
    waits = repeated.barriers()
    names = ["runs", "work"]
    text.number(step.space[0], "index")
    text.number(repeated.work, "index")

    def steps(of: Sequence[Step]) -> list[str]:
        return [line for inner in of for line in text.step(inner, local)]

    body: list[str] = []
    for place, inner in enumerate(repeated.repeated.body):
        body += [_BARRIER] * (place in waits) + text.step(inner, local)
    for a, b in repeated.swaps():
        word = WORDS[repeated.tensors[a]]
        body.append(f"{{ __global {word}* other = {text.names[a]}; {text.names[a]} = {text.names[b]};")
        body.append(f"  {text.names[b]} = other; }}")
    lines = [
        "const int lane = (int)get_local_id(0);",
        f"const int begin = f0 * {RUNS}, end = min(begin + {RUNS}, runs);",
        "if (f0 == 0) {",
        "    const int run = 0;",
        *(f"    {line}" for line in steps(repeated.before)),
        f"    {_BARRIER}",
        "}",
        "for (int run = begin; run < end; ++run) {",
        *(f"    {line}" for line in body),
        "}",
        "if (end == runs) {",
        f"    {_BARRIER}",
        "    const int run = runs;",
        *(f"    {line}" for line in steps(repeated.repeated.last)),
        "}",
    ]
    names += [f"arg{k}" for k in range(len(names), len(text.types))]
    kinds = list(repeated.tensors.values())
    types: list[ArithmeticType] = [*text.types, "index", "index", "index"]
    signature = Signature.of(len(kinds) - 1, types)
    # States change places, so the same tensor is read and written.
    buffers = [f"__global {WORDS[kind]}* tensor{k}" for k, kind in enumerate(kinds)]
    parameters, loads = signature.parameters(buffers, [*names, *FIRST_GROUP])
    head = f"__kernel __attribute__((reqd_work_group_size({local}, 1, 1))) void k({parameters})\n{{\n"
    function = head + indent(["#pragma OPENCL FP_CONTRACT OFF", *loads, *lines], 1) + "}\n"
    source = extensions(function) + functions_for(function) + function
    kernel = TunedKernel(source, signature, (local, 1, 1), (1,), RUNS, is_alone=True)
    return kernel, text.values
