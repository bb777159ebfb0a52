"""Stable sorting of rows for GPUs: blocks in a group's shared memory, then merges of runs.

Keys and positions move together, as pairs of int32. A thread ranks a few elements in registers; threads merge
two runs side by side, each from where a binary search says that its outputs begin (Odeh et al., Merge Path -
Parallel Merging Made Simple, 2012). Runs are cut to what is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.backends.operands import Fits, emit, emit_result
from engine.base.dtypes import FLOAT32, INT32, INT64
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import Expr, cast, index, lit, load, select
from engine.kernels.size import deferrable, deferred, smallest
from engine.kernels.value import Value
from engine.operators.sorting import is_few_of_many, key_of, keys_are_words

GROUP = 64
"""Threads in a group."""

EACH = 16
"""Elements of a thread."""

BLOCK = GROUP * EACH
"""Elements that a group sorts in shared memory, of one row or of several short ones."""

BLOCK_NAMES = ("count", "inner", "blocks", "segments", "span", "keep")
"""Arguments of a step that sorts blocks; a segment is a block of a row, with `span` slots in a group."""

MERGE_NAMES = ("count", "inner", "run", "pairs", "chunks", "total", "keep")
"""Arguments of a step that merges runs; `total` threads store up to `EACH` pairs."""

_LAST = 2**31 - 1
_INFINITY = 0x7F800000
_MOST = 1 << 30


@dataclass(frozen=True)
class Step:
    """A step of sorting.

    threads, values: how many there are, and its arguments. source, target: the tensors that it reads and
    writes. length: how many elements of each row there are, if not `count`. kind: the type of the source;
    `key_function` makes keys of elements that are none, where it sorts blocks.
    """

    threads: int
    values: tuple[int, ...]
    source: str
    target: str
    length: Value | None
    kind: str = "int32"
    is_descending: bool = False

    @property
    def has_keys(self) -> bool:
        """Whether it reads keys in ascending order."""
        return self.kind == "int32" and not self.is_descending


@dataclass(frozen=True)
class Dialect:
    """How a language spells what the kernels do.

    read, length: the text of a key of the input and of the lengths, if there are any. output: the name
    of the output. barrier: the statement for shared memory.
    """

    read: Callable[[str], str]
    length: Callable[[str], str] | None
    output: str
    barrier: str

    def length_of(self, row: str) -> str:
        """The text of how many elements of a row there are; `inner` rows share an entry."""
        return "count" if self.length is None else self.length(f"({row}) / max(inner, 1)")


@dataclass(frozen=True)
class Sorter:
    """What a backend brings: which tensors fit, and functions that emit a step, if they can.

    block: how many elements its blocks have, `BLOCK` or `EACH`. is_alone: whether one thread sorts a block.
    """

    fits: Fits
    emit_blocks: Callable[[Tuner, Step], bool]
    emit_merge: Callable[[Tuner, Step], bool]
    block: int = BLOCK
    is_alone: bool = False


def tune_sort(compute: Compute, tuner: Tuner, sorter: Sorter) -> bool:
    """Rule for hints of kind "sort"; False for other keys, and where few of many are chosen first."""
    (rows, *lengths), attributes = compute.operands, compute.attributes
    (outer, count, inner), keep = rows.shape, attributes["keep"]
    # On GPUs, integers of 64 bits have 32.
    is_word = keys_are_words(rows) or rows.arithmetic == "int64"
    if not is_word or is_few_of_many(rows, keep, bool(lengths)):
        return False
    length = lengths[0] if lengths else None
    pairs = sorted_pairs(tuner, sorter, rows, keep, attributes["descending"], length)
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
    sorter: Sorter,
    rows: Value,
    keep: int,
    descending: bool = False,
    length: Value | None = None,
) -> Value | None:
    """Keys and positions of (outer, count, inner) sorted along the middle axis; None if they do not fit.

    Pair p of the row (o, i) begins at element 2 * ((o * inner + i) * count + p); those from `keep` on mean
    nothing. `length` (outer) is how many elements of each row there are.
    """
    (outer, count, inner), block = rows.shape, sorter.block
    if rows.size >= _MOST or not sorter.fits(2 * rows.size, INT32):
        return None
    is_fixed, lines = rows.is_static(1), outer * inner
    source, kind, is_descending = _keys(tuner, rows, descending)
    runs = [tuner.temporary(2 * rows.size, INT32) for _ in range(2)]
    span = deferred(_span, count, block)
    blocks = -(-count // block)
    segments = lines * blocks
    threads = segments if sorter.is_alone else -(-segments // (block // span)) * GROUP
    values: tuple[int, ...] = count, inner, blocks, segments, span, keep
    if not sorter.emit_blocks(tuner, Step(threads, values, source, runs[0], length, kind, is_descending)):
        return None
    run = block
    # Every kernel occurs where the size is not fixed.
    while run < count or (run == block and not is_fixed):
        pairs = -(-count // (2 * run))
        chunks = -(-smallest(2 * run, keep, count) // EACH)
        total = lines * pairs * chunks
        values = count, inner, run, pairs, chunks, total, keep
        if not sorter.emit_merge(tuner, Step(total, values, runs[0], runs[1], length)):
            return None
        runs.reverse()
        run *= 2
    return Value(runs[0], (2 * rows.size,), INT32)


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


def key_function(step: Step, kind: str, word: str, bits: str) -> list[str]:
    """The function `key_of` of an element, see `engine.operators.sorting.key_of`.

    kind: what functions begin with. word: the type of an element. bits: the text of its bits.
    """
    turn, lines = "~" if step.is_descending else "", ["int code = x;"]
    if step.kind == "float32":
        lines = [
            f"int code = {bits}, size = code & {_LAST};",
            f"if (code < 0) code ^= {_LAST};",
            "if (size == 0) code = 0;",
            f"if (size > {_INFINITY}) code = {_LAST};",
        ]
    return [f"{kind} key_of({word} x) {{", *_indented([*lines, f"return {turn}code;"]), "}"]


def block_declarations(memory: str) -> list[str]:
    """Shared memory of a group that sorts a block, in a language's kind of memory."""
    return [f"{memory} int keys[{2 * BLOCK}];", f"{memory} int places[{2 * BLOCK}];"]


