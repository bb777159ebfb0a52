"""Small repeated steps as one single-group kernel; see `engine.backends.gpu.repeated_kernel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.backends.gpu.repeated_kernel import RUNS, RepeatedKernel, tensors_of, waits_of, work_of
from engine.backends.opencl.codegen.functions import functions_for
from engine.backends.opencl.codegen.printer import (
    AxisSplit,
    OpenCLPrinter,
    Signature,
    argument_word,
    extensions,
)
from engine.backends.opencl.codegen.row_kernel import VECTOR, row_split
from engine.backends.opencl.codegen.storage import WORDS
from engine.backends.opencl.codegen.strips import strip_lines, sums_of
from engine.backends.opencl.codegen.tuned_kernel import FIRST_GROUP, TunedKernel, indent
from engine.base.dtypes import ArithmeticType
from engine.compiler.plan import Step
from engine.kernels.expr import IterationNumber
from engine.kernels.kernel import Kernel


def _barrier(local: int) -> list[str]:
    """Work-items of a group wait for one another; a single one has nothing to wait for."""
    return ["barrier(CLK_GLOBAL_MEM_FENCE);"] if local > 1 else []


class _Text:
    """The text of a kernel, and its numbers with their types."""

    def __init__(self, tensors: Mapping[str, str], **numbers: int) -> None:
        """`tensors` are names and storage types, `numbers` are those that a text names."""
        self.names = {name: f"tensor{k}" for k, name in enumerate(tensors)}
        self._kinds = list(tensors.values())
        self._numbers = list(numbers)
        self.types: list[ArithmeticType] = ["index"] * len(numbers)
        self.values: list[int | float] = [*numbers.values()]

    def number(self, value: int | float, kind: ArithmeticType) -> str:
        """The name of a new argument, or of the run's number."""
        if isinstance(value, IterationNumber):
            return "run"
        self.types.append(kind)
        self.values.append(value)
        return f"arg{len(self.values) - 1}"

    def step(self, step: Step, local: int) -> list[str]:
        """The statements of all work-items for a step."""
        kernel = step.kernel
        assert isinstance(kernel, Kernel)
        # A work-item alone has no neighbours that a compiler could join.
        in_strips = local == 1 and step.window is None and kernel.rank > 0
        axes, space = AxisSplit.of(kernel.body, kernel.rank), step.space
        if in_strips:
            axes, space = row_split(kernel), step.space[:-1]
        lines = [
            f"__global const {WORDS[kind]}* b{k} = {self.names[name]};"
            for k, (name, kind) in enumerate(zip(step.inputs, kernel.buffers, strict=True))
        ]
        lines.append(f"__global {WORDS[kernel.dtype]}* y = {self.names[step.output]};")
        for k, (kind, given) in enumerate(zip(kernel.params, step.values, strict=True)):
            lines.append(f"const {argument_word(kind)} p{k} = {self.number(given, kind)};")
        for name, given in zip(axes.names, axes.values(space), strict=True):
            lines.append(f"const int {name} = {self.number(given, 'index')};")
        if in_strips:
            rows, columns = (self.number(n, "index") for n in (_product(space), step.space[-1]))
            return ["{", *(f"    {x}" for x in (*lines, *strip_lines(kernel, axes, rows, columns))), "}"]
        if step.window is None:
            first, end = "0", self.number(_product(step.space), "index")
        else:
            start, stride, elements = (self.number(value, "index") for value in step.window)
            lines.append(f"const int first = {start} + run * {stride};")
            first, end = "first", f"first + {elements}"
        printer = OpenCLPrinter(kernel)
        inner, value = printer.body(kernel.body, {"flat": "i"} | {axis: f"i{axis}" for axis in axes.used})
        lines.append(f"for (int i = {first} + lane; i < {end}; i += {local}) {{")
        body = [*axes.statements("i"), *inner, printer.store("y", "i", value, kernel.body.dtype)]
        return ["{", *(f"    {x}" for x in (*lines, *(f"    {y}" for y in body), "}")), "}"]

    def kernel(self, lines: Sequence[str], local: int, **properties: Any) -> TunedKernel:
        """A kernel of these statements, in groups of `local` work-items."""
        names = [*self._numbers, *(f"arg{k}" for k in range(len(self._numbers), len(self.types)))]
        types: list[ArithmeticType] = [*self.types, "index", "index", "index"]
        signature = Signature.of(len(self._kinds) - 1, types)
        # The same tensor may be read and written, and states change places.
        buffers = [f"__global {WORDS[kind]}* tensor{k}" for k, kind in enumerate(self._kinds)]
        parameters, loads = signature.parameters(buffers, [*names, *FIRST_GROUP])
        head = f"__kernel __attribute__((reqd_work_group_size({local}, 1, 1))) void k({parameters})\n{{\n"
        body = indent(["#pragma OPENCL FP_CONTRACT OFF", *loads, *lines], 1)
        function = f"{head}{body}}}\n"
        source = extensions(function) + functions_for(function) + function
        return TunedKernel(source, signature, (local, 1, 1), **properties)


