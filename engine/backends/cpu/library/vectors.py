# mypy: allow-untyped-defs, allow-incomplete-defs
"""Explicit vector code: loops over vectors, copies of runs of elements, and windows over runs.

LLVM keeps sums in registers only if the code names the registers; its own vectoriser
would not find this form.
"""

from llvmlite import ir
from numba import types

from engine.backends.cpu.library.instruction import instruction
from engine.backends.cpu.library.lane import Lane

_WORD = ir.IntType(64)
_SINGLE = ir.FloatType()


def _word(number):
    return ir.Constant(_WORD, number)


def _vector_at(builder, address, offset, kind):
    return builder.inttoptr(builder.add(address, offset), kind.as_pointer())


def _spread(builder, scalar, lanes):
    """One number in every lane."""
    kind = ir.VectorType(scalar.type, lanes)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), mask)


def _opaque(builder, number):
    """The same number, of which LLVM knows nothing: it would write multiples of a step as a chain of sums,
    and keep a pointer for each.
    """
    kind = ir.FunctionType(_WORD, [_WORD])
    return builder.call(ir.InlineAsm(kind, "", "=r,0"), [number])


def _processor_call(builder, name, result, kinds, args):
    """A processor's own instruction, by LLVM's name."""
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, kinds), name)
    return builder.call(function, args)


