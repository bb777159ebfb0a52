# mypy: allow-untyped-defs, allow-incomplete-defs
"""Tiles of matrix products with strides between left rows and right columns, and transposed blocks.

A tile's sums stay in registers; its rows' addresses are written as few pointers and small multiples of one
step, which processors add for nothing.
"""

from llvmlite import ir

from engine.backends.cpu.library.instruction import instruction
from engine.backends.cpu.library.lane import Lane
from engine.backends.cpu.library.vectors import (
    _SINGLE,
    _WORD,
    _counted_loop,
    _loop,
    _opaque,
    _processor_call,
    _spread,
    _vector_at,
    _word,
    prefetch_line,
)

# Rows p, p + step and p + 2 * step share a pointer.
_ROWS_OF_POINTER = 3
_UNROLL = 4
_LINE = 64


def _walk(builder, count, starts, b_row, sums, body, ahead, size=4):
    """`_counted_loop` over single columns of the left side, in pointers that LLVM leaves as they are.

    A column is `size` bytes wide. Each iteration prefetches a cache line from `ahead` on, if that is given.
    """
    first_sum = 2 + len(starts)

    def turn(values):
        left, *places, line = values[:first_sum]
        if ahead is not None:
            prefetch_line(builder, line)
        following = body(places, values[first_sum:])
        step = _opaque(builder, _word(size))
        moved = [*(builder.add(place, step) for place in places[:-1]), builder.add(places[-1], b_row)]
        next_line = builder.add(line, _word(_LINE))
        return [builder.sub(left, _word(1), flags=("nsw",)), *moved, next_line, *following]

    firsts = [count, *starts, _word(0) if ahead is None else ahead, *sums]
    found = _loop(builder, lambda values: builder.icmp_signed(">", values[0], _word(0)), firsts, turn)
    return found[1 : first_sum - 1], found[first_sum:]


_ELEMENTS = {"float32": (_SINGLE, 4), "float64": (ir.DoubleType(), 8), "int64": (_WORD, 8)}
_BYTE, _HALFWORD, _NUMBER = ir.IntType(8), ir.IntType(16), ir.IntType(32)


def _multiplied(builder, form, left, right, total):
    """total + left * right, lane by lane, for vectors of words of a form (see `make_product_tile`)."""
    kind = total.type
    if form in ("float32", "float64"):
        return Lane(builder, left).times_plus(Lane(builder, right), Lane(builder, total)).value
    if form in ("int32", "int64"):
        return builder.add(total, builder.mul(left, right))
    if form in ("bytes", "bytes_signed"):
        wide = ir.VectorType(_BYTE, 4 * kind.count)
        pair = [builder.bitcast(x, wide) for x in ((left, right) if form == "bytes" else (right, left))]
        name = f"llvm.x86.avx512.vpdpbusd.{32 * kind.count}"
        return _processor_call(builder, name, kind, [kind, wide, wide], [total, *pair])
    if form == "pairs_x86":
        wide = ir.VectorType(_HALFWORD, 2 * kind.count)
        pair = [builder.bitcast(x, wide) for x in (left, right)]
        name = {16: "avx512.pmaddw.d.512", 8: "avx2.pmadd.wd", 4: "sse2.pmadd.wd"}[kind.count]
        found = _processor_call(builder, f"llvm.x86.{name}", kind, [wide, wide], pair)
        return builder.add(total, found)
    assert form == "pairs"
    bits = ir.Constant(kind, [16] * kind.count)
    for halves in ([builder.shl(x, bits) for x in (left, right)], [left, right]):
        first, second = (builder.ashr(x, bits) for x in halves)
        total = builder.add(total, builder.mul(first, second))
    return total


