# mypy: allow-untyped-defs, allow-incomplete-defs
"""Register tiles of matrix products, with strides for both operands.

A tile's sums stay in registers; its rows' addresses are written as few pointers and small multiples of one
step, which processors add for nothing.
"""

from functools import partial

from llvmlite import ir

from engine.backends.cpu.library.llvm_intrinsic import llvm_intrinsic
from engine.backends.cpu.library.vectors import (
    _SINGLE,
    _WORD,
    _advanced,
    _counted_loop,
    _folded,
    _loop,
    _opaque,
    add_products,
    prefetch_line,
)

# Rows p, p + step and p + 2 * step share a pointer.
_ROWS_OF_POINTER = 3
_UNROLL = 4


def _walk(count, starts, b_row, sums, body, size=4, ahead=None, ahead_row=0):
    """`_counted_loop` over columns of the left side, in pointers that LLVM leaves as they are.

    An iteration's columns are `size` bytes wide. Each prefetches the next of the cache lines at `ahead`, if
    that is given, which are `ahead_row` apart.
    """
    first_sum = 2 + len(starts)

    def iterate(values):
        left, *places, line = values[:first_sum]
        if ahead is not None:
            prefetch_line(line)
        following = body(places, values[first_sum:])
        step = _opaque(count.constant(size))
        moved = [*(place + step for place in places[:-1]), places[-1] + b_row, line + ahead_row]
        return [_advanced(left, -1), *moved, *following]

    firsts = [count, *starts, count.constant(0) if ahead is None else ahead, *sums]
    found = _loop(lambda values: values[0] > 0, firsts, iterate)
    return found[1 : first_sum - 1], found[first_sum:]


_ELEMENTS = {"float32": (_SINGLE, 4), "float64": (ir.DoubleType(), 8), "int64": (_WORD, 8)}
_BYTE, _HALFWORD, _NUMBER = ir.IntType(8), ir.IntType(16), ir.IntType(32)


def _multiplied(form, left, right, total):
    """total + left * right, lane by lane, for vectors of words of a form (see `make_product_tile`)."""
    kind = total.type
    if form in ("float32", "float64"):
        return left.times_plus(right, total)
    if form in ("int32", "int64"):
        return total + left * right
    if form in ("bytes", "bytes_signed"):
        wide = ir.VectorType(_BYTE, 4 * kind.count)
        pair = [x.seen_as(wide) for x in ((left, right) if form == "bytes" else (right, left))]
        return total.named(f"llvm.x86.avx512.vpdpbusd.{32 * kind.count}", kind, *pair)
    if form == "pairs_x86":
        wide = ir.VectorType(_HALFWORD, 2 * kind.count)
        name = {16: "avx512.pmaddw.d.512", 8: "avx2.pmadd.wd", 4: "sse2.pmadd.wd"}[kind.count]
        return total + left.seen_as(wide).named(f"llvm.x86.{name}", kind, right.seen_as(wide))
    assert form == "pairs"
    for halves in ((left << 16, right << 16), (left, right)):
        first, second = (half >> 16 for half in halves)
        total = total + first * second
    return total


