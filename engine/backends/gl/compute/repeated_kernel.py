"""Small repeated steps as one single-group shader; see `engine.backends.gpu.repeated_kernel`."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from math import prod

from engine.backends.gl.compute.epilogue import FIRST_GROUP
from engine.backends.gl.compute.printer import ComputePrinter, axis_values, block_item, function, program_text
from engine.backends.gl.compute.shader import ShaderKernel
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.glsl import argument, argument_vectors
from engine.backends.gl.storage import lanes
from engine.backends.gpu.repeated_kernel import RUNS, RepeatedKernel, tensors_of, waits_of, work_of
from engine.base.dtypes import ArithmeticType
from engine.compiler.plan import Step
from engine.kernels.expr import IterationNumber
from engine.kernels.kernel import Kernel

_LOCAL_SIZE = 256
_BARRIER = "memoryBarrierBuffer(); barrier();"
_ROUND_NS = 0.1
# OpenGL promises 512 components of uniforms.
_MOST_ARGUMENTS = 512
# Behind a step's own arguments: the first element, the one behind the last, and what both grow by in a run.
_BEGIN, _END, _STRIDE, _AXES = range(4)


class _StepPrinter(ComputePrinter):
    """Prints a step whose arguments are a part of the shader's."""

    def __init__(self, step: Step, first: int, blocks: Sequence[str]) -> None:
        assert isinstance(step.kernel, Kernel)
        super().__init__(step.kernel, texels=False)
        self.first_argument = first
        self._runs = {k for k, value in enumerate(step.values) if isinstance(value, IterationNumber)}
        self._blocks = blocks

    def param(self, slot: int, dtype: ArithmeticType) -> str:
        """A run-time argument, or the number of the run."""
        return "run" if slot in self._runs else super().param(slot, dtype)

    def fetch(self, slot: int, position: str) -> str:
        """An element of a tensor."""
        return f"{self._blocks[slot]}[{position}]"


class _Text:
    """The text of a shader, and its arguments with their types."""

    def __init__(self, tensors: Mapping[str, str], *numbers: int) -> None:
        """`tensors` are names and storage types, the output last; `numbers` are the first arguments."""
        self._tensors = tensors
        self.blocks = {name: f"b{k}" for k, name in enumerate(tensors)}
        self.types: list[ArithmeticType] = ["index"] * len(numbers)
        self.values: list[int | float] = [*numbers]

    def arguments(self, step: Step) -> int:
        """Add those of a step; returns where they begin."""
        assert isinstance(step.kernel, Kernel)
        first, window = len(self.values), step.window
        if window is None:
            span = 0, prod(step.space), 0
        else:
            span = window.start, window.start + window.elements, window.stride
        extra = (*span, *axis_values(step.space))
        self.values += [*(0 if isinstance(x, IterationNumber) else x for x in step.values), *extra]
        self.types += [*step.kernel.params, *["index"] * len(extra)]  # type: ignore[list-item]
        return first

    def step(self, step: Step, first: int) -> list[str]:
        """The statements of all threads for a step whose arguments begin at `first`."""
        printer = _StepPrinter(step, first, [self.blocks[name] for name in step.inputs])
        lines, stored = printer.element(_AXES)
        lines.append(f"{self.blocks[step.output]}[i] = {stored};")
        begin, end, stride = (f"{printer.extra(k)}" for k in (_BEGIN, _END, _STRIDE))
        return [
            "{",
            f"    int moved = run * {stride}, end = {end} + moved;",
            f"    for (int i = {begin} + moved + lane; i < end; i += {_LOCAL_SIZE}) {{",
            *(f"        {line}" for line in lines),
            "    }",
            "}",
        ]

    def kernel(self, lines: Sequence[str], written: Container[str], ns: float, *rounds: int) -> ShaderKernel:
        """A shader of these statements, which write some tensors; a round of its group takes so long."""
        main = function("void main()", lines)
        blocks = []
        for k, (name, kind) in enumerate(self._tensors.items()):
            access = "coherent" if name in written else "restrict readonly"
            # The output is the first to be bound.
            binding = (k + 1) % len(self._tensors)
            block = f"{access} buffer Tensor{k} {{ {block_item(kind)} b{k}[]; }};"
            blocks.append(f"layout(std430, binding = {binding}) {block}")
        own = len(self.values)
        declaration = f"uniform ivec4 A[{argument_vectors(own + len(FIRST_GROUP))}];"
        source = program_text((_LOCAL_SIZE, 1), blocks, declaration, main)
        types: list[ArithmeticType] = [*self.types, "index", "index", "index"]
        inputs = tuple(self._tensors.values())[:-1]
        return ShaderKernel(
            source, tuple(types), inputs, (1,) * len(inputs), own, False, rounds, ns, is_alone=True
        )  # fmt: skip


