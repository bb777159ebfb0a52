# mypy: allow-untyped-defs, allow-incomplete-defs
"""Epilogues in registers: bias, bounds and residual are applied before the store.

A recipe is a tree of tuples: ("acc",) is the sum; ("const", number); ("row", k), ("scalar", k) and
("place", k) read operand k at the vector's column, at its start, or where the result goes; ("number", k,
text) is in the word of operand k itself, and not NaN; and ("add", "sub", "mul", "min" or "max", recipe,
recipe). In ("pooled", recipe), the whole, a result is the largest of `POOLED` in a row.
"""

from llvmlite import ir

from engine.backends.cpu.library.vectors import _SINGLE, first_lanes, write_lanes

# Words at the address of a tile's ends: where its first result goes, bytes from pixel to pixel, how many
# columns and pixels are meant, and the operands' addresses or numbers.
_OUT, _STEP, _COLUMNS, _PIXELS, _OPERANDS = range(5)

POOLED = 4
"""Sums whose largest result is stored where an epilogue pools: a window's, row by row."""

_NUMBERS = ("const", "number")
"""Leaves that are not NaN."""


class EpilogueWriter:
    """Applies the epilogue to a tile's sums, (pixels, vectors), with arguments at the addresses in `ends`.

    Pixels are those of the results: one that pools has several sums.
    """

    def __init__(self, recipe, ends, lanes):
        self._window = POOLED if recipe[0] == "pooled" else 1
        self._recipe = recipe[1] if recipe[0] == "pooled" else recipe
        self._ends = ends
        self._kind = ir.VectorType(_SINGLE, lanes)
        self._shared = {}

    def word(self, number):
        """A word of the ends, loaded once."""
        return self._once(("word", number), lambda: self._ends.word(number))

    def _once(self, key, make):
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def _value(self, recipe, total, column, place):
        """The results of one vector; `column` and `place` are its offsets in bytes."""
        kind, *parts = recipe
        if kind == "acc":
            return total
        if kind == "const":
            return total.constant(parts[0])
        if kind == "row":
            address = self.word(_OPERANDS + parts[0])
            return self._once((recipe, column), lambda: (address + column).read(self._kind))
        if kind == "scalar":
            return self._once(recipe, lambda: self._scalar(self.word(_OPERANDS + parts[0])))
        if kind == "number":
            return self._once(recipe, lambda: self._scalar(self._ends + 8 * (_OPERANDS + parts[0])))
        if kind == "place":
            return (self.word(_OPERANDS + parts[0]) + place).read(self._kind)
        if kind in ("min", "max") and parts[0][0] in _NUMBERS:
            parts.reverse()
        a, b = (self._value(part, total, column, place) for part in parts)
        if kind in ("min", "max") and parts[1][0] in _NUMBERS:
            # Bounds that are numbers take one instruction: of a comparison with a NaN it yields the NaN.
            return b.where(b > a if kind == "max" else a > b, a)
        if kind in ("min", "max"):
            return a.extreme(">" if kind == "max" else "<", b)
        return {"add": a.__add__, "sub": a.__sub__, "mul": a.__mul__}[kind](b)

    def _scalar(self, address):
        return address.read(_SINGLE).spread(self._kind.count)

    def store(self, totals, vectors, offset=0):
        """Store the results of a tile, or of its first pixels and columns, `offset` bytes behind `_OUT`."""
        builder, nbytes = self._ends.builder, 4 * self._kind.count
        rows = len(totals) // vectors // self._window
        # Read before the ways part.
        out, last = self.word(_OUT), self.word(_PIXELS) - 1
        results, steps = [], last.constant(0)
        offset = last.constant(offset)
        for r in range(rows):
            # Memory after the last pixel must not be read.
            is_there = last.constant(r) <= last
            pixel = steps.where(is_there, last * self.word(_STEP))
            for v in range(vectors):
                place = pixel + offset + nbytes * v
                sums = totals[r * self._window * vectors + v :: vectors][: self._window]
                result, *others = [self._value(self._recipe, x, nbytes * v, place) for x in sums]
                for other in others:
                    result = result.extreme(">", other)
                results.append((result, place, is_there, v))
            steps += self.word(_STEP)
        is_whole = (self.word(_COLUMNS) >= vectors * self._kind.count) & (last >= rows - 1)
        with builder.if_else(is_whole.value, likely=True) as (whole, part):
            with whole:
                for result, place, _, _ in results:
                    (out + place).write(result)
            with part:
                columns = [self.word(_COLUMNS) - self._kind.count * v for v in range(vectors)]
                flags = [first_lanes(count, self._kind.count) for count in columns]
                for result, place, is_there, v in results:
                    with builder.if_then(is_there.value):
                        write_lanes(out + place, result, flags[v])
