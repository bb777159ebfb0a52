# mypy: allow-untyped-defs, allow-incomplete-defs
"""Explicit vector code: loops over vectors, copies, transpositions, and sliding windows over runs.

LLVM keeps sums in registers only if the code names the registers; its own vectoriser
would not find this form.
"""

from llvmlite import ir
from numba import types

from engine.backends.cpu.library.llvm_intrinsic import llvm_intrinsic
from engine.backends.cpu.library.llvm_value import LLVMValue

_WORD = ir.IntType(64)
_SINGLE = ir.FloatType()


def _opaque(number):
    """The same number, hidden from LLVM's optimiser.

    Multiples of a step would become a chain of sums with a pointer for each.
    """
    kind = ir.FunctionType(_WORD, [_WORD])
    return number.like(number.builder.call(ir.InlineAsm(kind, "", "=r,0"), [number.value]))


def _advanced(number, step):
    """A loop's number that never overflows, `step` later."""
    return number.like(number.builder.add(number.value, number.constant(step).value, flags=("nsw",)))


def _loop(runs_while_halted, firsts, body):
    """A loop over values, which begin as `firsts`; each iteration makes them what `body` returns for them.

    It ends when `runs_while_halted` gives 0 for them, and returns those.
    """
    builder = firsts[0].builder
    before = builder.block
    head, inside, after = (builder.append_basic_block(f"loop_{name}") for name in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    values = [LLVMValue(builder, builder.phi(first.type)) for first in firsts]
    builder.cbranch(runs_while_halted(values).value, inside, after)
    builder.position_at_end(inside)
    following = body(values)
    end = builder.block
    builder.branch(head)
    for value, first, later in zip(values, firsts, following, strict=True):
        value.value.add_incoming(first.value, before)
        value.value.add_incoming(later.value, end)
    builder.position_at_end(after)
    return values


def _counted_loop(count, starts, steps, sums, body):
    """A loop of `count` iterations. Each advances `starts` by `steps`; `body` gives the new sums."""
    first_sum = 1 + len(starts)

    def iterate(values):
        places = values[1:first_sum]
        following = body(places, values[first_sum:])
        moved = [place + step for place, step in zip(places, steps, strict=True)]
        return [_advanced(values[0], 1), *moved, *following]

    found = _loop(lambda values: values[0] < count, [count.constant(0), *starts, *sums], iterate)
    return found[1:first_sum], found[first_sum:]


def _folded(vector, join):
    """A vector joined to one element: its halves, then theirs and so on."""
    while (lanes := vector.type.count // 2) > 0:
        low, high = (vector.shuffled(vector, range(first, first + lanes)) for first in (0, lanes))
        vector = join(low, high)
    return vector.first()


def add_products(lefts, rights, totals, multiply=LLVMValue.times_plus):
    """Sums, row by row, of which each gets the product of one of the left and one of the right."""
    pairs = ((left, right) for left in lefts for right in rights)
    return [multiply(*pair, total) for pair, total in zip(pairs, totals, strict=True)]


def first_lanes(count, lanes):
    """A flag for each of the first `count` elements of a vector."""
    places = count.to(ir.IntType(32)).spread(lanes)
    return places > places.of(places.type, list(range(lanes)))


def read_lanes(source, flags, others):
    """The float32s of a vector with a flag, of `others` the rest. Reads nothing else."""
    pointer, align = source.like(source.at(others.type)), source.of(ir.IntType(32), 4)
    return pointer.named(f"llvm.masked.load.v{others.type.count}f32.p0", others.type, align, flags, others)


def write_lanes(target, vector, flags):
    """Store the float32s of a vector with a flag."""
    pointer, align = target.like(target.at(vector.type)), target.of(ir.IntType(32), 4)
    name = f"llvm.masked.store.v{vector.type.count}f32.p0"
    vector.named(name, ir.VoidType(), pointer, align, flags)


def make_copy_run(vectors, lanes):
    """copy_run(target, source): one vector row of float32s, which need not be aligned."""
    kind = ir.VectorType(_SINGLE, lanes)

    @llvm_intrinsic()
    def copy_run(target, source):
        target.write_row(source.read_row(kind, vectors))

    return copy_run


def _converted(run, signed, element, zero):
    """Integers less `zero`, as those of another type."""
    return LLVMValue(run.builder, run.value, signed).to(element) - zero.to(element).spread(run.type.count)


def make_convert_run(lanes, bits, signed, wide):
    """convert_run(target, source, zero): `lanes` integers of `bits` bits, as `wide` ones less `zero`."""
    kind, element = ir.VectorType(ir.IntType(bits), lanes), ir.IntType(wide)

    @llvm_intrinsic()
    def convert_run(target, source, zero):
        target.write(_converted(source.read(kind, align=1), signed, element, zero), align=1)

    return convert_run


def make_fill_run(lanes, bits=0):
    """fill_run(target, value): store a float32, or an integer of `bits`, `lanes` times, unaligned."""

    @llvm_intrinsic(types.int64, types.int64 if bits else types.float32)
    def fill_run(target, value):
        element = value.to(ir.IntType(bits)) if bits else value
        target.write(element.spread(lanes), align=1)

    return fill_run


def prefetch_line(address, nearness=3):
    """Prefetch the cache line at an address, which may be invalid; 2 is the second-level cache."""
    pointer, number = address.at(ir.IntType(8)), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
    function = address.builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
    address.builder.call(function, [pointer, *(ir.Constant(number, n) for n in (0, nearness, 1))])


def make_split_pairs(lanes):
    """split_pairs(evens, odds, source, zero): deinterleave `lanes` pairs of float32s; `zero` is ignored.

    Where both go to one place, those are the evens.
    """
    kind = ir.VectorType(_SINGLE, lanes)

    @llvm_intrinsic()
    def split_pairs(evens, odds, source, zero):
        low, high = source.read_row(kind, 2)
        for target, first in ((odds, 1), (evens, 0)):
            target.write(low.shuffled(high, range(first, 2 * lanes, 2)))

    return split_pairs


def make_convert_pairs(lanes, bits, signed, wide):
    """convert_pairs(evens, odds, source, zero): `split_pairs` of integers, each converted as a run."""
    kind, element = ir.VectorType(ir.IntType(bits), 2 * lanes), ir.IntType(wide)

    @llvm_intrinsic()
    def convert_pairs(evens, odds, source, zero):
        run = source.read(kind, align=1)
        for target, first in ((odds, 1), (evens, 0)):
            part = run.shuffled(None, range(first, 2 * lanes, 2))
            target.write(_converted(part, signed, element, zero), align=1)

    return convert_pairs


def make_double_run(lanes, size):
    """double_run(target, source): `lanes` elements of `size` bytes, each of them twice."""
    kind = ir.VectorType(ir.IntType(8 * size), lanes)

    @llvm_intrinsic()
    def double_run(target, source):
        run = source.read(kind, align=size)
        for half in (0, lanes):
            pairs = run.shuffled(None, [(half + k) // 2 for k in range(lanes)])
            (target + half * size).write(pairs, align=size)

    return double_run


def make_transpose_tile(lanes, size):
    """transpose_tile(source, step, target, target_step): `lanes` rows of as many elements, as columns.

    Elements have `size` bytes. Rows are `step` and `target_step` bytes apart.
    """
    kind = ir.VectorType(ir.FloatType() if size == 4 else ir.IntType(8 * size), lanes)

    @llvm_intrinsic()
    def transpose_tile(source, step, target, target_step):
        rows = []
        for _ in range(lanes):
            rows.append(source.read(kind, align=size))
            source += step
        # Exchanging the off-diagonal halves, then the quarters and so on, transposes down to squares as wide
        # as 16 bytes. Those are transposed by interleaving rows, with one instruction each.
        near = min(16 // size, lanes)
        distance = lanes // 2
        while distance >= near:
            low = [j if not j & distance else lanes + j - distance for j in range(lanes)]
            high = [j + distance if not j & distance else lanes + j for j in range(lanes)]
            for i in range(lanes):
                if not i & distance:
                    pair = rows[i], rows[i + distance]
                    rows[i], rows[i + distance] = (pair[0].shuffled(pair[1], order) for order in (low, high))
            distance //= 2
        halves = [
            [start + half + k + other for start in range(0, lanes, near) for k in range(near // 2)
             for other in (0, lanes)]
            for half in (0, near // 2)
        ]  # fmt: skip
        for _ in range(near.bit_length() - 1):
            rows = [
                rows[first + k].shuffled(rows[first + k + near // 2], order)
                for first in range(0, lanes, near) for k in range(near // 2) for order in halves
            ]  # fmt: skip
        for row in rows:
            target.write(row, align=size)
            target += target_step

    return transpose_tile


def find_largest(lowest, count, run, elements_of, store):
    """The maximum of several vectors, NaN included.

    One instruction each, which drops a NaN; if any element was one, the exact steps instead.

    `lowest` is a vector that all exceed. `run(body, first)` is a loop whose sums begin with `first`,
    `elements_of(now)` gives the vectors of an iteration, and `store` takes the results.
    """
    first, lanes = [lowest] * count, lowest.type.count

    def take_larger(now, totals):
        return [total.extreme(">", x) for x, total in zip(elements_of(now), totals, strict=True)]

    def take_larger_or_flag(now, totals):
        *totals, flag = totals
        elements = elements_of(now)
        joined = [
            total.where(total > element, element) for element, total in zip(elements, totals, strict=True)
        ]
        # Two elements at a time are tested.
        for k in range(0, len(elements), 2):
            flag |= elements[k].unordered(elements[min(k + 1, len(elements) - 1)])
        return [*joined, flag]

    *totals, flag = run(take_larger_or_flag, [*first, lowest.of(ir.VectorType(ir.IntType(1), lanes), 0)])
    store(totals)
    has_nan = flag.seen_as(ir.IntType(lanes)).differs(0)
    with has_nan.builder.if_then(has_nan.value, likely=False):
        store(run(take_larger, first))


def make_pool_tile(vectors, lanes, largest):
    """pool_tile(source, offsets, taps, target): a row of `vectors` * `lanes` maxima or sums of runs.

    Tap t takes the run that starts `offsets[t]` bytes behind `source`.
    """
    kind = ir.VectorType(_SINGLE, lanes)

    @llvm_intrinsic()
    def pool_tile(source, offsets, taps, target):
        def elements_of(now):
            return (source + now[0].word()).read_row(kind, vectors)

        def add(now, totals):
            return [total + element for element, total in zip(elements_of(now), totals, strict=True)]

        def run(body, first):
            return _counted_loop(taps, [offsets], [8], first, body)[1]

        if largest:
            lowest = source.of(kind, float("-inf"))
            find_largest(lowest, vectors, run, elements_of, target.write_row)
        else:
            target.write_row(run(add, [source.of(kind, 0.0)] * vectors))

    return pool_tile


def make_channel_pool(pixels, channels, signed):
    """channel_pool(source, step, offsets, taps, target): the largest bytes of windows, channel by channel.

    `pixels` of so many channels are `step` bytes apart. Tap t reads `offsets[t]` bytes behind a pixel's.
    """
    kind, lowest = ir.VectorType(ir.IntType(8), channels), -128 if signed else 0

    @llvm_intrinsic()
    def channel_pool(source, step, offsets, taps, target):
        sources = [source]
        for _ in range(pixels - 1):
            sources.append(sources[-1] + step)

        def body(places, totals):
            offset = places[0].word()
            runs = [(start + offset).read(kind, align=1) for start in sources]
            runs = [LLVMValue(run.builder, run.value, signed) for run in runs]
            return [run.where(run > total, total) for run, total in zip(runs, totals, strict=True)]

        first = [source.of(kind, lowest)] * pixels
        target.write_row(_counted_loop(taps, [offsets], [8], first, body)[1])

    return channel_pool