def _ranks(dialect: Dialect) -> list[str]:
    """Statements that rank the `here` keys at `from`, and others that come last: k0 has rank r0."""
    each = range(EACH)
    pairs = [(i, j) for j in each for i in range(j)]
    return [
        *(f"int k{k} = {_LAST}, r{k} = 0;" for k in each),
        *(f"if ({k} < here) k{k} = {dialect.read(f'from + {k}')};" for k in each),
        # Equals keep their order: the later one has the higher rank.
        *(f"if (k{j} < k{i}) ++r{i}; else ++r{j};" for i, j in pairs),
    ]


def small_block_statements(dialect: Dialect) -> list[str]:
    """Statements of thread `t` that sort a block of `EACH` elements, without shared memory, as `span` is."""
    o = dialect.output
    return [
        "if (t >= segments) return;",
        "int row = t / max(blocks, 1), start = (t - row * blocks) * span;",
        "int from = row * count + start, to = 2 * from;",
        f"int here = min({dialect.length_of('row')} - start, {EACH}), most = min(here, keep);",
        "if (here <= 0) return;",
        *_ranks(dialect),
        *(
            f"if (r{k} < most) {{ {o}[to + 2 * r{k}] = k{k}; {o}[to + 2 * r{k} + 1] = start + {k}; }}"
            for k in range(EACH)
        ),
    ]


def block_statements(dialect: Dialect) -> list[str]:
    """Statements of thread `t` that sort a block of `BLOCK` elements and store its pairs."""
    return [
        f"int group = t / {GROUP}, lane = t - group * {GROUP}, slots = max(span, 1), own = lane * {EACH};",
        f"int first = group * ({BLOCK} / slots), segment = first + own / slots;",
        "int row = segment / max(blocks, 1);",
        "int start = (segment - row * blocks) * slots + own % slots, from = row * count + start;",
        f"int here = segment < segments ? min({dialect.length_of('row')} - start, {EACH}) : 0;",
        *_ranks(dialect),
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
        f"    if (owner < segments && place < min({dialect.length_of('line')} - begin, keep)) {{",
        "        int at = 2 * (line * count + begin + place);",
        f"        {dialect.output}[at] = keys[half_ + e];",
        f"        {dialect.output}[at + 1] = begin + places[half_ + e] - part * slots;",
        "    }",
        "}",
    ]


def merge_statements(dialect: Dialect) -> list[str]:
    """Statements of thread `t` that store its share of a merged run."""
    key = dialect.read("2 * ({})")
    return [
        "if (t >= total) return;",
        f"int line = t / max(chunks, 1), q = (t - line * chunks) * {EACH}, row = line / max(pairs, 1);",
        "int base = (line - row * pairs) * 2 * run, left = row * count + base, right = left + run;",
        f"int rest = {dialect.length_of('row')} - base;",
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
        f"    {dialect.output}[2 * at] = is_left ? next_left : next_right;",
        f"    {dialect.output}[2 * at + 1] = {dialect.read('2 * source + 1')};",
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
