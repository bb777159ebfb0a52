"""The common part of tuned kernels: their source template and the epilogue in their store."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from engine.backends.opencl.codegen.functions import functions_for
from engine.backends.opencl.codegen.printer import AxisSplit, OpenCLPrinter, Signature, extensions
from engine.base.dtypes import ArithmeticType
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import acc
from engine.kernels.kernel import kernel_call
from engine.kernels.size import largest, whole

# Multiplications of one dispatch: at 10 GFLOP/s, half a second.
_MAX_MULTIPLICATIONS = 1 << 32
FIRST_GROUP = ("f0", "f1", "f2")
"""Names of a kernel's last numbers: the group where this dispatch begins, along each dimension."""

Dispatch = tuple[list[int | float], tuple[int, ...]]
"""All numbers of a dispatch, and its work-items along each dimension."""


@dataclass(frozen=True)
class TunedKernel:
    """A kernel of this backend's own. A step's space is its grid of groups, in three dimensions.

    rounds: positions of the values whose product is how long one group's loop is. area: multiplications
    of one round. The last three numbers are `FIRST_GROUP`. is_alone: whether every group is a dispatch of its
    own, because it continues where the previous one ended.
    """

    text: str
    signature: Signature
    local: tuple[int, ...]
    rounds: tuple[int, ...] = ()
    area: int = 1
    is_alone: bool = False

    @cached_property
    def key(self) -> str:
        """Digest of what defines the kernel."""
        return hashlib.sha256(f"opencl {self.local} {self.text}".encode()).hexdigest()[:24]

    def most_groups(self, values: Sequence[int | float], max_groups: int | None = None) -> int:
        """How many groups a dispatch may have; at least 1."""
        if self.is_alone:
            return 1
        per_group = self.area * largest(1, prod(whole(values[k]) for k in self.rounds))
        most: int = largest(1, _MAX_MULTIPLICATIONS // per_group)
        return most if max_groups is None else min(most, max_groups)

    def multiplications(self, grid: Sequence[int], values: Sequence[int | float]) -> int:
        """How many a step takes."""
        return prod(grid) * self.area * max(1, prod(int(values[k]) for k in self.rounds))

    def dispatches(
        self, grid: Sequence[int], values: Sequence[int | float], max_groups: int
    ) -> list[Dispatch]:
        """Numbers and work-items of each dispatch; a long step is cut into several."""
        budget = self.most_groups(values)
        sizes: list[int] = []
        for count in grid:
            sizes.append(max(1, min(count, max_groups, budget)))
            budget = max(1, budget // sizes[-1])
        parts: list[Dispatch] = []
        for f2 in range(0, grid[2], sizes[2]):
            for f1 in range(0, grid[1], sizes[1]):
                for f0 in range(0, grid[0], sizes[0]):
                    counts = [min(s, n - f) for s, n, f in zip(sizes, grid, (f0, f1, f2), strict=True)]
                    size = tuple(c * n for c, n in zip(counts, self.local, strict=True))
                    parts.append(([*values, f0, f1, f2], size))
        return parts


class OpenCLEpilogue:
    """The epilogue of a kernel: its source, buffers and arguments.

    known: names of index axes that the kernel knows where it stores a row of results (`row`), or one
    result (`element`); other axes are split from the position. The text uses `acc` and `flat`.
    """

    def __init__(self, compute: Compute, row: Mapping[int, str], element: Mapping[int, str]) -> None:
        formula = compute.epilogue if compute.epilogue is not None else acc(compute.body.dtype)
        self.kernel, self._own, inputs = kernel_call(formula, len(compute.space), compute.output.dtype)
        self.inputs = tuple(v.name for v in inputs)
        split = AxisSplit.of(self.kernel.body, len(compute.space))
        self._split = AxisSplit(tuple(a for a in split.used if a not in row and a not in element), split.rank)
        self._space, self._output = compute.space, compute.output.name
        self.item = compute.body.dtype
        """Type of what is stored, before it."""
        printer = OpenCLPrinter(self.kernel)
        names: dict[object, str] = {"acc": "acc", "flat": "flat"}
        printer.variables |= names | dict(row) | dict(element)
        printer.variables |= {axis: f"i{axis}" for axis in self._split.used}
        outer = printer.open(frozenset(row))
        inner = printer.open(frozenset({"acc", "flat", *element, *self._split.used}))
        value = printer.text(self.kernel.body)
        # Before the results of a row, and for each result.
        self.row_lines = outer.lines
        self.lines = [*self._split.statements("flat"), *inner.lines]
        self.lines.append(printer.store("y", "flat", value, self.kernel.body.dtype))

    @property
    def names(self) -> list[str]:
        """Names of its numbers."""
        return [f"p{k}" for k in range(len(self.kernel.params))] + self._split.names

    @property
    def types(self) -> list[ArithmeticType]:
        """Types of its numbers."""
        return [*self.kernel.params, *self._split.types]

    @property
    def values(self) -> list[int | float]:
        """Its arguments."""
        return [*self._own, *self._split.values(self._space)]

    def emit(
        self,
        tuner: Tuner,
        kernel: TunedKernel,
        grid: tuple[int, ...],
        numbers: Sequence[int | float],
        operands: Sequence[str],
    ) -> bool:
        """Add the step whose kernel ends with this epilogue. Returns True, as a rule that applies does."""
        values, inputs = (*numbers, *self.values), (*self.inputs, *operands)
        tuner.emit(kernel, grid, values, inputs, self._output)
        return True


def axis_names(compute: Compute, rank: int, names: Mapping[int, str]) -> dict[int, str]:
    """Names of the space's axes, if they are those of the hint's output, which has `rank` axes."""
    return dict(names) if len(compute.space) == rank else {}


def build(
    body: str,
    epilogue: OpenCLEpilogue | None,
    operands: Sequence[str],
    numbers: Sequence[str],
    local: tuple[int, ...],
    *,
    rounds: Sequence[str] = (),
    area: int = 1,
    output: str | None = None,
    head: str = "",
    item: str = "float32",
) -> TunedKernel:
    """A kernel from its body.

    The epilogue's buffers come first, then `operands` (of type `item` or what they name after a colon), then
    the output `y`. Bodies use the names of `_ITEMS` for that type. `numbers` are ints, before the
    epilogue's and `FIRST_GROUP`.
    """
    inputs = list(epilogue.kernel.buffers) if epilogue else []
    aliases = []
    for operand in operands:
        name, _, kind = operand.partition(":")
        aliases.append(f"#define {name} b{len(inputs)}")
        inputs.append(kind or item)
    own: list[ArithmeticType] = ["index" for _ in numbers]
    names = [*numbers, *(epilogue.names if epilogue else []), *FIRST_GROUP]
    types: list[ArithmeticType] = [*own, *(epilogue.types if epilogue else []), "index", "index", "index"]
    signature = Signature.of(len(inputs), types)
    parameters, loads = signature.declarations(
        inputs, epilogue.kernel.dtype if epilogue else output or item, names
    )
    size = ", ".join(map(str, local))
    function = (
        "\n".join(aliases)
        + f"\n__kernel __attribute__((reqd_work_group_size({size}))) void k({parameters})\n{{\n"
        + "".join(f"    {line}\n" for line in loads)
        + body
        + "}\n"
    )
    head = _ITEMS[item] + head
    text = extensions(head + function) + head + functions_for(function) + function
    return TunedKernel(text, signature, local, tuple(numbers.index(r) for r in rounds), area)


_ITEMS = {
    "float32": """\
#define item float
#define item16 float16
#define ADD(a, w, v) a += (w) * (v)
#define ADD16(a, w, v) a += (w) * (v)
""",
    "float64": """\
#define item double
#define item16 double16
#define ADD(a, w, v) a += (w) * (v)
#define ADD16(a, w, v) a += (w) * (v)
""",
    # Signed overflow is undefined in C.
    "int32": """\
#define item int
#define item16 int16
#define ADD(a, w, v) a = as_int(as_uint(a) + as_uint(w) * as_uint(v))
#define ADD16(a, w, v) a = as_int16(as_uint16(a) + as_uint(w) * as_uint16(v))
""",
}
_ITEMS["int64"] = _ITEMS["int32"]
"""What bodies call the type of their operands, and how they add a product to a sum."""


def indent(lines: Sequence[str], depth: int) -> str:
    """Lines as text, indented by `depth` steps."""
    return "".join(f"{'    ' * depth}{line}\n" for line in lines)