def fits(tensors: Mapping[str, str], target: ShaderTarget) -> bool:
    """Whether a shader can bind all tensors, and a thread can store an element of each."""
    limits = target.limits
    most = min(limits.max_compute_storage_blocks, limits.max_storage_buffer_bindings)
    return len(tensors) <= most and all(lanes(kind) == 1 for kind in tensors.values())


def print_merged(steps: Sequence[Step], target: ShaderTarget) -> Step | None:
    """Steps of a run as one, whose kernel is one group; None if it is more than a shader takes.

    Its output is made anew in each run: what lasts longer counts as an input (`RepeatedSteps.of_run`).
    """
    tensors = tensors_of(steps, next(step.output for step in steps if step.window is None))
    text = _Text(tensors, IterationNumber())
    lines = [f"int lane = int(gl_LocalInvocationID.x), run = {argument(0)};"]
    for step, waits in zip(steps, waits_of(steps), strict=True):
        lines += [_BARRIER] * waits + text.step(step, text.arguments(step))
    if len(text.values) + len(FIRST_GROUP) > _MOST_ARGUMENTS or not fits(tensors, target):
        return None
    kernel = text.kernel(lines, {step.output for step in steps}, sum(map(work_of, steps)) * _ROUND_NS)
    *inputs, output = tensors
    names = "+".join(dict.fromkeys(step.op_type for step in steps))
    values = (*text.values, *[0] * len(FIRST_GROUP))
    return Step(steps[-1].layer, names, kernel, (1, 1, 1), values, tuple(inputs), output)


def print_repeated(repeated: RepeatedKernel, step: Step) -> tuple[ShaderKernel, list[int | float]] | None:
    """The shader of a step that repeats others, one group, and its arguments; None if they are too many."""
    text = _Text(repeated.tensors, step.space[0], repeated.work)
    steps, waits = repeated.repeated, repeated.barriers()
    before = [line for inner in repeated.before for line in text.step(inner, text.arguments(inner))]
    firsts = [text.arguments(inner) for inner in steps.body]
    last_firsts = [text.arguments(inner) for inner in steps.last]

    def run(part: int) -> list[str]:
        lines: list[str] = []
        inner = zip(steps.in_iteration(steps.body, part), firsts, strict=True)
        for place, (each, first) in enumerate(inner):
            lines += [_BARRIER] * (place in waits) + text.step(each, first)
        return lines

    def last(part: int) -> list[str]:
        inner = zip(steps.in_iteration(steps.last, part), last_firsts, strict=True)
        return [line for each, first in inner for line in text.step(each, first)]

    own = len(text.values)
    if own + len(FIRST_GROUP) > _MOST_ARGUMENTS:
        return None
    main = [
        f"int lane = int(gl_LocalInvocationID.x), runs = {argument(0)};",
        f"int begin = (int(gl_WorkGroupID.x) + {argument(own)}) * {RUNS}, end = min(begin + {RUNS}, runs);",
        "if (begin == 0) {",
        "    int run = 0;",
        *(f"    {line}" for line in before),
        f"    {_BARRIER}",
        "}",
        "for (int run = begin; run < end; ++run) {",
        *(f"    {line}" for line in run(0)),
        "    if (++run < end) {",
        *(f"        {line}" for line in run(1)),
        "    }",
        "}",
        "if (end == runs) {",
        f"    {_BARRIER}",
        "    int run = runs;",
        "    if ((runs & 1) == 0) {",
        *(f"        {line}" for line in last(0)),
        "    } else {",
        *(f"        {line}" for line in last(1)),
        "    }",
        "}",
    ]
    written = {each.output for each in repeated.steps}
    written |= {steps.swapped[name] for name in written if name in steps.swapped}
    kernel = text.kernel(main, written, RUNS * _ROUND_NS, 1)
    return kernel, [*text.values, *[0] * len(FIRST_GROUP)]
