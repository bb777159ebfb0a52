"""Pooling: a thread computes four adjacent results, and loads once what their windows share.

They are neighbours in a row, or in a column where windows overlap in columns only. Where several results are
in a 32-bit word, a thread computes four of the output's elements in order, so that it stores whole words.
What computes the input elementwise, such as a conversion, is computed where elements are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, prod

from engine.backends.gl.compute.flat_grid import emit_with_epilogue
from engine.backends.gl.compute.printer import ComputePrinter, element, function
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.glsl import float_literal
from engine.backends.gl.storage import lanes
from engine.backends.gpu.kernel_dialect import GROUP, ThreadStep
from engine.backends.windows import pair, windows_first
from engine.base.dtypes import NARROW_FLOAT_TYPES
from engine.compiler.fusion import narrowed
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import LOOPS, Expr, nodes, substitute
from engine.kernels.kernel import kernel_call

_EACH = 4
_MOST_REACHED = 32
_NAMES = (
    "height", "width", "rows", "columns", "total", "top", "left", "margin_top", "margin_left",
    "end_h", "end_w",
)  # fmt: skip
_COLUMN_NS = 2.0
# Names of the two axes: of the input, of the output, of the position, and of what is beside the input.
_SIZES, _COUNTS, _PLACES = ("height", "width"), ("rows", "columns"), ("row", "column")
_PADS, _MARGINS, _ENDS = ("top", "left"), ("margin_top", "margin_left"), ("end_h", "end_w")
_LOWEST = {"float32": float_literal(-inf), "int32": "(-2147483647 - 1)"}
_LARGER = {"float32": "k_max", "int32": "max"}


@dataclass(frozen=True)
class _Source:
    """What windows read: tensors with their types, what loads an element, and the text before that."""

    inputs: Sequence[tuple[str, str]]
    load: Callable[[str], str]
    functions: Sequence[str] = ()
    before: Sequence[str] = ()


def tune_pool(compute: Compute, tuner: Tuner, target: ShaderTarget) -> bool:
    """Rule for hints of kind "pool" over one or two axes.

    False for kernels of a size that varies, and on graphics cards where neighbours share no element: there,
    the generic kernel reads neighbouring elements in neighbouring threads.
    """
    (x,), attributes = compute.operands, compute.attributes
    kind, word, win = attributes["kind"], compute.body.dtype, windows_first(compute)
    if win is None or x.arithmetic != word or word not in (_LOWEST if kind == "max" else ("float32",)):
        return False
    kernel, strides, dilations = win.kernel, win.strides, win.dilations
    if not all(type(n) is int for n in (*kernel, *strides, *dilations)):
        return False
    is_narrow = lanes(compute.output.dtype.name) > 1
    reaches = [(_EACH - 1) * s + (k - 1) * d + 1 for k, s, d in zip(kernel, strides, dilations, strict=True)]
    axes = [axis for axis in (1, 0) if reaches[axis] <= min(_MOST_REACHED, _EACH * kernel[axis] - 1)]
    if is_narrow or (target.texels and not axes):
        axes = [1] if reaches[1] <= _MOST_REACHED else []
    if not axes:
        return False
    along, other = axes[0], 1 - axes[0]
    sizes, out, begins, ends = (win.height, win.width), win.out, win.pads, pair(attributes["ends"], 0)
    margins = begins if attributes["include_pad"] else (0, 0)
    limits = [n + e if attributes["include_pad"] else n for n, e in zip(sizes, ends, strict=True)]
    planes = x.shape[0] * x.shape[1]
    results = planes * prod(out)
    threads = -(-results // _EACH) if is_narrow else planes * out[other] * -(-out[along] // _EACH)
    source = _source(compute, tuner, target)
    windows = _Windows(kind, word, (kernel, strides, dilations), along, source.load)
    lines = windows.words(lanes(compute.output.dtype.name)) if is_narrow else windows.elements()
    own = (*sizes, *out, results if is_narrow else threads, *begins, *margins, *limits)
    ns = GROUP * _COLUMN_NS * reaches[along] * kernel[other]
    step = ThreadStep(
        threads, [*source.before, *lines], _NAMES, own, source.inputs, compute.output.name,
        functions=source.functions, ns=ns,
    )  # fmt: skip
    return emit_with_epilogue(compute, tuner, step, target)


def _source(compute: Compute, tuner: Tuner, target: ShaderTarget) -> _Source:
    """The pooled tensor, or the tensors that it is computed from elementwise."""
    (x,), producer = compute.operands, tuner.producer
    made = None if producer is None else _elementwise_source(producer, target)
    if made is not None:
        return made
    kind = x.dtype.name
    return _Source([(x.root.name, kind)], lambda position: element("b0", position, kind, target.texels))


def _elementwise_source(producer: Compute, target: ShaderTarget) -> _Source | None:
    """What the producer reads, and a function of an element's position; None for other formulas."""
    output, formula = producer.output, producer.formula()
    rounds = output.dtype.name in NARROW_FLOAT_TYPES
    is_bound = producer.hint is not None and producer.hint.is_bound
    if rounds or is_bound or output.arithmetic != "float32" or formula.free != {"flat"}:
        return None
    kernel, values, inputs = kernel_call(narrowed(formula, output), 1, output.dtype)
    if values or any(node.op in LOOPS for node in nodes(kernel.body)):
        return None
    printer = ComputePrinter(kernel, target.texels)
    before: list[str] = []
    names: list[str] = []

    def loaded_before(node: Expr) -> Expr | None:
        # Drivers do not move what is the same for all elements out of loops.
        if node.op != "load" or node.free:
            return None
        name = f"same{len(names)}"
        printer.variables[name] = name
        names.append(f"{printer.TYPES[node.dtype]} {name}")
        statements, value = printer.body(node, {})
        before.extend([*statements, f"{names[-1]} = {value};"])
        return Expr("loopvar", node.dtype, attr=name, free=frozenset({name}))

    body = substitute(kernel.body, loaded_before)
    held = {name.split()[1]: name.split()[1] for name in names}
    lines, value = printer.body(body, {"flat": "i", **held})
    head = f"float k_source({', '.join(['int i', *names])})"
    arguments = "".join(f", {name}" for name in held)
    return _Source(
        [(v.name, v.dtype.name) for v in inputs], lambda position: f"k_source({position}{arguments})",
        [function(head, [*lines, f"return {value};"])], before,
    )  # fmt: skip