def make_product_tile(rows, vectors, lanes, form="float32", has_steps=False):
    """A tile of `rows` x (`vectors` * `lanes`) sums of products.

    product_tile(a, a_row, b, b_row, k, c, ahead, ahead_row, lines): row i of c, of one vector row each, is
    the sum over j < k of a[i * a_row + 4 j] times the vector row at b + j * b_row. Addresses and steps are
    bytes. Tall tiles, which compute for longer than they read, prefetch `lines` <= k cache lines for columns
    to come, which are at `ahead` and `ahead_row` apart.

    form: what a word is, of 4 bytes unless it is "float64" or "int64": "float32" or "int32", an element;
    "pairs" or "pairs_x86", two int16s; "bytes", four uint8s on the left and int8s on the right, and
    "bytes_signed" the other way round. Products of several elements add up in an int32. has_steps: whether
    there is an argument c_row behind the others, the bytes from one row of c to the next.
    """
    element, word = _ELEMENTS.get(form, (_NUMBER, 4))
    kind = ir.VectorType(element, lanes)
    size = rows * vectors
    # An addition takes as long as eight others need to start; tall tiles have no registers for more.
    sets = max(1, min(_UNROLL, 12 // size))
    unroll = _UNROLL if size <= 8 else 1

    def products(a, a_row, b, b_row, k, ahead, ahead_row, lines):
        a_row = _opaque(a_row)
        double = _opaque(a_row << 1)
        multiples = [None, a_row, double]

        def add_column(a_places, b_place, u, totals):
            def left(r):
                place, step = a_places[r // _ROWS_OF_POINTER], multiples[r % _ROWS_OF_POINTER]
                place = place if step is None else place + step
                return (place + word * u).read(element).spread(lanes)

            right = b_place.read_row(kind, vectors)
            return add_products(map(left, range(rows)), right, totals, partial(_multiplied, form))

        def unrolled(count):
            def body(places, totals):
                *a_places, b_place = places
                totals = list(totals)
                for u in range(count):
                    own = slice(u % sets * size, (u % sets + 1) * size)
                    totals[own] = add_column(a_places, b_place, u, totals[own])
                    b_place += b_row
                return totals

            return body

        starts = [a]
        triple = double + a_row
        while len(starts) * _ROWS_OF_POINTER < rows:
            starts.append(_opaque(starts[-1] + triple))
        places, totals = [*starts, b], [k.of(kind, 0)] * (size * sets)
        if unroll > 1:
            steps = [*[word * unroll] * len(starts), b_row * unroll]
            places, totals = _counted_loop(k / unroll, places, steps, totals, unrolled(unroll))
            # What is left of the depth.
            _, sums = _walk(k % unroll, places, b_row, totals[:size], unrolled(1), word)
            return [sum(totals[i + size :: size], total) for i, total in enumerate(sums)]
        first = lines + ((k - lines) & 1)
        places, sums = _walk(first, places, b_row, totals, unrolled(1), word, ahead, ahead_row)
        # Two at a time without prefetching: decoding would be slower than multiplying.
        return _walk((k - first) / 2, places, b_row * 2, sums, unrolled(2), 2 * word)[1]

    @llvm_intrinsic()
    def product_tile(a, a_row, b, b_row, k, c, ahead, ahead_row, lines):
        c.write_row(products(a, a_row, b, b_row, k, ahead, ahead_row, lines))

    @llvm_intrinsic()
    def product_tile_of_steps(a, a_row, b, b_row, k, c, ahead, ahead_row, lines, c_row):
        found = products(a, a_row, b, b_row, k, ahead, ahead_row, lines)
        for r in range(rows):
            (c + c_row * r).write_row(found[r * vectors : (r + 1) * vectors])

    return product_tile_of_steps if has_steps else product_tile


def make_offset_tile(rows, vectors, lanes, form="float32"):
    """A tile of `rows` x (`vectors` * `lanes`) sums of products with rows that lie anywhere.

    offset_tile(a, a_row, b, offsets, k, c, c_row): as `make_product_tile` with steps, but the vector row of
    word j is `offsets[j]` bytes behind b, and need not be aligned.
    """
    element, word = _ELEMENTS.get(form, (_NUMBER, 4))
    kind = ir.VectorType(element, lanes)

    @llvm_intrinsic()
    def offset_tile(a, a_row, b, offsets, k, c, c_row):
        a_row = _opaque(a_row)
        double = _opaque(a_row << 1)
        multiples = [None, a_row, double]

        def add_word(u, places, totals):
            *a_places, offset = places
            start = b + offset.word(u)
            right = [(start + word * lanes * v).read(kind, word) for v in range(vectors)]

            def left(r):
                place, step = a_places[r // _ROWS_OF_POINTER], multiples[r % _ROWS_OF_POINTER]
                place = place if step is None else place + step
                return (place + word * u).read(element).spread(lanes)

            return add_products(map(left, range(rows)), right, totals, partial(_multiplied, form))

        def add_two(places, totals):
            return add_word(1, places, add_word(0, places, totals))

        starts = [a]
        triple = double + a_row
        while len(starts) * _ROWS_OF_POINTER < rows:
            starts.append(_opaque(starts[-1] + triple))
        zeros = [k.of(kind, 0)] * (rows * vectors)
        # Decoding one at a time would be slower than multiplying.
        places, sums = _walk(k & 1, [*starts, offsets], 8, zeros, partial(add_word, 0), word)
        _, sums = _walk(k / 2, places, 16, sums, add_two, 2 * word)
        for r in range(rows):
            for v in range(vectors):
                (c + c_row * r + word * lanes * v).write(sums[r * vectors + v], word)

    return offset_tile


def make_dot_tile(rows, columns, lanes, width):
    """A tile of few columns: dot products of rows of both sides, whose k is whole vectors.

    dot_tile(a, a_row, b, b_row, k, c, ahead, ahead_row, lines): as product_tile, but column j of the right
    side is the row at b + 4 j k, and a row of c has room for `width` sums; b_row and what follows c are
    ignored.
    """
    kind = ir.VectorType(_SINGLE, lanes)

    @llvm_intrinsic()
    def dot_tile(a, a_row, b, b_row, k, c, ahead, ahead_row, lines):
        def body(places, totals):
            rights = [(places[1] + k * (4 * j)).read(kind) for j in range(columns)]
            return add_products(((places[0] + a_row * r).read(kind) for r in range(rows)), rights, totals)

        zeros = [k.of(kind, 0)] * (rows * columns)
        _, totals = _counted_loop(k / lanes, [a, b], [4 * lanes] * 2, zeros, body)
        for position, total in enumerate(totals):
            place = c + 4 * (position // columns * width + position % columns)
            place.write(_folded(total, lambda low, high: low + high))

    return dot_tile