def make_product_tile(rows, vectors, lanes, form="float32"):
    """A tile of `rows` x (`vectors` * `lanes`) sums of products.

    product_tile(a, a_row, b, b_row, k, c, ahead): row i of c, of one vector row each, is the sum over j < k
    of a[i * a_row + 4 j] times the vector row at b + j * b_row. Addresses and steps are bytes. Tall tiles,
    which compute for longer than they read, ask for the k cache lines from `ahead` on, for columns to come.

    form: what a word is, of 4 bytes unless it is "float64" or "int64": "float32" or "int32", an element;
    "pairs" or "pairs_x86", two int16s; "bytes", four uint8s on the left and int8s on the right, and
    "bytes_signed" the other way round. Products of several elements add up in an int32.
    """
    element, word = _ELEMENTS.get(form, (_NUMBER, 4))
    kind = ir.VectorType(element, lanes)
    size = rows * vectors
    # An addition takes as long as eight others need to start; tall tiles have no registers for more turns.
    sets = max(1, min(_UNROLL, 12 // size))
    unroll = _UNROLL if size <= 8 else 1
    is_float = form in ("float32", "float64")

    @instruction()
    def product_tile(builder, a, a_row, b, b_row, k, c, ahead):
        a_row = _opaque(builder, a_row)
        double = _opaque(builder, builder.shl(a_row, _word(1)))
        multiples = [None, a_row, double]

        def add_products(a_places, b_place, turn, totals):
            right = []
            for v in range(vectors):
                pointer = _vector_at(builder, b_place, _word(word * lanes * v), kind)
                right.append(builder.load(pointer, align=4))
            sums = []
            for r in range(rows):
                place = a_places[r // _ROWS_OF_POINTER]
                step = multiples[r % _ROWS_OF_POINTER]
                place = place if step is None else builder.add(place, step)
                pointer = _vector_at(builder, place, _word(word * turn), element)
                left = _spread(builder, builder.load(pointer, align=4), lanes)
                for v in range(vectors):
                    sums.append(_multiplied(builder, form, left, right[v], totals[r * vectors + v]))
            return sums

        def turns(count):
            def body(places, totals):
                *a_places, b_place = places
                totals = list(totals)
                for u in range(count):
                    first = u % sets * size
                    totals[first : first + size] = add_products(
                        a_places, b_place, u, totals[first : first + size]
                    )
                    b_place = builder.add(b_place, b_row)
                return totals

            return body

        starts = [a]
        triple = builder.add(double, a_row)
        while len(starts) * _ROWS_OF_POINTER < rows:
            starts.append(_opaque(builder, builder.add(starts[-1], triple)))
        zeros = [ir.Constant(kind, [0.0 if is_float else 0] * lanes)] * (size * sets)
        places, totals = [*starts, b], zeros
        if unroll > 1:
            whole = builder.sdiv(k, _word(unroll))
            steps = [*[_word(word * unroll)] * len(starts), builder.mul(b_row, _word(unroll))]
            places, totals = _counted_loop(builder, whole, places, steps, totals, turns(unroll))
            # What is left of the depth.
            k = builder.srem(k, _word(unroll))
        lines = None if unroll > 1 else ahead
        _, firsts = _walk(builder, k, places, b_row, totals[:size], turns(1), lines, word)
        add = builder.fadd if is_float else builder.add
        for i, total in enumerate(firsts):
            for s in range(1, sets):
                total = add(total, totals[s * size + i])
            builder.store(total, _vector_at(builder, c, _word(word * lanes * i), kind), align=4)

    return product_tile


def make_dot_tile(rows, columns, lanes, width):
    """A tile of few columns: dot products of rows of both sides, whose k is whole vectors.

    dot_tile(a, a_row, b, b_row, k, c, ahead): as product_tile, but column j of the right side is the row at
    b + 4 j k, and a row of c has room for `width` sums; b_row and ahead are ignored.
    """
    kind = ir.VectorType(_SINGLE, lanes)
    numbers = ir.VectorType(ir.IntType(32), lanes)

    @instruction()
    def dot_tile(builder, a, a_row, b, b_row, k, c, ahead):
        def body(places, totals):
            left_place, right_place = places
            rights, sums = [], []
            for j in range(columns):
                place = builder.add(right_place, builder.mul(k, _word(4 * j)))
                rights.append(
                    Lane(builder, builder.load(_vector_at(builder, place, _word(0), kind), align=4))
                )
            for r in range(rows):
                place = builder.add(left_place, builder.mul(a_row, _word(r)))
                left = Lane(builder, builder.load(_vector_at(builder, place, _word(0), kind), align=4))
                for j, right in enumerate(rights):
                    sums.append(left.times_plus(right, Lane(builder, totals[r * columns + j])).value)
            return sums

        zeros = [ir.Constant(kind, [0.0] * lanes)] * (rows * columns)
        steps = [_word(4 * lanes)] * 2
        _, totals = _counted_loop(builder, builder.sdiv(k, _word(lanes)), [a, b], steps, zeros, body)
        for position, total in enumerate(totals):
            half = lanes
            while half > 1:
                half //= 2
                mask = ir.Constant(numbers, [(i + half) % lanes for i in range(lanes)])
                total = builder.fadd(total, builder.shuffle_vector(total, total, mask))
            one = builder.extract_element(total, ir.Constant(ir.IntType(32), 0))
            offset = position // columns * width + position % columns
            builder.store(one, _vector_at(builder, c, _word(4 * offset), _SINGLE), align=4)

    return dot_tile


def make_transpose_block(lanes):
    """transpose_block(target, target_row, source, source_row): a block of `lanes` rows of as many numbers.

    Row i of the target is column i of the source. Addresses and steps are bytes.
    """
    kind = ir.VectorType(_SINGLE, lanes)
    numbers = ir.VectorType(ir.IntType(32), lanes)

    @instruction()
    def transpose_block(builder, target, target_row, source, source_row):
        found = []
        for r in range(lanes):
            place = builder.add(source, builder.mul(source_row, _word(r)))
            found.append(builder.load(_vector_at(builder, place, _word(0), kind), align=4))
        low = [i // 2 + lanes * (i % 2) for i in range(lanes)]
        masks = [ir.Constant(numbers, [i + half for i in low]) for half in (0, lanes // 2)]
        # Interleaving rows r and r + lanes/2 log2(lanes) times moves each number to its place.
        for _ in range(lanes.bit_length() - 1):
            pairs = zip(found[: lanes // 2], found[lanes // 2 :], strict=True)
            found = [builder.shuffle_vector(a, b, mask) for a, b in pairs for mask in masks]
        for r, row in enumerate(found):
            place = builder.add(target, builder.mul(target_row, _word(r)))
            builder.store(row, _vector_at(builder, place, _word(0), kind), align=4)

    return transpose_block
