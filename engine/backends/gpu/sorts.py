"""Stable sorting of rows for GPUs: blocks in a group's shared memory, then merges of runs.

Keys and positions move together, as pairs of int32. A thread ranks a few elements in registers; threads merge
two runs side by side, each from where a binary search says that its outputs begin (Odeh et al., Merge Path -
Parallel Merging Made Simple, 2012). Runs are truncated to the requested length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.backends.gpu.kernel_dialect import GROUP, KernelDialect, ThreadStep
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

# Where few threads run at once, each merges so many times as many.
_MORE_ALONE = 2

# What takes as long as sorting or merging an element: multiplications, and nanoseconds.
_BLOCK_AREA, _MERGE_AREA = 64, 16
_BLOCK_NS, _MERGE_NS = 20.0, 10.0
_LAST = 2**31 - 1
_INFINITY = 0x7F800000
_MOST = 1 << 30

Read = Callable[[str, str], str]
"""What prints the statement that sets a variable to the key at a position of `row`."""

Place = Callable[[str, str], str]
"""The text of where in its row the element at a position and a slot is."""


def tune_sort(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Rule for hints of kind "sort"; returns False for unsupported keys and for top-k of many."""
    (rows, *others), attributes = compute.operands, compute.attributes
    (outer, count, inner), keep = rows.shape, attributes["keep"]
    length, listed = (*others, None, None)[:2]
    # On GPUs, integers of 64 bits have 32.
    is_word = keys_are_words(rows) or rows.arithmetic == "int64"
    if not is_word or is_few_of_many(rows, keep, length is not None):
        return False
    is_plain = compute.epilogue is None and compute.output.dtype == INT32
    output = compute.output.name if is_plain else ""
    pairs = sorted_pairs(tuner, dialect, rows, keep, attributes["descending"], length, listed, output)
    if pairs is None:
        return False
    if pairs.name == output:
        return True

    def position(o: Expr, slot: Expr, i: Expr) -> Expr:
        place = load(pairs, ((o * inner + i) * count + slot) * lit(2) + lit(1))
        is_there = None if length is None else slot < cast(length[o], "index")
        return place if is_there is None else select(is_there, place, lit(0, "int32"))

    emit_result(compute, tuner, (outer, keep, inner), position)
    return True


