"""Statements of windows over planes: a thread computes four neighbours, and loads what they share once.

Where several results are in a 32-bit word, these are four of the output's elements in order, so that a thread
stores whole words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from engine.backends.gl.glsl import float_literal
from engine.backends.gpu.division import divide
from engine.backends.windows import Windows2D
from engine.kernels.value import Value

EACH = 4
"""Results of a thread."""

MOST_REACHED = 32
"""Elements of a row that the windows of a thread meet: all are written out."""

WINDOW_NAMES = ("height", "width", "rows", "columns", "total", "top", "left")
"""Arguments that the statements read: sizes of the input and the output, threads or results, pads."""

WINDOW_DIVISORS = ("rows", "columns")
"""Those of them by which the statements for whole words divide."""

LOWEST = {"float32": float_literal(-inf), "int32": "(-2147483647 - 1)"}
"""What a maximum starts with, by type."""

# Names of the two axes: of the input, of the output, of the position, and of what is beside the input.
_SIZES, _COUNTS, _PLACES = ("height", "width"), ("rows", "columns"), ("row", "column")
_PADS, _MARGINS, _ENDS = ("top", "left"), ("margin_top", "margin_left"), ("end_h", "end_w")
_LARGER = {"float32": "k_max", "int32": "max"}


def rows_are_whole(x: Value, out: Sequence[int]) -> bool:
    """Whether rows of results are whole numbers of threads for every input shape."""
    return x.is_static(x.rank - 1) and out[-1] % EACH == 0


def reach(win: Windows2D, axis: int) -> int:
    """How many elements along an axis the windows of a thread meet."""
    return (EACH - 1) * win.strides[axis] + (win.kernel[axis] - 1) * win.dilations[axis] + 1


@dataclass(frozen=True)
class WindowWeights:
    """Weights of windows.

    Attributes:
        before: Statements for a plane of results.
        plane: The plane that windows read, as a formula of `plane`.
        row: Statements for row `k` of a window.
        taps: The weight of each tap of that row.
        known: Indices of the result, along the first axes, that the epilogue takes.
    """

    before: Sequence[str]
    plane: str
    row: Sequence[str]
    taps: Sequence[str]
    known: Sequence[str]


@dataclass(frozen=True)
class WindowStatements:
    """Statements for windows of a kernel, strides and dilations; neighbours are `along` an axis.

    Attributes:
        kind: "max", "average", or "product" for sums of products with weights.
        word: Type of the elements, "float32" or "int32".
        geometry: Kernel, strides and dilations.
        along: Axis of a thread's results.
        load: Prints a load of the element at a position.
        weights: A product's weights, along axis 1.
    """

    kind: str
    word: str
    geometry: Sequence[tuple[int, int]]
    along: int
    load: Callable[[str], str]
    weights: WindowWeights | None = None

    def elements(self) -> list[str]:
        """A thread computes neighbours, and stores each."""
        along = self.along
        quads = f"(({_COUNTS[along]} + {EACH - 1}) / {EACH})"
        down, across = (quads, "columns") if along == 0 else ("rows", quads)
        to, place = ("columns", "1")[along], _PLACES[along]
        return [
            "if (t >= total) return;",
            f"int across = max({across}, 1), down = max({down}, 1), line = t / across, plane = line / down;",
            "int column = t - line * across, row = line - plane * down;",
            f"{place} *= {EACH};",
            *self._before(),
            *self._results(),
            "int to = (plane * rows + row) * columns + column;",
            *(
                f"if ({place} + {j} < {_COUNTS[along]}) {self._finish(f'to + {j} * {to}', j)};"
                for j in range(EACH)
            ),
        ]

    def words(self, count: int, rows_are_whole: bool) -> list[str]:
        """A thread computes elements that follow each other, and stores words of `count`.

        rows_are_whole: whether no thread's results are in two rows, for every input shape.
        """
        words, bits = EACH // count, 32 // count
        lines = [
            f"int first_result = t * {EACH};",
            "if (first_result >= total) return;",
            *(f"uint word{k} = 0u;" for k in range(words)),
            # What is beyond the end of a row comes in another iteration.
            # Software renderers take twice the time in a loop that threads leave one by one.
            "{ int done = 0;"
            if rows_are_whole
            else f"for (int done = 0; done < {EACH} && first_result + done < total;) {{",
            f"    int to = first_result + done, line = {divide('to', 'columns')};",
            f"    int plane = {divide('line', 'rows')};",
            "    int column = to - line * columns, row = line - plane * rows;",
            *(f"    {line}" for line in (*self._before(), *self._results())),
            f"    int fitting = min(min({EACH} - done, columns - column), total - to);",
        ]
        # Without branches, drivers load once what all results are finished with.
        lines += [f"    uint found{j} = {self._finish(f'min(to + {j}, total - 1)', j)};" for j in range(EACH)]
        for j in range(EACH):
            place = f"done + {j}"
            for k in range(words):
                fits = f"{j} < fitting" + (f" && ({place}) / {count} == {k}" if words > 1 else "")
                shift = f"(({place}) & {count - 1}) * {bits}"
                lines.append(f"    word{k} |= {fits} ? found{j} << ({shift}) : 0u;")
        to = ("t", f"t * {words} + ")[words > 1]
        return [
            *lines,
            *([] if rows_are_whole else ["    done += fitting;"]),
            "}",
            *(
                f"if (first_result + {k * count} < total) o[{to}{k if words > 1 else ''}] = word{k};"
                for k in range(words)
            ),
        ]

    def _before(self) -> Sequence[str]:
        return () if self.weights is None else self.weights.before

    def _finish(self, position: str, result: int) -> str:
        known = () if self.weights is None else self.weights.known
        return f"finish({', '.join((position, *known, f'a{result}'))})"

    def _results(self) -> list[str]:
        """The results of the windows at row, column and those beside it, as a0...

        Expects plane, row and column.
        """
        each, along, other = range(EACH), self.along, 1 - self.along
        (kernel, step, dilation), (others, stride, apart) = (
            [pair[axis] for pair in self.geometry] for axis in (along, other)
        )
        next_to, size = ("width", "1")[along], _SIZES[along]
        start = LOWEST[self.word] if self.kind == "max" else "0.0"
        lines = [
            f"int first = {_PLACES[other]} * {stride} - {_PADS[other]};",
            f"int begin = {_PLACES[along]} * {step} - {_PADS[along]};",
            *(f"float a{j} = {start};" for j in each),
            *(["int counted = 0;"] if self.kind == "average" else []),
            f"for (int k = 0; k < {others}; ++k) {{",
            f"    int at = first + k * {apart};",
        ]
        if self.kind == "average":
            lines.append(f"    counted += at >= -{_MARGINS[other]} && at < {_ENDS[other]} ? 1 : 0;")
        plane, row, there = "plane", "at", ""
        if self.weights is None:
            lines.append(f"    if (at < 0 || at >= {_SIZES[other]}) continue;")
        else:
            # Software renderers run branches by masks, which cost more than products with nothing.
            plane, row, there = self.weights.plane, f"clamp(at, 0, {_SIZES[other]} - 1)", "there && "
            lines += [f"    {line}" for line in self.weights.row]
            lines.append(f"    bool there = at >= 0 && at < {_SIZES[other]};")
        lines.append(f"    int from = {plane} * height * width + {row}{' * width' if other == 0 else ''};")
        for offset in range((EACH - 1) * step + (kernel - 1) * dilation + 1):
            taps = [offset - j * step for j in each]
            hit = [j for j in each if taps[j] % dilation == 0 and 0 <= taps[j] // dilation < kernel]
            if not hit:
                continue
            name, at = f"v{offset}", f"begin + {offset}"
            value = self.load(f"from + clamp({at}, 0, {size} - 1) * {next_to}")
            lines.append(f"    float {name} = {there}{at} >= 0 && {at} < {size} ? {value} : {start};")
            for j in hit:
                if self.kind == "max":
                    lines.append(f"    a{j} = {_LARGER[self.word]}(a{j}, {name});")
                elif self.weights is None:
                    lines.append(f"    a{j} += {name};")
                else:
                    lines.append(f"    a{j} += {self.weights.taps[taps[j] // dilation]} * {name};")
        lines.append("}")
        if self.kind == "average":
            for j in each:
                places = [f"begin + {j * step + k * dilation}" for k in range(kernel)]
                inside = " + ".join(f"int({w} >= -{_MARGINS[along]} && {w} < {_ENDS[along]})" for w in places)
                lines.append(f"a{j} /= float(counted * ({inside}));")
        return lines
