"""Stable sorting of rows for GPUs: blocks in a group's shared memory, then merges of runs.

Keys and positions move together, as pairs of int32. A thread ranks a few elements in registers; threads merge
two runs side by side, each from where a binary search says that its outputs begin (Odeh et al., Merge Path -
Parallel Merging Made Simple, 2012). Runs are cut to what is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.backends.gpu.kernels import GROUP, Kernels, ThreadStep
from engine.backends.operands import emit, emit_result
from engine.base.dtypes import FLOAT32, INT32, INT64
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import Expr, cast, index, lit, load, select
from engine.kernels.size import deferrable, deferred, smallest
from engine.kernels.value import Value
from engine.operators.sorting import is_few_of_many, key_of, keys_are_words

EACH = 16
"""Elements of a thread."""

BLOCK = GROUP * EACH
"""Elements that a group sorts in shared memory, of one row or of several short ones."""

BLOCK_NAMES = ("count", "inner", "blocks", "segments", "span", "keep")
"""Arguments of a step that sorts blocks; a segment is a block of a row, with `span` slots in a group."""

_MERGE_NAMES = ("count", "inner", "run", "pairs", "chunks", "total", "keep")
"""Arguments of a step that merges runs; `total` threads store up to `EACH` pairs."""

# What takes as long as sorting or merging an element: multiplications, and nanoseconds.
_BLOCK_AREA, _MERGE_AREA = 64, 16
_BLOCK_NS, _MERGE_NS = 20.0, 10.0
_LAST = 2**31 - 1
_INFINITY = 0x7F800000
_MOST = 1 << 30

Read = Callable[[str, str], str]
"""What prints the statement that sets a variable to the key at a position."""


def tune_sort(compute: Compute, tuner: Tuner, kernels: Kernels) -> bool:
    """Rule for hints of kind "sort"; False for other keys, and where few of many are chosen first."""
    (rows, *lengths), attributes = compute.operands, compute.attributes
    (outer, count, inner), keep = rows.shape, attributes["keep"]
    # On GPUs, integers of 64 bits have 32.
    is_word = keys_are_words(rows) or rows.arithmetic == "int64"
    if not is_word or is_few_of_many(rows, keep, bool(lengths)):
        return False
    length = lengths[0] if lengths else None
    pairs = sorted_pairs(tuner, kernels, rows, keep, attributes["descending"], length)
    if pairs is None:
        return False

    def position(o: Expr, slot: Expr, i: Expr) -> Expr:
        place = load(pairs, ((o * inner + i) * count + slot) * lit(2) + lit(1))
        is_there = None if length is None else slot < cast(length[o], "index")
        return place if is_there is None else select(is_there, place, lit(0, "int32"))

    emit_result(compute, tuner, (outer, keep, inner), position)
    return True


def sorted_pairs(
    tuner: Tuner,
    kernels: Kernels,
    rows: Value,
    keep: int,
    descending: bool = False,
    length: Value | None = None,
) -> Value | None:
    """Keys and positions of (outer, count, inner) sorted along the middle axis; None if they do not fit.

    Pair p of the row (o, i) begins at element 2 * ((o * inner + i) * count + p); those from `keep` on mean
    nothing. `length` (outer) is how many elements of each row there are.
    """
    (outer, count, inner), block = rows.shape, EACH if kernels.sorts_few else BLOCK
    if rows.size >= _MOST or not kernels.fits(2 * rows.size, INT32):
        return None
    is_fixed, lines = rows.is_static(1), outer * inner
    source, kind, is_descending = _keys(tuner, rows, descending)
    read = _reading(kernels, kind, is_descending)
    runs = [tuner.temporary(2 * rows.size, INT32) for _ in range(2)]
    span = deferred(_span, count, block)
    blocks = -(-count // block)
    segments = lines * blocks
    emit_alone = kernels.emit_sorted_block
    threads = (
        segments if kernels.sorts_few or emit_alone is not None else -(-segments // (block // span)) * GROUP
    )
    values: tuple[int, ...] = count, inner, blocks, segments, span, keep
    lengths = [] if length is None else [(length.root.name, length.dtype.name)]
    length_of = _length_of(kernels, length)
    step = ThreadStep(
        threads, (), BLOCK_NAMES, values, [(source, kind), *lengths], runs[0],
        area=BLOCK * _BLOCK_AREA, ns=BLOCK * _BLOCK_NS,
    )  # fmt: skip
    if emit_alone is not None:
        is_emitted = emit_alone(tuner, step, length_of("row"), read)
    elif kernels.sorts_few:
        is_emitted = kernels.emit(tuner, replace(step, lines=_few_statements(kernels, length_of, read)))
    else:
        shared = [f"{kernels.shared} int {name}[{2 * BLOCK}];" for name in ("keys", "places")]
        is_emitted = kernels.emit(
            tuner, replace(step, lines=_block_statements(kernels, length_of, read), shared=shared)
        )
    run, lines_of_merge = block, _merge_statements(kernels, length_of)
    # Every kernel occurs where the size is not fixed.
    while is_emitted and (run < count or (run == block and not is_fixed)):
        pairs = -(-count // (2 * run))
        chunks = -(-smallest(2 * run, keep, count) // EACH)
        total = lines * pairs * chunks
        values = count, inner, run, pairs, chunks, total, keep
        merge = ThreadStep(
            total, lines_of_merge, _MERGE_NAMES, values, [(runs[0], "int32"), *lengths], runs[1],
            area=BLOCK * _MERGE_AREA, ns=BLOCK * _MERGE_NS,
        )  # fmt: skip
        is_emitted = kernels.emit(tuner, merge)
        runs.reverse()
        run *= 2
    return Value(runs[0], (2 * rows.size,), INT32) if is_emitted else None


def _length_of(kernels: Kernels, length: Value | None) -> Callable[[str], str]:
    """The text of how many elements of a row there are; `inner` rows share an entry."""
    if length is None:
        return lambda row: "count"
    kind = length.dtype.name
    return lambda row: kernels.element(1, f"({row}) / max(inner, 1)", kind)


@deferrable
def _span(count: int, block: int) -> int:
    """Slots of a row in a group: a power of two."""
    return min(block, max(EACH, 1 << (count - 1).bit_length()))


def _keys(tuner: Tuner, rows: Value, descending: bool) -> tuple[str, str, bool]:
    """The tensor of elements, one row after another, its type, and whether they are sorted descending."""
    outer, count, inner = rows.shape
    if rows.dtype in (INT32, INT64, FLOAT32) and rows.is_static(2) and inner == 1:
        return rows.root.name, "float32" if rows.dtype == FLOAT32 else "int32", descending
    o, i, c = index(0), index(1), index(2)
    keys = tuner.temporary(rows.size, INT32)
    emit(tuner, cast(key_of(rows[o, c, i], descending), "int32"), (outer, inner, count), INT32, keys)
    return keys, "int32", False


def _reading(kernels: Kernels, kind: str, is_descending: bool) -> Read:
    """See `engine.operators.sorting.key_of`, for elements of a type."""
    turn = "~" if is_descending else ""

    def read(variable: str, position: str) -> str:
        element = kernels.element(0, position, kind)
        if kind == "int32":
            return f"{variable} = {turn}{element};"
        key = f"size == 0 ? 0 : size > {_INFINITY} ? {_LAST} : code ^ (code >> 31 & {_LAST})"
        return f"{{ int code = {element}, size = code & {_LAST}; {variable} = {turn}({key}); }}"

    return read


def _ranks(read: Read) -> list[str]:
    """Statements that rank the `here` keys at `from`, and others that come last: k0 has rank r0."""
    each = range(EACH)
    pairs = [(i, j) for j in each for i in range(j)]
    return [
        *(f"int k{k} = {_LAST}, r{k} = 0;" for k in each),
        *(f"if ({k} < here) {read(f'k{k}', f'from + {k}')}" for k in each),
        # Equals keep their order: the later one has the higher rank.
        *(f"if (k{j} < k{i}) ++r{i}; else ++r{j};" for i, j in pairs),
    ]


def _few_statements(kernels: Kernels, length_of: Callable[[str], str], read: Read) -> list[str]:
    """Statements of thread `t` that sort a block of `EACH` elements, without shared memory, as `span` is."""
    o = kernels.output
    return [
        "if (t >= segments) return;",
        "int row = t / max(blocks, 1), start = (t - row * blocks) * span;",
        "int from = row * count + start, to = 2 * from;",
        f"int here = min({length_of('row')} - start, {EACH}), most = min(here, keep);",
        "if (here <= 0) return;",
        *_ranks(read),
        *(
            f"if (r{k} < most) {{ {o}[to + 2 * r{k}] = k{k}; {o}[to + 2 * r{k} + 1] = start + {k}; }}"
            for k in range(EACH)
        ),
    ]


def _block_statements(kernels: Kernels, length_of: Callable[[str], str], read: Read) -> list[str]:
    """Statements of thread `t` that sort a block of `BLOCK` elements and store its pairs."""
    return [
        f"int group = t / {GROUP}, lane = t - group * {GROUP}, slots = max(span, 1), own = lane * {EACH};",
        f"int first = group * ({BLOCK} / slots), segment = first + own / slots;",
        "int row = segment / max(blocks, 1);",
        "int start = (segment - row * blocks) * slots + own % slots, from = row * count + start;",
        f"int here = segment < segments ? min({length_of('row')} - start, {EACH}) : 0;",
        *_ranks(read),
        *(f"keys[own + r{k}] = k{k}; places[own + r{k}] = own + {k};" for k in range(EACH)),
        kernels.barrier,
        "int half_ = 0;",
        f"for (int run = {EACH}; run < span; run *= 2) {{",
        "    int base = own / (2 * run) * (2 * run), q = own - base;",
        "    int left = half_ + base, right = left + run;",
        *_indented(_split("keys[{}]", "run", "run")),
        "    int next_left = keys[left + min(low, run - 1)];",
        "    int from_right = q - low, next_right = keys[right + min(from_right, run - 1)];",
        f"    for (int at = {BLOCK} - half_ + own, end = at + {EACH}; at < end; ++at) {{",
        "        bool is_left = from_right >= run || (low < run && next_left <= next_right);",
        "        keys[at] = is_left ? next_left : next_right;",
        "        places[at] = places[is_left ? left + low : right + from_right];",
        "        if (is_left) next_left = keys[left + min(++low, run - 1)];",
        "        else next_right = keys[right + min(++from_right, run - 1)];",
        "    }",
        f"    half_ = {BLOCK} - half_;",
        f"    {kernels.barrier}",
        "}",
        f"for (int e = lane; e < {BLOCK}; e += {GROUP}) {{",
        "    int part = e / slots, owner = first + part, line = owner / max(blocks, 1);",
        "    int begin = (owner - line * blocks) * slots, place = e - part * slots;",
        f"    if (owner < segments && place < min({length_of('line')} - begin, keep)) {{",
        "        int at = 2 * (line * count + begin + place);",
        f"        {kernels.output}[at] = keys[half_ + e];",
        f"        {kernels.output}[at + 1] = begin + places[half_ + e] - part * slots;",
        "    }",
        "}",
    ]


def _merge_statements(kernels: Kernels, length_of: Callable[[str], str]) -> list[str]:
    """Statements of thread `t` that store its share of a merged run."""
    key = kernels.element(0, "2 * ({})")
    return [
        "if (t >= total) return;",
        f"int line = t / max(chunks, 1), q = (t - line * chunks) * {EACH}, row = line / max(pairs, 1);",
        "int base = (line - row * pairs) * 2 * run, left = row * count + base, right = left + run;",
        f"int rest = {length_of('row')} - base;",
        "int size_left = min(min(run, keep), rest), size_right = max(min(min(run, keep), rest - run), 0);",
        f"int end = min(min(q + {EACH}, keep), size_left + size_right);",
        "if (q >= end) return;",
        *_split(key, "size_left", "size_right"),
        f"int next_left = {key.format('left + min(low, size_left - 1)')};",
        # A run without a right side reads its own last key instead, which is not used.
        "int last_right = size_right > 0 ? right + size_right - 1 : left, from_right = q - low;",
        f"int next_right = {key.format('min(right + from_right, last_right)')};",
        "for (int at = left + q; at < left + end; ++at) {",
        "    bool is_left = from_right >= size_right || (low < size_left && next_left <= next_right);",
        "    int source = is_left ? left + low : right + from_right;",
        f"    {kernels.output}[2 * at] = is_left ? next_left : next_right;",
        f"    {kernels.output}[2 * at + 1] = {kernels.element(0, '2 * source + 1')};",
        "    if (is_left) {",
        "        ++low;",
        f"        next_left = {key.format('left + min(low, size_left - 1)')};",
        "    } else {",
        "        ++from_right;",
        f"        next_right = {key.format('min(right + from_right, last_right)')};",
        "    }",
        "}",
    ]


def _split(key: str, size_left: str, size_right: str) -> list[str]:
    """Statements that find how many of the first `q` come from the left, `low`: equals come from there first.

    `key` is the text of the key at a position.
    """
    return [
        f"int low = max(q - {size_right}, 0), high = min(q, {size_left});",
        "while (low < high) {",
        "    int middle = (low + high) / 2;",
        f"    if ({key.format('left + middle')} <= {key.format('right + q - 1 - middle')}) low = middle + 1;",
        "    else high = middle;",
        "}",
    ]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