def sorted_pairs(
    tuner: Tuner,
    dialect: KernelDialect,
    rows: Value,
    keep: int,
    descending: bool = False,
    length: Value | None = None,
    listed: Value | None = None,
    output: str = "",
) -> Value | None:
    """Keys and positions of (outer, count, inner) sorted along the middle axis; None if they do not fit.

    Pair p of the row (o, i) begins at element 2 * ((o * inner + i) * count + p); those from `keep` on mean
    nothing. `length` (outer) is how many elements of each row there are, and `listed` (outer, count) at which
    positions: then `inner` is 1. `output` takes the positions alone, (outer, keep), if the last step can give
    them; then it is returned.
    """
    (outer, count, inner), block = rows.shape, dialect.alone or BLOCK
    if rows.size >= _MOST or not dialect.fits(2 * rows.size, INT32):
        return None
    is_fixed, lines = rows.is_static(1), outer * inner
    source, kind, is_descending = _keys(tuner, rows, descending)
    place = _place(dialect, listed, 1 if length is None else 2)
    read = _reading(dialect, kind, is_descending)
    if listed is not None:
        read = _through(read, place)
    runs = [tuner.temporary(2 * rows.size, INT32) for _ in range(2)]
    span = deferred(_span, count, block)
    blocks = -(-count // block)
    segments = lines * blocks
    sorted_block = dialect.sorted_block
    threads = segments if dialect.alone else -(-segments // (block // span)) * GROUP
    # Those of a group.
    together = block * (GROUP if dialect.alone and sorted_block is None else 1)
    values: tuple[int, ...] = count, inner, blocks, segments, span, keep
    lengths, places = ([(v.root.name, v.dtype.name)] if v is not None else [] for v in (length, listed))
    length_of = _length_of(dialect, length)
    can_end = bool(output) and is_fixed and rows.is_static(2) and inner == 1
    is_last = can_end and sorted_block is not None and count <= block
    shared: list[str] = []
    functions: list[str] = []
    if is_last:
        runs[0] = output
    if sorted_block is not None:
        functions, statements = sorted_block(length_of("row"), read, place, is_last)
    elif dialect.alone:
        statements = _few_statements(dialect, block, length_of, read, place)
    else:
        shared = [f"{dialect.shared} int {name}[{2 * BLOCK}];" for name in ("keys", "places")]
        statements = _block_statements(dialect, length_of, read, place)
    is_emitted = dialect.emit(tuner, ThreadStep(
        threads, statements, BLOCK_NAMES, values, [(source, kind), *lengths, *places], runs[0], shared=shared,
        functions=functions, is_alone=sorted_block is not None, area=together * _BLOCK_AREA,
        ns=together * _BLOCK_NS,
    ))  # fmt: skip
    run, merged = block, EACH * (_MORE_ALONE if dialect.alone else 1)
    # Every kernel occurs where the size is not fixed.
    while is_emitted and (run < count or (run == block and not is_fixed)):
        pairs = -(-count // (2 * run))
        chunks = -(-smallest(2 * run, keep, count) // merged)
        total = lines * pairs * chunks
        values = count, inner, run, pairs, chunks, total, keep
        is_last = can_end and count <= 2 * run
        if is_last:
            runs[1] = output
        merge = ThreadStep(
            total, _merge_statements(dialect, merged, length_of, is_last), _MERGE_NAMES, values,
            [(runs[0], "int32"), *lengths], runs[1],
            area=GROUP * merged * _MERGE_AREA, ns=GROUP * merged * _MERGE_NS,
        )  # fmt: skip
        is_emitted = dialect.emit(tuner, merge)
        runs.reverse()
        run *= 2
    return Value(runs[0], (2 * rows.size,), INT32) if is_emitted else None


def _length_of(dialect: KernelDialect, length: Value | None) -> Callable[[str], str]:
    """The text of how many elements of a row there are; `inner` rows share an entry."""
    if length is None:
        return lambda row: "count"
    kind = length.dtype.name
    return lambda row: dialect.element(1, f"({row}) / max(inner, 1)", kind)


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


def _reading(dialect: KernelDialect, kind: str, is_descending: bool) -> Read:
    """See `engine.operators.sorting.key_of`, for elements of a type."""
    turn = "~" if is_descending else ""

    def read(variable: str, position: str) -> str:
        element = dialect.element(0, position, kind)
        if kind == "int32":
            return f"{variable} = {turn}{element};"
        key = f"size == 0 ? 0 : size > {_INFINITY} ? {_LAST} : code ^ (code >> 31 & {_LAST})"
        return f"{{ int code = {element}, size = code & {_LAST}; {variable} = {turn}({key}); }}"

    return read


def _ranks(count: int, read: Read) -> list[str]:
    """Statements that rank so many keys at `from`, of which `here` are there: k0 has rank r0."""
    each = range(count)
    pairs = [(i, j) for j in each for i in range(j)]
    return [
        *(f"int k{k} = {_LAST}, r{k} = 0;" for k in each),
        *(f"if ({k} < here) {read(f'k{k}', f'from + {k}')}" for k in each),
        # Equals keep their order: the later one has the higher rank.
        *(f"if (k{j} < k{i}) ++r{i}; else ++r{j};" for i, j in pairs),
    ]


def _place(dialect: KernelDialect, listed: Value | None, slot: int) -> Place:
    """Where elements are: at slots, or where these are listed in an input."""
    if listed is None:
        return lambda position, found: found
    kind = listed.dtype.name
    return lambda position, found: dialect.element(slot, position, kind)


def _through(read: Read, place: Place) -> Read:
    """A read of row elements through a list of positions."""
    return lambda variable, position: read(variable, f"row * count + {place(position, '')}")


def _few_statements(
    dialect: KernelDialect, count: int, length_of: Callable[[str], str], read: Read, place: Place
) -> list[str]:
    """Statements of thread `t` that sort a block of `count` elements without shared memory."""
    o = dialect.output
    return [
        "if (t >= segments) return;",
        "int row = t / max(blocks, 1), start = (t - row * blocks) * span;",
        "int from = row * count + start, to = 2 * from;",
        f"int here = min({length_of('row')} - start, {count}), most = min(here, keep);",
        "if (here <= 0) return;",
        *_ranks(count, read),
        *(
            f"if (r{k} < most) {{ {o}[to + 2 * r{k}] = k{k};"
            f" {o}[to + 2 * r{k} + 1] = {place(f'from + {k}', f'start + {k}')}; }}"
            for k in range(count)
        ),
    ]


def _block_statements(
    dialect: KernelDialect, length_of: Callable[[str], str], read: Read, place: Place
) -> list[str]:
    """Statements of thread `t` that sort a block of `BLOCK` elements and store its pairs."""
    return [
        f"int group = t / {GROUP}, lane = t - group * {GROUP}, slots = max(span, 1), own = lane * {EACH};",
        f"int first = group * ({BLOCK} / slots), segment = first + own / slots;",
        "int row = segment / max(blocks, 1);",
        "int start = (segment - row * blocks) * slots + own % slots, from = row * count + start;",
        f"int here = segment < segments ? min({length_of('row')} - start, {EACH}) : 0;",
        *_ranks(EACH, read),
        *(f"keys[own + r{k}] = k{k}; places[own + r{k}] = own + {k};" for k in range(EACH)),
        dialect.barrier,
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
        f"    {dialect.barrier}",
        "}",
        f"for (int e = lane; e < {BLOCK}; e += {GROUP}) {{",
        "    int part = e / slots, owner = first + part, line = owner / max(blocks, 1);",
        "    int begin = (owner - line * blocks) * slots, place = e - part * slots;",
        f"    if (owner < segments && place < min({length_of('line')} - begin, keep)) {{",
        "        int at = 2 * (line * count + begin + place);",
        "        int slot = begin + places[half_ + e] - part * slots;",
        f"        {dialect.output}[at] = keys[half_ + e];",
        f"        {dialect.output}[at + 1] = {place('line * count + slot', 'slot')};",
        "    }",
        "}",
    ]


def _merge_statements(
    dialect: KernelDialect, merged: int, length_of: Callable[[str], str], is_last: bool
) -> list[str]:
    """Statements of thread `t` that store its share of a merged run; the last one's are positions alone."""
    key, o, place = dialect.element(0, "2 * ({})"), dialect.output, dialect.element(0, "2 * source + 1")
    zeros = f"for (int at = max(q, end); at < min(q + {merged}, keep); ++at) {o}[row * keep + at] = 0;"
    stores = [f"{o}[2 * at] = is_left ? next_left : next_right;", f"{o}[2 * at + 1] = {place};"]
    if is_last:
        stores = [f"{o}[row * keep + at - left] = {place};"]
    return [
        "if (t >= total) return;",
        f"int line = t / max(chunks, 1), q = (t - line * chunks) * {merged}, row = line / max(pairs, 1);",
        "int base = (line - row * pairs) * 2 * run, left = row * count + base, right = left + run;",
        f"int rest = {length_of('row')} - base;",
        "int size_left = min(min(run, keep), rest), size_right = max(min(min(run, keep), rest - run), 0);",
        f"int end = min(min(q + {merged}, keep), size_left + size_right);",
        *([zeros] if is_last else []),
        "if (q >= end) return;",
        *_split(key, "size_left", "size_right"),
        f"int next_left = {key.format('left + min(low, size_left - 1)')};",
        # A run without a right side reads its own last key instead, which is not used.
        "int last_right = size_right > 0 ? right + size_right - 1 : left, from_right = q - low;",
        f"int next_right = {key.format('min(right + from_right, last_right)')};",
        "for (int at = left + q; at < left + end; ++at) {",
        "    bool is_left = from_right >= size_right || (low < size_left && next_left <= next_right);",
        "    int source = is_left ? left + low : right + from_right;",
        *(f"    {line}" for line in stores),
        "    if (is_left) ++low; else ++from_right;",
        # One load for either side: in software, each lane would wait for both.
        "    int place = is_left ? left + min(low, size_left - 1) : min(right + from_right, last_right);",
        f"    int next = {key.format('place')};",
        "    if (is_left) next_left = next; else next_right = next;",
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
