# mypy: allow-untyped-defs, allow-incomplete-defs
"""Epilogues on sums in registers: bias, bounds and residual before the one store.

A recipe is a tree of tuples: ("acc",) is the sum; ("const", number); ("row", k), ("scalar", k) and
("place", k) read operand k at the vector's column, at its start, or where the result goes; ("number", k,
text) is in the word of operand k itself, and not NaN; and ("add", "sub", "mul", "min" or "max", recipe,
recipe).
"""

from llvmlite import ir

from engine.backends.cpu.library.lane import Lane
from engine.backends.cpu.library.vectors import _SINGLE, _WORD, _spread, _vector_at, _word

# Words at the address of a tile's ends: where its first result goes, bytes from pixel to pixel, how many
# columns and pixels are meant, and the operands' addresses or numbers.
_OUT, _STEP, _COLUMNS, _PIXELS, _OPERANDS = range(5)

_NUMBERS = ("const", "number")
"""Leaves that are not NaN."""


class Finish:
    """Turns a tile's sums, (pixels, vectors), into results at the addresses that `ends` names."""

    def __init__(self, builder, recipe, ends, lanes):
        self._builder = builder
        self._recipe = recipe
        self._ends = ends
        self._kind = ir.VectorType(_SINGLE, lanes)
        self._shared = {}

    def word(self, number):
        """A word of the ends, loaded once."""
        return self._once(("word", number), lambda: self._load_word(number))

    def _load_word(self, number):
        place = self._builder.add(self._ends, _word(8 * number))
        return self._builder.load(self._builder.inttoptr(place, _WORD.as_pointer()), align=8)

    def _once(self, key, make):
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def _vector(self, address, offset):
        pointer = _vector_at(self._builder, address, offset, self._kind)
        return Lane(self._builder, self._builder.load(pointer, align=4))

    def _value(self, recipe, total, column, place):
        """The results of one vector; `column` and `place` are its offsets in bytes."""
        kind, *parts = recipe
        if kind == "acc":
            return Lane(self._builder, total)
        if kind == "const":
            return Lane(self._builder, ir.Constant(self._kind, [parts[0]] * self._kind.count))
        if kind == "row":
            address = self.word(_OPERANDS + parts[0])
            return self._once((recipe, column), lambda: self._vector(address, _word(column)))
        if kind == "scalar":
            return self._once(recipe, lambda: self._scalar(self.word(_OPERANDS + parts[0])))
        if kind == "number":
            word = self._builder.add(self._ends, _word(8 * (_OPERANDS + parts[0])))
            return self._once(recipe, lambda: self._scalar(word))
        if kind == "place":
            return self._vector(self.word(_OPERANDS + parts[0]), place)
        if kind in ("min", "max") and parts[0][0] in _NUMBERS:
            parts.reverse()
        a, b = (self._value(part, total, column, place) for part in parts)
        if kind in ("min", "max") and parts[1][0] in _NUMBERS:
            # Bounds that are numbers take one instruction: of a comparison with a NaN it yields the NaN.
            return b.where(b > a if kind == "max" else a > b, a)
        if kind == "max":
            return a.where(a.differs(a), a.where(a > b, b))
        if kind == "min":
            return a.where(a.differs(a), a.where(b > a, b))
        return {"add": a.__add__, "sub": a.__sub__, "mul": a.__mul__}[kind](b)

    def _scalar(self, address):
        number = self._builder.load(_vector_at(self._builder, address, _word(0), _SINGLE), align=4)
        return Lane(self._builder, _spread(self._builder, number, self._kind.count))

    def store(self, totals, vectors):
        """Finish the sums of a tile. Only some of its pixels, the first ones, and columns may be meant."""
        builder, lanes = self._builder, self._kind.count
        rows = len(totals) // vectors
        # Read before the ways part.
        out, last = self.word(_OUT), builder.sub(self.word(_PIXELS), _word(1))
        results, steps = [], _word(0)
        for r in range(rows):
            # Memory after the last pixel must not be read.
            is_there = builder.icmp_signed("<=", _word(r), last)
            pixel = builder.select(is_there, steps, builder.mul(last, self.word(_STEP)))
            for v in range(vectors):
                place = builder.add(pixel, _word(4 * lanes * v))
                total = totals[r * vectors + v]
                result = self._value(self._recipe, total, 4 * lanes * v, place)
                results.append((result.value, place, is_there, v))
            steps = builder.add(steps, self.word(_STEP))
        has_columns = builder.icmp_signed(">=", self.word(_COLUMNS), _word(vectors * lanes))
        has_pixels = builder.icmp_signed(">=", last, _word(rows - 1))
        with builder.if_else(builder.and_(has_columns, has_pixels), likely=True) as (whole, part):
            with whole:
                for result, place, _, _ in results:
                    builder.store(result, _vector_at(builder, out, place, self._kind), align=4)
            with part:
                self._store_part(results, vectors, out)

    def _store_part(self, results, vectors, out):
        builder, lanes = self._builder, self._kind.count
        flags = [self._first(builder.sub(self.word(_COLUMNS), _word(lanes * v))) for v in range(vectors)]
        for result, place, is_there, v in results:
            with builder.if_then(is_there):
                self._store_masked(result, _vector_at(builder, out, place, self._kind), flags[v])

    def _first(self, columns):
        """A flag for each of so many first elements."""
        number = ir.IntType(32)
        count = _spread(self._builder, self._builder.trunc(columns, number), self._kind.count)
        order = ir.Constant(ir.VectorType(number, self._kind.count), list(range(self._kind.count)))
        return self._builder.icmp_signed("<", order, count)

    def _store_masked(self, result, pointer, flags):
        kind = ir.FunctionType(ir.VoidType(), [result.type, pointer.type, ir.IntType(32), flags.type])
        name = f"llvm.masked.store.v{self._kind.count}f32.p0"
        module = self._builder.module
        function = module.globals.get(name) or ir.Function(module, kind, name)
        self._builder.call(function, [result, pointer, ir.Constant(ir.IntType(32), 4), flags])
