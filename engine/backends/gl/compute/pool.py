"""Pooling: a thread computes four adjacent results, and loads once what their windows share.

They are neighbours in a row, or in a column where windows overlap in columns only. Where several results are
in a 32-bit word, a thread computes four of the output's elements in order, so that it stores whole words.
What computes the input elementwise, such as a conversion, is computed where elements are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from engine.backends.gl.compute.flat_grid import emit_with_epilogue
from engine.backends.gl.compute.printer import ComputePrinter, element, function
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.compute.windows import (
    EACH,
    LOWEST,
    MOST_REACHED,
    WINDOW_DIVISORS,
    WINDOW_NAMES,
    WindowStatements,
    reach,
    rows_are_whole,
)
from engine.backends.gl.storage import lanes
from engine.backends.gpu.kernel_dialect import GROUP, ThreadStep
from engine.backends.windows import pair, windows_first
from engine.base.dtypes import NARROW_FLOAT_TYPES
from engine.compiler.fusion import narrowed
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import LOOPS, Expr, nodes, substitute
from engine.kernels.kernel import kernel_call

_NAMES = (*WINDOW_NAMES, "margin_top", "margin_left", "end_h", "end_w")
_COLUMN_NS = 2.0


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
    if win is None or x.arithmetic != word or word not in (LOWEST if kind == "max" else ("float32",)):
        return False
    kernel, strides, dilations = win.kernel, win.strides, win.dilations
    if not all(type(n) is int for n in (*kernel, *strides, *dilations)):
        return False
    is_narrow = lanes(compute.output.dtype.name) > 1
    reaches = [reach(win, axis) for axis in (0, 1)]
    axes = [axis for axis in (1, 0) if reaches[axis] <= min(MOST_REACHED, EACH * kernel[axis] - 1)]
    if is_narrow or (target.texels and not axes):
        axes = [1] if reaches[1] <= MOST_REACHED else []
    if not axes:
        return False
    along, other = axes[0], 1 - axes[0]
    sizes, out, begins, ends = (win.height, win.width), win.out, win.pads, pair(attributes["ends"], 0)
    margins = begins if attributes["include_pad"] else (0, 0)
    limits = [n + e if attributes["include_pad"] else n for n, e in zip(sizes, ends, strict=True)]
    planes = x.shape[0] * x.shape[1]
    results = planes * prod(out)
    threads = -(-results // EACH) if is_narrow else planes * out[other] * -(-out[along] // EACH)
    source = _source(compute, tuner, target)
    windows = WindowStatements(kind, word, (kernel, strides, dilations), along, source.load)
    lines = (
        windows.words(lanes(compute.output.dtype.name), rows_are_whole(x, out))
        if is_narrow
        else windows.elements()
    )
    own = (*sizes, *out, results if is_narrow else threads, *begins, *margins, *limits)
    ns = GROUP * _COLUMN_NS * reaches[along] * kernel[other]
    step = ThreadStep(
        threads, [*source.before, *lines], _NAMES, own, source.inputs, compute.output.name,
        divisors=WINDOW_DIVISORS if is_narrow else (), functions=source.functions, ns=ns,
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