def _loop(builder, goes_on, firsts, body):
    """A loop over values, which are `firsts` at first, and in each turn become what `body` makes of them.

    It ends when `goes_on` gives 0 for them, and returns those.
    """
    before = builder.block
    head, inside, after = (builder.append_basic_block(f"loop_{name}") for name in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    values = [builder.phi(first.type) for first in firsts]
    builder.cbranch(goes_on(values), inside, after)
    builder.position_at_end(inside)
    following = body(values)
    end = builder.block
    builder.branch(head)
    for value, first, later in zip(values, firsts, following, strict=True):
        value.add_incoming(first, before)
        value.add_incoming(later, end)
    builder.position_at_end(after)
    return values


def _counted_loop(builder, count, starts, steps, sums, body):
    """A loop of `count` turns. `starts` advance by `steps` each turn; `body` gives the sums' new values."""
    first_sum = 1 + len(starts)

    def turn(values):
        places = values[1:first_sum]
        following = body(places, values[first_sum:])
        moved = [builder.add(place, step) for place, step in zip(places, steps, strict=True)]
        return [builder.add(values[0], _word(1), flags=("nsw",)), *moved, *following]

    found = _loop(
        builder, lambda values: builder.icmp_signed("<", values[0], count), [_word(0), *starts, *sums], turn
    )
    return found[1:first_sum], found[first_sum:]


def make_copy_run(vectors, lanes):
    """copy_run(target, source): one vector row of float32s, which need not be aligned."""
    kind = ir.VectorType(_SINGLE, lanes)

    @instruction()
    def copy_run(builder, target, source):
        offsets = [_word(4 * lanes * v) for v in range(vectors)]
        loaded = [builder.load(_vector_at(builder, source, o, kind), align=4) for o in offsets]
        for value, offset in zip(loaded, offsets, strict=True):
            builder.store(value, _vector_at(builder, target, offset, kind), align=4)

    return copy_run


def make_fill_run(lanes):
    """fill_run(target, value): `lanes` times the same float32, which need not be aligned."""
    kind = ir.VectorType(_SINGLE, lanes)

    @instruction(types.int64, types.float32)
    def fill_run(builder, target, value):
        pointer = _vector_at(builder, target, _word(0), kind)
        builder.store(_spread(builder, value, lanes), pointer, align=4)

    return fill_run


def prefetch_line(builder, address, nearness=3):
    """Ask for the cache line at an address, which need not be valid: 2 for the second-level cache."""
    pointer = builder.inttoptr(address, ir.IntType(8).as_pointer())
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
    function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
    builder.call(function, [pointer, *(ir.Constant(number, n) for n in (0, nearness, 1))])


@instruction()
def prefetch(builder, address):
    """Ask for the cache line at an address, which need not be valid."""
    prefetch_line(builder, address)


def make_split_pairs(lanes):
    """split_pairs(evens, odds, source): `lanes` pairs of neighbours, first and second ones apart."""
    kind = ir.VectorType(_SINGLE, lanes)
    mask = ir.VectorType(ir.IntType(32), lanes)

    @instruction()
    def split_pairs(builder, evens, odds, source):
        halves = [_vector_at(builder, source, _word(4 * lanes * half), kind) for half in (0, 1)]
        low, high = (builder.load(pointer, align=4) for pointer in halves)
        for target, first in ((evens, 0), (odds, 1)):
            chosen = builder.shuffle_vector(low, high, ir.Constant(mask, list(range(first, 2 * lanes, 2))))
            builder.store(chosen, _vector_at(builder, target, _word(0), kind), align=4)

    return split_pairs


def make_double_run(lanes, size):
    """double_run(target, source): `lanes` elements of `size` bytes, each of them twice."""
    kind = ir.VectorType(ir.IntType(8 * size), lanes)
    mask = ir.VectorType(ir.IntType(32), lanes)

    @instruction()
    def double_run(builder, target, source):
        run = builder.load(_vector_at(builder, source, _word(0), kind), align=size)
        for half in (0, 1):
            chosen = ir.Constant(mask, [(half * lanes + k) // 2 for k in range(lanes)])
            pairs = builder.shuffle_vector(run, ir.Constant(kind, ir.Undefined), chosen)
            builder.store(pairs, _vector_at(builder, target, _word(half * lanes * size), kind), align=size)

    return double_run


def _larger(total, run):
    """The larger of two, NaN included."""
    return total.where(total.differs(total), total.where(total > run, run))


def find_largest(builder, count, lanes, run, elements_of, store):
    """The largest of several vectors each, NaN included: one instruction each, which forgets a NaN, and the
    exact steps where any element was one.

    `run(body, first)` is a loop whose sums begin with `first`, `elements_of(now)` gives `count` vectors of a
    turn, and `store` takes the results.
    """
    first = [ir.Constant(ir.VectorType(_SINGLE, lanes), [float("-inf")] * lanes)] * count
    flags = ir.VectorType(ir.IntType(1), lanes)

    def take_larger(now, totals):
        pairs = zip(elements_of(now), totals, strict=True)
        return [_larger(Lane(builder, total), element).value for element, total in pairs]

    def take_larger_or_flag(now, totals):
        *totals, flag = totals
        elements, joined = elements_of(now), []
        for element, total in zip(elements, totals, strict=True):
            total = Lane(builder, total)
            joined.append(total.where(total > element, element).value)
        # Two elements at a time are tested.
        for k in range(0, len(elements), 2):
            pair = elements[k].value, elements[min(k + 1, len(elements) - 1)].value
            flag = builder.or_(flag, builder.fcmp_unordered("uno", *pair))
        return [*joined, flag]

    *totals, flag = run(take_larger_or_flag, [*first, ir.Constant(flags, [0] * lanes)])
    store(totals)
    bits = builder.bitcast(flag, ir.IntType(lanes))
    with builder.if_then(builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)), likely=False):
        store(run(take_larger, first))


def make_pool_tile(vectors, lanes, largest):
    """pool_tile(source, offsets, taps, target): a row of `vectors` * `lanes` maxima or sums of runs.

    Tap t takes the run that starts `offsets[t]` bytes behind `source`.
    """
    kind = ir.VectorType(_SINGLE, lanes)

    @instruction()
    def pool_tile(builder, source, offsets, taps, target):
        def elements_of(now):
            start = builder.add(source, builder.load(builder.inttoptr(now[0], _WORD.as_pointer()), align=8))
            pointers = [_vector_at(builder, start, _word(4 * lanes * v), kind) for v in range(vectors)]
            return [Lane(builder, builder.load(pointer, align=4)) for pointer in pointers]

        def add(now, totals):
            pairs = zip(elements_of(now), totals, strict=True)
            return [(Lane(builder, total) + element).value for element, total in pairs]

        def run(body, first):
            return _counted_loop(builder, taps, [offsets], [_word(8)], first, body)[1]

        def store(totals):
            for v, total in enumerate(totals):
                builder.store(total, _vector_at(builder, target, _word(4 * lanes * v), kind), align=4)

        if largest:
            find_largest(builder, vectors, lanes, run, elements_of, store)
        else:
            store(run(add, [ir.Constant(kind, [0.0] * lanes)] * vectors))

    return pool_tile


def make_tap_tile(vectors, lanes):
    """tap_tile(source, offsets, weights, taps, target): a row of `vectors` * `lanes` sums of weighted runs.

    Tap t adds weights[t] times the run that starts `offsets[t]` bytes behind `source`.
    """
    kind = ir.VectorType(_SINGLE, lanes)

    @instruction()
    def tap_tile(builder, source, offsets, weights, taps, target):
        def body(places, totals):
            offset = builder.load(builder.inttoptr(places[0], _WORD.as_pointer()), align=8)
            weight = builder.load(builder.inttoptr(places[1], _SINGLE.as_pointer()), align=4)
            factor = Lane(builder, _spread(builder, weight, lanes))
            start = builder.add(source, offset)
            sums = []
            for v, total in enumerate(totals):
                run = builder.load(_vector_at(builder, start, _word(4 * lanes * v), kind), align=4)
                sums.append(factor.times_plus(Lane(builder, run), Lane(builder, total)).value)
            return sums

        zeros = [ir.Constant(kind, [0.0] * lanes)] * vectors
        _, totals = _counted_loop(builder, taps, [offsets, weights], [_word(8), _word(4)], zeros, body)
        for v, total in enumerate(totals):
            builder.store(total, _vector_at(builder, target, _word(4 * lanes * v), kind), align=4)

    return tap_tile


def make_channel_tile(pixels, channels, lanes, signed):
    """channel_tile(source, step, offsets, weights, taps, firsts, target): sums of weighted bytes, as int32s.

    `pixels` of so many channels are `step` bytes apart. Tap t adds, channel by channel, weights[t] times the
    bytes `offsets[t]` behind a pixel's; sums begin with the numbers at `firsts`.
    """
    kind = ir.VectorType(ir.IntType(32), lanes)
    small = ir.VectorType(ir.IntType(8), lanes)
    parts = range(channels // lanes)

    @instruction()
    def channel_tile(builder, source, step, offsets, weights, taps, firsts, target):
        sources = [source]
        for _ in range(pixels - 1):
            sources.append(builder.add(sources[-1], step))
        begin = [
            builder.load(_vector_at(builder, firsts, _word(4 * lanes * p), kind), align=4) for p in parts
        ]

        def body(places, totals):
            offset = builder.load(builder.inttoptr(places[0], _WORD.as_pointer()), align=8)
            sums, spots = [], [_vector_at(builder, places[1], _word(4 * lanes * p), kind) for p in parts]
            factors = [builder.load(spot, align=4) for spot in spots]
            for pixel, start in enumerate(sources):
                at = builder.add(start, offset)
                for p in parts:
                    run = builder.load(_vector_at(builder, at, _word(lanes * p), small), align=1)
                    wide = (builder.sext if signed else builder.zext)(run, kind)
                    product = builder.mul(wide, factors[p])
                    sums.append(builder.add(totals[pixel * len(parts) + p], product))
            return sums

        steps = [_word(8), _word(4 * channels)]
        _, totals = _counted_loop(builder, taps, [offsets, weights], steps, begin * pixels, body)
        for k, total in enumerate(totals):
            builder.store(total, _vector_at(builder, target, _word(4 * lanes * k), kind), align=4)

    return channel_tile
