# mypy: allow-untyped-defs, allow-incomplete-defs
"""Packs narrow elements into machine words, and sums windows of them with packed dot products."""

from llvmlite import ir

from engine.backends.cpu.library.llvm_intrinsic import llvm_intrinsic
from engine.backends.cpu.library.llvm_value import LLVMValue
from engine.backends.cpu.library.matmul_tiles import _ELEMENTS, _NUMBER, _multiplied
from engine.backends.cpu.library.vectors import _SINGLE, _counted_loop, add_products


def _interleaved(found, lanes):
    """Vectors of `lanes` elements as one: the first elements of all, then the second ones..."""

    def order(count):
        # Two vectors of groups of elements, group by group.
        half = count // 2
        step = half // lanes
        return [j * step + e + half * side for j in range(lanes) for side in (0, 1) for e in range(step)]

    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [x.shuffled(y, order(2 * x.type.count)) for x, y in pairs]
    return found[0]


def make_interleave(parts, bits, lanes, widened=0):
    """interleave(target, a, b, c, d, zero): word j of `lanes` words has elements j of the first `parts` runs.

    Addresses are bytes; `bits` is the size of an element. widened: the size of unsigned elements less
    `zero`, into which those of a run are converted, if that is given.
    """
    kind = ir.VectorType(ir.IntType(bits), lanes)

    @llvm_intrinsic()
    def interleave(target, a, b, c, d, zero):
        found = _interleaved([source.read(kind, align=1) for source in (a, b, c, d)[:parts]], lanes)
        if widened:
            wide = ir.IntType(widened)
            unsigned = LLVMValue(found.builder, found.value, signed=False)
            found = unsigned.to(wide) - zero.to(wide).spread(found.type.count)
        target.write(found, align=1)

    return interleave


def make_plane_tile(form, elements, element_size, stride, lanes, vectors=1):
    """`vectors` runs of `elements` / `stride` times `lanes` sums of a plane's windows.

    plane_tile(source, offsets, weights, taps, target): tap t is the word weights[t], whose elements meet
    neighbours from `offsets[t]` bytes behind the window's start on. Every `elements`th window is a lane.
    """
    element, word = _ELEMENTS.get(form, (_NUMBER, 4))
    kind = ir.VectorType(element, lanes)
    firsts = range(0, elements, stride)
    starts = [(v * lanes * elements + first) * element_size for v in range(vectors) for first in firsts]

    @llvm_intrinsic()
    def plane_tile(source, offsets, weights, taps, target):
        def body(places, totals):
            start, left = source + places[0].word(), places[1].read(element).spread(lanes)
            pairs = zip(starts, totals, strict=True)
            return [_multiplied(form, left, (start + first).read(kind, 1), total) for first, total in pairs]

        zeros = [source.of(kind, 0)] * len(starts)
        _, totals = _counted_loop(taps, [offsets, weights], [8, word], zeros, body)
        runs = range(0, len(starts), len(firsts))
        target.write_row([_interleaved(totals[k : k + len(firsts)], lanes) for k in runs])

    return plane_tile


def make_row_tile(rows, vectors, lanes):
    """`rows` neighbouring rows, each of `vectors` * `lanes` sums of windows of float32.

    row_tile(source, row_step, offsets, weights, kernel_rows, kernel_columns, planes, plane_step, target,
    target_step): windows of neighbouring rows start as far apart as the rows of a window do, so a row of the
    plane is read once for all of them. Windows have at least `rows` - 1 rows, in each of so many planes.
    """
    kind, width = ir.VectorType(_SINGLE, lanes), 4 * lanes

    @llvm_intrinsic()
    def row_tile(
        source, row_step, offsets, weights, kernel_rows, kernel_columns, planes, plane_step, target,
        target_step,
    ):  # fmt: skip
        pitch = kernel_columns * 4

        def add_row(source, weights, first, last, sums):
            # A row of the plane is one further up in the windows of each following row; `weights` are those
            # that the first one's meets.
            def body(places, totals):
                start = source + places[0].word()
                lefts = ((places[1] - pitch * k).read(_SINGLE).spread(lanes) for k in range(last - first))
                return add_products(lefts, [(start + v * width).read(kind) for v in range(vectors)], totals)

            own = slice(first * vectors, last * vectors)
            _, totals = _counted_loop(kernel_columns, [offsets, weights], [8, 4], sums[own], body)
            return [*sums[: own.start], *totals, *sums[own.stop :]]

        def add_plane(places, sums):
            source, weights = places
            for k in range(1, rows):
                sums = add_row(source, weights, 0, k, sums)
                source, weights = source + row_step, weights + pitch

            def of_all(places, sums):
                return add_row(places[0], places[1], 0, rows, sums)

            steps = [row_step, pitch]
            steady = kernel_rows - (rows - 1)
            (source, weights), sums = _counted_loop(steady, [source, weights], steps, sums, of_all)
            for k in range(1, rows):
                sums = add_row(source, weights - pitch, k, rows, sums)
                source += row_step
            return sums

        zeros = [source.of(kind, 0.0)] * (rows * vectors)
        steps = [plane_step, kernel_rows * pitch]
        _, sums = _counted_loop(planes, [source, weights], steps, zeros, add_plane)
        for k in range(rows):
            (target + target_step * k).write_row(sums[k * vectors : (k + 1) * vectors])

    return row_tile


def make_channel_tile(form, elements, pixels, channels, lanes, signed):
    """channel_tile(source, step, offsets, weights, words, firsts, target): sums of weighted bytes, as int32s.

    `pixels` of so many channels are `step` bytes apart. The next `elements` taps of a channel are a word of
    `form` (see `make_product_tile`), which meets the bytes `offsets` behind a pixel's; sums begin with the
    numbers at `firsts`.
    """
    kind, row = ir.VectorType(_NUMBER, lanes), ir.VectorType(ir.IntType(8), channels)
    wide, parts = ir.IntType(32 // elements), range(0, channels, lanes)
    orders = [[e * channels + p + j for j in range(lanes) for e in range(elements)] for p in parts]

    @llvm_intrinsic()
    def channel_tile(source, step, offsets, weights, words, firsts, target):
        sources = [source]
        for _ in range(pixels - 1):
            sources.append(sources[-1] + step)

        def body(places, totals):
            taps, factors = [places[0].word(e) for e in range(elements)], places[1].read_row(kind, len(parts))
            sums = list[LLVMValue]()
            for start in sources:
                runs = [(start + offset).read(row, align=1) for offset in taps]
                for order, factor in zip(orders, factors, strict=True):
                    part = runs[0].shuffled(runs[-1], order)
                    word = LLVMValue(part.builder, part.value, signed).to(wide).seen_as(kind)
                    sums.append(_multiplied(form, word, factor, totals[len(sums)]))
            return sums

        first = firsts.read_row(kind, len(parts))
        steps = [8 * elements, 4 * channels]
        target.write_row(_counted_loop(words, [offsets, weights], steps, first * pixels, body)[1])

    return channel_tile