@dataclass(frozen=True)
class _Windows:
    """Statements for windows of a kernel, strides and dilations; neighbours are `along` an axis."""

    kind: str
    word: str
    geometry: Sequence[tuple[int, int]]
    along: int
    load: Callable[[str], str]

    def elements(self) -> list[str]:
        """A thread computes neighbours, and stores each."""
        along = self.along
        quads = f"(({_COUNTS[along]} + {_EACH - 1}) / {_EACH})"
        down, across = (quads, "columns") if along == 0 else ("rows", quads)
        to, place = ("columns", "1")[along], _PLACES[along]
        return [
            "if (t >= total) return;",
            f"int across = max({across}, 1), down = max({down}, 1), line = t / across, plane = line / down;",
            "int column = t - line * across, row = line - plane * down;",
            f"{place} *= {_EACH};",
            *self._results(),
            "int to = (plane * rows + row) * columns + column;",
            *(f"if ({place} + {j} < {_COUNTS[along]}) finish(to + {j} * {to}, a{j});" for j in range(_EACH)),
        ]

    def words(self, count: int) -> list[str]:
        """A thread computes elements that follow each other, and stores words of `count`."""
        words, bits = _EACH // count, 32 // count
        lines = [
            f"int first_result = t * {_EACH};",
            "if (first_result >= total) return;",
            *(f"uint word{k} = 0u;" for k in range(words)),
            # What is beyond the end of a row comes in another iteration.
            f"for (int done = 0; done < {_EACH} && first_result + done < total;) {{",
            "    int to = first_result + done, line = to / columns, plane = line / rows;",
            "    int column = to - line * columns, row = line - plane * rows;",
            *(f"    {line}" for line in self._results()),
            f"    int fitting = min(min({_EACH} - done, columns - column), total - to);",
        ]
        # Without branches, drivers load once what all results are finished with.
        lines += [f"    uint found{j} = finish(min(to + {j}, total - 1), a{j});" for j in range(_EACH)]
        for j in range(_EACH):
            place = f"done + {j}"
            for k in range(words):
                fits = f"{j} < fitting" + (f" && ({place}) / {count} == {k}" if words > 1 else "")
                shift = f"(({place}) & {count - 1}) * {bits}"
                lines.append(f"    word{k} |= {fits} ? found{j} << ({shift}) : 0u;")
        to = ("t", f"t * {words} + ")[words > 1]
        return [
            *lines,
            "    done += fitting;",
            "}",
            *(
                f"if (first_result + {k * count} < total) o[{to}{k if words > 1 else ''}] = word{k};"
                for k in range(words)
            ),
        ]

    def _results(self) -> list[str]:
        """The results of the windows at row, column and those beside it, as a0...

        Expects plane, row and column.
        """
        each, along, other = range(_EACH), self.along, 1 - self.along
        (kernel, step, dilation), (others, stride, apart) = (
            [pair[axis] for pair in self.geometry] for axis in (along, other)
        )
        next_to, size = ("width", "1")[along], _SIZES[along]
        start = _LOWEST[self.word] if self.kind == "max" else "0.0"
        lines = [
            f"int first = {_PLACES[other]} * {stride} - {_PADS[other]};",
            f"int begin = {_PLACES[along]} * {step} - {_PADS[along]};",
            *(f"float a{j} = {start};" for j in each),
            "int counted = 0;",
            f"for (int k = 0; k < {others}; ++k) {{",
            f"    int at = first + k * {apart};",
            f"    counted += at >= -{_MARGINS[other]} && at < {_ENDS[other]} ? 1 : 0;",
            f"    if (at < 0 || at >= {_SIZES[other]}) continue;",
            f"    int from = plane * height * width + at{' * width' if other == 0 else ''};",
        ]
        for offset in range((_EACH - 1) * step + (kernel - 1) * dilation + 1):
            taps = [offset - j * step for j in each]
            hit = [j for j in each if taps[j] % dilation == 0 and 0 <= taps[j] // dilation < kernel]
            if not hit:
                continue
            name, at = f"v{offset}", f"begin + {offset}"
            value = self.load(f"from + clamp({at}, 0, {size} - 1) * {next_to}")
            lines.append(f"    float {name} = {at} >= 0 && {at} < {size} ? {value} : {start};")
            larger = f"a{{0}} = {_LARGER[self.word]}(a{{0}}, {{1}});"
            accumulated = larger if self.kind == "max" else "a{0} += {1};"
            lines += [f"    {accumulated.format(j, name)}" for j in hit]
        lines.append("}")
        if self.kind == "average":
            for j in each:
                places = [f"begin + {j * step + k * dilation}" for k in range(kernel)]
                inside = " + ".join(f"int({w} >= -{_MARGINS[along]} && {w} < {_ENDS[along]})" for w in places)
                lines.append(f"a{j} /= float(counted * ({inside}));")
        return lines