def _product(sizes: Sequence[int]) -> int:
    """The product of sizes, which may be open."""
    total = 1
    for size in sizes:
        total = total * size
    return total


def print_repeated(repeated: RepeatedKernel, step: Step, local: int) -> tuple[TunedKernel, list[int | float]]:
    """The kernel of a step that repeats others, a group of `local` work-items, and its numbers."""
    text = _Text(repeated.tensors, runs=step.space[0], work=repeated.work)
    waits, barrier = repeated.barriers(), _barrier(local)

    def steps(of: Sequence[Step]) -> list[str]:
        return [line for inner in of for line in text.step(inner, local)]

    body: list[str] = []
    for place, inner in enumerate(repeated.repeated.body):
        body += [*(barrier if place in waits else []), *text.step(inner, local)]
    for a, b in repeated.swaps():
        word = WORDS[repeated.tensors[a]]
        body.append(f"{{ __global {word}* other = {text.names[a]}; {text.names[a]} = {text.names[b]};")
        body.append(f"  {text.names[b]} = other; }}")
    lines = [
        "const int lane = (int)get_local_id(0);",
        f"const int begin = f0 * {RUNS}, end = min(begin + {RUNS}, runs);",
        "if (f0 == 0) {",
        "    const int run = 0;",
        *(f"    {line}" for line in [*steps(repeated.before), *barrier]),
        "}",
        "for (int run = begin; run < end; ++run) {",
        *(f"    {line}" for line in body),
        "}",
        "if (end == runs) {",
        "    const int run = runs;",
        *(f"    {line}" for line in [*barrier, *steps(repeated.repeated.last)]),
        "}",
    ]
    return text.kernel(lines, local, rounds=(1,), area=RUNS, is_alone=True), text.values


def work_alone(step: Step) -> int:
    """How many rounds of loops a generic step takes on a work-item alone, where strips are vectors."""
    assert isinstance(step.kernel, Kernel)
    return work_of(step) // (VECTOR if step.window is None and sums_of(step.kernel) else 1)


def print_merged(steps: Sequence[Step], local: int) -> Step:
    """Steps of a run as one, whose kernel is a group of `local` work-items.

    Its output is made anew in each run: what lasts longer counts as an input (`RepeatedSteps.of_run`).
    """
    tensors = tensors_of(steps, next(step.output for step in steps if step.window is None))
    text = _Text(tensors, run=IterationNumber())
    lines = ["const int lane = (int)get_local_id(0);"]
    for step, waits in zip(steps, waits_of(steps), strict=True):
        lines += [*(_barrier(local) if waits else []), *text.step(step, local)]
    kernel = text.kernel(lines, local, area=max(1, sum(map(work_of, steps))))
    *inputs, output = tensors
    names = "+".join(dict.fromkeys(step.op_type for step in steps))
    return Step(steps[-1].layer, names, kernel, (1, 1, 1), tuple(text.values), tuple(inputs), output)
