# mypy: allow-untyped-defs, allow-incomplete-defs
"""Squares of float32s turned over in registers."""

from llvmlite import ir

from engine.backends.cpu.library.instruction import instruction
from engine.backends.cpu.library.vectors import _vector_at, _word


def make_transpose_tile(lanes):
    """turn_tile(source, step, target, target_step): `lanes` rows of as many elements, as columns.

    Rows are `step` and `target_step` bytes apart.
    """
    kind = ir.VectorType(ir.FloatType(), lanes)
    mask = ir.VectorType(ir.IntType(32), lanes)

    @instruction()
    def turn_tile(builder, source, step, target, target_step):
        rows = []
        for _ in range(lanes):
            rows.append(builder.load(_vector_at(builder, source, _word(0), kind), align=4))
            source = builder.add(source, step)
        # Exchanging the halves off the diagonal, then the quarters and so on, turns the square over.
        distance = lanes // 2
        while distance:
            low = [j if not j & distance else lanes + j - distance for j in range(lanes)]
            high = [j + distance if not j & distance else lanes + j for j in range(lanes)]
            for i in range(lanes):
                if not i & distance:
                    pair = rows[i], rows[i + distance]
                    rows[i] = builder.shuffle_vector(*pair, ir.Constant(mask, low))
                    rows[i + distance] = builder.shuffle_vector(*pair, ir.Constant(mask, high))
            distance //= 2
        for row in rows:
            builder.store(row, _vector_at(builder, target, _word(0), kind), align=4)
            target = builder.add(target, target_step)

    return turn_tile
